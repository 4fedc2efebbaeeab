"""When which message is due: a timing wheel of sequences, by the tick.

A tick is a unit of time that the caller chooses. A bucket holds the sequences that are due within
a span of 64^level ticks; how far away a deadline
is decides its level. A bucket is opened when its span begins: what is due then leaves, the rest
goes to buckets of a lower level. So a deadline is moved at most once for each level, whatever the
number of deadlines, and adding one costs a constant. A bucket's span stands in absolute time: when
the clock is set back, buckets wait until their time has come again, and nothing is due early.

An entry takes 16 bytes. A message that is removed before its time leaves its entry here. Where
entries outnumber the messages of the stream, each new entry has a few old ones looked at, and those
without a message go: there are never more than about three times as many entries as messages.
"""

import heapq
from array import array
from collections.abc import Callable

BITS = 6  # 64 buckets of one level make one of the next
ENTRIES_SPARE = 4096  # so many entries without a message are never looked for
LOOKED_AT = 4  # old entries, for each new one where there are too many


class Deadlines:
    """Sequences, each with the tick (since the epoch) at which it is due."""

    def __init__(self) -> None:
        self.size = 0
        self._buckets: dict[tuple[int, int], array[int]] = {}  # level, span: sequence, tick, ...
        self._order: list[tuple[int, int, int]] = []  # a heap: begin of the span, level, span
        self._open: array[int] = array("Q")  # of buckets whose time has come, in reverse
        self._unchecked: list[tuple[int, int]] = []  # buckets to look through for dead entries
        self._checked: array[int] = array("Q")  # the bucket that is being looked through ...
        self._check_at = 0  # ... and how far

    def add(self, seq: int, due: int, now: int) -> None:
        """Have `seq` taken at `due`; `now` and `due` in ticks."""
        level = (max(due - now, 1).bit_length() - 1) // BITS
        span = due >> (BITS * level)
        bucket = self._buckets.get((level, span))
        if bucket is None:
            bucket = self._buckets[level, span] = array("Q")
            heapq.heappush(self._order, (span << (BITS * level), level, span))
        bucket.append(seq)
        bucket.append(due)
        self.size += 1

    def take(self, now: int, looked_at_max: int) -> list[int]:
        """Remove and return sequences that are due, ascending; not all of them if many are."""
        found = []
        for _ in range(looked_at_max):
            if not self._open and not self._open_next(now):
                break
            seq = self._open.pop()
            due = self._open.pop()
            self.size -= 1
            if due <= now:
                found.append(seq)
            else:
                self.add(seq, due, now)
        found.sort()
        return found

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
                self._checked = self._buckets.get(self._unchecked.pop(), array("Q"))
                self._check_at = 0
            elif is_live(bucket[self._check_at]):
                self._check_at += 2
            else:
                due = bucket.pop()
                seq = bucket.pop()
                if self._check_at < len(bucket):
                    bucket[self._check_at] = seq
                    bucket[self._check_at + 1] = due
                self.size -= 1
