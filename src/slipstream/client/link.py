"""One socket: bytes in, frames to their sinks, control frames to the peer.

A `Link` is the asyncio protocol of one connection to one server. It acts on everything that a read
brought before it returns, and what that made the client send leaves with one write at its end.
Messages go straight to the sink of their subscription id; INFO, PONG, -ERR and the end of the
socket go to the `Peer`: the handshake first, then the reconnect loop.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import slipstream.wire.operations as operations
from slipstream.wire.read_buffer import ReadBuffer
from slipstream.wire.server_frames import ServerFrames

if TYPE_CHECKING:
    from slipstream.client.reply_future import ReplyFuture
    from slipstream.client.subscriptions import Route
    from slipstream.client.write_buffer import WriteBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

# A frame that lacks this much is read straight to its place, unless it says to be larger than any
# server's max_payload may be.
LARGE_FRAME_BYTES_MIN = 16 * 1024
LARGE_FRAME_BYTES_MAX = 65 * 1024 * 1024
# Above this the socket counts as one that takes less than it is sent.
WRITE_BUFFER_HIGH = 256 * 1024


class Peer(Protocol):
    """What takes a link's control frames."""

    def on_info(self, link: "Link", text: bytes) -> None:
        """INFO; `text` is its JSON."""

    def on_pong(self, link: "Link") -> None:
        """PONG."""

    def on_error(self, link: "Link", text: str) -> None:
        """-ERR, without its quotes."""

    def on_malformed(self, link: "Link", start: bytes) -> None:
        """The server no longer speaks NATS; `start` begins the read that shows it."""

    def on_route_end(self, route: "Route") -> None:
        """A subscription got the last message that it asked for."""

    def on_sink_error(self, route: "Route", error: Exception) -> None:
        """A sink raised."""

    def on_lost(self, link: "Link", error: Exception | None) -> None:
        """The socket has ended."""


class Link:
    """The protocol of one socket."""

    def __init__(
        self, peer: Peer, write_buffer: "WriteBuffer", routes: "dict[_int, Route]"
    ) -> None:
        self.peer = peer
        self.write_buffer = write_buffer
        self.routes = routes
        self.transport: Any = None
        self.lost = False
        self.active = False  # something was read since the last look
        self.messages = 0
        self.bytes_read = 0
        self.payload_bytes = 0
        self._frames = ServerFrames()
        self._read_buffer = ReadBuffer()
        self._woken: list[ReplyFuture] = []

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """The socket is connected."""
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)

    def get_buffer(self, size_hint: _int) -> memoryview:
        """Where the next read goes."""
        return self._read_buffer.room()

    def buffer_updated(self, count: _int) -> None:
        """A read brought so much: act on it, unless it is the middle of a large frame."""
        self.active = True
        self.bytes_read += count
        data = self._read_buffer.take(count)
        if data:
            self._act(data)
            missing = self._frames.missing()
            if LARGE_FRAME_BYTES_MIN <= missing <= LARGE_FRAME_BYTES_MAX:
                start = self._frames.give_up()
                self._read_buffer.expect(start, len(start) + missing)

    def _act(self, data: bytes) -> None:
        """Act on every frame that is whole."""
        frames = self._frames
        write_buffer = self.write_buffer
        routes = self.routes
        frames.feed(data)
        write_buffer.batching = True
        write_buffer.woken = self._woken
        try:
            while not self.lost:
                op = frames.next()
                if op == operations.MSG:
                    self.messages += 1
                    self.payload_bytes += frames.end - frames.header_start
                    route = routes.get(frames.sid)
                    if route is not None:
                        self._deliver(route)
                elif op == operations.MORE:
                    break
                elif op > 0:
                    self._control(op)
                else:
                    self.lost = True
                    self.peer.on_malformed(self, data[:80])
        finally:
            write_buffer.woken = None
            try:
                if self._woken:
                    self._resume()
            finally:
                write_buffer.batching = False
                write_buffer.flush()

    def _resume(self) -> None:
        """Let those go on whose answers have come: what they send leaves with this read's end."""
        woken, self._woken = self._woken, []
        loop = self.write_buffer.loop
        if asyncio.current_task(loop) is not None:
            for answer in woken:
                answer.resume_later()
            return
        for answer in woken:
            try:
                answer.resume()
            except (SystemExit, KeyboardInterrupt) as error:
                loop.call_soon(_exit, error)  # the loop ends by it, not this connection

    def _deliver(self, route: "Route") -> None:
        route.delivered += 1
        try:
            route.sink.receive(self._frames, self.write_buffer)
        except Exception as error:
            self.peer.on_sink_error(route, error)
        if route.max_messages and route.delivered >= route.max_messages:
            self.peer.on_route_end(route)

    def _control(self, op: _int) -> None:
        """Act on a frame that is no message."""
        frames = self._frames
        if op == operations.PING:
            self.transport.write(b"PONG\r\n")
        elif op == operations.PONG:
            self.peer.on_pong(self)
        elif op == operations.ERR:
            text = frames.argument().decode("utf-8", "replace")
            self.peer.on_error(self, text.strip("'"))
        elif op == operations.INFO:
            self.peer.on_info(self, frames.argument())

    def eof_received(self) -> bool:
        """The server has said its last: nothing it might still read would be answered."""
        self.transport.abort()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket has ended."""
        self.lost = True
        self.peer.on_lost(self, error)

    def pause_writing(self) -> None:
        """The server takes less than it is sent."""
        if self.write_buffer.transport is self.transport:
            self.write_buffer.pause()

    def resume_writing(self) -> None:
        """The server has taken what waited for it."""
        if self.write_buffer.transport is self.transport:
            self.write_buffer.resume()


def _exit(error: BaseException) -> None:
    """What a task ended the program with."""
    raise error
