"""What the network does to a connection, and that nothing is lost that need not be."""

import asyncio
import contextlib

import pytest

import slipstream
from slipstream.client import (
    ConnectError,
    ConnectionLostError,
    Headers,
    Message,
    OutboundBufferFullError,
    StaleConnectionError,
)
from slipstream.client.events import Disconnected, Event, Reconnected
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy, byte_by_byte, frame_ends
from tests.client.waiting import LoopClock, turns


async def converse(nc: slipstream.Connection) -> None:
    """Every kind of frame once, both ways; over again if the connection breaks under it. Nothing
    comes twice, nor before what was published earlier."""
    subject = nc.new_inbox()
    heard: list[int] = []

    def number_of(message: slipstream.Message) -> int:
        heard.append(int(message.data.split()[0]))
        assert heard == sorted(set(heard)), "a message came twice, or out of order"
        return heard[-1]

    async with await nc.subscribe(subject) as subscription:
        for n in range(0, 40, 2):
            with contextlib.suppress(ConnectionLostError):
                await nc.publish(subject, b"%d plain\r\nMSG" % n, reply="an.answer")
                await nc.publish(subject, b"%d with" % (n + 1), headers=Headers({"A": "b: c"}))
                await nc.flush(30)  # what comes of these has come
            came = [await subscription.next() for _ in range(subscription.pending)]
            if [number_of(message) for message in came][-2:] != [n, n + 1]:
                continue
            first, second = came[-2:]
            assert (first.data, first.reply) == (b"%d plain\r\nMSG" % n, "an.answer")
            assert (second.data, second.header("A")) == (b"%d with" % (n + 1), "b: c")
            return
    raise AssertionError("no conversation came to its end")


async def until_connected(nc: slipstream.Connection, connected: bool = True) -> None:
    events = nc.events()
    async with asyncio.timeout(30):
        while nc.is_connected is not connected:
            await anext(events)
    events.close()


async def until_disconnected(nc: slipstream.Connection) -> None:
    await until_connected(nc, False)


async def test_frames_may_come_byte_by_byte(proxy: Proxy) -> None:
    proxy.split = byte_by_byte
    async with await slipstream.connect(proxy.url) as nc:
        await converse(nc)


