"""Requests: one subscription for all answers, told apart by the last token of their subject.

The inbox is ``<prefix>.<nuid>.*``; each request gets the next number. An answer is one dictionary
lookup away from the task that awaits it. An `AnswerQueue` takes the answers to a request that
has several.
"""

import asyncio
import builtins
from collections import deque
from typing import TYPE_CHECKING

from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    PermissionsError,
    TimeoutError,
)
from slipstream.client.message import Message, message_of
from slipstream.client.subscriptions import Sink, Subscriptions

if TYPE_CHECKING:
    from slipstream.client.reply_future import ReplyFuture
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


# Deadlines are met to within this; so few looks cost nothing.
TICK_SECONDS_MIN = 0.01


class Request:
    """One request that awaits its answer, or answers if it has a sink."""

    def __init__(self, subject: str, future: "ReplyFuture | None", sink: Sink | None) -> None:
        self.subject = subject
        self.future = future
        self.sink = sink
        self.token = 0
        self.position = 0  # of the request in the write_buffer
        self.timeout = -1.0  # seconds; less than 0: the caller has a timeout of its own
        self.deadline = 0.0  # the loop's time

    def fail(self, error: Exception) -> None:
        """Give up awaiting."""
        if self.sink is not None:
            self.sink.failed(error)
        elif self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Requests(Sink):
    """The requests that await answers, and the sink of all answers. `prefix` ends with a dot."""

    def __init__(
        self, write_buffer: "WriteBuffer", subscriptions: Subscriptions, prefix: str
    ) -> None:
        self.write_buffer = write_buffer
        self.prefix = prefix
        self.pending: dict[_int, Request] = {}
        self._subscriptions = subscriptions
        self._is_subscribed = False  # with the first request
        self._prefix_size = len(prefix.encode())
        self._token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def open(self, request: Request) -> str:
        """Begin to await answers to `request`; returns the reply subject. `close` ends it.

        Raises `ConnectionClosedError`.
        """
        if self.write_buffer.is_closed:  # before anything waits for an answer
            raise ConnectionClosedError(
                f"request to {request.subject!r}: the connection is closed. Open another one"
            )
        if not self._is_subscribed:
            self._subscriptions.open(self.prefix + "*", "", self)
            self._is_subscribed = True
        self._token += 1
        request.token = self._token
        self.pending[request.token] = request
        if request.timeout >= 0.0:
            request.deadline = self.write_buffer.loop.time() + request.timeout
            if self._timer is None or request.deadline < self._timer_at:
                self._arm(request.deadline)
        return f"{self.prefix}{request.token}"

    def close(self, request: Request) -> None:
        """Await nothing more for it."""
        self.pending.pop(request.token, None)

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """An answer; one that no request awaits is dropped."""
        subject = frames.subject
        view = subject
        token = 0
        for i in range(self._prefix_size, len(subject)):
            token = token * 10 + (view[i] - 48)
        request = self.pending.get(token)
        if request is None:
            return
        if request.sink is not None:
            request.sink.receive(frames, write_buffer)
            return
        del self.pending[token]
        future = request.future
        if future is None or future.done():
            return
        message = message_of(frames, write_buffer)
        if message.status == 503 and not message.data:
            future.set_exception(NoRespondersError(request.subject))
        else:
            future.set_result(message)

    # -- giving up -----------------------------------------------------------------------------

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.write_buffer.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        """Fail what is overdue; look again when the next one is. One timer serves all requests."""
        self._timer = None
        now = self.write_buffer.loop.time()
        earliest = 0.0
        for request in list(self.pending.values()):
            if request.timeout < 0.0:
                continue
            if request.deadline <= now:
                self.close(request)
                request.fail(self._overdue(request))
            elif earliest == 0.0 or request.deadline < earliest:
                earliest = request.deadline
        if earliest > 0.0:
            self._arm(max(earliest, now + TICK_SECONDS_MIN))

    def _overdue(self, request: Request) -> Exception:
        sent = request.position <= self.write_buffer.handed
        why = "no answer came" if sent else "there was no connection to send it on"
        return TimeoutError(
            f"request to {request.subject!r}: {why} within {request.timeout} s", sent=sent
        )

    def on_disconnect(self, handed: _int) -> None:
        """Fail what may have been sent: the answer may be lost. Keep what was not."""
        for request in list(self.pending.values()):
            if request.position <= handed:
                self.close(request)
                request.fail(
                    ConnectionLostError(
                        f"request to {request.subject!r}: the connection broke before the answer "
                        "came; the request may have been acted on. Ask again if that does no harm"
                    )
                )

    def failed(self, error: Exception) -> None:
        """Fail everything. If the server forbade the inbox, the next request subscribes again."""
        self._is_subscribed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request in list(self.pending.values()):
            self.close(request)
            request.fail(error)

    def forbid(self, subject: str, error: PermissionsError) -> bool:
        """Fail the oldest request to `subject`, which the server refused; False if none is."""
        for request in self.pending.values():
            if request.subject == subject:
                self.close(request)
                request.fail(error)
                return True
        return False


class AnswerQueue(Sink):
    """Keeps answers until they are taken."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.error: Exception | None = None
        self.arrived = asyncio.Event()

    def deliver(self, message: Message) -> None:
        """Take an answer to the request."""
        self.messages.append(message)
        self.arrived.set()

    def failed(self, error: Exception) -> None:
        """No further answer comes."""
        self.error = error
        self.arrived.set()

    async def next(self, deadline: float) -> Message | None:
        """The next answer; None if there is none up to `deadline` (loop time)."""
        while not self.messages:
            if self.error is not None:
                raise self.error
            self.arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self.arrived.wait()
            except builtins.TimeoutError:
                return None
        return self.messages.popleft()
