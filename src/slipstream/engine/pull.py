"""Pull: clients ask for messages, and get them or hear why not (spec consumers.md section 6)."""

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.durations import duration_text
from slipstream.engine.message import Inbound
from slipstream.engine.routing import Route, Service

if TYPE_CHECKING:
    from slipstream.engine.consumer import Consumer

BACKLOG_BYTES_MAX = 8 * 1024 * 1024  # unsent bytes of one client, above which we wait for it
BODIES_KEPT_MAX = 256


class PullRequest(msgspec.Struct):
    """A request's body; unknown fields are ignored. Times in ns, sizes in bytes."""

    batch: int = 0
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    idle_heartbeat: int = 0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    priority: int = 0


_DECODER = msgspec.json.Decoder(PullRequest)


class Waiting:
    """A request that is being served."""

    __slots__ = (
        "beat_every", "bytes_left", "counts_bytes", "delivered", "expires_at", "left", "next_beat",
        "no_wait", "reply",
    )  # fmt: skip

    def __init__(self, reply: bytes, asked: PullRequest, now: int) -> None:
        self.reply = reply
        self.left = max(asked.batch, 1)
        self.bytes_left = asked.max_bytes
        self.counts_bytes = asked.max_bytes > 0
        self.expires_at = now + asked.expires if asked.expires > 0 else 0
        self.no_wait = asked.no_wait
        self.beat_every = asked.idle_heartbeat
        self.next_beat = now + asked.idle_heartbeat if asked.idle_heartbeat else 0
        self.delivered = 0


