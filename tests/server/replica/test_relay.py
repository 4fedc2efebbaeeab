"""Clients of a follower on their way to the leader, also those that are slow or too many."""

import asyncio
import gc
import json
import socket
import ssl
import struct
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

import slipstream
from slipstream.model.durations import SECOND
from slipstream.server import Server
from slipstream.server.event_loop import new_loop
from slipstream.server.logger import Logger
from slipstream.server.options import LimitsOptions, LoggingOptions, TlsOptions
from slipstream.server.relay_proof import relay_key
from slipstream.server.replica import relay as relay_module
from slipstream.server.replica.relay import Relay
from tests.fix_certificates import Authority
from tests.server.group.hosts import LOCAL, Lines
from tests.server.group.waiting import until


class Leader:
    """Sends without an end to who says anything; counts who is there."""

    def __init__(self) -> None:
        self.count = self.total = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        self.total += 1
        try:
            while await reader.read(100):
                while True:
                    writer.write(bytes(65536))
                    await writer.drain()
        except OSError:
            pass
        finally:
            self.count -= 1
            writer.transport.abort()


@pytest.fixture
async def leader() -> Leader:
    return Leader()


@pytest.fixture
def log() -> Lines:
    return Lines()


@pytest.fixture
async def relay(leader: Leader, log: Lines) -> AsyncIterator[Relay]:
    server = await asyncio.start_server(leader.serve, LOCAL, 0)
    relay = Relay(LOCAL, 0, Logger(log, LoggingOptions()))
    await relay.listen()
    relay.follow(f"{LOCAL}:{server.sockets[0].getsockname()[1]}")
    yield relay
    await relay.close()
    server.close()


async def test_a_client_that_takes_nothing_is_cut_off_and_the_log_says_so(
    relay: Relay, leader: Leader, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "write_deadline_seconds", 0.1)
    monkeypatch.setattr(relay_module, "SLOW_SECONDS", 0.0)
    with socket.create_connection((LOCAL, relay.port)) as client:
        client.sendall(b"x")
        await until(lambda: leader.count == 1, "it is brought to the leader")
        await until(lambda: leader.count == 0, "it is cut off")
        await until(lambda: log.has(" - cid:1 - Slow Consumer Detected"), "the log says so")
    assert relay.slow_count == 1


async def test_a_client_that_takes_nothing_is_cut_off_by_the_leader_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who counts it, and says of it why."""
    limits = LimitsOptions(write_deadline=SECOND // 5)
    with Server(monitoring_port=0, limits=limits) as server:
        relay = await relayed(server)
        monkeypatch.setattr(relay, "write_deadline_seconds", 0.2)
        reader, writer = await asyncio.open_connection(LOCAL, relay.port, limit=1024)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
        async with slipstream.connect(server.url) as nc:
            while not relay.slow_count:
                await nc.publish("a", bytes(500_000))
                await nc.flush()
        [closed] = await connections(server, "?state=closed&sort=cid&limit=1")
        assert closed["reason"] == "Slow Consumer (Write Deadline)"
        writer.close()
        await relay.close()


async def test_more_clients_than_there_is_room_for_are_refused(
    relay: Relay, leader: Leader, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so, but not of each: they may come again and again."""
    monkeypatch.setattr(relay.room, "most", 2)
    clients = [await asyncio.open_connection(LOCAL, relay.port) for _ in range(2)]
    await until(lambda: leader.count == 2, "they are brought to the leader")
    for _ in range(5):
        reader, writer = await asyncio.open_connection(LOCAL, relay.port)
        try:
            assert await reader.read(1) == b""
        except ConnectionResetError:
            pass
        writer.close()
    assert sum("2 clients are relayed already" in line for line in log.lines) == 1
    for _, one in clients:
        one.close()
    await until(lambda: leader.count == 0, "they have gone")


