"""Pull: clients ask for messages, and get them or hear why not
(docs/protocol/consumers.md#pull-requests)."""

from collections import deque
from typing import TYPE_CHECKING, Any

from slipstream.engine.consumer.delivery import IDLE_HEARTBEAT, Delivery, is_denied
from slipstream.engine.consumer.priority import LAST, PINNED, PriorityGroups
from slipstream.engine.consumer.pull_request import PullRequest, read_request
from slipstream.engine.consumer.redelivery import redeliverable
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Route
from slipstream.model.header_names import NATS_PENDING_BYTES, NATS_PENDING_MESSAGES

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer

_int = int  # the name `int` in a compiled module's annotations is a C type

BODIES_KEPT_MAX: _int = 256
CHECK_EVERY_BYTES: _int = 128 * 1024


class Waiting:
    """A request that is being served."""

    def __init__(self, reply: bytes, asked: PullRequest, now: _int) -> None:
        self.reply = reply
        self.route: Route | None = None  # who listens at `reply`, as of the account's `generation`
        self.generation = 0
        self.left = max(asked.batch, 1)
        self.bytes_left = asked.max_bytes
        self.counts_bytes = asked.max_bytes > 0
        self.expires_at = now + asked.expires if asked.expires > 0 else 0
        self.no_wait = asked.no_wait
        self.beat_every = asked.idle_heartbeat
        self.next_beat = now + asked.idle_heartbeat if asked.idle_heartbeat else 0
        self.delivered = 0
        self.group = asked.group  # "": of none
        self.pin = asked.id  # that the client was given, or says that it was
        self.min_pending = asked.min_pending
        self.min_ack_pending = asked.min_ack_pending
        self.priority = asked.priority if asked.group else LAST  # those of no group come last


