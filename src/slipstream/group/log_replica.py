"""One server's copy of the group's log: append, seal, read. It elects nobody.

    append(epoch, after, entries)   from the leader of `epoch`; refused if sealed at a later one
    seal(epoch)                     refuse the leaders of earlier epochs from now on, durably
    read(first, count)              what is there, committed or not
    trim(index)                     have the log begin behind an entry that is committed
    reset(mark)                     have a checkpoint stand for all entries up to that one

An entry is never changed: a new leader sends on what earlier ones have made as it is, with its
epoch and its chain. A replica takes entries only after the very entry that they follow, so two
replicas that have one entry in common have all before it in common. What follows instead goes; it
was not committed, which is an invariant here.

**The base** is the last entry that is gone; the log begins behind it, and indices stay as they are.
It is committed, so each leader has it, or has a base behind it.

**Damage.** An entry that fails its checksum and has whole ones behind it is missing (`damaged`): it
is fetched from another server and has to have the chain that the next entry names. Where the log
ends before what is known to have been synced, the end is lost (`is_short`). A torn end that nobody
was told of is cut. Who is damaged or short may have answered for what it does not have any more, so
its log counts in no seal, unless what is damaged is known to be committed, and it does not lead; a
leader makes it whole again.
"""

from collections import deque

import msgspec

from slipstream.errors import CorruptionError
from slipstream.group.messages import Entry, Mark
from slipstream.group.outbox import Outbox, Write

ENTRY_COST = 64  # bytes for which an entry is counted besides its body


