"""Whether a history of calls could be that of one thing which does one call after the other.

A call takes effect at one moment between its beginning and its end. One whose outcome nobody knows
may do so at any moment after it began, or never. Wing and Gong's search: of the calls that are not
placed yet, one is next that began before any other of them had ended. A set of placed calls with
the same state of the thing is looked at once only (Lowe's mend).

    is_linearizable(calls, model, initial)

`model(state, call)` is the state after the call, or None if what was answered cannot be then.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

NEVER = 1 << 62
SEARCHED_MAX = 2_000_000  # of sets with a state, after which nobody knows

Value: TypeAlias = Any  # as the model likes
State = TypeVar("State", bound=Hashable)


@dataclass
class Call:
    """One call of a client: what was asked, and what was answered, in between which moments."""

    kind: str
    start: int
    argument: Value = None
    end: int = NEVER  # not answered
    answer: Value = None  # None: unknown
    is_refused: bool = False
    key: str = ""

    @property
    def is_known(self) -> bool:
        """Whether there is an answer."""
        return self.end != NEVER


class UndecidedError(RuntimeError):
    """The history is too long, or too much of it unknown, for the search."""


def is_linearizable(
    calls: Sequence[Call], model: Callable[[State, Call], State | None], initial: State
) -> bool:
    """See the module's text. Raises `UndecidedError`."""
    ordered = sorted(calls, key=lambda call: call.start)
    wanted = sum(1 << n for n, call in enumerate(ordered) if call.is_known)
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, int, State]] = [(0, 0, initial)]  # placed, the first that is not, state
    while stack:
        placed, first, state = stack.pop()
        if placed & wanted == wanted:
            return True
        while placed >> first & 1:
            first += 1
        found = []
        end = NEVER
        for n in range(first, len(ordered)):
            call = ordered[n]
            if call.start > end:
                break
            if placed >> n & 1:
                continue
            end = min(end, call.end)
            after = model(state, call)
            if after is None or (not call.is_known and after == state):
                continue  # what is unknown and changes nothing may as well not be
            found.append((call.end, n, after))
        for _, n, after in sorted(found, key=lambda one: one[:2], reverse=True):
            key = (placed | 1 << n, after)
            if key not in seen:
                seen.add(key)
                stack.append((placed | 1 << n, first, after))
        if len(seen) > SEARCHED_MAX:
            raise UndecidedError(f"{len(calls)} calls are too many to search through")
    return False
