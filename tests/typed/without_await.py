"""What a type checker knows of `slipstream.sync`."""

from collections.abc import Iterator
from typing import Any, assert_type

import pyarrow

import slipstream.sync
from slipstream.client import Status
from slipstream.client.events import Event
from slipstream.client.jetstream import ConsumerInfo, DeadLetter, PubAck, StoredMessage, StreamInfo
from slipstream.client.kv import KeyValueEntry
from slipstream.client.object_store import ObjectInfo
from slipstream.client.services import ServiceInfo
from slipstream.sync import (
    AtomicBatch,
    Connection,
    JetStream,
    JetStreamMessage,
    KeyValue,
    Message,
    MessageBatch,
    ObjectReader,
    PendingResult,
    PullConsumer,
    Scan,
    Service,
    ServiceRequest,
    Stream,
)


def double(message: Message) -> None:
    message.respond(message.data * 2)


def connections() -> None:
    with slipstream.sync.connect("nats://127.0.0.1:4222", name="billing") as nc:
        assert_type(nc, Connection)
        assert_type(nc.status, Status)
        assert_type(nc.request("double", b"1", timeout=2), Message[bytes])
        assert_type(
            nc.request_many("parts", sentinel=lambda m: not m.data), Iterator[Message[bytes]]
        )
        with nc.subscribe("double", handler=double) as subscription:
            assert_type(subscription.next(timeout=1), Message)
        for message in nc.subscribe("orders"):
            assert_type(message, Message[bytes])
        for event in nc.events():
            assert_type(event, Event)
        nc.publsh("orders")  # type: ignore[attr-defined]
        nc.publish("orders", headers=7)  # type: ignore[arg-type]
        nc.request("orders", timout=2)  # type: ignore[call-overload]


def streams(js: JetStream) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    assert_type(stream, Stream)
    assert_type(js.publish("orders.new", b""), PubAck)
    assert_type(js.publish_async("orders.new", b""), PendingResult[PubAck])
    assert_type(js.publish_async("orders.new", b"").result(timeout=1), PubAck)
    assert_type(stream.get_message(1), StoredMessage)
    assert_type(js.streams(), Iterator[StreamInfo])
    with js.atomic_batch() as batch:
        assert_type(batch, AtomicBatch)
        batch.add("orders.new", b"")
    assert_type(batch.ack, PubAck | None)
    for rows in stream.scan():
        assert_type(rows, pyarrow.RecordBatch)
    assert_type(stream.scan(), Scan)
    js.timeout = 3
    js.timeout = "3"  # type: ignore[assignment]


def consumers(consumer: PullConsumer) -> None:
    assert_type(consumer.info(), ConsumerInfo)
    batch = consumer.fetch(10, timeout=1)
    assert_type(batch, MessageBatch[bytes])
    assert_type(batch.error, Exception | None)
    assert_type(batch[0], JetStreamMessage[bytes])
    assert_type(batch[1:], list[JetStreamMessage[bytes]])
    for message in batch:
        message.ack()
        message.ack_sync(timeout=1)
        assert_type(message.metadata.stream_sequence, int)
    with consumer.messages() as messages:
        assert_type(next(messages), JetStreamMessage[bytes])
    with consumer.consume(lambda message: message.ack()) as work:
        assert_type(work.is_closed, bool)
    for letter in consumer.dead_letters():
        assert_type(letter, DeadLetter)


def buckets(kv: KeyValue, js: JetStream) -> None:
    assert_type(kv.put("a", b"1"), int)
    assert_type(kv.get("a"), KeyValueEntry)
    assert_type(kv.keys(), list[str])
    with kv.watch() as watch:
        for entry in watch:
            assert_type(entry, KeyValueEntry[Any | None] | None)
    store = js.object_store("files")
    with store.open("a") as reader:
        assert_type(reader, ObjectReader)
        assert_type(reader.read(), bytes)
        assert_type(store.put("b", reader), ObjectInfo)
    assert_type(store.put("c", (part for part in [b"1", b"2"])), ObjectInfo)


def services(nc: Connection) -> None:
    def root(request: ServiceRequest) -> str:
        return str(float(request.data) ** 0.5)

    with nc.add_service("calculator", "1.0.0") as service:
        assert_type(service, Service)
        service.add_group("math").add_endpoint("root", root)
    for info in nc.services.info("calculator"):
        assert_type(info, ServiceInfo)
