"""What a leader does: send entries, count synced copies, hold its lease, hand over.

Its first entry is empty and of its own epoch. It serves once that is committed: then everything
before it is, too. An entry of an earlier epoch that is on a majority is not committed by that: a
later leader may have been elected without it, and may return. So only entries of its own epoch are
counted, and those before them follow (Raft's figure 8).

A follower that needs entries that the leader has trimmed is told where the leader's log begins,
until it has what lies before that: a checkpoint brings it, which is no matter of the leader. The
leader names a follower that has all entries as its source, if there is one, since that one has more
time; and keeps what follows the checkpoint while it is on its way.

Entries keep the epoch in which they were made. To write the log's end anew under the new epoch, as
designs for quorum logs say, would have a half-written end outrank a longer one that is committed.

Servers that are about to become members (`learn`) are sent entries like followers, and count for
nothing until `membership` has them.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from slipstream.group.disk_watch import DiskWatch, Wish
from slipstream.group.lease import Lease, Settings
from slipstream.group.log_replica import LogReplica
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    Append,
    Appended,
    Behind,
    DiskHealth,
    Entry,
    Heard,
    Heartbeat,
    Mark,
    Missing,
    RegisterValue,
    Release,
    make_entry,
)
from slipstream.group.outbox import Outbox

UNANSWERED_MAX = 1024  # entries on their way to one follower


class _Follower:
    """How far another server is, as the leader knows it; and the leader's own copy."""

    def __init__(self, end: int) -> None:
        self.sent = end  # index up to which entries were sent
        self.agreed = end  # ... up to which it seems to have the leader's log
        self.is_sure = False  # ... or has it: only then is more than one message sent at a time
        self.synced = 0  # ... up to which it has it, synced
        self.moved_at = 0  # ns: when it came further, or entries were sent once more
        self.moved_back_at = 0  # ns: when it turned out to have less
        self.base_said_at = 0  # ns: when it was told where the log begins, and some time more
        self.asks = 0  # its last `Heard.asks`
        self.needs = 0  # its last `Heard.needs`
        self.size = 0  # bytes of bodies that were sent, and not answered yet ...
        self._sizes: deque[tuple[int, int]] = deque()  # ... by message: its last index, its bytes

    def has_sent(self, entries: tuple[Entry, ...]) -> None:
        """A message is on its way."""
        size = sum(len(entry.body) for entry in entries)
        self.sent += len(entries)
        self.size += size
        self._sizes.append((self.sent, size))

    def has_answered(self, index: int) -> None:
        """It has what was sent up to `index`."""
        while self._sizes and self._sizes[0][0] <= index:
            self.size -= self._sizes.popleft()[1]

    def send_again(self, after: int) -> None:
        """What was sent after that index counts for nothing."""
        self.sent = self.agreed = after
        self.is_sure = False
        self.size = 0
        self._sizes.clear()


class FollowerState(NamedTuple):
    """How far a follower is, as the leader knows it."""

    name: str
    synced: int  # index up to which it has the log
    active: int  # ns since it was heard
    is_away: bool  # and counts for nothing until it is back


