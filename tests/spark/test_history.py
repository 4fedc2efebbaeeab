"""One DataFrame over a stream's table and its tail: each row once."""

import asyncio
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import slipstream
from slipstream.spark.parts.history import history_and_tail
from slipstream.tables import TableError, TableOptions, TableWriter, stream_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def publish(url: str, stream: str, bodies: Iterable[Any]) -> None:
    """Publish bodies, after making the stream if it is not there."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name=stream, subjects=[f"{stream}.>"])
        for body in bodies:
            await js.publish(f"{stream}.x", body)


async def write(url: str, stream: str, folder: Path) -> None:
    """Write a stream into the table `numbers`."""
    async with await slipstream.connect(url) as nc:
        options = TableOptions(partition="hour", commit_rows=10)
        table = stream_table(str(folder), "numbers", stream, options)
        await TableWriter(nc.jetstream(), table).write_all()


def test_a_table_and_its_tail_are_one_frame(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    stream = "H" + uuid.uuid4().hex[:12]
    where = str(tmp_path / "w")
    asyncio.run(publish(jetstream_url, stream, [{"n": n, "s": str(n)} for n in range(40)]))
    with pytest.raises(TableError, match="there is no table"):
        history_and_tail(spark, where, "numbers", stream=stream, servers=jetstream_url)
    asyncio.run(write(jetstream_url, stream, tmp_path / "w"))

    def rows() -> list[Any]:
        found = history_and_tail(spark, where, "numbers", stream=stream, servers=jetstream_url)
        return found.orderBy("_sequence").collect()

    assert [row.n for row in rows()] == list(range(40))
    asyncio.run(publish(jetstream_url, stream, [{"n": 40, "new": 1.5}, "bad", {"n": 41}]))
    found = rows()
    assert [row.n for row in found] == list(range(42))
    assert [row._sequence for row in found][-2:] == [41, 43]
    assert [row.new for row in found][-3:] == [None, 1.5, None]
    asyncio.run(write(jetstream_url, stream, tmp_path / "w"))
    assert rows() == found
