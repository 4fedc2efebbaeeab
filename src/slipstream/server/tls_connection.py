"""A client's connection where TLS is on: when it begins, and what happens if it does not.

Usually INFO goes out in the clear and the client begins TLS. With `handshake_first` nothing goes
out before TLS is up; with a fallback delay only clients that begin at once are served so. With
`allow_non_tls` the first byte that comes in tells what the client wants.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from slipstream.server.connection import Connection
from slipstream.server.tls import Tls, TlsLayer

if TYPE_CHECKING:
    from slipstream.server.runtime import Runtime

_HANDSHAKE = 0x16  # the first byte of every TLS client
# What a connection is doing.
WAITING, SHAKING_HANDS, SECURE, PLAIN = range(4)


class TlsConnection(Connection):
    """A connection that is not readable for others."""

    __slots__ = (
        "_fallback",
        "_held",
        "_in_the_clear",
        "_info_waits",
        "_layer",
        "_state",
        "_timeout",
        "_tls",
    )

    def __init__(self, runtime: "Runtime", tls: Tls) -> None:
        super().__init__(runtime)
        self._tls = tls
        self._layer = TlsLayer(tls.context)
        self._state = WAITING
        self._held: list[bytes] = []  # to be sent once TLS is up
        self._in_the_clear = False  # INFO is on its way
        self._info_waits = False  # until the leader of a group may answer; then it is the next
        self._timeout: asyncio.TimerHandle | None = None
        self._fallback: asyncio.TimerHandle | None = None

    # -- the beginning -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Greet the client, or wait for it to begin."""
        self.connected(transport)
        loop, tls = self.runtime.loop, self._tls
        self._timeout = loop.call_later(tls.timeout_seconds, self._timed_out)
        if not tls.options.handshake_first:
            self._greet()
        elif tls.fallback_seconds:
            self._fallback = loop.call_later(tls.fallback_seconds, self._greet)

    def _greet(self) -> None:
        """INFO in the clear; what follows is held until TLS is up."""
        self._fallback = None
        self._in_the_clear = True
        self.open_session()
        self._in_the_clear = False
        session = self.session
        self._info_waits = session is not None and session.out.length() > 0
        if session is not None and session.timer is not None:
            session.timer.cancel()  # the time to authenticate begins once TLS is up

    def greet_again(self) -> None:
        """Send INFO once more, in the clear; with `handshake_first` it has not been sent at all."""
        self._held.clear()
        self._in_the_clear = True
        super().greet_again()
        self._in_the_clear = False
        session = self.session
        self._info_waits = session is not None and session.out.length() > 0

    def data_received(self, data: bytes) -> None:
        """Bytes from the network."""
        if self._state == PLAIN:
            super().data_received(data)
        elif self._state == SECURE:
            self._receive(data)
        elif not self._ending:
            self._begin(data)

    def _begin(self, data: bytes) -> None:
        """The client's first bytes, and those of the handshake."""
        if self._fallback is not None:
            self._fallback.cancel()
            self._fallback = None
        if self._state == WAITING:
            if self.runtime.allow_non_tls and data[0] != _HANDSHAKE:
                self._go_on_plain()
                super().data_received(data)
                return
            self._state = SHAKING_HANDS
        try:
            done = self._layer.handshake(data)
        except ssl.SSLError as error:
            self._put_layer_output()
            self._fail(error.reason or str(error))
            return
        self._put_layer_output()
        if done:
            self._secured()

    def _secured(self) -> None:
        """TLS is up: only now does the time to authenticate begin."""
        self._cancel_timeout()
        if not self._tls.is_pinned(self._layer.peer_certificate()):
            self._fail("certificate not pinned")
            return
        self._state = SECURE
        facts = self._layer.facts()
        facts["tls_first"] = self.session is None
        self.facts.update(facts)
        if self.session is None:
            self.open_session()
        else:
            self.session.facts.update(facts)
            self.runtime.turns.enter()
            self.expect_connect()
            self._put_held()
            self.runtime.turns.leave()
        self._receive(b"")

    def expect_connect(self) -> None:
        """The time to authenticate begins."""
        if self.session is not None:
            self.runtime.engine.expect_connect(self.session)

    def _go_on_plain(self) -> None:
        self._cancel_timeout()
        self._state = PLAIN
        if self.session is None:
            self.open_session()
        else:
            self.runtime.turns.enter()
            self.expect_connect()
            self._put_held()
            self.runtime.turns.leave()

    def _put_held(self) -> None:
        held = self._held
        self._held = []
        for data in held:
            self.put(data)
        if self.session is not None:
            self.session.drained()

    # -- the end of the beginning --------------------------------------------------------------

    def _timed_out(self) -> None:
        self._timeout = None
        if self.runtime.allow_non_tls and self._state == WAITING:
            self._go_on_plain()
        else:
            self._fail("timeout")

    def _fail(self, what: str) -> None:
        """There will be no TLS with this client."""
        self._cancel_timeout()
        self.log.error(f"TLS handshake error: {what}")
        if self.session is not None:
            self.runtime.turns.enter()
            self.session.gone("TLS Handshake Failure")
            self.runtime.turns.leave()
        self._ending = True
        self._transport.close()  # an alert may be on its way

    def _cancel_timeout(self) -> None:
        for handle in (self._timeout, self._fallback):
            if handle is not None:
                handle.cancel()
        self._timeout = self._fallback = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self._state == SHAKING_HANDS and not self._ending:
            self.log.error("TLS handshake error: EOF")
        self._cancel_timeout()
        super().connection_lost(exc)

    def reason_of_loss(self, exc: Exception | None) -> str:
        """What monitoring says of a connection that the client ended."""
        if self._state == SHAKING_HANDS:
            return "TLS Handshake Failure"
        return super().reason_of_loss(exc)

    # -- while it is up ------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        layer = self._layer
        try:
            plain = layer.decrypt(data)
        except ssl.SSLError as error:
            self._put_layer_output()
            if not self._ending:
                self.log.error(f"TLS error: {error.reason or error}")
                self._transport.close()
            return
        self._put_layer_output()
        if plain:
            super().data_received(plain)
        if layer.ended and not self._ending:
            self._transport.close()

    def _put_layer_output(self) -> None:
        output = self._layer.outgoing()
        if output:
            super().put(output)

    def put(self, data: bytes) -> None:
        """Send as the state of things demands."""
        if self._in_the_clear or self._state == PLAIN:
            super().put(data)
        elif self._state == SECURE:
            super().put(self._layer.encrypt(data))
        elif self._info_waits:
            self._info_waits = False
            super().put(data)
        else:
            self._held.append(data)

    def put_parts(self, parts: list[bytes]) -> None:
        """Send as the state of things demands."""
        for part in parts:
            self.put(part)

    def pending(self) -> int:
        """Bytes that the client has not taken yet."""
        return super().pending() + sum(map(len, self._held))

    def close(self) -> None:
        """Send what is pending, say goodbye, close."""
        if self._state == SECURE and not self._ending:
            super().put(self._layer.close_notify())
        super().close()
