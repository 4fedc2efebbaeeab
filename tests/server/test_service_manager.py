"""What systemd hears of a server that it has started."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.server.service_manager import ServiceManager
from tests.fix_server_process import StartProcess

WAIT_SECONDS = 60.0


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen on; its path is short enough for one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0slipstream-test-{os.getpid()}-{threading.get_ident()}")
        channel.settimeout(WAIT_SECONDS)
        yield channel


def address(channel: socket.socket) -> str:
    name: bytes = channel.getsockname()
    return "@" + name[1:].decode()


def heard(channel: socket.socket, wanted: str) -> list[str]:
    """The next message that is not a sign of life, unless that is wanted."""
    while True:
        lines = channel.recv(4096).decode().split("\n")
        if lines != ["WATCHDOG=1"] or wanted == "WATCHDOG=1":
            assert lines[0] == wanted, lines
            return lines


def test_it_hears_of_the_start_of_reloads_and_of_the_end(
    systemd: socket.socket,
    start_server: StartProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address(systemd))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    config = tmp_path / "server.conf"
    config.write_text("max_payload: 1MB\n")
    server = start_server("-c", str(config))
    assert heard(systemd, "READY=1") == ["READY=1"]
    for _ in range(3):
        heard(systemd, "WATCHDOG=1")
    before = time.monotonic_ns() // 1000
    for _ in range(2):
        server.send(signal.SIGHUP)
        at = heard(systemd, "RELOADING=1")[1]
        assert before <= int(at.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        heard(systemd, "READY=1")
        config.write_text("nonsense: ]\n")  # the server goes on as before
    server.send(signal.SIGTERM)
    heard(systemd, "STOPPING=1")
    assert server.wait_for_end() == 0


async def test_a_loop_that_hangs_shows_no_life(systemd: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": address(systemd), "WATCHDOG_USEC": "20000"}
    ServiceManager(environment).begin(asyncio.get_running_loop())
    heard(systemd, "READY=1")
    heard(systemd, "WATCHDOG=1")
    systemd.settimeout(0.05)  # two and a half times what is allowed
    with pytest.raises(TimeoutError):
        systemd.recv(4096)  # nothing runs on the loop meanwhile
    systemd.setblocking(False)
    await asyncio.wait_for(asyncio.get_running_loop().sock_recv(systemd, 4096), WAIT_SECONDS)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "often"},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
async def test_who_is_not_there_is_not_told(environment: dict[str, str]) -> None:
    service = ServiceManager(environment)
    service.begin(asyncio.get_running_loop())
    service.tell_reloading()