class LogReplica:
    """See the module's text. `stored` is what the disk has behind the state's base, in order, None
    where it cannot read."""

    def __init__(self, outbox: Outbox, stored: list[Entry | None]) -> None:
        self._outbox = outbox
        state = outbox.state
        self.base = base = state.base
        whole = [
            entry if entry is not None and entry.index == index and entry.is_whole else None
            for index, entry in enumerate(stored, base.index + 1)
        ]
        _cut_torn_end(whole, base, state.synced)
        self._entries = whole  # by index - base.index - 1
        self.size = _size_of(whole)  # bytes, about
        self.damaged = {n for n, entry in enumerate(whole, base.index + 1) if entry is None}
        end = base.index + len(whole)
        self.is_short = end < state.synced
        self.synced = end  # index up to which the disk has it
        self._writing: deque[tuple[int, int]] = deque()  # of each job, its first index and the end
        self._first_changed = end + 1  # index that the next job begins with
        if len(whole) < len(stored):
            outbox.write(Write(end + 1, []))
        self.committed = max(min(state.committed, end), base.index)  # index
        self._agreed = self.committed  # up to here it is the log of the leader of `sealed`

    @property
    def sealed(self) -> int:
        """The epoch of the latest leader that may append."""
        return self._outbox.state.sealed

    @property
    def is_installing(self) -> bool:
        """Whether a checkpoint is about to take the place of what this server has applied."""
        return self._outbox.state.is_installing

    @property
    def is_whole(self) -> bool:
        """Whether it has everything that it has answered for, as an entry or behind its base. That
        is so while a checkpoint is installed, too: what that replaces was made from entries."""
        return not self.damaged and not self.is_short

    @property
    def counts(self) -> bool:
        """Whether its end says which entries it has answered for: what is damaged is known to be
        committed, and so behind the end of each leader."""
        return not self.is_short and all(index <= self.committed for index in self.damaged)

    # -- read ------------------------------------------------------------------------------------

    @property
    def end(self) -> Mark:
        """The last entry."""
        return self._entries[-1].mark if self._entries and self._entries[-1] else self.base

    @property
    def end_index(self) -> int:
        """The index of the last entry, also where that is damaged."""
        return self.base.index + len(self._entries)

    def _entry(self, index: int) -> Entry | None:
        """The entry at an index; None if it is not there."""
        place = index - self.base.index - 1
        return self._entries[place] if 0 <= place < len(self._entries) else None

    def mark(self, index: int) -> Mark | None:
        """Which entry is at an index; None if there is none, or it is not known any more."""
        entry = self._entry(index)
        if entry is not None:
            return entry.mark
        return self.base if index == self.base.index else None

    def common_with(self, after: Mark) -> int:
        """An index up to which a leader's log, which has `after`, may be like this one: the end if
        that is before it, else what is committed. Never before the base, which each leader has."""
        index = min(self.end_index, after.index - 1)
        if after.index <= self.end_index:
            index = min(index, self.committed)
        while index > self.base.index and self.mark(index) is None:
            index -= 1
        return max(index, self.base.index)

    def read(self, first: int, count: int, bytes_max: int = 0) -> tuple[Entry, ...]:
        """At most `count` entries from index `first` on, up to the first that is missing; of more
        than one no more than `bytes_max` bytes, if that is not 0."""
        start = first - self.base.index - 1
        if start < 0:
            return ()
        found: list[Entry] = []
        size = 0
        for entry in self._entries[start : start + count]:
            if entry is None:
                break
            size += len(entry.body)
            if bytes_max and found and size > bytes_max:
                break
            found.append(entry)
        return tuple(found)

    def chain_before(self, index: int) -> int | None:
        """The chain of the entry at `index`, as the one after it has it; None if none does."""
        after = self._entry(index + 1)
        return after.previous if after else None

    # -- seal, append ----------------------------------------------------------------------------

    def seal(self, epoch: int) -> bool:
        """Refuse leaders of earlier epochs; False if it refuses that of `epoch` itself."""
        state = self._outbox.state
        if epoch > state.sealed:
            self._outbox.keep(msgspec.structs.replace(state, sealed=epoch))
            self._agreed = self.committed
        return epoch >= state.sealed

    def append(self, after: Mark, entries: tuple[Entry, ...]) -> int | None:
        """Have `entries`, which are a chain, follow `after`; the index up to which the log is the
        leader's then, None if it has no such entry to follow. The caller has sealed the epoch.

        Raises `CorruptionError`: the leader would replace what is committed.
        """
        if self.mark(after.index) != after:
            return None
        agreed = after.index
        for number, entry in enumerate(entries):
            if self.mark(entry.index) != entry.mark and not self.repair(entry):
                self._replace(entry.index, list(entries[number:]))
                agreed = entries[-1].index
                break
            agreed = entry.index
        self._agreed = max(self._agreed, agreed)
        return agreed

    def _replace(self, first: int, entries: list[Entry]) -> None:
        here = self._entry(first)
        if here is not None and first <= self.committed:
            raise CorruptionError(
                f"a leader has sent another entry {first} than the one that was committed: "
                "this server takes no part in the group any more; compare the stores"
            )
        if here is None and first + 1 in self.damaged:
            self._be_short()
        start = first - self.base.index - 1
        self.size += _size_of(entries) - _size_of(self._entries[start:])
        self._entries[start:] = entries
        if self.damaged:
            self.damaged = {index for index in self.damaged if index < first}
        self.synced = min(self.synced, first - 1)
        self._first_changed = min(self._first_changed, first)
        self._outbox.write(Write(first, entries))

    def _be_short(self) -> None:
        """Several damaged entries in a row go, and what is behind them: nothing here says that the
        leader has others, so this server may have answered for these."""
        state = self._outbox.state
        answered = max(state.synced, self.synced)
        self._outbox.keep(msgspec.structs.replace(state, synced=answered))
        self.is_short = True

    def progress(self) -> tuple[int, int]:
        """Up to which index the log is to be found synced at the next start, and committed."""
        synced = max(self.synced, self._outbox.state.synced) if self.is_short else self.synced
        return synced, self.committed

    def job_taken(self) -> None:
        """What was changed up to now is on its way to the disk."""
        self._writing.append((self._first_changed, self.end_index))
        self._first_changed = self.end_index + 1

    def job_synced(self) -> None:
        """The oldest job on its way is durable."""
        _, self.synced = self._writing.popleft()
        for first, _ in (*self._writing, (self._first_changed, 0)):
            self.synced = min(self.synced, first - 1)

    def agrees(self, mark: Mark) -> None:
        """The leader has this entry. If it is here, so is all before it, also where a server that
        has just started is sent nothing, because it has everything."""
        if self.mark(mark.index) == mark:
            self._agreed = max(self._agreed, mark.index)

    def commit(self, index: int) -> None:
        """The leader says that all up to `index` is committed: so is what of it is synced here."""
        self.committed = max(self.committed, min(index, self._agreed, self.synced))

    def was_applied(self, index: int) -> None:
        """What was applied here had been committed, of which a server that starts may have noted
        less."""
        self.committed = max(self.committed, min(index, self.synced))
        self._agreed = max(self._agreed, self.committed)

    # -- repair ----------------------------------------------------------------------------------

    def repair(self, entry: Entry) -> bool:
        """Another server has this in place of a damaged entry; whether it is the one."""
        if entry.index not in self.damaged or not entry.is_whole:
            return False
        if entry.chain != self.chain_before(entry.index):
            return False
        self._entries[entry.index - self.base.index - 1] = entry
        self.size += _size_of([entry])
        self.damaged.discard(entry.index)
        self._outbox.write(Write(entry.index, [entry], is_end=False))
        return True

    def holds_up_to(self, index: int) -> None:
        """A leader's log went up to `index` after this server had started; if this one agrees with
        it that far, nothing is short any more."""
        if self.is_short and min(self._agreed, self.synced) >= index:
            self.is_short = False
            # Kept at once: a start that found the old end would take the log for short again.
            state = self._outbox.state
            self._outbox.keep(msgspec.structs.replace(state, synced=self.synced))

    # -- the beginning goes ----------------------------------------------------------------------

    def index_before(self, size: int, index_max: int) -> int:
        """The highest index behind which entries of `size` bytes remain, but at most that one."""
        dropped = 0
        index = self.base.index
        for entry in self._entries[: max(index_max - index, 0)]:
            if entry is not None:
                dropped += len(entry.body) + ENTRY_COST
            if self.size - dropped < size:
                break
            index += 1
        return index

    def trim(self, index: int) -> None:
        """Have the log begin behind `index`, or behind the latest entry before that which may go:
        it has to be committed, and synced here."""
        index = min(index, self.committed, self.synced)
        while index in self.damaged:
            index -= 1
        mark = self.mark(index)
        if mark is not None and index > self.base.index:
            self._drop(mark)
            self._outbox.keep(msgspec.structs.replace(self._outbox.state, base=mark))

    def _drop(self, mark: Mark) -> None:
        """What is before the new base goes, and what is damaged there counts no more."""
        count = mark.index - self.base.index
        self.size -= _size_of(self._entries[:count])
        del self._entries[:count]
        self.base = mark
        self.damaged = {index for index in self.damaged if index > mark.index}

    def covers(self, mark: Mark) -> bool:
        """Whether all up to a committed entry is here, or has been."""
        if mark.index <= self.base.index:
            return True
        has_damage = any(index < mark.index for index in self.damaged)
        return self.mark(mark.index) == mark and not has_damage

    def begin_install(self) -> None:
        """What this server has applied is about to be replaced: note it. Its log still counts."""
        self._outbox.keep(msgspec.structs.replace(self._outbox.state, is_installing=True))

    def reset(self, mark: Mark) -> None:
        """What the entries up to this one, which is committed, have come to is here.

        A log that has the entry keeps what is behind it. If it has another one there, none behind
        that was committed, because it would have this one before it. A log that is before it has
        lost nothing either. Else it may have answered for what goes now, so it is short.
        """
        state = self._outbox.state
        if mark.index <= self.base.index:
            self._outbox.keep(msgspec.structs.replace(state, is_installing=False))
            return
        here = self.mark(mark.index)
        if here == mark:
            self._drop(mark)
            self.synced = max(self.synced, mark.index)
            new = msgspec.structs.replace(state, base=mark, is_installing=False)
            self._outbox.keep(new)
        else:
            is_another = here is not None and not self.is_short and not self.damaged
            answered = max(state.synced, self.synced)
            self.is_short = answered > mark.index and not is_another
            self._entries, self.size, self.damaged, self.base = [], 0, set(), mark
            self.synced = self._agreed = self.committed = mark.index
            self._first_changed = mark.index + 1
            self._writing = deque((mark.index + 1, mark.index) for _ in self._writing)
            synced = answered if self.is_short else mark.index
            new = msgspec.structs.replace(state, base=mark, is_installing=False, synced=synced)
            self._outbox.reset(new)
        self.committed = max(self.committed, mark.index)
        self._agreed = max(self._agreed, mark.index)


def _size_of(entries: list[Entry | None] | list[Entry]) -> int:
    return sum(len(entry.body) + ENTRY_COST for entry in entries if entry is not None)


def _cut_torn_end(entries: list[Entry | None], base: Mark, synced: int) -> None:
    """Cut what a crash has left of writes that were never synced: from the first hole after what
    is known to be synced on, and from where an older end follows that the chain does not."""
    previous: int | None = base.chain
    for number, entry in enumerate(entries):
        is_hole = entry is None and base.index + number >= synced
        if is_hole or (entry and previous is not None and entry.previous != previous):
            del entries[number:]
            break
        previous = entry.chain if entry else None
    while entries and entries[-1] is None:
        entries.pop()