class PullDelivery(Service):
    """Serves the requests of one consumer, in turn."""

    def __init__(self, consumer: "Consumer") -> None:
        self.consumer = consumer
        self.acks: Any = None
        self.waiting: deque[Waiting] = deque()
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream.name}.{consumer.name}".encode()
        self._bodies: dict[bytes, PullRequest | str] = {}
        self._held_up = False  # a client does not keep up; it calls back when it has

    def begin(self) -> None:
        """Take requests."""
        self.consumer.account.add_service(self._subject, self)

    def stop(self, reason: str) -> None:
        """Take no more, and tell those who wait."""
        self.consumer.account.remove_service(self._subject, self)
        self.acks.stop()
        for request in self.waiting:
            self._status(request.reply, f"409 {reason}", request)
        self.waiting.clear()

    # -- requests ------------------------------------------------------------------------------

    def handle(self, message: Inbound) -> int:
        if not message.reply:
            return 1
        if self.consumer.stream.js.refused_level(message):
            self._status(message.reply, "412 Required Api Level")
            return 1
        self.request(message.reply, message.body())
        return 1

    def request(self, reply: bytes, body: bytes) -> None:
        """Somebody asks for messages at `reply`."""
        consumer = self.consumer
        consumer.last_activity = consumer.clock.now
        asked = self._bodies.get(body)
        if asked is None:
            asked = self._read(body)
            if len(self._bodies) >= BODIES_KEPT_MAX:
                self._bodies.clear()
            self._bodies[body] = asked
        if isinstance(asked, str):
            self._status(reply, asked)
            return
        if len(self.waiting) >= consumer.config.max_waiting:
            self.drop_uninterested()
            if len(self.waiting) >= consumer.config.max_waiting:
                if not asked.idle_heartbeat:
                    self._status(reply, "409 Exceeded MaxWaiting")
                return
        if asked.no_wait and not self._may_take_at_once(reply, asked):
            return
        waiting = Waiting(reply, asked, consumer.clock.now)
        self.waiting.append(waiting)
        consumer.life.watch(_earlier(waiting.expires_at, waiting.next_beat))
        consumer.wake()

    def _may_take_at_once(self, reply: bytes, asked: PullRequest) -> bool:
        """Whether a request that does not want to wait is worth keeping; else it is answered."""
        consumer = self.consumer
        available = consumer.num_pending + len(consumer.due)
        if available == 0 and not asked.expires:
            self._status(reply, "404 No Messages")
            return False
        wanted = sum(waiting.left for waiting in self.waiting)
        if self.waiting and wanted >= available:
            self._status(reply, "408 Requests Pending")
            return False
        return True

    def _read(self, body: bytes) -> PullRequest | str:
        """The request, or the status line that refuses it."""
        text = body.strip()
        if not text.startswith(b"{"):
            return PullRequest(batch=int(text) if text.isdigit() else 1)
        try:
            asked = _DECODER.decode(text)
        except msgspec.MsgspecError as error:
            cut = str(error) == "Input data was truncated"
            return f"400 Bad Request - {'unexpected end of JSON input' if cut else error}"
        config = self.consumer.config
        if asked.priority or asked.min_pending or asked.min_ack_pending or asked.id:
            problem = _priority_problem(asked)
            if problem:
                return f"400 Bad Request - {problem}"
        if config.max_batch and asked.batch > config.max_batch:
            return f"409 Exceeded MaxRequestBatch of {config.max_batch}"
        if config.max_expires and asked.expires > config.max_expires:
            return f"409 Exceeded MaxRequestExpires of {duration_text(config.max_expires)}"
        if config.max_bytes and asked.max_bytes > config.max_bytes:
            return f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}"
        if asked.idle_heartbeat and asked.idle_heartbeat * 2 > asked.expires:
            return "400 Bad Request - heartbeat value too large"
        return asked

    def drop_uninterested(self) -> None:
        """Forget requests whose inbox nobody listens to any more."""
        account = self.consumer.account
        self.waiting = deque(w for w in self.waiting if account.has_interest(w.reply))

    # -- delivering ----------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether somebody waits who can take a message now."""
        return bool(self.waiting) and not self._held_up

    def is_live(self) -> bool:
        """Whether the consumer is in use, as far as inactivity goes."""
        if not self.waiting:
            return False
        self.drop_uninterested()
        return bool(self.waiting)

    def send(self, message: Inbound) -> bool:
        """Give the message to the request whose turn it is; False if that one could not take it."""
        consumer = self.consumer
        waiting = self.waiting[0]
        route = consumer.account.route(waiting.reply)
        size = len(message.subject) + len(message.reply) + message.end - message.header_start
        if waiting.counts_bytes and size > waiting.bytes_left:
            self.waiting.popleft()
            self._status(waiting.reply, "409 Message Size Exceeds MaxBytes", waiting)
            return False
        if not consumer.account.dispatch(route, message):
            self.waiting.popleft()
            return False
        waiting.left -= 1
        waiting.delivered += 1
        if waiting.beat_every:
            waiting.next_beat = consumer.clock.now + waiting.beat_every
        if waiting.counts_bytes:
            waiting.bytes_left -= size
        if waiting.left == 0:
            self.waiting.popleft()
            if waiting.counts_bytes and waiting.bytes_left > 0:
                self._status(waiting.reply, "409 Batch Completed", waiting)
        elif len(self.waiting) > 1:
            self.waiting.rotate(-1)
        if waiting.delivered & 255 == 0:
            self._mind_backlog(route)
        return True

    def _mind_backlog(self, route: Route) -> None:
        """Wait for a client that has much to take already."""
        for subscription in route.plain:
            session: Any = subscription.receiver
            if session.transport.pending() + session.out.size > BACKLOG_BYTES_MAX:
                self._held_up = True
                self.consumer.engine.flush(session)
                session.on_drained(self._go_on)
                return

    def _go_on(self) -> None:
        self._held_up = False
        self.consumer.wake()

    def nothing_left(self) -> None:
        """No message can be delivered now: requests that do not want to wait are over."""
        if not any(waiting.no_wait for waiting in self.waiting):
            return
        keep: deque[Waiting] = deque()
        for waiting in self.waiting:
            if waiting.no_wait and (waiting.delivered or not waiting.expires_at):
                self._status(waiting.reply, "404 No Messages")
            else:
                keep.append(waiting)
        self.waiting = keep

    def on_time(self, now: int) -> int:
        """Expire requests and send heartbeats; when to look again, 0 for never."""
        earliest = 0
        keep: deque[Waiting] = deque()
        for waiting in self.waiting:
            if waiting.expires_at and waiting.expires_at <= now:
                self._status(waiting.reply, "408 Request Timeout", waiting)
                self.consumer.last_activity = now
                continue
            if waiting.next_beat and waiting.next_beat <= now:
                self._beat(waiting)
                waiting.next_beat = now + waiting.beat_every
            keep.append(waiting)
            earliest = _earlier(earliest, _earlier(waiting.expires_at, waiting.next_beat))
        self.waiting = keep
        return earliest

    def _beat(self, waiting: Waiting) -> None:
        consumer = self.consumer
        block = (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
        ) % (consumer.delivered_seq, consumer.delivered_stream_seq)
        consumer.account.send(waiting.reply, b"", block, b"")

    def _status(self, reply: bytes, line: str, waiting: Waiting | None = None) -> None:
        """A status message; with what was left of a request that it ends."""
        block = f"NATS/1.0 {line}\r\n"
        if waiting is not None:
            left = max(waiting.bytes_left, 0)
            block += f"Nats-Pending-Messages: {waiting.left}\r\nNats-Pending-Bytes: {left}\r\n"
        self.consumer.account.send(reply, b"", (block + "\r\n").encode(), b"")


def _priority_problem(asked: PullRequest) -> str:
    """What a consumer without priority groups says to their fields."""
    if not 0 <= asked.priority <= 9:
        return "Priority must be between 0 and 9"
    if asked.min_pending or asked.min_ack_pending:
        return "Not a Overflow Priority consumer"
    if asked.id:
        return "Not a Pinned Client Priority consumer"
    return ""


def _earlier(a: int, b: int) -> int:
    """The earlier of two moments, where 0 is never."""
    return min(a, b) if a and b else a or b
