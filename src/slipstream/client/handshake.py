"""From nothing to a connection that may be used: socket, INFO, TLS, CONNECT, PONG.

CONNECT has no answer of its own. So a PING follows it, and the answer shows: PONG if the
server accepted the client, -ERR or the end of the socket if it did not
(docs/protocol/client.md#info-and-connect).
"""

import asyncio
import ssl
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client.auth import ask_identity, auth_fields
from slipstream.client.errors import ClientError, ConnectError, authorization_error, server_error
from slipstream.client.link import Link
from slipstream.client.options import ConnectOptions
from slipstream.client.servers import ServerAddress, ServerInfo, parse_info
from slipstream.errors import Error, ProtocolError
from slipstream.model.durations import to_seconds

if TYPE_CHECKING:
    from slipstream.client.subscriptions import Route
    from slipstream.client.write_buffer import WriteBuffer


class SocketLink(Link, asyncio.BufferedProtocol):
    """A link as asyncio takes it: compiled classes have no base that is not."""

    __slots__ = ()


class Handshake:
    """The peer of a link until the server has accepted the client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: ServerAddress) -> None:
        self.server = server
        self.info: asyncio.Future[ServerInfo] = loop.create_future()
        self.latest = ServerInfo()
        self.taken: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None

    def on_info(self, link: Link, text: bytes) -> None:
        """The greeting, or a later INFO that came with the PONG."""
        try:
            self.latest = parse_info(text)
        except ProtocolError as error:
            self._fail(error)
            return
        if not self.info.done():
            self.info.set_result(self.latest)

    def on_pong(self, link: Link) -> None:
        """The server accepted the client."""
        if not self.taken.done():
            self.taken.set_result(None)

    def on_error(self, link: Link, text: str) -> None:
        """The server says why it refuses the client."""
        refused = authorization_error(text)
        if refused is not None:
            self._fail(
                refused(
                    f"{self.server.url} refuses the connection: {text}. Check the user, password, "
                    "token, key or certificate that `connect` was given"
                )
            )
        else:
            self._fail(server_error(text, self.server.url))

    def on_malformed(self, link: Link, start: bytes) -> None:
        """Whatever listens there, it is no NATS server."""
        self._fail(
            ProtocolError(
                f"{self.server.url} does not answer as a NATS server does but with {start!r}. "
                "Check the port; if the server does TLS first, set tls_handshake_first"
            )
        )

    def on_route_end(self, route: "Route") -> None:
        """Nothing is subscribed to yet."""

    def on_sink_error(self, route: "Route", error: Exception) -> None:
        """Nothing is subscribed to yet."""

    def on_lost(self, link: Link, error: Exception | None) -> None:
        """The socket ended."""
        reason = f": {error}" if error else ""
        self._fail(ClientError(f"{self.server.url} closed the connection{reason}"))

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        for future in (self.info, self.taken):
            if not future.done():
                future.set_exception(self.error)
                future.exception()  # it is raised where it is awaited, if it is


def tls_context(options: ConnectOptions) -> ssl.SSLContext:
    """The context that the options describe; raises `ConnectError` if files cannot be used."""
    if isinstance(options.tls, ssl.SSLContext):
        return options.tls
    try:
        context = ssl.create_default_context(cafile=str(options.tls_ca) or None)
        if options.tls_certificate:
            key = str(options.tls_key) or None
            context.load_cert_chain(
                str(options.tls_certificate), key, options.tls_key_password or None
            )
    except (OSError, ssl.SSLError) as error:
        raise ConnectError(f"connect: the TLS files cannot be used: {error}") from error
    return context


def wants_tls(options: ConnectOptions, server: ServerAddress) -> bool:
    """Whether we insist on TLS, whatever the server says."""
    return bool(
        options.tls
        or server.tls
        or options.tls_ca
        or options.tls_certificate
        or options.tls_handshake_first
    )


def connect_frame(options: ConnectOptions, info: ServerInfo, identity: dict[str, str]) -> bytes:
    """CONNECT and the PING whose PONG says that we are taken; `identity` says who we are."""
    fields: dict[str, Any] = {
        "verbose": options.verbose,
        "pedantic": options.pedantic,
        "echo": options.echo,
        "lang": "python-slipstream",
        "version": import_module("slipstream").__version__,
        "protocol": 1,
        "headers": info.headers,
        "no_responders": info.headers,
        **identity,
    }
    if options.name:
        fields["name"] = options.name
    return b"CONNECT " + msgspec.json.encode(fields) + b"\r\nPING\r\n"


async def open_link(
    server: ServerAddress,
    options: ConnectOptions,
    write_buffer: "WriteBuffer",
    routes: "dict[int, Route]",
) -> tuple[Link, Handshake]:
    """A link to `server` that is ready for use, and what the server said of itself.

    Raises `AuthorizationError`, `ConnectError`, or another `Error` that names the server.
    """
    loop = asyncio.get_running_loop()
    handshake = Handshake(loop, server)
    link = SocketLink(handshake, write_buffer, routes)
    limit = to_seconds(options.connect_timeout, "connect_timeout")
    try:
        async with asyncio.timeout(limit):
            await _greet(loop, link, handshake, options)
    except TimeoutError:
        _abort(link)
        raise ConnectError(
            f"{server.url} did not complete the handshake within {limit} s (connect_timeout)"
        ) from None
    except Error:
        _abort(link)
        raise
    except (OSError, ssl.SSLError) as error:
        _abort(link)
        raise ConnectError(f"{server.url} cannot be reached: {error}") from error
    except BaseException:
        _abort(link)
        raise
    return link, handshake


async def _greet(
    loop: asyncio.AbstractEventLoop, link: Link, handshake: Handshake, options: ConnectOptions
) -> None:
    server = handshake.server
    insist = wants_tls(options, server)
    name = options.tls_hostname or server.tls_name or server.host
    where: dict[str, Any] = await _where(server, options)
    tls_first = options.tls_handshake_first or (server.websocket and insist)
    if tls_first:
        where.update(ssl=tls_context(options), server_hostname=name)
    if server.websocket:
        websocket = import_module("slipstream.client.websocket")
        dial = partial(loop.create_connection, **where)
        await websocket.open_websocket(loop, link, server, options, dial, tls=insist)
    else:
        protocol: Any = link
        await loop.create_connection(lambda: protocol, **where)
    info = await handshake.info
    # A WebSocket is as safe as its URL said before the server could say anything.
    if not (tls_first or server.websocket) and (insist or info.tls_required):
        if not (info.tls_required or info.tls_available):
            raise ConnectError(
                f"{server.url} offers no TLS, but TLS was asked for. Nothing was sent to it"
            )
        await _start_tls(loop, link, tls_context(options), name)
    identity = await ask_identity(options, info)
    if identity is None:
        identity = auth_fields(options, server, info)
    link.transport.write(connect_frame(options, info, identity))
    await handshake.taken


async def _where(server: ServerAddress, options: ConnectOptions) -> dict[str, Any]:
    """Where to connect to, as `create_connection` takes it."""
    if options.open_socket is not None:
        try:
            return {"sock": await options.open_socket(server.host, server.port)}
        except Exception as error:
            raise ConnectError(
                f"{server.url} cannot be reached: open_socket raised {error!r}"
            ) from error
    where: dict[str, Any] = {"host": server.host, "port": server.port}
    if options.local_address:
        where["local_addr"] = (options.local_address, 0)
    return where


async def _start_tls(
    loop: asyncio.AbstractEventLoop, link: Link, context: ssl.SSLContext, name: str
) -> None:
    plain = link.transport
    upgraded = await loop.start_tls(plain, link, context, server_hostname=name)  # type: ignore[arg-type]
    if upgraded is None:
        raise ConnectError("the connection broke during the TLS handshake")
    link.connection_made(upgraded)


def _abort(link: Link) -> None:
    if link.transport is not None:
        link.transport.abort()
