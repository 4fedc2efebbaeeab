"""Several servers, those that the server tells of, and servers that talk nonsense."""

import asyncio

import pytest

import slipstream
from slipstream.client import AuthorizationError, ConnectError, ServerError
from slipstream.client.events import (
    ConnectFailed,
    Disconnected,
    ErrorEvent,
    Event,
    LameDuck,
    Reconnected,
    ServersDiscovered,
)
from slipstream.client.servers import parse_server, parse_servers
from slipstream.errors import ConfigError, ProtocolError
from tests.client.fake_server import FakeServer, info
from tests.client.proxy import Proxy
from tests.client.waiting import LoopClock, until


async def next_of(events: "slipstream.client.events.EventIterator", kind: type[Event]) -> Event:
    async with asyncio.timeout(5):
        async for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"no {kind.__name__} came")


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("nats://a:1", "a", 1, False),
        ("a", "a", 4222, False),
        ("a:5", "a", 5, False),
        ("tls://b", "b", 4222, True),
        ("nats://[::1]:6", "::1", 6, False),
    ],
)
def test_a_servers_url_may_be_short(url: str, host: str, port: int, tls: bool) -> None:
    server = parse_server(url)
    assert (server.host, server.port, server.tls) == (host, port, tls)


def test_a_url_may_carry_who_we_are_and_messages_do_not_show_it() -> None:
    user = parse_server("nats://me:s%40cret@h")
    assert (user.user, user.password, user.token) == ("me", "s@cret", "")
    assert parse_server("nats://t0ken@h").token == "t0ken"
    assert user.url == "nats://h:4222"


@pytest.mark.parametrize("url", ["http://a", "nats://", "nats://a:port", "", "mqtt://a", "ws://"])
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str) -> None:
    with pytest.raises(ConfigError, match=r"URL|scheme|host"):
        parse_servers(url)


async def test_the_first_server_that_answers_is_taken(server_url: str, clock: LoopClock) -> None:
    async with FakeServer(b"") as mute:
        servers = [mute.url, "nats://127.0.0.1:1", server_url]
        connecting = slipstream.connect(servers, connect_timeout=30, randomize_servers=False)
        async with await clock.time_out(connecting, 31) as nc:
            assert nc.server_url == server_url
            assert nc.servers == [*servers]


async def test_when_none_answers_the_error_says_what_each_said() -> None:
    async with FakeServer(b"HTTP/1.1 400 Bad Request\r\n") as web:
        urls = [web.url, "nats://127.0.0.1:1"]
        with pytest.raises(ConnectError, match=r"HTTP/1\.1.*cannot be reached") as caught:
            await slipstream.connect(urls, randomize_servers=False)
        assert [url for url, _ in caught.value.failures] == urls


async def test_another_server_takes_over(proxy: Proxy) -> None:
    async with Proxy(f"nats://{proxy.upstream[0]}:{proxy.upstream[1]}") as second:
        urls = [proxy.url, second.url]
        async with await slipstream.connect(urls, randomize_servers=False) as nc:
            subscription = await nc.subscribe(nc.new_inbox())
            events = nc.events()
            proxy.refuse = True
            proxy.cut()
            reconnected = await next_of(events, Reconnected)
            assert reconnected == Reconnected(second.url)
            await nc.publish(subscription.subject, b"here")
            assert (await subscription.next(5)).data == b"here"


async def test_servers_that_a_server_tells_of_are_tried_too(proxy: Proxy) -> None:
    told = proxy.url.removeprefix("nats://")
    async with FakeServer(info(connect_urls=[told])) as teller:
        seen: list[Event] = []
        async with await slipstream.connect(teller.url, on_event=seen.append) as nc:
            assert ServersDiscovered([proxy.url]) in seen
            events = nc.events()
            teller.close_clients()
            assert await next_of(events, Reconnected) == Reconnected(proxy.url)


async def test_discovered_servers_can_be_ignored() -> None:
    greeting = info(connect_urls=["127.0.0.1:1"])
    async with (
        FakeServer(greeting) as teller,
        await slipstream.connect(teller.url, ignore_discovered_servers=True) as nc,
    ):
        assert nc.servers == [teller.url]


async def test_a_server_in_lame_duck_mode_is_reported() -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        events = nc.events()
        server.say(info(ldm=True))
        assert await next_of(events, LameDuck) == LameDuck(server.url)


