"""A client's TCP connection: bytes to its session, bytes from it.

One read is one turn: the session acts on everything that the read brought, then everybody whom that
concerns is written to once. An idle connection costs nothing.

Three things keep a slow client from harming others. What it does not take is counted (`pending`),
so that the session is cut off at `max_pending`. What waits to be sent must have gone when
`write_deadline` has passed. And a publisher that outruns somebody whom it writes to is read from
more slowly; while all clients together have much pending (`Output.is_crowded`) it has to wait until
they have taken it or are cut off.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from slipstream.engine.session.session import STALL
from slipstream.server.client_log import ClientLog
from slipstream.server.held_transport import HeldTransport

if TYPE_CHECKING:
    from slipstream.engine.session.session import ClientSession
    from slipstream.server.runtime import Runtime

# How long a publisher rests when somebody whom it writes to does not keep up. A slow reader thus
# slows its publishers before it is cut off.
STALL_SECONDS = 0.005
# How long a client gets to read the last error before its connection is gone.
LINGER_SECONDS = 1.0
# How often within `write_deadline` is looked whether a client has taken what waited.
DEADLINE_LOOKS = 10


class Connection(asyncio.Protocol):
    """One accepted connection; the engine's `Transport`."""

    __slots__ = (
        "_deadline",
        "_ending",
        "_paused",
        "_sent",
        "_transport",
        "brought_by",
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
        self.brought_by = ""  # the server of the group by whose connection the client comes
        self.session: ClientSession | None = None
        self.facts: dict[str, Any] = {}  # for monitoring: ip, port, and what TLS adds
        self.log = self.make_log()

    def make_log(self) -> ClientLog:
        """What says of this connection what the log is to know."""
        return ClientLog(self.runtime.log, self)

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Greet the client."""
        self.connected(transport)
        self.open_session()

    def connected(self, transport: Any) -> None:
        """Bytes can flow; nothing has been said yet."""
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("", 0)
        transport.set_write_buffer_limits(high=0)  # whatever waits, waits for the deadline
        self.facts.update(ip=peer[0], port=peer[1])
        self.runtime.connections.add(self)

    @property
    def is_ending(self) -> bool:
        """Whether this side has closed it: what still comes in is of no interest."""
        return self._ending

    def speaks_for(self, host: str, port: int) -> None:
        """It was made for a client at another address."""
        before = self.log.label()
        self.facts.update(ip=host, port=port)
        if self.session is not None:
            self.session.facts.update(ip=host, port=port)
        self.log.speaks_for(before)

    def greet_again(self) -> None:
        """Send INFO once more, to a client whose address was not known before. A server in between
        has kept back all that was sent up to now."""
        session, runtime = self.session, self.runtime
        if session is None or session.closed:
            return
        runtime.turns.enter()
        session.out.clear()
        runtime.engine.send_info(session)
        runtime.turns.leave()

    def refuse(self, why: str) -> None:
        """End it before its session has read anything."""
        self.log.error(why)
        if self.session is not None and not self.session.closed:
            self.runtime.turns.enter()
            self.session.gone("Protocol Violation")
            self.runtime.turns.leave()
        self.abort()

    def give_up(self) -> None:
        """Nothing comes from its other end any more, which may not even know that it has ended."""
        if self.session is not None and not self.session.closed:
            self.runtime.turns.enter()
            self.session.gone("Stale Connection")
            self.runtime.turns.leave()
        self.abort()

    def open_session(self) -> None:
        """The session begins, with INFO."""
        runtime = self.runtime
        runtime.turns.enter()
        self.session = runtime.engine.open_session(self, **self.facts)
        self.log.created()
        runtime.turns.leave()

    def data_received(self, data: bytes) -> None:
        """Act on what a read has brought: one turn of the engine."""
        session = self.session
        if session is None or self._ending:
            return
        turns = self.runtime.turns
        turns.enter()
        if self.log.tracing:
            self.log.received(data)
        try:
            session.receive(data)
        except Exception as error:  # a fault of the server: it costs this client, not the others
            self.runtime.log.fault(f"{self.log.label()} - acting on what it sent", error)
            session.close("Internal Error")
        if self.log.tracing:
            self.log.show_received()
        if session.closed or session.stopped_by:
            self.log.ended_by(data)
        turns.leave(self, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._ending = True
        self.runtime.connections.discard(self)
        if self.session is not None and not self.session.closed:
            self.runtime.turns.enter()
            self.session.gone(self.reason_of_loss(exc))
            self.runtime.turns.leave()
        self.log.closed()

    def reason_of_loss(self, exc: Exception | None) -> str:
        """What monitoring says of a connection that the client ended."""
        return "Read Error" if exc else "Client Closed"

    # -- slowness ------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        self._paused = True
        if self._deadline is None and not self._ending:
            self._watch(self._sent, DEADLINE_LOOKS)

    def resume_writing(self) -> None:
        """The client has taken what waited for it."""
        self._paused = False
        if self.session is not None and not self._ending:
            self.runtime.turns.enter()
            self.session.drained()
            self.runtime.turns.leave()

    def _watch(self, sent: int, looks: int) -> None:
        """Look `looks` times whether the first `sent` bytes have gone; the last is the deadline.

        Once they have gone, the deadline of the others begins. A single look at the deadline would
        find that late: a client that takes a little at the beginning would have twice the time.
        """
        delay = self.runtime.write_deadline_seconds / DEADLINE_LOOKS
        self._deadline = self.runtime.loop.call_later(delay, self._check_deadline, sent, looks)

    def _check_deadline(self, sent: int, looks: int) -> None:
        self._deadline = None
        if not self._paused or self._ending or self.session is None:
            return
        if self._sent - self.unsent() >= sent:
            self._watch(self._sent, DEADLINE_LOOKS)
            return
        if looks > 1:
            self._watch(sent, looks - 1)
            return
        runtime = self.runtime
        runtime.turns.enter()
        runtime.engine.cut_off(self.session, "Slow Consumer (Write Deadline)")
        runtime.turns.leave()

    # -- what the session calls ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, now or when the client takes it."""
        if self.log.tracing:
            self.log.sent(data)
        self.put(data)

    def write_parts(self, parts: list[bytes]) -> None:
        """Send several pieces in order; none of them is copied here."""
        if self.log.tracing:
            self.log.sent(b"".join(parts))
        self.put_parts(parts)

    def put_parts(self, parts: list[bytes]) -> None:
        """Give several pieces to the system as they are, in one call."""
        self._sent += sum(map(len, parts))
        self._transport.writelines(parts)

    def put(self, data: bytes) -> None:
        """Give bytes to the system as they are."""
        self._sent += len(data)
        self._transport.write(data)

    def hold(self) -> None:
        """Keep what is to be sent from now on until the connection is closed."""
        if self._transport is not None:
            self._transport = HeldTransport(self._transport)

    def pending(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._paused else 0

    def unsent(self) -> int:
        """Bytes that wait here, whether for the client or for the end of this round of the loop."""
        return int(self._transport.get_write_buffer_size()) if self._transport is not None else 0

    def pause_reading(self) -> None:
        """Read no more from this client until `resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if not (self._ending or self.runtime.reads_nothing):
            self._transport.resume_reading()

    def read_on(self) -> None:
        """Read whatever comes, before this side closes: what nobody reads would cut off the last
        answer."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def stall(self) -> None:
        """Somebody whom this client writes to does not keep up: let it rest."""
        self.runtime.stalls += 1
        if self.session is not None:
            facts = self.session.facts
            facts["stalls"] = facts.get("stalls", 0) + 1
        loop = self.runtime.loop
        until = loop.time() + self.runtime.write_deadline_seconds
        loop.call_later(STALL_SECONDS, self._end_stall, until)

    def _end_stall(self, until: float) -> None:
        session, runtime = self.session, self.runtime
        if session is None or self._ending:
            return
        engine = runtime.engine
        if engine.is_crowded:
            runtime.turn(engine.output.count_pending)
        if engine.is_crowded and runtime.loop.time() < until:
            runtime.loop.call_later(STALL_SECONDS, self._end_stall, until)
        else:
            runtime.turn(lambda: session.release(STALL))

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
            with suppress(OSError):  # the peer has gone, which the event loop reports next
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
