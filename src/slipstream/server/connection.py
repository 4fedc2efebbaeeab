"""A client's TCP connection: bytes to its session, bytes from it.

One read is one turn: the session acts on everything that the read brought, then everybody whom that
concerns is written to once. An idle connection costs nothing.

Three things keep a slow client from harming others. What it does not take is counted (`pending`),
so that the session is cut off at `max_pending`. What waits to be sent must have gone when
`write_deadline` has passed. And a publisher that outruns somebody whom it writes to is read from
more slowly.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from slipstream.server.client_log import ClientLog

if TYPE_CHECKING:
    from slipstream.engine.session import ClientSession
    from slipstream.server.runtime import Runtime

# How long a publisher rests when somebody whom it writes to does not keep up. A slow reader thus
# slows its publishers before it is cut off.
STALL_SECONDS = 0.005
# How long a client gets to read the last error before its connection is gone.
LINGER_SECONDS = 1.0
WRITE_BUFFER_HIGH = 1024 * 1024


class Connection(asyncio.Protocol):
    """One accepted connection; the engine's `Transport`."""

    __slots__ = (
        "_deadline",
        "_ending",
        "_paused",
        "_sent",
        "_transport",
        "facts",
        "log",
        "runtime",
        "session",
    )

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self._transport: Any = None
        self._paused = False  # the system takes no more at the moment
        self._ending = False  # closed by this side; what still comes in is of no interest
        self._sent = 0  # bytes given to the transport
        self._deadline: asyncio.TimerHandle | None = None
        self.session: ClientSession | None = None
        self.facts: dict[str, Any] = {}  # for monitoring: ip, port, and what TLS adds
        self.log = ClientLog(runtime.log, self)

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Greet the client."""
        self.connected(transport)
        self.open_session()

    def connected(self, transport: Any) -> None:
        """Bytes can flow; nothing has been said yet."""
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("", 0)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        self.facts.update(ip=peer[0], port=peer[1])
        self.runtime.connections.add(self)

    def open_session(self) -> None:
        """The session begins, with INFO."""
        runtime = self.runtime
        runtime.enter()
        self.session = runtime.engine.open_session(self, **self.facts)
        self.log.created()
        runtime.leave()

    def data_received(self, data: bytes) -> None:
        """A turn."""
        session = self.session
        if session is None or self._ending:
            return
        runtime = self.runtime
        runtime.enter()
        if self.log.tracing:
            self.log.received(data)
        try:
            session.receive(data)
        except Exception as error:  # a fault of the server: it costs this client, not the others
            runtime.log.fault(f"{self.log.label()} - acting on what it sent", error)
            session.close("Internal Error")
        if self.log.tracing:
            self.log.show_received()
        if session.closed:
            self.log.ended_by(data)
        if runtime.leave():
            self._stall()
        if runtime.busy_poll is not None:
            runtime.busy_poll.after_read(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._ending = True
        self.runtime.connections.discard(self)
        if self.session is not None and not self.session.closed:
            self.runtime.enter()
            self.session.gone(self.reason_of_loss(exc))
            self.runtime.leave()
        self.log.closed()

    def reason_of_loss(self, exc: Exception | None) -> str:
        """What monitoring says of a connection that the client ended."""
        return "Read Error" if exc else "Client Closed"

    # -- slowness ------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        self._paused = True
        if self._deadline is None and not self._ending:
            self._watch()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._paused = False
        if self.session is not None and not self._ending:
            self.runtime.enter()
            self.session.drained()
            self.runtime.leave()

    def _watch(self) -> None:
        """Look again when what waits now must have gone."""
        delay = self.runtime.write_deadline_seconds
        self._deadline = self.runtime.loop.call_later(delay, self._check_deadline, self._sent)

    def _check_deadline(self, sent_before: int) -> None:
        self._deadline = None
        if not self._paused or self._ending or self.session is None:
            return
        waiting = self._transport.get_write_buffer_size()
        if self._sent - waiting >= sent_before:
            self._watch()
            return
        runtime = self.runtime
        runtime.enter()
        runtime.engine.cut_off(self.session, "Slow Consumer (Write Deadline)")
        runtime.leave()

    def _stall(self) -> None:
        """Read no more from this client for a moment."""
        transport = self._transport
        if self._ending or transport.is_closing():
            return
        self.runtime.stalls += 1
        if self.session is not None:
            facts = self.session.facts
            facts["stalls"] = facts.get("stalls", 0) + 1
        transport.pause_reading()
        self.runtime.loop.call_later(STALL_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # -- what the session calls ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, now or when the client takes it."""
        if self.log.tracing:
            self.log.sent(data)
        self.put(data)

    def put(self, data: bytes) -> None:
        """Give bytes to the system as they are."""
        self._sent += len(data)
        self._transport.write(data)

    def pending(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._paused else 0

    def unsent(self) -> int:
        """Bytes that wait here, whether for the client or for the end of this round of the loop."""
        return int(self._transport.get_write_buffer_size()) if self._transport is not None else 0

    def close(self) -> None:
        """Send what is pending, then close.

        The direction from the client stays open for a moment: closing a socket with input that
        nobody has read would make the system drop the last error before the client sees it.
        """
        if self._ending:
            return
        self._ending = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        until = self.runtime.loop.time() + self.runtime.write_deadline_seconds
        self._linger(self._sent - self.unsent(), until)

    def _linger(self, taken_before: int, until: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = self.runtime.loop
        self._deadline = loop.call_later(LINGER_SECONDS, self._end, taken_before, until)

    def _end(self, taken_before: int, until: float) -> None:
        """Close for good, unless the client is still taking what is meant for it."""
        self._deadline = None
        taken = self._sent - self.unsent()
        if taken_before < taken < self._sent and self.runtime.loop.time() < until:
            self._linger(taken, until)
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Close at once."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()
