"""What the log looks like, line by line, and where it goes."""

import io
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND
from slipstream.server import Server
from slipstream.server.banner import warn_about
from slipstream.server.log_sinks import FileSink, StreamSink
from slipstream.server.logger import Logger, open_logger, open_sink
from slipstream.server.options import (
    AccountOptions,
    AuthorizationOptions,
    JetStreamOptions,
    LimitsOptions,
    LoggingOptions,
    ServerOptions,
    TlsOptions,
    UserOptions,
)
from tests.server.plain_client import PlainClient, plain_client

TIME = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} "


def lines_of(options: LoggingOptions) -> str:
    stream = io.StringIO()
    log = Logger(StreamSink(options, stream), options)
    log.trace("t")
    log.debug("d")
    log.info("i")
    log.warn("w")
    log.error("e")
    log.fatal("f")
    return stream.getvalue()


def test_each_level_has_its_label_and_what_is_not_wanted_is_left_out() -> None:
    usual = lines_of(LoggingOptions())
    assert re.findall(r"\[(\w{3})\] (\w)\n", usual) == [
        ("INF", "i"),
        ("WRN", "w"),
        ("ERR", "e"),
        ("FTL", "f"),
    ]
    assert "[DBG] d" in lines_of(LoggingOptions(debug=True))
    for wanted in ("trace", "trace_verbose", "trace_headers"):
        assert "[TRC] t" in lines_of(LoggingOptions(**{wanted: True}))


def test_a_line_begins_with_the_process_and_the_time() -> None:
    pid = rf"\[{os.getpid()}\] "
    assert re.match(pid + TIME + r"\[INF\] i\n", lines_of(LoggingOptions()))
    assert re.match(pid + TIME, lines_of(LoggingOptions(logtime_utc=True)))
    assert re.match(pid + r"\[INF\] i\n", lines_of(LoggingOptions(logtime=False)))


def test_a_terminal_gets_colours() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    Logger(StreamSink(LoggingOptions(), stream), LoggingOptions()).error("e")
    assert "[\x1b[31mERR\x1b[0m] e\n" in stream.getvalue()


# -- files ---------------------------------------------------------------------------------------


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in ("one", "two"):
        log = open_logger(LoggingOptions(log_file=str(path)))
        log.info(text)
        log.sink.close()
    assert re.findall(r"\[INF\] (\w+)", path.read_text()) == ["one", "two"]


def test_a_file_that_was_moved_away_begins_anew_when_reopened(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = open_logger(LoggingOptions(log_file=str(path)))
    log.info("old")
    path.rename(tmp_path / "old")
    log.info("still old")
    log.reopen()
    assert "still old" in (tmp_path / "old").read_text()
    assert "[INF] File log re-opened" in path.read_text()
    log.sink.close()


def test_a_file_past_its_limit_is_renamed_and_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    options = LoggingOptions(log_file=str(path), log_size_limit=200, log_max_num=3)
    log = open_logger(options)
    for n in range(20):
        log.info(f"{n:03} " + "x" * 100)
    log.sink.close()
    backups = sorted(entry.name for entry in tmp_path.iterdir() if entry != path)
    assert len(backups) == 2
    for name in backups:
        assert re.fullmatch(r"log\.\d{4}(\.\d\d){5}\.\d{9}", name)
    assert f'Rotated log, backup saved as "{path}.' in path.read_text()


def test_a_file_that_can_not_be_opened_is_said_so() -> None:
    with pytest.raises(ConfigError, match=r"error opening the log: .*/nonexistent/log"):
        open_sink(LoggingOptions(log_file="/nonexistent/log"))
    with pytest.raises(ConfigError, match="must be udp://host:port"):
        open_sink(LoggingOptions(remote_syslog="nowhere"))


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    sink = FileSink(LoggingOptions(log_file="/dev/full"))
    sink.put("INF", "lost")
    sink.close()


def test_a_syslog_server_gets_the_text_with_its_severity() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        port = server.getsockname()[1]
        log = open_logger(LoggingOptions(remote_syslog=f"udp://127.0.0.1:{port}"))
        log.error("broken")
        priority, _, text = server.recv(1000).decode().partition(">")
        assert int(priority[1:]) % 8 == 3
        assert text.rstrip("\0") == f"nats-server[{os.getpid()}]: broken"
        log.sink.close()


# -- the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "is_warned"),
    [
        (ServerOptions(), True),
        (ServerOptions(host="::"), True),
        (ServerOptions(host="127.0.0.1"), False),
        (ServerOptions(authorization=AuthorizationOptions(token="t")), False),
        (
            ServerOptions(accounts={"A": AccountOptions(name="A", users=[UserOptions(user="a")])}),
            False,
        ),
        (ServerOptions(tls=TlsOptions(verify=True)), False),
        (ServerOptions(tls=TlsOptions(verify=True), allow_non_tls=True), True),
    ],
)
def test_a_server_that_is_open_to_all_says_so(options: ServerOptions, is_warned: bool) -> None:
    stream = io.StringIO()
    warn_about(Logger(StreamSink(options.logging, stream), options.logging), options)
    assert ("[WRN] No users are configured" in stream.getvalue()) is is_warned


