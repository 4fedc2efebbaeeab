"""The sockets of leaf node connections: those that were accepted, and those that were dialled.

A connection that was dialled waits for INFO, which says whether TLS has to begin before anything
else is said.
"""

import asyncio
import json
import ssl
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream.engine.leaf.handshake import Remote
from slipstream.engine.leaf.session import Watcher
from slipstream.errors import ConfigError, CorruptionError
from slipstream.model.durations import SECOND
from slipstream.server.client_log import ClientLog
from slipstream.server.connection import Connection
from slipstream.server.options import LeafTlsOptions
from slipstream.server.tls import TlsLayer
from slipstream.server.tls_connection import PLAIN, SECURE, SHAKING_HANDS, WAITING, TlsConnection
from slipstream.wire.leaf_frames import LINE_MAX_BYTES

if TYPE_CHECKING:
    from slipstream.engine.leaf.session import LeafSession
    from slipstream.server.runtime import Runtime


_SHOWN_MAX = 256  # characters


class LeafLog(ClientLog):
    """What the log says of one link; it is worth a line that it came and went."""

    __slots__ = ()
    number = "lid"

    def label(self, known: bool = True) -> str:
        """Which connection it is."""
        return super().label(known=False)

    def created(self) -> None:
        """The link is there; one that was dialled is shown with the account that it is for."""
        session: Any = self._connection.session
        whose = f" for account: {session.account.name}" if session.remote is not None else ""
        self.info(f"Leafnode connection created{whose}")

    def info(self, text: str) -> None:
        """Something about it is worth knowing."""
        self._log.info(f"{self.label()} - {text}")

    def closed(self) -> None:
        """The link has ended, which is logged once."""
        session: Any = self._connection.session
        if session is None or self._is_closed:
            return
        self._is_closed = True
        if session.close_reason == "Authentication Failure":
            self.error("authentication error")
        whose = f" - Remote: {_printable(session.server)}" if session.server else ""
        self.info(f"Leafnode connection closed: {session.close_reason}{whose}")


class LeafWatcher(Watcher):
    """Puts into the log what becomes of a link."""

    def __init__(self, log: LeafLog) -> None:
        self._log = log

    def linked(self, session: "LeafSession") -> None:
        domain, other = session.engine.options.domain, _printable(session.domain)
        if domain != other:
            self._log.info(f'JetStream using domains: local "{domain}", remote "{other}"')

    def complained(self, session: "LeafSession", text: str, is_own: bool) -> None:
        self._log.error(text if is_own else f"Leafnode Error '{_printable(text)}'")

    def discovered(self, urls: list[str]) -> None:
        """Only who dials has a use for them."""

    def wait(self, delay: int) -> None:
        """Only who dials can."""


def _open(connection: Connection, remote: Remote | None, watcher: LeafWatcher) -> None:
    runtime = connection.runtime
    runtime.turns.enter()
    leaves = runtime.engine.leaves
    connection.session = leaves.open(connection, remote, watcher, **connection.facts)
    connection.log.created()
    runtime.turns.leave()