async def test_clients_are_brought_to_the_leader_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All at once would take longer than each of them waits."""
    monkeypatch.setattr(relay_module, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(relay_module, "LEADER_SECONDS_MAX", 60.0)
    came = []

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, LOCAL, 0)
    relay = Relay(LOCAL, 0, Logger(Lines(), LoggingOptions()))
    await relay.listen()
    clients = [await asyncio.open_connection(LOCAL, relay.port) for _ in range(5)]
    await until(lambda: relay.total == 5, "they are there")
    relay.follow(f"{LOCAL}:{server.sockets[0].getsockname()[1]}", KEY)
    await until(lambda: len(came) >= 2, "two of them are on their way")
    await another_comes(relay)  # by then the others would be on their way, too
    assert len(came) == 2
    await relay.close()
    for _, writer in clients:
        writer.close()
    server.close()


async def another_comes(relay: Relay) -> None:
    """Return once a client that came later than all others is there: the loop has gone round."""
    total = relay.total
    _, writer = await asyncio.open_connection(LOCAL, relay.port)
    await until(lambda: relay.total > total, "it is there")
    writer.close()


KEY = relay_key(b"secret", "token")
CLIENT = "127.0.0.7"


async def relayed(server: Server, key: bytes = KEY) -> Relay:
    """A relay to a server that leads."""
    assert server.runtime is not None
    server.runtime.relay_key = KEY
    relay = Relay(LOCAL, 0, Logger(Lines(), LoggingOptions()))
    await relay.listen()
    relay.follow(f"{LOCAL}:{server.port}", key)
    return relay


async def info_of(reader: asyncio.StreamReader) -> dict[str, object]:
    name, _, text = (await reader.readuntil(b"\r\n")).partition(b" ")
    assert name == b"INFO"
    found: dict[str, object] = json.loads(text)
    return found


async def greeting(relay: Relay, tls: ssl.SSLContext | None = None) -> dict[str, object]:
    """What a client at another address is greeted with, who says CONNECT then."""
    reader, writer = await asyncio.open_connection(LOCAL, relay.port, local_addr=(CLIENT, 0))
    found = {} if tls is not None else await info_of(reader)
    if tls is not None:
        await writer.start_tls(tls, server_hostname="localhost")
        found = await info_of(reader)
    assert [client.address.host for client in relay.clients.values()] == [CLIENT]
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert await reader.readuntil(b"PONG\r\n") == b"PONG\r\n"
    writer.close()
    await until(lambda: not relay.clients, "it has gone")
    return found


async def test_the_leader_is_told_where_a_client_is() -> None:
    with Server() as server:
        relay = await relayed(server)
        assert (await greeting(relay))["client_ip"] == CLIENT
        came, went = relay.brought_bytes
        assert came == len(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert went > len(b"PONG\r\n")
        await relay.close()


async def test_a_leader_of_an_earlier_version_is_told_nothing() -> None:
    with Server() as server:
        relay = await relayed(server, b"")
        assert (await greeting(relay))["client_ip"] == LOCAL
        await relay.close()


@pytest.mark.parametrize("first", ["true", "'50ms'"])
async def test_tls_ends_at_the_leader_which_knows_where_a_client_is(
    server_files: tuple[str, str], authority: Authority, tmp_path: Path, first: str
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        f"port: -1\ntls {{ cert_file: '{server_files[0]}', key_file: '{server_files[1]}'\n"
        f"handshake_first: {first} }}\n"
    )
    with Server(config=str(path)) as server:
        relay = await relayed(server)
        assert (await greeting(relay, authority.client_context()))["client_ip"] == CLIENT
        await relay.close()


async def test_a_client_that_begins_tls_after_info_is_brought_to_the_leader(
    server_files: tuple[str, str], authority: Authority
) -> None:
    tls = TlsOptions(cert_file=server_files[0], key_file=server_files[1])
    with Server(tls=tls, monitoring_port=0) as server:
        relay = await relayed(server)
        async with slipstream.connect(
            f"tls://localhost:{relay.port}", tls=authority.client_context()
        ) as nc:
            await nc.flush()
            ports = [one.address.port for one in relay.clients.values()]
            assert [one["port"] for one in await connections(server)] == ports
        await relay.close()


async def connections(server: Server, query: str = "") -> list[dict[str, object]]:
    def ask() -> list[dict[str, object]]:
        with urllib.request.urlopen(f"{server.monitoring_url}/connz{query}") as answer:
            found: list[dict[str, object]] = json.load(answer)["connections"]
            return found

    return await asyncio.to_thread(ask)


async def test_a_leader_that_has_too_many_clients_says_so_to_the_next_one() -> None:
    with Server(limits=LimitsOptions(max_connections=0)) as server:
        relay = await relayed(server)
        reader, _ = await asyncio.open_connection(LOCAL, relay.port)
        assert b"-ERR 'maximum connections exceeded'" in await reader.read()
        await relay.close()


async def test_what_a_client_has_said_is_answered_after_its_end() -> None:
    """As it is by the leader itself."""
    with Server() as server:
        relay = await relayed(server)
        for port in (server.port, relay.port):
            reader, writer = await asyncio.open_connection(LOCAL, port)
            await info_of(reader)
            writer.write(b'CONNECT {"verbose":false}\r\n' + b"PING\r\n" * 1000)
            writer.write_eof()
            assert (await reader.read()).count(b"PONG") == 1000
            writer.close()
        await until(lambda: not relay.clients, "it has gone")
        await relay.close()


async def test_what_a_client_says_before_it_is_greeted_is_answered_after_its_end() -> None:
    with Server() as server:
        relay = await relayed(server)
        for port in (server.port, relay.port):
            reader, writer = await asyncio.open_connection(LOCAL, port)
            writer.write(EARLY)
            writer.write_eof()
            assert (await reader.read()).endswith(b"PONG\r\n")
            writer.close()
        await until(lambda: not relay.clients, "it has gone")
        await relay.close()


@pytest.mark.parametrize("refused", [False, True])
async def test_the_last_error_comes_before_the_end_to_a_client_that_still_sends(
    refused: bool,
) -> None:
    """A reset would take it away on many systems."""
    limits = LimitsOptions(max_connections=0 if refused else 10)
    with Server(limits=limits) as server:
        relay = await relayed(server)
        reader, writer = await asyncio.open_connection(LOCAL, relay.port)
        writer.write(b'CONNECT {"verbose":false}\r\nPUB a 99000000\r\n' + bytes(8_000_000))
        error = b"maximum connections" if refused else b"Maximum Payload"
        assert error in await reader.read()
        await writer.drain()  # it is still taken
        assert not writer.transport.is_closing()
        writer.close()
        await until(lambda: not relay.clients, "it has gone")
        await relay.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [(f"{LOCAL}:1", "Connect call failed"), (f"{LOCAL}:99999", "port must be 0-65535")],
)
async def test_the_log_says_why_clients_are_not_brought_to_the_leader(
    relay: Relay, log: Lines, monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    """Such as an address that is good for clients alone. It is not said of each of them."""
    monkeypatch.setattr(relay_module, "LEADER_SECONDS_MAX", 0.3)
    relay.follow(address)
    for _ in range(3):
        reader, writer = await asyncio.open_connection(LOCAL, relay.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    [line] = [line for line in log.lines if "Clients cannot be brought to the leader" in line]
    assert why in line


async def test_a_client_waits_until_the_token_of_the_leader_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no longer than that."""
    monkeypatch.setattr(relay_module, "AGAIN_SECONDS", 60.0)
    with Server() as server:
        relay = await relayed(server, relay_key(b"secret", "an earlier token"))
        reader, writer = await asyncio.open_connection(LOCAL, relay.port)
        await until(lambda: server.client_count == 0 and relay.total == 1, "it is refused")
        relay.follow(relay.leader, KEY)
        assert (await info_of(reader))["client_ip"] == LOCAL
        writer.close()
        await relay.close()


