"""OpenTelemetry: spans around what a connection does, and their context in headers.

A program that has set a tracer or meter provider gets spans or metrics without asking:
`telemetry_for` finds them when a connection opens. A program that has not pays nothing, not even
the import of opentelemetry. Names and attributes are those of OpenTelemetry's messaging
conventions, with the additions that NATS.Net made: what these have renamed since, such as
`messaging.operation` (now `.name` and `.type`) and `messaging.client_id`, has both names.

    publish     orders.new publish     PRODUCER   the context goes out in `traceparent`
    request     orders.new request     CLIENT
    process     orders.new process     CONSUMER   its parent is the publisher's span
    subscribe   orders.* subscribe     CLIENT
    reconnect   reconnect              CLIENT     from the loss of a connection to the next one

Handlers are called inside a `process` span. A program that iterates says where processing begins:

    async for message in subscription:
        with nc.processing(message):
            ...

and one that takes a batch does so for all of them: the span of several has no publisher for a
parent, but a link to each one's span.

    with nc.processing(*await consumer.fetch(100)):
        ...

`TelemetryOptions` chooses, names and adds to spans, and says which baggage travels.

Messages are counted anyway, in `Statistics`. While a meter provider is set, `Metrics` adds what is
new in the counts to its instruments once a second and at the end, so that no message pays for
metrics. Counts of several connections add up. The instruments have the names of NATS.Net:

    messaging.client.published.messages     counter
    messaging.client.consumed.messages      counter
    nats.client.sent.bytes                  counter
    nats.client.received.bytes              counter
    nats.client.reconnects                  counter
    nats.client.messages.dropped            counter
    nats.client.active_subscriptions        up-down counter
    messaging.client.operation.duration     histogram, recorded with the spans
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from slipstream.client.codecs import Readable
from slipstream.extras import require
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Link, Span, SpanKind

NAME = "slipstream"
NO_SPAN: AbstractContextManager[None] = nullcontext()  # where there is no telemetry
DURATION = "messaging.client.operation.duration"
# What the conventions call operations; the others have no type.
_TYPES = {"publish": "send", "request": "send", "process": "process"}
_CONTEXT_FIELDS = ("traceparent", "tracestate", "baggage")
logger = logging.getLogger("slipstream.client")


class Traceable(Readable, Protocol):
    """What telemetry reads of a message."""

    @property
    def reply(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a span is about to be about; `name` is publish, request, process or subscribe."""

    name: str
    subject: str
    reply: str = ""
    queue: str = ""
    template: str = ""  # the subject that was subscribed to
    body_size: int = 0  # bytes
    headers: Headers | None = None
    batch: int = 0  # messages that are processed together; 0: it is one


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """Which spans there are, and what they say."""

    # No span, no context and no duration where it gives False or raises.
    filter: Callable[[Operation], bool] | None = None
    # May add to a span that has just begun.
    enrich: "Callable[[Span, Operation], None] | None" = None
    # The destination in a span's name and attributes, such as ``orders.{id}``; inboxes have one.
    destination_name: Callable[[str], str] | None = None
    # Which baggage goes out, as far as OpenTelemetry's propagator carries baggage at all: that of
    # the context unless `propagate_baggage` is off, that of `baggage_source`, if the key passes.
    propagate_baggage: bool = True
    baggage_keys: Callable[[str], bool] | None = None
    baggage_source: Callable[[], Mapping[str, str]] | None = None


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

    def __init__(
        self,
        tracer_provider: Any = None,
        options: TelemetryOptions | None = None,
        meter_provider: Any = None,
    ) -> None:
        require("opentelemetry.trace", extra="otel")
        from opentelemetry import baggage, context, metrics, propagate, trace
        from opentelemetry.trace import Link, SpanKind

        self._tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(NAME, meter_provider=meter_provider)
        self._durations: Histogram = meter.create_histogram(
            DURATION, unit="s", description="How long operations took"
        )
        self._options = options or TelemetryOptions()
        self._baggage, self._context, self._propagate = baggage, context, propagate
        self._nothing = context.Context()  # in which no span is
        self._kinds = SpanKind
        self._link = Link
        self._span_of = trace.get_current_span
        # OpenTelemetry asks for subclasses of its own; what it calls are these methods.
        self._setter: Any = _Setter()
        self._getter: Any = _Getter()
        self._connection: dict[str, Any] = {"messaging.system": "nats"}

    def describe_connection(
        self,
        *,
        host: str,
        port: int,
        client_id: int,
        name: str = "",
        transport: str = "tcp",
        peer: Any = None,
        local: Any = None,
    ) -> None:
        """What spans say about the connection from now on; called at each (re)connect.

        `peer` and `local` are socket addresses as `get_extra_info` gives them.
        """
        self._connection = {
            "messaging.system": "nats",
            "messaging.client_id": str(client_id),
            "messaging.client.id": str(client_id),
            "server.address": host,
            "server.port": port,
            "network.protocol.name": "nats",
            "network.transport": transport,
        }
        if name:
            self._connection["nats.connection.name"] = name
        if isinstance(peer, tuple):
            self._connection["network.peer.address"] = peer[0]
            self._connection["network.peer.port"] = peer[1]
        if isinstance(local, tuple):
            self._connection["network.local.address"] = local[0]

    # -- the operations ------------------------------------------------------------------------

    @contextmanager
    def publish(
        self,
        subject: str,
        size: int,
        headers: "Headers | None",
        *,
        operation: str = "publish",
        reply: str = "",
    ) -> Iterator[Headers]:
        """A span around a publish or request; gives the headers to send, with the context in them.

        `headers` is left as it is. An exception ends the span as failed and goes on.
        """
        kind = self._kinds.CLIENT if operation == "request" else self._kinds.PRODUCER
        sent = headers.copy() if headers is not None else Headers()
        about = Operation(
            name=operation, subject=subject, reply=reply, body_size=size, headers=sent
        )
        with self._span(about, kind) as span:
            if span is not None:
                self._inject(sent)
            yield sent

    @contextmanager
    def process(self, message: Traceable, *, queue: str = "", template: str = "") -> Iterator[None]:
        """A span around the processing of `message`, whose parent is the publisher's.

        `template` is the subject that was subscribed to. Baggage that came with it is there too.
        """
        about = Operation(
            name="process",
            subject=message.subject,
            reply=message.reply,
            queue=queue,
            template=template,
            body_size=len(message.data),
            headers=message.headers,
        )
        parent = self._propagate.extract(message.headers, getter=self._getter)
        brought = self._baggage.get_all(parent)
        token = self._context.attach(self._with_baggage(brought)) if brought else None
        try:
            with self._span(about, self._kinds.CONSUMER, parent):
                yield
        finally:
            if token is not None:
                self._context.detach(token)

    @contextmanager
    def process_batch(self, messages: Sequence[Traceable]) -> Iterator[None]:
        """A span around the processing of several messages, with a link to each publisher's span.

        It goes on with the trace that the program is in, if it is in one. No baggage is taken over.
        """
        subjects = {message.subject for message in messages}
        about = Operation(
            name="process",
            subject=subjects.pop() if len(subjects) == 1 else "",
            body_size=sum(len(message.data) for message in messages),
            batch=len(messages),
        )
        links = [link for message in messages if (link := self._link_to(message)) is not None]
        with self._span(about, self._kinds.CONSUMER, links=links):
            yield

    def _link_to(self, message: Traceable) -> "Link | None":
        """To the span of who published a message; None if none travelled with it."""
        publisher = self._propagate.extract(message.headers, self._nothing, self._getter)
        context = self._span_of(publisher).get_span_context()
        return self._link(context) if context.is_valid else None

    def subscribed(self, subject: str, queue: str) -> None:
        """A span for a subscription that was just asked for."""
        about = Operation(name="subscribe", subject=subject, queue=queue, template=subject)
        with self._span(about, self._kinds.CLIENT):
            pass

    def reconnect(self) -> "AbstractContextManager[Span | None]":
        """A span from the loss of a connection until there is another one, or none to be had."""
        return self._span(Operation(name="reconnect", subject=""), self._kinds.CLIENT)

    # -- spans ---------------------------------------------------------------------------------

    @contextmanager
    def _span(
        self,
        about: Operation,
        kind: "SpanKind",
        parent: "Context | None" = None,
        links: "Sequence[Link]" = (),
    ) -> "Iterator[Span | None]":
        """A span and its duration; None if the filter is against it."""
        if not self._wanted(about):
            yield None
            return
        begin = time.perf_counter()
        failed = ""
        try:
            attributes = self._attributes(about)
            with self._tracer.start_as_current_span(
                self._span_name(about),
                context=parent,
                kind=kind,
                attributes=attributes,
                links=links,
            ) as span:
                self._enrich(span, about)
                try:
                    yield span
                except (Exception, asyncio.CancelledError) as error:
                    failed = type(error).__qualname__
                    span.set_attribute("error.type", failed)
                    raise
        finally:
            facts = ("messaging.system", "server.address", "server.port")
            labels = {key: self._connection[key] for key in facts if key in self._connection}
            labels |= _operation(about.name)
            if failed:
                labels["error.type"] = failed
            self._durations.record(time.perf_counter() - begin, labels)

    def _wanted(self, about: Operation) -> bool:
        chooses = self._options.filter
        if chooses is None:
            return True
        try:
            return bool(chooses(about))
        except Exception:
            logger.debug("the telemetry filter raised", exc_info=True)
            return False

    def _enrich(self, span: "Span", about: Operation) -> None:
        if self._options.enrich is None:
            return
        try:
            self._options.enrich(span, about)
        except Exception:
            logger.exception("the function that enriches spans raised")

    def _span_name(self, about: Operation) -> str:
        return f"{self._destination(about.subject)} {about.name}" if about.subject else about.name

    def _destination(self, subject: str) -> str:
        """The name of a destination: of all inboxes it is one."""
        if subject.startswith("_INBOX."):
            return "_INBOX"
        names = self._options.destination_name
        if names is None:
            return subject
        try:
            return names(subject)
        except Exception:
            logger.exception("the function that names destinations raised")
            return subject

    def _attributes(self, about: Operation) -> dict[str, Any]:
        attributes = {**self._connection, **_operation(about.name)}
        if about.batch:
            attributes["messaging.batch.message_count"] = about.batch
            attributes["messaging.message.body.size"] = about.body_size
        if not about.subject:
            return attributes
        name = self._destination(about.subject)
        attributes["messaging.destination.name"] = name
        attributes["messaging.destination.temporary"] = name == "_INBOX"
        attributes["messaging.nats.message.subject"] = about.subject
        if about.template:
            attributes["messaging.destination.template"] = about.template
        elif name != about.subject:
            attributes["messaging.destination.template"] = name
        if about.name == "process":
            attributes["messaging.destination_publish.name"] = about.subject
        if about.name != "subscribe" and not about.batch:
            block = about.headers.encode() if about.headers is not None and about.headers else b""
            envelope = len(about.subject.encode()) + len(about.reply.encode()) + len(block)
            attributes["messaging.message.body.size"] = about.body_size
            attributes["messaging.message.envelope.size"] = envelope + about.body_size
        if about.reply:
            attributes["messaging.nats.message.reply_to"] = about.reply
        if about.queue:
            attributes["messaging.consumer.group.name"] = about.queue
        return attributes

    # -- context in headers --------------------------------------------------------------------

    def _inject(self, sent: Headers) -> None:
        options = self._options
        context = None
        if options.baggage_keys or options.baggage_source or not options.propagate_baggage:
            context = self._with_baggage(self._outgoing(), cleared=True)
        self._propagate.inject(sent, context=context, setter=self._setter)

    def _outgoing(self) -> dict[str, object]:
        """The baggage that may leave."""
        options = self._options
        found = dict(self._baggage.get_all()) if options.propagate_baggage else {}
        try:
            if options.baggage_source is not None:
                found.update(options.baggage_source())
            if options.baggage_keys is not None:
                found = {key: found[key] for key in found if options.baggage_keys(key)}
        except Exception:
            logger.exception("a function that chooses baggage raised; none is sent")
            return {}
        return found

    def _with_baggage(self, found: Mapping[str, object], *, cleared: bool = False) -> "Context":
        """The current context with baggage, besides or in place of its own."""
        context = self._context.get_current()
        if cleared:
            context = self._baggage.clear(context)
        for key, value in found.items():
            context = self._baggage.set_baggage(key, value, context)
        return context


