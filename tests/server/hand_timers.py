"""The timers of a running server's connections, moved by hand.

A test of what happens after a deadline would otherwise race with the machine: on a busy one a
client that takes everything seems to take nothing for a fifth of a second.
"""

import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from slipstream.server import Server


class Timer:
    """What `call_later` gives."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call: Callable[[], object] | None = lambda: callback(*args)

    def cancel(self) -> None:
        """It does not run."""
        self._call = None

    def run(self) -> None:
        """Run, unless cancelled."""
        if self._call is not None:
            self._call()


class HandTimers:
    """Stands for the loop of a server in a thread: `call_later` waits for `advance`."""

    def __init__(self, server: Server) -> None:
        runtime = server.runtime
        assert runtime is not None
        self._loop: Any = runtime.loop
        self._now = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        runtime.loop = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        """Seconds by hand."""
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """In `delay` seconds by hand."""
        timer = Timer(callback, args)
        heapq.heappush(self._timers, (self._now + delay, next(self._numbers), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let so much time pass; returns when all that was due then has run."""
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._run_until, self._now + seconds, done)
        done.result()

    def _run_until(self, end: float, done: "Future[None]") -> None:
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            timer.run()
        self._now = end
        done.set_result(None)
