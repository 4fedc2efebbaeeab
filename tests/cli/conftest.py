"""The real executable, run against both servers, with and without a terminal."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import slipstream
import slipstream.sync
from tests.fix_nats_server import start_nats_server

SOURCE = Path(slipstream.__file__).parents[1]
WAIT_SECONDS = 60.0


def _heed_interrupts() -> None:
    """In a child: as in a shell's foreground, also where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _sit_at_terminal() -> None:
    """In a child: its input is the terminal that Ctrl-C comes from."""
    _heed_interrupts()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass(slots=True)
class Done:
    """How a command ended. On a terminal both outputs are one."""

    status: int
    out: str
    err: str


class Cli:
    """Runs `slipstream` as a person in a shell would."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.env = os.environ | {
            "NATS_URL": url,
            "XDG_CONFIG_HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "PYTHONPATH": str(SOURCE),
            "TERM": "xterm-256color",
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self.env.pop(name, None)

    def __call__(self, *words: str, stdin: str = "", status: int = 0) -> Done:
        """Without a terminal; the exit status has to be `status`."""
        done = self.run(*words, stdin=stdin)
        assert done.status == status, f"{words}: {done.out}{done.err}"
        return done

    def run(self, *words: str, stdin: str = "") -> Done:
        """Without a terminal, however it ends."""
        done = subprocess.run(
            self.command(words),
            input=stdin,
            env=self.env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, *words: str, answers: str = "", columns: int = 80) -> Done:
        """On a pseudo-terminal, typing `answers`."""
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            self.command(words),
            stdin=side,
            stdout=side,
            stderr=side,
            env=self.env,
            cwd=self.home,
            close_fds=True,
        )
        os.close(side)
        os.write(main, answers.encode())
        shown = b""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            readable, _, _ = select.select([main], [], [], 0.1)
            if readable:
                try:
                    data = os.read(main, 65536)
                except OSError:
                    break
                if not data:
                    break
                shown += data
            elif process.poll() is not None and not select.select([main], [], [], 0)[0]:
                break
        os.close(main)
        return Done(process.wait(10), shown.decode().replace("\r\n", "\n"), "")

    def interrupted(self, *words: str, at: str) -> Done:
        """On a terminal of its own: Ctrl-C when `at` is shown, then a "y" as a hasty person types.

        Fails if the process does not end.
        """
        main, side = pty.openpty()
        process = subprocess.Popen(
            self.command(words),
            stdin=side,
            stdout=side,
            stderr=side,
            env=self.env,
            cwd=self.home,
            start_new_session=True,
            preexec_fn=_sit_at_terminal,
        )
        os.close(side)
        shown = b""
        pressed = False
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if not select.select([main], [], [], 0.1)[0]:
                continue
            try:
                shown += os.read(main, 65536)
                if not pressed and at.encode() in shown:
                    pressed = True
                    os.write(main, b"\x03")
                    os.write(main, b"y\ny\n")
            except OSError:  # the terminal has gone with the process
                break
        status: int | None = None
        try:
            status = process.wait(10 if pressed else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(main)
        text = shown.decode().replace("\r\n", "\n")
        assert pressed, f"{words}: {at!r} was not asked: {text}"
        assert status is not None, f"{words}: goes on after Ctrl-C: {text}"
        return Done(status, text, "")

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A command that goes on by itself."""
        return subprocess.Popen(
            self.command(words),
            env=self.env,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_heed_interrupts,
        )

    def command(self, words: tuple[str, ...]) -> list[str]:
        """What is run."""
        return [sys.executable, "-m", "slipstream", *words]


@pytest.fixture(scope="module", params=("slipstream", "nats-server"))
def server_of_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server of its own for each module of tests."""
    directory = tmp_path_factory.mktemp("server")
    if request.param == "slipstream":
        with slipstream.Server(store_dir=str(directory)) as server:
            yield server.url
        return
    real = start_nats_server(directory)
    yield real.url
    real.process.terminate()
    real.process.wait(10)


@pytest.fixture
def cli(server_of_module: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line, with an empty configuration directory of its own. The streams that a test
    makes go with it, so that another one may give its own the same names."""
    before = _streams_of(server_of_module)
    yield Cli(server_of_module, tmp_path)
    _streams_of(server_of_module, keep=before)


def _streams_of(url: str, keep: set[str] | None = None) -> set[str]:
    """The names of a server's streams; with `keep` all others go."""
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        names = set(js.stream_names())
        for name in names - keep if keep is not None else ():
            with contextlib.suppress(slipstream.Error):
                js.delete_stream(name)
        return names


@pytest.fixture
def offline(tmp_path: Path) -> Cli:
    """The command line where no server is."""
    return Cli("nats://127.0.0.1:1", tmp_path)