def _operation(name: str) -> dict[str, str]:
    """What attributes say of an operation."""
    said = {"messaging.operation": name, "messaging.operation.name": name}
    if name in _TYPES:
        said["messaging.operation.type"] = _TYPES[name]
    return said


def telemetry_for(
    tracer_provider: Any = None,
    options: TelemetryOptions | None = None,
    meter_provider: Any = None,
) -> "Telemetry | None":
    """Telemetry if a provider is given or set for the process; None otherwise.

    A provider cannot have been set without its module having been imported, so a look at the
    imported modules is all that a program without telemetry pays.
    """
    given = tracer_provider is not None or meter_provider is not None
    if given or _has_tracer_provider() or has_meter_provider():
        return Telemetry(tracer_provider, options, meter_provider)
    return None


def _has_tracer_provider() -> bool:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    no_provider = trace.ProxyTracerProvider | trace.NoOpTracerProvider
    return not isinstance(trace.get_tracer_provider(), no_provider)


def has_meter_provider() -> bool:
    """Whether the process has set a meter provider."""
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return False
    provider = metrics.get_meter_provider()
    # The stand-in for a provider that is not set has no public name.
    stand_in = type(provider).__name__ == "_ProxyMeterProvider"
    return not (stand_in or isinstance(provider, metrics.NoOpMeterProvider))


