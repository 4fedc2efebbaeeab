"""Progress of exactly-once writers: kept apart from the rows, pruned, and right after any kill."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slipstream
import slipstream.sync
from slipstream.client.errors import ConnectionLostError
from slipstream.errors import ConfigError, Error
from slipstream.server import Server
from slipstream.spark import markers
from slipstream.spark.options import SourceOptions
from slipstream.spark.planning import Planner
from slipstream.spark.sink import presence
from slipstream.spark.sink.exactly_once import token_of
from slipstream.spark.sink.presence import PresentError
from slipstream.spark.sink.publishing import FencedError
from slipstream.spark.sink.writing import Attempt, Task
from tests.spark.mortal_servers import MortalServer
from tests.spark.test_exactly_once import (
    KilledError,
    killed,
    killed_after,
    rows,
    run_tasks,
    sink_of,
    written,
)
from tests.spark.test_sink import stream_of


def info_of(url: str, stream: str) -> Any:
    """The stream as it is, with its subjects."""
    with slipstream.sync.connect(url) as nc:
        return nc.jetstream().stream(stream).info(subjects_filter=">")


def markers_of(url: str, stream: str) -> dict[str, int]:
    """How many markers there are for a stream, by the tokens of their subjects after its name."""
    with slipstream.sync.connect(url) as nc:
        found = nc.jetstream().stream_subjects(markers.STREAM, f"{markers.ROOT}.{stream}.>")
        return {subject.split(".", 2)[2]: count for subject, count in found}


# -- kept apart ------------------------------------------------------------------------------------


def test_markers_are_no_messages_of_the_stream(either_url: str) -> None:
    name = stream_of(either_url)
    for number in range(3):
        run_tasks(sink_of(either_url, name), f"run-{number}", rows(name, "a", "b"), batch=number)
    info = info_of(either_url, name)
    assert info.state.messages == info.state.last_seq == 6
    assert set(info.state.subjects) == {f"{name}.x"}
    assert info.config.subjects == [f"{name}.>"]
    assert markers_of(either_url, name)


def bytes_of_a_row(url: str, mode: str, **options: Any) -> float:
    """What a row of 128 bytes takes in a stream, as the server counts."""
    name = stream_of(url)
    sink = sink_of(url, name, mode=mode, **options)
    parts = [rows(name, *(f"{n:0128}" for n in range(at, at + 500))) for at in (0, 500)]
    run_tasks(sink, "run", *parts)
    info = info_of(url, name)
    assert info.state.messages == 1000
    return float(info.state.bytes / info.state.messages)


def test_exactly_once_costs_a_row_at_most_40_bytes_more(either_url: str) -> None:
    plain = bytes_of_a_row(either_url, "at-least-once")
    assert bytes_of_a_row(either_url, "exactly-once") - plain <= 40


def test_an_attempts_name_in_a_row_stays_short() -> None:
    assert [token_of(n) for n in (1, 63, 64, 64**2)] == ["B", "_", "BA", "BAA"]
    assert len(token_of(60_000_000_000)) == 6


def test_the_stream_of_markers_matches_no_pattern_of_streams(either_url: str) -> None:
    name = stream_of(either_url)
    run_tasks(sink_of(either_url, name), "run", rows(name, "a"))
    options = SourceOptions(servers=either_url, subscribe_pattern=".*")
    planner = Planner(options)
    try:
        views = planner.call(lambda: planner.views(options, []))
    finally:
        planner.close()
    assert name in {view.name for view in views}
    assert markers.STREAM not in {view.name for view in views}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_age": 3600.0}, "max_age 3600"),
        ({"max_msgs_per_subject": 1}, "max_msgs_per_subject 1"),
        ({"max_msgs": 100}, "max_msgs 100 with discard old"),
        ({"max_bytes": 10_000}, "max_bytes 10000 with discard old"),
        ({"retention": "interest"}, "retention interest"),
        ({"retention": "workqueue"}, "retention workqueue"),
    ],
)
def test_a_stream_of_markers_that_drops_them_is_refused(
    own_server: Server, settings: dict[str, Any], named: str
) -> None:
    with slipstream.sync.connect(own_server.url) as nc:
        subjects = [f"{markers.ROOT}.>"]
        nc.jetstream().create_stream(name=markers.STREAM, subjects=subjects, **settings)
    name = stream_of(own_server.url)
    with pytest.raises(ConfigError, match=f"drops messages by its settings .*{named}"):
        sink_of(own_server.url, name)


def test_a_stream_of_markers_that_refuses_new_ones_when_it_is_full_is_fine(
    own_server: Server,
) -> None:
    with slipstream.sync.connect(own_server.url) as nc:
        subjects = [f"{markers.ROOT}.>"]
        nc.jetstream().create_stream(
            name=markers.STREAM, subjects=subjects, max_bytes=1_000_000, discard="new"
        )
    name = stream_of(own_server.url)
    run_tasks(sink_of(own_server.url, name), "run", rows(name, "a"))
    assert written(own_server.url, name) == [b"a"]


# -- pruned ----------------------------------------------------------------------------------------


def test_markers_of_batches_that_are_done_are_pruned(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "BATCHES_KEPT", 4)
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    for number in range(13):
        parts = [rows(name, f"{number}-{part}") for part in range(3)]
        run_tasks(sink, f"run-{number}", *parts, batch=number)
    found = {
        subject.partition(".")[2]: count for subject, count in markers_of(either_url, name).items()
    }
    assert found.pop("q") <= 10  # begun and done, of the last batches
    assert found == {"q.0": 2, "q.1": 2, "q.2": 2}  # those of the last batch
    assert len(written(either_url, name)) == 39


def test_an_attempt_that_begins_when_its_batch_is_long_done_adds_nothing(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)

    task = Task("q", 0, 0, "first")
    done = sink.run(iter([rows(name, "a")]), task)

    async def race() -> None:
        async with await slipstream.connect(either_url) as nc:
            late = Attempt(sink, task, sink.reader(task))
            has_begun, go_on = asyncio.Event(), asyncio.Event()
            assert late._progress is not None
            look = late._progress._history

            async def look_late() -> Any:
                has_begun.set()
                await go_on.wait()
                return await look()

            late._progress._history = look_late  # type: ignore[method-assign]
            begin = asyncio.create_task(late.begin(nc, nc.jetstream()))
            await has_begun.wait()  # its marker is there, and it has not looked for others yet
            await asyncio.to_thread(sink.commit, [done])
            await asyncio.to_thread(run_tasks, sink, "second", rows(name, "b"), batch=1)
            go_on.set()
            with pytest.raises(FencedError, match="was finished without this attempt"):
                await begin

    asyncio.run(race())
    assert written(either_url, name) == [b"a", b"b"]


def test_a_stream_that_is_made_anew_has_no_progress(either_url: str) -> None:
    name = stream_of(either_url)
    for number in range(2):
        run_tasks(sink_of(either_url, name), f"run-{number}", rows(name, "a"), batch=number)
    (before,) = {subject.split(".")[0] for subject in markers_of(either_url, name)}
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        config = js.stream(name).info().config
        js.delete_stream(name)
        js.create_stream(config)
    run_tasks(sink_of(either_url, name), "anew", rows(name, "b"))
    assert written(either_url, name) == [b"b"]
    (after,) = {subject.split(".")[0] for subject in markers_of(either_url, name)}
    assert before != after


def test_a_batch_whose_rows_the_stream_has_dropped_adds_nothing(either_url: str) -> None:
    name = stream_of(either_url, max_msgs=3)
    sink = sink_of(either_url, name)
    run_tasks(sink, "first", rows(name, "a", "b", "c"), rows(name, "d", "e"))
    run_tasks(sink, "second", rows(name, "a", "b", "c"), rows(name, "d", "e"))
    assert info_of(either_url, name).state.last_seq == 5
    with slipstream.sync.connect(either_url) as nc:
        nc.jetstream().stream(name).purge()
    run_tasks(sink, "third", rows(name, "e", "d", "c"), rows(name, "b", "a"))
    assert info_of(either_url, name).state.messages == 0


# -- killed ----------------------------------------------------------------------------------------


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int, when: str) -> Callable[[], None]:
    """End the process before or after it puts a marker; what undoes that."""
    put = markers.put
    count = 0

    async def mortal(*args: Any) -> int:
        nonlocal count
        count += 1
        if count == number and when == "before":
            raise KilledError
        sequence = await put(*args)
        if count == number:
            raise KilledError
        return sequence

    monkeypatch.setattr(markers, "put", mortal)
    return lambda: monkeypatch.setattr(markers, "put", put)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_kill_at_any_marker_leaves_each_row_once(
    either_url: str, monkeypatch: pytest.MonkeyPatch, number: int, when: str
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    revive = kill_at(monkeypatch, number, when)
    with pytest.raises(KilledError):
        run_tasks(sink, "first", rows(name, "a", "b"), rows(name, "c", "a"))
    revive()
    run_tasks(sink, "second", rows(name, "a"), rows(name, "c", "b"), rows(name, "a"))
    assert sorted(written(either_url, name)) == [b"a", b"a", b"b", b"c"]
    run_tasks(sink, "third", rows(name, "d"), batch=1)
    assert len(written(either_url, name)) == 5


@pytest.mark.parametrize("number", range(1, 9))
def test_a_run_that_takes_over_may_be_killed_at_any_marker_too(
    jetstream_url: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    killed(sink, "first", rows(name, "a", "b"), rows(name, "c"))
    revive = kill_at(monkeypatch, number, "after")
    with pytest.raises(KilledError):
        run_tasks(sink, "second", rows(name, "c", "d"), rows(name, "b", "a"))
    revive()
    run_tasks(sink, "third", rows(name, "d", "a"), rows(name, "b"), rows(name, "c"))
    assert sorted(written(jetstream_url, name)) == [b"a", b"b", b"c", b"d"]


def test_a_connection_that_breaks_while_earlier_rows_are_looked_for_costs_nothing(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    killed(sink, "first", rows(name, "a", "b"))
    settled = presence.settled
    breaks = iter([True, True])

    async def broken(*args: Any) -> int:
        if next(breaks, False):
            raise ConnectionLostError("it broke")
        return await settled(*args)

    monkeypatch.setattr(presence, "settled", broken)
    run_tasks(sink, "second", rows(name, "b", "c", "a"))
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]


def test_connections_that_break_again_and_again_leave_equal_rows_as_many_as_they_are(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name, request_timeout=2.0)
    lives: list[Any] = []
    begin = Attempt.begin

    async def remembered(self: Attempt, connection: Any, js: Any) -> None:
        lives.append(connection)
        await begin(self, connection, js)

    monkeypatch.setattr(Attempt, "begin", remembered)

    def batches() -> Any:
        for number in range(12):
            if number % 3 == 2:
                connection = lives[-1]
                loop = connection.write_buffer.loop
                loop.call_soon_threadsafe(connection.write_buffer.transport.abort)
            yield rows(name, *(f"{i % 7}" for i in range(200)))

    sink.run(batches(), Task("q", 0, 0))
    assert len(lives) == 5
    found = written(either_url, name)
    assert {text: found.count(text) for text in set(found)} == {
        str(digit).encode(): 12 * len(range(digit, 200, 7)) for digit in range(7)
    }


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_starts_again_while_a_batch_is_committed_is_waited_for(
    mortal_server: MortalServer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    name = stream_of(mortal_server.url)
    sink = sink_of(mortal_server.url, name, request_timeout=2.0)
    done = sink.run(iter([rows(name, "a")]), Task("q", 0, 0, "first"))
    put = markers.put
    reviving = threading.Thread(target=mortal_server.revive)

    async def put_meanwhile(*args: Any) -> int:
        monkeypatch.setattr(markers, "put", put)
        if when == "after":  # it is stored, and its acknowledgement is lost
            await put(*args)
        mortal_server.kill()
        reviving.start()
        return await put(*args) if when == "before" else await lost()

    async def lost() -> int:
        raise ConnectionLostError("it broke")

    monkeypatch.setattr(markers, "put", put_meanwhile)
    sink.commit([done])
    reviving.join()
    run_tasks(sink, "second", rows(name, "a"))
    assert written(mortal_server.url, name) == [b"a"]


# -- late ------------------------------------------------------------------------------------------


def test_an_attempt_that_waits_for_its_rows_goes_when_it_is_asked(either_url: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)
    has_begun, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def slow_rows() -> Any:
        yield rows(name, "a")
        yield rows(name, "b")
        has_begun.set()
        go_on.wait(60)
        yield rows(name, "c")

    def speculated() -> None:
        try:
            sink.run(slow_rows(), task)
        except FencedError as error:
            raised.append(error)

    first = threading.Thread(target=speculated)
    first.start()
    assert has_begun.wait(60)
    sink.run(iter([rows(name, "a", "b", "c")]), task)
    go_on.set()
    first.join(60)
    assert raised
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]


def test_an_attempt_that_does_not_answer_is_waited_for_and_nothing_is_written_twice(
    either_url: str,
) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name, retry_timeout=1.0), Task("q", 0, 0)
    has_begun, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    async def stopped() -> None:
        async with await slipstream.connect(either_url) as nc:
            reader = sink.reader(task)
            attempt = Attempt(sink, task, reader)
            await attempt.begin(nc, nc.jetstream())
            has_begun.set()
            go_on.wait(60)  # as a process that was stopped
            await attempt.publish(list(reader.rows(rows(name, "a", "b"))))
            await attempt.finish()

    def run() -> None:
        try:
            asyncio.run(stopped())
        except Error as error:
            raised.append(error)

    zombie = threading.Thread(target=run)
    zombie.start()
    assert has_begun.wait(60)
    with pytest.raises(PresentError, match="has not answered for 1 s"):
        sink.run(iter([rows(name, "a", "b")]), task)
    assert written(either_url, name) == []
    go_on.set()
    zombie.join(60)
    assert raised  # what it has stored is found by the next one
    sink.run(iter([rows(name, "b", "a")]), task)
    assert sorted(written(either_url, name)) == [b"a", b"b"]


PROCESS = """
import sys
from slipstream.spark.sink.exactly_once import Task
from tests.spark.test_exactly_once import rows, sink_of

