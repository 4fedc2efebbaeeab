"""From the records of a group's log to the entries that it has, and what it has lost.

Records are applied in the order in which they were written. Nothing is taken for granted across
damaged bytes: an entry names the chain of the one before it, the end of each job names the log's
last index and chain, and so do the copies of the state beside the log. Where these do not agree
with what was read, the entries that may be other ones are None, which is for `LogReplica` to fetch
from other servers, to miss, or to cut. Entries up to the base are left out: segments that have them
alone may be gone, or be back after a crash, in any number.
"""

from array import array

import msgspec

from slipstream.group import Entry, Mark, State
from slipstream.group.messages import BEGINNING
from slipstream.server.group.records import Kind, Record

UNKNOWN = 0  # the chain of an entry that could not be read


class Replay:
    """See the module's text. `expected` is what the state beside the log says of its end: a job,
    before which the log ended with that index and chain; `base` is the entry behind which it
    begins."""

    def __init__(self, expected: tuple[int, int, int], base: Mark = BEGINNING) -> None:
        self.base = base.index
        self.entries: list[Entry | None] = []  # behind the base
        self.chains = array("I")  # of the entries
        self.job = 0  # the latest one that was found
        self.state: tuple[int, State] | None = None  # of the last whole job, and its number
        self._expected: tuple[int, int, int] | None = expected
        self._committed = 0  # index up to which nothing is ever replaced
        self._doubtful = (0, 0)  # the first and last entry that what cannot be read may replace

    def apply(self, record: Record) -> None:
        """One record more."""
        if self._expected is not None and record.job >= self._expected[0]:
            self.finish()
        self.job = max(self.job, record.job)
        match record.kind:
            case Kind.ENTRY:
                self._entry(record)
            case Kind.REPAIR:
                is_here = self.base < record.index <= self.base + len(self.entries)
                if is_here and record.entry is not None:
                    self._set(record.index, record.entry, record.chain)
            case Kind.CUT:
                self._cut(record.index - 1)
            case Kind.BATCH:
                self._end(record.index, record.previous)
                if record.payload is not None:
                    self.state = (record.job, msgspec.msgpack.decode(record.payload, type=State))
                    self._committed = self.state[1].committed

    def finish(self) -> None:
        """There are no more records of before the state was written."""
        if self._expected is not None:
            _, index, chain = self._expected
            self._expected = None
            self._end(index, chain)

    def settle(self, state: State) -> None:
        """No entry follows. What is behind the last committed one is compared with the leader's;
        nothing else is, before it is given out. No later leader than `sealed` has replaced any."""
        self._settle(state.sealed, min(state.committed, self.base + len(self.entries)))

    def _entry(self, record: Record) -> None:
        before = record.index - 1
        self._end(before, record.previous)
        if record.entry is not None:
            self._settle(record.entry.epoch, self.base + len(self.entries))
        if before >= self.base:
            self.entries.append(record.entry)
            self.chains.append(record.chain)

    def _end(self, index: int, chain: int) -> None:
        """The log ended there."""
        self._cut(index)
        there = self.base + len(self.entries)
        if there < index:
            first = self._doubtful[0] or max(self._committed, self.base) + 1
            self._doubtful = (first, max(there, self._doubtful[1]))
        while self.base + len(self.entries) < index:
            self.entries.append(None)
            self.chains.append(UNKNOWN)
        if index > self.base and chain and self.chains[-1] != chain:
            if self.chains[-1] == UNKNOWN:
                self.chains[-1] = chain
                return
            # What has replaced this entry cannot be read, and may have begun before it.
            first = max(min(self._committed + 1, index), self.base + 1)
            for number in range(first, index + 1):
                self._set(number, None, UNKNOWN)
            self.chains[-1] = chain

    def _settle(self, epoch: int, up_to: int) -> None:
        """An entry of this epoch follows: all that its leader has had before it is the same on each
        server. What else up to that index may have been replaced is as good as lost."""
        first, last = self._doubtful
        self._doubtful = (0, 0)
        for number in range(min(last, up_to), first - 1 if first else last, -1):
            entry = self.entries[number - self.base - 1]
            if entry is not None and entry.epoch == epoch:
                break
            self._set(number, None, UNKNOWN)

    def _set(self, index: int, entry: Entry | None, chain: int) -> None:
        self.entries[index - self.base - 1] = entry
        self.chains[index - self.base - 1] = chain

    def _cut(self, index: int) -> None:
        kept = max(index - self.base, 0)
        del self.entries[kept:]
        del self.chains[kept:]