# -- clients -------------------------------------------------------------------------------------


class Logged:
    """A server, and what it logs."""

    def __init__(self, stack: ExitStack, store_dir: Path) -> None:
        self._stack = stack
        self._store_dir = store_dir
        self._stream = io.StringIO()

    def start(self, logging_options: LoggingOptions, **options: object) -> int:
        logging_options.logtime = False
        config = ServerOptions(host="127.0.0.1", port=-1, logging=logging_options, **options)  # type: ignore[arg-type]
        log = Logger(StreamSink(logging_options, self._stream), logging_options)
        self.server = self._stack.enter_context(Server(config=config, log=log))
        return self.server.port

    def lines(self) -> list[str]:
        """Of clients, without process id and address."""
        found = re.findall(
            r"^\[\d+\] (\[\w+\]) 127\.0\.0\.1:\d+ - (.*)$", self._stream.getvalue(), re.M
        )
        return [f"{level} {text}" for level, text in found]

    def text(self) -> str:
        """All of it."""
        return self._stream.getvalue()

    def wait_for(self, text: str) -> None:
        """Wait until it is logged: what a client does, the server sees a moment later."""
        deadline = time.monotonic() + 30
        while text not in self.text():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.005)

    def end(self) -> list[str]:
        """Stop the server first."""
        self.server.stop()
        return self.lines()


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    with ExitStack() as stack:
        yield Logged(stack, tmp_path)


def connect(client: PlainClient, options: str) -> None:
    client.info()
    client.send(f"CONNECT {options}\r\n")
    client.ping()


WHO = '{"verbose":false,"user":"ann","pass":"secret","lang":"py","version":"1.2","name":"me"}'
LABEL = 'cid:1 - "v1.2:py:me" - "$G/user:ann" - '
ANN = AuthorizationOptions(users=[UserOptions(user="ann", password="secret")])


def test_a_client_comes_and_goes(logged: Logged) -> None:
    port = logged.start(LoggingOptions(debug=True), authorization=ANN)
    with plain_client(port) as client:
        connect(client, WHO)
    logged.wait_for("Client connection closed")
    assert logged.end() == [
        "[DBG] cid:1 - Client connection created",
        f"[DBG] {LABEL}Client connection closed: Client Closed",
    ]


def test_each_frame_is_traced_and_secrets_are_not(logged: Logged) -> None:
    options = LoggingOptions(trace=True, max_traced_msg_len=4)
    port = logged.start(options, authorization=ANN)
    with plain_client(port) as client:
        connect(client, WHO)
        client.send("SUB a 1\r\nPUB a r 6\r\nhi\r\nho\r\nUNSUB 1\r\nPING\r\n")
        client.lines_until("PONG")
    hidden = WHO.replace('"secret"', '"[REDACTED]"')
    assert logged.lines() == [
        f"[TRC] cid:1 - <<- [CONNECT {hidden}]",
        f"[TRC] {LABEL}<<- [PING]",
        f"[TRC] {LABEL}->> [PONG]",
        f"[TRC] {LABEL}<<- [SUB a 1]",
        f"[TRC] {LABEL}<<- [PUB a r 6]",
        rf'[TRC] {LABEL}<<- MSG_PAYLOAD: ["hi\r\n..."]',
        f"[TRC] {LABEL}<<- [UNSUB 1]",
        f"[TRC] {LABEL}<-> [DELSUB 1]",
        f"[TRC] {LABEL}<<- [PING]",
        f"[TRC] {LABEL}->> [MSG a 1 r 6]",
        rf'[TRC] {LABEL}->> MSG_PAYLOAD: ["hi\r\n..."]',
        f"[TRC] {LABEL}->> [PONG]",
    ]


