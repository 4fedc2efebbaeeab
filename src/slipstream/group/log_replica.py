"""One server's copy of the group's log: append, seal, read. It elects nobody.

    append(epoch, after, entries)   from the leader of `epoch`; refused if sealed at a later one
    seal(epoch)                     refuse the leaders of earlier epochs from now on, durably
    read(first, count)              what is there, committed or not

An entry is never changed: a new leader sends on what earlier ones have made as it is, with its
epoch and its chain. A replica takes entries only after the very entry that they follow, so two
replicas that have one entry in common have all before it in common. What follows instead goes; it
was not committed, which is an invariant here.

**Damage.** An entry that fails its checksum and has whole ones behind it is missing (`damaged`): it
is fetched from another server and has to have the chain that the next entry names. Where the log
ends before what is known to have been synced, the end is lost (`is_short`). A torn end that nobody
was told of is cut. Who is damaged or short may have answered for what it does not have any more, so
it counts in no seal and does not lead; a leader makes it whole again.
"""

from collections import deque

import msgspec

from slipstream.errors import CorruptionError
from slipstream.group.messages import BEGINNING, Entry, Mark
from slipstream.group.outbox import Outbox, Write


class LogReplica:
    """See the module's text. `stored` is what the disk has, in order, None where it cannot read."""

    def __init__(self, outbox: Outbox, stored: list[Entry | None]) -> None:
        self._outbox = outbox
        whole = [
            entry if entry is not None and entry.index == number and entry.is_whole else None
            for number, entry in enumerate(stored, 1)
        ]
        state = outbox.state
        _cut_torn_end(whole, state.synced)
        self._entries = whole  # by index - 1
        self.damaged = {number for number, entry in enumerate(whole, 1) if entry is None}
        self.is_short = len(whole) < state.synced
        self.synced = len(whole)  # index up to which the disk has it
        self._writing: deque[tuple[int, int]] = deque()  # of each job, its first index and the end
        self._first_changed = len(whole) + 1  # index that the next job begins with
        if len(whole) < len(stored):
            outbox.write(Write(len(whole) + 1, []))
        self.committed = min(state.committed, len(whole))  # index
        self._agreed = self.committed  # up to here it is the log of the leader of `sealed`

    @property
    def sealed(self) -> int:
        """The epoch of the latest leader that may append."""
        return self._outbox.state.sealed

    @property
    def is_whole(self) -> bool:
        """Whether it has everything that it has answered for."""
        return not self.damaged and not self.is_short

    # -- read ------------------------------------------------------------------------------------

    @property
    def end(self) -> Mark:
        """The last entry."""
        return self._entries[-1].mark if self._entries and self._entries[-1] else BEGINNING

    def mark(self, index: int) -> Mark | None:
        """Which entry is at an index; None if there is none."""
        if not index:
            return BEGINNING
        entry = self._entries[index - 1] if 0 < index <= len(self._entries) else None
        return entry.mark if entry else None

    def common_with(self, after: Mark) -> int:
        """An index up to which a leader's log, which has `after`, may be like this one: the end if
        that is before it, else what is committed."""
        index = min(len(self._entries), after.index - 1)
        if after.index <= len(self._entries):
            index = min(index, self.committed)
        while index > 0 and self.mark(index) is None:
            index -= 1
        return max(index, 0)

    def read(self, first: int, count: int, bytes_max: int = 0) -> tuple[Entry, ...]:
        """At most `count` entries from index `first` on, up to the first that is missing; of more
        than one no more than `bytes_max` bytes, if that is not 0."""
        found: list[Entry] = []
        size = 0
        for entry in self._entries[first - 1 : first - 1 + count]:
            if entry is None:
                break
            size += len(entry.body)
            if bytes_max and found and size > bytes_max:
                break
            found.append(entry)
        return tuple(found)

    def chain_before(self, index: int) -> int | None:
        """The chain of the entry at `index`, as the one after it has it; None if none does."""
        after = self._entries[index] if index < len(self._entries) else None
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
        if first <= self.committed and first not in self.damaged:
            raise CorruptionError(
                f"a leader has sent another entry {first} than the one that was committed: "
                "this server takes no part in the group any more; compare the stores"
            )
        self._entries[first - 1 :] = entries
        self.damaged = {index for index in self.damaged if index < first}
        self.synced = min(self.synced, first - 1)
        self._first_changed = min(self._first_changed, first)
        self._outbox.write(Write(first, entries))

    def progress(self) -> tuple[int, int]:
        """Up to which index the log is to be found synced at the next start, and committed."""
        synced = max(self.synced, self._outbox.state.synced) if self.is_short else self.synced
        return synced, self.committed

    def job_taken(self) -> None:
        """What was changed up to now is on its way to the disk."""
        self._writing.append((self._first_changed, len(self._entries)))
        self._first_changed = len(self._entries) + 1

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

    # -- repair ----------------------------------------------------------------------------------

    def repair(self, entry: Entry) -> bool:
        """Another server has this in place of a damaged entry; whether it is the one."""
        if entry.index not in self.damaged or not entry.is_whole:
            return False
        if entry.chain != self.chain_before(entry.index):
            return False
        self._entries[entry.index - 1] = entry
        self.damaged.discard(entry.index)
        self._outbox.write(Write(entry.index, [entry], is_end=False))
        return True

    def holds_up_to(self, index: int) -> None:
        """A leader's log went up to `index` after this server had started; if this one agrees with
        it that far, nothing is short any more."""
        if min(self._agreed, self.synced) >= index:
            self.is_short = False


def _cut_torn_end(entries: list[Entry | None], synced: int) -> None:
    """Cut what a crash has left of writes that were never synced: from the first hole after what
    is known to be synced on, and from where an older end follows that the chain does not."""
    previous: Entry | None = None
    for number, entry in enumerate(entries):
        is_hole = entry is None and number >= synced
        if is_hole or (entry and previous and entry.previous != previous.chain):
            del entries[number:]
            break
        previous = entry
    while entries and entries[-1] is None:
        entries.pop()
