"""OpenTelemetry: spans around publishes, requests and handlers, and their context in headers.

A program that has set a tracer provider gets spans without asking: `telemetry_for` finds it when a
connection opens. A program that has not pays nothing, not even the import of opentelemetry; whoever
installs only the API pays nothing either. Names and attributes are those of OpenTelemetry's
messaging conventions, with the additions that NATS.Net made (client-api.md section 3.4).

    publish   orders.new publish     PRODUCER   the context goes out in `traceparent`
    request   orders.new request     CLIENT
    process   orders.new process     CONSUMER   its parent is the publisher's span

Handlers are called inside a `process` span. Whoever iterates says where processing begins:

    async for message in subscription:
        with processing(message):
            ...

Metrics are read from the connection's statistics when they are collected, so that no message pays
for them.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

NAME = "slipstream"
NO_SPAN: AbstractContextManager[None] = nullcontext()  # where there is no telemetry
_CONTEXT_FIELDS = ("traceparent", "tracestate", "baggage")


class Traceable(Protocol):
    """What telemetry reads of a message."""

    @property
    def subject(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> Headers: ...


class Statistics(Protocol):
    """The counts of a connection that metrics are made of."""

    in_messages: int
    out_messages: int
    in_bytes: int
    out_bytes: int
    reconnects: int


class _Setter:
    """Writes a propagated field into headers."""

    def set(self, carrier: Headers, key: str, value: str) -> None:
        carrier[key] = value


class _Getter:
    """Reads a propagated field from headers."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        return carrier.get_all(key) or None

    def keys(self, carrier: Headers) -> list[str]:
        return list(carrier)


class Telemetry:
    """The spans of one connection; made by `telemetry_for`."""

    def __init__(self, tracer_provider: Any = None) -> None:
        from opentelemetry import propagate, trace
        from opentelemetry.trace import SpanKind

        self._tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
        self._propagate = propagate
        self._kinds = SpanKind
        # OpenTelemetry asks for subclasses of its own; what it calls are these methods.
        self._setter: Any = _Setter()
        self._getter: Any = _Getter()
        self._connection: dict[str, Any] = {"messaging.system": "nats"}

    def describe_connection(self, *, host: str, port: int, client_id: int, name: str = "") -> None:
        """What spans say about the connection from now on; called at each (re)connect."""
        self._connection = {
            "messaging.system": "nats",
            "messaging.client_id": str(client_id),
            "server.address": host,
            "server.port": port,
            "network.protocol.name": "nats",
            "network.transport": "tcp",
        }
        if name:
            self._connection["nats.connection.name"] = name

    @contextmanager
    def publish(
        self, subject: str, size: int, headers: "Headers | None", *, operation: str = "publish"
    ) -> Iterator[Headers]:
        """A span around a publish or request; gives the headers to send, with the context in them.

        `headers` is left as it is. An exception ends the span as failed and goes on.
        """
        kind = self._kinds.CLIENT if operation == "request" else self._kinds.PRODUCER
        attributes = self._attributes(operation, subject, size)
        with self._tracer.start_as_current_span(
            f"{subject} {operation}", kind=kind, attributes=attributes
        ):
            sent = headers.copy() if headers is not None else Headers()
            self._propagate.inject(sent, setter=self._setter)
            yield sent

    @contextmanager
    def process(self, message: Traceable, *, queue: str = "") -> Iterator[None]:
        """A span around the processing of `message`, whose parent is the publisher's."""
        attributes = self._attributes("process", message.subject, len(message.data))
        if message.reply:
            attributes["messaging.nats.message.reply_to"] = message.reply
        if queue:
            attributes["messaging.consumer.group.name"] = queue
        parent = self._propagate.extract(message.headers, getter=self._getter)
        with self._tracer.start_as_current_span(
            f"{message.subject} process",
            context=parent,
            kind=self._kinds.CONSUMER,
            attributes=attributes,
        ):
            yield

    def _attributes(self, operation: str, subject: str, size: int) -> dict[str, Any]:
        temporary = subject.startswith("_INBOX.")
        return {
            **self._connection,
            "messaging.operation": operation,
            "messaging.destination.name": "_INBOX" if temporary else subject,
            "messaging.destination.temporary": temporary,
            "messaging.message.body.size": size,
        }


def telemetry_for(tracer_provider: Any = None) -> "Telemetry | None":
    """Telemetry if a tracer provider is given or set for the process; None otherwise.

    A provider cannot have been set without `opentelemetry.trace` having been imported, so a look
    at the imported modules is all that a program without telemetry pays.
    """
    if tracer_provider is not None:
        return Telemetry(tracer_provider)
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Telemetry()


def processing(
    message: Traceable, telemetry: "Telemetry | None" = None
) -> AbstractContextManager[None]:
    """A span around what is done with `message`; does nothing if telemetry is not set up."""
    found = telemetry or telemetry_for()
    return nullcontext() if found is None else found.process(message)


def has_context(headers: Headers) -> bool:
    """Whether a publisher's context travels in `headers`."""
    return any(field in headers for field in _CONTEXT_FIELDS)


def observe(statistics: Statistics, attributes: "dict[str, str] | None" = None) -> None:
    """Offer a connection's statistics as metrics, with `attributes` on each value.

    Uses the meter provider of the process; a value is read when a reader collects it.
    """
    from opentelemetry import metrics

    meter = metrics.get_meter(NAME)
    for name, field, unit, says in (
        ("messaging.client.published.messages", "out_messages", "{message}", "Messages published"),
        ("messaging.client.consumed.messages", "in_messages", "{message}", "Messages received"),
        ("nats.client.sent.bytes", "out_bytes", "By", "Bytes sent"),
        ("nats.client.received.bytes", "in_bytes", "By", "Bytes received"),
        ("nats.client.reconnects", "reconnects", "{reconnect}", "Connections made anew"),
    ):
        meter.create_observable_counter(
            name, [_Reading(statistics, field, attributes)], unit=unit, description=says
        )


class _Reading:
    """Reads one statistic for OpenTelemetry."""

    def __init__(
        self, statistics: Statistics, field: str, attributes: "dict[str, str] | None"
    ) -> None:
        self._statistics = statistics
        self._field = field
        self._attributes = attributes

    def __call__(self, options: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        yield Observation(getattr(self._statistics, self._field), self._attributes)
