"""Continuous pulling: requests overlap, so that the server never waits for the client.

At most `max_messages` are asked for and held at any time; when less than the threshold is, another
request asks for the difference. So memory is bounded however slow the taker is, and a taker that
is fast never waits for a round trip. A request that ends without messages (408) is followed by
another at once, one that is lost (leader changed, server gone) after a moment; a silence longer
than two heartbeats, or a new connection, starts over.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from slipstream.client.errors import OutboundBufferFullError
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import (
    JetStreamError,
    MaxBytesExceededError,
    NoConsumerResponseError,
    NoHeartbeatError,
    PinMismatchError,
)
from slipstream.client.jetstream.pull_options import Pin, Pull, request_body
from slipstream.client.jetstream.source import ErrorHandler, MessageSource
from slipstream.client.jetstream.status import Verdict, judge, pending_of
from slipstream.client.message import Message

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

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

        The inbox stays: what an earlier request still brings is as good as any.
        """
        if self.is_closed:
            return
        self.delivery.forget_requests()
        self.delivery.silent = 0
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
            # Whoever takes a message gets it all the same; what is still to come asks again.
            if not delivery.requested:
                self.later(self.patience(), self._after_patience)
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
            return  # patience is being exercised: its end asks
        self.ask()

    @property
    def awaits(self) -> bool:
        """Whether a request is with the server."""
        return self.delivery.requested > 0

    # -- what the server says ------------------------------------------------------------------

    def on_status(self, message: Message) -> None:
        """A heartbeat, or the end of a request."""
        verdict, error = judge(message, self.who)
        if verdict is Verdict.ALIVE:
            return
        if self._once:
            self._ended_once(None if verdict is Verdict.DONE else error)
        elif verdict is Verdict.FATAL:
            assert error is not None
            self.on_fatal(error)
        elif verdict is Verdict.DONE:
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
        self.later(self.patience(), self._after_patience)

    def _after_patience(self) -> None:
        self._later = None
        if self.delivery.requested == 0:
            self.ask()

    async def still_exists(self) -> None:
        """Ask for the consumer's info."""
        if self._exists is not None:
            await self._exists()

    def on_silence(self, error: NoHeartbeatError) -> None:
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
        """Ask anew, unless the last request was still to be sent."""
        if not self.is_closed and self.delivery.requested == 0:
            self.begin()
