"""Bad weather: servers that stop and return, silence, broken connections under each call."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, JetStreamMessage, PullConsumer, Stream
from slipstream.client.jetstream.errors import (
    ConsumerDeletedError,
    NoHeartbeatError,
    PublishInterruptedError,
)
from tests.client.jetstream.conftest import MakeStream
from tests.client.jetstream.test_consume import fill, until, until_waiting
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy
from tests.client.waiting import turns

QUICK = {"expires": 2.0, "heartbeat": 0.1}


async def connect(server: OwnServer) -> "slipstream.Connection":
    return await slipstream.connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.1)


async def test_consuming_goes_on_when_the_server_returns(own_server: OwnServer) -> None:
    async with await connect(own_server) as nc:
        js: JetStream = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_consumer(durable_name="c")
        seen: list[int] = []

        async def handle(message: JetStreamMessage) -> None:
            seen.append(int(message.data))
            await message.ack()

        async with consumer.consume(handle):
            await fill_s(js, 0, 20)
            await until(lambda: _reached(seen, 20))
            await own_server.astop()
            await own_server.astart()
            await until(lambda: _connected(nc))
            await fill_s(js, 20, 40)
            await until(lambda: _reached(seen, 40))
        assert sorted(set(seen)) == list(range(40))


async def fill_s(js: JetStream, start: int, end: int) -> None:
    for number in range(start, end):
        await js.publish("s.a", str(number), retries=40)


async def _reached(seen: list[int], count: int) -> bool:
    return len(set(seen)) >= count


async def _connected(nc: "slipstream.Connection") -> bool:
    return nc.is_connected


@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
async def test_an_ordered_consumer_goes_on_when_the_server_returns(
    own_server: OwnServer, push: bool
) -> None:
    async with await connect(own_server) as nc:
        js: JetStream = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        await fill_s(js, 0, 10)
        async with stream.ordered_consumer(push=push).messages() as messages:
            seen = [await _take(messages) for _ in range(10)]
            await own_server.astop()
            await own_server.astart()
            await until(lambda: _connected(nc))
            await fill_s(js, 10, 20)
            seen += [await _take(messages) for _ in range(10)]
        assert seen == list(range(1, 21))


async def _take(messages: slipstream.client.jetstream.Messages) -> int:
    message = await messages.next(timeout=10)
    assert message is not None
    return message.sequence


async def test_a_fetch_that_waits_goes_on_when_the_server_returns(own_server: OwnServer) -> None:
    async with await connect(own_server) as nc:
        js: JetStream = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_consumer(durable_name="c")
        fetching = asyncio.ensure_future(consumer.fetch(5, timeout=60))
        await until_waiting(consumer)
        await own_server.astop()
        await own_server.astart()
        await until(lambda: _connected(nc))
        await fill_s(js, 0, 5)
        assert [int(m.data) for m in await fetching] == list(range(5))


async def test_a_consumer_that_did_not_survive_is_an_error(own_server: OwnServer) -> None:
    async with await connect(own_server) as nc:
        js: JetStream = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"], storage="memory")
        consumer = await stream.create_consumer(durable_name="c")
        async with consumer.messages(max_messages=10, **QUICK) as messages:  # type: ignore[arg-type]
            await own_server.astop()
            await own_server.astart()
            with pytest.raises(ConsumerDeletedError):
                await messages.next(timeout=10)


async def test_a_missed_heartbeat_is_reported_and_asked_past(
    proxy: Proxy, js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    await stream.create_consumer(durable_name="c")
    async with await slipstream.connect(proxy.url) as nc:
        consumer = await nc.jetstream().consumer(stream.name, "c")
        troubles: list[Exception] = []
        async with consumer.messages(on_error=troubles.append, **QUICK) as messages:
            proxy.hold()
            await until(lambda: _any(troubles))
            assert isinstance(troubles[0], NoHeartbeatError)
            proxy.go_on()
            await fill(js, stream, 3)
            for number in range(3):
                message = await messages.next(timeout=5)
                assert message is not None
                assert int(message.data) == number


async def _any(troubles: list[Exception]) -> bool:
    return bool(troubles)


async def test_a_missed_heartbeat_is_raised_if_so_asked(
    proxy: Proxy, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    await stream.create_consumer(durable_name="c")
    async with await slipstream.connect(proxy.url) as nc:
        consumer = await nc.jetstream().consumer(stream.name, "c")
        async with consumer.messages(raise_on_missing_heartbeat=True, **QUICK) as messages:
            proxy.hold()
            with pytest.raises(NoHeartbeatError):
                await messages.next(timeout=5)
            proxy.go_on()


async def test_a_fetch_notices_a_silent_server(proxy: Proxy, make_stream: MakeStream) -> None:
    stream = await make_stream()
    await stream.create_consumer(durable_name="c")
    async with await slipstream.connect(proxy.url) as nc:
        consumer = await nc.jetstream().consumer(stream.name, "c")
        proxy.hold()
        with pytest.raises(NoHeartbeatError):
            await consumer.fetch(1, timeout=10, heartbeat=0.1)
        proxy.go_on()


async def test_a_publish_whose_connection_broke_may_be_stored(
    proxy: Proxy, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    async with await slipstream.connect(proxy.url, reconnect_wait=0.02) as nc:
        js: JetStream = nc.jetstream()
        await js.publish(f"{stream.name}.a", b"before")
        proxy.hold()
        publishing = asyncio.ensure_future(js.publish(f"{stream.name}.a", b"x", message_id="one"))
        await turns()
        proxy.go_on()
        proxy.cut()
        with pytest.raises(PublishInterruptedError) as error:
            await publishing
        assert error.value.may_be_stored
        await js.publish(f"{stream.name}.a", b"x", message_id="one", timeout=5)
    assert (await stream.info()).state.messages == 2


async def test_what_was_never_sent_is_sent_on_the_next_connection(
    proxy: Proxy, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    async with await slipstream.connect(proxy.url, reconnect_wait=0.02) as nc:
        js: JetStream = nc.jetstream()
        await js.publish(f"{stream.name}.a", b"before")
        proxy.refuse = True
        proxy.cut()
        await until(lambda: _disconnected(nc))
        publishing = asyncio.ensure_future(js.publish(f"{stream.name}.a", b"later", timeout=10))
        await asyncio.sleep(0)
        proxy.refuse = False
        assert (await publishing).sequence == 2


async def _disconnected(nc: "slipstream.Connection") -> bool:
    return not nc.is_connected


async def test_cutting_while_messages_flow_loses_none(
    proxy: Proxy, js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    await fill(js, stream, 300)
    await stream.create_consumer(durable_name="c", ack_wait=0.5)
    async with await slipstream.connect(proxy.url, reconnect_wait=0.02) as nc:
        consumer = await nc.jetstream().consumer(stream.name, "c")
        seen: set[int] = set()
        async with consumer.messages(max_messages=50, **QUICK) as messages:
            async for message in messages:
                seen.add(int(message.data))
                await message.ack()
                if len(seen) % 100 == 50:
                    proxy.cut()
                if len(seen) == 300:
                    break
    assert seen == set(range(300))


async def test_cutting_under_an_ordered_consumer_repeats_nothing(
    proxy: Proxy, js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    await fill(js, stream, 300)
    async with await slipstream.connect(proxy.url, reconnect_wait=0.02) as nc:
        ordered = nc.jetstream().ordered_consumer(stream.name)
        seen: list[int] = []
        async with ordered.messages(max_messages=50) as messages:
            async for message in messages:
                seen.append(message.sequence)
                if len(seen) % 100 == 50:
                    proxy.cut()
                if len(seen) == 300:
                    break
    assert seen == list(range(1, 301))


@pytest.mark.parametrize("steps", range(6))
async def test_cancelling_anywhere_leaves_nothing_behind(
    nc: "slipstream.Connection", js: JetStream, make_stream: MakeStream, steps: int
) -> None:
    stream = await make_stream()
    consumer = await stream.create_consumer(durable_name="c")
    await js.publish(f"{stream.name}.a", b"x")
    before = nc.stats.subscriptions

    async def iterate(messages: slipstream.client.jetstream.Messages) -> None:
        async with messages:
            async for message in messages:
                await message.in_progress()

    for work in (
        consumer.fetch(10, timeout=30),
        iterate(consumer.messages()),
        iterate(stream.ordered_consumer().messages()),
        iterate(stream.ordered_consumer(push=True).messages()),
        js.publish("nobody.listens.here", b"x"),
    ):
        task = asyncio.ensure_future(work)
        for _ in range(steps):
            await turns(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: _same(nc, before))
    await until(lambda: _only(stream, consumer))


async def _same(nc: "slipstream.Connection", subscriptions: int) -> bool:
    return nc.stats.subscriptions == subscriptions


async def _only(stream: Stream, consumer: PullConsumer) -> bool:
    names = [name async for name in stream.consumer_names()]
    return names == ["c"] and (await consumer.info()).num_waiting == 0
