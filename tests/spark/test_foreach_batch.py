"""Batch writes within `foreachBatch`: several writes of one micro-batch are not one write."""

from typing import Any

import pyarrow as pa
import pytest

from slipstream.spark.sink import writing
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.writing import StreamSink
from tests.spark.test_bucket_sink import SCHEMA as KEYS
from tests.spark.test_bucket_sink import bucket_of, entries, table_of
from tests.spark.test_exactly_once import SCHEMA, rows, written
from tests.spark.test_sink import stream_of


class MicroBatchContext:
    """The context of a task within `foreachBatch`: Spark hands down the query's properties."""

    batch = "7"

    @classmethod
    def get(cls) -> "MicroBatchContext":
        return cls()

    def getLocalProperty(self, key: str) -> str | None:
        known = {"sql.streaming.queryId": "query-id", "streaming.sql.batchId": self.batch}
        return known.get(key)

    def stageId(self) -> int:
        return 1

    def partitionId(self) -> int:
        return 0


@pytest.fixture
def micro_batch(monkeypatch: pytest.MonkeyPatch) -> type[MicroBatchContext]:
    """Tasks run in a micro-batch."""
    monkeypatch.setattr(writing, "TaskContext", MicroBatchContext)
    return MicroBatchContext


def batch_write(schema: Any, rows: pa.RecordBatch, **options: Any) -> None:
    """What `df.write` does."""
    sink = StreamSink(schema, SinkOptions(**options), streaming=False)
    sink.commit([sink.run(iter([rows]), sink.task())])


@pytest.mark.usefixtures("micro_batch")
def test_every_write_of_a_micro_batch_into_one_bucket_is_there(either_url: str) -> None:
    bucket = bucket_of(either_url)
    for values in ({"a": "1"}, {"b": "2"}, {"a": "3"}):
        batch_write(KEYS, entries(**values), servers=either_url, bucket=bucket)
    assert table_of(either_url, bucket) == {"a": b"3", "b": b"2"}


@pytest.mark.usefixtures("micro_batch")
def test_rows_of_a_micro_batch_that_are_written_twice_are_there_twice(either_url: str) -> None:
    name = stream_of(either_url)
    for own in ("one", "two"):
        batch_write(SCHEMA, rows(name, "tick", own), servers=either_url, stream=name)
    assert written(either_url, name) == [b"tick", b"one", b"tick", b"two"]


def test_a_write_with_a_name_is_known_by_its_micro_batch(
    jetstream_url: str, micro_batch: type[MicroBatchContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stream_of(jetstream_url)
    for batch, value in (("7", "a"), ("7", "a"), ("8", "b")):
        monkeypatch.setattr(micro_batch, "batch", batch)
        batch_write(
            SCHEMA, rows(name, value), servers=jetstream_url, stream=name, writer_id="named"
        )
    assert written(jetstream_url, name) == [b"a", b"b"]


def test_a_streaming_query_is_known_by_its_own_id_and_batch(
    jetstream_url: str, micro_batch: type[MicroBatchContext]
) -> None:
    name = stream_of(jetstream_url)
    sink = StreamSink(SCHEMA, SinkOptions(servers=jetstream_url, stream=name), streaming=True)
    task = sink.task()
    assert (task.writer, task.batch) == ("query-id", int(micro_batch.batch))