async def test_a_cut_at_every_frame_boundary_and_beside_it_is_survived(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        await converse(nc)
    sent = proxy.lanes[-1].from_server
    places = sorted({max(1, end + off) for end in frame_ends(sent) for off in (-1, 0, 1)})
    assert len(places) >= 10
    for place in places:
        proxy.cut_after = place
        async with await slipstream.connect(
            proxy.url, wait_for_server=True, reconnect_wait=0.001
        ) as nc:
            await converse(nc)


async def test_a_cut_anywhere_in_what_the_client_sends_is_survived(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        await converse(nc)
    size = len(proxy.lanes[-1].from_client)
    for place in range(1, size, size // 20):
        proxy.cut_after_from_client = place
        async with await slipstream.connect(
            proxy.url, wait_for_server=True, reconnect_wait=0.001
        ) as nc:
            await converse(nc)


async def test_a_half_closed_connection_is_replaced(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        subscription = await nc.subscribe(nc.new_inbox())
        await nc.flush()
        proxy.half_close()
        await until_disconnected(nc)
        await until_connected(nc)
        await nc.publish(subscription.subject, b"again")
        assert (await subscription.next(5)).data == b"again"


async def test_a_slow_network_only_takes_longer(proxy: Proxy) -> None:
    proxy.delay = 0.02
    async with await slipstream.connect(proxy.url) as nc:
        await converse(nc)


async def test_a_server_that_says_nothing_is_given_up_in_time(
    proxy: Proxy, clock: LoopClock
) -> None:
    proxy.hold()
    with pytest.raises(ConnectError, match="connect_timeout"):
        await clock.time_out(slipstream.connect(proxy.url, connect_timeout=30), 31)


async def test_a_silent_connection_is_stale_and_replaced(proxy: Proxy) -> None:
    events: list[Event] = []
    async with await slipstream.connect(
        proxy.url, ping_interval=0.05, max_pings_outstanding=2, on_event=events.append
    ) as nc:
        await converse(nc)
        proxy.hold()
        await until_disconnected(nc)
        lost = next(e for e in events if isinstance(e, Disconnected))
        assert isinstance(lost.error, StaleConnectionError)
        proxy.go_on()
        await until_connected(nc)
        await converse(nc)


async def test_a_request_under_a_cut_says_that_it_may_have_been_acted_on(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        subject = nc.new_inbox()
        subscription = await nc.subscribe(subject)
        task = asyncio.create_task(nc.request(subject, timeout=30))
        await subscription.next(5)
        proxy.cut()
        with pytest.raises(ConnectionLostError, match="may have been acted on") as caught:
            await task
        assert caught.value.may_have_arrived


async def test_a_request_that_was_not_sent_yet_survives_the_cut(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        subject = nc.new_inbox()
        await nc.subscribe(subject, handler=lambda m: m.respond(b"here"))
        await nc.flush()
        proxy.refuse = True
        proxy.cut()
        await until_disconnected(nc)
        task = asyncio.create_task(nc.request(subject, timeout=30))
        await turns()
        proxy.refuse = False
        assert (await task).data == b"here"


async def test_a_request_without_a_connection_says_that_it_was_not_sent(
    proxy: Proxy, clock: LoopClock
) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        proxy.refuse = True
        proxy.cut()
        await until_disconnected(nc)
        with pytest.raises(slipstream.TimeoutError, match="no connection") as caught:
            await clock.time_out(nc.request("some.where", timeout=30), 31)
        assert not caught.value.sent


async def test_a_server_that_stops_and_returns_finds_its_subscribers_again(
    own_server: OwnServer,
) -> None:
    events: list[Event] = []
    async with await slipstream.connect(own_server.url, on_event=events.append) as nc:
        plain = await nc.subscribe("orders.*")
        limited = await nc.subscribe("orders.*")
        await limited.unsubscribe(max_messages=3)
        await nc.publish("orders.1")
        await nc.flush()
        await own_server.astop()
        await until_disconnected(nc)
        for i in range(2, 6):
            await nc.publish(f"orders.{i}")
        await own_server.astart()
        assert [(await plain.next(5)).subject for _ in range(5)] == [
            f"orders.{i}" for i in range(1, 6)
        ]
        assert [m.subject async for m in limited] == ["orders.1", "orders.2", "orders.3"]
        assert nc.stats.reconnects == 1
    kinds = [type(event).__name__ for event in events if type(event).__name__ != "ConnectFailed"]
    assert kinds == ["Connected", "Disconnected", "Reconnected", "Closed"]


async def test_what_waits_for_a_connection_is_bounded(proxy: Proxy) -> None:
    async with await slipstream.connect(proxy.url, pending_bytes_max=10_000) as nc:
        subscription = await nc.subscribe(nc.new_inbox())
        await nc.flush()
        proxy.refuse = True
        proxy.cut()
        await until_disconnected(nc)
        for _ in range(10):
            nc.publish_nowait(subscription.subject, b"x" * 1000)
        with pytest.raises(OutboundBufferFullError, match="pending_bytes_max"):
            nc.publish_nowait(subscription.subject, b"x" * 1000)
        assert nc.stats.pending_bytes < 12_000
        task = asyncio.create_task(nc.publish(subscription.subject, b"last"))
        await turns()
        assert not task.done()
        proxy.refuse = False
        await task
        async for message in subscription:
            if message.data == b"last":
                break


async def test_a_connection_that_may_not_come_back_ends_with_a_reason(proxy: Proxy) -> None:
    nc = await slipstream.connect(proxy.url, reconnect=False)
    subscription = await nc.subscribe("a")
    task = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    proxy.cut()
    with pytest.raises(slipstream.Error, match="given up"):
        await task
    assert nc.is_closed


async def test_attempts_to_come_back_are_counted(own_server: OwnServer) -> None:
    nc = await slipstream.connect(
        own_server.url, max_reconnect_attempts=2, reconnect_delay=lambda _: 0.001
    )
    events = nc.events()
    await own_server.astop()
    kinds = [type(event).__name__ async for event in events]
    assert kinds == ["Disconnected", *["ConnectFailed"] * 3, "Closed"]
    assert nc.is_closed


async def test_a_flush_under_a_cut_fails_and_one_without_a_connection_waits(
    proxy: Proxy,
) -> None:
    async with await slipstream.connect(proxy.url) as nc:
        proxy.hold()
        task = asyncio.create_task(nc.flush(30))
        await turns()
        proxy.go_on()
        proxy.refuse = True
        proxy.cut()
        with pytest.raises(ConnectionLostError):
            await task
        later = asyncio.create_task(nc.flush(30))
        await turns()
        proxy.refuse = False
        await later


async def test_sinks_hear_what_was_sent_and_when_it_goes_on(proxy: Proxy) -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[str] = []
            self.handed = 0

        def deliver(self, message: Message) -> None:
            self.heard.append(message.data.decode())

        def on_disconnect(self, handed: int) -> None:
            self.heard.append("disconnect")
            self.handed = handed

        def on_reconnect(self) -> None:
            self.heard.append("reconnect")

    async with await slipstream.connect(proxy.url) as nc:
        listener = Listener()
        subject = nc.new_inbox()
        nc.open_sink(subject, listener)
        position = nc.publish_nowait(subject, "1")
        await nc.flush()
        proxy.cut()
        await until_disconnected(nc)
        later = nc.publish_nowait(subject, "2")
        assert position <= listener.handed < later
        await until_connected(nc)
        await nc.flush()
        assert listener.heard == ["1", "disconnect", "reconnect", "2"]


async def test_events_tell_the_servers_name(proxy: Proxy) -> None:
    seen: list[str] = []
    async with await slipstream.connect(proxy.url) as nc:

        async def note(event: Reconnected) -> None:
            seen.append(event.server)

        stop = nc.on("reconnected", note)
        proxy.cut()
        await until_disconnected(nc)
        await until_connected(nc)
        stop()
        proxy.cut()
        await until_disconnected(nc)
        await until_connected(nc)
    assert seen == [proxy.url]


async def test_a_connection_can_be_made_anew_on_request(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.publish(subscription.subject, b"before")
    await nc.reconnect()
    await nc.publish(subscription.subject, b"after")
    assert (await subscription.next(5)).data in (b"before", b"after")
    assert nc.stats.reconnects == 1
    assert 0 < await nc.rtt() < 5
