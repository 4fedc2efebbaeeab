"""The write buffer: frames wait here and leave with one write per turn of the loop.

The buffer outlives sockets. While no server listens it keeps what is published, up to its bound,
and hands it over when one does. `position` counts the bytes ever put, `handed` those given to a
socket. So the position of a frame says, when the socket breaks, whether the frame may have reached
the server (`position <= handed`) or certainly has not and will be sent on the next one.
"""

import asyncio
from typing import Any

from slipstream.client.codecs import Registry
from slipstream.client.errors import (
    ClientError,
    ConnectionClosedError,
    HeadersNotSupportedError,
    MaxPayloadError,
    OutboundBufferFullError,
)
from slipstream.client.payload import HeadersLike, Payload, header_bytes, payload_bytes
from slipstream.client.payload import subject_bytes as as_subject
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

# A loop that publishes without rest has what it gathered written when it is this much, and lets
# others run: about what one system call takes.
CHUNK_BYTES = 128 * 1024
# A body of this size is not copied into the buffer; the socket gets it as it is.
LARGE_BODY_BYTES = 32 * 1024
DEFAULT_MAX_PAYLOAD = 1024 * 1024


class WriteBuffer:
    """Frames on their way to whichever server is connected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bytes_max: _int) -> None:
        self.loop = loop
        self.bytes_max = bytes_max
        self.max_payload = DEFAULT_MAX_PAYLOAD
        self.codecs: Registry | None = None  # the connection's registry
        self.transport: Any = None  # None while no server listens
        self.headers_known = True  # whether the server takes headers
        self.position = 0
        self.handed = 0
        self.messages = 0
        self.payload_bytes = 0
        self.crowded = False  # before the next publish, see `room`
        self.batching = False  # inside a read: its end flushes
        self.woken: list[Any] | None = None  # inside a read: who goes on at its end
        self._out = OutBuffer()
        self._pieces: list[bytes | memoryview] = []  # large bodies and what stands before them
        self._pieces_size = 0
        self._chunk = min(CHUNK_BYTES, bytes_max)
        self._paused = False
        self._gathers = False  # whether the transport writes many pieces with one call
        self._scheduled = False
        self.is_closed = False
        self._waiting: list[asyncio.Future[None]] = []
        # The last subject and its bytes: a flood on one subject encodes and checks it once.
        self._subject = "-"
        self._subject_bytes = b"-"

    @property
    def pending(self) -> _int:
        """Bytes that wait here."""
        return self._pieces_size + self._out.size

    # -- putting -------------------------------------------------------------------------------

    def publish(self, subject: str, data: Payload, reply: str, headers: HeadersLike | None) -> _int:
        """Put a message; its position. See `Connection.publish_nowait` for what it raises."""
        if subject is not self._subject:
            self._subject_bytes = as_subject(subject)
            self._subject = subject
        body = data if type(data) is bytes else payload_bytes(data, self.codecs)
        block = b"" if headers is None else header_bytes(headers)
        back = as_subject(reply) if reply else b""
        return self.put_message(self._subject_bytes, back, block, body)

    def put_message(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> _int:
        """Put a message whose parts are known to be well-formed; its position."""
        out = self._out
        size = len(block) + len(body)
        self._check(subject, block, size)
        before = out.size
        if size >= LARGE_BODY_BYTES:
            self._put_large(subject, reply, block, body)
        else:
            out.put_publish(subject, reply, block, body)
            self.position += out.size - before
        self.messages += 1
        self.payload_bytes += size
        self._wake()
        return self.position

    def put_view(
        self, subject: bytes, reply: bytes, block: bytes, body: "bytes | memoryview"
    ) -> _int:
        """As `put_message`, for a body in memory that must not change until it is sent."""
        size = len(block) + len(body)
        self._check(subject, block, size)
        self._put_large(subject, reply, block, body)
        self.messages += 1
        self.payload_bytes += size
        self._wake()
        return self.position

    def _check(self, subject: bytes, block: bytes, size: _int) -> None:
        """Raise unless a message of this size may be put."""
        if (
            self.is_closed
            or size > self.max_payload
            or self._pieces_size + self._out.size > self.bytes_max
            or (not self.headers_known and block)
        ):
            raise self._refusal(subject, size)

    def _put_large(
        self, subject: bytes, reply: bytes, block: bytes, body: "bytes | memoryview"
    ) -> None:
        """Put a frame whose body stays where it is."""
        out = self._out
        before = out.size
        size = len(body)
        out.put_publish_start(subject, reply, block, size)
        self.position += out.size - before + size + 2
        self._pieces_size += out.size + size
        self._pieces.append(out.take())
        self._pieces.append(body)
        out.put(b"\r\n")

    def put_line(self, line: bytes) -> _int:
        """Put a frame without payload; its position."""
        self._out.put(line)
        self.position += len(line)
        self._wake()
        return self.position

    def _wake(self) -> None:
        """See to it that what was put is sent."""
        if self._pieces_size + self._out.size >= self._chunk:
            self.crowded = True
            self.flush()
        elif not self._scheduled and not self.batching and self.transport is not None:
            self._scheduled = True
            self.loop.call_soon(self._turn_ends)

    def _refusal(self, subject: bytes, size: int) -> ClientError:
        name = subject.decode()
        if self.is_closed:
            return ConnectionClosedError(
                f"publish to {name!r}: the connection is closed. Open another one"
            )
        if size > self.max_payload:
            return MaxPayloadError(
                f"publish to {name!r}: {size} bytes with headers, but the server takes at most "
                f"{self.max_payload} (its max_payload). Split the message or use an object store"
            )
        if self.pending <= self.bytes_max:
            return HeadersNotSupportedError(
                f"publish to {name!r}: the server takes no headers. Publish without them, or lift "
                "no_header_support in its configuration"
            )
        return OutboundBufferFullError(
            f"publish to {name!r}: {self.pending} bytes wait to be sent, the bound is "
            f"{self.bytes_max} (pending_bytes_max). Await `publish`, which waits for room"
        )

    # -- sending -------------------------------------------------------------------------------

    def _turn_ends(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Give everything to the socket, if there is one that takes it."""
        out = self._out
        if out.size and self.transport is not None and not self._paused:
            self.handed = self.position
            if self._pieces:
                self._write_pieces()
            else:
                self.transport.write(out.take())
            if self._waiting:
                self._admit()

    def _write_pieces(self) -> None:
        """Give large bodies to the socket from where they are."""
        pieces, self._pieces = self._pieces, []
        self._pieces_size = 0
        pieces.append(self._out.take())
        if self._gathers:
            self.transport.writelines(pieces)
            return
        for piece in pieces:
            self.transport.write(piece)

    def attach(self, transport: Any, first: bytes = b"") -> None:
        """A server listens at `transport`: send `first`, what gathered, and all that follows."""
        self.transport = transport
        # What `asyncio` does by default is to join the pieces.
        self._gathers = type(transport).writelines is not asyncio.WriteTransport.writelines
        self._paused = False
        if first:
            transport.write(first)
        self.flush()

    def detach(self) -> None:
        """The socket is gone; keep what follows."""
        self.transport = None
        self._paused = False

    def close(self) -> None:
        """Refuse everything from now on and forget what was not sent."""
        self.transport = None
        self.is_closed = True
        self._out.clear()
        self._pieces = []
        self._pieces_size = 0
        self._admit()

    def pause(self) -> None:
        """The server takes less than it is sent."""
        self._paused = True
        self.crowded = True

    def resume(self) -> None:
        """The server has caught up with what it was sent."""
        self._paused = False
        self.flush()

    # -- back-pressure -------------------------------------------------------------------------

    async def room(self) -> None:
        """Let others run; wait while as much is waiting as may."""
        self.crowded = False
        await asyncio.sleep(0)
        while self.pending > self.bytes_max and not self.is_closed:
            future = self.loop.create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)

    def _admit(self) -> None:
        """Wake the tasks that wait for room."""
        waiting = self._waiting
        self._waiting = []
        for future in waiting:
            if not future.done():
                future.set_result(None)
