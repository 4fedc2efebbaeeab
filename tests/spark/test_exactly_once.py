"""Exactly once: whatever is killed, however late a batch comes again, each row is there once."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import slipstream
import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark import markers
from slipstream.spark.sink.exactly_once import ChangedRowsError, ReusedWriterError
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.publishing import FencedError, RowError
from slipstream.spark.sink.rows import RowReader
from slipstream.spark.sink.writing import Attempt, StreamSink, Task, Written
from tests.fix_server_process import StartProcess
from tests.lasting_ports import lasting_port
from tests.spark.streams import WAIT_SECONDS
from tests.spark.test_sink import messages, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 0.1  # seconds by the clock of a real server, which no test can drive

SCHEMA = StructType([StructField("subject", StringType()), StructField("data", StringType())])


def sink_of(url: str, stream: str, **options: Any) -> StreamSink:
    """The sink of a streaming query."""
    return StreamSink(SCHEMA, SinkOptions(servers=url, stream=stream, **options), streaming=True)


def rows(stream: str, *values: str) -> pa.RecordBatch:
    """A batch of rows."""
    subjects = pa.array([f"{stream}.x"] * len(values))
    return pa.record_batch([subjects, pa.array(values)], names=["subject", "data"])


def written(url: str, stream: str) -> list[bytes]:
    """What the stream has."""
    return [message.data for message in messages(url, stream)]


class KilledError(Exception):
    """The task's process has gone."""


def killed_after(*batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Batches, and then the end of the task's process."""
    yield from batches
    raise KilledError


def test_a_batch_that_is_retried_after_its_end_adds_nothing(either_url: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)
    sink.run(iter([rows(name, "a", "b")]), task)
    again = sink.run(iter([rows(name, "b", "a")]), task)  # after a shuffle: another order
    assert written(either_url, name) == [b"a", b"b"]
    assert (again.rows, again.found) == (2, 2)


def test_a_batch_killed_between_write_and_commit_goes_on_where_it_was(either_url: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name), Task("q", 3, 1)
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, "a"), rows(name, "b"), rows(name, "c")), task)
    before = written(either_url, name)
    assert before
    result = sink.run(iter([rows(name, "c", "b"), rows(name, "d", "a")]), task)
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c", b"d"]
    assert result.found == len(before)


def test_a_retry_after_the_duplicate_window_adds_nothing(either_url: str) -> None:
    name = stream_of(either_url, duplicate_window=WINDOW)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, "a"), rows(name, "b")), task)
    asyncio.run(asyncio.sleep(3 * WINDOW))
    sink.run(iter([rows(name, "a", "b")]), task)
    asyncio.run(asyncio.sleep(3 * WINDOW))
    sink.run(iter([rows(name, "a", "b")]), task)
    assert sorted(written(either_url, name)) == [b"a", b"b"]


def test_rows_that_are_equal_are_all_there_once(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink, task = sink_of(jetstream_url, name), Task("q", 0, 0)
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, "a", "a"), rows(name, "b")), task)
    sink.run(iter([rows(name, "a", "b", "a", "a")]), task)
    assert sorted(written(jetstream_url, name)) == [b"a", b"a", b"a", b"b"]


def test_an_attempt_that_was_overtaken_can_add_nothing(either_url: str) -> None:
    name = stream_of(either_url)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)

    async def race() -> None:
        slow_rows = RowReader({"subject": 0, "data": 1}, "")
        async with await slipstream.connect(either_url) as nc:
            slow = Attempt(sink, task, slow_rows)
            await slow.begin(nc, nc.jetstream())
            await asyncio.to_thread(sink.run, iter([rows(name, "a")]), task)
            with pytest.raises(FencedError):
                await slow.publish(list(slow_rows.rows(rows(name, "a"))))

    asyncio.run(race())
    assert written(either_url, name) == [b"a"]


def test_a_batch_that_comes_again_with_other_rows_is_an_error(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    sink.run(iter([rows(name, "a")]), Task("q", 0, 0))
    with pytest.raises(ChangedRowsError, match="comes again with other ones"):
        sink.run(iter([rows(name, "other")]), Task("q", 0, 0))
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, "b"), rows(name, "c")), Task("q", 1, 0))
    with pytest.raises(ChangedRowsError, match="not among the rows"):
        sink.run(iter([rows(name, "other")]), Task("q", 1, 0))


def test_a_stream_that_forgets_cannot_be_written_to_exactly_once(jetstream_url: str) -> None:
    name = stream_of(jetstream_url, retention="workqueue")
    with pytest.raises(ConfigError, match="retention is workqueue"):
        sink_of(jetstream_url, name, mode="exactly-once")


