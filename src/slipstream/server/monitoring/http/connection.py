"""As much of an HTTP/1.1 server as monitoring needs: requests without bodies, answers at once.

A `HttpConnection` gathers bytes until a request's head is complete, asks the handler, writes the
answer, and goes on with the next request unless the client wants otherwise. What is malformed,
too long or too slow gets an error and the end of its connection.

h11 takes 41 µs of the event loop for a request and its answer and 27 ms for its import, where this
takes 12 µs; it refuses HTTP/1.1 without Host, which scripts send, and it does not give back the
bytes of a request, which the console's server has to read again.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from slipstream.server.monitoring.values import Steps

HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 10.0
IDLE_SECONDS_MAX = 60.0
CONNECTIONS_MAX = 256
LONG_ANSWERS_MAX = 4  # at a time: each may take many megabytes
TEXT = "text/plain; charset=utf-8"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Request(msgspec.Struct):
    """A request's target: the path, and what follows `?`."""

    path: str
    query: str = ""


class Response(msgspec.Struct):
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes | Steps
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    def whole_body(self) -> bytes:
        """The body, made at once if need be."""
        body = self.body
        while not isinstance(body, bytes):
            try:
                next(body)
            except StopIteration as end:
                body = self.body = end.value
        return body


Handler = Callable[[Request], Response]


class Guest(Protocol):
    """What answers some paths in another way, and goes on with their connections."""

    def wants(self, path: str) -> bool:
        """Whether a path is the guest's."""

    def take_over(self, transport: Any, received: bytes) -> None:
        """Go on with a connection on which `received` came last."""


class HttpConnection(asyncio.Protocol):
    """One client. `others` are all connections of the listener, to bound their number; `guest` says
    for each request who may take the connection over."""

    def __init__(
        self,
        handler: Handler,
        others: "set[HttpConnection]",
        guest: Callable[[], Guest | None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._guest = guest
        self._is_handed_over = False
        self._is_working = False  # an answer is made in steps
        self._others = others
        self._transport: Any = None
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._writable = True

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Wait for a request, but not for ever."""
        self._transport = transport
        if len(self._others) >= CONNECTIONS_MAX:
            transport.abort()
            return
        self._others.add(self)
        self._wait(HEAD_SECONDS_MAX)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._received += data
        self._answer_all()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._others.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """The client does not read: answer no more."""
        self._writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has taken what waited for it."""
        self._writable = True
        self._transport.resume_reading()
        self._answer_all()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    # -- requests ------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def _answer_all(self) -> None:
        while self._is_free() and not self._transport.is_closing():
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > HEAD_BYTES_MAX:
                    self._refuse(431, "request header fields too large")
                return
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._wait(IDLE_SECONDS_MAX)
            self._answer(head)

    def _is_free(self) -> bool:
        """Whether the next request may be answered."""
        return self._writable and not self._is_handed_over and not self._is_working

    def _answer(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/") or len(head) > HEAD_BYTES_MAX:
            self._refuse(400, "bad request: expected METHOD PATH HTTP/1.1")
            return
        if words[2] not in ("HTTP/1.0", "HTTP/1.1"):
            self._refuse(505, f"unsupported protocol {words[2][:16]}: use HTTP/1.1")
            return
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                self._refuse(400, "bad request: malformed header")
                return
            headers[name.lower()] = value.strip().lower()
        path, _, query = words[1].partition("?")
        guest = self._guest()
        if guest is not None and guest.wants(path):
            self._hand_over(guest, head)
            return
        request = Request(path, query)
        response = self._handle(request)
        # A body is not read, so what follows it cannot be understood.
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        kept = headers.get("connection", "close" if words[2] == "HTTP/1.0" else "keep-alive")
        only_head, close = words[0] == "HEAD", has_body or kept != "keep-alive"
        if isinstance(response.body, bytes):
            self._send(response, response.body, only_head, close)
        elif sum(other._is_working for other in self._others) >= LONG_ANSWERS_MAX:
            self._refuse(503, "others are being answered: ask again in a moment")
        else:
            self._is_working = True
            self._transport.pause_reading()
            self._work(request, response, response.body, only_head, close)

    def _work(
        self, request: Request, response: Response, steps: Steps, only_head: bool, close: bool
    ) -> None:
        """One step of an answer; the next ones follow in later rounds of the loop."""
        if self._transport.is_closing():
            steps.close()
            return
        loop = asyncio.get_running_loop()
        try:
            next(steps)
        except StopIteration as end:
            self._is_working = False
            self._transport.resume_reading()
            self._send(response, end.value, only_head, close)
            loop.call_soon(self._answer_all)
        except Exception as error:
            failed = _failed(request, error)
            self._send(failed, failed.whole_body(), only_head, close=True)
        else:
            loop.call_soon(self._work, request, response, steps, only_head, close)

    def _hand_over(self, guest: Guest, head: bytes) -> None:
        """The connection is a guest's from this request on."""
        self._is_handed_over = True
        self.connection_lost(None)
        guest.take_over(self._transport, head + b"\r\n\r\n" + bytes(self._received))

    def _handle(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception as error:  # an endpoint's mistake must not end the server
            return _failed(request, error)

    def _refuse(self, status: int, text: str) -> None:
        body = text.encode() + b"\n"
        self._send(Response(status, TEXT, body), body, False, close=True)

    def _send(self, response: Response, body: bytes, only_head: bool, close: bool) -> None:
        from email.utils import formatdate

        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines += [
            f"Content-Type: {response.content_type}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Length: {len(body)}",
        ]
        if close:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._transport.write(head)
        if not only_head:
            self._transport.write(body)  # by itself, because it may be large
        if close:
            self._transport.close()


def _failed(request: Request, error: Exception) -> Response:
    """The answer of an endpoint that has made a mistake, which the log reports."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"monitoring failed to answer {request.path}", "exception": error}
    )
    return Response(500, TEXT, b"the server failed to answer; its log says why\n")
