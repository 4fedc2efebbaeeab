"""What spans say, which of them there are, the baggage that travels, and the metrics."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, StatusCode

import slipstream
from slipstream.client import Operation, TelemetryOptions
from slipstream.client.events import Reconnected
from slipstream.client.services import ServiceRequest
from tests.client.proxy import Proxy


@dataclass
class Traces:
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    async def connect(self, url: str, **options: Any) -> slipstream.Connection:
        return await slipstream.connect(
            url, tracer_provider=self.provider, telemetry=TelemetryOptions(**options)
        )

    def named(self, name: str) -> ReadableSpan:
        (span,) = (s for s in self.exporter.get_finished_spans() if s.name == name)
        return span


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_spans_say_who_spoke_to_whom_about_what(server_url: str) -> None:
    traces = Traces()
    async with await traces.connect(server_url) as nc:
        subject = "said." + nc.new_id()
        subscription = await nc.subscribe(
            subject + ".*", queue="workers", handler=lambda m: m.respond(b"ok")
        )
        await nc.request(subject + ".a", b"12345")
        await subscription.drain()
    subscribed = said(traces.named(f"{subject}.* subscribe"))
    assert subscribed["messaging.destination.template"] == f"{subject}.*"
    assert subscribed["messaging.consumer.group.name"] == "workers"
    port = int(server_url.rpartition(":")[2])
    asked = said(traces.named(f"{subject}.a request"))
    assert asked["messaging.system"] == "nats"
    assert asked["messaging.operation"] == "request"
    assert asked["messaging.client_id"].isdigit()
    assert (asked["server.address"], asked["server.port"]) == ("127.0.0.1", port)
    assert (asked["network.peer.address"], asked["network.peer.port"]) == ("127.0.0.1", port)
    assert asked["network.local.address"] == "127.0.0.1"
    assert (asked["network.protocol.name"], asked["network.transport"]) == ("nats", "tcp")
    processed = said(traces.named(f"{subject}.a process"))
    assert processed["messaging.destination.name"] == f"{subject}.a"
    assert processed["messaging.destination.template"] == f"{subject}.*"
    assert processed["messaging.destination_publish.name"] == f"{subject}.a"
    assert processed["messaging.nats.message.subject"] == f"{subject}.a"
    assert processed["messaging.nats.message.reply_to"].startswith("_INBOX.")
    assert processed["messaging.consumer.group.name"] == "workers"
    assert processed["messaging.message.body.size"] == 5
    assert processed["messaging.message.envelope.size"] > 5 + len(subject)


async def test_a_failure_names_the_kind_of_error(server_url: str) -> None:
    traces = Traces()
    async with await traces.connect(server_url) as nc:
        subject = "nobody." + nc.new_id()
        with pytest.raises(slipstream.client.NoRespondersError):
            await nc.request(subject)
    span = traces.named(f"{subject} request")
    assert said(span)["error.type"] == "NoRespondersError"
    assert span.status.status_code == StatusCode.ERROR
    assert span.events[0].name == "exception"


async def test_spans_can_be_chosen_named_and_added_to(server_url: str) -> None:
    def enrich(span: Span, about: Operation) -> None:
        span.set_attribute("shop", f"{about.name} {about.body_size}")

    def choose(about: Operation) -> bool:
        if about.subject.startswith("broken."):
            raise ZeroDivisionError
        return not about.subject.startswith("health.")

    traces = Traces()
    async with await traces.connect(
        server_url,
        filter=choose,
        enrich=enrich,
        destination_name=lambda subject: subject.split(".")[0] + ".{id}",
    ) as nc:
        subscription = await nc.subscribe("health." + nc.new_id())
        await nc.publish(subscription.subject, b"up")
        await nc.publish("broken.a", b"up")
        assert "traceparent" not in (await subscription.next(5)).headers
        await nc.publish("orders.17", b"rope")
    (span,) = traces.exporter.get_finished_spans()
    assert span.name == "orders.{id} publish"
    assert said(span)["messaging.destination.name"] == "orders.{id}"
    assert said(span)["messaging.destination.template"] == "orders.{id}"
    assert said(span)["messaging.nats.message.subject"] == "orders.17"
    assert said(span)["shop"] == "publish 4"


async def test_functions_that_raise_cost_nothing_but_a_log_line(server_url: str) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    traces = Traces()
    async with await traces.connect(
        server_url, enrich=broken, destination_name=broken, baggage_source=broken
    ) as nc:
        await nc.publish("kept", b"x")
    assert traces.named("kept publish")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"tenant": "7", "secret": "x"}),
        ({"propagate_baggage": False}, {}),
        ({"baggage_keys": lambda key: key == "tenant"}, {"tenant": "7"}),
        (
            {"propagate_baggage": False, "baggage_source": lambda: {"region": "eu"}},
            {"region": "eu"},
        ),
    ],
)
async def test_baggage_travels_as_far_as_the_options_let_it(
    server_url: str, options: dict[str, Any], expected: dict[str, str]
) -> None:
    traces = Traces()
    found: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
    async with await traces.connect(server_url, **options) as nc:
        subscription = await nc.subscribe(
            "luggage." + nc.new_id(), handler=lambda m: found.set_result(dict(baggage.get_all()))
        )
        with_tenant = baggage.set_baggage("tenant", "7")
        token = context.attach(baggage.set_baggage("secret", "x", with_tenant))
        await nc.publish(subscription.subject)
        context.detach(token)
        assert await asyncio.wait_for(found, 5) == expected


async def test_whoever_iterates_says_where_processing_begins(server_url: str) -> None:
    traces = Traces()
    async with await traces.connect(server_url) as nc:
        subscription = await nc.subscribe("taken." + nc.new_id())
        await nc.publish(subscription.subject, b"x")
        message = await subscription.next(5)
        with nc.processing(message):
            pass
    parent = traces.named(f"{subscription.subject} process").parent
    assert parent is not None
    assert parent.span_id == traces.named(f"{subscription.subject} publish").context.span_id


async def test_a_service_answers_inside_a_span(server_url: str) -> None:
    def answer(request: ServiceRequest) -> bytes:
        return request.data

    traces = Traces()
    async with await traces.connect(server_url) as nc:
        name = "s" + nc.new_id()
        async with await nc.add_service(name, "1.0.0") as service:
            await service.add_endpoint(name, answer)
            await nc.request(name, b"x")
    parent = traces.named(f"{name} process").parent
    assert parent is not None
    assert parent.span_id == traces.named(f"{name} request").context.span_id


async def test_a_reconnect_has_a_span(server_url: str) -> None:
    traces = Traces()
    async with Proxy(server_url) as proxy, await traces.connect(proxy.url) as nc:
        events = nc.events()
        proxy.cut()
        async for event in events:
            if isinstance(event, Reconnected):
                break
    assert said(traces.named("reconnect"))["messaging.operation"] == "reconnect"


def values(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: sum(
            getattr(point, "value", None) or getattr(point, "count", 0)
            for point in metric.data.data_points
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_the_metrics_of_several_connections_add_up(server_url: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    for _ in range(2):
        async with await slipstream.connect(server_url, meter_provider=provider) as nc:
            subscription = await nc.subscribe("counted." + nc.new_id(), max_messages_pending=2)
            for _ in range(5):
                await nc.publish(subscription.subject, b"12345678")
            await nc.flush()
            assert nc.stats.dropped == 3
            assert nc._metrics is not None
            nc._metrics.record()
            await nc.reconnect()
    found = values(reader)
    assert found["messaging.client.published.messages"] == 10
    assert found["messaging.client.consumed.messages"] == 10
    assert found["nats.client.messages.dropped"] == 6
    assert found["nats.client.reconnects"] == 2
    assert found["nats.client.sent.bytes"] >= 80
    assert found["nats.client.received.bytes"] == found["nats.client.sent.bytes"]
    assert found["nats.client.active_subscriptions"] == 0  # they were told, and their end too
    assert found["messaging.client.operation.duration"] == 14


async def test_what_is_new_is_told_at_each_interval(server_url: str) -> None:
    reader = InMemoryMetricReader()
    async with await slipstream.connect(server_url, meter_provider=MeterProvider([reader])) as nc:
        await nc.subscribe("one." + nc.new_id())
        assert nc._metrics is not None
        nc._metrics.record()
        assert values(reader)["nats.client.active_subscriptions"] == 1
