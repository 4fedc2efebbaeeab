"""The turns of a server on its event loop (`engine.loop.turn` says what a turn and a round are).

`enter` begins a turn, and `leave` ends it. What the turn has left is finished then, unless it is
better finished with what the sockets have: a commit that several clients share costs little more
than that of one.
"""

import asyncio
import time
from collections.abc import Callable

from slipstream.engine.engine import Engine
from slipstream.server.busy_poll import SMALL_READ, BusyPoll
from slipstream.server.histogram import Histogram
from slipstream.server.logger import Logger

LEASE_STEP_SECONDS = 0.005  # after which a leader looks again whether it may answer
# Less work than this need not be counted: then the next look at the sockets begins no round.
ROUND_STEPS_MIN = 2_000


class Turns:
    """See the module's text. `took` counts how long turns take, in ns."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, log: Logger, took: Histogram
    ) -> None:
        self.busy_poll: BusyPoll | None = None
        self._loop = loop
        self._engine = engine
        self._rounds = engine.rounds
        self._output = engine.output
        self._turn = engine.turn
        self._clock = engine.clock
        self._timers = engine.timers
        self._log = log
        self._took = took
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0
        self._again: asyncio.Handle | None = None
        self._writer: object = None  # whose turn has left something to commit, last
        self._has_ended = False

    def enter(self) -> None:
        """A turn begins: look at the clock, which never goes back."""
        now: int = time.time_ns()
        if now > self._clock.now:
            self._clock.now = now

    def leave(self, connection: object = None, size: int = 0) -> None:
        """A turn ends, that of what a `connection` has brought, `size` bytes of it, if one is
        given: finish it."""
        looks = self._looks_once_more(size)
        more = self._finish(self._gathers(connection) or looks)
        if self._again is None and (more or self._turn.spent >= ROUND_STEPS_MIN):
            self._again = self._loop.call_soon(self._look_once_more if looks else self._go_on)
        due = self._timers.next_at()
        if due and (self._handle is None or due < self._handle_at):
            self._set_timer(due)
        self._took.add(time.time_ns() - self._clock.now)
        if size and self.busy_poll is not None:
            self.busy_poll.after_read(size)

    def run(self, action: Callable[[], None]) -> None:
        """Run `action` as a turn."""
        if self._has_ended:
            return
        self.enter()
        try:
            action()
        except Exception as error:  # a fault of the server; timers and consumers go on
            self._log.fault("acting on a timer or on the disk", error)
        self.leave()

    def finish_last(self) -> None:
        """Finish all that there is, and gather nothing."""
        self.enter()
        self._finish(False)

    def end(self) -> None:
        """There are no turns any more."""
        self._has_ended = True
        for handle in (self._handle, self._again):
            if handle is not None:
                handle.cancel()

    def _finish(self, gathers: bool) -> bool:
        """Have the engine finish a turn; whether there is more to do."""
        may_answer = self._output.may_answer
        if may_answer is not None and not may_answer():
            self._wait_for_lease()
            return False
        try:
            return self._rounds.finish_turn(gathers)
        except Exception as error:  # a fault of the server; who is left over has the next turn
            self._log.fault("finishing a turn", error)
            return True

    def _wait_for_lease(self) -> None:
        """Nothing leaves that may be out of date: a majority has not been heard lately. Either it
        is heard again, or another server leads, and this one is told to end."""
        if self._again is None:
            self._again = self._loop.call_later(LEASE_STEP_SECONDS, self._go_on)

    def _gathers(self, connection: object) -> bool:
        """Whether what this turn has left to commit waits until the other sockets that have
        something were read. So many clients that each wait for one message share a commit. One that
        is alone at it does not wait for others."""
        if not self._turn.streams:
            return False
        before = self._writer
        if connection is not None:
            self._writer = connection
        return self._again is not None or (connection is not None and connection is not before)

    def _looks_once_more(self, size: int) -> bool:
        """Whether what this turn has left to commit waits until the sockets were looked at once
        more. Who sends many messages at a time is still at it, and what comes now would have to
        wait for a small commit: one that is larger costs next to nothing more. In memory nothing
        waits."""
        if size <= SMALL_READ or self._again is not None:
            return False
        unwritten = 0
        for stream in self._turn.streams:
            unwritten = stream.unwritten()
            if unwritten:
                break
        return unwritten > 0

    def _look_once_more(self) -> None:
        """The loop looks at the sockets before it calls `_go_on`."""
        self._again = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self.run(self._rounds.go_on)

    def _set_timer(self, due: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle_at = due
        delay = max(due - time.time_ns(), 0) / 1e9
        self._handle = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._handle = None
        self.run(self._engine.tick)
