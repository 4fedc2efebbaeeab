"""The reconnect loop: keeps a connection to one of the servers, or gives up.

A `Reconnector` is the peer of the current link. When the link breaks it calls the sinks with how
much of the write buffer was handed to the socket, tries the servers in turn with growing waits,
subscribes again and lets the write buffer flow. It never drops what the write buffer keeps.
"""

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Any

from slipstream.client.errors import (
    AuthorizationError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    StaleConnectionError,
    authorization_error,
    parse_violation,
    server_error,
)
from slipstream.client.events import (
    ConnectFailed,
    Disconnected,
    ErrorEvent,
    Events,
    LameDuck,
    Reconnected,
    ServersDiscovered,
)
from slipstream.client.handshake import Handshake, open_link
from slipstream.client.link import Link
from slipstream.client.options import ConnectOptions
from slipstream.client.servers import ServerAddress, ServerInfo, ServerPool, parse_info
from slipstream.client.telemetry import NO_SPAN
from slipstream.client.write_buffer import WriteBuffer
from slipstream.errors import ConfigError, Error, ProtocolError
from slipstream.model.durations import to_seconds

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.subscriptions import Route

# A server that refuses our credentials this often in a row is not asked again.
REFUSALS_MAX = 2
# Over how long the clients of a server that is gone spread their first attempts.
SPREAD_SECONDS = 0.02
# How long `close` waits for a server to take what was written.
CLOSE_SECONDS_MAX = 2.0