url, name = sys.argv[1:]

def batches():
    yield rows(name, "a")
    yield rows(name, "b")
    print("ready", flush=True)
    sys.stdin.readline()
    yield rows(name, "c")

sink_of(url, name).run(batches(), Task("q", 0, 0))
"""


@pytest.mark.parametrize("end", ["continued", "killed"])
def test_a_process_that_was_stopped_adds_nothing_when_it_goes_on(either_url: str, end: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name, retry_timeout=1.0), Task("q", 0, 0)
    folders = [str(Path(slipstream.__file__).parents[1]), str(Path(__file__).parents[2])]
    zombie = subprocess.Popen(
        [sys.executable, "-c", PROCESS, either_url, name],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == "ready\n"
    zombie.send_signal(signal.SIGSTOP)
    with pytest.raises(PresentError):
        sink.run(iter([rows(name, "a", "b", "c")]), task)
    if end == "killed":
        zombie.kill()
    zombie.send_signal(signal.SIGCONT)
    patient = sink_of(either_url, name)
    patient.run(iter([rows(name, "c", "b", "a")]), task)
    _, said = zombie.communicate("go\n" if end == "continued" else None, timeout=60)
    if end == "continued":
        assert "FencedError" in said
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]


def test_all_attempts_of_an_earlier_run_have_gone_before_the_next_one_writes(
    either_url: str,
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)

    async def race() -> None:
        async with (
            await slipstream.connect(either_url) as one,
            await slipstream.connect(either_url) as two,
        ):
            attempts = []
            for partition, nc in enumerate((one, two)):
                task = Task("q", 0, partition, "first")
                reader = sink.reader(task)
                attempt = Attempt(sink, task, reader)
                await attempt.begin(nc, nc.jetstream())
                attempts.append((attempt, reader))
            await attempts[0][0].publish(list(attempts[0][1].rows(rows(name, "a"))))
            await asyncio.to_thread(run_tasks, sink, "second", rows(name, "b", "a"))
            assert one.is_closed
            assert two.is_closed
            for attempt, reader in attempts:
                with pytest.raises(FencedError):
                    await attempt.publish(list(reader.rows(rows(name, "b"))))

    asyncio.run(race())
    assert sorted(written(either_url, name)) == [b"a", b"b"]


def test_a_task_killed_before_any_row_leaves_nothing_in_the_way(either_url: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)
    empty = rows(name, "a").slice(0, 0)
    with pytest.raises(KilledError):
        sink.run(killed_after(empty, empty), task)
    sink.run(iter([rows(name, "a")]), task)
    assert written(either_url, name) == [b"a"]