def reset(client: socket.socket) -> None:
    """Hang up without regard to what is on its way."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_client_that_has_gone_before_it_is_taken_is_not_the_follower_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor is it a fault of the server, whose loop does not know its address then."""

    async def test() -> None:
        with Server(monitoring_port=0) as server:
            relay = await relayed(server)
            for _ in range(20):  # the loop takes them once this is over
                client = socket.create_connection((LOCAL, relay.port), source_address=(CLIENT, 0))
                client.sendall(b'CONNECT {"verbose":false}\r\nPUB a 1\r\nx\r\n')
                reset(client)
            await until(lambda: relay.total == 20 and not relay.clients, "they were taken")
            await until(lambda: server.client_count == 0, "the leader knows it")
            assert {one["ip"] for one in await connections(server, "?state=any")} <= {CLIENT}
            await relay.close()
            gc.collect()  # a task that failed says so then

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())
    assert "Task exception was never retrieved" not in caplog.text


# -- while the lead moves ------------------------------------------------------------------------

EARLY = b'CONNECT {"verbose":false}\r\nPING\r\n'


@pytest.fixture
async def door() -> AsyncIterator[Relay]:
    """A relay whose server knows of no leader."""
    relay = Relay(LOCAL, 0, Logger(Lines(), LoggingOptions()))
    await relay.listen()
    yield relay
    await relay.close()


