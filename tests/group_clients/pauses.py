"""How long clients had no acknowledgement, change by change."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from tests.group_clients.record import Record


@dataclass(frozen=True, slots=True)
class Change:
    """One change of leader: what was done, and from when until all was well again (s)."""

    kind: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Some of many numbers."""

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Spread":
        """Of these, of which there is one at least."""
        ordered = sorted(numbers)
        p50, p99 = (ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
        return cls(p50, p99, ordered[-1])


def pause(times: Sequence[float], change: Change) -> float:
    """The longest time between two of `times`, which are in order, that ends within the change and
    after its beginning; what was before that does not count."""
    first = bisect_right(times, change.begin)
    within = [change.begin]
    for at in times[first:]:
        within.append(at)
        if at > change.end:
            break
    return max((late - early for early, late in pairwise(within)), default=0.0)


def tries_most(record: Record, change: Change) -> int:
    """How often a message was sent, of those that were acknowledged within the change."""
    tries = [one.tries for one in record.acknowledged if change.begin <= one.at <= change.end]
    return max(tries, default=0)
