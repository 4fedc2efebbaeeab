"""Streams that an earlier version wrote exactly once, with its markers among the rows."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import slipstream.sync
from slipstream.cli.pipeline.project import find_project
from slipstream.cli.pipeline.status import status_of
from slipstream.cli.pipeline.template import write_project
from slipstream.client.jetstream.errors import WrongLastSequenceError
from slipstream.errors import Error
from slipstream.spark import markers
from slipstream.spark.earlier_markers import EarlierMarkers
from slipstream.spark.sink.exactly_once import ChangedRowsError, ReusedWriterError
from slipstream.spark.sink.rows import RowReader
from slipstream.spark.sink.writing import Task
from tests.spark.streams import read
from tests.spark.test_exactly_once import KilledError, rows, run_tasks, sink_of, written
from tests.spark.test_sink import stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EarlierWriter:
    """Writes as the earlier version did: writer "q", run "old"."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stream = stream_of(url)
        self.prefix = f"_slipstream.progress.{self.stream}"
        with slipstream.sync.connect(url) as nc:
            subjects = [f"{self.stream}.>", f"{self.prefix}.>"]
            nc.jetstream().stream(self.stream).update(subjects=subjects)

    def mark(self, tokens: str, batch: int, state: str, **more: Any) -> int:
        """Put a marker."""
        marker = {"batch": batch, "state": state, "run": "old", "since": 0, **more}
        with slipstream.sync.connect(self.url) as nc:
            ack = nc.jetstream().publish(f"{self.prefix}.{tokens}", json.dumps(marker))
        return int(ack.sequence)

    def put(self, batch: int, partition: int, fence: int, *values: str) -> None:
        """Put rows on condition that *begun* is the last marker of the partition."""
        reader = RowReader({"subject": 0, "data": 1}, "", "q")
        ((_, block),) = reader.rows(rows(self.stream, *values))
        with slipstream.sync.connect(self.url) as nc:
            for row, value in enumerate(values):
                digest = block.digests[row * 16 : row * 16 + 16].hex()
                nc.jetstream().publish(
                    f"{self.stream}.x",
                    value,
                    headers={"Slipstream-Row": f"q.{batch}.old.{partition}.{digest}"},
                    expected_last_sequence_per_subject=fence,
                    expected_last_sequence_subject=f"{self.prefix}.q.{partition}",
                )

    def finish(self, batch: int, *values: str) -> None:
        """A batch from its begin to its end."""
        self.mark("q", batch, "begun")
        self.put(batch, 0, self.mark("q.0", batch, "begun"), *values)
        self.mark("q.0", batch, "done")
        reader = RowReader({"subject": 0, "data": 1}, "", "q")
        list(reader.rows(rows(self.stream, *values)))
        self.mark("q", batch, "done", rows=len(values), digest=reader.digest)


def test_a_query_goes_on_where_the_earlier_version_was(either_url: str) -> None:
    old = EarlierWriter(either_url)
    old.finish(0, "a", "b")
    old.finish(1, "c")
    sink = sink_of(either_url, old.stream)
    run_tasks(sink, "again", rows(old.stream, "c"), batch=1)  # its commit was lost
    run_tasks(sink, "next", rows(old.stream, "d"), batch=2)
    run_tasks(sink, "back", rows(old.stream, "b"), rows(old.stream, "a"), batch=0)
    assert sorted(written(either_url, old.stream)) == [b"a", b"b", b"c", b"d"]


def test_a_used_writer_id_of_the_earlier_version_is_an_error_too(jetstream_url: str) -> None:
    old = EarlierWriter(jetstream_url)
    old.finish(3, "a")
    old.finish(5, "b")
    sink = sink_of(jetstream_url, old.stream)
    with pytest.raises(ChangedRowsError, match=r"batch 3 was written with 1 rows.*\(2\).* is 5"):
        run_tasks(sink, "new", rows(old.stream, "x", "y"), batch=3)
    with pytest.raises(ReusedWriterError, match=r"batch 4 \(1 rows\).*batch 5, was written"):
        run_tasks(sink, "new", rows(old.stream, "x"), batch=4)


def test_rows_of_a_batch_that_the_earlier_version_has_begun_are_found(either_url: str) -> None:
    old = EarlierWriter(either_url)
    old.finish(0, "a", "a")
    old.mark("q", 1, "begun")
    old.put(1, 0, old.mark("q.0", 1, "begun"), "a", "b")
    old.put(1, 1, old.mark("q.1", 1, "begun"), "c")
    sink = sink_of(either_url, old.stream)
    run_tasks(sink, "new", rows(old.stream, "c", "d"), rows(old.stream, "b", "a"), batch=1)
    run_tasks(sink, "newer", rows(old.stream, "e"), batch=2)
    assert sorted(written(either_url, old.stream)) == [b"a", b"a", b"a", b"b", b"c", b"d", b"e"]


