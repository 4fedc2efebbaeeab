"""One connection between two servers of a group: TLS, handshake, frames, queues.

Until the other end has proved who it is, a connection has a time limit and takes a few KiB. After
that messages are queued for it, up to a bound. To a server that reads too slowly the oldest entries
are dropped first; the group's state machines send again what was lost. Messages without entries,
such as heartbeats and answers, go before those with entries, so that a lease does not wait for
megabytes. Pieces of checkpoints, in their order, leave when nothing else waits; who sends them
bounds how many wait.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import msgspec

from slipstream.errors import ProtocolError
from slipstream.group import Message, decode
from slipstream.group.messages import (
    Append,
    CheckpointBegin,
    CheckpointEnd,
    CheckpointPiece,
    Fetched,
)
from slipstream.server.group.frames import FrameReader, FrameWriter
from slipstream.server.group.handshake import Greeting, Handshake, StrangerError
from slipstream.server.tls import TlsLayer, spki_sha256

PAYLOAD_MAX = 64 * 1024 * 1024  # of a frame
ENTRIES_QUEUED_MAX = 16 * 1024 * 1024  # bytes of messages with entries that wait for one server
OTHERS_QUEUED_MAX = 1024  # messages without entries that wait for one server
_WRITE_BUFFER = 256 * 1024  # bytes that the socket has not taken, before messages wait here
_PIECE = 64 * 1024  # bytes that are gathered for one write ...
_JOINED_MAX = 4 * 1024  # ... and copied for it
_UNPROVED_MAX = 128 * 1024  # bytes before the proof: certificates and greetings are less

_OF_CHECKPOINTS = (CheckpointBegin, CheckpointPiece, CheckpointEnd)
_WITH_ENTRIES = (Append, Fetched)


class LinkContexts(msgspec.Struct, frozen=True):
    """TLS: both sides show a certificate."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    pinned: frozenset[str] = frozenset()  # SHA-256 of the keys that are good; empty: all are


class LinkOwner(Protocol):
    """Who a link belongs to."""

    def proved(self, link: "Link", greeting: Greeting) -> bool:
        """The other end is who it says; False if this connection is not wanted."""

    def received(self, link: "Link", messages: list[Message]) -> None:
        """Messages have come."""

    def lost(self, link: "Link", why: str) -> None:
        """The connection has ended; `why` is "" if that needs no saying."""


