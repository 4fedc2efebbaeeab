"""A running server takes over a changed configuration, or goes on as before."""

import ipaddress
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import nats
import pytest
from cryptography import x509
from nats.js.errors import APIError

from slipstream.errors import ConfigError
from slipstream.server import Server
from slipstream.server.config import load_text
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions, ServerOptions
from tests.fix_certificates import Authority
from tests.fix_server_process import StartProcess
from tests.server.plain_client import PlainClient, plain_client

ANN = "{user: ann, password: a}"
BOB = "{user: bob, password: b}"


class Lines:
    """A sink that keeps what is logged."""

    def __init__(self) -> None:
        self.text = ""

    def put(self, level: str, text: str) -> None:
        self.text += f"[{level}] {text}\n"

    def set_options(self, options: LoggingOptions) -> None:
        """The form does not matter here."""

    def reopen(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close."""


class Reloading:
    """A server, and what it is told as the text of a configuration file."""

    def __init__(self, stack: ExitStack, store_dir: Path) -> None:
        self._stack = stack
        self._base = f"host: 127.0.0.1\nport: -1\nstore_dir: {store_dir}\n"
        self.lines = Lines()
        self.server: Server

    def start(self, text: str) -> int:
        """Start; the port."""
        options = self.options(text)
        log = Logger(self.lines, options.logging)
        self.server = self._stack.enter_context(Server(config=options, log=log))
        return self.server.port

    def options(self, text: str) -> ServerOptions:
        """What a file with `text` makes."""
        return load_text(self._base + text).options

    def reload(self, text: str) -> str:
        """Reload; what the log says of it."""
        before = len(self.lines.text)
        self.server.reload(self.options(text))
        return self.lines.text[before:]


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    """A server that is not started yet."""
    with ExitStack() as stack:
        yield Reloading(stack, tmp_path / "store")


Connect = Callable[[int, str, str], PlainClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects as a user; hangs up after the test."""
    clients = []

    def connected(port: int, user: str, password: str) -> PlainClient:
        client = PlainClient(port)
        clients.append(client)
        client.info()
        options = f'{{"verbose":false,"user":"{user}","pass":"{password}"}}'
        client.send(f"CONNECT {options}\r\n")
        assert client.ping() == []
        return client

    yield connected
    for client in clients:
        client.close()


def test_limits_hold_from_then_on(reloading: Reloading) -> None:
    port = reloading.start("max_payload: 1000\n")
    with plain_client(port) as old:
        old.info()
        said = reloading.reload("max_payload: 10\nmax_control_line: 64\n")
        assert "[INF] Reloaded: max_payload = 10\n" in said
        assert "[INF] Reloaded: max_control_line = 64\n" in said
        assert "[INF] Reloaded server configuration (sha256:" in said
        with plain_client(port) as new:
            assert new.info()["max_payload"] == 10
        old.send("PUB a 11\r\n")
        assert old.line() == "-ERR 'Maximum Payload Violation'"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("server_name: other\n", "config reload not supported for ServerName: old=, new=other"),
        ("max_payload: 10MB\nmax_pending: 1MB\n", "max_payload"),
        ("tls {cert_file: /nonexistent, key_file: /nonexistent}\n", "/nonexistent"),
        ("log_file: /nonexistent/log\n", "error opening the log"),
        ("pid_file: /nonexistent/pid\n", "/nonexistent"),
    ],
)
def test_a_reload_that_can_not_be_is_refused_and_changes_nothing(
    reloading: Reloading, text: str, reason: str
) -> None:
    port = reloading.start("max_payload: 1000\n")
    with pytest.raises(ConfigError, match=re.escape(reason)):
        reloading.reload("max_payload: 7\n" + text)
    with plain_client(port) as client:
        assert client.info()["max_payload"] == 1000


