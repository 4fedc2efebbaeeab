"""Spans and their context in headers, when a tracer provider is set up; nothing otherwise."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import slipstream
from slipstream.client.telemetry import Telemetry, has_context, processing, telemetry_for
from slipstream.wire.headers import Headers


@dataclass
class Received:
    subject: str
    headers: Headers
    data: bytes = b"hello"
    reply: str = ""


@dataclass
class Traces:
    """Telemetry and what it exports."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        found = telemetry_for(self.provider)
        assert found is not None
        self.telemetry: Telemetry = found


def test_the_publishers_context_travels_to_the_one_who_processes() -> None:
    traces = Traces()
    traces.telemetry.describe_connection(host="nats.example", port=4222, client_id=7, name="shop")
    given = Headers({"Kind": "order"})
    with traces.telemetry.publish("orders.new", 5, given) as sent:
        pass
    assert "traceparent" not in given
    assert sent["Kind"] == "order"
    assert has_context(sent)
    message = Received("orders.new", sent, reply="_INBOX.1")
    with processing(message, traces.telemetry):
        pass
    published, processed = traces.exporter.get_finished_spans()
    assert (published.name, published.kind) == ("orders.new publish", SpanKind.PRODUCER)
    assert (processed.name, processed.kind) == ("orders.new process", SpanKind.CONSUMER)
    assert processed.parent is not None
    assert processed.parent.span_id == published.context.span_id
    attributes = dict(processed.attributes or {})
    assert attributes["messaging.system"] == "nats"
    assert attributes["server.address"] == "nats.example"
    assert attributes["messaging.message.body.size"] == 5
    assert attributes["messaging.nats.message.reply_to"] == "_INBOX.1"


def test_an_inbox_is_one_temporary_destination() -> None:
    traces = Traces()
    with traces.telemetry.publish("_INBOX.abc.1", 0, None, operation="request"):
        pass
    (span,) = traces.exporter.get_finished_spans()
    assert span.kind == SpanKind.CLIENT
    assert (span.attributes or {})["messaging.destination.name"] == "_INBOX"
    assert (span.attributes or {})["messaging.destination.temporary"] is True


def test_a_failure_ends_the_span_as_failed_and_goes_on() -> None:
    traces = Traces()
    with pytest.raises(ZeroDivisionError), traces.telemetry.publish("a", 0, None):
        _ = 1 / 0
    (span,) = traces.exporter.get_finished_spans()
    assert span.status.status_code == StatusCode.ERROR


def test_without_a_provider_there_is_no_telemetry_and_no_import() -> None:
    code = (
        "import sys; from slipstream.client.telemetry import telemetry_for, processing\n"
        "assert telemetry_for() is None and 'opentelemetry' not in sys.modules\n"
        "with processing(None): pass\n"
        "import opentelemetry.trace\n"
        "assert telemetry_for() is None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_stored_message_carries_its_publishers_context(server_url: str) -> None:
    traces = Traces()
    provider = traces.provider
    async with await slipstream.connect(server_url, tracer_provider=provider) as nc:
        js = nc.jetstream()
        name = f"traced_{nc.new_inbox().rpartition('.')[2]}"
        stream = await js.create_stream(name=name, subjects=[name])
        await js.publish(name, b"x", message_id="1")
        consumer = await stream.create_consumer(durable_name="c")
        handled = asyncio.Event()
        async with consumer.consume(lambda message: handled.set()):
            await asyncio.wait_for(handled.wait(), 10)
        await js.delete_stream(name)
    spans = {span.name: span for span in traces.exporter.get_finished_spans()}
    parent = spans[f"{name} process"].parent
    assert parent is not None
    assert parent.span_id == spans[f"{name} publish"].context.span_id


def test_a_batch_is_one_span_with_a_link_to_each_publisher() -> None:
    traces = Traces()
    sent = []
    for subject in ("orders.new", "orders.paid"):
        with traces.telemetry.publish(subject, 5, None) as headers:
            pass
        sent.append(Received(subject, headers))
    sent.append(Received("orders.new", Headers()))  # of somebody who does not trace
    with traces.telemetry.process_batch(sent):
        pass
    first, second, batch = traces.exporter.get_finished_spans()
    assert (batch.name, batch.kind, batch.parent) == ("process", SpanKind.CONSUMER, None)
    linked = [link.context.span_id for link in batch.links]
    assert linked == [first.context.span_id, second.context.span_id]
    attributes = dict(batch.attributes or {})
    assert attributes["messaging.batch.message_count"] == 3
    assert attributes["messaging.operation.type"] == "process"
    assert attributes["messaging.message.body.size"] == 15


def test_operations_have_the_names_and_types_of_the_conventions() -> None:
    traces = Traces()
    traces.telemetry.describe_connection(host="h", port=1, client_id=7)
    with traces.telemetry.publish("a", 0, None):
        pass
    with traces.telemetry.publish("a", 0, None, operation="request"):
        pass
    traces.telemetry.subscribed("a", "")
    said = [dict(span.attributes or {}) for span in traces.exporter.get_finished_spans()]
    assert [one["messaging.operation.name"] for one in said] == ["publish", "request", "subscribe"]
    assert [one.get("messaging.operation.type") for one in said] == ["send", "send", None]
    assert {one["messaging.client.id"] for one in said} == {"7"}


async def test_a_fetch_is_processed_under_one_span(server_url: str) -> None:
    traces = Traces()
    async with slipstream.connect(server_url, tracer_provider=traces.provider) as nc:
        js = nc.jetstream()
        name = f"batch_{nc.new_inbox().rpartition('.')[2]}"
        stream = await js.create_stream(name=name, subjects=[name])
        for _ in range(3):
            await js.publish(name, b"x")
        consumer = await stream.create_consumer(durable_name="c")
        with nc.processing(*await consumer.fetch(3)):
            pass
        with nc.processing():
            pass
        await js.delete_stream(name)
    spans = traces.exporter.get_finished_spans()
    published = [span.context.span_id for span in spans if span.name == f"{name} publish"]
    (batch,) = (span for span in spans if span.name == f"{name} process")
    assert [link.context.span_id for link in batch.links] == published
