"""Threads of a simulation, of which one runs at a time: code that waits is run as it is.

    lane = Lane(later)              later(event) has `event` happen in a while, in the simulation
    lane.post(action)               actions are run in their order, each on the lane's thread
    future = LaneFuture()           whoever waits for it on a lane lets the simulation go on

When it is a lane's turn the simulation waits until the action has ended, or waits for a
`LaneFuture` itself. So a lane runs for no time at all between two events of the simulation, never
at the same time as anything else, and the same seed gives the same life.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

_here = threading.local()


class LaneEndedError(BaseException):
    """The server whose lane this is has crashed: the action does not go on."""


class Lane:
    """See the module's text."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self.error: Exception | None = None  # that an action has raised
        self.is_ended = False
        self._later = later
        self._actions: deque[Callable[[], None]] = deque()
        self._is_busy = False  # whether an action has begun, and not ended
        self._is_called = False  # whether its turn is to come
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._is_busy and not self._actions

    def post(self, action: Callable[[], None]) -> None:
        """Have an action run after those that were posted before it."""
        if not self.is_ended:
            self._actions.append(action)
            if not self._is_busy:
                self._call()

    def end(self) -> None:
        """The server is gone: what waits is left as it is, and nothing more begins."""
        if self.is_ended:
            return
        self.is_ended = True
        self._actions.clear()
        if self._thread is not None:
            self._give_turn()
            self._thread.join()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._later(self._run)

    def _run(self) -> None:
        """Its turn, in the simulation."""
        self._is_called = False
        if self.is_ended:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="lane", daemon=True)
            self._thread.start()
        self._give_turn()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self._actions and not self._is_busy:
            self._call()

    def _give_turn(self) -> None:
        self._turn.release()
        self._back.acquire()

    # -- on the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        _here.lane = self
        while True:
            self._turn.acquire()
            if not self.is_ended and self._actions:
                self._act(self._actions.popleft())
            is_over = self.is_ended
            self._back.release()
            if is_over:
                return

    def _act(self, action: Callable[[], None]) -> None:
        self._is_busy = True
        try:
            action()
        except LaneEndedError:
            pass
        except Exception as error:
            if not self.is_ended:  # else it fails because it was ended
                self.error = error
        finally:
            self._is_busy = False

    def wait(self, future: "Future[object]") -> None:
        """Let the simulation go on until the future is done. Raises `LaneEndedError`."""
        while not future.done():
            self._check()
            future.add_done_callback(lambda done: self._call())
            self._switch()
        self._check()

    def pause(self) -> None:
        """Let the simulation go on for a while. Raises `LaneEndedError`."""
        self._check()
        self._call()
        self._switch()
        self._check()

    def _check(self) -> None:
        if self.is_ended:
            raise LaneEndedError

    def _switch(self) -> None:
        self._back.release()
        self._turn.acquire()


class LaneFuture(Future[None]):
    """A future for which lanes wait."""

    def result(self, timeout: float | None = None) -> None:
        """What came of it, once it is done."""
        self._wait()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why nothing came of it, once it is done."""
        self._wait()
        return super().exception(0)

    def _wait(self) -> None:
        lane: Lane | None = getattr(_here, "lane", None)
        if lane is not None:
            lane.wait(self)  # type: ignore[arg-type]
        assert self.done(), "the simulation itself waits for nothing"


class LaneCondition(threading.Condition):
    """A condition for which lanes wait: they look again now and then."""

    def wait(self, timeout: float | None = None) -> bool:
        """Let the simulation go on for a while."""
        lane: Lane | None = getattr(_here, "lane", None)
        assert lane is not None, "the simulation itself waits for nothing"
        self.release()
        try:
            lane.pause()
        finally:
            self.acquire()
        return True
