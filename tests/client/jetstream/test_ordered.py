"""Ordered consumers of both kinds: every message once and in order, whatever is lost."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, JetStreamMessage, Messages, Stream
from slipstream.client.jetstream.errors import (
    ApiError,
    MaxBytesExceededError,
    OrderedBusyError,
    OrderedGapError,
    OrderedNotCreatedError,
    OrderedResetError,
    StreamNotFoundError,
)
from tests.client.jetstream.conftest import MakeStream
from tests.client.jetstream.test_consume import fill, until

KINDS = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])


async def take(messages: Messages, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await messages.next(timeout=5)
        assert message is not None
        found.append(message.sequence)
    return found


async def names(stream: Stream) -> list[str]:
    return [name async for name in stream.consumer_names()]


@KINDS
async def test_messages_come_in_order(js: JetStream, stream: Stream, push: bool) -> None:
    await fill(js, stream, 500)
    async with stream.ordered_consumer(push=push).messages() as messages:
        assert await take(messages, 500) == list(range(1, 501))


@KINDS
async def test_the_server_keeps_nothing_afterwards(
    js: JetStream, stream: Stream, push: bool
) -> None:
    await fill(js, stream, 3)
    async with stream.ordered_consumer(push=push).messages() as messages:
        await take(messages, 3)
        assert len(await names(stream)) == 1
    await until(lambda: _nothing(stream))


async def _nothing(stream: Stream) -> bool:
    return not await names(stream)


@KINDS
async def test_a_deleted_consumer_is_made_anew_behind_the_last_message(
    js: JetStream, stream: Stream, push: bool
) -> None:
    await fill(js, stream, 5)
    troubles: list[Exception] = []
    ordered = stream.ordered_consumer(push=push, idle_heartbeat=0.1)
    options = {} if push else {"expires": 1.0, "heartbeat": 0.1}
    async with ordered.messages(on_error=troubles.append, **options) as messages:  # type: ignore[arg-type]
        assert await take(messages, 5) == [1, 2, 3, 4, 5]
        (name,) = await names(stream)
        await stream.delete_consumer(name)
        await fill(js, stream, 3)
        assert await take(messages, 3) == [6, 7, 8]
    assert troubles


@KINDS
async def test_a_lost_message_is_read_again(
    nc: "slipstream.Connection", js: JetStream, stream: Stream, push: bool
) -> None:
    await fill(js, stream, 3)
    told: list[Exception] = []
    async with stream.ordered_consumer(push=push).messages(on_error=told.append) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        messages._queue.expected += 1  # as if one had been lost on the way
        await fill(js, stream, 3)
        assert await take(messages, 3) == [4, 5, 6]
    assert isinstance(told[0], OrderedGapError)


@KINDS
async def test_filters_and_starts(js: JetStream, stream: Stream, push: bool) -> None:
    await fill(js, stream, 9)
    subject = f"{stream.name}.1"
    ordered = stream.ordered_consumer(push=push, filter_subjects=[subject])
    async with ordered.messages() as messages:
        assert await take(messages, 3) == [2, 5, 8]
    late = stream.ordered_consumer(push=push, deliver_policy="by_start_sequence", opt_start_seq=7)
    async with late.messages(stop_after=3) as messages:
        assert [m.sequence async for m in messages] == [7, 8, 9]
    last = stream.ordered_consumer(push=push, deliver_policy="last_per_subject")
    async with last.messages() as messages:
        assert await take(messages, 3) == [7, 8, 9]


@KINDS
async def test_a_handler_gets_them_too(js: JetStream, stream: Stream, push: bool) -> None:
    await fill(js, stream, 20)
    seen: list[JetStreamMessage] = []
    consuming = stream.ordered_consumer(push=push).consume(seen.append, stop_after=20)
    await consuming.closed()
    assert [message.sequence for message in seen] == list(range(1, 21))


@KINDS
async def test_a_stream_that_is_not_there_is_an_error(js: JetStream, push: bool) -> None:
    with pytest.raises(StreamNotFoundError):
        async with js.ordered_consumer("NOTHERE", push=push).messages():
            pass


@KINDS
async def test_deleting_the_stream_ends_it_with_an_error(
    js: JetStream, make_stream: MakeStream, push: bool
) -> None:
    stream = await make_stream()
    await fill(js, stream, 1)
    ordered = stream.ordered_consumer(push=push, idle_heartbeat=0.1)
    options = {} if push else {"expires": 1.0, "heartbeat": 0.1}
    async with ordered.messages(**options) as messages:  # type: ignore[arg-type]
        await take(messages, 1)
        await stream.delete()
        with pytest.raises(StreamNotFoundError):
            await messages.next(timeout=5)


async def test_a_wrong_configuration_is_refused_at_once(stream: Stream) -> None:
    ordered = stream.ordered_consumer(deliver_policy="by_start_sequence")
    with pytest.raises(ApiError):
        async with ordered.messages():
            pass


async def test_fetch_goes_on_where_it_ended(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    ordered = stream.ordered_consumer()
    assert [m.sequence for m in await ordered.fetch(4, timeout=5)] == [1, 2, 3, 4]
    (name,) = await names(stream)
    await stream.delete_consumer(name)
    assert [m.sequence for m in await ordered.fetch(4, timeout=5)] == [5, 6, 7, 8]
    rest = await ordered.fetch(10, timeout=5, no_wait=True)
    assert [m.sequence for m in rest] == [9, 10]
    assert await ordered.fetch(1, timeout=5, no_wait=True) == []
    await ordered.close()
    await until(lambda: _nothing(stream))


async def test_one_fetch_at_a_time(stream: Stream) -> None:
    ordered = stream.ordered_consumer()
    first = asyncio.ensure_future(ordered.fetch(1, timeout=5))
    await asyncio.sleep(0)
    with pytest.raises(OrderedBusyError):
        await ordered.fetch(1, timeout=5)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_its_info_is_that_of_the_consumer_it_is_just_now(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 5)
    ordered = stream.ordered_consumer(name_prefix="mine")
    with pytest.raises(OrderedNotCreatedError):
        await ordered.info()
    assert len(await ordered.fetch_no_wait(2)) == 2
    info = await ordered.info()
    assert (info.name, info.num_pending) == ("mine_1", 3)
    config = ordered.cached_info.config
    assert (config.ack_policy, config.max_deliver, config.mem_storage) == ("none", 1, True)
    assert (config.num_replicas, config.inactive_threshold) == (1, 300.0)
    await ordered.close()
    with pytest.raises(OrderedNotCreatedError):
        assert ordered.cached_info
    async with ordered.messages() as messages:
        await take(messages, 1)
        assert (await ordered.info()).name == "mine_2"


async def test_the_push_kind_has_heartbeats_and_flow_control(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    ordered = stream.ordered_consumer(push=True)
    async with ordered.messages() as messages:
        await take(messages, 1)
        config = (await ordered.info()).config
    assert (config.flow_control, config.idle_heartbeat) == (True, 5.0)
    assert config.ack_wait == 22 * 3600


async def test_bytes_bound_a_fetch(js: JetStream, stream: Stream) -> None:
    for _ in range(10):
        await js.publish(f"{stream.name}.a", bytes(1000))
    ordered = stream.ordered_consumer()
    first = await ordered.fetch_bytes(5000, timeout=1)
    assert 3 <= len(first) <= 4
    second = await ordered.fetch_bytes(5000, timeout=1)
    assert second[0].sequence == first[-1].sequence + 1
    with pytest.raises(MaxBytesExceededError):
        await ordered.fetch_bytes(100, timeout=5)
    with pytest.raises(ValueError, match="positive"):
        await ordered.fetch(0)
    with pytest.raises(ValueError, match="half of the timeout"):
        await ordered.fetch(1, timeout=1, heartbeat=1)


async def test_attempts_at_making_it_anew_may_be_bounded(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    nowhere = nc.jetstream(prefix=nc.new_inbox())
    ordered = nowhere.ordered_consumer(stream.name, max_reset_attempts=2)
    with pytest.raises(OrderedResetError):
        await ordered.fetch(1, timeout=5)
    with pytest.raises(OrderedResetError):
        await ordered.messages().next(timeout=5)
