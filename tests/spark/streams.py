"""Streams to read, and how the tests read them."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import slipstream.sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


WAIT_SECONDS = 240.0
"""For what comes at once on a quiet machine."""


def fill(url: str, count: int, subject: str = "new", **config: Any) -> str:
    """A stream of a name of its own with messages "0", "1", ..."""
    name = "S" + uuid.uuid4().hex[:12]
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True, **config)
        for number in range(count):
            js.publish_async(f"{name}.{subject}", str(number), headers={"N": str(number)})
        js.publish_async_complete()
    return name


def read(spark: "SparkSession", url: str, stream: str, **options: Any) -> "DataFrame":
    """A batch read."""
    reader = spark.read.format("jetstream").option("servers", url).option("stream", stream)
    return reader.options(**options).load()


def add(url: str, name: str, numbers: range, subject: str = "new") -> None:
    """More messages."""
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        for number in numbers:
            js.publish_async(f"{name}.{subject}", str(number))
        js.publish_async_complete()


def follow(
    spark: "SparkSession", url: str, stream: str, directory: Path, **options: Any
) -> "StreamingQuery":
    """Append what there is to a Parquet table under `directory`, and go on from its checkpoint."""
    reader = spark.readStream.format("jetstream").option("servers", url).option("stream", stream)
    rows = reader.options(**{"startingOffsets": "earliest", **options}).load()
    writer = rows.selectExpr("stream", "sequence", "cast(data as string) data").writeStream
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer = writer.trigger(availableNow=True)
    return writer.format("parquet").start(str(directory / "table"))


def finish(query: "StreamingQuery") -> "list[dict[str, Any]]":
    """Wait for its end; its progress. Raises what the query failed of."""
    assert query.awaitTermination(WAIT_SECONDS), query.status
    found: list[dict[str, Any]] = [p for p in query.recentProgress if p["numInputRows"]]
    return found


def stored(spark: "SparkSession", directory: Path) -> list[int]:
    """The numbers in the table, sorted."""
    table = spark.read.parquet(str(directory / "table"))
    return sorted(int(row.data) for row in table.collect())
