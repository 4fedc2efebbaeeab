"""A writer or a server that is killed, at any point: each message has a place once."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

import slipstream
from slipstream.tables import TableOptions
from slipstream.tables.delta.files import DataFiles
from slipstream.tables.delta.part import DeltaPart
from slipstream.tables.parquet.state import StateFolder
from tests.fix_server_process import CLI, environment
from tests.spark.mortal_servers import MortalServer
from tests.tables.conftest import KilledError, Place

ROOT = Path(__file__).parents[2]
SMALL = TableOptions(commit_rows=10)
COMMITS_MAX = 16


def kill_at(
    monkeypatch: pytest.MonkeyPatch, nth: int, when: str, error: type[BaseException]
) -> None:
    """Have the nth commit to the catalog fail before or after it is made; others come through."""
    commit = SqlCatalog.commit_table
    calls = 0

    def commit_table(*words: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and when == "before":
            raise error(f"commit {nth}")
        done = commit(*words)
        if calls == nth and when == "after":
            raise error(f"commit {nth}")
        return done

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)


def body(number: int, new: bool) -> Any:
    """Every third body does not fit, some have a field that is new, and types vary."""
    if number % 3 == 0:
        return b"bad" if number % 2 else {"n": "text"}
    return {"n": number} | ({"later": 1.5 if number % 2 else 1} if new else {})


@pytest.mark.parametrize("place", ["slipstream"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS_MAX))
async def test_a_writer_killed_at_any_commit_leaves_each_message_one_place(
    place: Place, monkeypatch: pytest.MonkeyPatch, nth: int, when: str
) -> None:
    await place.publish(*(body(number, number > 12) for number in range(1, 31)))
    with monkeypatch.context() as patch:
        kill_at(patch, nth, when, KilledError)
        try:
            await place.write(SMALL)
        except KilledError as error:
            assert str(error) == f"commit {nth}"  # noqa: PT017
    await place.publish(*(body(number, True) for number in range(31, 41)))
    # Another size of chunks, so that other rows meet when types are found.
    await place.write(TableOptions(commit_rows=7))
    rows, rejected = place.sequences()
    assert sorted(rows + rejected) == list(range(1, 41))


@pytest.mark.parametrize("place", ["slipstream"], indirect=True)
@pytest.mark.parametrize("nth", range(1, COMMITS_MAX))
async def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    await place.publish(*(body(number, number > 12) for number in range(1, 31)))
    kill_at(monkeypatch, nth, "after", CommitFailedException)
    await place.write(SMALL)
    rows, rejected = place.sequences()
    assert sorted(rows + rejected) == list(range(1, 31))


STEPS = {
    "delta": [(DeltaPart, "_commit"), (DataFiles, "_write")],
    "parquet": [(Path, "replace"), (StateFolder, "move")],
}


@pytest.mark.parametrize("place", ["delta", "parquet"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 34, 2))
async def test_a_writer_killed_at_any_step_of_a_commit_leaves_each_message_one_place(
    place: Place, monkeypatch: pytest.MonkeyPatch, nth: int, when: str
) -> None:
    await place.publish(*(body(number, number > 12) for number in range(1, 31)))
    calls = 0

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            is_last = calls == nth
            if is_last and when == "before":
                raise KilledError
            done = step(*words, **more)
            if is_last:
                raise KilledError
            return done

        return call

    with monkeypatch.context() as patch, suppress(KilledError):
        for owner, name in STEPS[place.kind]:
            patch.setattr(owner, name, dying(getattr(owner, name)))
        await place.write(SMALL)
    if nth > 3:  # the tables are there; nobody has mended anything yet
        rows, rejected = place.sequences()
        assert len({*rows, *rejected}) == len(rows) + len(rejected)
    await place.publish(*(body(number, True) for number in range(31, 41)))
    await place.write(TableOptions(commit_rows=7))
    rows, rejected = place.sequences()
    assert sorted(rows + rejected) == list(range(1, 41))


@pytest.fixture(
    params=["slipstream iceberg", "nats-server iceberg", "slipstream delta", "slipstream parquet"]
)
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MortalServer, str]]:
    """A server that the test kills and brings back, and a format."""
    server, kind = request.param.split()
    made = MortalServer(server, tmp_path)
    yield made, kind
    made.kill()


def start_writer(url: str, folder: Path, kind: str) -> "subprocess.Popen[str]":
    """`slipstream pipeline table --follow`, which says each commit in a line of JSON."""
    words = [*CLI, "pipeline", "table", "ORDERS", "--to", str(folder), "--follow", "--json"]
    words += ["--format", kind]
    words += ["--server", url, "--commit-every", "100ms", "--partition", "hour"]
    with log_of(folder).open("a") as log:
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
        )


def log_of(folder: Path) -> Path:
    """What the writers of a table have said."""
    return folder.with_suffix(".log")


def wait_for_commits(writer: "subprocess.Popen[str]", folder: Path, commits: int) -> None:
    """Return when it has said so many commits more."""
    assert writer.stdout is not None
    for _ in range(commits):
        assert writer.stdout.readline(), log_of(folder).read_text()


def kill_after_commits(
    writer: "subprocess.Popen[str]", folder: Path, commits: int, seconds: float
) -> None:
    """Kill it so long after so many commits."""
    wait_for_commits(writer, folder, commits)
    assert writer.stdout is not None
    try:
        writer.wait(seconds)
    except subprocess.TimeoutExpired:
        writer.kill()
        writer.wait()
    writer.stdout.close()


@pytest.mark.timeout(400)
async def test_processes_killed_again_and_again_leave_each_message_one_place(
    mortal: tuple[MortalServer, str], tmp_path: Path
) -> None:
    mortal_server, kind = mortal
    chance = random.Random(7)
    total = 0
    folder = tmp_path / "w"

    async def publish_on(url: str) -> None:
        """Publish with ids until told to stop: what is not acknowledged is published again."""
        nonlocal total
        async with await slipstream.connect(url, reconnect_delay=lambda attempt: 0.05) as nc:
            js = nc.jetstream()
            while not is_over.is_set():
                for number in range(total, total + 50):
                    data = json.dumps({"n": number}) if number % 5 else f"bad {number}"
                    while True:
                        try:
                            await js.publish("orders.x", data.encode(), message_id=str(number))
                            break
                        except slipstream.Error:
                            await asyncio.sleep(0.05)
                total += 50

    async with await slipstream.connect(mortal_server.url) as nc:
        await nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
    is_over = asyncio.Event()
    publishing = asyncio.create_task(publish_on(mortal_server.url))
    for life in range(5):
        writer = start_writer(mortal_server.url, folder, kind)
        try:
            await asyncio.to_thread(
                kill_after_commits, writer, folder, chance.randrange(1, 4), chance.random() / 4
            )
        finally:
            writer.kill()
        if life in (1, 3):
            writer = start_writer(mortal_server.url, folder, kind)
            try:
                await asyncio.to_thread(wait_for_commits, writer, folder, 1)
                mortal_server.kill()
                mortal_server.revive()
                await asyncio.to_thread(kill_after_commits, writer, folder, 2, 0.0)
            finally:
                writer.kill()
    is_over.set()
    await publishing
    async with await slipstream.connect(mortal_server.url) as nc:
        place = Place(nc.jetstream(), folder, kind)
        await place.write(TableOptions(partition="hour"))
        assert (await place.js.stream_info("ORDERS")).state.messages == total
        rows, rejected = place.sequences()
        assert sorted(rows + rejected) == list(range(1, total + 1))
        stored = [row["n"] for row in place.rows("n")]
        bad = [int(row["data"].split()[1]) for row in place.rejected("data")]
        assert sorted(stored) == [number for number in range(total) if number % 5]
        assert sorted(bad) == list(range(0, total, 5))


@pytest.mark.timeout(400)
@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="the examples are not here")
def test_the_demo_of_kills_ends_with_every_message_once(tmp_path: Path) -> None:
    """examples/killed_table.py, with fewer kills."""
    words = ["--rate", "2000", "--kills", "3", "--seed", "3", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(
        [sys.executable, "-m", "examples.killed_table", *words],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✗") == 3
    assert done.stdout.endswith("every message is there once\n")
