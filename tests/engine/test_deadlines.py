"""The timing wheel: every deadline at its second, never before it, at a constant price."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.loop.deadlines import ENTRIES_SPARE, Deadlines

NOW = 1_700_000_000
FAR = 2**33


def taken(deadlines: Deadlines, now: int) -> list[int]:
    """All that is due at `now`."""
    found: list[int] = []
    while True:
        before = deadlines.size
        found += deadlines.take(now, 100)
        at = deadlines.next_at()
        if at is None or (at > now and deadlines.size == before):
            return sorted(found)


@given(st.lists(st.integers(0, 300_000), max_size=60), st.integers(1, 1000))
def test_each_deadline_is_met_whenever_the_wheel_asks_to_be_looked_at(
    waits: list[int], looked_at_max: int
) -> None:
    deadlines = Deadlines()
    for seq, wait in enumerate(waits):
        deadlines.add(seq, NOW + wait, NOW)
    found: dict[int, int] = {}
    now = NOW
    while (at := deadlines.next_at()) is not None:
        now = max(now, at)
        for seq in deadlines.take(now, looked_at_max):
            found[seq] = now
    assert found == {seq: NOW + wait for seq, wait in enumerate(waits)}
    assert deadlines.size == 0


def test_a_clock_that_is_set_back_makes_nothing_due_early() -> None:
    deadlines = Deadlines()
    for seq in range(1, 200):
        deadlines.add(seq, NOW + seq * 50, NOW)
    assert taken(deadlines, NOW + 100) == [1, 2]
    for now in (NOW - 86_400, NOW, NOW + 149):
        assert taken(deadlines, now) == []
    deadlines.add(500, NOW - 80_000, NOW - 86_400)
    assert taken(deadlines, NOW - 80_001) == []
    assert taken(deadlines, NOW - 80_000) == [500]
    assert taken(deadlines, NOW + 10_000) == list(range(3, 200))


def test_a_deadline_is_moved_a_few_times_however_many_there_are() -> None:
    class Counting(Deadlines):
        adds = 0

        def add(self, seq: int, due: int, now: int) -> None:
            self.adds += 1
            super().add(seq, due, now)

    deadlines = Counting()
    waits = [7 + n * n for n in range(2_000)]  # up to 46 days
    for seq, wait in enumerate(waits):
        deadlines.add(seq, NOW + wait, NOW)
    found: list[int] = []
    while (at := deadlines.next_at()) is not None:
        found += deadlines.take(max(at, NOW), 1_000)
    assert found == list(range(2_000))
    assert deadlines.adds < 5 * len(waits)


@pytest.mark.parametrize("run", [1, 2, 3, 50, 100_000])
def test_what_was_removed_before_its_time_does_not_pile_up(run: int) -> None:
    deadlines = Deadlines()
    live: list[int] = []
    largest = 0
    for seq in range(1, 60_000):
        live = [*live[-99:], seq]  # each message pushes out an older one
        deadlines.add(seq, NOW + 31_536_000 + 2 * (seq % run == 0), NOW)
        deadlines.forget_dead(set(live).__contains__, len(live))
        largest = max(largest, deadlines.size)
    assert largest <= 3 * len(live) + 2 * ENTRIES_SPARE
    assert set(live) <= set(taken(deadlines, NOW + FAR))


def test_nothing_is_looked_for_where_all_that_is_left_is_due() -> None:
    deadlines = Deadlines()
    for n in range(2 * ENTRIES_SPARE):
        deadlines.add(2 * n, NOW + 1, NOW)
    assert len(deadlines.take(NOW + 1, 100)) == 100
    deadlines.forget_dead(lambda seq: False, 0)
    assert len(taken(deadlines, NOW + 1)) == 2 * ENTRIES_SPARE - 100
