"""Spans of messages that are traced: what a stream does with one, and each of its deliveries.

Names and attributes are those of OpenTelemetry's messaging conventions, as far as these know such a
thing; what only JetStream has is in ``messaging.nats.``.

    ORDERS store              CONSUMER   from when a message came until it is durable, or refused
    ORDERS workers deliver    PRODUCER   from when it went out until it is acknowledged or is not

The parent of both is the publisher's span, as the message's `traceparent` names it. So they are
part of its trace, beside the client's own span of processing the message.
"""

import time

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from slipstream.engine.session.watch import (
    NAKED,
    TERMED,
    TIMED_OUT,
    HandedOut,
    Publication,
    TraceContext,
)
from slipstream.model.durations import SECOND
from slipstream.server.telemetry.exporters import SpanSender

WAITING_MAX = 2048  # spans that are finished and not sent yet; more of them are dropped
_FAILURES = {
    NAKED: "the consumer has refused it",
    TERMED: "the consumer has given it up",
    TIMED_OUT: "the consumer was not heard in time",
}
_propagator = TraceContextTextMapPropagator()


class MessageSpans:
    """The engine's `MessageWatch`, on the event loop. A span is made when it ends: none is left
    over when nothing more is heard of a message."""

    def __init__(self, tracer: Tracer, exporter: SpanSender) -> None:
        self.open = 0
        self._tracer = tracer
        self._exporter = exporter
        self._given = 0  # spans that were handed to the batch processor

    def now(self) -> int:
        return time.time_ns()

    def published(self, publication: Publication) -> None:
        attributes = _attributes(publication, "store", "receive")
        if publication.message_id:
            attributes["messaging.message.id"] = publication.message_id
        if publication.sequence:
            attributes["messaging.nats.stream.sequence"] = publication.sequence
        if publication.is_duplicate:
            attributes["messaging.nats.duplicate"] = True
        if publication.error_code:
            attributes["error.type"] = str(publication.error_code)
            attributes["messaging.nats.error.code"] = publication.error_code
        name = f"{publication.stream} store"
        self._put(name, SpanKind.CONSUMER, publication, attributes, publication.error)

    def delivered(self, delivery: HandedOut, outcome: str, reason: str) -> None:
        attributes = _attributes(delivery, "deliver", "send")
        attributes["messaging.consumer.group.name"] = delivery.consumer
        attributes["messaging.nats.consumer.name"] = delivery.consumer
        attributes["messaging.nats.stream.sequence"] = delivery.sequence
        attributes["messaging.nats.delivery.number"] = delivery.number
        attributes["messaging.nats.delivery.outcome"] = outcome
        age = max(delivery.began - delivery.stored_at, 0) / SECOND
        attributes["messaging.nats.message.age"] = age
        if reason:
            attributes["messaging.nats.delivery.reason"] = reason
        error = ""
        if outcome in _FAILURES:
            attributes["error.type"] = outcome
            error = reason or _FAILURES[outcome]
        name = f"{delivery.stream} {delivery.consumer} deliver"
        self._put(name, SpanKind.PRODUCER, delivery, attributes, error)

    def _put(
        self,
        name: str,
        kind: SpanKind,
        about: Publication | HandedOut,
        attributes: dict[str, AttributeValue],
        error: str,
    ) -> None:
        """A span that ends now."""
        if self._given - self._exporter.taken >= WAITING_MAX:
            self._exporter.report.lose(1, f"{WAITING_MAX} of them wait already")
            return
        span = self._tracer.start_span(
            name,
            context=_propagator.extract(_carrier(about.trace)),
            kind=kind,
            attributes=attributes,
            start_time=about.began,
        )
        if not span.is_recording():
            return
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        self._given += 1
        span.end(max(self.now(), about.began))


def _carrier(trace: TraceContext) -> dict[str, str]:
    carrier = {"traceparent": trace.parent}
    if trace.state:
        carrier["tracestate"] = trace.state
    return carrier


def _attributes(
    about: Publication | HandedOut, operation: str, type: str
) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "nats",
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
        "messaging.destination.name": about.subject,
        "messaging.message.body.size": about.body_size,
        "messaging.nats.account": about.account,
        "messaging.nats.stream.name": about.stream,
    }