class Link(asyncio.Protocol):
    """See the module's text. `host` is who was dialled; "" for a connection that was accepted."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: LinkOwner,
        begin: Callable[[], Handshake],
        timeout: float,
        contexts: LinkContexts | None,
        host: str,
    ) -> None:
        self.name = ""  # of the other server, once it is proved
        self.greeted_as = ""  # this server, by the other one
        self.is_refused = False  # the other server is not one to talk to
        self.address = ""
        self.heard_at = self.said_at = loop.time()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.dropped = 0  # messages
        self.is_dialled = bool(host)
        self._loop = loop
        self._owner = owner
        self._begin = begin  # once the other process is there: what is said has to be true then
        self._handshake: Handshake | None = None
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._layer: TlsLayer | None = None
        self._pinned: frozenset[str] = frozenset()
        if contexts is not None:
            context = contexts.dialling if host else contexts.accepting
            self._layer, self._pinned = TlsLayer(context, host or None), contexts.pinned
        self._is_secure = self._layer is None  # whether TLS is ready, where it is wanted
        self._transport: asyncio.Transport | None = None
        self._reader: FrameReader | None = None
        self._writer: FrameWriter | None = None
        self._unproved = 0  # bytes that came before the proof
        self._is_full = False  # the socket takes no more
        self._entries: deque[bytes] = deque()
        self._entries_size = 0
        self._others: deque[bytes] = deque()
        self._pieces: deque[bytes] = deque()
        self.why = ""  # it has ended

    # -- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one, too
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "a closed socket"
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._timer = self._loop.call_later(
            self._timeout, self.close, f"it has not proved who it is within {self._timeout:g} s"
        )
        self._handshake = self._begin()
        if self._layer is None:
            self._write(self._handshake.take())
        elif self.is_dialled:
            self._secure(b"")

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._entries.clear()
        self._others.clear()
        self._pieces.clear()
        self._transport = None
        if not self.ended.done():
            self.why = self.why or (str(error) if error else "the other end has closed it")
            self.ended.set_result(None)
            self._owner.lost(self, self.why)

    def close(self, why: str) -> None:
        """End it now; what waits is dropped."""
        if self._transport is not None:
            self.why = self.why or why
            self._transport.abort()

    def leave(self) -> None:
        """End it once what was said has left; nobody has done anything wrong."""
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_full = False
        self.flush()

    # -- what comes ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._transport is None or self._transport.is_closing():
            return
        self.heard_at = self._loop.time()
        try:
            if self._layer is not None:
                data = self._layer.decrypt(data) if self._is_secure else self._secure(data)
                self._send(self._layer.outgoing())
                if self._layer.ended:
                    self.close("the other end has closed it")
                    return
            if self._reader is None:
                data = self._greet(data)
            if self._reader is not None:
                self._take(self._reader.feed(data))
        except ssl.SSLError as error:
            self.close(f"TLS: {error}")
        except (StrangerError, ProtocolError) as error:
            self.close(str(error))

    def _secure(self, data: bytes) -> bytes:
        """Go on with the handshake of TLS; what was said after it."""
        assert self._layer is not None
        assert self._handshake is not None
        self._count(data)
        self._is_secure = self._layer.handshake(data)
        self._send(self._layer.outgoing())
        if not self._is_secure:
            return b""
        certificate = self._layer.peer_certificate()
        if not certificate:
            raise StrangerError("it has shown no certificate")
        if self._pinned and spki_sha256(certificate) not in self._pinned:
            raise StrangerError("its certificate is not one of pinned_certs")
        self._write(self._handshake.take())
        return self._layer.decrypt(b"")

    def _count(self, data: bytes) -> None:
        self._unproved += len(data)
        if self._unproved > _UNPROVED_MAX:
            raise StrangerError("it says too much before it has proved who it is")

    def _greet(self, data: bytes) -> bytes:
        """Go on with the handshake; what came after it."""
        if self._layer is None:
            self._count(data)
        handshake = self._handshake
        assert handshake is not None
        handshake.feed(data)
        self._write(handshake.take())
        if handshake.peer is None:
            return b""
        if self._timer is not None:
            self._timer.cancel()
        sending, receiving = handshake.keys()
        self.name = handshake.peer.name
        self._writer = FrameWriter(sending)
        self._reader = FrameReader(receiving, PAYLOAD_MAX)
        if not self._owner.proved(self, handshake.peer):
            self._reader = self._writer = None
            self.leave()
            return b""
        return handshake.rest

    def _take(self, payloads: list[memoryview]) -> None:
        try:
            messages = [decode(payload) for payload in payloads if payload]
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a message cannot be read: {error}") from error
        if messages:
            self._owner.received(self, messages)

    # -- what leaves -----------------------------------------------------------------------------

    def send(self, message: Message, payload: bytes) -> None:
        """Queue a message, which is `payload` as bytes; it leaves with `flush`, or is dropped."""
        if isinstance(message, _OF_CHECKPOINTS):
            self._pieces.append(payload)
            return
        if not isinstance(message, _WITH_ENTRIES):
            self._others.append(payload)
            if len(self._others) > OTHERS_QUEUED_MAX:
                self._others.popleft()
                self.dropped += 1
            return
        self._entries.append(payload)
        self._entries_size += len(payload)
        while self._entries_size > ENTRIES_QUEUED_MAX and len(self._entries) > 1:
            self._entries_size -= len(self._entries.popleft())
            self.dropped += 1

    def flush(self) -> None:
        """Write what the socket takes of what waits."""
        if self._writer is None:
            return
        while self._is_waiting and not self._is_full and self._transport is not None:
            parts: list[bytes] = []
            size = 0
            while self._is_waiting and size < _PIECE:
                if self._others:
                    payload = self._others.popleft()
                elif not self._entries:
                    payload = self._pieces.popleft()
                else:
                    payload = self._entries.popleft()
                    self._entries_size -= len(payload)
                parts += (self._writer.head(payload), payload)
                size += len(payload)
            if size > _JOINED_MAX and self._layer is None:
                self.said_at = self._loop.time()
                self._transport.writelines(parts)
            else:
                self._write(b"".join(parts))

    @property
    def _is_waiting(self) -> bool:
        return bool(self._others or self._entries or self._pieces)

    def say_alive(self) -> None:
        """Send an empty frame."""
        if self._writer is not None and not self._is_full:
            self._write(self._writer.frame(b""))

    def _write(self, data: bytes) -> None:
        if data:
            self._send(self._layer.encrypt(data) if self._layer is not None else data)

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None:
            self.said_at = self._loop.time()
            self._transport.write(data)