def test_a_signal_reloads_the_file_and_flags_go_on_overriding_it(
    start_server: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text("server_name: file\n")
    server = start_server("-c", str(path), "-n", "flag")
    path.write_text("nonsense: 1\n")
    server.send(signal.SIGHUP)
    server.wait_for(r'Trapped "hangup" signal')
    server.wait_for(
        rf'\[ERR\] Failed to reload server configuration: {path}:1:1: unknown field "nonsense"'
    )
    path.write_text("server_name: other\nmax_payload: 7\n")
    server.send(signal.SIGHUP)
    server.wait_for(r"Reloaded server configuration \(sha256:\w{64}\)")
    with plain_client(server.port) as client:
        info = client.info()
    assert (info["server_name"], info["max_payload"]) == ("flag", 7)


def test_without_a_file_there_is_nothing_to_reload(start_server: StartProcess) -> None:
    server = start_server()
    server.send(signal.SIGHUP)
    server.wait_for("Failed to reload server configuration: can only reload config when a file")


def test_who_is_no_longer_let_in_is_cut_off(reloading: Reloading, connect: Connect) -> None:
    port = reloading.start(f"authorization {{users: [{ANN}, {BOB}]}}")
    ann, bob = connect(port, "ann", "a"), connect(port, "bob", "b")
    reloading.reload(
        f"authorization {{users: [{ANN.replace('password: a', 'password: x')}, {BOB}]}}"
    )
    assert ann.line() == "-ERR 'Authorization Violation'"
    assert ann.is_closed()
    assert bob.ping() == []
    reloading.reload(f"authorization {{users: [{ANN}]}}")
    assert bob.line() == "-ERR 'Authorization Violation'"
    assert connect(port, "ann", "a").ping() == []


def test_subscriptions_that_are_no_longer_allowed_end(
    reloading: Reloading, connect: Connect
) -> None:
    port = reloading.start(f"authorization {{users: [{ANN}]}}")
    client = connect(port, "ann", "a")
    client.send("SUB x 1\r\nSUB y q 2\r\nSUB z 3\r\n")
    client.ping()
    limited = ANN.replace("}", ", permissions: {subscribe: z}}")
    said = reloading.reload(f"authorization {{users: [{limited}]}}")
    expected = ['"x" (sid "1")', '"y" using queue "q" (sid "2")']
    for text in expected:
        assert client.line() == f"-ERR 'Permissions Violation for Subscription to {text}'"
        assert f'Removed sub {text} for User "ann" - not authorized' in said
    client.send("PUB x 2\r\nhi\r\nPUB z 2\r\nho\r\n")
    assert client.ping() == ["MSG z 3 2", "ho"]


def test_a_user_who_moves_to_another_account_has_to_connect_again(
    reloading: Reloading, connect: Connect
) -> None:
    port = reloading.start(f"authorization {{users: [{ANN}]}}")
    client = connect(port, "ann", "a")
    reloading.reload(f"accounts {{A: {{users: [{ANN}]}}}}")
    assert client.is_closed()
    assert client.inbox == b""
    assert connect(port, "ann", "a").ping() == []


def test_fewer_connections_are_kept(reloading: Reloading) -> None:
    port = reloading.start("max_connections: 10\n")
    with plain_client(port) as first, plain_client(port) as second:
        for client in (first, second):
            client.info()
            client.ping()
        said = reloading.reload("max_connections: 1\n")
        assert "Closed 1 connections to fall within max_connections" in said
        closed = [c for c in (first, second) if c.ping() != []]
        assert len(closed) == 1


def test_an_account_with_less_room_keeps_its_newest_connections(
    reloading: Reloading, connect: Connect
) -> None:
    port = reloading.start(f"accounts {{A: {{users: [{ANN}]}}}}")
    clients = [connect(port, "ann", "a") for _ in range(4)]
    reloading.reload(f"accounts {{A: {{users: [{ANN}], limits: {{max_conn: 2}}}}}}")
    for client in clients[:2]:
        assert client.line() == "-ERR 'maximum account active connections exceeded'"
        assert client.is_closed()
    for client in clients[2:]:
        assert client.ping() == []


def test_who_has_more_subscriptions_than_the_account_allows_is_cut_off(
    reloading: Reloading, connect: Connect
) -> None:
    port = reloading.start(f"accounts {{A: {{users: [{ANN}]}}}}")
    few, many = connect(port, "ann", "a"), connect(port, "ann", "a")
    few.send("SUB x 1\r\nSUB y 2\r\n")
    many.send("SUB x 1\r\nSUB y 2\r\nSUB z 3\r\n")
    assert few.ping() == many.ping() == []
    reloading.reload(f"accounts {{A: {{users: [{ANN}], limits: {{max_subs: 2}}}}}}")
    assert many.line() == "-ERR 'maximum subscriptions exceeded'"
    assert many.is_closed()
    assert few.ping() == []


async def test_the_default_account_has_jetstream_only_while_it_is_alone(
    reloading: Reloading,
) -> None:
    port = reloading.start("jetstream {}")
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    reloading.reload("jetstream {}\naccounts {A: {jetstream: enabled}}")
    with pytest.raises(APIError, match="not enabled for account"):
        await js.account_info()
    reloading.reload("jetstream {}")
    assert (await js.account_info()).streams == 1
    await client.close()


def test_debug_trace_and_the_log_file_follow(reloading: Reloading, tmp_path: Path) -> None:
    port = reloading.start("ping_max: 2\n")
    with plain_client(port) as client:
        client.info()
        client.ping()
        log = tmp_path / "moved.log"
        reloading.reload(f"debug: true\ntrace: true\nlog_file: {log}\nlogtime: false\n")
        client.send("PUB a 2\r\nhi\r\n")
        client.ping()
        said = log.read_text()
    assert f"[{os.getpid()}] [INF] Reloaded: debug = true" in said
    assert "<<- [PUB a 2]" in said


def test_a_renewed_certificate_is_shown_to_new_clients(
    reloading: Reloading, authority: Authority
) -> None:
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = []
    text = "tls {{cert_file: {}, key_file: {}}}\n"
    port = reloading.start(text.format(*authority.issue("first", here)))
    for name in ("first", "second"):
        if name == "second":
            assert "Reloaded: tls = enabled" in reloading.reload(
                text.format(*authority.issue("second", here))
            )
        with plain_client(port) as client:
            client.info()
            client.secure(authority.client_context())
            certificate = client.socket.getpeercert()  # type: ignore[attr-defined]
            names.append(certificate["subject"][0][0][1])
    assert names == ["first", "second"]


async def test_jetstream_goes_off_and_comes_back_with_what_it_had(reloading: Reloading) -> None:
    on = "jetstream: enabled\n"
    reloading.start(on)
    nc = await nats.connect(reloading.server.url)
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.publish("s", b"kept")
    reloading.reload("jetstream: false\n")
    with pytest.raises(nats.errors.NoRespondersError):
        await nc.request("$JS.API.INFO", timeout=5)
    reloading.reload(on)
    assert (await js.get_msg("S", 1)).data == b"kept"
    assert (await js.publish("s", b"new")).seq == 2
    await nc.close()


async def test_accounts_come_and_go(reloading: Reloading) -> None:
    def text(accounts: str) -> str:
        return f"jetstream: enabled\naccounts {{{accounts}}}\n"

    a = "A: {jetstream: enabled, users: [{user: a, password: a}]}"
    b = "B: {jetstream: enabled, users: [{user: b, password: b}]}"
    reloading.start(text(a))
    url = reloading.server.url.replace("//", "//b:b@")
    reloading.reload(text(a + "\n" + b))
    nc = await nats.connect(url)
    await nc.jetstream().add_stream(name="S", subjects=["s"])
    await nc.close()
    reloading.reload(text(a))
    with pytest.raises(nats.errors.Error):
        await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=0)
    reloading.reload(text(a + "\n" + b))
    nc = await nats.connect(url)
    assert (await nc.jetstream().stream_info("S")).config.subjects == ["s"]
    await nc.close()
