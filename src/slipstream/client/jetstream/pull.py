"""Pulling messages: by one request (`Fetch`), or by requests that overlap (`PullSource`).

`fetch`, `fetch_bytes`, `fetch_no_wait` and `next` are one request. Each has an inbox of its own,
and gives it up when it is done, out of time or cancelled: then the server drops the request, and
what it sent for it in the meantime reaches nobody. Messages that a cancelled fetch has already
received are handed back (-NAK), so that another client gets them at once. An empty batch is an
answer, not an error.

`messages` and `consume` overlap requests, so that the server never waits for the client. At most
`max_messages` are asked for and held at any time; when less than the threshold is, another request
asks for the difference. So memory is bounded however slow the reader is, and a fast reader never
waits for a round trip. A request that ends without messages (408) is followed by another at once,
one that is lost (leader changed, server gone) after a moment; when no heartbeat comes for two
intervals, or on a new connection, pulling starts over.

The defaults are nats.go's: at most 500 messages held, asked for again when half of them are gone,
requests that live for 30 s with a heartbeat each 15 s (docs/protocol/consumers.md#pull-requests).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from slipstream.client.errors import OutboundBufferFullError
from slipstream.client.jetstream.delivery import Batch, Delivery
from slipstream.client.jetstream.errors import (
    JetStreamError,
    LeadershipChangedError,
    MaxBytesExceededError,
    NoConsumerResponseError,
    NoHeartbeatError,
    PinMismatchError,
    ServerShutdownError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.messages import (
    LOOKS_MISSED_MAX,
    LOOKS_PER_HEARTBEAT,
    ErrorHandler,
    MessageSource,
    hand_back,
)
from slipstream.client.jetstream.status import StatusMeaning, meaning_of, pending_of
from slipstream.client.message import Message
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.value_types import Value
from slipstream.model.durations import to_nanoseconds, to_seconds
from slipstream.model.unknown_name import unknown_name

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

# What stands for "no bound" on messages where the bound is on bytes.
BATCH_UNBOUNDED = 1_000_000
MAX_MESSAGES = 500
EXPIRES = 30.0
HEARTBEAT_MAX = 30.0
HEARTBEAT_OF_FETCH = 5.0
EXPIRES_WITH_HEARTBEAT = 10.0  # a fetch shorter than this has no heartbeat


class GroupOptions(TypedDict, total=False):
    """Keywords for a consumer with priority groups (docs/protocol/consumers.md#priority-groups).

    group: the priority group; required with them.
    min_pending, min_ack_pending: "overflow" serves the request only from this many on.
    priority: 0 (first) to 9, with "prioritized".
    """

    group: str
    min_pending: int
    min_ack_pending: int
    priority: int


class Pin:
    """What a consumer's handle knows of the pin of its priority group; `id` is "" without one.

    The server sends the id with each message, and serves only requests that give it back. So all
    that pulls through one handle shares it.
    """

    def __init__(self) -> None:
        self.id = ""

    def lose(self, id: str) -> None:
        """A request with `id` was refused: the pin has gone to another client."""
        if self.id == id:
            self.id = ""


class PullOptions(TypedDict, total=False):
    """Keywords of `messages` and `consume`.

    max_messages: how many are asked for and held at most (500; with max_bytes 1,000,000).
    max_bytes: how many bytes are asked for and held at most (0: no bound).
    expires: seconds that a request lives (30).
    heartbeat: seconds between heartbeats (half of `expires`, at most 30; 0 for none).
    threshold_messages, threshold_bytes: ask again when less is held and asked for (half).
    stop_after: end after this many messages.
    max_consecutive_503: end with `NoConsumerResponseError` when nobody answers so many times in a
        row, though the consumer was not deleted (0: go on for ever).
    group, min_pending, min_ack_pending, priority: see `GroupOptions`.
    """

    max_messages: int
    max_bytes: int
    expires: float | timedelta
    heartbeat: float | timedelta
    threshold_messages: int
    threshold_bytes: int
    stop_after: int
    max_consecutive_503: int
    group: str
    min_pending: int
    min_ack_pending: int
    priority: int


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """`PullOptions` with every default filled in, and checked."""

    max_messages: int
    max_bytes: int
    expires: float
    heartbeat: float
    threshold_messages: int
    threshold_bytes: int
    stop_after: int
    group: GroupOptions
    max_consecutive_503: int = 0

    @classmethod
    def of(cls, options: PullOptions, heartbeat_default: float | None = None) -> "Pull":
        """Fill in and check; raises ValueError for what cannot be, TypeError for what is not."""
        if unknown := options.keys() - PullOptions.__annotations__.keys():
            known = [*PullOptions.__annotations__, "type", "on_error"]
            raise TypeError(unknown_name("pulling", "option", unknown, known))
        max_bytes = options.get("max_bytes", 0)
        max_messages = options.get("max_messages", BATCH_UNBOUNDED if max_bytes else MAX_MESSAGES)
        expires = to_seconds(options.get("expires", EXPIRES), "expires")
        heartbeat = options.get("heartbeat", heartbeat_default)
        beat = (
            min(expires / 2, HEARTBEAT_MAX)
            if heartbeat is None
            else to_seconds(heartbeat, "heartbeat")
        )
        if max_messages < 1 or max_bytes < 0:
            raise ValueError("max_messages is 1 or more, max_bytes 0 or more")
        if expires < 1:
            raise ValueError(f"expires is 1 second or more, not {expires}")
        if beat < 0 or beat > expires / 2:
            raise ValueError(f"heartbeat is at most half of expires ({expires} s), not {beat} s")
        counts = "max_messages" in options or not max_bytes
        low = options.get("threshold_messages", ceil(max_messages / 2) if counts else 0)
        low_bytes = options.get("threshold_bytes", ceil(max_bytes / 2))
        if low > max_messages or low_bytes > max_bytes:
            raise ValueError("a threshold is not above its maximum")
        return cls(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=beat,
            threshold_messages=low,
            threshold_bytes=low_bytes,
            stop_after=options.get("stop_after", 0),
            group=group_of(options),
            max_consecutive_503=options.get("max_consecutive_503", 0),
        )

    @classmethod
    def once(
        cls, count: int, *, expires: float, heartbeat: float, max_bytes: int, group: GroupOptions
    ) -> "Pull":
        """One request for `count` messages; raises ValueError for what cannot be."""
        if count < 1 or expires <= 0:
            raise ValueError(f"a batch of {count} messages in {expires} s: both are to be positive")
        if heartbeat < 0 or heartbeat > expires / 2:
            raise ValueError(f"heartbeat is at most half of expires ({expires} s)")
        return cls(
            max_messages=count,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=0,
            threshold_bytes=0,
            stop_after=count,
            group=group_of(group),
        )


def check_names(call: str, group: GroupOptions) -> None:
    """Raise TypeError for keywords of `call` that priority groups do not have."""
    if unknown := group.keys() - GroupOptions.__annotations__.keys():
        known = [*GroupOptions.__annotations__, "timeout", "heartbeat", "max_bytes", "type"]
        raise TypeError(unknown_name(call, "option", unknown, known))


def group_of(options: "PullOptions | GroupOptions") -> GroupOptions:
    """What `options` say about priority groups; raises ValueError for a priority out of range."""
    group: GroupOptions = {}
    if options.get("group"):
        group["group"] = options["group"]
    if options.get("min_pending"):
        group["min_pending"] = options["min_pending"]
    if options.get("min_ack_pending"):
        group["min_ack_pending"] = options["min_ack_pending"]
    priority = options.get("priority", 0)
    if not 0 <= priority <= 9:
        raise ValueError(f"priority is 0 to 9, not {priority}")
    if priority:
        group["priority"] = priority
    return group


def request_body(
    batch: int,
    *,
    expires: float = 0.0,
    max_bytes: int = 0,
    heartbeat: float = 0.0,
    no_wait: bool = False,
    group: GroupOptions | None = None,
    pin_id: str = "",
) -> bytes:
    """The JSON of a pull request; times in seconds, 0 for none."""
    fields = [b'{"batch":%d' % batch]
    if expires:
        fields.append(b'"expires":%d' % to_nanoseconds(expires, "expires"))
    if max_bytes:
        fields.append(b'"max_bytes":%d' % max_bytes)
    if heartbeat:
        fields.append(b'"idle_heartbeat":%d' % to_nanoseconds(heartbeat, "heartbeat"))
    if no_wait:
        fields.append(b'"no_wait":true')
    if group:
        fields.append(msgspec.json.encode(group)[1:-1])
    if pin_id:
        fields.append(b'"id":"%b"' % pin_id.encode())
    return b",".join(fields) + b"}"


# The server should report the end of the time before the client's own clock does.
EARLIER_PART = 0.1
EARLIER_MAX = 0.1
NOT_BACK_YET = 0.25  # seconds between attempts while a restarted server finds its consumers


class MessageBatch(list[JetStreamMessage[Value]]):
    """The messages of a fetch, perhaps none; `error` is the trouble that cut it short, if any."""

    error: Exception | None = None


class Fetch:
    """One fetch; `run` does it."""

    def __init__(
        self,
        connection: "Connection",
        *,
        subject: str,
        who: str,
        context: Any,
        kind: Any,
        count: int,
        timeout: float,
        max_bytes: int = 0,
        heartbeat: float = 0.0,
        no_wait: bool = False,
        group: GroupOptions | None = None,
        pin_id: str = "",
    ) -> None:
        self._connection = connection
        self._loop = connection.loop
        self._subject = subject
        self._who = who
        self._timeout = timeout
        self._deadline = self._loop.time() + timeout
        self._max_bytes = max_bytes
        self._heartbeat = heartbeat
        self._no_wait = no_wait
        self._group = group
        self._pin_id = pin_id
        self._inbox = connection.new_inbox()
        self._batch = Batch(self, context, kind, count)
        self._error: Exception | None = None
        self._position = 0
        self._moved = False
        self._missed = 0
        self._watch: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None

    async def run(self) -> MessageBatch:
        """The messages; raises if trouble came before any message did."""
        write_buffer = self._connection.write_buffer
        if write_buffer.pending > write_buffer.bytes_max:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._deadline):
                    await write_buffer.room()
        try:
            await self._receive()
        except asyncio.CancelledError:
            # only now that the inbox is gone: before, they might come again to it
            hand_back(self._batch.messages)
            raise
        if self._error is not None and not self._batch.messages:
            raise self._error
        found = MessageBatch(self._batch.messages)
        found.error = self._error
        return found

    async def _receive(self) -> None:
        """Fill the batch; at the end the server forgets the request, with its inbox."""
        route = self._connection.subscriptions.open(self._inbox, "", self._batch)
        timer = self._loop.call_at(self._deadline, self._batch.finish)
        try:
            self._ask()
            if self._heartbeat:
                self._look_later()
            await self._batch.wait(ReplyFuture(self._connection.write_buffer))
        finally:
            for pending in (timer, self._watch, self._again):
                if pending is not None:
                    pending.cancel()
            self._connection.subscriptions.drop(route)

    def _ask(self) -> None:
        """Ask for what is still missing, in the time that is left."""
        left = max(self._deadline - self._loop.time(), 0.001)
        expires = 0.0 if self._no_wait else left - min(left * EARLIER_PART, EARLIER_MAX)
        body = request_body(
            self._batch.wanted - len(self._batch.messages),
            expires=expires,
            max_bytes=max(self._max_bytes - self._batch.bytes, 1) if self._max_bytes else 0,
            heartbeat=self._heartbeat if self._heartbeat <= expires / 2 else 0.0,
            no_wait=self._no_wait,
            group=self._group,
            pin_id=self._pin_id,
        )
        self._position = self._connection.publish_nowait(self._subject, body, reply=self._inbox)

    def _stop(self, error: Exception | None) -> None:
        self._error = error
        self._batch.finish()

    def _look_later(self) -> None:
        self._watch = self._loop.call_later(self._heartbeat / LOOKS_PER_HEARTBEAT, self._look)

    def _look(self) -> None:
        if self._batch.heard or not self._connection.is_connected:
            self._missed = 0
        self._missed += 1
        self._batch.heard = False
        if self._missed >= LOOKS_MISSED_MAX:
            self._stop(
                NoHeartbeatError(
                    f"{self._who}: the server sent nothing for twice the heartbeat of "
                    f"{self._heartbeat} s. Fetch again"
                )
            )
            return
        self._look_later()

    # -- what the batch calls ------------------------------------------------------------------

    def on_status(self, message: Message) -> None:
        """A heartbeat, or the end of the request."""
        meaning, error = meaning_of(message, self._who)
        if meaning is StatusMeaning.ALIVE:
            return
        if isinstance(error, LeadershipChangedError | ServerShutdownError):
            self._moved = True  # to another server, or this one comes back
        if self._moved and meaning is StatusMeaning.LOST:
            self._again = self._loop.call_later(NOT_BACK_YET, self._ask_again)
            return
        self._stop(None if meaning is StatusMeaning.DONE else error)

    def _ask_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._batch.is_done or not self._connection.is_connected:
            return
        try:
            self._ask()
        except OutboundBufferFullError:
            self._again = self._loop.call_later(NOT_BACK_YET, self._ask_again)

    def on_disconnect(self, handed: int) -> None:
        """The request is lost, unless it was still to be sent; `on_reconnect` asks again."""
        if self._position <= handed:
            self._moved = True

    def on_reconnect(self) -> None:
        """Ask again for what is missing."""
        self._batch.heard = True
        if self._moved:
            self._ask_again()

    def on_failure(self, error: Exception) -> None:
        """The subscription was refused, or the connection closed."""
        self._stop(error)

    def replenish(self) -> None:
        """A fetch asks once."""

    def on_control(self, message: Message) -> None:
        """A fetch puts no control messages."""

    def on_overflow(self) -> None:
        """A fetch holds what it asked for."""

    def on_enough(self) -> None:
        """The batch knows itself."""

    def on_gap(self, message: JetStreamMessage) -> None:
        """The caller of the fetch checks the order."""


# How much longer than its `expires` a request without heartbeats is waited for.
EXPIRY_GRACE = 5.0


class PullSource(MessageSource):
    """Asks for messages of one pull consumer; `subject` is where requests go, "" while nowhere."""

    def __init__(
        self,
        connection: "Connection",
        delivery: Delivery,
        pull: Pull,
        *,
        subject: str,
        who: str,
        on_error: ErrorHandler | None = None,
        exists: Callable[[], Awaitable[object]] | None = None,
        once: bool = False,
        pin: Pin | None = None,
    ) -> None:
        super().__init__(connection, delivery, who, pull.heartbeat, on_error)
        self.pull = pull
        self.subject = subject
        self._exists = exists
        self._once = once
        self._pin = Pin() if pin is None else pin
        self._pin_sent = ""
        self._unanswered = 0  # requests that nobody answered since a message arrived
        self._arrived_before = 0
        self._inbox = ""
        self._position = 0
        self._last = (0, 0)  # messages and bytes of the last request
        delivery.low = pull.threshold_messages
        delivery.low_bytes = pull.threshold_bytes
        delivery.stop_after = pull.stop_after
        delivery.pin = self._pin if pull.group else None

    async def start(self) -> None:
        """Open an inbox and ask."""
        self.begin()

    def begin(self) -> None:
        """Start over with a full request.

        The inbox stays: messages for an earlier request are as good as others.
        """
        if self.is_closed:
            return
        self.delivery.forget_requests()
        self.delivery.missed = 0
        if self.route is None:
            self._inbox = self.connection.new_inbox()
            self.open(self._inbox)
        self.ask()
        self.watch()

    # -- asking --------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for what is missing to the maximum."""
        delivery, pull = self.delivery, self.pull
        if self.is_closed or self.route is None or not self.subject:
            return
        count = pull.max_messages - delivery.requested - delivery.held
        if pull.stop_after:
            count = min(count, pull.stop_after - delivery.arrived - delivery.requested)
        size = 0
        if pull.max_bytes:
            size = pull.max_bytes - delivery.requested_bytes - delivery.held_bytes
        if count <= 0 or (pull.max_bytes and size <= 0):
            return
        self._pin_sent = self._pin.id if pull.group else ""
        body = request_body(
            count,
            expires=pull.expires,
            max_bytes=size,
            heartbeat=pull.heartbeat,
            group=pull.group,
            pin_id=self._pin_sent,
        )
        try:
            self._position = self.connection.publish_nowait(self.subject, body, reply=self._inbox)
        except OutboundBufferFullError:
            # A message can be taken all the same; what is still to come asks again.
            if not delivery.requested:
                self.later(self.retry_delay(), self._retry)
            return
        self._last = (count, size)
        delivery.requested += count
        delivery.requested_bytes += size
        if not pull.heartbeat:
            self.later(pull.expires + EXPIRY_GRACE, self._overdue)

    def _overdue(self) -> None:
        """The server has not said that the request has ended: it is lost."""
        if self._once:
            self.on_enough()
        else:
            self.begin()

    def replenish(self) -> None:
        """Less is asked for and held than the threshold."""
        if self._once:
            return
        if self._later is not None and self.pull.heartbeat:
            return  # a retry is due, which asks
        self.ask()

    @property
    def awaits(self) -> bool:
        """Whether a request is with the server."""
        return self.delivery.requested > 0

    # -- what the server says ------------------------------------------------------------------

    def on_status(self, message: Message) -> None:
        """A heartbeat, or the end of a request."""
        meaning, error = meaning_of(message, self.who)
        if meaning is StatusMeaning.ALIVE:
            return
        if self._once:
            self._ended_once(None if meaning is StatusMeaning.DONE else error)
        elif meaning is StatusMeaning.FATAL:
            assert error is not None
            self.on_fatal(error)
        elif meaning is StatusMeaning.DONE:
            self._ended(message)
            delivery = self.delivery
            if delivery.requested + delivery.held < delivery.low or not delivery.requested:
                self.ask()
        else:
            assert error is not None
            self.on_lost(message, error)

    def _ended_once(self, error: JetStreamError | None) -> None:
        """The only request has ended; one that had an outdated pin is made again without."""
        if isinstance(error, PinMismatchError) and self._pin_sent:
            self._pin.lose(self._pin_sent)
            self.delivery.forget_requests()
            self.ask()
            return
        self.close()
        self.delivery.end(error)

    def _ended(self, message: Message) -> None:
        """A request got less than it asked for: take the rest off the account."""
        messages, size = pending_of(message)
        delivery = self.delivery
        delivery.requested = max(delivery.requested - messages, 0) if messages else 0
        delivery.requested_bytes = max(delivery.requested_bytes - size, 0)

    def on_fatal(self, error: JetStreamError) -> None:
        """No request can succeed."""
        self.end(error)

    def on_lost(self, message: Message, error: JetStreamError) -> None:
        """A request is lost; another may succeed."""
        if isinstance(error, MaxBytesExceededError):
            self._ended(message)
            if pending_of(message)[1] >= self.pull.max_bytes:
                self.end(error)  # not even the whole bound is enough
            elif self.delivery.requested_bytes + self.delivery.held_bytes < self.delivery.low_bytes:
                self.ask()
            return
        self.delivery.forget_requests()
        self.report(error)
        if isinstance(error, PinMismatchError):
            self._pin.lose(self._pin_sent)
        if isinstance(error, NoConsumerResponseError):
            if self.delivery.arrived != self._arrived_before:
                self._arrived_before = self.delivery.arrived
                self._unanswered = 0
            self._unanswered += 1
            if self._unanswered == self.pull.max_consecutive_503:
                self.end(error)
                return
            self.spawn(self.check(error))
        self.later(self.retry_delay(), self._retry)

    def _retry(self) -> None:
        self._later = None
        if self.delivery.requested == 0:
            self.ask()

    async def still_exists(self) -> None:
        """Ask for the consumer's info."""
        if self._exists is not None:
            await self._exists()

    def on_missing_heartbeat(self, error: NoHeartbeatError) -> None:
        """Start over; if the consumer is gone, that is the end."""
        if self._once:
            self.end(error)
            return
        self.begin()
        self.spawn(self.check(error))

    # -- what the connection says --------------------------------------------------------------

    def on_disconnect(self, handed: int) -> None:
        """Requests that were sent are lost with the connection; the last may wait to be sent."""
        self.delivery.forget_requests()
        if self._position > handed:
            self.delivery.requested, self.delivery.requested_bytes = self._last

    def on_reconnect(self) -> None:
        """Ask again, unless the last request was still to be sent."""
        if not self.is_closed and self.delivery.requested == 0:
            self.begin()
