"""What a type checker knows of values: they have the type that a call was given."""

from typing import Any, assert_type

import msgspec

import slipstream
import slipstream.sync
from slipstream.client.codecs import MsgpackCodec, decode
from slipstream.client.jetstream import StoredMessage
from slipstream.client.kv import KeyValueEntry
from slipstream.client.services import Service, ServiceRequest


class Order(msgspec.Struct):
    number: int


class Cancelled(msgspec.Struct):
    number: int


async def decoded(message: slipstream.Message, stored: StoredMessage) -> None:
    assert_type(message.decode(Order), Order)
    assert_type(message.decode(list[int]), list[int])
    assert_type(message.decode(MsgpackCodec(Order)), Order)
    either: Order | Cancelled = message.decode(Order | Cancelled)
    assert_type(either.number, int)
    assert_type(stored.decode(Order), Order)
    either = stored.decode(Order | Cancelled)
    assert_type(decode(b"{}", Order), Order)
    either = decode(b"{}", Order | Cancelled)
    assert_type(MsgpackCodec(Order | Cancelled), MsgpackCodec[Any])


async def subscribed(nc: slipstream.Connection) -> None:
    typed = await nc.subscribe("orders", type=Order)
    assert_type(typed, slipstream.Subscription[Order])
    async for message in typed:
        assert_type(message.value, Order)
    assert_type((await typed.next()).value, Order)
    packed = await nc.subscribe("orders", type=MsgpackCodec(Order))
    assert_type((await packed.next()).value, Order)
    plain = await nc.subscribe("orders")
    assert_type((await plain.next()).value, bytes)
    either = await nc.subscribe("orders", type=Order | Cancelled)
    assert_type((await either.next()).value, Any)
    assert_type((await nc.request("orders", type=Order)).value, Order)
    async for answer in nc.request_many("orders", type=list[int]):
        assert_type(answer.value, list[int])

    async def ship(message: slipstream.Message[Order]) -> None:
        assert_type(message.value, Order)

    def any_of_them(message: slipstream.Message) -> None:
        assert_type(message.value, Any)

    await nc.subscribe("orders", handler=ship, type=Order)
    await nc.subscribe("orders", handler=any_of_them)
    await nc.subscribe("orders", handler=any_of_them, type=Order | Cancelled)
    await nc.subscribe("orders", handler=lambda one: print(one.value.number), type=Order)


async def consumed(js: slipstream.JetStream) -> None:
    consumer = await js.consumer("ORDERS", "billing")
    for message in await consumer.fetch(10, type=Order):
        assert_type(message, slipstream.JetStreamMessage[Order])
        assert_type(message.value, Order)
    one = await consumer.next(type=Order)
    if one is not None:
        await subscribes_to_messages(one)
    async with consumer.messages(type=Order) as messages:
        async for message in messages:
            assert_type(message.value, Order)

    async def bill(message: slipstream.JetStreamMessage[Order]) -> None:
        assert_type(message.value.number, int)

    async with consumer.consume(bill, type=Order):
        pass
    ordered = js.ordered_consumer("ORDERS")
    assert_type((await ordered.fetch(1, type=Order))[0].value, Order)
    assert_type((await ordered.fetch(1))[0].value, bytes)
    assert_type((await ordered.fetch(1, type=Order | Cancelled))[0].value, Any)
    push = await js.push_consumer("ORDERS", "mail")
    async with push.messages(type=Order) as pushed:
        assert_type((await anext(pushed)).value, Order)


async def subscribes_to_messages(message: slipstream.Message[Order]) -> None:
    """What takes a message takes one of a consumer."""


async def buckets(js: slipstream.JetStream) -> None:
    kv = await js.create_key_value("orders", type=Order, history=5)
    assert_type(kv, slipstream.KeyValue[Order])
    entry = await kv.get("1")
    assert_type(entry.value, Order)
    assert_type(await kv.get_value("1"), Order | None)
    assert_type(await kv.get_value("1", 0), Order | int)
    async with await kv.watch() as watch:
        async for change in watch:
            assert_type(change, KeyValueEntry[Order | None] | None)
            if change is not None and change.value is not None:
                assert_type(change.value.number, int)
    plain = await js.key_value("prefs")
    assert_type((await plain.get("a")).value, bytes)
    either = await js.key_value("orders", type=Order | Cancelled)
    assert_type((await either.get("a")).value, Any)
    packed = await js.key_value("orders", type=MsgpackCodec(Order))
    assert_type((await packed.get("a")).value, Order)
    takes_any(kv)
    takes_any(plain)


def takes_any(kv: slipstream.KeyValue) -> None:
    """A bucket of whatever type."""


async def services(service: Service) -> None:
    def ship(request: ServiceRequest[Order]) -> str:
        assert_type(request.value, Order)
        return "shipped"

    async def read(request: ServiceRequest) -> bytes:
        assert_type(request.decode(Order), Order)
        return request.data

    await service.add_endpoint("ship", ship, type=Order)
    await service.add_endpoint("read", read)
    await service.add_endpoint("number", lambda request: request.value.number, type=Order)
    await service.add_endpoint("size", lambda request: len(request.data))
    await service.add_endpoint("either", read, type=Order | Cancelled)


def without_await(js: slipstream.sync.JetStream, message: slipstream.sync.Message) -> None:
    assert_type(js.connection.subscribe("orders", type=Order).next().value, Order)
    assert_type(js.consumer("ORDERS", "billing").fetch(1, type=Order)[0].value, Order)
    kv = js.create_key_value("orders", type=Order)
    assert_type(kv, slipstream.sync.KeyValue[Order])
    assert_type(kv.get("1").value, Order)
    for change in kv.watch():
        assert_type(change, KeyValueEntry[Order | None] | None)
    either: Order | Cancelled = message.decode(Order | Cancelled)
    assert_type(either.number, int)

    def ship(request: slipstream.sync.ServiceRequest[Order]) -> str:
        return str(request.value.number)

    with js.connection.add_service("orders", "1.0.0") as service:
        service.add_endpoint("ship", ship, type=Order)
