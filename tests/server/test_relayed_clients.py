"""A leader and those who say that they bring it a client: servers of its group, and strangers."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slipstream.server import Server, proxied
from slipstream.server.logger import open_logger
from slipstream.server.options import LoggingOptions, TlsOptions
from slipstream.server.proxy_header import SIGNATURE, Address, make_header
from slipstream.server.relay_proof import CHALLENGE_SIZE, announce, challenge, prove, relay_key
from tests.fix_certificates import Authority
from tests.server.plain_client import TIMEOUT_SECONDS, PlainClient
from tests.server.test_proxy_protocol import CONNECT, HEADER

KEY = relay_key(b"secret", "token")
CLIENT, FOLLOWER = Address("192.0.2.9", 4711), Address("198.51.100.1", 4222)
ANNOUNCED = announce(KEY, CLIENT, FOLLOWER, "n2")


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Server]:
    logger = open_logger(LoggingOptions(debug=True, log_file=str(tmp_path / "log")))
    with Server(monitoring_port=0, log=logger) as server:
        assert server.runtime is not None
        server.runtime.relay_key = KEY
        yield server


def nonce_of(client: PlainClient) -> bytes:
    """What the leader asks; all that it said before is dropped."""
    while SIGNATURE not in client.inbox:
        client.inbox += client.socket.recv(4096)
    client.inbox = client.inbox[client.inbox.index(SIGNATURE) :]
    while len(client.inbox) < CHALLENGE_SIZE:
        client.inbox += client.socket.recv(4096)
    nonce = client.inbox[len(SIGNATURE) : CHALLENGE_SIZE]
    client.inbox = client.inbox[CHALLENGE_SIZE:]
    assert challenge(nonce)[: len(SIGNATURE)] == SIGNATURE
    return nonce


def bring(client: PlainClient, announced: bytes = ANNOUNCED, key: bytes = KEY) -> dict[str, object]:
    """Say for whom a connection is; what the leader greets that client with."""
    client.send(announced)
    client.send(prove(key, nonce_of(client), announced))
    return client.info()


def is_cut_off(client: PlainClient) -> bool:
    """Whether the leader says nothing more but that it has closed the connection."""
    try:
        return client.socket.recv(4096) == b""
    except ConnectionResetError:
        return True


def connections(leader: Server, state: str = "open") -> list[tuple[str, int]]:
    with urllib.request.urlopen(f"{leader.monitoring_url}/connz?state={state}") as answer:
        found = json.load(answer)["connections"]
    return [(one["ip"], one["port"]) for one in found]


def find_closed(leader: Server) -> list[tuple[str, str]]:
    with urllib.request.urlopen(f"{leader.monitoring_url}/connz?state=closed") as answer:
        return [(one["ip"], one["reason"]) for one in json.load(answer)["connections"]]


def test_a_client_that_a_follower_brings_is_seen_at_its_own_address(
    leader: Server, tmp_path: Path
) -> None:
    with closing(PlainClient(leader.port)) as client:
        info = bring(client)
        assert (info["client_ip"], info["client_id"]) == (CLIENT.host, 1)
        client.send(CONNECT)
        assert client.line() == "PONG"
        assert connections(leader) == [CLIENT]
    assert "192.0.2.9:4711 - cid:1 - Client is here by" in (tmp_path / "log").read_text()


def test_clients_of_a_follower_that_is_gone_are_given_up(leader: Server) -> None:
    """Those of an earlier version of it, and those who came by themselves, are not."""
    runtime = leader.runtime
    assert runtime is not None
    with (
        closing(PlainClient(leader.port)) as client,
        closing(PlainClient(leader.port)) as other,
        closing(PlainClient(leader.port)) as direct,
    ):
        bring(client, announce(KEY, FOLLOWER, FOLLOWER, "n3"))
        bring(client)  # n3 led when n2 heard of it last
        bring(other)
        for one in (client, other, direct):
            one.send(CONNECT)
        assert client.line() == other.line() == "PONG"
        runtime.loop.call_soon_threadsafe(runtime.give_up_clients_of, {"n3"})
        assert is_cut_off(client)
        direct.info()
        for one in (other, direct):
            one.send("PING\r\n")
            assert one.line() == "PONG"
        assert find_closed(leader) == [(CLIENT.host, "Stale Connection")]


def test_a_client_that_comes_by_two_servers_is_seen_at_its_own_address(leader: Server) -> None:
    """One of them led when the other one heard of it last."""
    with closing(PlainClient(leader.port)) as client:
        assert bring(client, announce(KEY, FOLLOWER, FOLLOWER, "n3"))["client_ip"] == FOLLOWER.host
        assert bring(client)["client_ip"] == CLIENT.host
        client.send(CONNECT)
        assert client.line() == "PONG"


def test_a_proxy_before_the_follower_is_believed_with_proxy_protocol_alone(leader: Server) -> None:
    assert leader.runtime is not None
    for is_believed in (True, False):
        leader.runtime.proxy_protocol = is_believed
        with closing(PlainClient(leader.port)) as client:
            bring(client)
            client.send(HEADER + CONNECT)
            assert client.line().startswith("PONG" if is_believed else "-ERR")
            if is_believed:
                assert connections(leader) == [("192.0.2.7", 50312)]


@pytest.mark.parametrize(
    "key", [b"", relay_key(b"guessed", "token"), relay_key(b"secret", "guessed")]
)
def test_who_does_not_know_the_secret_is_cut_off_without_a_word(
    leader: Server, tmp_path: Path, key: bytes
) -> None:
    with closing(PlainClient(leader.port)) as client:
        client.info()
        client.send(announce(key, CLIENT, FOLLOWER, "n2"))
        assert is_cut_off(client)
    log = (tmp_path / "log").read_text()
    assert "who wrote it does not know the secret of this group" in log
    assert CLIENT.host not in log


def test_what_was_recorded_ends_at_the_nonce(leader: Server) -> None:
    with closing(PlainClient(leader.port)) as client:
        client.send(ANNOUNCED)
        recorded = prove(KEY, nonce_of(client), ANNOUNCED)
        client.send(recorded)
        client.info()
    with closing(PlainClient(leader.port)) as stranger:
        stranger.send(ANNOUNCED)
        nonce_of(stranger)
        stranger.send(recorded + CONNECT)
        assert is_cut_off(stranger)
    assert CLIENT not in connections(leader, "closed")[1:]


def test_who_never_proves_it_is_cut_off(leader: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "HEADER_SECONDS_MAX", 0.05)
    with closing(PlainClient(leader.port)) as client:
        client.send(ANNOUNCED)
        nonce_of(client)
        assert is_cut_off(client)


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        make_header(CLIENT, FOLLOWER, {0xE5: b"slipstream"}),
        b"PROXY TCP4 192.0.2.9 198.51.100.1 4711 4222\r\n",
    ],
)
def test_a_strangers_header_is_no_operation(leader: Server, header: bytes) -> None:
    with closing(PlainClient(leader.port)) as client:
        client.info()
        client.send(header + CONNECT)
        assert client.line().startswith("-ERR")
    assert [host for host, _ in connections(leader, "any")] == ["127.0.0.1"]


def test_clients_that_nobody_brings_notice_nothing(leader: Server) -> None:
    with closing(PlainClient(leader.port)) as client:
        assert client.info()["client_ip"] == "127.0.0.1"
        client.send(CONNECT)
        assert client.line() == "PONG"


@pytest.mark.parametrize("is_brought", [False, True])
def test_a_client_gets_info_before_tls_once_the_leader_may_answer(
    server_files: tuple[str, str], authority: Authority, is_brought: bool
) -> None:
    """It may not while it has not heard a majority for a moment."""
    tls = TlsOptions(cert_file=server_files[0], key_file=server_files[1])
    with Server(tls=tls) as server:
        assert server.runtime is not None
        server.runtime.relay_key = KEY
        server.runtime.engine.output.may_answer = lambda: False
        with closing(PlainClient(server.port)) as client:
            if is_brought:
                client.send(ANNOUNCED)
                client.send(prove(KEY, nonce_of(client), ANNOUNCED))
            client.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.line()
            client.socket.settimeout(TIMEOUT_SECONDS)
            server.runtime.engine.output.may_answer = None
            assert client.info()["client_ip"] == (CLIENT.host if is_brought else "127.0.0.1")
            client.secure(authority.client_context())
            client.send(CONNECT)
            assert client.line() == "PONG"
