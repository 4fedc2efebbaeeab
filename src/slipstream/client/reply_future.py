"""A future whose awaiter goes on inside the read that brings the answer.

A future has its awaiter called in the next round of the loop: after the sockets were looked at once
more. A task that sends one request after the other pays for that round each time. A `ReplyFuture`
that is set inside a read lets its awaiter go on at the end of that read, so that what it sends next
leaves with the write that ends the read anyway. Set anywhere else it behaves as a future does.

It is what `asyncio` asks of an awaitable that is no coroutine, and no more: one task awaits it, and
cancelling that task cancels it.
"""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.client.write_buffer import WriteBuffer


class ReplyFuture:
    """The future answer to one request."""

    def __init__(self, write_buffer: "WriteBuffer") -> None:
        self._asyncio_future_blocking = False  # how a task recognises what it may await
        self._write_buffer = write_buffer
        self._is_done = False
        self._is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None

    # -- what the client calls -------------------------------------------------------------------

    def done(self) -> bool:
        """Whether it was set or cancelled."""
        return bool(self._is_done)

    def set_result(self, result: Any) -> None:
        """The answer is here."""
        self._result = result
        self._set()

    def set_exception(self, error: BaseException) -> None:
        """There is no answer, because of `error`."""
        self._error = error
        self._set()

    def _set(self) -> None:
        self._is_done = True
        if self._callback is None:
            return
        woken = self._write_buffer.woken
        if woken is not None:
            woken.append(self)
        else:
            self.resume_later()

    def resume(self) -> None:
        """Let the awaiter go on, now."""
        callback = self._callback
        self._callback = None
        if callback is not None:
            if self._context is None:
                callback(self)
            else:
                self._context.run(callback, self)

    def resume_later(self) -> None:
        """Let the awaiter go on in the next round of the loop."""
        self._write_buffer.loop.call_soon(self.resume)

    # -- what a task calls -----------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def result(self) -> Any:
        """The answer; raises the error in its place, or CancelledError."""
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        """The error in place of the answer, if there is one."""
        return self._error

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return bool(self._is_cancelled)

    def cancel(self, msg: Any = None) -> bool:
        """Give up awaiting; False if it is done already."""
        if self._is_done:
            return False
        self._is_done = True
        self._is_cancelled = True
        self.resume_later()
        return True

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Call `callback` when it is done. Raises RuntimeError for a second one."""
        if self._callback is not None:
            raise RuntimeError("an answer is awaited by one task alone")
        self._callback = callback
        self._context = context
        if self._is_done:
            self.resume_later()

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget `callback`; how many of them were forgotten, as asyncio's futures say."""
        known = self._callback is not None and self._callback == callback
        if known:
            self._callback = None
        return int(known)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its awaiter."""
        return self._write_buffer.loop