class Reconnector:
    """Connects, watches the connection, reconnects until a server accepts or none is left."""

    def __init__(
        self, connection: "Connection", options: ConnectOptions, servers: list[ServerAddress]
    ) -> None:
        self._connection = connection
        self._options = options
        self._random = random.Random()
        shuffler = self._random if options.randomize_servers else None
        self.pool = ServerPool(servers, shuffler)
        self.loop = connection.loop
        self.write_buffer: WriteBuffer = connection.write_buffer
        self.events: Events = connection.events_hub
        self.link: Link | None = None
        self.server: ServerAddress | None = None
        self.info = ServerInfo()
        self.reconnects = 0
        self.in_messages = 0  # of links that have ended
        self.in_bytes = 0
        self._gone = asyncio.Event()
        self.ended = False
        self._reason: Exception | None = None  # why the link is about to break, if we know
        self._pings: deque[tuple[int, asyncio.Future[None] | None]] = deque()
        self._unanswered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    # -- connecting ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect for the first time; raises `ConnectError` if no server accepts the client."""
        rounds = 0
        while True:
            failures = await self._try_all(first=True)
            if failures is None:
                return
            if not self._options.wait_for_server or len(self.pool) == 0:
                raise _no_server(failures)
            rounds += 1
            await asyncio.sleep(self._wait_seconds(rounds))

    async def _try_all(self, *, first: bool = False) -> list[tuple[str, Exception]] | None:
        """Try each server once; None if one accepted the client, else what each said.

        A wrong option or an unreadable file is raised the `first` time: no other server makes it
        better. Later it may pass, as when credentials are being replaced.
        """
        failures: list[tuple[str, Exception]] = []
        for _ in range(len(self.pool)):
            server = self.pool.next() if first else self._next_server()
            if server is None:
                break
            try:
                link, handshake = await open_link(
                    server, self._options, self.write_buffer, self._connection.subscriptions.routes
                )
            except Error as error:
                if first and isinstance(error, ConfigError):
                    raise
                failures.append((server.url, error))
                self._note_failure(server, error)
                self.events.emit(ConnectFailed(server.url, error))
                continue
            if self._take(link, handshake):
                return None
            failures.append((server.url, handshake.error or _broke(server)))
        return failures

    def _next_server(self) -> ServerAddress | None:
        """The server to try now: the chosen one, or the next in line."""
        choose = self._options.choose_server
        if choose is None:
            return self.pool.next()
        urls = [server.url for server in self.pool.line]
        chosen = choose(urls, self.info)
        if chosen is None:
            return self.pool.next()
        server = self.pool.take(chosen)
        if server is None:
            self.events.emit(
                ErrorEvent(
                    ConfigError(
                        f"choose_server gave {chosen!r}, which is none of {', '.join(urls)}"
                    )
                )
            )
            return self.pool.next()
        return server

    def _note_failure(self, server: ServerAddress, error: Exception) -> None:
        server.failures += 1
        if isinstance(error, AuthorizationError):
            server.refusals += 1
        else:
            server.refusals = 0
        limit = self._options.max_reconnect_attempts
        refused = server.refusals >= REFUSALS_MAX and not self._options.ignore_authorization_errors
        if refused or 0 <= limit < server.failures:
            self.pool.drop(server)

    def _take(self, link: Link, handshake: Handshake) -> bool:
        """Make `link` the one that is used; False if it broke meanwhile."""
        if link.lost or handshake.error is not None:
            link.transport.abort()
            return False
        server = handshake.server
        server.failures = server.refusals = 0
        self.link = link
        self._gone.clear()
        self.server = server
        self._reason = None
        self._unanswered = 0
        link.peer = self
        self._accept_info(handshake.latest)
        if self._connection.telemetry is not None:
            self._connection.telemetry.describe_connection(
                host=server.host,
                port=server.port,
                client_id=self.info.client_id,
                name=self._options.name,
                transport="websocket" if server.websocket else "tcp",
                peer=link.transport.get_extra_info("peername"),
                local=link.transport.get_extra_info("sockname"),
            )
        lines = [
            route.subscribe_lines() for route in self._connection.subscriptions.routes.values()
        ]
        self.write_buffer.attach(link.transport, b"".join(lines))
        self._watch()
        return True

    # -- reconnecting --------------------------------------------------------------------------

    def _wait_seconds(self, rounds: int) -> float:
        """How long to wait before round `rounds` over the servers."""
        options = self._options
        if options.reconnect_delay is not None:
            return options.reconnect_delay(rounds)
        first, most = (
            to_seconds(options.reconnect_wait, "reconnect_wait"),
            to_seconds(options.reconnect_wait_max, "reconnect_wait_max"),
        )
        wait = min(first * 2.0 ** min(rounds - 1, 30), most)
        return wait * (1 + options.reconnect_jitter * self._random.random())

    async def _reconnect(self, cause: Exception) -> None:
        """Reconnect: until a server accepts the client, or none is left."""
        telemetry = self._connection.telemetry
        try:
            with NO_SPAN if telemetry is None else telemetry.reconnect():
                failures = await self._seek()
        except Exception as error:  # of a function in the options
            failures = [("", error)]
        self._task = None
        if failures is None:
            self._resume_sinks()
            return
        failure = _no_server(failures)
        failure.__cause__ = cause
        await self._connection.give_up(failure)

    async def _seek(self) -> list[tuple[str, Exception]] | None:
        """Try all servers until one accepts the client (None) or none is left (what each said)."""
        rounds = 0
        failures: list[tuple[str, Exception]] | None = []
        while len(self.pool):
            # The first round comes at once, spread a little: all clients of a server lose it
            # together.
            wait = self._wait_seconds(rounds) if rounds else self._random.random() * SPREAD_SECONDS
            await asyncio.sleep(wait)
            rounds += 1
            failures = await self._try_all()
            if failures is None:
                return None
        return failures

    def _resume_sinks(self) -> None:
        assert self.server is not None
        self.reconnects += 1
        for route in list(self._connection.subscriptions.routes.values()):
            try:
                route.sink.on_reconnect()
            except Exception as error:
                self.on_sink_error(route, error)
        self.events.emit(Reconnected(self.server.url))

    # -- the peer of the link ------------------------------------------------------------------

    def on_info(self, link: Link, text: bytes) -> None:
        """News of the server: limits, other servers, lame duck."""
        try:
            info = parse_info(text)
        except ProtocolError as error:
            self.events.emit(ErrorEvent(error))
            return
        was_lame = self.info.ldm
        self._accept_info(info)
        if info.ldm and not was_lame and self.server is not None:
            self.events.emit(LameDuck(self.server.url))

    def _accept_info(self, info: ServerInfo) -> None:
        self.info = info
        self.write_buffer.max_payload = info.max_payload
        self.write_buffer.headers_known = info.headers
        if self.server is None or self._options.ignore_discovered_servers:
            return
        try:
            new = self.pool.discover(info.connect_urls, self.server)
        except ConfigError as error:
            self.events.emit(ErrorEvent(error))
            return
        if new:
            self.events.emit(ServersDiscovered(new))

    def on_pong(self, link: Link) -> None:
        """The oldest PING is answered."""
        self._unanswered = 0
        if self._pings:
            _, future = self._pings.popleft()
            if future is not None and not future.done():
                future.set_result(None)

    def on_error(self, link: Link, text: str) -> None:
        """-ERR: a permission concerns one subscription or publish; others come before the end."""
        assert self.server is not None
        violation = parse_violation(text, self.server.url)
        if violation is not None:
            self._connection.forbid(violation)
            return
        error: Exception = server_error(text, self.server.url)
        refused = authorization_error(text)
        if refused is not None:
            error = refused(f"{self.server.url} ends the connection: {text}")
            self.server.refusals += 1
        elif text.lower().startswith("stale connection"):
            error = StaleConnectionError(f"{self.server.url} got no answer to its pings")
        self._reason = error
        self.events.emit(ErrorEvent(error))

    def on_malformed(self, link: Link, start: bytes) -> None:
        """Nothing more can be read: break the connection, and try another one."""
        assert self.server is not None
        self._break(
            ProtocolError(
                f"{self.server.url} sent what no NATS server sends; the read begins with {start!r}"
            )
        )

    def on_route_end(self, route: "Route") -> None:
        """A subscription got all that it asked for."""
        self._connection.subscriptions.on_last_message(route)

    def on_sink_error(self, route: "Route", error: Exception) -> None:
        """A sink raised; the others go on."""
        self.events.emit(ErrorEvent(error))

    def on_lost(self, link: Link, error: Exception | None) -> None:
        """The socket has ended."""
        if link is not self.link:
            return
        assert self.server is not None
        self.link = None
        self._gone.set()
        self.in_messages += link.messages
        self.in_bytes += link.payload_bytes
        self.write_buffer.detach()
        self._stop_watching()
        if self.ended:
            return
        cause = self._reason or error or _broke(self.server)
        self._fail_pings()
        for route in list(self._connection.subscriptions.routes.values()):
            try:
                route.sink.on_disconnect(self.write_buffer.handed)
            except Exception as raised:
                self.on_sink_error(route, raised)
        self.events.emit(Disconnected(self.server.url, cause))
        self.pool.prefer(self.server)
        if self._options.reconnect:
            self._task = self.loop.create_task(self._reconnect(cause), name="slipstream: reconnect")
        else:
            self._task = self.loop.create_task(self._connection.give_up(cause))

    def _break(self, reason: Exception) -> None:
        """End the link ourselves."""
        self._reason = reason
        self.write_buffer.detach()
        if self.link is not None:
            self.link.transport.abort()

    def leave(self) -> None:
        """End the link because the owner asks for another one."""
        self.write_buffer.flush()
        self._break(ConnectionLostError(f"{self._connection.server_url} was left on request"))

    # -- pings ---------------------------------------------------------------------------------

    def ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        """Send PING; `future` is done when it is answered."""
        self._pings.append((self.write_buffer.put_line(b"PING\r\n"), future))

    def _fail_pings(self) -> None:
        """Fail the PINGs that were sent, which nobody answers; send the others on the next link."""
        kept: deque[tuple[int, asyncio.Future[None] | None]] = deque()
        for position, future in self._pings:
            if position > self.write_buffer.handed:
                kept.append((position, future))
            elif future is not None and not future.done():
                future.set_exception(
                    ConnectionLostError(
                        "flush: the connection broke before the server answered; what was "
                        "published before may or may not have arrived"
                    )
                )
        self._pings = kept

    def _watch(self) -> None:
        """Begin to ping at the interval."""
        self._stop_watching()
        self._timer = self.loop.call_later(
            to_seconds(self._options.ping_interval, "ping_interval"), self._tick
        )

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        if self.link is None or self.server is None:
            return
        if self.link.active:  # a server that talks is not stale, even if its PONG is late
            self.link.active = False
            self._unanswered = 0
        if self._unanswered >= self._options.max_pings_outstanding:
            self._break(
                StaleConnectionError(
                    f"{self.server.url} left {self._unanswered} pings unanswered; the connection "
                    "is given up as stale"
                )
            )
            return
        self._unanswered += 1
        self.ping()
        self._watch()

    # -- the end -------------------------------------------------------------------------------

    def abandon(self) -> "list[asyncio.Task[None]]":
        """End everything; the tasks that are left to wait for."""
        self.ended = True
        self._stop_watching()
        for _, future in self._pings:
            if future is not None and not future.done():
                future.set_exception(
                    ConnectionClosedError("flush: the connection was closed meanwhile")
                )
        self._pings.clear()
        if self.link is not None:
            self.link.transport.close()
        task, self._task = self._task, None
        if task is None or task is asyncio.current_task():
            return []
        task.cancel()
        return [task]

    async def wait_lost(self) -> None:
        """Give what was written a moment to leave; then end the socket by force.

        A cancellation here ends the wait.
        """
        try:
            if self.link is not None:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await self._gone.wait()
        except TimeoutError:
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        """End the socket by force, if there is one."""
        if self.link is not None:
            self.link.transport.abort()


def _broke(server: ServerAddress) -> Exception:
    return ConnectionLostError(f"{server.url} closed the connection")


def _no_server(failures: list[tuple[str, Exception]]) -> ConnectError:
    """One error out of what each server said."""
    if failures and all(isinstance(error, AuthorizationError) for _, error in failures):
        return AuthorizationError(str(failures[0][1]), failures)
    said: Any = "; ".join(f"{error}" for _, error in failures) or "no server is left to try"
    return ConnectError(f"connect: no server took the connection: {said}", failures)
