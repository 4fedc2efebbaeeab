"""How a member becomes leader: ask, take the register, seal a majority, fetch the log's end.

    ASKING     would a majority let itself be sealed? Else it follows somebody, and nothing happens:
               a server that was cut off does not depose a healthy leader when it returns.
    TAKING     the register: (epoch + 1, me). It makes the leader of an epoch unique.
    SEALING    a majority, itself included, refuses all earlier leaders from then on.
    FETCHING   of their ends the highest one, by epoch and then by index, has all that is committed.
               What is missing of it here is fetched; what contradicts it goes.
    READY      to be the leader

Where the register lies outside of a group of two, and the other server does not answer, the
register is asked for the next epoch with this server alone (`membership`); also if the other one is
there and does not seal itself, whose disk is full. Where too few of the
members that it knows answer, it asks such a register who they are.

A majority of whole logs is not needed in a group of an even size, in which half of the servers are
in each majority: of two, one has all that was committed. The other one, whose log is damaged or
short, has to be sealed, and its log does not count.

To whom a leader hands over, the register has the next epoch for it as a rule: it begins at SEALING.

One attempt takes a bounded time; the next one takes a new epoch. Who lacks entries that another one
has trimmed cannot fetch them there. It is told so, and stands no more until it has them: who has
trimmed them can lead itself.
"""

from enum import Enum, auto

from slipstream.errors import CorruptionError
from slipstream.group.lease import Settings
from slipstream.group.log_replica import LogReplica
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    BEGINNING,
    AskSeal,
    Fetch,
    Fetched,
    Mark,
    Message,
    RegisterValue,
    Seal,
    Sealed,
    WouldSeal,
)
from slipstream.group.outbox import Outbox
from slipstream.group.register import Register


class Stage(Enum):
    """How far an attempt is."""

    ASKING = auto()
    TAKING = auto()
    SEALING = auto()
    FETCHING = auto()
    READY = auto()


