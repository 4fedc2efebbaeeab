"""NATS over WebSocket: a transport between the socket and the link
(docs/protocol/client.md#websocket).

The bytes are those of a plain connection, cut into binary frames whose edges mean nothing. What the
link writes leaves as masked frames; what comes in frames, whole, fragmented or compressed, reaches
the link as if its own socket had read it. The handshake, the frames and the compression are the
sans-I/O protocol of the package `websockets`, which the extra ``slipstream[websocket]`` installs;
nothing here is imported before somebody connects to a ``ws://`` or ``wss://`` URL.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from slipstream.client.errors import ClientError, ConnectError
from slipstream.client.options import ConnectOptions
from slipstream.client.servers import ServerAddress
from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.frames import Frame

    from slipstream.client.link import Link

logger = logging.getLogger("slipstream.client.websocket")

# The largest frame that is taken: a server sends all that waits for a client as one.
FRAME_BYTES_MAX = 256 * 1024 * 1024
# A server inflates a message only up to its max_payload; the edges of messages mean nothing.
COMPRESSED_BYTES_MAX = 64 * 1024


def new_protocol(server: ServerAddress, options: ConnectOptions, *, tls: bool) -> "ClientProtocol":
    """The client's side of a WebSocket, its request not sent yet.

    Raises `ConfigError` if the package `websockets` is missing.
    """
    try:
        from websockets.client import ClientProtocol
        from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
        from websockets.uri import parse_uri
    except ImportError as error:
        raise ConfigError(
            f"{server.url}: connecting over WebSocket needs the package websockets ({error}). "
            'Install it with: pip install "slipstream[websocket]"'
        ) from error
    # Servers keep no context from one message to the next, and demand the same of clients.
    deflate = ClientPerMessageDeflateFactory(
        server_no_context_takeover=True, client_no_context_takeover=True
    )
    return ClientProtocol(
        parse_uri(f"{'wss' if tls else 'ws'}://{server.netloc}{server.path or '/'}"),
        extensions=[deflate] if options.websocket_compression else None,
        max_size=FRAME_BYTES_MAX,
        logger=logger,
    )


def extra_headers(options: ConnectOptions) -> Mapping[str, str]:
    """What the options add to the opening request; raises `ConfigError` if a function fails."""
    given = options.websocket_headers
    try:
        return given() if callable(given) else given
    except Exception as error:
        raise ConfigError(
            f"connect: the function given as websocket_headers raised: {error}"
        ) from error


class WebSocketTransport(asyncio.Transport):
    """What a link takes for its socket: writes become frames of the socket below."""

    def __init__(self, socket: asyncio.Transport, frames: "ClientProtocol", link: "Link") -> None:
        super().__init__()
        self._socket = socket
        self._frames = frames
        self._write_buffer = link.write_buffer
        self._compresses = bool(frames.extensions)
        self._open_state = frames.state

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send `data`; once the end has begun it is dropped, as on any closed socket."""
        if self._frames.state is not self._open_state or self._socket.is_closing():
            return
        if self._compresses:
            self._write_compressed(data)
        else:
            self._frames.send_binary(data)
        self.send_frames()

    def _write_compressed(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        step = min(COMPRESSED_BYTES_MAX, self._write_buffer.max_payload)
        view = memoryview(data)
        for start in range(0, len(view), step):
            self._frames.send_binary(view[start : start + step])

    def writelines(self, pieces: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        """Send all `pieces`, each as frames of its own."""
        for piece in pieces:
            self.write(piece)

    def send_frames(self) -> None:
        """Give the socket what the protocol has to send; b"" asks for the end of the socket."""
        for data in self._frames.data_to_send():
            if data:
                self._socket.write(data)
            else:
                self._socket.close()

    def close(self) -> None:
        """Say goodbye, and close once everything was sent."""
        if self._frames.state is self._open_state and not self._socket.is_closing():
            self._frames.send_close(1000)
            self.send_frames()
        self._socket.close()

    def abort(self) -> None:
        """End it now."""
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._socket.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the link has to pause: by what waits in the socket below."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait in the socket below."""
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """What is known of the socket below."""
        return self._socket.get_extra_info(name, default)


class WebSocketProtocol(asyncio.Protocol):
    """The protocol of the socket: opens the WebSocket, then feeds the link.

    `opened` is done when the server has agreed; it raises `ConnectError` if it has not.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: "Link",
        server: ServerAddress,
        frames: "ClientProtocol",
        headers: Mapping[str, str],
    ) -> None:
        self.opened: asyncio.Future[None] = loop.create_future()
        self._link = link
        self._server = server
        self._frames = frames
        self._headers = headers
        self._socket: asyncio.Transport | None = None
        self._transport: WebSocketTransport | None = None
        self._reason: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: ask for the upgrade."""
        socket = self._socket = cast("asyncio.Transport", transport)
        request = self._frames.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self._frames.send_request(request)
        for data in self._frames.data_to_send():
            socket.write(data)

    def data_received(self, data: bytes) -> None:
        """Bytes of the handshake or of frames."""
        assert self._socket is not None
        frames = self._frames
        frames.receive_data(data)
        if self._transport is None and not self._open():
            return
        assert self._transport is not None
        events = frames.events_received()
        # Binary and text frames, and what continues them; others have an opcode from 8 on, or none.
        bodies = [cast("Frame", e).data for e in events if getattr(e, "opcode", 8) < 8]
        if frames.close_rcvd is not None:
            self._reason = self._reason or self._goodbye(frames.close_rcvd)
        elif frames.parser_exc is not None:
            self._reason = self._reason or ClientError(
                f"{self._server.url} sent what is no WebSocket frame: {frames.parser_exc}"
            )
        self._transport.send_frames()  # answers to pings, and to the end
        if bodies:
            self._feed(bodies[0] if len(bodies) == 1 else b"".join(bodies))
        if frames.close_expected():
            self._socket.close()

    def _open(self) -> bool:
        """Look whether the server has agreed."""
        assert self._socket is not None
        refusal = self._frames.handshake_exc
        if refusal is not None:
            self._fail(refusal)
            self._socket.abort()
            return False
        if self._frames.state.name == "CONNECTING":
            return False  # more of the answer is to come
        self._transport = WebSocketTransport(self._socket, self._frames, self._link)
        self._link.connection_made(self._transport)
        if not self.opened.done():
            self.opened.set_result(None)
        return True

    def _feed(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Give the link what it would have read."""
        link = self._link
        view = memoryview(data)
        while len(view):
            room = memoryview(link.get_buffer(-1))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            link.buffer_updated(count)
            view = view[count:]

    def _goodbye(self, close: Any) -> Exception:
        said = f" ({close.reason})" if close.reason else ""
        return ClientError(f"{self._server.url} closed the WebSocket with code {close.code}{said}")

    def _fail(self, why: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(
                ConnectError(
                    f"{self._server.url} does not open a WebSocket: {why}. Check the port and the "
                    "path; servers listen for WebSocket clients on a port of its own"
                )
            )
            self.opened.exception()  # it is raised where it is awaited, if it is

    def eof_received(self) -> None:
        """The server has said its last; the socket closes."""
        self._frames.receive_eof()
        if self._transport is None:
            self._open()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket has ended."""
        if self._transport is not None:
            self._link.connection_lost(self._reason or error)
        else:
            self._fail(error or EOFError("the connection was closed"))

    def pause_writing(self) -> None:
        """The server takes less than it is sent."""
        if self._transport is not None:
            self._link.pause_writing()

    def resume_writing(self) -> None:
        """The server has caught up with what it was sent."""
        if self._transport is not None:
            self._link.resume_writing()


async def open_websocket(
    loop: asyncio.AbstractEventLoop,
    link: "Link",
    server: ServerAddress,
    options: ConnectOptions,
    dial: Callable[[Callable[[], asyncio.BaseProtocol]], Any],
    *,
    tls: bool,
) -> None:
    """Connect `link` to `server` over a WebSocket; `dial` makes the socket for a protocol.

    Raises `ConnectError`, `ConfigError` and what `dial` raises.
    """
    frames = new_protocol(server, options, tls=tls)
    protocol = WebSocketProtocol(loop, link, server, frames, extra_headers(options))
    socket, _ = await dial(lambda: protocol)
    try:
        await protocol.opened
    except BaseException:
        socket.abort()
        raise