def test_a_large_message_is_traced_as_one_frame(logged: Logged) -> None:
    port = logged.start(LoggingOptions(trace=True, max_traced_msg_len=4))
    body = "x" * 100_000
    with plain_client(port) as client:
        client.send('CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        client.send(f"PUB a {len(body)}\r\n{body}\r\n")
        assert client.ping() == [f"MSG a 1 {len(body)}", body]
    text = logged.text()
    assert f"->> [MSG a 1 {len(body)}]" in text
    assert '->> MSG_PAYLOAD: ["xxxx..."]' in text


def test_only_headers_are_traced_if_that_is_asked_for(logged: Logged) -> None:
    port = logged.start(LoggingOptions(trace_headers=True))
    with plain_client(port) as client:
        connect(client, '{"verbose":false,"headers":true}')
        client.send("HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPUB a 2\r\nho\r\n")
        client.ping()
    payloads = [line for line in logged.lines() if "PAYLOAD" in line]
    assert payloads == [r'[TRC] cid:1 - <<- MSG_PAYLOAD: ["NATS/1.0\r\n\r\n"]']


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        ('CONNECT {"user":"bob","pass":"x"}\r\n', 'authentication error - User "bob"'),
        ("CONNECT {}\r\n", "authentication error"),
        (f"CONNECT {WHO}\r\nNONSENSE\r\n", "Client parser ERROR: not a NATS operation"),
        (
            f"CONNECT {WHO}\r\nPUB a 9000000\r\n",
            "maximum payload exceeded: more than 1048576 bytes",
        ),
        (f"CONNECT {WHO}\r\nSUB {'a' * 5000} 1\r\n", "maximum control line exceeded"),
    ],
)
def test_what_is_wrong_with_a_client_is_an_error(logged: Logged, sent: str, line: str) -> None:
    port = logged.start(LoggingOptions(), authorization=ANN)
    with plain_client(port) as client:
        client.info()
        client.send(sent)
        client.is_closed()
    (found,) = logged.end()
    assert found.startswith("[ERR] cid:1 - ")
    assert line in found


def test_what_was_wrong_after_much_else_is_an_error_too(logged: Logged) -> None:
    with plain_client(logged.start(LoggingOptions(debug=True))) as client:
        connect(client, '{"verbose":false}')
        client.send("SUB a 1\r\n" * 20_000 + "PUB a b c d\r\n")
        assert client.is_closed()
        logged.wait_for("SUB a 1\\r\\nSUB a 1")
    assert "[ERR] cid:1 - Client parser ERROR" in "\n".join(logged.end())


def test_what_a_client_sent_instead_of_nats_is_shown_without_secrets(logged: Logged) -> None:
    port = logged.start(LoggingOptions(), authorization=ANN)
    for sent in ("GET / HTTP/1.1\r\n", f"CONNECT {WHO}\r\nNONSENSE\r\n"):
        with plain_client(port) as client:
            client.info()
            client.send(sent)
            client.is_closed()
    text = "\n".join(logged.end())
    assert "secret" not in text
    assert """proto='CONNECT {"verbose":false,"user":"ann","pass":"[REDACTED]",""" in text


def test_a_stale_client_and_a_late_one_are_for_debugging(logged: Logged) -> None:
    limits = LimitsOptions(ping_interval=SECOND // 20, ping_max=1)
    port = logged.start(LoggingOptions(debug=True), limits=limits)
    with plain_client(port) as client:
        client.info()
        client.is_closed()
    assert logged.end()[1:] == [
        "[DBG] cid:1 - Stale Client Connection - Closing",
        "[DBG] cid:1 - Client connection closed: Stale Connection",
    ]


def test_a_fault_of_the_server_costs_one_client_and_is_shown(logged: Logged) -> None:
    port = logged.start(LoggingOptions())
    runtime = logged.server.runtime
    assert runtime is not None
    with plain_client(port) as unlucky, plain_client(port) as other:
        unlucky.info()
        other.info()
        connection: Any = next(c for c in runtime.connections if c.session.cid == 1)
        session = connection.session

        def fail(data: bytes) -> None:
            connection.session = session
            raise ValueError("planted")

        connection.session = SimpleNamespace(receive=fail, close=session.close, closed=True)
        unlucky.send("PING\r\n")
        assert unlucky.is_closed()
        assert other.ping() == []
    text = logged.text()
    assert "cid:1 - acting on what it sent: ValueError('planted'); please report this" in text
    assert 'raise ValueError("planted")' in text


def test_an_embedded_server_speaks_through_the_logging_module(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "slipstream.server"), Server():
        pass
    assert ("slipstream.server", logging.INFO, "Server is ready") in caplog.record_tuples


def test_a_stream_that_can_not_be_recovered_is_an_error(logged: Logged, tmp_path: Path) -> None:
    broken = tmp_path / "jetstream" / "$G" / "S"
    broken.mkdir(parents=True)
    (broken / "meta.0").write_text("nonsense")
    jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    logged.start(LoggingOptions(), jetstream=jetstream)
    assert "[ERR] JetStream stream '$G > S' could not be recovered: " in logged.text()
