"""One server of a group, whole: time, messages and results of the disk in; messages and jobs out.

    receive(now, sender, message)     tick(now)     synced(now, job)     append(now, bodies)
        -> take_messages(), take_job()                                   -> is_committed(mark)
    trim(now, index)                  begin_install(now, mark), installed(now, mark)
                                          -> checkpoint_sources(), may_install

A member follows a leader, is a candidate, or leads. Each input is handled to its end; what it says
to itself goes the way of all messages, so its own promises, seals and copies count like those of
others, once they are synced. `now` is in ns by a clock of the server's own that only goes forward.

A server that fails (its disk has, or its log contradicts what is committed) says why in `failed`,
and is silent from then on.

What the entries have come to is a matter of the driver's. It says up to which index that is kept
elsewhere (`trim`), and where a leader has not got the entries any more that this member lacks, it
brings a checkpoint: it asks one of the servers that `checkpoint_sources` names, says
`begin_install`, waits until `may_install`, has the checkpoint take the place of what was applied,
and says `installed`. In between the member does not lead; a crash finds it so. Its log counts as
before: a checkpoint takes the place of what was made from entries, and of those before it.

A member is opened with what the disk has; `State()` founds a group.
None is for a disk that is empty although it should not be: nobody knows what it has promised, so it
takes no part.
"""

from collections.abc import Sequence
from random import Random

import msgspec

from slipstream.errors import CorruptionError, Error
from slipstream.group.candidate import Candidate, Stage
from slipstream.group.disk_watch import Wish
from slipstream.group.leader import FollowerState, Leader
from slipstream.group.lease import SealPromise, Settings
from slipstream.group.log_replica import LogReplica
from slipstream.group.members_change import GoingAlone, MembersChange
from slipstream.group.members_change import Stage as Changing
from slipstream.group.members_register import MembersRegister
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    Accept,
    Accepted,
    Append,
    Appended,
    AskSeal,
    Behind,
    DiskHealth,
    Entry,
    Fetch,
    Fetched,
    Heard,
    Heartbeat,
    Mark,
    Message,
    Missing,
    Outbid,
    Prepare,
    Promise,
    Refused,
    RegisterValue,
    Release,
    Seal,
    Sealed,
    Trimmed,
    WouldSeal,
    is_chain,
)
from slipstream.group.outbox import DiskJob, Outbox, State
from slipstream.group.register import Register
from slipstream.model.durations import SECOND

FULL_WAITS = 4  # promises that one with a full disk lets pass before it stands
NOTE_EVERY = SECOND  # ns: how often a server at rest notes how far its log is synced


class NotLeaderError(Error):
    """This server does not lead the group, or not yet."""


