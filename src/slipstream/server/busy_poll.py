"""Looking for more input for a moment before the process goes to sleep.

A client that waits for each answer sends its next message some microseconds after it has had one.
To fall asleep and be woken for it takes longer than all the rest, above all on a virtual machine;
so after a small read the loop goes on looking for `LOOK_SECONDS`. When that finds nothing it is
tried less and less often: a server that is seldom spoken to sleeps.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

LOOK_SECONDS = 0.00006
SMALL_READ = 2048  # bytes; who sends more at once does not wait for each answer
REST_MAX = 1024  # reads without a look, at most


class BusyPoll:
    """Keeps `loop` awake for a moment after each small read."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._looking = False
        self._heard = False  # something came while it was looking
        self._until = 0.0
        self._rest = 0  # reads to let pass before the next look
        self._vain = 0  # looks that found nothing, since one that did

    def after_read(self, size: int) -> None:
        """`size` bytes were read and acted on."""
        if size > SMALL_READ:
            return
        if self._looking:
            self._heard = True
        elif self._rest:
            self._rest -= 1
        else:
            self._looking = True
            self._begin()

    def _begin(self) -> None:
        self._heard = False
        self._until = self._clock() + LOOK_SECONDS
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._heard:
            self._vain = 0
            self._begin()
        elif self._clock() < self._until:
            self._loop.call_soon(self._look)
        else:
            self._looking = False
            self._vain += 1
            self._rest = min(1 << self._vain, REST_MAX)
