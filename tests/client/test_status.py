"""What a connection reports of itself."""

import asyncio

import pytest

import slipstream
from slipstream.client import ConnectionClosedError, Status
from slipstream.client.events import Closed, Draining, Event, Reconnected
from slipstream.errors import ConfigError
from tests.client.fake_server import FakeServer, info
from tests.client.proxy import Proxy


async def test_the_status_says_where_a_connection_is_in_its_life(server_url: str) -> None:
    seen: list[Event] = []
    async with Proxy(server_url) as proxy:
        nc = await slipstream.connect(proxy.url, reconnect_wait=0.001, on_event=seen.append)
        assert nc.status is Status.CONNECTED
        assert nc.status == "connected"
        events = nc.events()
        proxy.refuse = True
        proxy.cut()
        await anext(events)
        assert nc.status is Status.RECONNECTING
        proxy.refuse = False
        async for event in events:
            if isinstance(event, Reconnected):
                break
        handled = asyncio.Event()
        subscription = await nc.subscribe("x" + nc.new_id(), handler=lambda m: handled.wait())
        await nc.publish(subscription.subject)
        await nc.flush()
        draining = asyncio.create_task(nc.drain())
        async for event in events:
            if isinstance(event, Draining):
                break
        assert nc.status is Status.DRAINING
        handled.set()
        await draining
        assert nc.status is Status.CLOSED
    assert Draining() in seen


async def test_the_events_of_a_closed_connection_end_at_once(server_url: str) -> None:
    nc = await slipstream.connect(server_url)
    before = nc.events()
    await nc.close()
    async with asyncio.timeout(5):
        assert [event async for event in nc.events()] == []
        assert [event async for event in before] == [Closed(None)]


async def test_a_callback_for_the_end_that_asks_for_events_gets_none(server_url: str) -> None:
    nc = await slipstream.connect(server_url)
    seen: list[Event] = []

    async def ask(closed: Event) -> None:
        seen.append(closed)
        seen.extend([event async for event in nc.events()])

    nc.on("closed", ask)
    async with asyncio.timeout(5):
        await nc.close()
    assert seen == [Closed(None)]


async def test_the_last_error_is_kept(nc: slipstream.Connection) -> None:
    assert nc.last_error is None

    def broken(message: slipstream.client.Message) -> None:
        raise ZeroDivisionError

    subscription = await nc.subscribe("x" + nc.new_id(), handler=broken)
    await nc.publish(subscription.subject)
    await subscription.drain()
    assert isinstance(nc.last_error, ZeroDivisionError)


async def test_discovered_servers_are_told_apart_from_given_ones() -> None:
    async with (
        FakeServer(info(connect_urls=["127.0.0.1:9"])) as server,
        await slipstream.connect(server.url) as nc,
    ):
        assert nc.discovered_servers == ["nats://127.0.0.1:9"]
        assert set(nc.servers) == {server.url, "nats://127.0.0.1:9"}


async def test_other_servers_can_be_named_while_connected(server_url: str) -> None:
    async with Proxy(server_url) as proxy, await slipstream.connect(server_url) as nc:
        nc.set_servers([proxy.url])
        assert nc.servers == [proxy.url]
        assert nc.server_url == server_url
        await nc.reconnect()
        assert nc.server_url == proxy.url
        with pytest.raises(ConfigError):
            nc.set_servers("mqtt://a")
        await nc.flush()


async def test_the_socket_can_be_looked_at(nc: slipstream.Connection, server_url: str) -> None:
    assert nc.get_extra_info("peername")[1] == int(server_url.rpartition(":")[2])
    assert nc.get_extra_info("ssl_object") is None
    await nc.close()
    assert nc.get_extra_info("peername", "gone") == "gone"
    with pytest.raises(ConnectionClosedError):
        await nc.flush()
