"""Priority groups: which of the clients that pull from one consumer is served
(docs/protocol/consumers.md#priority-groups).

* ``overflow``: a request that names a threshold is served while as many messages are pending, or
  as many wait for acknowledgement.
* ``pinned_client``: one client is served, the others stand by. Who is served first gets a pin, in
  the header of each message, and names it in each further request. The pin ends when no request
  has named it for `priority_timeout`, or by CONSUMER.UNPIN; then the next request gets one.
* ``prioritized``: requests with a lower `priority` are served before the others.

As in nats-server, all groups of a consumer share one pin, and a request whose body is no JSON
belongs to no group: it is served while nobody is pinned.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slipstream.engine.session.message import Inbound
from slipstream.model.header_fields import NATS_PIN_ID
from slipstream.model.times import time_text
from slipstream.wire.headers import with_fields

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.protocol.infos import PriorityGroupState

OVERFLOW = "overflow"
PINNED = "pinned_client"
PRIORITIZED = "prioritized"
LAST = 10  # after every priority that a request can have


class PriorityGroups:
    """The priority groups of one consumer; times in ns."""

    def __init__(self, consumer: "Consumer") -> None:
        self._consumer = consumer
        self._pin = ""
        self._pinned_at = 0
        self._pinned_until = 0

    @property
    def policy(self) -> str:
        """`OVERFLOW`, `PINNED` or `PRIORITIZED`."""
        return str(self._consumer.config.priority_policy)

    @property
    def pinned_at(self) -> int:
        """Since when a client is pinned; 0 if none is."""
        return self._pinned_at

    def configured(self) -> None:
        """The consumer's configuration has changed."""
        if self.policy != PINNED:
            self._clear()

    def refusal(self, pin: str) -> str:
        """The status that refuses a request that names `pin`; "" if it may wait to be served."""
        if not self._pin or not pin:
            return ""
        if pin != self._pin:
            return "423 Nats-Pin-Id mismatch"
        self._pinned_until = self._consumer.clock.now + self._consumer.config.priority_timeout
        return ""

    def put(self, waiting: deque[Any], request: Any) -> None:
        """Put a request in its place among those that wait."""
        if self.policy != PRIORITIZED:
            waiting.append(request)
            return
        at = len(waiting)
        while at and waiting[at - 1].priority > request.priority:
            at -= 1
        waiting.insert(at, request)

    def bring_forward(self, waiting: deque[Any]) -> bool:
        """Whether some request is to be served, or to be told that it is not, as soon as there is a
        message. With policy overflow it comes first then."""
        if self.policy == OVERFLOW:
            for _ in range(len(waiting)):
                if self._is_over(waiting[0]):
                    return True
                waiting.rotate(-1)
            return False
        if self._pin:
            return any(request.pin for request in waiting)
        return bool(waiting)

    def _is_over(self, request: Any) -> bool:
        """With policy overflow: whether a threshold of the request is reached."""
        if request.min_pending <= 0 and request.min_ack_pending <= 0:
            return True
        consumer = self._consumer
        if 0 < request.min_pending <= consumer.num_pending + bool(consumer.due):
            return True
        return bool(0 < request.min_ack_pending <= len(consumer.pending))

    def find_pinned(self, waiting: deque[Any], refuse: Callable[[Any], None]) -> bool:
        """Have a request of the pinned client come first; if nobody is pinned, pin the first one.
        False if there is none. `refuse` is told what names a pin that has ended."""
        account = self._consumer.account
        for _ in range(len(waiting)):
            request = waiting[0]
            if self._pin and request.pin == self._pin:
                return True
            if request.pin:
                refuse(waiting.popleft())
            elif self._pin:
                waiting.rotate(-1)
            elif not account.has_interest(request.reply):
                waiting.popleft()
            else:
                if request.group:
                    self._pin_to(request)
                return True
        return False

    def _pin_to(self, request: Any) -> None:
        consumer = self._consumer
        now = consumer.clock.now
        self._pin = request.pin = consumer.engine.new_id()
        self._pinned_at = now
        self._pinned_until = now + consumer.config.priority_timeout
        consumer.watch(self._pinned_until)
        self._advise("PINNED", request.group, pinned_id=self._pin)

    def mark(self, message: Inbound) -> None:
        """Put the pin into a message that is about to be delivered."""
        block = with_fields(message.header(), [(NATS_PIN_ID, self._pin.encode())])
        message.data = block + message.body()
        message.header_start = 0
        message.body_start = len(block)
        message.end = len(message.data)

    def unpin(self, group: str, reason: str) -> None:
        """Let the next request have the pin."""
        self._clear()
        self._advise("UNPINNED", group, reason=reason)
        self._consumer.wake()

    def _clear(self) -> None:
        self._pin = ""
        self._pinned_at = self._pinned_until = 0

    def on_time(self, now: int) -> int:
        """End a pin that was not named for too long; when the next one ends, 0 for none."""
        if self._pin and self._pinned_until <= now:
            self.unpin(self._consumer.config.priority_groups[0], "timeout")
        return self._pinned_until

    def shown(self) -> "list[PriorityGroupState]":
        """As consumer information shows them: the first group alone."""
        state: PriorityGroupState = {"group": self._consumer.config.priority_groups[0]}
        if self._pin:
            state["pinned_client_id"] = self._pin
        state["pinned_ts"] = time_text(self._pinned_at)
        return [state]

    def _advise(self, event: str, group: str, **fields: Any) -> None:
        consumer = self._consumer
        consumer.stream.js.advisories.consumer_event(
            event,
            f"consumer_group_{event.lower()}",
            consumer.stream.name,
            consumer.name,
            account=consumer.account.name,
            group=group,
            **fields,
        )
