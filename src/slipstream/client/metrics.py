"""OpenTelemetry metrics of a connection, under the names that NATS.Net gave them.

Messages are counted anyway, in `Statistics`. While a meter provider is set, what has been added to
the counts goes to its instruments once a second and at the end, so that no message pays for
metrics, and those of several connections add up.

    messaging.client.published.messages     counter
    messaging.client.consumed.messages      counter
    nats.client.sent.bytes                  counter
    nats.client.received.bytes              counter
    nats.client.reconnects                  counter
    nats.client.messages.dropped            counter
    nats.client.active_subscriptions        up-down counter
    messaging.client.operation.duration     histogram, recorded with the spans (`telemetry`)
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slipstream.client.statistics import Statistics
from slipstream.client.telemetry import NAME, has_meter_provider

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter

INTERVAL_SECONDS = 1.0

# The field of `Statistics`, the instrument, its unit, and what it says.
COUNTERS = (
    ("out_messages", "messaging.client.published.messages", "{message}", "Messages published"),
    ("in_messages", "messaging.client.consumed.messages", "{message}", "Messages received"),
    ("out_bytes", "nats.client.sent.bytes", "By", "Bytes sent"),
    ("in_bytes", "nats.client.received.bytes", "By", "Bytes received"),
    ("reconnects", "nats.client.reconnects", "{reconnect}", "Connections made anew"),
    ("dropped", "nats.client.messages.dropped", "{message}", "Messages that found no room"),
)


class Metrics:
    """Passes on what a connection counts; made by `metrics_for`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: Callable[[], Statistics], provider: Any
    ) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter(NAME, meter_provider=provider)
        self._loop = loop
        self._read = read
        self._counters: list[tuple[str, Counter]] = [
            (field, meter.create_counter(name, unit=unit, description=says))
            for field, name, unit, says in COUNTERS
        ]
        self._subscriptions = meter.create_up_down_counter(
            "nats.client.active_subscriptions",
            unit="{subscription}",
            description="Subscriptions that stand",
        )
        self._told: dict[str, int] = {field: 0 for field, _ in self._counters}
        self._told_subscriptions = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tell what is new, now and at each interval."""
        self.tell()
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self.start)

    def stop(self) -> None:
        """Tell what is new for the last time; no subscription is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.tell()

    def tell(self) -> None:
        """Add to the instruments what has been added to the counts."""
        now = self._read()
        labels = {"messaging.system": "nats"}
        for field, counter in self._counters:
            count = getattr(now, field)
            if count > self._told[field]:
                counter.add(count - self._told[field], labels)
                self._told[field] = count
        if now.subscriptions != self._told_subscriptions:
            self._subscriptions.add(now.subscriptions - self._told_subscriptions, labels)
            self._told_subscriptions = now.subscriptions


def metrics_for(
    loop: asyncio.AbstractEventLoop, read: Callable[[], Statistics], provider: Any = None
) -> Metrics | None:
    """Metrics if a meter provider is given or set for the process; None otherwise."""
    if provider is None and not has_meter_provider():
        return None
    return Metrics(loop, read, provider)
