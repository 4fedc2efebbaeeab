"""Push: messages go to a subject as long as somebody listens there
(docs/protocol/consumers.md#push)."""

from typing import TYPE_CHECKING, Any

from slipstream.engine.consumer.delivery import IDLE_HEARTBEAT, Delivery, is_denied
from slipstream.engine.consumer.redelivery import make_due
from slipstream.engine.protocol.json_body import read_number
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.session.session import BACKLOG_BYTES_MAX
from slipstream.model.durations import SECOND
from slipstream.model.header_fields import (
    NATS_CONSUMER_STALLED,
    NATS_LAST_CONSUMER,
    NATS_LAST_STREAM,
)
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer

_int = int  # the name `int` in a compiled module's annotations is a C type

WINDOW_FIRST: _int = 2 * 1024 * 1024  # bytes sent without an answer to a flow-control request
WINDOW_MAX: _int = 32 * 1024 * 1024


class PushDelivery(Delivery):
    """Delivers one consumer's messages to its deliver subject; as a service, takes its answers to
    flow control."""

    def __init__(self, consumer: "Consumer") -> None:
        self.consumer = consumer
        self.acks: Any = None
        self.account = consumer.account
        self.subject = consumer.config.deliver_subject.encode()
        self.queue = consumer.config.deliver_group.encode()
        self._flow_head = f"$JS.FC.{consumer.stream.name}.{consumer.name}.".encode()
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream.name}.{consumer.name}"
        self._refuser = _PullRefuser(consumer)
        self.active = False
        self._is_stored = False  # a stream stores what is delivered
        self._held_up = False
        self._window = WINDOW_FIRST
        self._unanswered = 0  # bytes since the last answered flow-control request
        self._asked_at = 0  # how many of them had been sent when the open request went out
        self._asked: bytes = b""  # its reply subject; b"" when none is open
        self._next_beat = 0
        self.free_at = 0  # with a rate limit: when the next message may go
        self.configured()

    def configured(self) -> None:
        config = self.consumer.config
        self._flow_control = config.flow_control
        self._beat_every = config.idle_heartbeat  # ns; 0: no heartbeats
        self._rate = config.rate_limit_bps
        self._flow_acks = config.ack_policy == "flow_control"

    def begin(self) -> None:
        """Watch who listens."""
        self.account.watch_interest(self.subject, self._look)
        self.account.add_service(self._flow_head + b">", self)
        self.account.add_service(self._next_subject.encode(), self._refuser)
        self._look()

    def stop(self, reason: str) -> None:
        """Deliver no more."""
        self.account.unwatch_interest(self.subject, self._look)
        self.account.remove_service(self._flow_head + b">", self)
        self.account.remove_service(self._next_subject.encode(), self._refuser)
        self.acks.stop()
        self.active = False

    def rebind(self, subject: str, group: str) -> None:
        """Deliver somewhere else; what is out is delivered again there."""
        self.account.unwatch_interest(self.subject, self._look)
        self.subject = subject.encode()
        self.queue = group.encode()
        self.account.watch_interest(self.subject, self._look)
        for seq in self.consumer.pending.sequences():
            make_due(self.consumer, seq)
        self._forget_asked()
        self._look()

    def _look(self) -> None:
        """Interest may have come or gone."""
        was = self.active
        self.active = self._is_heard()
        self._is_stored = self.account.route(self.subject).stores()
        if self.active and not was:
            self._forget_asked()
            self._beat_later()
            self.consumer.wake()
        elif not self.active:
            self._unheard(was)

    def _forget_asked(self) -> None:
        """No flow control request is out to the subscriber."""
        self._unanswered = 0
        self._asked = b""
        self._held_up = False

    def _unheard(self, was_heard: bool) -> None:
        """Nobody listens (any more): the time until the consumer is given up begins."""
        consumer = self.consumer
        self.active = False
        if was_heard:
            consumer.last_activity = consumer.clock.now
        consumer.life.watch(consumer.life.inactive_at())

    def _is_heard(self) -> bool:
        """Whether a member of the deliver group listens; where there is none, whether anybody does
        who is in no group."""
        if self.queue:
            return self.account.has_interest(self.subject, self.queue)
        route = self.account.route(self.subject)
        return bool(route.plain or route.services or (route.shared and route.shared.plain))

    def is_ready(self) -> bool:
        """Whether a message may go out now."""
        if not self.active or self._held_up:
            return False
        consumer = self.consumer
        if self.is_stalled():
            return False
        if self.free_at > consumer.clock.now:
            consumer.life.watch(self.free_at)
            return False
        return True

    def is_stalled(self) -> bool:
        """Whether the client still owes the answer to a flow-control request."""
        return self._flow_control and self._unanswered >= self._window

    def is_live(self) -> bool:
        """Whether the consumer is in use, as far as inactivity goes."""
        return self.active

    def send(self, message: Inbound) -> bool:
        """Deliver; False if nobody took it."""
        consumer = self.consumer
        route = self.account.route(self.subject)
        shown = message.subject
        if self._is_stored:  # under the subject that it comes to
            message.subject = self.subject
        message.to = self.subject
        taken = self.account.dispatch(route, message)
        message.subject = shown
        if not taken and not is_denied(self.account, self.subject):
            self._unheard(True)
            return False
        size = len(shown) + len(message.reply) + message.end - message.header_start
        if self._beat_every:
            self._next_beat = consumer.clock.now + self._beat_every
        if self._flow_control:
            self._count(size)
        if self._rate:
            self._slow_down(size)
        if route.plain or route.queues or route.shared is not None:
            self._mind_backlog(route)
        return True

    def _mind_backlog(self, route: Any) -> None:
        for subscription in route.listeners():
            session: Any = subscription.receiver
            if session.out.length() > BACKLOG_BYTES_MAX // 8:
                self.consumer.engine.flush(session)
            if session.has_enough():
                self._held_up = True
                session.on_drained(self._go_on)
                return

    def _go_on(self) -> None:
        self._held_up = False
        self.consumer.wake()

    def _slow_down(self, size: _int) -> None:
        now = self.consumer.clock.now
        self.free_at = max(self.free_at, now) + size * 8 * SECOND // self._rate

    # -- flow control --------------------------------------------------------------------------

    def _count(self, size: _int) -> None:
        """Ask the client to answer once half of the window is used."""
        self._unanswered += size
        if not self._asked and self._unanswered > self._window // 2:
            self._ask()

    def _ask(self) -> None:
        """Ask the client to answer when it has come so far."""
        self._asked = self._flow_head + self.consumer.engine.new_id()[-4:].encode()
        self._asked_at = self._unanswered
        block = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        self.account.send(self.subject, self._asked, block, b"")

    def nothing_left(self, is_full: bool) -> None:
        if is_full and self.active and not self._asked and self._acks_by_flow():
            self._ask()

    def _acks_by_flow(self) -> bool:
        return self._flow_acks and self.consumer.pending.size > 0

    def handle(self, message: Inbound) -> _int:
        if message.subject == self._asked:
            self._asked = b""
            self._unanswered = max(self._unanswered - self._asked_at, 0)
            self._window = min(self._window * 2, WINDOW_MAX)
            if self._flow_acks:
                self._acked(message)
            self.consumer.wake()
        return 1

    def _acked(self, message: Inbound) -> None:
        """The answer says what the client is done with."""
        start, end = message.header_start, message.body_start
        consumer_seq = read_number(find(message.data, start, end, NATS_LAST_CONSUMER) or b"")
        seq = read_number(find(message.data, start, end, NATS_LAST_STREAM) or b"")
        if seq > 0 and 0 < consumer_seq <= self.consumer.delivered_seq:
            self.consumer.acked(seq, consumer_seq)

    # -- heartbeats ----------------------------------------------------------------------------

    def _beat_later(self) -> None:
        if self._beat_every:
            self._next_beat = self.consumer.clock.now + self._beat_every
            if self.consumer.life is not None:
                self.consumer.life.watch(self._next_beat)

    def on_time(self, now: _int) -> _int:
        """Send a heartbeat if it is time; when to look again, 0 for never."""
        consumer = self.consumer
        moments = []
        if self.free_at > now:
            moments.append(self.free_at)
        elif self.free_at:
            self.free_at = 0
            consumer.wake()
        if self._beat_every and self.active:
            if self._next_beat <= now:
                self._beat()
                if not self._asked and self._acks_by_flow():
                    self._ask()
                self._next_beat = now + self._beat_every
            moments.append(self._next_beat)
        return min((moment for moment in moments if moment), default=0)

    def _beat(self) -> None:
        consumer = self.consumer
        block = IDLE_HEARTBEAT % (consumer.delivered_seq, consumer.delivered_stream_seq)
        if self._asked and (self.is_stalled() or not consumer.has_room()):
            block += b"%b: %b\r\n" % (NATS_CONSUMER_STALLED, self._asked)
        self.account.send(self.subject, b"", block + b"\r\n", b"")

    def request(self, reply: bytes, body: bytes) -> None:
        """A pull request that came with an acknowledgement: push consumers have none."""
        self._refuser.refuse(reply)


class _PullRefuser(Service):
    """Answers pull requests to a push consumer."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer

    def handle(self, message: Inbound) -> _int:
        self.refuse(message.reply)
        return 1

    def refuse(self, reply: bytes) -> None:
        """Say that the consumer is not one to pull from."""
        if reply:
            block = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
            self._consumer.account.send(reply, b"", block, b"")