class Leader:
    """A member while it leads `epoch`. `name` is its own."""

    def __init__(
        self,
        name: str,
        epoch: int,
        membership: Membership,
        log: LogReplica,
        outbox: Outbox,
        settings: Settings,
        now: int,
        slow: Sequence[str] = (),
    ) -> None:
        self.epoch = epoch
        self.told = membership  # that the register has; followers are told
        self.successor = ""  # to whom it is about to hand over
        self._name = name
        self._log = log
        self._outbox = outbox
        self._settings = settings
        self._membership = membership
        self._followers = {name: _Follower(log.end_index) for name in membership.everyone}
        self._lease = Lease(membership, settings, now)
        self._beat_at = now
        self._hand_over_until = 0
        self._is_slow = False  # it hands over because its disk is
        self._disks = DiskWatch(now, slow)
        self._kept_since: int | None = None  # by others' full disks from committing
        self._start = self.append([b""])[0].index  # what its epoch begins with
        for name in membership.away:
            self.learn(now, name)
        self.beat(now)

    # -- serving ---------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether all that earlier leaders have answered for is known to be committed here."""
        return self._log.committed >= self._start

    def may_read(self, now: int) -> bool:
        """Whether what is committed here is all that is committed anywhere."""
        return self.serves and self._lease.is_held(now)

    def followers(self, now: int) -> list[FollowerState]:
        """How far the other servers are."""
        return [
            FollowerState(
                name,
                one.synced,
                max(now - self._lease.heard_at(name), 0),
                name in self.told.away,
            )
            for name, one in self._followers.items()
            if name != self._name and name in (*self._membership.members, *self._membership.away)
        ]

    # -- members ---------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """Whose copies and promises count."""
        return self._membership

    @membership.setter
    def membership(self, membership: Membership) -> None:
        for name in membership.everyone:
            assert name in self._followers, "who counts has been sent entries before"
        self._membership = self._lease.membership = membership
        self._commit()  # fewer may have to have it

    def learn(self, now: int, name: str) -> None:
        """Send entries to a server that is no member yet."""
        if name not in self._followers:
            self._followers[name] = _Follower(self._log.end_index)
            self._lease.ask(name, now)

    def forget(self, name: str) -> None:
        """Send nothing more to a server that is no member; it is told that it is none."""
        assert name not in self._membership.everyone
        if name == self.successor:
            self.successor = ""
        if name in self._followers:
            self._outbox.send(name, self._heartbeat(0, name))
            del self._followers[name]
            self._lease.forget(name)
            self._disks.forget(name)

    def has_caught_up(self, now: int, name: str) -> bool:
        """Whether a server is there, and has almost all entries."""
        follower = self._followers[name]
        is_there = self.was_heard(now, name, self._settings.promise)
        return is_there and follower.is_sure and follower.synced + UNANSWERED_MAX >= self._end

    @property
    def _end(self) -> int:
        return self._log.end_index

    # -- entries ---------------------------------------------------------------------------------

    def append(self, bodies: Sequence[bytes]) -> list[Mark]:
        """New entries, which are not committed yet."""
        end = after = self._log.end
        entries = []
        for body in bodies:
            entry = make_entry(self.epoch, after, body)
            entries.append(entry)
            after = entry.mark
        self._log.append(end, tuple(entries))
        self._outbox.send_synced(self._name, Appended(self.epoch, after.index))
        return [entry.mark for entry in entries]

    def send_entries(self) -> None:
        """Send to each follower what it was not sent yet."""
        end = self._log.end_index
        message: Append | None = None  # the last one: others may need the same
        for member, follower in self._followers.items():
            if follower.sent >= end or member == self._name:
                continue
            if follower.sent < self._log.base.index:
                continue
            last = min(end, follower.agreed + (UNANSWERED_MAX if follower.is_sure else 1))
            while follower.sent < last and follower.size < self._settings.unanswered_max:
                if message is None or message.after.index != follower.sent:
                    message = self._entries_behind(follower.sent)
                self._outbox.send(member, message)
                follower.has_sent(message.entries)

    def _entries_behind(self, index: int) -> Append:
        after = self._log.mark(index)
        assert after is not None, "a leader has no damaged entries"
        count, size = self._settings.entries_max, self._settings.bytes_max
        return Append(self.epoch, after, self._log.read(index + 1, count, size))

    # -- answers ---------------------------------------------------------------------------------

    def appended(self, now: int, sender: str, message: Appended) -> None:
        """A copy has come further."""
        follower = self._followers.get(sender)
        if follower is None:
            return
        follower.is_sure |= message.index >= follower.agreed
        follower.has_answered(message.index)
        if message.index > follower.synced:
            follower.synced = message.index
            follower.agreed = max(follower.agreed, message.index)
            follower.sent = max(follower.sent, message.index)
            follower.moved_at = now
            if message.index > self._log.committed:
                self._commit()

    def _commit(self) -> None:
        index = self.index_on_quorum()
        mark = self._log.mark(index)
        if index > self._log.committed and mark is not None and mark.epoch == self.epoch:
            self._log.commit(index)

    def index_on_quorum(self) -> int:
        """The highest index up to which a quorum has this log, synced."""
        return self._membership.reached(
            {name: follower.synced for name, follower in self._followers.items()}
        )

    def missing(self, now: int, sender: str, message: Missing) -> None:
        """A follower needs earlier entries first."""
        follower = self._followers.get(sender)
        if follower is None:
            return
        is_late = follower.is_sure or message.index >= follower.agreed
        if is_late and now < follower.moved_back_at + self._settings.retry:
            return  # what it needs is on its way again
        follower.moved_back_at = now
        follower.send_again(min(message.index, self._log.end_index))
        follower.synced = min(follower.synced, message.index)
        follower.moved_at = now
        self._say_base(now, sender, follower)

    def _say_base(self, now: int, member: str, follower: _Follower) -> None:
        """Tell a follower that needs what is gone where the log begins."""
        if follower.sent < self._log.base.index and now >= follower.base_said_at:
            follower.base_said_at = now + self._settings.retry
            self._outbox.send(member, self._behind(now, member))

    def asked_for_gone(self, now: int, sender: str) -> None:
        """A follower wants to repair an entry that is gone here."""
        self._outbox.send(sender, self._behind(now, sender))

    def _behind(self, now: int, member: str) -> Behind:
        found = (
            name
            for name in self._membership.members
            if name not in (self._name, member) and self.has_caught_up(now, name)
        )
        return Behind(self.epoch, self._log.base, next(found, ""))

    def needed_behind(self, now: int) -> int:
        """The index behind which followers that are there are sent entries, or will be."""
        base, end = self._log.base.index, self._log.end_index
        agreed = [end]
        for member, follower in self._followers.items():
            if member != self._name and self.was_heard(now, member, self._settings.promise):
                needed = (follower.agreed, min(follower.needs or end, end))
                agreed += [index for index in needed if index >= base]
        return min(agreed)

    def heard(self, sender: str, message: Heard) -> None:
        """A member has promised not to be sealed."""
        follower = self._followers.get(sender)
        if follower is not None:
            self._lease.heard(sender, message.sent_at)
            self._disks.heard(sender, message.disk)
            follower.asks, follower.needs = message.asks, message.needs

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Send what is due."""
        full = self.without_space(now)
        if not full or self._name in full:
            self._kept_since = None
        elif self._kept_since is None:
            self._kept_since = now
        if now >= self._beat_at:
            self.beat(now)
        for member, follower in self._followers.items():
            is_behind = member != self._name and follower.synced < follower.sent
            if is_behind and now >= follower.moved_at + self._settings.retry:
                follower.send_again(follower.agreed)
                follower.moved_at = now
                end = self._log.end
                if follower.agreed == end.index:  # it has all by a checkpoint: ask for its word
                    self._outbox.send(member, Append(self.epoch, end, ()))
            if member != self._name:
                self._say_base(now, member, follower)

    def beat(self, now: int) -> None:
        """Say that it leads, and how far entries are committed."""
        self._beat_at = now + self._settings.heartbeat
        for member in self._followers:
            self._outbox.send(member, self._heartbeat(now, member))

    def _heartbeat(self, now: int, member: str) -> Heartbeat:
        committed = self._log.mark(self._log.committed)
        assert committed is not None, "a leader has no damaged entries"
        asks = self._followers[member].asks
        return Heartbeat(self.epoch, now, committed, self._end, asks, self.told)

    def is_silent(self, now: int, time: int) -> bool:
        """Whether no majority has answered for so long."""
        return now >= self._lease.since + time

    def is_kept(self, now: int, time: int) -> bool:
        """Whether others' full disks alone have kept this server from committing for so long."""
        return self._kept_since is not None and now >= self._kept_since + time

    def has_space(self, name: str) -> bool:
        """Whether a server has not said that its disk is full."""
        return not self._disks.is_full(name)

    def was_heard(self, now: int, name: str, time: int) -> bool:
        """Whether a server has answered within that time."""
        return now < self._lease.heard_at(name) + time

    def is_cut_off(self, now: int) -> bool:
        """Whether others should lead: no majority has answered for long, although they may hear
        this server."""
        return self._lease.is_lost(now)

    # -- handing over ----------------------------------------------------------------------------

    def most_synced(self) -> str:
        """The follower that has most; of several the one that was heard last."""
        others = [member for member in self._membership.members if member != self._name]
        heard = self._lease.heard_at
        return max(others, key=lambda one: (self._followers[one].synced, heard(one)))

    def may_succeed(self, now: int, name: str) -> bool:
        """Whether a server is there, and will have all entries soon."""
        is_there = self.was_heard(now, name, self._settings.promise)
        return is_there and self._followers[name].synced + UNANSWERED_MAX >= self._end

    def note_disk(self, now: int, health: DiskHealth) -> None:
        """How the disk of this server is."""
        self._disks.own(now, health)

    def wish(self, now: int, may_be_alone: bool) -> Wish | None:
        """Who should lead in place of this server, whose disk is worse; None if nobody should.
        `may_be_alone`: the register lets one of two go on without this one."""

        def is_enough(names: Sequence[str]) -> bool:
            counted = self._membership
            alone = may_be_alone and any(counted.is_in_all_quorums(name) for name in names)
            return alone or counted.is_quorum(names)

        own = self._followers[self._name].synced
        is_there = self._settings.promise
        ready = [
            name
            for name, one in self._followers.items()
            if name in self._membership.members
            and name != self._name
            and one.is_sure
            and one.synced >= own
            and now < self._lease.heard_at(name) + is_there
        ]
        ready.sort(key=lambda name: self._followers[name].synced, reverse=True)
        is_busy = bool(self.successor or self._membership.previous)
        found = () if is_busy or not self.serves else ready
        return self._disks.wish(now, found, is_enough)

    def without_space(self, now: int) -> list[str]:
        """The servers whose full disks keep entries from being committed, this one perhaps among
        them; none where the others are enough, or too few are there anyway."""
        counted = self._membership.everyone
        there = [name for name in counted if self.was_heard(now, name, self._settings.promise)]
        full = [name for name in there if self._disks.is_full(name)]
        is_enough = self._membership.is_quorum
        left = [name for name in there if name not in full]
        return full if is_enough(there) and not is_enough(left) else []

    def hand_over(self, now: int, successor: str, is_slow: bool = False) -> None:
        """Take no more entries; step down once `successor` has all, see `is_handed_over`."""
        self._is_slow = is_slow
        self.successor = successor
        self._hand_over_until = now + self._settings.promise
        self.beat(now)  # the successor had better apply now what it will need

    def is_handed_over(self, now: int) -> bool:
        """Whether the successor has all entries; if that takes too long, nothing comes of it."""
        if self.successor and now >= self._hand_over_until:
            self.successor = ""
        if not self.successor:
            return False
        return self._followers[self.successor].synced == self._end

    def release(self, now: int, taken: RegisterValue | None) -> None:
        """Tell everybody that the epoch is over; `taken` is the register, if it has the next one
        for the successor."""
        slow = self._disks.avoided(now)
        if self.successor and self._is_slow:
            slow = (*(name for name in slow if name != self._name), self._name)
        for member in self._followers:
            self._outbox.send(member, Release(self.epoch, self.successor, slow, taken))
