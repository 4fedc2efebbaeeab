"""`slipstream console` as a person starts it."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

import slipstream
from slipstream.console.options import ConsoleOptions
from tests.console.conftest import MakeConsole
from tests.console.test_live import running

WAIT_SECONDS = 60.0
SOURCE = Path(slipstream.__file__).parents[1]


def start(*words: str) -> "subprocess.Popen[str]":
    """The command, with its outputs as pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "slipstream", "console", "--no-context", "--port", "0", *words],
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_it_says_where_it_is_and_ends_with_ctrl_c(own_url: str) -> None:
    process = start("--server", own_url, "--read-only")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
    page = httpx2.get(f"{address}/streams", timeout=WAIT_SECONDS).text
    assert "read-only" in page
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=WAIT_SECONDS)
    assert said == ""
    assert process.returncode == 0


def test_a_server_that_is_not_there_is_one_line() -> None:
    process = start("--server", "nats://127.0.0.1:1")
    out, said = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, said.count("\n")) == (1, "", 1)
    assert "slipstream serve" in said


def test_a_port_that_is_taken_is_one_line(own_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--server", own_url, "--port", str(taken.getsockname()[1]))
        _, said = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 1
    assert said.count("\n") == 1
    assert "--port takes another one" in said


def test_it_listens_on_this_machine_alone_unless_told_otherwise(own_url: str) -> None:
    assert ConsoleOptions().host == "127.0.0.1"
    with running(own_url) as address:
        assert httpx2.get(f"{address}/", timeout=WAIT_SECONDS).status_code == 200


def test_a_server_that_goes_away_is_said_and_found_again(
    tmp_path: Path, make_console: MakeConsole
) -> None:
    server = slipstream.Server(store_dir=str(tmp_path)).start()
    console = make_console(server.url)
    assert "connected" in console.get("/connections")
    port = server.port
    server.stop()
    assert 'role="alert"' in console.get("/streams")
    again = slipstream.Server(port=port, store_dir=str(tmp_path)).start()
    while 'role="alert"' in console.get("/streams"):
        pass
    again.stop()


def test_nothing_of_the_console_is_needed_by_the_rest() -> None:
    code = (
        "import sys, slipstream.cli.main, slipstream.client, slipstream.server.server\n"
        "import slipstream.cli.stream.command, slipstream.cli.consumer.why\n"
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('starlette', 'uvicorn', 'jinja2') or name.startswith('slipstream.console')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [["--mask-field"], ["--port", "many"], ["--no-such-option"]])
def test_what_cannot_be_read_is_a_misuse(words: list[str]) -> None:
    process = start(*words)
    _, said = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 2
    assert said.count("\n") == 1