def processing(
    message: Traceable, telemetry: "Telemetry | None" = None
) -> AbstractContextManager[None]:
    """A span around what is done with `message`; does nothing if telemetry is not set up.

    `Connection.processing` does the same with the connection's own options and attributes.
    """
    found = telemetry or telemetry_for()
    return NO_SPAN if found is None else found.process(message)


def has_context(headers: Headers) -> bool:
    """Whether a publisher's context travels in `headers`."""
    return any(field in headers for field in _CONTEXT_FIELDS)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since `connect`; bytes are payloads with their headers."""

    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    reconnects: int
    pending_bytes: int  # wait to be sent now
    subscriptions: int  # now
    dropped: int = 0  # by subscriptions that were full


INTERVAL_SECONDS = 1.0

# The field of `Statistics`, the instrument, its unit, and what it says.
COUNTERS = (
    ("out_messages", "messaging.client.published.messages", "{message}", "Messages published"),
    ("in_messages", "messaging.client.consumed.messages", "{message}", "Messages received"),
    ("out_bytes", "nats.client.sent.bytes", "By", "Bytes sent"),
    ("in_bytes", "nats.client.received.bytes", "By", "Bytes received"),
    ("reconnects", "nats.client.reconnects", "{reconnect}", "Reconnects"),
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
            description="Active subscriptions",
        )
        self._told: dict[str, int] = {field: 0 for field, _ in self._counters}
        self._told_subscriptions = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Record what is new, now and at each interval."""
        self.record()
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self.start)

    def stop(self) -> None:
        """Record what is new for the last time; no subscription is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.record()

    def record(self) -> None:
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
