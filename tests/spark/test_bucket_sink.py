"""The sink into buckets: a late attempt overwrites nothing."""

import asyncio
import uuid

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import slipstream
import slipstream.sync
from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.publishing import FencedError
from slipstream.spark.sink.writing import Attempt, StreamSink, Task
from tests.spark.test_exactly_once import KilledError, killed_after
from tests.spark.test_markers import markers_of

SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])


def bucket_of(url: str) -> str:
    """A new bucket."""
    name = "B" + uuid.uuid4().hex[:12]
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_key_value(bucket=name)
    return name


def sink_of(url: str, bucket: str, *, streaming: bool = True) -> StreamSink:
    """A sink into a bucket."""
    return StreamSink(SCHEMA, SinkOptions(servers=url, bucket=bucket), streaming=streaming)


def entries(**values: str) -> pa.RecordBatch:
    """A batch of keys and values."""
    return pa.record_batch(
        [pa.array(list(values)), pa.array(list(values.values()))], names=["key", "value"]
    )


def upsert(sink: StreamSink, batch: int, run: str = "run", **values: str) -> None:
    """A batch of one task, and its end."""
    sink.commit([sink.run(iter([entries(**values)]), Task("q", batch, 0, f"{run}-{batch}"))])


def table_of(url: str, bucket: str) -> dict[str, bytes]:
    """What is in the bucket."""
    with slipstream.sync.connect(url) as nc:
        found = nc.jetstream().key_value(bucket)
        return {key: found.get(key).value for key in found.keys()}  # noqa: SIM118


def test_a_late_attempt_does_not_overwrite_the_value_of_a_newer_batch(either_url: str) -> None:
    bucket = bucket_of(either_url)
    sink = sink_of(either_url, bucket)

    async def race() -> None:
        async with await slipstream.connect(either_url) as nc:
            task = Task("q", 0, 0, "run-0")
            reader = sink.reader(task)
            late = Attempt(sink, task, reader)
            await late.begin(nc, nc.jetstream())
            await asyncio.to_thread(upsert, sink, 0, price="old")
            await asyncio.to_thread(upsert, sink, 1, price="new")
            with pytest.raises(FencedError):
                await late.publish(list(reader.rows(entries(price="old"))))

    asyncio.run(race())
    assert table_of(either_url, bucket) == {"price": b"new"}


def test_a_batch_that_is_done_is_not_written_over_the_one_after_it(either_url: str) -> None:
    bucket = bucket_of(either_url)
    sink = sink_of(either_url, bucket)
    upsert(sink, 0, price="old")
    upsert(sink, 1, price="new")
    upsert(sink, 0, run="again", price="older")
    assert table_of(either_url, bucket) == {"price": b"new"}


def test_a_batch_that_was_killed_is_written_again_with_the_values_of_now(either_url: str) -> None:
    bucket = bucket_of(either_url)
    sink = sink_of(either_url, bucket)
    nothing = entries(a="1").slice(0, 0)
    with pytest.raises(KilledError):
        sink.run(killed_after(entries(a="1", b="1"), nothing, nothing), Task("q", 0, 0, "first"))
    upsert(sink, 0, run="second", a="2", b="2")
    assert table_of(either_url, bucket) == {"a": b"2", "b": b"2"}


def test_a_batch_write_leaves_no_markers(jetstream_url: str) -> None:
    bucket = bucket_of(jetstream_url)
    for fails in (False, True):
        sink = sink_of(jetstream_url, bucket, streaming=False)
        task = Task(sink._job, 0, 0, "run")
        done = sink.run(iter([entries(a="1")]), task)
        assert markers_of(jetstream_url, f"KV_{bucket}")
        if fails:
            sink.abort()
        else:
            sink.commit([done])
        assert not markers_of(jetstream_url, f"KV_{bucket}")
    assert table_of(jetstream_url, bucket) == {"a": b"1"}