class LinkConnection(Connection):
    """A link, whose bytes may be packed once the servers have agreed on that.

    What comes in is unpacked a block at a time, and only while the session acts on what it has: a
    few bytes may stand for many.
    """

    __slots__ = ()
    session: Any  # a LeafSession

    def make_log(self) -> LeafLog:
        """Lines of a link."""
        return LeafLog(self.runtime.log, self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the network, without TLS."""
        session = self.session
        if session is not None and session.packing is not None:
            session.packing.feed(data)
        else:
            super().data_received(data)
            if session is None or session.packing is None:
                return
        self._unpack()

    def _unpack(self) -> None:
        """Have the session act on what came in, until it is to wait."""
        session = self.session
        try:
            while not session.stopped_by and not self._ending:
                block = session.packing.next_block()
                if not block:
                    return
                super().data_received(block)
        except CorruptionError:
            self.log.error("what the other server sent is not S2, or damaged")
            self.runtime.turn(lambda: session.fail(b"", "Read Error"))

    def resume_reading(self) -> None:
        """Go on with what came in, and read again."""
        if self.session.packing is None:
            super().resume_reading()
        else:
            self.runtime.loop.call_soon(self._unpack_and_read)

    def _unpack_and_read(self) -> None:
        self._unpack()
        if not self.session.stopped_by:
            super().resume_reading()

    def write(self, data: bytes) -> None:
        """Send, now or when the other server takes it."""
        if self.session is None or self.session.packing is None:
            super().write(data)
            return
        if self.log.tracing:
            self.log.sent(data)
        self.put(self.session.packing.pack(data))

    def write_parts(self, parts: list[bytes]) -> None:
        """Send several pieces in order."""
        if self.session is None or self.session.packing is None:
            super().write_parts(parts)
        else:
            self.write(b"".join(parts))


class LeafConnection(LinkConnection):
    """A leaf node has connected, without TLS."""

    __slots__ = ()

    def open_session(self) -> None:
        """The session begins, with INFO."""
        _open(self, None, LeafWatcher(self.make_log()))


class LeafTlsConnection(TlsConnection, LinkConnection):
    """A leaf node has connected, with TLS."""

    __slots__ = ()

    def open_session(self) -> None:
        """The session begins, with INFO."""
        _open(self, None, LeafWatcher(self.make_log()))

    def expect_connect(self) -> None:
        """The time to authenticate begins."""
        session: Any = self.session
        if session is not None:
            self.runtime.engine.leaves.expect_connect(session)


class HubTls:
    """TLS towards a hub; `options` None is what holds where only the hub asks for it."""

    def __init__(self, options: LeafTlsOptions | None) -> None:
        self.options = options or LeafTlsOptions()
        self.is_wanted = options is not None
        self.timeout_seconds = self.options.timeout / SECOND

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Made when it is needed. Raises `ConfigError` if a file cannot be used."""
        options = self.options
        try:
            context = ssl.create_default_context(cafile=options.ca_file or None)
            if options.cert_file:
                context.load_cert_chain(options.cert_file, options.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"leafnodes: remotes: tls: a file cannot be used: {error}; give PEM files"
            ) from error
        if options.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def is_pinned(self, certificate: bytes | None) -> bool:
        """No keys are pinned."""
        return True


class HubConnection(TlsConnection, LinkConnection):
    """A connection to a hub at `host`. `ended` is set once it is over."""

    __slots__ = ("_first", "_host", "_hub_tls", "_remote", "_watcher", "ended")

    def __init__(
        self, runtime: "Runtime", host: str, tls: HubTls, remote: Remote, watcher: Any
    ) -> None:
        Connection.__init__(self, runtime)
        self._host = host
        self._hub_tls = tls
        self._remote = remote
        self._watcher = watcher  # from the log of this connection to its watcher
        self._first = b""  # what was said before TLS
        self._state = WAITING
        self._held: list[bytes] = []
        self._in_the_clear = False
        self._timeout: asyncio.TimerHandle | None = None
        self._fallback: asyncio.TimerHandle | None = None
        self.ended = runtime.loop.create_future()

    def connection_made(self, transport: Any) -> None:
        """The hub speaks first, unless TLS does."""
        self.connected(transport)
        _open(self, self._remote, self._watcher(self.log))
        if self._hub_tls.is_wanted and self._hub_tls.options.handshake_first:
            self._start_tls()

    def data_received(self, data: bytes) -> None:
        """Bytes from the network."""
        if self._state == WAITING and not self._ending:
            self._take_first(data)
        else:
            super().data_received(data)

    def _take_first(self, data: bytes) -> None:
        """INFO, which says whether TLS comes next."""
        self._first += data
        line, found, _ = self._first.partition(b"\n")
        if not found:
            if len(self._first) > LINE_MAX_BYTES:
                self.abort()
            return
        if self._hub_tls.is_wanted or _asks_for_tls(line):
            self._start_tls()
            return
        self._state = PLAIN
        first, self._first = self._first, b""
        super().data_received(first)

    def _start_tls(self) -> None:
        try:
            self._layer = TlsLayer(self._hub_tls.context, self._host)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._tls: Any = self._hub_tls
        self._state = SHAKING_HANDS
        loop = self.runtime.loop
        self._timeout = loop.call_later(self._hub_tls.timeout_seconds, self._timed_out)
        self._begin(b"")

    def _secured(self) -> None:
        """TLS is up: now what the hub said before it counts."""
        super()._secured()
        if self._state == SECURE and self._first:
            first, self._first = self._first, b""
            LinkConnection.data_received(self, first)

    def expect_connect(self) -> None:
        """The hub has the time that it was given when it was dialled."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The hub has gone."""
        super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(None)


def _printable(text: str) -> str:
    """What another server says, as a line of the log may have it."""
    shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return "".join(char if char.isprintable() else "?" for char in shown)


def _asks_for_tls(line: bytes) -> bool:
    """Whether an INFO line says that TLS has to begin."""
    try:
        said = json.loads(line[len(b"INFO ") :])
    except (ValueError, RecursionError):
        return False  # the session will say what is wrong with it
    return isinstance(said, dict) and said.get("tls_required") is True