class PullDelivery(Delivery):
    """Serves the requests of one consumer, in turn."""

    def __init__(self, consumer: "Consumer") -> None:
        self.consumer = consumer
        self.account = consumer.account
        self.acks: Any = None
        self.waiting: deque[Waiting] = deque()
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream.name}.{consumer.name}".encode()
        self._bodies: dict[bytes, PullRequest | str] = {}
        self._held: dict[Waiting, None] = {}  # requests of clients that do not keep up just now
        self._wanted = 0  # messages that all requests still want
        self._seen = -1  # the account's generation at which somebody listened for all requests
        self._impatient = 0  # at least as many as there are requests that do not want to wait
        self._unchecked = 0  # bytes sent since a client's backlog was looked at
        self.groups: Any = None  # PriorityGroups, where the consumer has some
        self._pins = False
        self.configured()

    def begin(self) -> None:
        """Take pull requests from now on."""
        self.consumer.account.add_service(self._subject, self)

    def stop(self, reason: str) -> None:
        """Take no more, and answer those who wait."""
        self.consumer.account.remove_service(self._subject, self)
        self.acks.stop()
        for request in self._everyone():
            self._status(request.reply, f"409 {reason}")
        self.waiting.clear()
        self._held.clear()
        self._wanted = 0

    def dismiss(self) -> None:
        for waiting in self._everyone():
            self._status(waiting.reply, "409 Server Shutdown", waiting)
        self.waiting.clear()
        self._held.clear()

    def configured(self) -> None:
        self._bodies.clear()  # other bounds apply to what is asked
        policy = self.consumer.config.priority_policy
        self._pins = policy == PINNED
        if policy == "none":
            self.groups = None
        elif self.groups is None:
            self.groups = PriorityGroups(self.consumer)
        else:
            self.groups.configured()

    # -- requests ------------------------------------------------------------------------------

    def handle(self, message: Inbound) -> _int:
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
            asked = read_request(body, consumer.config)
            if len(self._bodies) >= BODIES_KEPT_MAX:
                self._bodies.clear()
            self._bodies[body] = asked
        if isinstance(asked, str):
            self._status(reply, asked)
            return
        if self.groups is not None:
            refusal = self.groups.refusal(asked.id)
            if refusal:
                self._status(reply, refusal)
                return
        if asked.no_wait and not self._may_take_at_once(reply, asked):
            return
        if self.num_waiting >= consumer.config.max_waiting:
            self.drop_uninterested()
            if self.num_waiting >= consumer.config.max_waiting:
                if not asked.idle_heartbeat:
                    self._status(reply, "409 Exceeded MaxWaiting")
                return
        waiting = Waiting(reply, asked, consumer.clock.now)
        self._impatient += asked.no_wait
        self._wanted += waiting.left
        if self._seen == self.account.generation and not self.account.has_interest(reply):
            self._seen = -1
        self._enqueue(waiting)
        consumer.life.watch(_earlier(waiting.expires_at, waiting.next_beat))
        consumer.wake()

    def _enqueue(self, waiting: Waiting) -> None:
        if self.groups is None:
            self.waiting.append(waiting)
        else:
            self.groups.put(self.waiting, waiting)

    def _may_take_at_once(self, reply: bytes, asked: PullRequest) -> bool:
        """Whether a request that does not want to wait is worth keeping; else it is answered."""
        consumer = self.consumer
        consumer.catch_up()
        available = consumer.num_pending + redeliverable(consumer)
        if available == 0:
            if not asked.expires:
                self._status(reply, "404 No Messages")
            return asked.expires > 0
        if available < self._wanted:
            self._status(reply, "408 Requests Pending")
            return False
        return True

    @property
    def num_waiting(self) -> _int:
        """How many requests are being served."""
        return len(self.waiting) + len(self._held)

    def _everyone(self) -> list["Waiting"]:
        return [*self.waiting, *self._held]

    def drop_uninterested(self) -> None:
        """Forget requests whose inbox nobody listens to any more."""
        account = self.account
        if self._seen == account.generation:
            return  # nobody has come or gone since the last look
        self._seen = account.generation
        self.waiting = deque(w for w in self.waiting if account.has_interest(w.reply))
        self._held = {w: None for w in self._held if account.has_interest(w.reply)}
        self._count_wanted()

    def _count_wanted(self) -> None:
        self._wanted = sum(waiting.left for waiting in self._everyone())

    # -- delivering ----------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether somebody waits who can take a message now."""
        if self.groups is None:
            return bool(self.waiting)
        return bool(self.groups.bring_forward(self.waiting))

    def holds_back(self) -> bool:
        """Whether somebody waits who is not served, as the consumer's priority groups are."""
        return self.groups is not None and bool(self.waiting)

    def is_live(self) -> bool:
        """Whether the consumer is in use, as far as inactivity goes."""
        if not self.num_waiting:
            return False
        self.drop_uninterested()
        return self.num_waiting > 0

    def send(self, message: Inbound) -> bool:
        """Give the message to the request whose turn it is; False if that one could not take it."""
        if self._pins and not self._find_pinned():
            return False
        waiting: Waiting = self.waiting[0]
        route = waiting.route
        if route is None or waiting.generation != self.account.generation:
            route = waiting.route = self.account.route(waiting.reply)
            waiting.generation = self.account.generation
        size = len(message.subject) + len(message.reply) + message.end - message.header_start
        if waiting.counts_bytes and size > waiting.bytes_left:
            self.waiting.popleft()
            self._wanted -= waiting.left
            self._status(waiting.reply, "409 Message Size Exceeds MaxBytes", waiting)
            return False
        if self._pins:
            self.groups.mark(message)
        # A stream stores what is delivered under the subject that it comes to.
        if route.services and route.stores():
            message.subject = waiting.reply
        message.to = waiting.reply
        if not self.account.dispatch(route, message) and not is_denied(self.account, waiting.reply):
            self.waiting.popleft()
            self._wanted -= waiting.left
            return False
        waiting.left -= 1
        self._wanted -= 1
        waiting.delivered += 1
        if waiting.beat_every:
            waiting.next_beat = self.consumer.clock.now + waiting.beat_every
        if waiting.counts_bytes:
            waiting.bytes_left -= size
            if waiting.bytes_left == 0:
                self._wanted -= waiting.left
                waiting.left = 0
        if waiting.left == 0:
            self.waiting.popleft()
            if waiting.counts_bytes and waiting.bytes_left > 0:
                self._status(waiting.reply, "409 Batch Completed", waiting)
        elif len(self.waiting) > 1:
            if self.groups is None:
                self.waiting.rotate(-1)
            else:
                self._enqueue(self.waiting.popleft())
        self._unchecked += size
        if self._unchecked > CHECK_EVERY_BYTES:
            self._unchecked = 0
            self._mind_backlog(route, waiting.reply)
        return True

    def _find_pinned(self) -> bool:
        """Have a request of the pinned client come first; False if there is none."""
        before = len(self.waiting)
        found: bool = self.groups.find_pinned(self.waiting, self._has_lost_its_pin)
        if len(self.waiting) != before:
            self._count_wanted()
        return found

    def _has_lost_its_pin(self, waiting: Waiting) -> None:
        self._status(waiting.reply, "423 Nats-Wrong-Pin-Id", waiting)

    def _mind_backlog(self, route: Route, reply: bytes) -> None:
        """Have the requests of a client that has much to take already wait until it has."""
        for subscription in self.account.listeners(reply):
            session: Any = subscription.receiver
            self.consumer.engine.flush(session)
            if session.has_enough():
                # Requests of other accounts have one route, for every client.
                self._hold(route, reply if route.services else b"", session)
                break

    def _hold(self, route: Route, reply: bytes, session: Any) -> None:
        held = [w for w in self.waiting if w.route is route and reply in (b"", w.reply)]
        self._held.update(dict.fromkeys(held))
        self.waiting = deque(w for w in self.waiting if w not in self._held)
        session.on_drained(lambda: self._go_on(held))

    def _go_on(self, held: list["Waiting"]) -> None:
        """A client has caught up."""
        for waiting in held:
            if waiting in self._held:  # else it is over
                del self._held[waiting]
                self._enqueue(waiting)
        self.consumer.wake()

    def nothing_left(self, is_full: bool) -> None:
        """No message can be delivered now: requests that do not want to wait are over, unless
        only acknowledgements are missing."""
        if is_full or self._impatient == 0:
            return
        self._impatient = 0
        self.waiting = self._end_impatient()

    def _end_impatient(self) -> deque[Waiting]:
        keep: deque[Waiting] = deque()
        for waiting in self.waiting:
            if waiting.no_wait and (waiting.delivered or not waiting.expires_at):
                self._status(waiting.reply, "404 No Messages")
            else:
                self._impatient += waiting.no_wait
                keep.append(waiting)
        self._wanted = sum(w.left for w in [*keep, *self._held])
        return keep

    def on_time(self, now: _int) -> _int:
        """Expire requests and send heartbeats; when to look again, 0 for never."""
        self.waiting = deque(w for w in self.waiting if self._is_on(w, now))
        self._held = {w: None for w in self._held if self._is_on(w, now)}
        self._count_wanted()
        earliest = 0 if self.groups is None else self.groups.on_time(now)
        for waiting in self._everyone():
            earliest = _earlier(earliest, _earlier(waiting.expires_at, waiting.next_beat))
        return earliest

    def _is_on(self, waiting: Waiting, now: _int) -> bool:
        """Whether a request goes on; it gets a heartbeat if it is time for one, unless it does not
        want to wait and has got messages: then it is over."""
        if waiting.expires_at and waiting.expires_at <= now:
            self._status(waiting.reply, "408 Request Timeout", waiting)
            self.consumer.last_activity = now
            return False
        if waiting.next_beat and waiting.next_beat <= now:
            if waiting.no_wait and waiting.delivered:  # only acknowledgements are missing
                self._status(waiting.reply, "404 No Messages")
                return False
            self._beat(waiting)
            waiting.next_beat = now + waiting.beat_every
        return True

    def _beat(self, waiting: Waiting) -> None:
        consumer = self.consumer
        block = IDLE_HEARTBEAT % (consumer.delivered_seq, consumer.delivered_stream_seq)
        consumer.account.send(waiting.reply, b"", block + b"\r\n", b"")

    def _status(self, reply: bytes, line: str, waiting: Waiting | None = None) -> None:
        """A status message; with what was left of a request that it ends."""
        block = f"NATS/1.0 {line}\r\n"
        if waiting is not None:
            left = max(waiting.bytes_left, 0)
            block += f"{NATS_PENDING_MESSAGES}: {waiting.left}\r\n{NATS_PENDING_BYTES}: {left}\r\n"
        self.consumer.account.send(reply, b"", (block + "\r\n").encode(), b"")


def _earlier(a: _int, b: _int) -> _int:
    """The earlier of two moments, where 0 is never."""
    return min(a, b) if a and b else a or b