class Member:
    """See the module's text."""

    def __init__(
        self,
        name: str,
        members: tuple[str, ...],
        state: State | None,
        stored: list[Entry | None],
        now: int,
        random: Random,
        settings: Settings | None = None,
        register: Register | None = None,
    ) -> None:
        self.name = name
        self.leader_name = ""  # as far as it knows
        self.heard_committed = 0  # index up to which a leader has said that entries are committed
        self.failed = "" if state else "the disk is empty: what this server has promised is lost"
        self._settings = settings or Settings()
        self._random = random
        self.is_removed = False  # from the group; then it has failed, too
        self._leader: Leader | None = None
        self._founders = Membership(members)
        self._outbox = Outbox(state or State())
        self.log = LogReplica(self._outbox, stored)
        self._register = register or MembersRegister(
            name, lambda: self._heard_of, self._outbox, self._settings
        )
        self._change: MembersChange | GoingAlone | None = None
        self._known = self._outbox.state.sealed  # the latest epoch that was heard of
        is_alone = self.membership.everyone == (name,) and not self._register.is_outside
        self._promise = SealPromise(now if is_alone else now + self._settings.promise)
        self._candidate: Candidate | None = None
        self._deadline = now  # when it becomes a candidate if it hears of no leader
        self._asks = 0 if self.log.is_whole else random.getrandbits(62) + 1
        self._repair_at = now
        self._repair_count = self._settings.entries_max  # entries that are asked for at a time
        self._note_at = now
        self._install_job = 0  # after which the disk knows that a checkpoint is installed
        self._behind_in = 0  # the epoch whose leader lacks the entries that are needed here
        self._source_named = (0, "")  # an epoch, and who its leader says had better send one
        self._coming = 0  # index of the checkpoint that is installed, until entries follow it
        self._started_at = now
        self._disk = DiskHealth()
        self._taken_for = ""  # the server that is to lead next, for whom the register was asked
        self._slow: tuple[str, ...] = ()  # who handed over to this server, or before, for that
        self._trimmed = 0  # index up to which others have trimmed: without that it cannot lead
        self._messages: list[tuple[str, Message]] = []
        if not is_alone:
            self._wait(now)
        self._finish_turn(now)

    # -- who is in the group ---------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """Who is in the group, as far as this server was told; a server that is about to join it
        may have been told nothing."""
        if self._leader is not None:
            return self._leader.told
        return self._outbox.state.membership or self._founders

    @property
    def _heard_of(self) -> Membership:
        """The latest step that this server has heard of, which the register may have or not."""
        known, value = self.membership, self._outbox.state.value
        return value.membership if value is not None and value.step > known.number else known

    @property
    def members(self) -> tuple[str, ...]:
        """Who is in the group."""
        return self.membership.members

    @property
    def joining(self) -> tuple[str, ...]:
        """Who is about to come into it, if this server leads."""
        change = self._change
        return tuple(one for one in change.members if one not in self.members) if change else ()

    @property
    def is_changing(self) -> bool:
        """Whether a change of the members is under way, if this server leads."""
        return self._change is not None

    @property
    def may_change(self) -> bool:
        """Whether this server leads, is not about to hand over, and no change is under way."""
        leader = self._leader
        may_append = leader is not None and leader.serves and not leader.successor
        return may_append and self._change is None

    def change_members(self, now: int, servers: tuple[str, ...]) -> None:
        """Have these be the group, of whom all but one have to be in it already; one that there is
        may go. Those that are away stay so. It takes a while, and `members` tells when it is done.
        Raises `NotLeaderError`, and ValueError where it cannot be done."""
        leader = self._leader
        if leader is None or not leader.serves or leader.successor:
            raise NotLeaderError(f"{self.name} does not lead the group, and cannot change it")
        if self._change is not None:
            raise ValueError(f"{', '.join(self._change.members)} are about to be the members: wait")
        if self.name not in servers:
            raise ValueError(f"{self.name} leads the group: have it hand over before it leaves")
        whole = self.membership.whole
        added, gone = set(servers) - set(whole), set(whole) - set(servers)
        if len(added) > 1 or len(gone) > 1 or len(set(servers)) < len(servers):
            raise ValueError("one server at a time may come, and one may leave")
        if added or gone:
            away = tuple(one for one in self.membership.away if one in servers)
            members = tuple(one for one in servers if one not in away)
            self._begin_change(now, leader, members, away)
            self._finish_turn(now)

    def _begin_change(
        self, now: int, leader: Leader, members: tuple[str, ...], away: tuple[str, ...]
    ) -> None:
        self._change = MembersChange(
            self.name, leader, self.log, self._register, self._settings, now, members, away
        )

    def _look_after_two(self, now: int, leader: Leader) -> None:
        """Where one of two servers may lead alone: go on without the other one, or take it back,
        also if there are more of them by then."""
        told, settings = leader.told, self._settings
        if not self._register.is_outside:
            return
        is_silent = leader.is_silent(now, settings.alone_leader)
        if (is_silent or leader.is_kept(now, settings.alone_full)) and len(told.members) <= 2:
            if self._change is not None:
                self._change.give_up()
                if self._change.is_over:
                    self._change = None
            if self._change is None and told.is_in_all_quorums(self.name):
                self._change = GoingAlone(self.name, leader, self._register, now)
            return
        for one in told.away:
            is_there = leader.was_heard(now, one, settings.alone_leader // 2)
            is_free = self._change is None and not leader.successor
            if is_there and is_free and leader.has_caught_up(now, one) and leader.has_space(one):
                away = tuple(other for other in told.away if other != one)
                self._begin_change(now, leader, (*told.members, one), away)

    def give_up_change(self, now: int) -> bool:
        """Keep the members that there are, such as where a server that is to join has gone; False
        if others may rely on the new ones already, so that the change has to come to its end."""
        if self._change is None or not self._change.give_up():
            return False
        self._finish_turn(now)
        return True

    def hear_membership(self, membership: Membership) -> None:
        """Somebody says what the register has."""
        known = self._outbox.state.membership or self._founders
        if membership.number > known.number or not known.members:
            self._outbox.keep(msgspec.structs.replace(self._outbox.state, membership=membership))
            if self.name in known.whole and self.name not in membership.whole:
                self.is_removed = True
                self.fail("this server was removed from the group")

    # -- what a driver asks ----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """In which it serves as leader; 0 if it does not."""
        return self._leader.epoch if self._leader is not None and self._leader.serves else 0

    @property
    def leads(self) -> bool:
        """Whether it leads, or is about to."""
        return self._leader is not None

    @property
    def is_new(self) -> bool:
        """Whether it has promised nothing yet, and has nothing."""
        state = self._outbox.state
        return not (state.sealed or state.promised.round or self.log.end.index)

    @property
    def committed(self) -> int:
        """The index up to which entries are committed, as far as it knows."""
        return self.log.committed

    def append(self, now: int, bodies: Sequence[bytes]) -> list[Mark]:
        """Have new entries; see `is_committed`. Raises `NotLeaderError`."""
        leader = self._leader
        if leader is None or not leader.serves or leader.successor:
            named = self.leader_name if self.leader_name != self.name else ""
            hint = f"ask {named}" if named else "no leader is known yet, ask again in a while"
            raise NotLeaderError(f"{self.name} does not lead the group: {hint}")
        marks = leader.append(bodies) if bodies else []
        self._finish_turn(now)
        return marks

    def is_committed(self, mark: Mark) -> bool:
        """Whether an entry of this server's `epoch` is committed; once it leads no more, it cannot
        say so of what was not."""
        return mark.epoch == self.epoch and mark.index <= self.log.committed

    @property
    def is_installing(self) -> bool:
        """Whether what it has applied may be half of a checkpoint."""
        return self.log.is_installing

    @property
    def may_install(self) -> bool:
        """Whether that is kept on the disk, so that what was applied may be replaced."""
        is_noted = self._outbox.is_done(self._install_job)
        return is_noted and self.log.is_installing and not self.failed

    def checkpoint_sources(self) -> tuple[str, ...]:
        """Whom to ask for a checkpoint, the best one first; nobody if it needs none."""
        if self.failed or not (self.log.is_installing or self._is_behind):
            return ()
        others = [member for member in self.members if member != self.name]
        if not self.leader_name:
            return (self._random.choice(others),) if others else ()
        epoch, named = self._source_named
        is_good = epoch == self.log.sealed and named in others
        return (named, self.leader_name) if is_good else (self.leader_name,)

    @property
    def _is_behind(self) -> bool:
        return self._behind_in == self.log.sealed and bool(self.leader_name)

    def checkpoint_mark(self, index: int) -> Mark | None:
        """The entry at `index`, up to which entries were applied here, if a checkpoint up to it may
        be sent: what follows it is here."""
        if self.log.is_installing or self.failed:
            return None
        self.log.was_applied(index)
        return self.log.mark(index)

    def needed_behind(self, now: int) -> int:
        """The index behind which entries are needed by members that this one sends them to."""
        leader = self._leader
        return leader.needed_behind(now) if leader is not None else self.log.end.index

    def may_read(self, now: int) -> bool:
        """Whether all that is committed anywhere is committed here, so that reads are answered."""
        return self._leader is not None and self._leader.may_read(now)

    def followers(self, now: int) -> list[FollowerState]:
        """How far the other servers are; empty if this one does not lead."""
        return self._leader.followers(now) if self._leader is not None else []

    def note_disk(self, now: int, health: DiskHealth) -> None:
        """How the disk of this server is; others are told with the next answer to a heartbeat."""
        self._disk = health
        if self._leader is not None:
            self._leader.note_disk(now, health)

    def wish(self, now: int) -> Wish | None:
        """Who should lead in place of this server because its disk is full or slow; None if nobody
        should, or this server does not lead. To be asked with each tick, and to be fulfilled by
        `hand_over`."""
        leader, may_be_alone = self._leader, self._register.is_outside
        return leader.wish(now, may_be_alone) if leader is not None else None

    def without_space(self, now: int) -> list[str]:
        """The servers whose full disks keep entries from being committed, if this one leads: what
        adds to the store had better not be begun."""
        return self._leader.without_space(now) if self._leader is not None else []

    def hand_over(self, now: int, successor: str, is_slow: bool = False) -> None:
        """Have another member lead, soon; "" is the one that has most. `is_slow`: because of the
        disk here, so that it is not handed back for that. Raises `NotLeaderError`, and ValueError
        if there is no such member."""
        others = [member for member in self.members if member != self.name]
        if not others or successor not in ("", *self.members):
            raise ValueError(
                f"{successor or 'nobody'} is no other member of the group: choose from "
                f"{', '.join(others)}"
            )
        if self._leader is None or successor == self.name:
            raise NotLeaderError(f"{self.name} has nothing to hand over to {successor}")
        successor = successor or self._leader.most_synced()
        self._leader.hand_over(now, successor, is_slow)
        if self._taken_for != successor:
            self._take_register(now, self._leader, successor)
        self._finish_turn(now)

    @property
    def is_handing_over(self) -> bool:
        """Whether this server leads, and takes no more entries because another one is to lead."""
        return self._leader is not None and bool(self._leader.successor)

    def prepare_hand_over(self, now: int, successor: str) -> str:
        """Do ahead of `hand_over` what can be done while this server leads, and serves; who is to
        lead. Raises `NotLeaderError`, and ValueError if nobody could lead soon."""
        leader = self._leader
        if leader is None or not leader.serves:
            raise NotLeaderError(f"{self.name} does not lead, and has nothing to hand over")
        if self.members == (self.name,):
            raise ValueError("no other server is in the group")
        found = successor or leader.most_synced()
        if found not in self.members or found == self.name:
            raise ValueError(f"{found} is no other member of the group")
        if not leader.may_succeed(now, found):
            raise ValueError(f"{found} is not there, or lacks entries that it is still sent")
        self._take_register(now, leader, found)
        self._finish_turn(now)
        return found

    def _take_register(self, now: int, leader: Leader, successor: str) -> None:
        """Have the register give the next epoch to the successor. One outside of the group is only
        asked whether it is there."""
        if self._change is not None:
            return
        value = RegisterValue(leader.epoch + 1, successor, ()).with_membership(leader.told)
        if self._register.is_outside:
            value = RegisterValue(0, "", ())
        self._taken_for = successor
        self._register.compare_and_set(now, value)

    def say_committed(self, now: int) -> None:
        """Tell the followers now how far entries are committed, and not with the next heartbeat."""
        if self._leader is not None:
            self._leader.beat(now)
            self._finish_turn(now)

    # -- inputs ----------------------------------------------------------------------------------

    def receive(self, now: int, sender: str, message: Message) -> None:
        """A message has come. What a server says that is no member counts for nothing."""
        if not self.failed:
            self._handle(now, sender, message)
            self._finish_turn(now)

    def look_at_register(self, now: int) -> None:
        """A driver has brought a register outside of the group an answer."""
        if not self.failed:
            self._hear_register(now)
            self._finish_turn(now)

    def synced(self, now: int, job: int) -> None:
        """A job is durable."""
        if not self.failed:
            self.log.job_synced()
            self._outbox.synced(job)
            self._finish_turn(now)

    def unlinked(self, now: int, member: str) -> None:
        """The connection with another server has ended. If that one leads, its process may have
        ended, too: this server stands soon after its own promise is over. It is a hint and no more:
        who follows a leader that is there refuses to be sealed."""
        if member == self.leader_name and self._leader is None and self._candidate is None:
            over = max(now, self._promise.until)  # the others' end within a heartbeat of it
            self._deadline = min(
                self._deadline, over + int(self._settings.heartbeat * (1 + self._random.random()))
            )

    def trim(self, now: int, index: int) -> None:
        """What the entries up to `index` have come to is kept elsewhere, durably: they go, as far
        as they are known to be committed."""
        if not self.failed and not self.log.is_installing:
            self.log.trim(index)
            self._finish_turn(now)

    def lose_applied(self, now: int) -> bool:
        """What the entries had come to here is lost, and some of them are trimmed: a checkpoint has
        to take its place. False if this server leads, which nobody could have asked it to."""
        if self.failed or self._leader is not None:
            return False
        self._candidate = None
        self.log.begin_install()
        self._install_job = self._outbox.job_of_changes
        self._finish_turn(now)
        return True

    def begin_install(self, now: int, mark: Mark) -> bool:
        """A checkpoint up to this entry has come; whether it is one to install. See
        `may_install`."""
        if self.failed or self._leader is not None or mark.index < self.log.base.index:
            return False
        if not self.log.is_installing:
            if not self._is_behind or self.log.covers(mark):
                return False
            self._candidate = None
            self.log.begin_install()
            self._install_job = self._outbox.job_of_changes
            self._finish_turn(now)
        self._coming = mark.index
        return True

    def installed(self, now: int, mark: Mark) -> None:
        """The checkpoint up to this entry has taken the place of what was applied, durably."""
        assert self.may_install, "nothing was to be installed"
        self.log.reset(mark)
        self._behind_in = 0
        self._source_named = (0, "")
        self._asks = 0 if self.log.is_whole else self._random.getrandbits(62) + 1
        self._finish_turn(now)

    def fail(self, why: str) -> None:
        """The disk has failed. What it was to write may be there or not: it is final."""
        self.failed = why
        self._leader = self._candidate = self._change = None
        self._messages = []

    def tick(self, now: int) -> None:
        """Time has gone by; to be called several times in each `Settings.heartbeat`."""
        if self.failed:
            return
        self._register.tick(now)
        if self._leader is not None:
            self._leader.tick(now)
            self._look_after_two(now, self._leader)
            is_going_alone = isinstance(self._change, GoingAlone)
            if self._leader.is_cut_off(now) and not is_going_alone:
                self._step_down(now)
        elif self._candidate is not None:
            if not self._candidate.tick(now):
                self._follow(now, "")
        elif now >= self._deadline:
            self._stand(now)
        if self.log.damaged and not self.log.is_installing and now >= self._repair_at:
            self._repair_count = max(self._repair_count // 4, 1)  # they did not fit, or were lost
            self._ask_repair(now)
        if now >= self._note_at:
            self._note_at = now + NOTE_EVERY
            self._note()
        self._finish_turn(now)

    # -- outputs ---------------------------------------------------------------------------------

    def take_messages(self) -> list[tuple[str, Message]]:
        """What is to be sent, each with its receiver; never to itself."""
        messages, self._messages = self._messages, []
        return messages

    def take_job(self) -> DiskJob | None:
        """The next job for the disk, if there is one; jobs are synced in their order."""
        if self.failed or not self._outbox.has_job:
            return None
        job = self._outbox.take_job(*self.log.progress())
        self.log.job_taken()
        return job

    def _finish_turn(self, now: int) -> None:
        """What is new is sent on; what it says to itself is heard."""
        while not self.failed:
            if self._change is not None:
                self._go_on_changing(now, self._change)
            if self._leader is not None and self._leader.successor:
                self._go_on_handing_over(now, self._leader)
            if self._leader is not None:
                self._leader.send_entries()
            messages = self._outbox.take_messages()
            if not messages:
                return
            for receiver, message in messages:
                if receiver != self.name:
                    self._messages.append((receiver, message))
                elif not self.failed:
                    self._handle(now, receiver, message)

    def _go_on_changing(self, now: int, change: MembersChange | GoingAlone) -> None:
        change.go_on(now)
        if change.is_over:
            self._change = None
            self.hear_membership(self.membership)
        if change.stage is Changing.OVERTAKEN:
            self._give_way(now)

    def _give_way(self, now: int) -> None:
        """The register has a later epoch. Where that is of a hand-over that has come to nothing,
        nobody has begun to lead in it: another server had better do so at once."""
        leader = self._leader
        if leader is not None and self._taken_for and len(self.members) > 1:
            found = leader.most_synced()
            if leader.may_succeed(now, found):
                leader.successor = found
        self._step_down(now)

    def _go_on_handing_over(self, now: int, leader: Leader) -> None:
        """Lead no more once the successor has all."""
        if not leader.is_handed_over(now):
            return
        # A server whose disk is full cannot ask the members: its successor does.
        may_be_told = self._register.is_outside or not self._disk.is_full
        if not self._taken_for or not may_be_told or self._register.outcome is not None:
            self._step_down(now)

    def _taken(self, leader: Leader) -> RegisterValue | None:
        """The register, if it has the epoch of the successor."""
        outcome = self._register.outcome
        if outcome is None or not outcome.is_set or not leader.successor:
            return None
        is_its = (outcome.value.epoch, outcome.value.leader) == (leader.epoch + 1, leader.successor)
        return outcome.value if is_its else None

    # -- messages --------------------------------------------------------------------------------

    def _handle(self, now: int, sender: str, message: Message) -> None:
        try:
            match message:  # what comes most often is the first
                case Append() | Heartbeat() | Release() | Behind():
                    self._follow_leader(now, sender, message)
                case Appended() | Missing() | Heard() | Refused():
                    self._hear_as_leader(now, sender, message)
                case Prepare() | Promise() | Accept() | Accepted() | Outbid():
                    self._register.receive(sender, message)
                    self._hear_register(now)
                case AskSeal() | Seal() | Fetch():
                    self._answer_candidate(now, sender, message)
                case WouldSeal() | Sealed() | Fetched():
                    self._hear_as_candidate(now, sender, message)
                case Trimmed(base):
                    self._hear_trimmed(now, base)
        except CorruptionError as error:
            self.fail(str(error))

    def _hear_register(self, now: int) -> None:
        outcome = self._register.outcome
        if outcome is not None and self._register.is_outside and self._leader is None:
            self._known = max(self._known, outcome.value.epoch)
            if not outcome.is_set:
                self.hear_membership(outcome.value.membership)
                candidate, known = self._candidate, self.membership.number
                if candidate is not None and candidate.membership.number < known:
                    self._follow(now, "")  # it has asked others than it needs
        if self._candidate and not self._candidate.look_at_register(now):
            self._follow(now, "")

    def _answer_candidate(self, now: int, sender: str, message: AskSeal | Seal | Fetch) -> None:
        match message:
            case AskSeal(attempt, end, takes_damaged):
                counts = self.log.counts
                if end < self.log.base.index:
                    self._outbox.send(sender, Trimmed(self.log.base.index))
                elif (counts or takes_damaged) and self._promise.is_over(now):
                    self._outbox.send(sender, WouldSeal(attempt, counts))
            case Seal():
                self._seal(now, sender, message)
            case Fetch(epoch, first, count):
                after = self.log.mark(first - 1)
                if after is not None:
                    entries = self.log.read(first, count, self._settings.bytes_max)
                    self._outbox.send(sender, Fetched(epoch, after, entries))
                elif first <= self.log.base.index:
                    if epoch:
                        self._outbox.send(sender, Trimmed(self.log.base.index))
                    elif self._leader is not None:
                        self._leader.asked_for_gone(now, sender)

    def _seal(self, now: int, sender: str, message: Seal) -> None:
        sealed, epoch, counts = self.log.sealed, message.epoch, self.log.counts
        if epoch < sealed:
            self._outbox.send(sender, Refused(epoch, sealed))
            return
        may_count = counts or message.takes_damaged
        if not may_count or (epoch > sealed and not self._promise.is_over(now)):
            return  # it is asked again
        self.log.seal(epoch)
        if epoch > sealed and sender != self.name:
            self._follow(now, "")
        self._outbox.send_synced(sender, Sealed(epoch, self.log.end, counts))

    def _hear_as_candidate(
        self, now: int, sender: str, message: WouldSeal | Sealed | Fetched
    ) -> None:
        if isinstance(message, Fetched):
            if not is_chain(message.after, message.entries):
                return
            if not message.epoch:
                repaired = [self.log.repair(entry) for entry in reversed(message.entries)]
                if any(repaired):
                    self._repair_count = min(self._repair_count * 2, self._settings.entries_max)
                    self._ask_repair(now)
                return
        candidate = self._candidate
        if candidate is None:
            return
        match message:
            case WouldSeal():
                candidate.would_seal(now, sender, message)
            case Sealed():
                candidate.sealed(sender, message)
            case Fetched():
                candidate.fetched(message)
        if candidate.stage is Stage.READY:
            self._lead(now, candidate)

    def _hear_trimmed(self, now: int, base: int) -> None:
        """Another server has trimmed what this one lacks."""
        self._trimmed = max(self._trimmed, base)
        if self._candidate is not None and self.log.end.index < base:
            self._follow(now, "")

    def _follow_leader(
        self, now: int, sender: str, message: Append | Heartbeat | Release | Behind
    ) -> None:
        epoch = message.epoch
        if not self.log.seal(epoch):
            self._outbox.send(sender, Refused(epoch, self.log.sealed))
            return
        if sender != self.name:
            self._follow(now, sender)
        match message:
            case Append(_, after, entries):
                self._append(sender, epoch, after, entries)
            case Heartbeat(_, sent_at):
                if message.membership is not None:
                    self.hear_membership(message.membership)
                self._promise.renew(epoch, now + self._settings.promise)
                self._outbox.send(
                    sender, Heard(epoch, sent_at, self._asks, self._disk, self._coming)
                )
                self._hear_how_far(sender, message)
            case Release(_, successor, slow, taken):
                self._promise.release(epoch)
                self.leader_name = ""
                self._slow = slow if successor == self.name else ()
                if successor == self.name:
                    self._stand(now, is_successor=True, taken=taken)
            case Behind(_, base, source):
                self._source_named = (epoch, source)
                self._hear_base(now, sender, epoch, base)

    def _append(self, sender: str, epoch: int, after: Mark, entries: tuple[Entry, ...]) -> None:
        if not is_chain(after, entries):
            return
        index = self.log.append(after, entries)
        if index is None:
            self._outbox.send(sender, Missing(epoch, self.log.common_with(after)))
        else:
            self._outbox.send_synced(sender, Appended(epoch, index))
            if not self.log.is_installing:
                self._coming = 0

    def _hear_base(self, now: int, sender: str, epoch: int, base: Mark) -> None:
        """The leader lacks the entries that it takes to be needed here."""
        if self.log.is_installing:
            return
        if self.log.covers(base):
            self._behind_in = 0
            self._outbox.send(sender, Missing(epoch, max(base.index, self.log.base.index)))
        elif not self.log.damaged or now >= self._started_at + self._settings.promise:
            self._behind_in = epoch  # before that others may repair it, or it is not needed here

    def _hear_how_far(self, sender: str, beat: Heartbeat) -> None:
        self.heard_committed = max(self.heard_committed, beat.committed.index)
        if self.log.is_installing:
            return
        self.log.agrees(beat.committed)
        self.log.commit(beat.committed.index)
        if self.log.is_short and beat.end > self.log.end.index:
            self._outbox.send(sender, Missing(beat.epoch, self.log.end.index))
        if self._asks and beat.answers == self._asks:
            self.log.holds_up_to(beat.end)
            if self.log.is_whole:
                self._asks = 0

    def _hear_as_leader(
        self, now: int, sender: str, message: Appended | Missing | Heard | Refused
    ) -> None:
        leader = self._leader
        if isinstance(message, Refused):
            self._known = max(self._known, message.sealed)
            if leader is not None and message.sealed > leader.epoch:
                self._step_down(now)
            elif self._candidate is not None and message.sealed > self._candidate.epoch:
                self._follow(now, "")
            return
        if leader is None or message.epoch != leader.epoch:
            return
        match message:
            case Appended():
                leader.appended(now, sender, message)
            case Missing():
                leader.missing(now, sender, message)
            case Heard():
                leader.heard(sender, message)

    # -- who leads -------------------------------------------------------------------------------

    def _wait(self, now: int) -> None:
        """Become a candidate, but not before a leader had time to be heard; nor all at once. Who
        has a full disk may not be able to have itself sealed: others, if there are any, are to be
        the first."""
        promise = self._settings.promise
        lets_others = self._disk.is_full and self.membership.whole != (self.name,)
        least = FULL_WAITS * promise if lets_others else promise
        self._deadline = now + least + int(promise * self._random.random())

    def _follow(self, now: int, leader: str) -> None:
        """Follow a leader, also one that is not known yet."""
        if self._candidate is not None or self._change is not None or self._taken_for:
            self._register.give_up()
        self._leader = self._candidate = self._change = None
        self._taken_for = ""
        self.leader_name = leader
        self._known = max(self._known, self.log.sealed)
        self._wait(now)

    def _stand(
        self, now: int, is_successor: bool = False, taken: RegisterValue | None = None
    ) -> None:
        """Become a candidate, if it may. `taken` is the register, which has an epoch for this
        server, in which it has not led: else it would be sealed at it, and would not have heard who
        hands over."""
        self._wait(now)
        if not self.log.is_whole or self.log.is_installing or self.log.end.index < self._trimmed:
            return
        membership = self._heard_of
        if self.name not in membership.members:
            if self._register.is_outside:  # it may be one by now, and was not told
                self._register.compare_and_set(now, RegisterValue(0, "", ()))  # only read
            return
        value = self._outbox.state.value
        epoch = max(self._known, self.log.sealed, value.epoch if value else 0)
        self._candidate = Candidate(
            self.name,
            epoch,
            membership,
            self.log,
            self._register,
            self._outbox,
            self._settings,
            now,
            is_successor,
            taken,
        )

    def _lead(self, now: int, candidate: Candidate) -> None:
        self._candidate = None
        self.leader_name = self.name
        epoch, membership = candidate.epoch, candidate.membership
        self.hear_membership(membership)
        leader = self._leader = Leader(
            self.name, epoch, membership, self.log, self._outbox, self._settings, now, self._slow
        )
        leader.note_disk(now, self._disk)
        self._slow = ()
        if membership.previous:  # an earlier leader has begun to change them
            self._change = MembersChange(
                self.name, leader, self.log, self._register, self._settings, now
            )

    def _step_down(self, now: int) -> None:
        """Lead no more, and say so."""
        assert self._leader is not None
        self._leader.release(now, self._taken(self._leader))
        self._follow(now, "")

    # -- the disk --------------------------------------------------------------------------------

    def _ask_repair(self, now: int) -> None:
        """Ask the others for what is damaged, the latest first: the entry behind it says which one
        it has to be."""
        self._repair_at = now + self._settings.retry
        if not self.log.damaged:
            return
        last = first = max(self.log.damaged)
        while first - 1 in self.log.damaged and last - first + 1 < self._repair_count:
            first -= 1
        for member in self.members:
            if member != self.name:
                self._outbox.send(member, Fetch(0, first, last - first + 1))

    def _note(self) -> None:
        """Have the disk know how far the log has come, if nothing else is to be written."""
        synced, committed = self.log.progress()
        state = self._outbox.state
        self._outbox.keep(msgspec.structs.replace(state, synced=synced, committed=committed))