def accept_of(server: Server) -> Callable[[], asyncio.Protocol]:
    assert server.runtime is not None
    return server.runtime.accept


async def come(relay: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that comes, and says at once what others say after INFO."""
    count = relay.total
    reader, writer = await asyncio.open_connection(LOCAL, relay.port)
    writer.write(EARLY)
    await until(lambda: relay.total > count, "it has come")
    return reader, writer


async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether a client is greeted, and answered what it has said before."""
    await info_of(reader)
    answer = await reader.readuntil(b"PONG\r\n")
    writer.close()
    return answer == b"PONG\r\n"


async def test_who_waits_is_answered_by_this_server_once_it_leads(door: Relay) -> None:
    async with Server() as server:
        clients = [await come(door) for _ in range(3)]
        assert server.client_count == 0
        door.answer_here(accept_of(server))
        assert all([await served(*client) for client in clients])
        await until(lambda: not door.clients, "none of them is brought to another server")


async def test_who_waits_and_has_said_all_is_answered_by_this_server_once_it_leads(
    door: Relay,
) -> None:
    async with Server() as server:
        reader, writer = await come(door)
        writer.write_eof()
        gone, itself = await asyncio.open_connection(LOCAL, door.port)
        itself.write_eof()  # and it has said nothing
        assert await gone.read() == b""
        door.answer_here(accept_of(server))
        assert (await reader.read()).endswith(b"PONG\r\n")
        await until(lambda: not door.clients and not server.client_count, "both have gone")
        for one in (writer, itself):
            one.close()


async def test_who_waits_is_brought_to_another_server_once_that_leads(door: Relay) -> None:
    async with Server() as server:
        client = await come(door)
        door.follow(f"{LOCAL}:{server.port}")
        assert await served(*client)


async def test_who_comes_to_the_leader_is_answered_until_it_leads_no_more(door: Relay) -> None:
    async with Server() as server, Server() as other:
        door.answer_here(accept_of(server))
        reader, writer = await asyncio.open_connection(LOCAL, door.port)
        writer.write(EARLY)
        assert await served(reader, writer)
        door.answer_here(None)
        client = await come(door)
        door.follow(f"{LOCAL}:{other.port}")
        assert await served(*client)


async def test_who_is_on_the_way_to_a_leader_goes_on_to_the_next_one(door: Relay) -> None:
    count = 0

    def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1  # and says nothing

    silent = await asyncio.start_server(came, LOCAL, 0)
    async with Server() as server:
        assert server.runtime is not None
        server.runtime.relay_key = KEY
        door.follow(f"{LOCAL}:{silent.sockets[0].getsockname()[1]}", KEY)
        client = await come(door)
        await until(lambda: count == 1, "it is announced")
        door.follow(f"{LOCAL}:{server.port}", KEY)
        assert await served(*client)
    silent.close()


async def test_whom_a_leader_that_hands_over_does_not_greet_goes_on_to_the_next_one(
    door: Relay,
) -> None:
    count = 0

    def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writer.close()  # it has taken the connection as it stepped down

    closing = await asyncio.start_server(came, LOCAL, 0)
    async with Server() as server:
        door.follow(f"{LOCAL}:{closing.sockets[0].getsockname()[1]}")
        reader, writer = await asyncio.open_connection(LOCAL, door.port)
        await until(lambda: count > 0, "it is brought to the one that closes")
        door.follow(f"{LOCAL}:{server.port}")
        await info_of(reader)
        writer.write(EARLY)
        assert await reader.readuntil(b"PONG\r\n")
        writer.close()
    closing.close()


async def test_the_last_words_of_a_leader_reach_the_client(door: Relay) -> None:
    words = b"+OK\r\n" * 50_000

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PING\r\n")
        writer.write(words)
        writer.close()
        door.follow("")

    leader = await asyncio.start_server(answer, LOCAL, 0)
    door.follow(f"{LOCAL}:{leader.sockets[0].getsockname()[1]}")
    reader, writer = await come(door)
    assert await reader.read(-1) == words
    writer.close()
    leader.close()


async def test_a_client_has_time_to_read_the_last_words_when_the_leader_is_another_one(
    door: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still send, and whoever closed the connection then would take them away."""
    monkeypatch.setattr(relay_module, "LAST_WORDS_SECONDS", 0.0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        writer.close()

    leader = await asyncio.start_server(answer, LOCAL, 0)
    door.follow(f"{LOCAL}:{leader.sockets[0].getsockname()[1]}")
    reader, writer = await come(door)
    assert await reader.read(-1) == b"PONG\r\n"
    door.follow("")
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(door.clients) == 1
    writer.close()
    await until(lambda: not door.clients, "it has read them")
    leader.close()


async def test_a_connection_to_an_earlier_leader_that_goes_on_is_ended(
    relay: Relay, leader: Leader
) -> None:
    reader, writer = await come(relay)
    await reader.readexactly(1)
    relay.follow("")
    await until(lambda: leader.count == 0, "it is ended")
    writer.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_client_that_takes_nothing_is_given_up_also_where_leaders_follow_each_other(
    relay: Relay, leader: Leader, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(relay_module, "LAST_WORDS_SECONDS", 0.0)
    monkeypatch.setattr(relay_module, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(relay, "write_deadline_seconds", 0.0)
    with socket.create_connection((LOCAL, relay.port)) as client:
        client.sendall(b"x")
        await until(lambda: bool(relay.clients), "it has come")
        (transport,) = [one.transport for one in relay.clients.values()]
        await until(lambda: transport.get_write_buffer_size() > 0, "it takes no more")
        relay.follow("")
        for _ in range(turns):
            await asyncio.sleep(0)
        relay.follow(f"{LOCAL}:1")
        await until(lambda: not relay.clients, "nobody brings it any more")
        await until(lambda: not transport.get_write_buffer_size(), "it is given up")


async def test_who_takes_a_follower_for_the_leader_has_to_ask_anew(door: Relay) -> None:
    async with Server() as server:
        first = await relayed(server)
        first.follow(f"{LOCAL}:{door.port}", KEY)  # which leads no more, or not yet
        client = await come(first)
        await until(lambda: door.total == 1, "it is brought there")
        door.follow(f"{LOCAL}:{server.port}", KEY)
        await until(lambda: not door.clients, "it is sent away")
        first.follow(f"{LOCAL}:{server.port}", KEY)
        assert await served(*client)
        await first.close()


async def test_who_was_announced_with_an_earlier_token_is_announced_anew(door: Relay) -> None:
    async with Server() as server:
        first = await relayed(server)
        first.follow(f"{LOCAL}:{door.port}", relay_key(b"secret", "an earlier token"))
        client = await come(first)
        await until(lambda: door.total == 1, "it is on its way")
        first.follow(first.leader, KEY)
        await until(lambda: door.total == 2 and len(door.clients) == 1, "it is so once more")
        door.answer_here(accept_of(server))
        assert await served(*client)
        assert server.runtime is not None
        assert server.runtime.engine.total_sessions == 1  # nobody was refused
        await first.close()
