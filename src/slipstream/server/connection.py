"""A client's TCP connection: bytes to its session, bytes from it.

One read is one turn: the session acts on everything that the read brought, then everybody whom that
concerned is written to once.
"""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.engine.session import ClientSession
    from slipstream.server.runtime import Runtime

# How long a publisher rests when somebody whom it writes to does not keep up. A slow reader thus
# slows its publishers before it is cut off.
STALL_SECONDS = 0.005


class Connection(asyncio.Protocol):
    """One accepted connection; the engine's `Transport`."""

    __slots__ = ("_paused", "_runtime", "_transport", "facts", "session")

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._transport: Any = None
        self._paused = False
        self.session: ClientSession | None = None
        self.facts: dict[str, Any] = {}

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Greet the client."""
        runtime = self._runtime
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("", 0)
        transport.set_write_buffer_limits(high=1024 * 1024)
        self.facts.update(ip=peer[0], port=peer[1])
        runtime.enter()
        self.session = runtime.engine.open_session(self, **self.facts)
        runtime.leave()

    def data_received(self, data: bytes) -> None:
        """A turn."""
        runtime = self._runtime
        session = self.session
        if session is None:
            return
        runtime.enter()
        session.receive(data)
        if runtime.leave():
            self._stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self.session is not None and not self.session.closed:
            self._runtime.enter()
            self.session.gone("Read Error" if exc else "Client Closed")
            self._runtime.leave()
        self._runtime.connections.discard(self)

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        if self.session is not None:
            self._runtime.enter()
            self.session.drained()
            self._runtime.leave()

    def _stall(self) -> None:
        """Read no more from this client for a moment."""
        transport = self._transport
        if transport.is_closing():
            return
        transport.pause_reading()
        self._runtime.loop.call_later(STALL_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # -- what the session calls ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, now or when the client takes it."""
        self._transport.write(data)

    def pending(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._paused else 0

    def close(self) -> None:
        """Send what is pending, then close."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
