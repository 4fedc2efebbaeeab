"""Types where messages are asked for, registries, chains, and codecs that see headers."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import slipstream
from slipstream.client import Headers, Message
from slipstream.client.codecs import (
    Codec,
    CodecChain,
    CodecError,
    JsonCodec,
    MessageCodec,
    MsgpackCodec,
    TextCodec,
    Utf8Codec,
    codec_for,
    decode,
    encode,
)
from slipstream.client.services import ServiceError, ServiceRequest


class Order(msgspec.Struct):
    number: int


def packed(kind: Any) -> Codec[Any] | None:
    """A registry: MessagePack for structs, nothing else."""
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return MsgpackCodec(kind) if is_struct else None


@pytest.fixture
async def packing(server_url: str) -> AsyncIterator[slipstream.Connection]:
    async with await slipstream.connect(server_url, codecs=packed) as connection:
        yield connection


async def test_a_subscription_knows_the_type_of_its_messages(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox(), type=Order)
    await nc.publish(subscription.subject, Order(17))
    message = await subscription.next(5)
    assert message.value == Order(17)
    assert Message("a", b"x").value == b"x"


async def test_a_payload_that_can_not_be_read_stops_nothing(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox(), type=Order)
    for data in (b'{"number":1}', b"nonsense", b'{"number":3}'):
        await nc.publish(subscription.subject, data)
    await subscription.unsubscribe(max_messages=3)
    values: list[Any] = []
    async for message in subscription:
        try:
            values.append(message.value)
        except CodecError as error:
            values.append(type(error))
            assert message.data == b"nonsense"
    assert values == [Order(1), CodecError, Order(3)]


async def test_neither_does_it_stop_a_handler(nc: slipstream.Connection) -> None:
    values: list[Order] = []
    subscription = await nc.subscribe(
        nc.new_inbox(), handler=lambda m: values.append(m.value), type=Order
    )
    for data in (b"nonsense", b'{"number":3}'):
        await nc.publish(subscription.subject, data)
    await subscription.drain()
    assert values == [Order(3)]
    assert isinstance(nc.last_error, CodecError)


async def test_answers_have_types_too(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda m: m.respond(Order(m.value.number + 1)), type=Order)
    assert (await nc.request(subject, Order(1), type=Order)).value == Order(2)
    answers = nc.request_many(subject, Order(2), type=Order, max_messages=1)
    assert [answer.value async for answer in answers] == [Order(3)]


async def test_publishing_by_a_codec_in_place_of_the_values_type(
    nc: slipstream.Connection,
) -> None:
    subscription = await nc.subscribe(nc.new_inbox(), type=MsgpackCodec(Order))
    await nc.publish(subscription.subject, Order(1), type=MsgpackCodec(Order))
    message = await subscription.next(5)
    assert message.data == msgspec.msgpack.encode(Order(1))
    assert message.value == Order(1)


async def test_a_connections_registry_is_asked_first(packing: slipstream.Connection) -> None:
    nc = packing
    subscription = await nc.subscribe(nc.new_inbox(), type=Order)
    await nc.publish(subscription.subject, Order(1))
    nc.publish_nowait(subscription.subject, Order(2))
    await nc.publish(subscription.subject, {"number": 3})  # not known there: JSON
    await nc.publish(subscription.subject, "text")
    first, second, third, fourth = [await subscription.next(5) for _ in range(4)]
    assert first.data == msgspec.msgpack.encode(Order(1))
    assert [first.value, second.decode(Order)] == [Order(1), Order(2)]
    assert third.decode(dict) == {"number": 3}
    assert fourth.decode(str) == "text"
    await nc.subscribe(nc.new_inbox())
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda m: m.respond(m.value), type=Order)
    answer = await nc.request(subject, Order(5), type=Order)
    assert answer.data == msgspec.msgpack.encode(Order(5))
    assert answer.value == Order(5)


async def test_the_registry_counts_in_jetstream_and_buckets(
    packing: slipstream.Connection,
) -> None:
    js = packing.jetstream()
    name = "packed_" + packing.new_id()
    stream = await js.create_stream(name=name, subjects=[name])
    await js.publish(name, Order(1))
    await (await js.publish_async(name, Order(2), type=Order))
    consumer = await stream.create_consumer(durable_name="c")
    messages = await consumer.fetch(2, timeout=5, type=Order)
    assert [m.value for m in messages] == [Order(1), Order(2)]
    assert messages[0].data == msgspec.msgpack.encode(Order(1))
    assert messages[1].decode(Order) == Order(2)
    await js.delete_stream(name)
    bucket = await js.create_key_value(bucket=name, type=Order)
    await bucket.put("a", Order(3))
    assert (await bucket.get("a")).value == Order(3)
    assert await js.delete_key_value(name) is None


class Versioned:
    """Marks what it writes, and reads by the mark."""

    def encode(self, value: Order) -> bytes:
        return msgspec.json.encode(value)

    def decode(self, data: bytes) -> Order:
        return msgspec.json.decode(data, type=Order)

    def encode_message(self, value: Order, subject: str, headers: Headers) -> bytes:
        headers["Format"] = f"msgpack {subject.partition('.')[0]}"
        return msgspec.msgpack.encode(value)

    def decode_message(self, message: Any) -> Order:
        if message.headers.get("Format", "").startswith("msgpack"):
            return msgspec.msgpack.decode(message.data, type=Order)
        return self.decode(message.data)


async def test_a_codec_may_see_subject_and_headers(nc: slipstream.Connection) -> None:
    assert isinstance(Versioned(), MessageCodec)
    subscription = await nc.subscribe("v." + nc.new_id(), type=Versioned())
    given = {"Kind": "web"}
    await nc.publish(subscription.subject, Order(1), headers=given, type=Versioned())
    await nc.publish(subscription.subject, Order(2))
    first, second = [await subscription.next(5) for _ in range(2)]
    assert (first.headers["Format"], first.headers["Kind"]) == ("msgpack v", "web")
    assert given == {"Kind": "web"}
    assert [first.value, second.value] == [Order(1), Order(2)]


async def test_an_endpoint_has_a_type_and_says_so_to_who_sends_another(
    nc: slipstream.Connection,
) -> None:
    def double(request: ServiceRequest) -> Order:
        assert request.decode(Order) == request.value
        assert request.reply
        return Order(request.value.number * 2)

    name = "s" + nc.new_id()
    async with await nc.add_service(name, "1.0.0") as service:
        await service.add_endpoint(name, double, type=Order)
        assert (await nc.request(name, Order(4), type=Order)).value == Order(8)
        refused = ServiceError.of(await nc.request(name, b"nonsense"))
        assert refused is not None
        assert refused.code == 400
        assert "is not a Order" in refused.description


def test_a_chain_takes_the_first_codec_that_can() -> None:
    chain: CodecChain[Order] = CodecChain(MsgpackCodec(Order), JsonCodec(Order))
    assert codec_for(chain) is chain
    assert encode(Order(1), chain) == msgspec.msgpack.encode(Order(1))
    assert decode(msgspec.msgpack.encode(Order(2)), chain) == Order(2)
    assert decode(b'{"number":3}', chain) == Order(3)
    with pytest.raises(CodecError, match="malformed"):
        decode(b"nonsense", chain)
    with pytest.raises(CodecError, match="could not be encoded"):
        encode(17, CodecChain[Any](TextCodec()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (17, "17"),
        (-0.5, "-0.5"),
        (True, "true"),
        (Decimal("12.50"), "12.50"),
        (date(2026, 11, 21), "2026-11-21"),
        (datetime(2026, 11, 21, 13, 0, tzinfo=UTC), "2026-11-21T13:00:00Z"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ("text", "text"),
    ],
)
def test_single_values_are_plain_text(value: object, text: str) -> None:
    codec: Utf8Codec[object] = Utf8Codec(type(value))
    assert encode(value, codec) == text.encode()
    assert decode(text.encode(), codec) == value


def test_what_is_no_single_value_is_no_text() -> None:
    with pytest.raises(CodecError, match="is no single value"):
        encode([1, 2], Utf8Codec[Any](list))
    with pytest.raises(CodecError, match="Utf8Codec"):
        decode(b"seven", Utf8Codec[Any](int))
