"""`slipstream-server` as a process of its own, as scripts and test suites start it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import slipstream

WAIT_SECONDS = 60.0  # for what happens at once on a quiet machine
SERVER = (sys.executable, "-m", "slipstream.server.command")
CLI = (sys.executable, "-m", "slipstream.cli.main")


def run_to_end(*words: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        cwd=directory,
        env=environment(),
    )


def environment() -> dict[str, str]:
    """That of this process, with the package under test wherever the command runs."""
    return {**os.environ, "PYTHONPATH": str(Path(slipstream.__file__).parent.parent)}


@dataclass(slots=True)
class ServerProcess:
    """A running server; `directory` has its log and its ports file."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def log(self) -> str:
        """All that it has logged."""
        return (self.directory / "log").read_text()

    @property
    def ports_file(self) -> Path:
        """Where its ports are."""
        return self.directory / f"slipstream-server_{self.process.pid}.ports"

    @property
    def url(self) -> str:
        """Where clients connect."""
        url: str = json.loads(self.ports_file.read_text())["nats"][0]
        return url

    @property
    def port(self) -> int:
        """The port of that."""
        return int(self.url.rsplit(":", 1)[1])

    def wait_for(self, pattern: str, count: int = 1) -> list[str]:
        """Wait until its log has a pattern so many times; the matches."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found := re.findall(pattern, self.log)) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"not in the log: {pattern}\n{self.log}")
            if self.process.poll() is not None and len(re.findall(pattern, self.log)) < count:
                raise AssertionError(f"the server has ended: {self.log}")
            time.sleep(0.005)
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait_for_end(self) -> int:
        """The exit status."""
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        self.process.kill()
        self.process.wait()


def start_process(directory: Path, *flags: str) -> ServerProcess:
    """Start a server on a free port of this machine; returns once it is ready."""
    return started_as(SERVER, directory, *flags)


def started_as(command: tuple[str, ...], directory: Path, *flags: str) -> ServerProcess:
    """The same with a command of the caller's, which ends as `SERVER` in the same process."""
    directory.mkdir(parents=True, exist_ok=True)
    words = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(directory), *flags]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *words], stdout=subprocess.DEVNULL, stderr=log, env=environment()
        )
    server = ServerProcess(process, directory)
    try:
        server.wait_for("Server is ready")
        deadline = time.monotonic() + WAIT_SECONDS
        while not server.ports_file.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    except AssertionError:
        server.kill()
        raise
    return server


StartProcess = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartProcess]:
    """Starts servers with flags; each has a directory of its own. They end with the test."""
    started: list[ServerProcess] = []

    def start(*flags: str) -> ServerProcess:
        server = start_process(tmp_path / f"server-{len(started)}", *flags)
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()
