"""Consumers: making, changing, finding, pausing, resetting, priority groups."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from slipstream.client.jetstream import ConsumerConfig, JetStream, Stream
from slipstream.client.jetstream.errors import (
    ApiError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    ConsumerTypeError,
    InvalidNameError,
    StreamNotFoundError,
)
from tests.client.jetstream.test_consume import fill, until_waiting
from tests.client.waiting import SOON


async def test_a_consumer_is_what_it_was_asked_to_be(stream: Stream) -> None:
    consumer = await stream.create_consumer(
        durable_name="c",
        ack_wait=timedelta(seconds=10),
        max_deliver=3,
        backoff=[1, 5],
        filter_subjects=[f"{stream.name}.a", f"{stream.name}.b"],
        max_ack_pending=17,
        metadata={"team": "billing"},
    )
    config = (await consumer.info()).config
    assert config.ack_wait == 1.0
    assert config.backoff == [1.0, 5.0]
    assert config.filters == [f"{stream.name}.a", f"{stream.name}.b"]
    assert (config.max_deliver, config.max_ack_pending, config.ack_policy) == (3, 17, "explicit")
    assert config.extra == {}


async def test_create_update_and_both(stream: Stream) -> None:
    config = ConsumerConfig(durable_name="c", description="one")
    with pytest.raises(ConsumerNotFoundError):
        await stream.update_consumer(config)
    await stream.create_consumer(config)
    await stream.create_consumer(config)
    with pytest.raises(ConsumerExistsError):
        await stream.create_consumer(config, description="two")
    updated = await stream.update_consumer(config, description="two")
    assert updated.cached_info.config.description == "two"
    both = await stream.create_or_update_consumer(config, description="three")
    assert both.cached_info.config.description == "three"
    kept = await stream.get_or_create_consumer(config)
    assert kept.cached_info.config.description == "three"


async def test_a_consumer_without_a_name_gets_one(stream: Stream) -> None:
    consumer = await stream.create_consumer()
    assert len(consumer.name) == 22
    assert (await stream.consumer(consumer.name)).name == consumer.name


async def test_consumers_are_listed_and_deleted(stream: Stream) -> None:
    for name in ("a", "b", "c"):
        await stream.create_consumer(durable_name=name)
    assert [name async for name in stream.consumer_names()] == ["a", "b", "c"]
    assert [info.name async for info in stream.consumers()] == ["a", "b", "c"]
    await stream.delete_consumer("b")
    assert [name async for name in stream.consumer_names()] == ["a", "c"]
    with pytest.raises(ConsumerNotFoundError):
        await stream.consumer("b")
    with pytest.raises(ConsumerNotFoundError):
        await stream.delete_consumer("b")
    with pytest.raises(InvalidNameError):
        await stream.consumer("a.b")


async def test_a_consumer_needs_a_stream(js: JetStream) -> None:
    with pytest.raises(StreamNotFoundError):
        await js.create_consumer("NOTHERE", durable_name="c")


async def test_push_and_pull_are_told_apart(stream: Stream) -> None:
    await stream.create_consumer(durable_name="pull")
    await stream.create_push_consumer(durable_name="push", deliver_subject="deliver.here")
    with pytest.raises(ConsumerTypeError):
        await stream.push_consumer("pull")
    with pytest.raises(ConsumerTypeError):
        await stream.consumer("push")
    with pytest.raises(ConsumerTypeError):
        await stream.create_consumer(durable_name="x", deliver_subject="deliver.there")
    with pytest.raises(ConsumerTypeError):
        await stream.create_push_consumer(durable_name="x")


async def test_pausing_and_resuming(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    paused = await consumer.pause(60)
    assert paused.paused
    assert 50 < float(paused.pause_remaining) <= 60  # type: ignore[arg-type]
    assert paused.pause_until is not None
    assert paused.pause_until > datetime.now(UTC)
    assert await consumer.next(timeout=SOON) is None
    assert (await consumer.info()).paused
    assert not (await consumer.resume()).paused
    assert await consumer.next(timeout=5) is not None


async def test_a_consumer_may_be_made_paused_and_is_left_so(stream: Stream) -> None:
    until = datetime.now(UTC) + timedelta(minutes=1)
    paused = await stream.create_consumer(name="p", pause_until=until)
    assert (await paused.info()).paused
    running = await stream.create_consumer(name="r")
    for put in (stream.create_or_update_consumer, stream.update_consumer):
        await put(name="r", pause_until=until, description="both")
    assert not (await running.info()).paused


async def test_a_consumer_may_go_back_or_on(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.fetch(5, timeout=5)
    info = await consumer.reset(3)
    assert info.reset_seq == 3
    message = await consumer.next(timeout=5)
    assert message is not None
    assert message.sequence == 3


async def test_unknown_priority_groups_are_refused(stream: Stream) -> None:
    consumer = await stream.create_consumer(
        durable_name="c", priority_policy="overflow", priority_groups=["A"]
    )
    with pytest.raises(ValueError, match="give group='A'"):
        await consumer.fetch(1, timeout=1)
    with pytest.raises(ApiError):
        await stream.unpin_consumer("c", "B")


async def test_overflow_serves_only_from_a_threshold_on(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(
        durable_name="c", priority_policy="overflow", priority_groups=["A"]
    )
    await fill(js, stream, 5)
    assert await consumer.fetch(1, timeout=SOON, group="A", min_pending=100) == []
    assert len(await consumer.fetch(1, timeout=5, group="A", min_pending=5)) == 1


async def test_a_pinned_client_gets_everything_until_it_is_unpinned(
    js: JetStream, stream: Stream
) -> None:
    first = await stream.create_consumer(
        durable_name="c",
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=60,
    )
    second = await stream.consumer("c")
    await fill(js, stream, 10)
    async with first.messages(group="A", max_messages=2) as pinned:
        for _ in range(5):
            assert await pinned.next(timeout=5) is not None
        assert await second.fetch(1, timeout=SOON, group="A") == []
        (state,) = (await first.info()).priority_groups
        assert state.pinned_client_id
        already = (await second.info()).num_waiting
        waiting = asyncio.ensure_future(second.fetch(1, timeout=20, group="A"))
        await until_waiting(second, already + 1)
        await first.unpin("A")
        assert len(await waiting) == 1


async def test_a_client_that_lost_its_pin_waits_in_line(js: JetStream, stream: Stream) -> None:
    first = await stream.create_consumer(
        durable_name="c",
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=60,
    )
    second = await stream.consumer("c")
    await fill(js, stream, 10)
    assert len(await first.fetch(1, timeout=5, group="A")) == 1
    await first.unpin("A")
    assert len(await second.fetch(1, timeout=5, group="A")) == 1
    assert await first.fetch(1, timeout=SOON, group="A") == []
    await second.unpin("A")
    assert len(await first.fetch(1, timeout=5, group="A")) == 1


async def test_priorities_put_one_request_before_another(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(
        durable_name="c", priority_policy="prioritized", priority_groups=["A"]
    )
    late = asyncio.ensure_future(consumer.fetch(1, timeout=20, group="A", priority=5))
    await until_waiting(consumer, 1)
    early = asyncio.ensure_future(consumer.fetch(1, timeout=20, group="A", priority=0))
    await until_waiting(consumer, 2)
    await fill(js, stream, 1)
    assert len(await early) == 1
    late.cancel()
    with pytest.raises(ValueError, match="0 to 9"):
        await consumer.fetch(1, timeout=1, group="A", priority=10)


async def test_a_consumer_says_why_it_is_silent(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=1)
    assert [one.code for one in (await consumer.why()).reasons] == [
        "nothing_pending",
        "nobody_asks",
    ]
    await fill(js, stream, 2)
    assert await consumer.next(timeout=20) is not None
    explained = await consumer.why()
    assert not explained.delivers
    assert [one.code for one in explained.reasons] == ["pending", "max_ack_pending", "nobody_asks"]
    assert [one.seq for one in explained.facts.outstanding] == [1]
