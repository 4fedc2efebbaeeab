"""Over WebSocket everything is as over TCP: on nats-server's own listener, and through a bridge."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.client import ConnectError, ConnectionLostError
from slipstream.client.events import Disconnected, Reconnected
from slipstream.client.servers import ServerPool, parse_server
from slipstream.errors import ConfigError
from tests.client.fake_server import FakeServer, info
from tests.client.proxy import Proxy, byte_by_byte
from tests.client.waiting import LoopClock, until
from tests.client.websocket_bridge import WebSocketBridge
from tests.fix_certificates import Authority
from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server

PLAIN = 'websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }\n'


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server that listens for WebSockets."""
    directory = tmp_path_factory.mktemp("websocket")
    path = directory / "server.conf"
    path.write_text(PLAIN)
    server = start_nats_server(directory, "-c", str(path))
    yield server
    stop_nats_server(server)


async def exchange(nc: slipstream.Connection) -> None:
    """Small, many and large messages, both ways."""
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    for number in range(3000):
        await nc.publish(subject, f"message {number}", headers={"Number": str(number)})
    large = bytes(range(256)) * 3000
    await nc.publish(subject, large)
    await nc.publish(subject, memoryview(large))
    for number in range(3000):
        message = await subscription.next(5)
        assert message.data == f"message {number}".encode()
        assert message.headers["Number"] == str(number)
    for _ in range(2):
        assert (await subscription.next(5)).data == large
    await nc.subscribe(subject + ".echo", handler=lambda m: m.respond(m.data))
    assert (await nc.request(subject + ".echo", b"?")).data == b"?"
    assert await nc.rtt() > 0


@pytest.mark.parametrize("compression", [False, True])
async def test_nats_servers_own_listener(real: NatsServer, compression: bool) -> None:
    async with await slipstream.connect(
        real.websocket_url, websocket_compression=compression
    ) as nc:
        assert nc.server_url == real.websocket_url
        await exchange(nc)


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("fragment", [0, 1000])
async def test_frames_may_be_cut_and_compressed_as_the_other_side_likes(
    server_url: str, fragment: int, compression: bool
) -> None:
    async with (
        WebSocketBridge(server_url, fragment=fragment, compression=compression) as bridge,
        await slipstream.connect(bridge.url, websocket_compression=True) as nc,
    ):
        assert bridge.compressed == compression
        await exchange(nc)


