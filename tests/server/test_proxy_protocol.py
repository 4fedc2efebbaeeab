"""`proxy_protocol`: clients behind a proxy are seen at their own addresses."""

import json
import socket
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slipstream.server import Server, proxied
from slipstream.server.logger import open_logger
from slipstream.server.options import LoggingOptions
from slipstream.server.proxy_header import SIGNATURE, Address, make_header
from tests.fix_certificates import Authority
from tests.fix_nats_server import start_nats_server, stop_nats_server
from tests.server.plain_client import PlainClient

CONNECT = b'CONNECT {"verbose":false}\r\nPING\r\n'
HEADER = make_header(Address("192.0.2.7", 50312), Address("198.51.100.1", 4222), {})
LINE = b"PROXY TCP4 192.0.2.8 198.51.100.1 50313 4222\r\n"
OWN = "127.0.0.1"
HEADERS = {
    "none": (b"", OWN),
    "version 2": (HEADER, "192.0.2.7"),
    "version 2 for itself": (SIGNATURE + b"\x20\0\0\0", OWN),
    "version 1": (LINE, "192.0.2.8"),
    "version 1 of nobody": (b"PROXY UNKNOWN\r\n", OWN),
    "version 3": (SIGNATURE + b"\x31" + HEADER[13:], ""),
    "no command": (SIGNATURE + b"\x22" + HEADER[13:], ""),
    "of a Unix socket": (SIGNATURE + b"\x21\x31" + struct.pack(">H", 216) + bytes(216), ""),
    "of UDP": (SIGNATURE + b"\x21\x12" + HEADER[14:], ""),
    "cut short": (SIGNATURE + b"\x21\x11\0\3abc", ""),
    "another family": (b"PROXY TCP4 ::1 198.51.100.1 1 2\r\n", ""),
    "a port too far": (b"PROXY TCP4 192.0.2.8 198.51.100.1 65536 2\r\n", ""),
}


def seen(port: int, monitoring: str, header: bytes) -> str:
    """The address by which a server knows a client that sends a header; "" if it is refused."""
    with closing(PlainClient(port)) as client:
        cid = client.info()["client_id"]
        client.send(header + CONNECT)
        try:
            if client.line() != "PONG":
                return ""
        except ConnectionResetError:
            return ""
        with urllib.request.urlopen(f"{monitoring}/connz?cid={cid}") as answer:
            found: dict[str, object] = json.load(answer)["connections"][0]
        return str(found["ip"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(proxy_protocol=True, monitoring_port=0) as server:
        yield server


def test_a_header_is_believed_or_refused_as_by_nats_server(server: Server, tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("proxy_protocol: true\n")
    theirs = start_nats_server(tmp_path / "nats-server", "-c", str(tmp_path / "nats.conf"))
    try:
        for name, (header, address) in HEADERS.items():
            found = seen(server.port, server.monitoring_url, header)
            assert (name, found) == (name, address)
            monitoring = f"http://127.0.0.1:{theirs.monitor_port}"
            assert (name, seen(theirs.port, monitoring, header)) == (name, address)
    finally:
        stop_nats_server(theirs)


def test_a_header_may_come_byte_by_byte_with_what_follows(server: Server) -> None:
    for header in (HEADER, LINE):
        with closing(PlainClient(server.port)) as client:
            client.info()
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in header + CONNECT:
                client.send(bytes([byte]))
            assert client.line() == "PONG"


def test_what_only_begins_like_a_header_is_read_by_the_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied, "HEADER_SECONDS_MAX", 0.05)
    for data in (SIGNATURE[:5], HEADER[:20], b"PRO", LINE[:-1]):
        with closing(PlainClient(server.port)) as client:
            client.info()
            client.send(data)
            while line := client.line():
                assert line.startswith("-ERR")


def test_without_the_directive_a_header_is_no_operation() -> None:
    with Server(monitoring_port=0) as server:
        for header in (HEADER, LINE):
            assert seen(server.port, server.monitoring_url, header) == ""


@pytest.mark.parametrize("first", [False, True])
def test_the_header_comes_before_tls(
    server_files: tuple[str, str], authority: Authority, tmp_path: Path, first: bool
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        "port: -1\nproxy_protocol: true\nhttp: '127.0.0.1:-1'\n"
        f"tls {{ cert_file: '{server_files[0]}', key_file: '{server_files[1]}'\n"
        f"handshake_first: {str(first).lower()} }}\n"
    )
    with Server(config=str(path)) as server, closing(PlainClient(server.port)) as client:
        if not first:
            client.info()
        client.send(HEADER)
        client.secure(authority.client_context())
        if first:
            assert client.info()["client_ip"] == "192.0.2.7"
        client.send(CONNECT)
        assert client.line() == "PONG"
        with urllib.request.urlopen(f"{server.monitoring_url}/connz") as answer:
            found = json.load(answer)["connections"][0]
    assert (found["ip"], found["port"]) == ("192.0.2.7", 50312)


def test_the_log_names_the_client(tmp_path: Path) -> None:
    log = tmp_path / "log"
    logger = open_logger(LoggingOptions(debug=True, log_file=str(log)))
    with Server(proxy_protocol=True, monitoring_port=0, log=logger) as server:
        seen(server.port, server.monitoring_url, HEADER)
    text = log.read_text()
    assert "192.0.2.7:50312 - cid:1 - Client is here by the connection of 127.0.0.1:" in text
    assert "192.0.2.7:50312 - cid:1 - Client connection closed" in text
