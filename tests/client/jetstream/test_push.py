"""Push consumers: flow control, heartbeats, groups, and a bound where there is no flow control."""

import uuid

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, JetStreamMessage, PushConsumer, Stream
from slipstream.client.jetstream.errors import (
    AlreadyConsumingError,
    ConsumerDeletedError,
    SlowPushConsumerError,
)
from tests.client.jetstream.test_consume import fill, has_received, until
from tests.client.waiting import turns

HEARTBEAT = 0.1  # seconds of the server's clock, the shortest that it takes


async def test_messages_are_sent_unasked_and_acknowledged(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 50)
    consumer = await stream.create_push_consumer()
    seen = []
    async with consumer.messages() as messages:
        async for message in messages:
            seen.append(message.sequence)
            await message.ack()
            if len(seen) == 50:
                break
    assert seen == list(range(1, 51))
    await until(lambda: _acknowledged(consumer, 50))


async def _acknowledged(consumer: PushConsumer, wanted: int) -> bool:
    return (await consumer.info()).ack_floor.stream_seq == wanted


async def test_flow_control_carries_more_than_its_window(js: JetStream, stream: Stream) -> None:
    for _ in range(600):
        await js.publish_async(f"{stream.name}.a", bytes(16_000))
    await js.publish_async_complete()
    consumer = await stream.create_push_consumer(
        flow_control=True, idle_heartbeat=1, ack_policy="none"
    )
    async with consumer.messages() as messages:
        for sequence in range(1, 601):
            message = await messages.next(timeout=5)
            assert message is not None
            assert message.sequence == sequence


async def test_members_of_a_group_share(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    subject = f"deliver.{uuid.uuid4().hex}"
    await stream.create_push_consumer(
        durable_name="c", deliver_subject=subject, deliver_group="workers", max_ack_pending=-1
    )
    one, two = await stream.push_consumer("c"), await stream.push_consumer("c")
    seen: list[JetStreamMessage] = []
    async with one.consume(seen.append), two.consume(seen.append):
        await nc.flush()
        await fill(js, stream, 40)
        await until(lambda: _count(seen, 40))
    assert sorted(message.sequence for message in seen) == list(range(1, 41))


async def _count(seen: list[JetStreamMessage], wanted: int) -> bool:
    return len(seen) == wanted


async def test_what_a_slow_taker_does_not_take_is_dropped_and_said_so(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 30)
    consumer = await stream.create_push_consumer(ack_policy="none")
    troubles: list[Exception] = []
    async with consumer.messages(max_messages_pending=10, on_error=troubles.append) as messages:
        await until(lambda: _full(messages, troubles))
        assert messages.pending == 10
    assert isinstance(troubles[0], SlowPushConsumerError)
    assert len(troubles) == 1


async def _full(messages: slipstream.client.jetstream.Messages, troubles: list[Exception]) -> bool:
    return messages.pending == 10 and bool(troubles)


async def test_a_deleted_consumer_is_missed_by_its_heartbeat(stream: Stream) -> None:
    consumer = await stream.create_push_consumer(idle_heartbeat=HEARTBEAT)
    async with consumer.messages() as messages:
        assert await messages.next(timeout=5 * HEARTBEAT) is None
        await consumer.delete()
        with pytest.raises(ConsumerDeletedError):
            await messages.next(timeout=5)


async def test_headers_only_leaves_the_payload_out(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"12345")
    consumer = await stream.create_push_consumer(headers_only=True)
    async with consumer.messages() as messages:
        message = await messages.next(timeout=5)
    assert message is not None
    assert message.data == b""
    assert message.header("Nats-Msg-Size") == "5"


async def test_draining_takes_what_has_come(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_push_consumer()
    seen: list[JetStreamMessage] = []

    async def handle(message: JetStreamMessage) -> None:
        await turns()
        seen.append(message)

    before = nc.stats.in_messages
    async with consumer.consume(handle):
        await until(lambda: has_received(nc, before + 20))
    assert len(seen) == 20


async def test_a_second_reader_would_get_everything_twice(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_push_consumer()
    async with consumer.messages() as messages:
        assert await messages.next(timeout=5) is not None
        with pytest.raises(AlreadyConsumingError):
            consumer.messages()
        with pytest.raises(AlreadyConsumingError):
            consumer.consume(print)
    async for message in consumer.messages():
        await message.ack()
        break
    async with consumer.consume(print):
        pass


async def test_get_or_create(stream: Stream) -> None:
    subject = f"to.{stream.name}"
    made = await stream.get_or_create_push_consumer(durable_name="c", deliver_subject=subject)
    kept = await stream.get_or_create_push_consumer(durable_name="c", deliver_subject="other")
    assert kept.cached_info.config.deliver_subject == made.cached_info.config.deliver_subject
    assert (await stream.get_or_create_push_consumer()).name
    assert (await stream.get_or_create_consumer()).name