async def test_compressed_floods_stay_within_what_a_server_inflates(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(PLAIN + "max_payload: 4096\n")
    server = start_nats_server(tmp_path, "-c", str(path))
    try:
        async with await slipstream.connect(server.websocket_url, websocket_compression=True) as nc:
            subscription = await nc.subscribe("flood")
            for _ in range(200):
                await nc.publish("flood", bytes(4000))
            for _ in range(200):
                assert len((await subscription.next(5)).data) == 4000
    finally:
        stop_nats_server(server)


async def test_jetstream_goes_over_a_websocket(server_url: str) -> None:
    async with (
        WebSocketBridge(server_url) as bridge,
        await slipstream.connect(bridge.url) as nc,
    ):
        js = nc.jetstream()
        name = f"ws_{nc.new_id()}"
        stream = await js.create_stream(name=name, subjects=[name])
        for number in range(100):
            await js.publish_async(name, str(number))
        await js.publish_async_complete()
        consumer = await stream.create_consumer(durable_name="c")
        messages = await consumer.fetch(100, timeout=5)
        assert [m.data for m in messages] == [str(n).encode() for n in range(100)]
        await js.delete_stream(name)


async def test_a_cut_websocket_is_opened_anew_with_its_subscriptions(real: NatsServer) -> None:
    async with Proxy(real.websocket_url.removeprefix("ws://")) as proxy:
        url = proxy.url.replace("nats://", "ws://")
        async with await slipstream.connect(url) as nc:
            subscription = await nc.subscribe("kept." + nc.new_id())
            await nc.flush()
            events = nc.events()
            proxy.cut()
            async for event in events:
                if isinstance(event, Reconnected):
                    break
            await nc.publish(subscription.subject, b"back")
            assert (await subscription.next(5)).data == b"back"


async def test_a_server_that_says_goodbye_is_quoted_and_come_back_to(server_url: str) -> None:
    async with (
        WebSocketBridge(server_url) as bridge,
        await slipstream.connect(bridge.url) as nc,
    ):
        events = nc.events()
        bridge.say_goodbye(1001, "server shutdown")
        told = await anext(events)
        assert isinstance(told, Disconnected)
        assert "closed the WebSocket with code 1001 (server shutdown)" in str(told.error)
        assert isinstance(await anext(events), Reconnected)
        await nc.flush()


async def test_what_is_in_flight_when_it_breaks_ends_in_an_error(server_url: str) -> None:
    async with (
        WebSocketBridge(server_url) as bridge,
        await slipstream.connect(bridge.url, reconnect=False) as nc,
    ):
        await nc.subscribe("silent", handler=lambda m: None)
        task = asyncio.create_task(nc.request("silent", timeout=10))
        await asyncio.sleep(0)
        await nc.flush()
        bridge.say_goodbye(1008, "")
        with pytest.raises(ConnectionLostError) as raised:
            await task
        assert raised.value.may_have_arrived


async def test_reads_may_be_cut_anywhere(server_url: str) -> None:
    async with (
        WebSocketBridge(server_url, fragment=7, compression=True) as bridge,
        Proxy(bridge.address) as proxy,
    ):
        proxy.split = byte_by_byte
        url = proxy.url.replace("nats://", "ws://")
        nc = await slipstream.connect(url, websocket_compression=True)
        subscription = await nc.subscribe("cut." + nc.new_id())
        for number in range(20):
            await nc.publish(subscription.subject, str(number))
        for number in range(20):
            assert (await subscription.next(10)).data == str(number).encode()
        await nc.close()


@pytest.mark.parametrize(
    "nonsense",
    [b"\x83\x00", b"\xc2\x01x", b"\x82\x85mask!", b"\x80\x01x", b"\x82\x05HELLO\x82\x02\r\n"],
    ids=["opcode", "reserved bit", "masked", "continuation of nothing", "no NATS"],
)
async def test_frames_that_are_invalid_end_the_connection_and_it_comes_back(
    server_url: str, nonsense: bytes
) -> None:
    async with (
        WebSocketBridge(server_url) as bridge,
        await slipstream.connect(bridge.url, reconnect_wait=0.001) as nc,
    ):
        events = nc.events()
        bridge.writers[0].write(nonsense)
        told = await anext(events)
        assert isinstance(told, Disconnected)
        assert bridge.url in str(told.error)
        assert isinstance(await anext(events), Reconnected)
        await nc.flush()


async def test_giving_up_while_the_websocket_opens_leaves_nothing(real: NatsServer) -> None:
    async with Proxy(real.websocket_url.removeprefix("ws://")) as proxy:
        proxy.hold()
        task = asyncio.create_task(slipstream.connect(proxy.url.replace("nats", "ws")))
        await until(lambda: bool(proxy.lanes))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_says_goodbye_after_what_was_published(server_url: str) -> None:
    async with WebSocketBridge(server_url) as bridge, await slipstream.connect(server_url) as other:
        subscription = await other.subscribe("last." + other.new_id())
        await other.flush()
        nc = await slipstream.connect(bridge.url)
        await nc.publish(subscription.subject, b"words")
        await nc.close()
        assert (await subscription.next(5)).data == b"words"
        (protocol,) = bridge.protocols
        assert protocol.close_rcvd is not None
        assert protocol.close_rcvd.code == 1000


async def test_path_and_headers_of_the_request_are_ones_own(server_url: str) -> None:
    asked = iter([{"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}])
    async with WebSocketBridge(server_url) as bridge:
        nc = await slipstream.connect(
            f"{bridge.url}/nats/in?tenant=7", websocket_headers=lambda: next(asked)
        )
        await nc.reconnect()
        await nc.close()
    assert [r.path for r in bridge.requests] == ["/nats/in?tenant=7"] * 2
    said = [r.headers["Authorization"] for r in bridge.requests]
    assert said == ["Bearer one", "Bearer two"]


async def test_a_refused_upgrade_says_who_refused_and_how(server_url: str) -> None:
    async with WebSocketBridge(server_url, status=403) as bridge:
        with pytest.raises(ConnectError, match=r"ws://.* does not open a WebSocket: .*403"):
            await slipstream.connect(bridge.url)


async def test_a_port_for_plain_clients_opens_no_websocket(server_url: str) -> None:
    with pytest.raises(ConnectError, match="does not open a WebSocket: did not receive a valid"):
        await slipstream.connect(server_url.replace("nats://", "ws://"), connect_timeout=5)


async def test_a_server_that_says_nothing_is_given_up(real: NatsServer, clock: LoopClock) -> None:
    async with Proxy(real.websocket_url.removeprefix("ws://")) as proxy:
        proxy.hold()
        connecting = slipstream.connect(proxy.url.replace("nats", "ws"), connect_timeout=30)
        with pytest.raises(ConnectError, match=r"within 30\.0 s"):
            await clock.time_out(connecting, 31)


async def test_wss_checks_the_servers_name_and_shows_a_certificate(
    tmp_path: Path, authority: Authority, server_files: tuple[str, str]
) -> None:
    certificate, key = server_files
    path = tmp_path / "server.conf"
    path.write_text(
        'websocket { listen: "127.0.0.1:-1"\n'
        f'  tls {{ cert_file: "{certificate}", key_file: "{key}" }} }}\n'
    )
    server = start_nats_server(tmp_path, "-c", str(path))
    try:
        url = server.websocket_url
        assert url.startswith("wss://")
        async with await slipstream.connect(url, tls_ca=authority.ca_file) as nc:
            assert nc.server_url == url
            await exchange(nc)
        with pytest.raises(ConnectError, match="certificate verify failed"):
            await slipstream.connect(url)
        # A client that asks for TLS gets it or nothing, also with a ws:// URL.
        async with await slipstream.connect(
            url.replace("wss", "ws"), tls_ca=authority.ca_file
        ) as nc:
            assert nc.is_connected
    finally:
        stop_nats_server(server)


def test_urls_of_websockets() -> None:
    server = parse_server("wss://ada:secret@nats.example/in/?a=b")
    assert (server.host, server.port, server.tls, server.websocket) == (
        "nats.example",
        443,
        True,
        True,
    )
    assert (server.user, server.password, server.path) == ("ada", "secret", "/in/?a=b")
    assert server.url == "wss://nats.example:443/in/"
    assert parse_server("ws://nats.example/").url == "ws://nats.example:80"
    with pytest.raises(ConfigError, match="use nats://, tls://, ws:// or wss://"):
        parse_server("http://nats.example")


def test_servers_that_a_websocket_tells_of_are_reached_over_websockets_too() -> None:
    first = parse_server("ws://one.example:8080/in")
    pool = ServerPool([first], None)
    assert pool.discover(["two.example:8080"], first) == ["ws://two.example:8080/in"]
    plain = parse_server("nats://one.example:8080")
    pool = ServerPool([first, plain], None)
    assert pool.discover(["one.example:8080"], plain) == []


async def test_discovered_servers_of_a_cluster_are_tried_over_websockets(server_url: str) -> None:
    async with (
        WebSocketBridge(server_url) as second,
        FakeServer(info(connect_urls=[second.address])) as server,
        WebSocketBridge(server.url) as first,
        await slipstream.connect(first.url, reconnect_wait=0.001) as nc,
    ):
        assert nc.servers == [second.url, first.url]
        await nc.reconnect()
        assert nc.server_url == second.url
        await nc.flush()


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = (
        "import asyncio, sys, slipstream, slipstream.client\n"
        "assert 'websockets' not in sys.modules\n"
        "sys.modules['websockets.client'] = None\n"
        "try: asyncio.run(slipstream.connect('ws://127.0.0.1:1'))\n"
        "except slipstream.errors.ConfigError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'pip install "slipstream[websocket]"' in said.stdout
