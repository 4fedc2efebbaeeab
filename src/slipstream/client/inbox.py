"""Requests: one subscription for all answers, told apart by the last token of their subject.

The inbox is ``<prefix>.<nuid>.*``; each request gets the next number. An answer is one dictionary
lookup away from whoever awaits it.
"""

import asyncio
from typing import TYPE_CHECKING

from slipstream.client.errors import (
    ConnectionLostError,
    NoRespondersError,
    PermissionsError,
    TimeoutError,
)
from slipstream.client.message import message_of
from slipstream.client.route import Sink

if TYPE_CHECKING:
    from slipstream.client.answer import Answer
    from slipstream.client.outbox import Outbox
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


# Deadlines are met to within this; so few looks cost nothing.
TICK_SECONDS_MIN = 0.01


class Request:
    """One request that awaits its answer, or answers if it has a sink."""

    def __init__(self, subject: str, future: "Answer | None", sink: Sink | None) -> None:
        self.subject = subject
        self.future = future
        self.sink = sink
        self.token = 0
        self.position = 0  # of the request in the outbox
        self.timeout = -1.0  # seconds; less than 0: whoever asks looks after it
        self.deadline = 0.0  # the loop's time

    def fail(self, error: Exception) -> None:
        """Give up awaiting."""
        if self.sink is not None:
            self.sink.failed(error)
        elif self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Inbox(Sink):
    """The sink of all answers. `prefix` ends with a dot."""

    def __init__(self, outbox: "Outbox", prefix: str) -> None:
        self.outbox = outbox
        self.prefix = prefix
        self.requests: dict[_int, Request] = {}
        self._prefix_size = len(prefix.encode())
        self._token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def subject(self) -> str:
        """What to subscribe to."""
        return self.prefix + "*"

    def open(self, request: Request) -> str:
        """Begin to await answers for `request`; the reply subject that leads to it."""
        self._token += 1
        request.token = self._token
        self.requests[request.token] = request
        if request.timeout >= 0.0:
            request.deadline = self.outbox.loop.time() + request.timeout
            if self._timer is None or request.deadline < self._timer_at:
                self._arm(request.deadline)
        return f"{self.prefix}{request.token}"

    def close(self, request: Request) -> None:
        """Await nothing more for it."""
        self.requests.pop(request.token, None)

    def receive(self, frames: "ServerFrames", outbox: "Outbox") -> None:
        """An answer; one that nobody awaits any more is dropped."""
        subject = frames.subject
        view = subject
        token = 0
        for i in range(self._prefix_size, len(subject)):
            token = token * 10 + (view[i] - 48)
        request = self.requests.get(token)
        if request is None:
            return
        if request.sink is not None:
            request.sink.receive(frames, outbox)
            return
        del self.requests[token]
        future = request.future
        if future is None or future.done():
            return
        message = message_of(frames, outbox)
        if message.status == 503 and not message.data:
            future.set_exception(NoRespondersError(request.subject))
        else:
            future.set_result(message)

    # -- giving up -----------------------------------------------------------------------------

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.outbox.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        """Fail what is overdue; look again when the next one is. One timer serves all requests."""
        self._timer = None
        now = self.outbox.loop.time()
        earliest = 0.0
        for request in list(self.requests.values()):
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
        sent = request.position <= self.outbox.handed
        why = "no answer came" if sent else "there was no connection to send it on"
        return TimeoutError(
            f"request to {request.subject!r}: {why} within {request.timeout} s", sent=sent
        )

    def on_disconnect(self, handed: _int) -> None:
        """Fail what may have been sent: the answer may be lost. Keep what was not."""
        for request in list(self.requests.values()):
            if request.position <= handed:
                self.close(request)
                request.fail(
                    ConnectionLostError(
                        f"request to {request.subject!r}: the connection broke before the answer "
                        "came; the request may have been acted on. Ask again if that does no harm"
                    )
                )

    def failed(self, error: Exception) -> None:
        """Fail everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request in list(self.requests.values()):
            self.close(request)
            request.fail(error)

    def forbid(self, subject: str, error: PermissionsError) -> bool:
        """Fail the oldest request to `subject`, which the server refused; False if none is."""
        for request in self.requests.values():
            if request.subject == subject:
                self.close(request)
                request.fail(error)
                return True
        return False
