"""When which message is due: a timing wheel of sequences, by the tick.

A tick is a unit of time that the caller chooses. A bucket holds the sequences that are due within
a span of 64^level ticks; how far away a deadline
is decides its level. A bucket is opened when its span begins: what is due then leaves, the rest
goes to buckets of a lower level. So a deadline is moved at most once for each level, whatever the
number of deadlines, and adding one costs a constant. A bucket's span stands in absolute time: when
the clock is set back, buckets wait until their time has come again, and nothing is due early.

An entry is a run of sequences that follow each other and are due at one tick, as those of a burst
are; it takes 32 bytes, as it also says how large these messages are together. A message that is
removed before its time is in its entry still. Where entries outnumber the messages of the stream,
each new one has a few old ones looked at, and what has no message goes: there are never more than
about three times as many entries as messages.
"""

import heapq
from array import array
from collections.abc import Callable

BITS = 6  # 64 buckets of one level make one of the next
# Numbers: the first sequence of a run, how many follow from it on, their bytes together (0: not
# known), and their tick.
ENTRY = 4
RUN_MAX = 10_000  # sequences of one run, as a run may be taken as a whole
ENTRIES_SPARE = 4096  # so many entries without a message are never looked for
LOOKED_AT = 4  # old entries, for each new one where there are too many

Run = tuple[int, int, int]  # the first sequence, how many follow from it on, bytes (0: not known)


class Deadlines:
    """Sequences, each with the tick (since the epoch) at which it is due."""

    def __init__(self) -> None:
        self.size = 0  # how many entries there are
        self._buckets: dict[tuple[int, int], array[int]] = {}  # level, span: entries
        self._order: list[tuple[int, int, int]] = []  # a heap: begin of the span, level, span
        self._open: array[int] = array("Q")  # a bucket whose time has come, in reverse
        self._unchecked: list[tuple[int, int]] = []  # buckets to look through for dead entries
        self._checked: array[int] = array("Q")  # the bucket that is being looked through ...
        self._check_at = 0  # ... and how far

    def add(self, seq: int, due: int, now: int, size: int = 0) -> None:
        """Have `seq` taken at `due`; `now` and `due` in ticks. `size` is how many bytes the message
        has, 0 if that is not known."""
        self._add_run((seq, 1, size), due, now)

    def _add_run(self, run: Run, due: int, now: int) -> None:
        first, count, size = run
        level = (max(due - now, 1).bit_length() - 1) // BITS
        span = due >> (BITS * level)
        bucket = self._buckets.get((level, span))
        if bucket is None:
            bucket = self._buckets[level, span] = array("Q")
            heapq.heappush(self._order, (span << (BITS * level), level, span))
        elif (
            bucket
            and bucket[-1] == due
            and bucket[-4] + bucket[-3] == first
            and (bucket[-2] > 0) == (size > 0)
            and bucket[-3] + count <= RUN_MAX
        ):
            bucket[-3] += count
            bucket[-2] += size
            return
        bucket.extend((first, count, size, due))
        self.size += 1

    def take(self, now: int, looked_at_max: int) -> list[int]:
        """Remove and return sequences that are due, ascending; not all of them if many are."""
        found: list[int] = []
        for first, count, _ in self._take(now, looked_at_max, is_whole=False):
            found.extend(range(first, first + count))
        found.sort()
        return found

    def take_runs(self, now: int, looked_at_max: int) -> list[Run]:
        """The same as whole runs, ascending: the last of them may have up to `RUN_MAX` sequences
        too many."""
        return sorted(self._take(now, looked_at_max, is_whole=True))

    def _take(self, now: int, looked_at_max: int, is_whole: bool) -> list[Run]:
        found: list[Run] = []
        left = looked_at_max
        while left > 0 and (self._open or self._open_next(now)):
            first, count, size = self._open.pop(), self._open.pop(), self._open.pop()
            due = self._open.pop()
            self.size -= 1
            if due > now:
                self._add_run((first, count, size), due, now)
                left -= 1
                continue
            if count > left and not is_whole:
                self._open.extend((due, 0, count - left, first + left))
                self.size += 1
                count, size = left, 0
            found.append((first, count, size))
            left -= count
        return found

    def put_back(self, runs: list[Run], now: int) -> None:
        """Have these be due at once."""
        for run in runs:
            self._add_run(run, now, now)

    def _open_next(self, now: int) -> bool:
        """Open the bucket whose time came first; False if there is none whose time has come."""
        while self._order and self._order[0][0] <= now:
            _, level, span = heapq.heappop(self._order)
            bucket = self._buckets.pop((level, span))
            if bucket is self._checked:
                self._checked = array("Q")
            if bucket:
                bucket.reverse()  # the first entry comes last, with its sequence after its tick
                self._open = bucket
                return True
        return False

    def next_at(self) -> int | None:
        """The tick at which `take` is to be called next; None if nothing is ever due."""
        if self._open:
            return 0
        return self._order[0][0] if self._order else None

    def forget_dead(self, is_live: Callable[[int], bool], messages: int) -> None:
        """Let go of some entries without a message, if there are many of them.

        To be called with each `add`; `messages` is how many the stream has, `is_live` whether it
        still has one.
        """
        if self.size <= 2 * messages + ENTRIES_SPARE:
            return
        for _ in range(LOOKED_AT):
            bucket = self._checked
            if self._check_at >= len(bucket):
                if not self._unchecked:
                    self._unchecked = list(self._buckets)
                if not self._unchecked:  # all entries are due already
                    return
                self._checked = self._buckets.get(self._unchecked.pop(), array("Q"))
                self._check_at = 0
            elif is_live(bucket[self._check_at]):
                self._check_at += ENTRY
            elif bucket[self._check_at + 1] > 1:
                bucket[self._check_at] += 1
                bucket[self._check_at + 1] -= 1
                bucket[self._check_at + 2] = 0
            else:
                last = bucket[-ENTRY:]
                del bucket[-ENTRY:]
                if self._check_at < len(bucket):
                    bucket[self._check_at : self._check_at + ENTRY] = last
                self.size -= 1
