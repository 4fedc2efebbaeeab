"""What pull requests say, and what is left of them; what statuses are told as; shared pins."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, PullConsumer, Stream, pull
from slipstream.client.jetstream.errors import (
    BadPullRequestError,
    ConsumeError,
    ConsumerDeletedError,
    FeatureError,
    LeadershipChangedError,
    MaxBytesExceededError,
    MaxWaitingExceededError,
    NoConsumerResponseError,
    NoHeartbeatError,
    NotPullConsumerError,
    PinMismatchError,
    ServerShutdownError,
)
from tests.client.jetstream.test_consume import fill, until, until_waiting, waiting
from tests.client.waiting import SOON

SECOND = 1_000_000_000
Pulling = Callable[[PullConsumer], Awaitable[object]]


async def _messages(consumer: PullConsumer) -> None:
    async with consumer.messages() as messages:
        await messages.next(timeout=SOON)


async def _drained(consumer: PullConsumer) -> None:
    messages = consumer.messages()
    await messages.next(timeout=SOON)
    await messages.drain()


async def _handled(consumer: PullConsumer) -> None:
    async with consumer.consume(print):
        await until_waiting(consumer)


async def _batch(consumer: PullConsumer) -> None:
    assert [message async for message in consumer.batch(10, expires=SOON)] == []


async def _sequence(consumer: PullConsumer) -> None:
    async def taking() -> None:
        async for batch in consumer.sequence(10):
            async for _ in batch:
                pass

    task = asyncio.ensure_future(taking())
    await until_waiting(consumer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


PULLS: dict[str, tuple[Pulling, dict[str, Any]]] = {
    "fetch": (lambda c: c.fetch(10, timeout=SOON), {"batch": 10}),
    "fetch with a heartbeat": (
        lambda c: c.fetch(10, timeout=0.3, heartbeat=0.1),
        {"batch": 10, "idle_heartbeat": 0.1},
    ),
    "fetch_bytes": (
        lambda c: c.fetch_bytes(5000, timeout=SOON),
        {"batch": 1_000_000, "max_bytes": 5000},
    ),
    "fetch_no_wait": (lambda c: c.fetch_no_wait(10), {"batch": 10, "no_wait": True}),
    "next": (lambda c: c.next(timeout=SOON), {"batch": 1}),
    "batch": (_batch, {"batch": 10, "expires": SOON}),
    "sequence": (_sequence, {"batch": 10, "expires": 60}),
    "messages": (_messages, {"batch": 500, "expires": 30, "idle_heartbeat": 15}),
    "messages, drained": (_drained, {"batch": 500, "expires": 30, "idle_heartbeat": 15}),
    "consume": (_handled, {"batch": 500, "expires": 30, "idle_heartbeat": 15}),
}


@pytest.mark.parametrize("name", PULLS)
async def test_a_request_says_what_was_asked_and_is_gone_afterwards(
    nc: "slipstream.Connection", stream: Stream, name: str
) -> None:
    pulling, said = PULLS[name]
    consumer = await stream.create_consumer(name="c")
    routes = nc.stats.subscriptions
    async with await nc.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.c") as asked:
        await nc.flush()
        await pulling(consumer)
        body = json.loads((await asked.next(timeout=5)).data)
    for field in ("expires", "idle_heartbeat"):
        if field in body:
            body[field] /= SECOND
    if "expires" not in said:
        body.pop("expires", None)  # a little less than the timeout: see below
    assert body == said
    await until(lambda: _nothing_is_left(nc, routes, consumer))


async def _nothing_is_left(
    nc: "slipstream.Connection", routes: int, consumer: PullConsumer
) -> bool:
    return nc.stats.subscriptions == routes and await waiting(consumer) == 0


async def test_a_fetch_lives_half_a_minute_with_heartbeats_unless_told_otherwise(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(name="c")
    async with await nc.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.c") as asked:
        await nc.flush()
        await consumer.fetch(1)
        await consumer.fetch(1, timeout=9)
        long = json.loads((await asked.next(timeout=5)).data)
        short = json.loads((await asked.next(timeout=5)).data)
    assert 29.5 * SECOND < long["expires"] < 30 * SECOND
    assert long["idle_heartbeat"] == 5 * SECOND
    assert "idle_heartbeat" not in short


async def test_a_threshold_says_when_more_is_asked_for(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(name="c")
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.c"
    async with await nc.subscribe(subject) as asked:
        await nc.flush()
        async with consumer.messages(max_messages=10, threshold_messages=3) as messages:
            for _ in range(7):
                await messages.next(timeout=5)
            await nc.flush()
            assert asked.pending == 1
            await messages.next(timeout=5)
            await nc.flush()
        bodies = [json.loads((await asked.next(timeout=5)).data) for _ in range(2)]
    assert [body["batch"] for body in bodies] == [10, 8]


async def test_bytes_and_messages_bound_each_request(
    nc: "slipstream.Connection", js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(name="c")
    async with await nc.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.c") as asked:
        await nc.flush()
        async with consumer.messages(
            max_messages=4, max_bytes=3000, expires=2, heartbeat=1
        ) as messages:
            await messages.next(timeout=5)
        body = json.loads((await asked.next(timeout=5)).data)
    assert body == {
        "batch": 4, "max_bytes": 3000, "expires": 2 * SECOND, "idle_heartbeat": SECOND,
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [(0, 1, 0), (1, 0, 0), (1, 1, 0.6)])
async def test_a_batch_that_cannot_be_is_refused(
    stream: Stream, wrong: tuple[int, float, float]
) -> None:
    consumer = await stream.create_consumer(name="c")
    count, expires, heartbeat = wrong
    with pytest.raises(ValueError, match=r"positive|half of expires"):
        consumer.batch(count, expires=expires, heartbeat=heartbeat)


async def test_what_is_no_function_cannot_handle_messages(stream: Stream) -> None:
    consumer = await stream.create_consumer(name="c")
    with pytest.raises(TypeError, match="function"):
        consumer.consume(None)  # type: ignore[arg-type]


# -- what a server says, or fails to say ---------------------------------------------------------


async def elsewhere(
    nc: "slipstream.Connection", stream: Stream, answer: bytes | None
) -> PullConsumer:
    """A consumer whose pull requests go to a prefix where all are answered with a status."""
    consumer = await stream.create_consumer(name="c")
    prefix = nc.new_inbox()

    async def handle(message: slipstream.Message) -> None:
        if answer is not None:
            await nc.publish(message.reply, headers=b"NATS/1.0 %b\r\n\r\n" % answer)

    await nc.subscribe(f"{prefix}.CONSUMER.MSG.NEXT.>", handler=handle)
    await nc.flush()
    return PullConsumer(nc.jetstream(prefix=prefix, timeout=5), consumer.cached_info)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (b"503", NoConsumerResponseError),
        (b"409 Leadership Change", LeadershipChangedError),
        (b"409 Server Shutdown", ServerShutdownError),
        (b"409 Exceeded MaxWaiting", MaxWaitingExceededError),
        (b"423 Nats-Pin-Id mismatch", PinMismatchError),
        (b"499 Something New", ConsumeError),
    ],
)
async def test_what_may_be_repaired_is_told_and_asked_past(
    nc: "slipstream.Connection", stream: Stream, status: bytes, kind: type[Exception]
) -> None:
    consumer = await elsewhere(nc, stream, status)
    told: list[Exception] = []
    asked_again = asyncio.Event()

    def tell(error: Exception) -> None:
        told.append(error)
        if len(told) == 2:
            asked_again.set()

    async with asyncio.timeout(5), consumer.messages(on_error=tell) as messages:
        taking = asyncio.create_task(messages.next())
        await asked_again.wait()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    assert {type(error) for error in told} == {kind}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (b"400 Bad Request", BadPullRequestError),
        (b"409 Consumer Deleted", ConsumerDeletedError),
        (b"409 Consumer is push based", NotPullConsumerError),
        (b"409 Exceeded MaxRequestBatch of 5", BadPullRequestError),
        (b"412 Required Api Level", FeatureError),
    ],
)
async def test_what_cannot_be_repaired_ends_it(
    nc: "slipstream.Connection", stream: Stream, status: bytes, kind: type[Exception]
) -> None:
    consumer = await elsewhere(nc, stream, status)
    for pulling in (
        consumer.messages().next(timeout=5),
        consumer.consume(print).closed(),
        consumer.fetch(1, timeout=1),
        anext(consumer.batch(1, expires=1)),
    ):
        with pytest.raises(kind):
            await pulling


async def test_a_message_larger_than_all_bytes_ends_it(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", bytes(1000))
    consumer = await stream.create_consumer(name="c")
    with pytest.raises(MaxBytesExceededError):
        await consumer.messages(max_bytes=500).next(timeout=5)


async def test_silence_may_be_borne_a_number_of_times(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    consumer = await elsewhere(nc, stream, b"503")
    told: list[Exception] = []
    with pytest.raises(NoConsumerResponseError):
        await consumer.messages(max_consecutive_503=3, on_error=told.append).next(timeout=5)
    assert len(told) == 3


async def test_a_batch_ends_though_the_server_says_nothing(
    nc: "slipstream.Connection", stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "EXPIRY_GRACE", 0.05)
    consumer = await elsewhere(nc, stream, None)
    assert [message async for message in consumer.batch(5, expires=SOON)] == []
    with pytest.raises(NoHeartbeatError):
        await anext(consumer.batch(5, expires=5, heartbeat=0.02))
    with pytest.raises(NoHeartbeatError):
        await consumer.fetch(5, timeout=5, heartbeat=0.02)


# -- priority groups -----------------------------------------------------------------------------


@pytest.fixture
async def pinned(js: JetStream, stream: Stream) -> PullConsumer:
    """A consumer whose group is pinned to one client, and messages for it."""
    made = await stream.create_consumer(
        name="c",
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=60,
    )
    await fill(js, stream, 20)
    return made


async def test_a_pin_is_shared_by_all_that_pulls_through_a_handle(pinned: PullConsumer) -> None:
    async with pinned.messages(group="A", max_messages=2) as messages:
        assert await messages.next(timeout=5) is not None
        assert len(await pinned.fetch_no_wait(2, group="A")) == 2
    assert len([m async for m in pinned.batch(2, expires=5, group="A")]) == 2
    async with pinned.messages(group="A") as messages:
        assert await messages.next(timeout=5) is not None


async def test_a_client_that_lost_its_pin_is_told_and_waits(
    stream: Stream, pinned: PullConsumer
) -> None:
    other = await stream.consumer("c")
    told: list[Exception] = []
    async with pinned.messages(group="A", max_messages=2, on_error=told.append) as mine:
        assert await mine.next(timeout=5) is not None
        async with other.messages(group="A", max_messages=2) as theirs:
            assert await theirs.next(timeout=SOON) is None
            await pinned.unpin("A")
            assert await theirs.next(timeout=5) is not None
            while await mine.next(timeout=SOON) is not None:
                pass
            assert {type(error) for error in told} == {PinMismatchError}
            await other.unpin("A")
            assert await mine.next(timeout=5) is not None


async def test_an_outdated_pin_does_not_end_a_batch(stream: Stream, pinned: PullConsumer) -> None:
    assert len(await pinned.fetch(1, timeout=5, group="A")) == 1
    other = await stream.consumer("c")
    await pinned.unpin("A")
    assert len(await other.fetch(1, timeout=5, group="A")) == 1
    batch = pinned.batch(1, expires=5, group="A")
    taking = asyncio.ensure_future(anext(batch))
    await until_waiting(pinned)
    await other.unpin("A")
    assert (await taking).data


async def test_a_pinned_group_is_not_for_arrow(pinned: PullConsumer) -> None:
    with pytest.raises(ValueError, match="keeps the pin"):
        await pinned.fetch_arrow(1, group="A")


async def test_overflow_and_priorities_in_an_iteration(js: JetStream, stream: Stream) -> None:
    over = await stream.create_consumer(name="o", priority_policy="overflow", priority_groups=["A"])
    await fill(js, stream, 3)
    async with over.messages(group="A", min_pending=100) as messages:
        assert await messages.next(timeout=SOON) is None
    first = await over.fetch(1, timeout=5, group="A")
    assert len(first) == 1
    assert await over.fetch(1, timeout=SOON, group="A", min_ack_pending=2) == []
    assert len(await over.fetch(1, timeout=5, group="A", min_ack_pending=1)) == 1
    ranked = await stream.create_consumer(
        name="p", priority_policy="prioritized", priority_groups=["A"]
    )
    async with ranked.messages(group="A", priority=9) as last:
        assert await last.next(timeout=5) is not None
    with pytest.raises(ValueError, match="has priority groups"):
        ranked.messages()
    with pytest.raises(ValueError, match="0 to 9"):
        ranked.messages(group="A", priority=10)
