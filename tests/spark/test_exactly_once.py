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
from slipstream.spark.exactly_once import ChangedRowsError
from slipstream.spark.publishing import FencedError, RowError
from slipstream.spark.sink import Attempt, StreamSink, Task
from slipstream.spark.sink_options import SinkOptions
from slipstream.spark.sink_rows import RowReader
from tests.fix_server_process import StartProcess
from tests.spark.test_sink import messages, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    name = stream_of(either_url, duplicate_window=0.1)
    sink, task = sink_of(either_url, name), Task("q", 0, 0)
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, "a"), rows(name, "b")), task)
    asyncio.run(asyncio.sleep(0.3))
    sink.run(iter([rows(name, "a", "b")]), task)
    asyncio.run(asyncio.sleep(0.3))
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


def test_a_stream_that_forgets_is_written_to_with_message_ids(jetstream_url: str) -> None:
    name = stream_of(jetstream_url, retention="workqueue")
    assert sink_of(jetstream_url, name).mode == "deduplicated"
    with pytest.raises(ConfigError, match="retention is workqueue"):
        sink_of(jetstream_url, name, mode="exactly-once")


def test_a_server_killed_mid_write_comes_back_to_each_row_once(
    start_server: StartProcess, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    first = start_server("-js", "-sd", store)
    port = first.port
    name = stream_of(first.url)
    sink = sink_of(first.url, name, request_timeout=1.0)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if number == 10:
                first.kill()
                start_server("-js", "-sd", store, "-p", str(port))
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
    query.awaitTermination(60)


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