async def test_limits_follow_what_the_server_says_later() -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        server.say(info(max_payload=10))
        await nc.flush()
        assert nc.max_payload == 10


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HELLO\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 1\r\nxyz",
        b"HMSG a 1 9 3\r\nabc\r\n",
        b"MSG a\r\n",
        b"\x00\x01\x02",
        b"MSG a 99999999999999999999 1\r\nx\r\n",
    ],
)
async def test_malformed_frames_end_the_connection_and_it_comes_back(nonsense: bytes) -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        events = nc.events()
        await nc.subscribe("a")
        server.say(nonsense)
        lost = await next_of(events, Disconnected)
        assert isinstance(lost, Disconnected)
        assert isinstance(lost.error, ProtocolError)
        await next_of(events, Reconnected)
        await nc.flush()
        assert server.accepted == 2


async def test_messages_for_nobody_and_broken_info_do_no_harm() -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        server.say(b"MSG a 77 1\r\nx\r\nPONG\r\nPONG\r\n+OK\r\nINFO {nonsense\r\n")
        await nc.flush()
        assert nc.is_connected


async def test_broken_headers_show_when_they_are_read() -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        subscription = await nc.subscribe("a")
        await nc.flush()
        server.say(b"HMSG a 1 6 8\r\nbroken" + b"ok\r\n")
        message = await subscription.next(5)
        assert message.data == b"ok"
        assert message.status == 0
        with pytest.raises(ProtocolError, match=r"NATS/1\.0"):
            _ = message.headers


async def test_a_refusal_during_the_greeting_is_told_in_the_servers_words() -> None:
    async with FakeServer(info(), b"-ERR 'maximum connections exceeded'\r\n") as server:
        with pytest.raises(ConnectError, match="maximum connections exceeded"):
            await slipstream.connect(server.url)


async def test_a_server_that_refuses_us_twice_is_not_asked_again() -> None:
    async with FakeServer(info()) as server:
        nc = await slipstream.connect(server.url, reconnect_wait=0.001)
        events = nc.events()
        server.answer = b"-ERR 'Authorization Violation'\r\n"
        server.close_clients()
        kinds = [event async for event in events]
        failed = [e for e in kinds if isinstance(e, ConnectFailed)]
        assert len(failed) == 2
        assert all(isinstance(e.error, AuthorizationError) for e in failed)
        assert nc.is_closed


async def test_other_errors_of_the_server_are_events() -> None:
    async with FakeServer(info()) as server, await slipstream.connect(server.url) as nc:
        events = nc.events()
        server.say(b"-ERR 'maximum subscriptions exceeded'\r\n")
        told = await next_of(events, ErrorEvent)
        assert isinstance(told, ErrorEvent)
        assert isinstance(told.error, ServerError)
        assert told.error.text == "maximum subscriptions exceeded"


async def test_waiting_for_a_server_takes_as_long_as_it_takes(server_url: str) -> None:
    async with Proxy(server_url) as late:
        late.refuse = True
        task = asyncio.create_task(
            slipstream.connect(late.url, wait_for_server=True, reconnect_wait=0.001)
        )
        await until(lambda: late.refused > 2)
        assert not task.done()
        late.refuse = False
        async with await task as nc:
            assert nc.is_connected


async def test_what_connect_says_of_itself() -> None:
    async with (
        FakeServer(info()) as server,
        await slipstream.connect(server.url, name="tester", echo=False),
    ):
        said = server.connect_fields()
    assert (said["name"], said["echo"], said["verbose"], said["protocol"]) == (
        "tester",
        False,
        False,
        1,
    )
    assert said["headers"]
    assert said["no_responders"]


async def test_unknown_and_contradictory_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="no option tsl"):
        await slipstream.connect(tsl=True)
    with pytest.raises(ConfigError, match="exclude each other"):
        await slipstream.connect(user="a", token="b")
    with pytest.raises(ConfigError, match="inbox_prefix"):
        await slipstream.connect(inbox_prefix="a.*")


async def test_a_function_in_the_options_that_raises_ends_the_connection() -> None:
    def delay(rounds: int) -> float:
        raise ZeroDivisionError("bad delay")

    async with FakeServer(info()) as server:
        nc = await slipstream.connect(server.url, reconnect_delay=delay)
        events = nc.events()
        server.answer = b"-ERR 'maximum connections exceeded'\r\n"
        server.close_clients()
        last = [event async for event in events][-1]
        assert "bad delay" in str(last)
        assert nc.is_closed


@pytest.mark.parametrize(
    "url",
    [
        "nats://ann:s3cret@host:port",
        "nats://ann:s3cret/@host",
        "gopher://s3cret@host",
        "ann:s3cret@host:port",
        "nats://s3cret@",
    ],
)
def test_an_error_about_a_url_shows_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_server(url)
    assert "***@" in str(raised.value)
    assert "s3cret" not in str(raised.value)
