"""What is due when: a heap of deadlines on the engine's clock, and queues of equal delays."""

import heapq
from collections import deque
from collections.abc import Callable

from slipstream.engine.loop.clock import Clock


class Timer:
    """A deadline; `cancel` is cheap, the heap forgets it later."""

    def __init__(self, at: int, callback: Callable[[], None] | None) -> None:
        self.at = at
        self.callback = callback

    def cancel(self) -> None:
        """Never call it."""
        self.callback = None


class Timers:
    """Deadlines in nanoseconds. Nothing runs unless `run_due` is called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._compact_at = 1024

    @property
    def now(self) -> int:
        """The engine's time, in ns since the epoch."""
        return self._clock.now

    def at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once at `when` (ns since the epoch)."""
        timer = Timer(when, callback)
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, timer))
        if len(self._heap) > self._compact_at:
            self._forget_cancelled()
        return timer

    def after(self, delay: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once in `delay` ns."""
        return self.at(self._clock.now + delay, callback)

    def no_later(self, timer: Timer | None, when: int, callback: Callable[[], None]) -> Timer:
        """`timer`, if it is due by `when`; else one for `when` that takes its place."""
        if timer is not None:
            if timer.at <= when:
                return timer
            timer.cancel()
        return self.at(when, callback)

    def _forget_cancelled(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._compact_at = max(1024, 2 * len(self._heap))

    def next_at(self) -> int:
        """The earliest deadline; 0 when there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else 0

    def run_due(self) -> None:
        """Call everything whose time has come; what that sets for now has to wait for its turn."""
        now = self._clock.now
        last = self._count
        later = []
        try:
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                timer = entry[2]
                callback = timer.callback
                if entry[1] > last:
                    later.append(entry)
                elif callback is not None:
                    timer.callback = None
                    callback()
        finally:
            for entry in later:
                heapq.heappush(self._heap, entry)


class Delay:
    """Callbacks that each wait equally long, in ns, on one timer.

    They are due in the order in which they came. With ten thousand of them, a place in the heap
    costs more than what it has called.
    """

    def __init__(self, timers: Timers, delay: int) -> None:
        self._timers = timers
        self._delay = delay
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._timer: Timer | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the delay has passed."""
        at = self._timers.now + self._delay
        self._due.append((at, callback))
        if self._timer is None:
            self._timer = self._timers.at(at, self._run)

    def _run(self) -> None:
        """Call those whose time has come, whatever befalls one of them."""
        due = self._due
        now = self._timers.now
        try:
            while due and due[0][0] <= now:
                due.popleft()[1]()
        finally:
            self._timer = self._timers.at(due[0][0], self._run) if due else None
