"""What a history of calls may be, and what it may not (`linearizability`)."""

from itertools import permutations
from random import Random

import pytest

from slipstream.testing.linearizability import NEVER, Call, is_linearizable


def register(state: int, call: Call) -> int | None:
    """One number, which is put or got."""
    if call.kind == "put":
        return int(call.argument)
    return state if call.answer == state else None


def put(value: int, start: int, end: int = NEVER) -> Call:
    return Call("put", start, value, end)


def get(value: int, start: int, end: int) -> Call:
    return Call("get", start, None, end, value)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([put(1, 1, 2), get(1, 3, 4)], True),
        ([put(1, 1, 2), get(0, 3, 4)], False),
        ([put(1, 1, 4), get(0, 2, 3)], True),
        ([put(1, 1, 9), get(1, 2, 3), get(0, 4, 5)], False),
        ([put(1, 1), get(0, 2, 3), get(1, 4, 5)], True),
        ([put(1, 1), get(0, 2, 3)], True),
        ([put(1, 1), get(1, 2, 3), get(0, 4, 5)], False),
        ([put(1, 1), put(2, 2, 3), get(2, 4, 5), get(1, 6, 7), get(2, 8, 9)], False),
    ],
)
def test_a_register_is_one_thing(calls: list[Call], expected: bool) -> None:
    assert is_linearizable(calls, register, 0) is expected


def by_trying(calls: list[Call]) -> bool:
    """The same by trying all orders, with and without what is unknown."""
    unknown = [call for call in calls if not call.is_known]
    for chosen in range(1 << len(unknown)):
        left = {id(one) for n, one in enumerate(unknown) if not chosen >> n & 1}
        for order in permutations([call for call in calls if id(call) not in left]):
            if any(
                later.end < earlier.start
                for n, earlier in enumerate(order)
                for later in order[n + 1 :]
            ):
                continue
            state: int | None = 0
            for call in order:
                state = register(state, call) if state is not None else None
            if state is not None:
                return True
    return False


def test_the_search_finds_what_trying_all_orders_finds() -> None:
    random = Random(1)
    found = []
    for _ in range(600):
        calls: list[Call] = []
        moments = random.sample(range(100), 10)
        for n in range(5):
            start, end = sorted(moments[2 * n : 2 * n + 2])
            if random.random() < 0.5:
                calls.append(put(n + 1, start, end if random.random() < 0.7 else NEVER))
            else:
                calls.append(get(random.randrange(6), start, end))
        expected = by_trying(calls)
        assert is_linearizable(calls, register, 0) is expected
        found.append(expected)
    assert 50 < sum(found) < 550