class Candidate:
    """One attempt. `epoch` is the last one that is known; the candidate wants the one after it."""

    def __init__(
        self,
        name: str,
        epoch: int,
        membership: Membership,
        log: LogReplica,
        register: Register,
        outbox: Outbox,
        settings: Settings,
        now: int,
        is_successor: bool = False,
        taken: RegisterValue | None = None,
    ) -> None:
        self._alone_at = now + settings.alone_candidate
        self.epoch = epoch + 1
        self._name = name
        self.membership = membership  # of those that it asks; once the register is taken, in it
        self._log = log
        self._register = register
        self._outbox = outbox
        self._settings = settings
        self._attempt = now
        self._asked_at = now
        self._ends_at = now + settings.attempt
        self._granted: set[str] = set()
        self._whole: set[str] = set()  # who has granted it, or is sealed, with a whole log
        self._sealed: set[str] = set()
        self._ends: dict[str, Mark] = {}  # of the members that are sealed, and whole
        self._best = BEGINNING
        self._after = 0  # index after which entries were asked for last
        self._has_read = False  # the register, while nobody answers
        self.stage = Stage.ASKING
        self._is_successor = is_successor
        if taken is not None:  # by the leader, for this server
            self._seal(now, taken)
        elif is_successor:  # the leader itself says that nobody leads any more
            self._take(now)
        else:
            self._ask()

    def _are_enough(self, members: set[str]) -> bool:
        """Whether no earlier leader can go on without these, nor can have without the whole ones
        among them, of which this server is one."""
        membership, whole = self.membership, self._whole & members
        is_known = self._name in whole and membership.is_in_each_quorum(whole)
        return is_known and membership.is_quorum(members)

    def _ask(self) -> None:
        """Ask the members that have not answered what this stage is about."""
        takes_damaged = self.membership.has_even_group
        match self.stage:
            case Stage.ASKING:
                question = AskSeal(self._attempt, self._log.end.index, takes_damaged)
                self._send_unless(self._granted, question)
            case Stage.SEALING:
                self._send_unless(self._sealed, Seal(self.epoch, takes_damaged))
            case Stage.FETCHING:
                self._fetch(self._log.common_with(self._best))

    def _send_unless(self, answered: set[str], message: Message) -> None:
        for member in self.membership.everyone:
            if member not in answered:
                self._outbox.send(member, message)

    def tick(self, now: int) -> bool:
        """Ask again; False once the attempt has taken too long."""
        if now >= self._asked_at + self._settings.retry:
            self._asked_at = now
            self._ask()
        if now >= self._alone_at and self._may_go_on_alone:
            self.epoch += self.stage is Stage.SEALING  # which is taken already
            self._take(now, self.membership.alone(self._name))
        elif now >= self._alone_at and self.stage is Stage.ASKING and not self._has_read:
            self._has_read = True  # the members may be others by now, whom nobody has named here
            if self._register.is_outside:
                self._register.compare_and_set(now, RegisterValue(0, "", ()))  # only read
        return now < self._ends_at

    @property
    def _may_go_on_alone(self) -> bool:
        """Whether nobody but this server is there, or seals itself. It has all, and holds no
        promise any more."""
        answered = {Stage.ASKING: self._granted, Stage.SEALING: self._sealed}.get(self.stage)
        return (
            answered == {self._name}
            and self._register.is_outside
            and self.membership.is_in_all_quorums(self._name)
        )

    # -- answers ---------------------------------------------------------------------------------

    def would_seal(self, now: int, sender: str, message: WouldSeal) -> None:
        """A member follows nobody."""
        if self.stage is Stage.ASKING and message.attempt == self._attempt:
            self._granted.add(sender)
            if message.is_whole:
                self._whole.add(sender)
            if self._are_enough(self._granted):
                self._take(now)

    def _take(self, now: int, membership: Membership | None = None) -> None:
        self.stage = Stage.TAKING
        wanted = membership or self.membership
        value = RegisterValue(self.epoch, self._name, ()).with_membership(wanted)
        self._register.compare_and_set(now, value)

    def _seal(self, now: int, taken: RegisterValue) -> None:
        """The register has this epoch for this server."""
        self.epoch, self.membership = taken.epoch, taken.membership
        self.stage = Stage.SEALING
        self._whole, self._sealed, self._ends = set(), set(), {}
        self._alone_at = now + self._settings.alone_candidate
        self._ask()

    def look_at_register(self, now: int) -> bool:
        """What has become of it; False if somebody else was quicker."""
        outcome = self._register.outcome
        if self.stage is not Stage.TAKING or outcome is None:
            return True
        if outcome.is_set:
            self._seal(now, outcome.value)
            return True
        self.epoch = outcome.value.epoch + 1
        is_own = outcome.value.leader == self._name  # of an earlier process, or given up
        # Who handed over to this server led although another one had taken that epoch, and has
        # given it up.
        if (is_own or self._is_successor) and self._name in outcome.value.members:
            self._take(now)
            return True
        return False

    def sealed(self, sender: str, message: Sealed) -> None:
        """A member refuses earlier leaders, and says where its log ends."""
        if self.stage is Stage.SEALING and message.epoch == self.epoch:
            self._sealed.add(sender)
            if message.is_whole:
                self._whole.add(sender)
                self._ends[sender] = message.end
            if self._are_enough(self._sealed):
                self._best = max(self._ends.values())
                self.stage = Stage.FETCHING
                self._fetch(self._log.common_with(self._best))

    def _fetch(self, after: int) -> None:
        """Ask for the entries after that index, unless everything is here."""
        if self._log.mark(self._best.index) == self._best:
            self.stage = Stage.READY
            return
        self._after = after
        for member, end in self._ends.items():
            if end == self._best:
                self._outbox.send(member, Fetch(self.epoch, after + 1, self._settings.entries_max))

    def fetched(self, message: Fetched) -> None:
        """A sealed member has sent a piece of its log. Raises `CorruptionError`."""
        if self.stage is not Stage.FETCHING or message.epoch != self.epoch:
            return
        if message.after.index != self._after:
            return  # of an earlier question
        if message.after.index < self._log.base.index:
            return  # what it was about has been trimmed
        before = self._log.end
        if self._log.append(message.after, message.entries) is None:
            if message.after.index <= self._log.committed:
                raise CorruptionError(
                    f"entry {message.after.index} is committed here, and another one is where the "
                    "log is latest: this server takes no part in the group any more; compare the "
                    "stores"
                )
            self._fetch(self._log.common_with(message.after))
        elif self._log.end != before:
            self._fetch(self._log.end.index)
