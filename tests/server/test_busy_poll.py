"""The loop stays awake for clients that wait for each answer, and for nobody else."""

import asyncio
from collections.abc import Callable

import pytest

from slipstream.server.busy_poll import LOOK_SECONDS, REST_MAX, SMALL_READ, BusyPoll


class Loop(asyncio.AbstractEventLoop):
    """Counts its turns, each of which takes a tenth of a look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self._soon: list[Callable[..., object]] = []

    def call_soon(self, callback: Callable[..., object], *args: object, **_: object) -> None:  # type: ignore[override]
        self._soon.append(callback)

    def run(self, turns: int = 1000) -> int:
        """Until nobody wants another turn, or for so many; how many it took."""
        before = self.turns
        while self._soon and self.turns < before + turns:
            self.now += LOOK_SECONDS / 10
            self.turns += 1
            self._soon.pop(0)()
        return self.turns - before


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def poll(loop: Loop) -> BusyPoll:
    return BusyPoll(loop, lambda: loop.now)


def test_after_a_small_read_the_loop_looks_for_a_moment(poll: BusyPoll, loop: Loop) -> None:
    poll.after_read(100)
    assert 9 <= loop.run() <= 11


def test_after_a_large_read_it_does_not(poll: BusyPoll, loop: Loop) -> None:
    poll.after_read(SMALL_READ + 1)
    assert loop.run() == 0


def test_who_speaks_again_in_time_keeps_it_looking(poll: BusyPoll, loop: Loop) -> None:
    poll.after_read(100)
    for _ in range(100):
        assert loop.run(5) == 5
        poll.after_read(100)


def test_looks_that_find_nothing_become_rare(poll: BusyPoll, loop: Loop) -> None:
    looks = 0
    for _ in range(20 * REST_MAX):
        poll.after_read(100)
        looks += loop.run() > 0
    assert looks < 40


def test_one_that_finds_something_makes_them_frequent_again(poll: BusyPoll, loop: Loop) -> None:
    for _ in range(5 * REST_MAX):
        poll.after_read(100)
        loop.run()
    while not loop.run(1):
        poll.after_read(100)
    poll.after_read(100)  # in the middle of a look
    loop.run()
    reads = 0
    while not loop.run(1):
        poll.after_read(100)
        reads += 1
    assert reads <= 4
