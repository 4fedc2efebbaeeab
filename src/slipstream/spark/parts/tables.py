"""From streams to tables and back: windows, lookups, duplicates, sessions, changes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from slipstream.spark import kv
from slipstream.spark.lookup import looked_up
from slipstream.spark.options import ServerOptions, parse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def windowed(
    rows: "DataFrame", time: str, window: str, late: str, keys: list[str], *results: "Column"
) -> "DataFrame":
    """Aggregates by keys and windows of event time; rows later than `late` are left out."""
    grouped = rows.withWatermark(time, late).groupBy(f.window(time, window), *keys)
    made = grouped.agg(*results)
    return made.select(
        f.col("window.start").alias("start"), f.col("window.end").alias("end"), "*"
    ).drop("window")


def sessions(
    rows: "DataFrame", time: str, gap: str, late: str, keys: list[str], *results: "Column"
) -> "DataFrame":
    """Aggregates by keys and sessions, which end when nothing came for `gap`.

    A streaming query needs a key at least.
    """
    grouped = rows.withWatermark(time, late).groupBy(f.session_window(time, gap), *keys)
    made = grouped.agg(*results)
    return made.select(
        f.col("session_window.start").alias("start"), f.col("session_window.end").alias("end"), "*"
    ).drop("session_window")


def deduplicated(rows: "DataFrame", time: str, late: str, keys: list[str]) -> "DataFrame":
    """The first row of each key; keys are remembered for `late` of event time."""
    return rows.withWatermark(time, late).dropDuplicatesWithinWatermark(keys)


def enriched(
    rows: "DataFrame", spark: "SparkSession", bucket: str, key: str, name: str, **source: Any
) -> "DataFrame":
    """Each row with the bucket's value for its column `key`, as text in a column `name`.

    A key that the bucket lacks gives null. In a streaming query each micro-batch asks for the keys
    that its rows have, and sees the values of its time. A table is joined with the bucket as it is
    when that is first used.
    """
    if rows.isStreaming:
        options = parse(ServerOptions, {key: str(value) for key, value in source.items()})
        return rows.withColumn(name, looked_up(rows[key], bucket, options))
    found = kv.table(spark, bucket, **source).select(
        f.col("key").alias(f"{name}_key"), f.col("value").cast("string").alias(name)
    )
    return rows.join(found, rows[key] == found[f"{name}_key"], "left").drop(f"{name}_key")


def transformed(
    rows: "DataFrame",
    function: "Callable[[DataFrame], DataFrame]",
    *,
    checkpoint: str,
    trigger: dict[str, Any] | None = None,
    **sink: Any,
) -> "StreamingQuery":
    """A query that writes `function(rows)` into a stream, exactly once where that allows it."""
    writer = function(rows).writeStream.format("jetstream").options(**sink)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()


def changes(spark: "SparkSession", bucket: str, **source: Any) -> "DataFrame":
    """The change feed of a bucket: key, value, revision, timestamp, operation (PUT, DEL, PURGE)."""
    reader = spark.readStream.format("jetstream").option("stream", f"KV_{bucket}")
    return kv.changed(reader.options(**source).load(), bucket)
