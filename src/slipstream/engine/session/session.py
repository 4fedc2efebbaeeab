"""A client's connection without the socket: bytes in, bytes out (docs/protocol/client.md).

`receive` takes whatever a read brought, finds the frames in it and acts on each at once. What is to
be sent gathers in `out`; the session enters itself in the turn's list and is flushed at its end
with one write. Messages pass by reference to the read's bytes, from the publisher's buffer into
the receivers', without an object of their own. A large message is one object, which all receivers'
output refers to; what many of them are sent is written in slices, one in each round.

A session may have to stop before it has acted on all that was read: until it is known who the
client is, until an API request is answered, because a subscriber does not keep up, or because its
quantum is used (`turn`). Each is a reason in `stopped_by`; while there is one, nothing is read.
"""

from typing import Any, Protocol

import slipstream.wire.ascii as char
import slipstream.wire.operations as operations
from slipstream.engine.loop.turn import QUANTUM, QUANTUM_MIN, ROUND, WRITE_SLICE
from slipstream.engine.session.connect import ConnectOptions, handle_line
from slipstream.engine.session.host import Host
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.permissions import ResponseRights, quoted
from slipstream.engine.session.routing import Receiver, Subscription
from slipstream.model.ack_subject import is_ack_subject
from slipstream.model.header_fields import NATS_SUBJECT, NATS_TRACE_DEST
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.client_frames import ClientFrames
from slipstream.wire.headers import find
from slipstream.wire.subjects import is_literal

_int = int  # the name `int` in a compiled module's annotations is a C type

DROPPED_AT_ONCE = 256  # subscriptions of a client that has gone

# Why a session does not act on what it was sent, as bits of `stopped_by`.
LOGIN = 1  # the authenticator has not decided yet
API = 2  # an API request of its waits for its turn
STALL = 4  # somebody whom it writes to does not keep up
PARKED = 8  # its quantum is used; it goes on in the next round
WRITES = 16  # the large messages that it published are being written
READS = 32  # too many requests wait for the disk

# A message from this size on is shared by all whom it is delivered to, not copied for each.
_SHARED_MIN: _int = 64 * 1024
# A session that has so much of large messages to write does not wait for its slice.
_LADEN_MAX: _int = 1024 * 1024

# A session that has so much to write is written to at once, and not at the end of the turn.
FLUSH_BYTES_MIN: _int = 1024 * 1024

# Unsent bytes of a client, above which those who have more for it wait.
BACKLOG_BYTES_MAX: _int = 8 * 1024 * 1024

# What things cost, in steps (see `turn`). A publish, and each delivery, costs one.
_BYTES_SHIFT: _int = (
    9  # and another one for each 512 bytes of a delivery, which are copied, here or in the system
)
_LINE: _int = 50  # SUB, UNSUB, CONNECT and the like
_FLUSH: _int = 50  # a write to a connection
_SERVICE: _int = 8  # a message for a stream
_CALL: _int = 30  # a message for a service of the server's own, below `$`


