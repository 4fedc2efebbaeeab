"""`slipstream group up`: servers that act as one, by one command."""

import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import slipstream.sync
from tests.fix_server_process import CLI, WAIT_SECONDS, environment, run_to_end


def _heed_interrupts() -> None:
    """In a child: as in a shell's foreground, also where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(slots=True)
class Up:
    """A running command, and what it has printed."""

    process: subprocess.Popen[str]
    said: dict[str, Any]

    @property
    def urls(self) -> list[str]:
        return [server["url"] for server in self.said["servers"]]

    @property
    def pids(self) -> dict[str, int]:
        return {server["name"]: server["pid"] for server in self.said["servers"]}


@contextlib.contextmanager
def group_up(directory: Path, *more: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [*CLI, "group", "up", "--port", "0", "--directory", str(directory), "--json", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=_heed_interrupts,
    )
    assert process.stdout is not None
    text = ""
    try:
        while not text.endswith("\n}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            text += line
        yield Up(process, json.loads(text))
    finally:
        process.send_signal(signal.SIGINT)  # to one that has ended, this is nothing
        process.communicate(timeout=WAIT_SECONDS)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def bodies(url: str) -> list[bytes]:
    with slipstream.sync.connect(url) as nc:
        stream = nc.jetstream().stream("S")
        count = stream.info().state.messages
        return [stream.get_message(sequence + 1).data for sequence in range(count)]


def test_it_serves_at_each_url_until_it_is_interrupted_and_keeps_what_was_stored(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "group"
    with group_up(directory) as up:
        assert list(up.pids) == ["n1", "n2", "n3"]
        assert up.said["leader"] in up.pids
        with slipstream.sync.connect(up.urls[0]) as nc:
            nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=3)
        for number, url in enumerate(up.urls):
            with slipstream.sync.connect(url) as nc:
                assert nc.jetstream().publish("s", b"%d" % number).sequence == number + 1
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(WAIT_SECONDS) == 0
        assert [name for name, pid in up.pids.items() if is_running(pid)] == []
    for server in up.said["servers"]:
        assert "Server Exiting" in Path(server["log"]).read_text()
    with group_up(directory) as up:
        for url in up.urls:
            assert bodies(url) == [b"0", b"1", b"2"]


def test_it_goes_on_when_the_leader_is_killed_and_says_that_it_has_ended(tmp_path: Path) -> None:
    with group_up(tmp_path) as up:
        with slipstream.sync.connect(up.urls, max_reconnect_attempts=-1) as nc:
            nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=3)
        leader = up.said["leader"]
        os.kill(up.pids[leader], signal.SIGKILL)
        assert up.process.stderr is not None
        assert f"{leader} has ended by SIGKILL" in up.process.stderr.readline()
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(WAIT_SECONDS) == 0
        assert [name for name, pid in up.pids.items() if is_running(pid)] == []


def test_the_secret_is_in_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    with group_up(tmp_path):
        for name in ("n1", "n2", "n3"):
            file = tmp_path / f"{name}.conf"
            assert "password" in file.read_text()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_port_that_is_taken_is_named_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["group", "up", "--port", str(port), "--directory", str(tmp_path / "group")]
        done = run_to_end(*CLI, *words)
    assert done.returncode == 1
    assert f"another process has port {port}" in done.stderr
    assert not (tmp_path / "group").exists()


def test_a_server_that_cannot_start_ends_the_others_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "n2" / "commit-log").mkdir(parents=True)
    words = ["group", "up", "--port", "0", "--directory", str(tmp_path)]
    done = run_to_end(*CLI, *words)
    assert done.returncode == 1
    assert "n2 has ended with status 1" in done.stderr
    assert "is the store of a server by itself" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--servers", "4"], "--servers 4 is not a size of a group: choose 1, 2, 3 or 5"),
        (["--port", "65535"], "--port 65535 is none: choose 0 to 65533"),
    ],
)
def test_what_no_group_can_have_is_refused(tmp_path: Path, words: list[str], why: str) -> None:
    done = run_to_end(*CLI, "group", "up", *words, directory=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
    assert list(tmp_path.iterdir()) == []


def publish_until_stopped(urls: list[str], acknowledged: dict[bytes, int], stop: Event) -> None:
    """Publish numbered messages, and keep which were acknowledged, and as what."""
    with slipstream.sync.connect(urls, max_reconnect_attempts=-1, reconnect_wait=0.05) as nc:
        js, number = nc.jetstream(), 0
        while not stop.is_set():
            number += 1
            body = b"%d" % number
            with contextlib.suppress(slipstream.Error):
                acknowledged[body] = js.publish("s", body, timeout=2).sequence


def wait_for_more(acknowledged: dict[bytes, int], count: int = 50) -> None:
    wanted, end = len(acknowledged) + count, time.monotonic() + WAIT_SECONDS
    while len(acknowledged) < wanted:
        assert time.monotonic() < end, f"{len(acknowledged)} of {wanted} are acknowledged"
        time.sleep(0.01)


def wait_until_both_have_all(url: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    with slipstream.sync.connect(url) as nc:
        while True:
            cluster = nc.jetstream().stream("S").info().cluster
            if cluster is not None and [one.current for one in cluster.replicas] == [True]:
                return
            assert time.monotonic() < end, "the other server is behind, or away"
            time.sleep(0.05)


def test_of_two_either_goes_on_alone_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    acknowledged: dict[bytes, int] = {}
    stop = Event()
    with group_up(tmp_path, "--servers", "2") as up, ThreadPoolExecutor() as threads:
        assert up.said["register"] == (tmp_path / "register").as_uri()
        with slipstream.sync.connect(up.urls[0]) as nc:
            nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=2)
        publishing = threads.submit(publish_until_stopped, up.urls, acknowledged, stop)
        again: subprocess.Popen[bytes] | None = None
        try:
            wait_for_more(acknowledged)
            first = up.said["leader"]
            (second,) = set(up.pids) - {first}
            urls = {one["name"]: one["url"] for one in up.said["servers"]}
            os.kill(up.pids[first], signal.SIGKILL)
            wait_for_more(acknowledged)
            assert up.process.stderr is not None
            assert f"{first} has ended by SIGKILL" in up.process.stderr.readline()
            command = up.process.stderr.readline().partition("another terminal: slipstream ")[2]
            again = subprocess.Popen(
                [*CLI, *shlex.split(command)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment(),
            )
            wait_until_both_have_all(urls[second])
            os.kill(up.pids[second], signal.SIGKILL)
            wait_for_more(acknowledged)
            stop.set()
            publishing.result(WAIT_SECONDS)
            found = bodies(urls[first])
            assert [body for body, at in acknowledged.items() if found[at - 1] != body] == []
        finally:
            stop.set()
            if again is not None:
                again.terminate()
                again.wait(WAIT_SECONDS)


def test_two_say_where_their_register_is(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*CLI, "group", "up", "--servers", "2", "--port", "0", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=_heed_interrupts,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        assert "leads. Stores and logs are in" in lines[2]
        assert "Their register is beside them, in a file of this machine" in lines[3]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_SECONDS)
