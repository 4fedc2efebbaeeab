"""Pull consumers: fetching, iterating, handlers, acknowledging, and what stays on the server."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import slipstream
from slipstream.client.codecs import CodecError
from slipstream.client.jetstream import JetStream, JetStreamMessage, PullConsumer, Stream
from slipstream.client.jetstream.errors import (
    AlreadyAcknowledgedError,
    BadPullRequestError,
    ConsumerDeletedError,
    ConsumeStoppedError,
    MaxBytesExceededError,
    NoConsumerResponseError,
    NotJetStreamMessageError,
)
from tests.client.waiting import SOON, turns


async def fill(js: JetStream, stream: Stream, count: int) -> None:
    for number in range(count):
        await js.publish_async(f"{stream.name}.{number % 3}", str(number))
    await js.publish_async_complete()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that the server does in its own time."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - only asking the server tells
            await asyncio.sleep(0.005)


async def has_received(nc: "slipstream.Connection", total: int) -> bool:
    """Messages here, not only on their way: a server counts as pending what it has not sent yet."""
    return nc.stats.in_messages >= total


async def waiting(consumer: PullConsumer) -> int:
    return (await consumer.info()).num_waiting


async def until_waiting(consumer: PullConsumer, count: int = 1) -> None:
    """Until so many pull requests wait on the server."""

    async def are_waiting() -> bool:
        return await waiting(consumer) >= count

    await until(are_waiting)


# -- fetch -------------------------------------------------------------------------------------


async def test_fetch_gives_what_is_asked_for_in_order(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 25)
    consumer = await stream.create_consumer(durable_name="c")
    first = await consumer.fetch(10, timeout=5)
    second = await consumer.fetch(10, timeout=5)
    assert [int(m.data) for m in first] == list(range(10))
    assert [int(m.data) for m in second] == list(range(10, 20))
    assert first.error is None


async def test_an_empty_fetch_is_an_empty_batch(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    assert await consumer.fetch(10, timeout=SOON) == []
    assert await consumer.fetch_no_wait(10) == []
    assert await consumer.next(timeout=SOON) is None


async def test_fetch_gives_fewer_when_the_time_is_over(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    assert len(await consumer.fetch(10, timeout=SOON)) == 3


async def test_fetch_no_wait_takes_what_is_there(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    assert len(await consumer.fetch_no_wait(10)) == 3
    assert await waiting(consumer) == 0


async def test_fetch_waits_for_messages_to_come(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.ensure_future(consumer.fetch(2, timeout=5))
    await until(lambda: _is(waiting(consumer), 1))
    await fill(js, stream, 2)
    assert len(await fetching) == 2


async def _is(value: Awaitable[int], wanted: int) -> bool:
    return await value == wanted


async def test_fetch_bytes_stays_within_its_bound(js: JetStream, stream: Stream) -> None:
    for _ in range(10):
        await js.publish(f"{stream.name}.a", bytes(1000))
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch_bytes(5000, timeout=1)
    assert 3 <= len(batch) <= 4
    assert sum(message.size for message in batch) <= 5000


async def test_a_message_larger_than_the_bound_is_an_error_that_says_so(
    js: JetStream, stream: Stream
) -> None:
    await js.publish(f"{stream.name}.a", bytes(1000))
    consumer = await stream.create_consumer(durable_name="c")
    with pytest.raises(MaxBytesExceededError):
        await consumer.fetch_bytes(100, timeout=1)


async def test_a_cancelled_fetch_leaves_no_pull_request_and_no_subscription(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    before = nc.stats.subscriptions
    fetching = asyncio.ensure_future(consumer.fetch(10, timeout=30))
    await until(lambda: _is(waiting(consumer), 1))
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert nc.stats.subscriptions == before
    await nc.flush()
    await until(lambda: _is(waiting(consumer), 0))


async def test_what_a_cancelled_fetch_had_received_comes_again_at_once(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=30)
    before = nc.stats.in_messages
    fetching = asyncio.ensure_future(consumer.fetch(10, timeout=30))
    await until(lambda: has_received(nc, before + 3))
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    again = await consumer.fetch(3, timeout=5)
    assert [m.metadata.num_delivered for m in again] == [2, 2, 2]


async def _pending(consumer: PullConsumer, wanted: int) -> bool:
    return (await consumer.info()).num_ack_pending == wanted


async def test_a_finished_fetch_leaves_no_pull_request(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    for _ in range(5):
        await consumer.fetch(10, timeout=SOON)
    await until(lambda: _is(waiting(consumer), 0))


async def test_fetch_from_a_deleted_consumer_is_an_error(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.delete()
    with pytest.raises(NoConsumerResponseError):
        await consumer.fetch(1, timeout=1)


async def test_deleting_the_consumer_ends_a_fetch_that_waits(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.ensure_future(consumer.fetch(1, timeout=30))
    await until(lambda: _is(waiting(consumer), 1))
    await consumer.delete()
    with pytest.raises(ConsumerDeletedError):
        await fetching


async def test_a_request_the_server_refuses_is_an_error(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", max_batch=5)
    with pytest.raises(BadPullRequestError, match="MaxRequestBatch"):
        await consumer.fetch(6, timeout=1)


async def test_fetch_refuses_what_cannot_be(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    with pytest.raises(ValueError, match="positive"):
        await consumer.fetch(0)
    with pytest.raises(ValueError, match="half of the timeout"):
        await consumer.fetch(1, timeout=1, heartbeat=0.6)
    with pytest.raises(ValueError, match="no priority groups"):
        await consumer.fetch(1, group="A")


# -- acknowledging -----------------------------------------------------------------------------


async def test_acknowledged_messages_do_not_come_again(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c")
    for message in await consumer.fetch(10, timeout=5):
        await message.ack()
    await until(lambda: _pending(consumer, 0))
    info = await consumer.info()
    assert info.ack_floor.stream_seq == 10
    assert info.num_pending == 0


async def test_a_double_ack_is_confirmed(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    message = await consumer.next(timeout=5)
    assert message is not None
    await message.ack_sync()
    assert (await consumer.info()).ack_floor.stream_seq == 1
    assert message.is_acknowledged


async def test_every_final_acknowledgement_may_be_confirmed(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    first, second = await consumer.fetch(2, timeout=5)
    await first.in_progress_sync()
    await first.in_progress_sync(timeout=5)
    await first.nak_sync(delay=60)
    await second.term_sync("why")
    assert (await consumer.info()).num_ack_pending == 1
    with pytest.raises(AlreadyAcknowledgedError):
        await second.ack_sync()


async def test_nak_brings_a_message_back_and_term_does_not(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    first, second = await consumer.fetch(2, timeout=5)
    await first.nak()
    await second.term("no such customer")
    again = await consumer.next(timeout=5)
    assert again is not None
    assert again.sequence == 1
    assert again.metadata.num_delivered == 2
    assert await consumer.next(timeout=SOON) is None


async def test_nak_with_a_delay_brings_it_back_later(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    (message,) = await consumer.fetch(1, timeout=5)
    await message.nak(delay=0.2)
    assert await consumer.next(timeout=SOON) is None
    assert await consumer.next(timeout=5) is not None


async def test_in_progress_keeps_a_message(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=0.3)
    (message,) = await consumer.fetch(1, timeout=5)
    for _ in range(5):  # longer than ack_wait, by the server's own clock
        await asyncio.sleep(0.1)
        await message.in_progress()
    assert await consumer.next(timeout=SOON) is None
    await message.ack()


async def test_only_the_first_final_acknowledgement_counts(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    (message,) = await consumer.fetch(1, timeout=5)
    await message.ack()
    with pytest.raises(AlreadyAcknowledgedError):
        await message.nak()


def test_a_message_that_no_consumer_delivered_cannot_be_acknowledged() -> None:
    message = JetStreamMessage("orders.new", b"x")
    with pytest.raises(NotJetStreamMessageError):
        message.ack()
    with pytest.raises(NotJetStreamMessageError):
        assert message.metadata


async def test_metadata_tells_where_a_message_stands(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c", filter_subject=f"{stream.name}.1")
    (message,) = await consumer.fetch(1, timeout=5)
    metadata = message.metadata
    assert (metadata.stream, metadata.consumer) == (stream.name, "c")
    assert (metadata.stream_sequence, metadata.consumer_sequence) == (2, 1)
    assert (metadata.num_delivered, metadata.num_pending, metadata.domain) == (1, 0, "")
    stored = await stream.get_message(2)
    assert stored.time is not None
    assert metadata.timestamp == stored.time
    assert metadata.timestamp_ns == stored.time.ns


# -- messages and consume ----------------------------------------------------------------------


async def test_an_iterator_goes_on_past_many_requests(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 300)
    consumer = await stream.create_consumer(durable_name="c")
    seen = []
    async with consumer.messages(max_messages=10) as messages:
        async for message in messages:
            seen.append(int(message.data))
            await message.ack()
            if len(seen) == 300:
                break
    assert seen == list(range(300))
    await until(lambda: _is(waiting(consumer), 0))


async def test_a_slow_taker_holds_no_more_than_it_asked_for(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    consumer = await stream.create_consumer(durable_name="c")
    async with consumer.messages(max_messages=10) as messages:
        for _ in range(50):
            message = await messages.next(timeout=5)
            assert message is not None
            assert messages.pending <= 10


async def test_what_an_iterator_holds_when_it_stops_is_handed_back(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=30)
    async with consumer.messages() as messages:
        first = await messages.next(timeout=5)
        assert first is not None
        await first.ack()
        await until(lambda: _pending_taken(messages, 19))
    again = await consumer.fetch(19, timeout=5)
    assert sorted(m.sequence for m in again) == list(range(2, 21))
    with pytest.raises(ConsumeStoppedError):
        await messages.next(timeout=1)


async def _pending_taken(messages: slipstream.client.jetstream.Messages, wanted: int) -> bool:
    return messages.pending == wanted


async def test_drain_gives_out_what_has_come_and_ends(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    messages = consumer.messages()
    assert await messages.next(timeout=5) is not None
    await until(lambda: _pending_taken(messages, 19))
    await messages.drain()
    assert len([message async for message in messages]) == 19
    assert await waiting(consumer) == 0


async def test_stop_after_ends_the_iteration(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    seen = [message async for message in consumer.messages(stop_after=7)]
    assert len(seen) == 7
    assert (await consumer.info()).num_ack_pending == 7


async def test_bytes_bound_an_iterator_too(js: JetStream, stream: Stream) -> None:
    for _ in range(50):
        await js.publish_async(f"{stream.name}.a", bytes(1000))
    await js.publish_async_complete()
    consumer = await stream.create_consumer(durable_name="c")
    count = 0
    async with consumer.messages(max_bytes=5000) as messages:
        async for message in messages:
            await message.ack()
            count += 1
            assert messages.pending <= 5
            if count == 50:
                break


async def test_an_iterator_left_by_break_gives_up_its_subscription(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    before = nc.stats.subscriptions
    async for message in consumer.messages():
        await message.ack()
        break
    await asyncio.sleep(0)
    assert nc.stats.subscriptions == before


async def test_taking_messages_that_are_there_lets_others_run(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 400)
    consumer = await stream.create_consumer(durable_name="c")
    async with consumer.messages() as messages:
        first = await messages.next(timeout=5)
        assert first is not None
        await until(lambda: _pending_taken(messages, 399))
        turns: list[int] = []
        other = asyncio.ensure_future(_count_turns(turns))
        async for message in messages:
            if message.sequence == 399:
                break
        other.cancel()
    assert len(turns) >= 3


async def _count_turns(turns: list[int]) -> None:
    while True:
        turns.append(0)
        await asyncio.sleep(0)


async def test_a_handler_is_called_for_each_message(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 200)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[int] = []
    done = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        seen.append(int(message.data))
        await message.ack()
        if len(seen) == 200:
            done.set()

    async with consumer.consume(handle, max_messages=20):
        await asyncio.wait_for(done.wait(), 5)
    assert seen == list(range(200))
    await until(lambda: _pending(consumer, 0))


async def test_plain_functions_may_handle_messages(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[JetStreamMessage] = []
    consuming = consumer.consume(seen.append, stop_after=5)
    await consuming.closed()
    assert len(seen) == 5


async def test_a_handler_that_raises_is_reported_and_called_again(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    errors: list[Exception] = []

    def handle(message: JetStreamMessage) -> None:
        raise RuntimeError(message.data.decode())

    consuming = consumer.consume(handle, stop_after=3, on_error=errors.append)
    await consuming.closed()
    assert [str(error) for error in errors] == ["0", "1", "2"]


async def test_draining_a_handler_waits_for_what_has_come(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[JetStreamMessage] = []

    async def handle(message: JetStreamMessage) -> None:
        await turns()
        seen.append(message)

    before = nc.stats.in_messages
    consuming = consumer.consume(handle)
    await until(lambda: has_received(nc, before + 20))
    await consuming.drain()
    assert len(seen) == 20
    assert consuming.is_closed


async def test_draining_the_connection_lets_a_handler_see_what_has_come(
    server_url: str, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[JetStreamMessage] = []

    async def handle(message: JetStreamMessage) -> None:
        await turns()
        await message.ack()
        seen.append(message)

    async with await slipstream.connect(server_url) as nc:
        mine = await nc.jetstream().consumer(stream.name, "c")
        before = nc.stats.in_messages
        consuming = mine.consume(handle)
        await until(lambda: has_received(nc, before + 20))
        await nc.drain()
    assert len(seen) == 20
    assert consuming.is_closed
    await until(lambda: _pending(consumer, 0))


async def test_a_handler_may_stop_its_own_consuming(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[JetStreamMessage] = []

    async def handle(message: JetStreamMessage) -> None:
        seen.append(message)
        if len(seen) == 3:
            await consuming.stop()

    consuming = consumer.consume(handle)
    await consuming.closed()
    assert len(seen) == 3


async def test_deleting_the_consumer_ends_the_iteration_with_an_error(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    async with consumer.messages() as messages:
        await until(lambda: _is(waiting(consumer), 1))
        await consumer.delete()
        with pytest.raises(ConsumerDeletedError):
            await messages.next(timeout=5)


async def test_a_consumer_that_is_gone_is_found_out(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.delete()
    errors: list[Exception] = []
    with pytest.raises(ConsumerDeletedError):
        async for _ in consumer.messages(on_error=errors.append):
            pass
    assert isinstance(errors[0], NoConsumerResponseError)


async def test_a_batch_gives_each_message_as_it_comes(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    seen = [int(message.data) async for message in consumer.batch(10, expires=0.2)]
    assert seen == [0, 1, 2]


async def test_a_sequence_is_one_batch_after_the_other(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 6)
    consumer = await stream.create_consumer(durable_name="c")
    sizes = []
    async for batch in consumer.sequence(2):
        sizes.append(len([message async for message in batch]))
        if len(sizes) == 3:
            break
    assert sizes == [2, 2, 2]


class Order(msgspec.Struct):
    """What a shop sells."""

    number: int


async def test_a_type_given_to_consuming_decodes_values(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", Order(1))
    await js.publish(f"{stream.name}.a", b"no order")
    consumer = await stream.create_consumer(durable_name="c")
    good, bad = await consumer.fetch(2, timeout=5, type=Order)
    assert good.value == Order(1)
    assert good.decode(Order).number == 1
    with pytest.raises(CodecError):
        assert bad.value