def test_a_server_killed_mid_write_comes_back_to_each_row_once(
    start_server: StartProcess, tmp_path: Path
) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"), "-p", str(lasting_port()))
    first = start_server(*flags)
    name = stream_of(first.url)
    sink = sink_of(first.url, name, request_timeout=1.0)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if number == 10:
                first.kill()
                start_server(*flags)
            yield rows(name, *(f"{number}-{i}" for i in range(100)))

    sink.run(batches(), Task("q", 0, 0))
    found = written(first.url, name)
    assert len(found) == len(set(found)) == 2000


def test_a_denied_subject_fails_by_name_or_becomes_a_dead_letter(
    start_server: StartProcess, tmp_path: Path
) -> None:
    config = tmp_path / "server.conf"
    config.write_text(
        'authorization { users = [{user: "a", password: "p"}, '
        '{user: "w", password: "p", permissions: {publish: {deny: ["*.secret"]}}}] }\n'
    )
    server = start_server("-js", "-sd", str(tmp_path / "store"), "-c", str(config))
    address = server.url.rpartition("//")[2]
    name = stream_of(f"nats://a:p@{address}")
    batch = pa.record_batch(
        [pa.array([f"{name}.open", f"{name}.secret"]), pa.array(["a", "b"])],
        names=["subject", "data"],
    )
    login = {"user": "w", "password": "p", "request_timeout": 1.0}
    sink = sink_of(server.url, name, **login)
    with pytest.raises(RowError, match=rf"row 1 \(subject '{name}.secret', 1 bytes\).*forbids"):
        sink.run(iter([batch]), Task("q", 0, 0))
    patient = sink_of(server.url, name, dead_letter_subject=f"{name}.dead", **login)
    assert patient.run(iter([batch]), Task("q", 0, 0)).dead == 1
    assert written(f"nats://a:p@{address}", name) == [b"a", b"b"]


def run_query(spark: "SparkSession", url: str, source: Path, target: str, checkpoint: Path) -> None:
    """Files of text into a stream, until all are there."""
    lines = spark.readStream.format("text").load(str(source))
    frame = lines.selectExpr(f"'{target}.n' AS subject", "value AS data")
    writer = frame.writeStream.format("jetstream").options(servers=url, stream=target)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS), query.status