def test_tasks_of_the_earlier_version_can_add_nothing_any_more(either_url: str) -> None:
    old = EarlierWriter(either_url)
    old.mark("q", 0, "begun")
    fence = old.mark("q.0", 0, "begun")
    sink = sink_of(either_url, old.stream)
    run_tasks(sink, "new", rows(old.stream, "a"), rows(old.stream, "b"))
    with pytest.raises(WrongLastSequenceError):
        old.put(0, 0, fence, "a")
    with slipstream.sync.connect(either_url) as nc:
        last = nc.jetstream().stream(old.stream).get_last_message(f"{old.prefix}.q")
    assert json.loads(last.data)["batch"] > 2**50  # later than any: nothing is to be written
    assert sorted(written(either_url, old.stream)) == [b"a", b"b"]


def test_the_earlier_version_can_add_nothing_where_its_last_batch_was_done(
    either_url: str,
) -> None:
    old = EarlierWriter(either_url)
    old.finish(0, "a")
    sink = sink_of(either_url, old.stream)
    sink.run(iter([rows(old.stream, "a")]), Task("q", 0, 0, "again"))  # its commit was lost
    with slipstream.sync.connect(either_url) as nc:
        last = nc.jetstream().stream(old.stream).get_last_message(f"{old.prefix}.q")
    assert json.loads(last.data)["batch"] > 2**50  # later than any: nothing is to be written
    run_tasks(sink, "next", rows(old.stream, "b"), batch=1)
    assert written(either_url, old.stream) == [b"a", b"b"]


def test_progress_is_taken_over_by_the_next_attempt_if_the_first_one_is_killed(
    jetstream_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = EarlierWriter(jetstream_url)
    old.finish(0, "a")
    sink = sink_of(jetstream_url, old.stream)
    end = EarlierMarkers.end

    async def killed(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(EarlierMarkers, "end", killed)
    with pytest.raises(KilledError):
        run_tasks(sink, "first", rows(old.stream, "b"), batch=1)
    monkeypatch.setattr(EarlierMarkers, "end", end)
    run_tasks(sink, "second", rows(old.stream, "b"), batch=1)
    with slipstream.sync.connect(jetstream_url) as nc:
        last = nc.jetstream().stream(old.stream).get_last_message(f"{old.prefix}.q")
    assert json.loads(last.data)["batch"] > 2**50
    assert written(jetstream_url, old.stream) == [b"a", b"b"]


def test_progress_that_has_moved_and_is_gone_is_an_error(either_url: str) -> None:
    old = EarlierWriter(either_url)
    old.mark("q", 0, "begun")
    run_tasks(sink_of(either_url, old.stream), "new", rows(old.stream, "a"))
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        subject = f"{markers.ROOT}.{old.stream}.>"
        js.stream(markers.STREAM).purge(filter=subject)
    with pytest.raises(Error, match="in the stream SLIPSTREAM_PROGRESS, which has none of it"):
        run_tasks(sink_of(either_url, old.stream), "newer", rows(old.stream, "a"))


def test_markers_of_the_earlier_version_are_no_rows(spark: "SparkSession", either_url: str) -> None:
    old = EarlierWriter(either_url)
    old.finish(0, "a", "b")
    old.finish(1, "c")
    frame = read(spark, either_url, old.stream)
    assert sorted(row.data.decode() for row in frame.collect()) == ["a", "b", "c"]
    only = spark.read.format("jetstream").options(servers=either_url, stream=old.stream)
    assert only.schema("sequence bigint").load().count() == 3


def test_markers_of_the_earlier_version_are_not_counted_by_the_status_of_a_pipeline(
    either_url: str, tmp_path: Path
) -> None:
    old = EarlierWriter(either_url)
    old.finish(0, "a", "b")
    old.finish(1, "c")
    new = stream_of(either_url)
    run_tasks(sink_of(either_url, new), "run", rows(new, "a"))
    write_project(tmp_path / "shop")
    project = find_project(tmp_path / "shop" / "spark-pipeline.yml")
    flow = tmp_path / "shop/.slipstream/storage/_checkpoints/shop/copy/0"
    offset = json.dumps({old.stream: {"next": 2, "created": ""}})
    for name, text in (
        ("metadata", '{"id": "q"}'),
        ("offsets/0", f"v1\n{{}}\n{offset}"),
        ("commits/0", "v1\n{}"),
    ):
        (flow / name).parent.mkdir(parents=True, exist_ok=True)
        (flow / name).write_text(text)
    found = asyncio.run(status_of(project, {"servers": either_url}))
    (line,) = found.flows
    assert {old.stream, new} <= set(line.writes)  # by markers of both kinds
    counts = {stream.name: stream.messages for stream in found.streams}
    assert (counts[old.stream], counts[new]) == (3, 1)
    assert [read.backlog for read in line.reads] == [3]


def test_several_tasks_of_the_new_version_take_over_at_once(jetstream_url: str) -> None:
    old = EarlierWriter(jetstream_url)
    old.mark("q", 0, "begun")
    old.put(0, 0, old.mark("q.0", 0, "begun"), "a", "b", "c")
    sink = sink_of(jetstream_url, old.stream)

    async def all_at_once() -> list[Any]:
        parts = [rows(old.stream, value) for value in "dcba"]
        return await asyncio.gather(
            *(
                asyncio.to_thread(sink.run, iter([part]), Task("q", 0, number, "new"))
                for number, part in enumerate(parts)
            )
        )

    sink.commit(asyncio.run(all_at_once()))
    assert sorted(written(jetstream_url, old.stream)) == [b"a", b"b", b"c", b"d"]
