"""Values instead of bytes, and spans around what is done with messages."""

from dataclasses import dataclass

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import slipstream
from slipstream.client.codecs import CodecError


class Order(msgspec.Struct):
    number: int


@dataclass
class Item:
    name: str


async def test_a_value_is_published_and_read_by_its_type(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.publish(subscription.subject, Order(17))
    await nc.publish(subscription.subject, Item("rope"))
    assert (await subscription.next(5)).decode(Order) == Order(17)
    message = await subscription.next(5)
    assert message.decode(Item) == Item("rope")
    with pytest.raises(CodecError, match="is not a Order"):
        message.decode(Order)


async def test_a_handler_may_answer_with_a_value(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda m: m.respond(Order(m.decode(Order).number + 1)))
    assert (await nc.request(subject, Order(1))).decode(Order) == Order(2)


async def test_spans_follow_a_message_from_publish_to_handler(server_url: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with await slipstream.connect(server_url, tracer_provider=provider) as nc:
        subject = "traced." + nc.new_id()
        subscription = await nc.subscribe(subject, handler=lambda m: m.respond(b"ok"))
        answer = await nc.request(subject, b"x", headers={"Kind": "web"})
        assert answer.data == b"ok"
        await subscription.drain()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    asked, processed = spans[f"{subject} request"], spans[f"{subject} process"]
    assert asked.context is not None
    assert processed.parent is not None
    assert processed.parent.span_id == asked.context.span_id
    assert asked.attributes is not None
    assert asked.attributes["server.address"] == "127.0.0.1"
