"""Deadlines on the engine's clock, and callbacks that each wait equally long."""

import pytest

from slipstream.engine.loop.clock import Clock
from slipstream.engine.loop.timers import Delay, Timers


class Desk:
    """Timers, a delay of 10 ns, and what was called when."""

    def __init__(self) -> None:
        self.clock = Clock(100)
        self.timers = Timers(self.clock)
        self.delay = Delay(self.timers, 10)
        self.called: list[tuple[int, str]] = []

    def call(self, name: str) -> None:
        self.called.append((self.clock.now, name))

    def go_to(self, now: int) -> None:
        self.clock.now = now
        self.timers.run_due()


def test_each_waits_equally_long_and_one_timer_serves_all() -> None:
    desk = Desk()
    desk.delay.add(lambda: desk.call("a"))
    desk.clock.now = 104
    desk.delay.add(lambda: desk.call("b"))
    assert desk.timers.next_at() == 110
    desk.go_to(109)
    assert desk.called == []
    desk.go_to(110)
    assert desk.called == [(110, "a")]
    assert desk.timers.next_at() == 114
    desk.go_to(120)
    assert desk.called == [(110, "a"), (120, "b")]
    assert desk.timers.next_at() == 0


def test_one_that_is_added_by_another_waits_for_its_time() -> None:
    desk = Desk()
    desk.delay.add(lambda: desk.delay.add(lambda: desk.call("second")))
    desk.go_to(110)
    assert desk.timers.next_at() == 120
    desk.go_to(120)
    assert desk.called == [(120, "second")]


def test_one_that_raises_keeps_none_of_the_others_from_being_called() -> None:
    desk = Desk()

    def fail() -> None:
        raise RuntimeError("of one")

    desk.delay.add(fail)
    desk.delay.add(lambda: desk.call("next"))
    with pytest.raises(RuntimeError, match="of one"):
        desk.go_to(110)
    desk.go_to(110)
    assert desk.called == [(110, "next")]


def test_a_cancelled_timer_calls_nobody() -> None:
    desk = Desk()
    timer = desk.timers.after(5, lambda: desk.call("late"))
    timer.cancel()
    desk.go_to(200)
    assert desk.called == []