class Transport(Protocol):
    """What a session needs of its connection."""

    def write(self, data: bytes) -> None:
        """Send, now or when the peer takes it."""

    def write_parts(self, parts: list[bytes]) -> None:
        """Send all of `parts`, in order; large ones are kept by reference, not copied."""

    def pending(self) -> int:
        """Bytes that the peer has not taken yet."""

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`."""

    def resume_reading(self) -> None:
        """Read from the client again."""

    def stall(self) -> None:
        """Call `session.release(STALL)` once those who do not keep up have had some time."""

    def close(self) -> None:
        """Send what is pending, then close."""

    def abort(self) -> None:
        """Close at once."""


class ClientSession(Receiver):
    """One client. `facts` are what monitoring wants to know of the connection (ip, port, tls)."""

    def __init__(
        self, engine: Host, transport: Transport, cid: _int, facts: dict[str, Any]
    ) -> None:
        self.engine = engine
        self.transport = transport
        self.cid = cid
        self.facts = facts
        self.clock = engine.clock
        self.turn = engine.turn
        self.account = engine.default_account
        self.user: Any = None
        self.permissions: Any = None  # None: everything is allowed
        self.filters = False  # messages that it is sent are looked at for what it is denied
        self.connect = ConnectOptions()
        self.out = OutBuffer()
        self.subscriptions: dict[bytes, Subscription] = {}
        self.flushing = False  # whether it stands in the turn's list
        self.closed = False
        self.slow = False  # so far behind that its publishers have to rest
        self.behind = False  # so far that what other clients publish is dropped
        self.ready = False  # may do more than CONNECT
        self._greeted = False  # has sent its first byte
        self.stopped_by = 0  # why it does not act on what it was sent
        self._round = 0  # in which it acted last
        self.verbose = True
        self.pedantic = True
        self.echo = True
        self.headers = False
        self.no_responders = False
        self.protocol = 0
        self.in_msgs = 0
        self.in_bytes = 0
        self.out_msgs = 0
        self.out_bytes = 0
        self.started = engine.clock.now
        self.last_activity = engine.clock.now
        self.ping_sent = 0  # when the unanswered PING went out; 0 when there is none
        self.rtt = 0
        self.pings_out = 0
        self.pinged = False  # the client's first PING was answered
        self.close_reason = ""
        self.timer: Any = None
        self.drain_callbacks: list[Any] = []
        self.nonce: Any = None
        self.responses: ResponseRights | None = None
        options = engine.options
        self._frames = ClientFrames(options.max_control_line, options.max_payload)
        self._inbound = Inbound(session=self)
        self._last_subject = b""
        self._last_route: Any = None  # the Route of _last_subject
        self._last_generation = -1

    def limit_payload(self, size: _int) -> None:
        """The account's bound on messages."""
        self._frames.max_payload = size

    def limit_line(self, size: _int) -> None:
        """The server's bound on the arguments of a line."""
        self._frames.max_control_line = size

    # -- input ---------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Act on bytes from the client. Never raises for what they say."""
        if self.closed:
            return
        self.last_activity = self.clock.now
        if not self.ready and not self._greeted and data:
            # Before it has said who it is a client may only begin a CONNECT, to the letter.
            self._greeted = True
            begins = data[0] | char.LOWER_CASE == ord("c")
            if not begins and not self.engine.admit_without_connect(self):
                self.fail(b"Authorization Violation", "Authentication Failure")
                return
        self._frames.feed(data)
        if self.stopped_by:
            return
        turn = self.turn
        if turn.spent < ROUND:
            turn.limit = turn.spent + QUANTUM
        elif self._round != turn.round:
            turn.limit = turn.spent + QUANTUM_MIN
        else:  # it had its share of this round, which is over
            turn.limit = turn.spent
        self._act()

    def hold(self, reason: _int) -> None:
        """Act on nothing more, and read nothing more, until `release`."""
        if not self.stopped_by and not self.closed:
            self.transport.pause_reading()
        self.stopped_by |= reason

    def release(self, reason: _int) -> None:
        """The reason is gone: if it was the last, go on with what came in meanwhile."""
        self.stopped_by &= ~reason
        if self.stopped_by or self.closed:
            return
        turn = self.turn
        turn.limit = turn.spent + QUANTUM_MIN
        self._act()
        if not self.stopped_by and not self.closed:
            self.transport.resume_reading()

    def park(self) -> None:
        """Go on in the next round."""
        self.hold(PARKED)
        self.turn.parked.append(self)

    def _act(self) -> None:
        """Act on every frame that is there, as far as the quantum goes."""
        turn = self.turn
        self._round = turn.round
        turn.congested = False
        turn.shared = 0
        while not self.closed and not self.stopped_by:
            if turn.spent >= turn.limit:
                self.park()
                break
            op = self._frames.next()
            if op == operations.PUB:
                turn.spent += 1
                self._publish()
            elif op == operations.MORE:
                break
            elif op < 0:
                self.fail(operations.ERROR_TEXTS[op], _REASONS[op])
            else:
                turn.spent += _LINE
                self._line(op)
        if turn.congested:
            turn.congested = False
            if not self.closed:
                self.hold(STALL)
                self.transport.stall()
        if turn.shared > WRITE_SLICE and not self.closed:
            self.hold(WRITES)
            turn.waiting.append(self)

    def _line(self, op: _int) -> None:
        """An operation that is one line."""
        handle_line(self, op, self._frames)

    def _publish(self) -> None:
        """PUB and HPUB."""
        frames = self._frames
        subject = frames.subject
        if not self.ready and not self.engine.admit_without_connect(self):
            self.fail(b"Authorization Violation", "Authentication Failure")
            return
        if frames.has_header and not self.headers:
            self.fail(b"", "Message Header Violation")
            return
        self.in_msgs += 1
        self.in_bytes += frames.end - frames.header_start
        message = self._inbound
        message.subject = subject
        message.reply = frames.reply
        message.data = frames.data
        message.header_start = frames.header_start
        message.body_start = frames.body_start
        message.end = frames.end
        if frames.reply:
            c = frames.reply[0]
            if c in (char.UNDERSCORE, char.DOLLAR) and _is_reserved_reply(frames.reply):
                self.put_error(
                    b"Permissions Violation for Publish with Reply of " + quoted(frames.reply)
                )
                return
        if self.account.mappings is not None:
            message.subject = subject = self.account.mappings.map(subject)
        if self.permissions is not None and not self.may_publish(subject):
            self.put_error(b"Permissions Violation for Publish to " + quoted(subject))
            return
        if subject is self._last_subject and self._last_generation == self.account.generation:
            route = self._last_route
        else:
            c = subject[0] if subject else 0
            if c in (char.UNDERSCORE, char.DOLLAR) and _is_reserved_subject(subject):
                self.put_error(b"Permissions Violation for Publish to " + quoted(subject))
                return
            route = self.account.route(subject)
            self._last_subject = subject
            self._last_route = route
            self._last_generation = self.account.generation
        if self.pedantic and not is_literal(subject):
            self.put_error(b"Invalid Publish Subject")
        if self.verbose:
            self.put_line(b"+OK\r\n")
        count = -1
        if message.body_start > message.header_start and (
            find(message.data, message.header_start, message.body_start, NATS_TRACE_DEST)
        ):
            count = self.engine.trace(self, frames.subject, message, route)
        if count < 0:
            count = 0
            if route.plain or route.services or route.queues or route.shared is not None:
                if route.services:
                    self.turn.spent += _CALL if subject[0] == char.DOLLAR else _SERVICE
                count = self.account.dispatch(route, message)
        if count == 0 and self.no_responders and message.reply:
            self._tell_no_responders(subject, message.reply)

    def _tell_no_responders(self, subject: bytes, reply: bytes) -> None:
        """503 to the publisher's own subscription for the reply, if it has one.

        It does not count as a delivery: the subscription still waits for all that it asked for.
        """
        status = b"NATS/1.0 503\r\n%b: %b\r\n\r\n" % (NATS_SUBJECT, subject)
        size = len(status)
        for subscription in self.account.route(reply).plain:
            if subscription.receiver is self:
                self.out.put_message(reply, subscription.sid, b"", status, 0, size, size)
                self.out_msgs += 1
                self.out_bytes += size
                self.wake()
                return

    def may_publish(self, subject: bytes) -> bool:
        """Whether the user may, by what is configured or as an answer to what it received."""
        if self.permissions.may_publish(subject):
            return True
        return self.responses is not None and self.responses.use(subject, self.clock.now)

    # -- output --------------------------------------------------------------------------------

    def deliver(self, subscription: Subscription, subject: bytes, message: Inbound) -> bool:
        """Write `message` for `subscription`; False if this session cannot take it."""
        if self.closed or subscription.closed:
            return False
        if message.session is self and not self.echo:
            return False
        if self.behind and message.session is not None:
            return False
        if self.permissions is not None:
            if self.filters and not self.permissions.may_receive(subject):
                return False
            if self.permissions.allow_responses is not None and message.reply:
                self._may_answer(message.reply)
        header_start = message.header_start if self.headers else message.body_start
        out = self.out
        if message.end - header_start < _SHARED_MIN:
            out.put_message(
                subject,
                subscription.sid,
                message.reply,
                message.data,
                header_start,
                message.body_start,
                message.end,
            )
        else:
            self._share(subscription, subject, message, header_start)
        self._count_out(message.end - header_start)
        subscription.delivered += 1
        if subscription.max_messages and subscription.delivered >= subscription.max_messages:
            self.subscriptions.pop(subscription.sid, None)
            self.account.unsubscribe(subscription)
        return True

    def _count_out(self, size: _int) -> None:
        """A message of `size` bytes was written: count it, and have it flushed."""
        turn = self.turn
        self.out_msgs += 1
        self.out_bytes += size
        turn.spent += 1 + (size >> _BYTES_SHIFT)
        if self.slow:
            turn.congested = True
        if not self.flushing:
            self.flushing = True
            turn.spent += _FLUSH
            turn.sessions.append(self)
        elif self.out.size > FLUSH_BYTES_MIN:
            self.engine.flush(self)

    def has_enough(self) -> bool:
        """Whether the client is sent no more until it has taken what is pending: much, or anything
        at all while the server's clients together have much pending."""
        pending: int = self.transport.pending()
        return pending > BACKLOG_BYTES_MAX or (pending > 0 and self.engine.is_crowded)

    def _share(
        self, subscription: Subscription, subject: bytes, message: Inbound, header_start: _int
    ) -> None:
        """Write a large message: a line of its own, the rest by reference."""
        out = self.out
        if out.shared > _LADEN_MAX:
            self.engine.flush(self)
        header = message.body_start - header_start
        total = message.end - header_start
        out.put_message_line(subject, subscription.sid, message.reply, header, total)
        out.share(self.turn.tail(message.data, header_start, message.end))
        self.turn.shared += total

    def _may_answer(self, reply: bytes) -> None:
        """The user may publish to the reply subject of what it receives."""
        if self.responses is None:
            self.responses = ResponseRights(*self.permissions.allow_responses)
        self.responses.grant(reply, self.clock.now)

    def wake(self) -> None:
        """Have `out` flushed at the end of the turn."""
        if not self.flushing and not self.closed:
            self.flushing = True
            self.turn.sessions.append(self)

    def put_line(self, line: bytes) -> None:
        """Send protocol bytes as they are."""
        self.out.put(line)
        self.wake()

    def put_error(self, text: bytes) -> None:
        """Send ``-ERR``."""
        self.put_line(b"-ERR '%b'\r\n" % text)

    # -- the end -------------------------------------------------------------------------------

    def fail(self, text: bytes, reason: str) -> None:
        """Close because of what the client did: with an error, or without a word if it is empty."""
        if not self.closed:
            if text:
                self.put_error(text)
            self.close(reason)

    def close(self, reason: str) -> None:
        """Send what is left and close; `reason` is what monitoring shows."""
        if self.closed:
            return
        self.engine.flush(self)
        self.gone(reason)
        self.transport.close()

    def gone(self, reason: str) -> None:
        """The connection has ended or is about to: give up everything it held."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        self.out.clear()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.engine.session_closed(self)
        self.drop_subscriptions()
        self.drained()

    def drop_subscriptions(self) -> None:
        """Unsubscribe from everything; the engine takes many out of the account bit by bit."""
        dropped = list(self.subscriptions.values())
        self.subscriptions.clear()
        if len(dropped) > DROPPED_AT_ONCE:
            for subscription in dropped:
                subscription.closed = True
            self.engine.drop_later(self.account, dropped)
            return
        for subscription in dropped:
            self.account.unsubscribe(subscription)

    def on_drained(self, callback: Any) -> None:
        """Call back once when the peer has caught up (or is gone)."""
        self.drain_callbacks.append(callback)

    def drained(self) -> None:
        """The peer has taken (most of) what was pending."""
        self.slow = self.behind = False
        if self.out.length():
            self.wake()
        callbacks = self.drain_callbacks
        self.drain_callbacks = []
        for callback in callbacks:
            callback()


_REASONS = {
    operations.UNKNOWN_OPERATION: "Protocol Violation",
    operations.BAD_ARGUMENTS: "Protocol Violation",
    operations.LINE_TOO_LONG: "Maximum Control Line Exceeded",
    operations.PAYLOAD_TOO_LARGE: "Maximum Message Payload Exceeded",
}


def _is_reserved_reply(reply: bytes) -> bool:
    """Replies that only the server itself may use."""
    second = reply[1] if len(reply) > 1 else 0
    if second != ord("R") and second != ord("J") and second != ord("G"):  # most likely an inbox
        return False
    return is_ack_subject(reply) or reply.startswith((b"_R_.", b"_GR_."))


def _is_reserved_subject(subject: bytes) -> bool:
    """Subjects that clients may not publish to."""
    second = subject[1] if len(subject) > 1 else 0
    if second != ord("N") and second != ord("G"):  # most likely an acknowledgement
        return False
    return subject.startswith((b"$NRG.", b"_GR_."))
