"""Handlers that drain, stop and close what called them: nobody waits for himself."""

import asyncio
import gc

import pytest

import slipstream
from slipstream.client import ConnectionLostError, Message
from slipstream.client.events import Event
from slipstream.client.jetstream import ConsumerInfo, JetStreamMessage, PullConsumer
from slipstream.client.services import ServiceRequest
from tests.client.jetstream.test_leaving import delivery
from tests.client.jetstream.test_malformed import CONSUMER
from tests.client.scripted_server import ScriptedServer, frame
from tests.client.waiting import until


async def test_a_handler_that_drains_its_subscription_gets_the_rest(
    nc: slipstream.Connection,
) -> None:
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        await subscription.drain()
        seen.append(message.data)

    subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
    for number in range(3):
        await nc.publish(subscription.subject, b"%d" % number)
    await until(lambda: len(seen) == 3)
    assert seen == [b"0", b"1", b"2"]
    assert nc.stats.subscriptions == 0


async def test_a_handler_may_drain_the_connection(server_url: str) -> None:
    seen: list[bytes] = []
    others: list[bytes] = []

    async def handle(message: Message) -> None:
        await nc.drain()
        seen.append(message.data)

    nc = await slipstream.connect(server_url, drain_timeout=5)
    subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
    other = await nc.subscribe(nc.new_inbox(), handler=lambda m: others.append(m.data))
    for number in range(3):
        await nc.publish(other.subject, b"%d" % number)
        await nc.publish(subscription.subject, b"%d" % number)
    await until(lambda: len(seen) == 3)
    assert nc.is_closed
    assert nc.last_error is None
    assert others == [b"0", b"1", b"2"]


async def test_a_consumers_handler_may_drain_the_connection() -> None:
    told: list[Exception | None] = []

    async def handle(_: JetStreamMessage) -> None:
        try:
            await nc.drain()
        except slipstream.Error as error:
            told.append(error)
        else:
            told.append(None)

    async with ScriptedServer(
        lambda a: b"".join(frame("s.a", a.sid, b"", reply=delivery(n)) for n in (1, 2))
    ) as server:
        nc = await slipstream.connect(server.url, drain_timeout=5)
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        consuming = consumer.consume(handle, max_messages=2)
        await consuming.closed()
        assert nc.is_closed
        assert told[0] is None


async def test_an_endpoint_may_stop_its_service(nc: slipstream.Connection) -> None:
    async def stop(request: ServiceRequest) -> bytes:
        await service.stop()
        return request.data

    service = await nc.add_service("stops", "1.0.0")
    endpoint = await service.add_endpoint("stop", stop, subject=nc.new_inbox())
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(nc.request(endpoint.subject, b"%d" % n) for n in range(3)))
    assert [answer.data for answer in answers] == [b"0", b"1", b"2"]
    assert service.stopped


async def test_an_endpoint_may_drain_the_connection(server_url: str) -> None:
    async def stop(request: ServiceRequest) -> None:
        await offering.drain()
        drained.append(request.data)

    drained: list[bytes] = []
    offering = await slipstream.connect(server_url, drain_timeout=5)
    service = await offering.add_service("drains", "1.0.0")
    endpoint = await service.add_endpoint("stop", stop, subject=offering.new_inbox())
    async with await slipstream.connect(server_url) as nc:
        await offering.flush()
        for number in range(3):
            await nc.publish(endpoint.subject, b"%d" % number)
        await until(lambda: len(drained) == 3)
    assert offering.is_closed
    assert offering.last_error is None


async def test_what_has_come_is_handled_though_the_connection_breaks_in_a_drain() -> None:
    seen: list[bytes] = []
    may_go_on = asyncio.Event()

    async def handle(message: Message) -> None:
        await may_go_on.wait()
        seen.append(message.data)

    async with ScriptedServer(lambda _: None) as server:
        nc = await slipstream.connect(server.url, reconnect_wait=0.01, drain_timeout=5)
        subscription = await nc.subscribe("a", handler=handle)
        await nc.flush()
        server.say(b"".join(frame("a", server.sid("a"), b"%d" % n) for n in range(3)))
        await until(lambda: subscription.pending == 2)
        server.answer = b""
        pings = server.lines.count("PING")
        draining = asyncio.create_task(nc.drain())
        await until(lambda: server.lines.count("PING") > pings)
        server.answer = b"PONG\r\n"
        server.close_clients()
        may_go_on.set()
        with pytest.raises(ConnectionLostError):
            await draining
        assert seen == [b"0", b"1", b"2"]
        assert nc.is_closed


async def test_a_service_that_is_not_let_stop_in_peace_leaves_no_endpoint_behind(
    nc: slipstream.Connection,
) -> None:
    async def never(_: ServiceRequest) -> None:
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    service = await nc.add_service("hangs", "1.0.0")
    for name in ("one", "two"):
        endpoint = await service.add_endpoint(name, never, subject=nc.new_inbox())
        await nc.publish(endpoint.subject, reply=nc.new_inbox())
    await nc.flush()
    stopping = asyncio.create_task(service.stop())
    await nc.flush()
    await nc.flush()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: not asyncio.all_tasks() - before - {stopping})
    assert nc.stats.subscriptions == 0


async def test_every_endpoint_stops_though_the_connection_breaks() -> None:
    async with ScriptedServer(lambda _: None) as server:
        nc = await slipstream.connect(server.url, reconnect_wait=0.01)
        before = asyncio.all_tasks()
        service = await nc.add_service("breaks", "1.0.0")
        for name in ("one", "two"):
            await service.add_endpoint(name, lambda r: r.data)
        await nc.flush()
        server.answer = b""
        pings = server.lines.count("PING")
        stopping = asyncio.create_task(service.stop())
        await until(lambda: server.lines.count("PING") > pings)
        server.answer = b"PONG\r\n"
        server.close_clients()
        with pytest.raises(ConnectionLostError):
            await stopping
        assert nc.stats.subscriptions == 0
        endpoints = {t for t in asyncio.all_tasks() - before if "endpoint" in t.get_name()}
        assert not endpoints
        await nc.close()


async def test_events_that_nobody_reads_any_more_are_not_kept(nc: slipstream.Connection) -> None:
    async def first() -> None:
        async for event in nc.events():
            seen.append(event)
            break

    seen: list[Event] = []
    asyncio.create_task(first())  # noqa: RUF006 - that is what is tested: nobody else knows of it
    await asyncio.sleep(0)
    gc.collect()
    assert len(nc.events_hub.iterators) == 1
    await nc.reconnect()
    await until(lambda: len(seen) == 1)
    gc.collect()
    assert len(nc.events_hub.iterators) == 0
