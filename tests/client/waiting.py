"""Time and turns of the event loop: tests move the one on and let the other pass, without naps.

The client takes the time from its loop, and so do the timers in it. What a server waits for takes
real time, which no test can drive: `SOON` is for that.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
SOON = 0.05  # seconds until a real server says that nothing, or nothing more, is there


async def turns(count: int = 20) -> None:
    """Let everything else in the loop run on: what can be sent is sent, what has come is read."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds."""
    async with asyncio.timeout(30):
        for wait in itertools.repeat(0.001):
            if condition():
                return
            await asyncio.sleep(wait)


class LoopClock:
    """The time of a loop: the machine's clock, and what a test has added to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ahead = 0.0
        machine = loop.time
        loop.time = lambda: machine() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        """It is later now; timers that are due fire in the loop's next turn."""
        self._ahead += seconds

    async def time_out(self, waiting: Awaitable[T], seconds: float) -> T:
        """What `waiting` comes to when it has begun and `seconds` pass."""
        task = asyncio.ensure_future(waiting)
        await turns()
        assert not task.done(), "it does not wait"
        self.advance(seconds)
        return await task

    async def run_out(self, waiting: Awaitable[T], seconds: float) -> T:
        """The same, as often as it waits again. What answers has to be in this loop, too."""
        task = asyncio.ensure_future(waiting)
        while True:
            await turns()
            if task.done():
                return await task
            self.advance(seconds)