def test_a_query_whose_commit_was_lost_writes_its_batch_again_and_adds_nothing(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    target, source = stream_of(either_url), tmp_path / "in"
    source.mkdir()
    (source / "a.txt").write_text("".join(f"{n}\n" for n in range(300)))
    run_query(spark, either_url, source, target, tmp_path / "checkpoint")
    (commit,) = [p for p in (tmp_path / "checkpoint/commits").glob("*0") if p.suffix != ".crc"]
    commit.unlink()  # as if killed between write and commit
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    (source / "b.txt").write_text("".join(f"{n}\n" for n in range(300, 400)))
    run_query(spark, either_url, source, target, tmp_path / "checkpoint")
    found = written(either_url, target)
    assert sorted(int(data) for data in found) == list(range(400))


def test_a_batch_write_with_a_writer_id_may_be_repeated(
    spark: "SparkSession", jetstream_url: str
) -> None:
    name = stream_of(jetstream_url)
    frame = spark.range(50, numPartitions=2).selectExpr(
        f"'{name}.n' AS subject", "cast(id AS string) AS data"
    )
    writer = "load-" + uuid.uuid4().hex[:6]
    for _ in range(2):
        frame.write.format("jetstream").mode("append").options(
            servers=jetstream_url, stream=name, mode="exactly-once", writerId=writer
        ).save()
    assert sorted(int(data) for data in written(jetstream_url, name)) == list(range(50))


# -- a batch that was cut in another way -----------------------------------------------------------


def run_tasks(
    sink: StreamSink, run: str, *partitions: pa.RecordBatch, batch: int = 0
) -> list[Written]:
    """All tasks of a run that is not killed; its driver commits."""
    tasks = [Task("q", batch, number, run) for number in range(len(partitions))]
    made = [sink.run(iter([part]), task) for task, part in zip(tasks, partitions, strict=True)]
    sink.commit(made)
    return made


def killed(sink: StreamSink, run: str, *partitions: pa.RecordBatch) -> None:
    """Tasks of a run that are killed when their rows are stored."""
    for number, batch in enumerate(partitions):
        nothing = batch.slice(0, 0)
        with pytest.raises(KilledError):
            sink.run(killed_after(batch, nothing, nothing), Task("q", 0, number, run))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_retry_with_another_number_of_partitions_adds_only_what_is_missing(
    either_url: str, count: int
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    everything = [str(n) for n in range(30)]
    sink.run(iter([rows(name, *everything[:8])]), Task("q", 0, 0, "first"))  # this one is done
    parts = everything[:8], everything[10:14], everything[25:]
    killed(sink, "first", *(rows(name, *part) for part in parts))
    stored = len(written(either_url, name))
    cut = [rows(name, *everything[start::count]) for start in range(count)]
    results = run_tasks(sink, "second", *cut)
    assert sorted(written(either_url, name), key=int) == [n.encode() for n in everything]
    assert sum(result.found for result in results) == stored > 8


def test_equal_rows_in_several_partitions_are_all_there_once(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    killed(sink, "first", rows(name, "a"), rows(name, "a", "b"))
    run_tasks(sink, "second", rows(name, "a", "b", "a"), rows(name, "a"), rows(name, "a", "c"))
    assert sorted(written(either_url, name)) == [b"a"] * 4 + [b"b", b"c"]


def test_a_task_that_is_tried_again_inherits_its_claims(
    jetstream_url: str,
) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    killed(sink, "first", rows(name, "a", "a"))
    killed(sink, "second", rows(name, "a", "c"))  # has claimed one of them
    again = sink.run(iter([rows(name, "c", "a")]), Task("q", 0, 0, "second"))
    other = sink.run(iter([rows(name, "a", "a")]), Task("q", 0, 1, "second"))
    sink.commit([again, other])
    assert sorted(written(jetstream_url, name)) == [b"a", b"a", b"a", b"c"]


def test_a_run_that_is_killed_too_is_taken_over_with_the_rows_of_both(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    killed(sink, "first", rows(name, "a", "b"), rows(name, "c"))
    killed(sink, "second", rows(name, "b", "d", "e"))
    run_tasks(sink, "third", rows(name, "e", "a"), rows(name, "d", "b"), rows(name, "f", "c"))
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_an_attempt_of_an_earlier_run_can_add_nothing(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)

    async def race() -> None:
        async with await slipstream.connect(either_url) as nc:
            task = Task("q", 0, 3, "first")  # a partition that the next run has not
            reader = sink.reader(task)
            slow = Attempt(sink, task, reader)
            await slow.begin(nc, nc.jetstream())
            await asyncio.to_thread(run_tasks, sink, "second", rows(name, "a"))
            with pytest.raises(FencedError):
                await slow.publish(list(reader.rows(rows(name, "a"))))

    asyncio.run(race())
    assert written(either_url, name) == [b"a"]


def test_a_batch_that_was_committed_adds_nothing_however_it_is_cut(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    run_tasks(sink, "first", rows(name, "a", "b"), rows(name, "c"))
    results = run_tasks(sink, "second", rows(name, "c"), rows(name, "b"), rows(name, "a"))
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]
    assert [result.found for result in results] == [1, 1, 1]
    with pytest.raises(ChangedRowsError, match="with 3 rows, and comes again with other ones"):
        run_tasks(sink, "third", rows(name, "a", "other", "b"))


def test_a_batch_before_the_last_one_may_come_again_with_the_same_rows(either_url: str) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    run_tasks(sink, "first", rows(name, "a", "b"))
    run_tasks(sink, "second", rows(name, "c"), batch=1)
    run_tasks(sink, "third", rows(name, "b"), rows(name, "a"))  # the checkpoint was set back
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]


def test_a_new_checkpoint_under_a_used_writer_id_is_an_error_that_names_both_batches(
    either_url: str,
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    for number in range(3):
        run_tasks(sink, f"old{number}", rows(name, f"{number}"), batch=number)
    with pytest.raises(ChangedRowsError, match=r"batch 0 was written with 1 rows.*\(2\).* is 2"):
        run_tasks(sink, "new", rows(name, "x", "y"))
    assert written(either_url, name) == [b"0", b"1", b"2"]


def test_a_batch_below_the_last_one_that_was_never_written_is_an_error(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    run_tasks(sink, "old", rows(name, "a"), batch=7)
    with pytest.raises(ReusedWriterError, match=r"batch 5 \(1 rows\).*batch 7, was written"):
        run_tasks(sink, "new", rows(name, "b"), batch=5)


def test_rows_of_an_earlier_run_that_do_not_come_again_are_an_error(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    killed(sink, "first", rows(name, "a"), rows(name, "b"))
    with pytest.raises(ChangedRowsError, match="1 of 2 rows that an earlier attempt has stored"):
        run_tasks(sink, "second", rows(name, "a", "c"))


def test_a_new_batch_costs_a_task_few_requests(jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name)
    sink.run(iter([rows(name, "a")]), Task("q", 0, 0, "first"))
    with slipstream.sync.connect(jetstream_url) as nc:
        seen: list[str] = []
        watch = nc.subscribe("$JS.API.>", handler=lambda message: seen.append(message.subject))
        nc.flush()
        sink.run(iter([rows(name, "b")]), Task("q", 1, 0, "second"))
        watch.drain()
    assert [subject for subject in seen if ".MSG.GET." in subject or "DIRECT" in subject] == [
        f"$JS.API.STREAM.MSG.GET.{markers.STREAM}"
    ] * 2
