"""Act two: three Structured Streaming queries, in a process of their own.

    FLIGHTS ── delays ──> DELAYS ─┬─ table ────> results/ (Parquet)
    WEATHER (bucket) ┘            └─ current ──> CURRENT (bucket)

*delays* gives each flight the weather of its hour and airport, and each hour of each airport its
delay; a row is written, exactly once, when the watermark has passed its hour, so it never changes.
*table* appends these rows to Parquet files. *current* keeps the last row for each airport and hour
of the day in a bucket. All three go on from their checkpoints, whatever has happened to them.

How far they are is printed as JSON, a line for each micro-batch.
"""

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from examples.flights.data import PATIENCE
from pyspark.sql import functions as f

import slipstream.spark
from slipstream.spark.decode import schema_of
from slipstream.spark.parts.tables import enriched
from slipstream.spark.pipelines import jetstream_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2
POLL_SECONDS = 0.2
FOLLOW = "1 second"  # how often the results are looked at


class Flight(msgspec.Struct):
    """What the queries need of an event on ``flights.>``; the clock's tick has only a time."""

    scheduled: datetime
    origin: str | None = None
    hour: int | None = None  # of the local day
    dep_delay: float | None = None  # minutes; None: cancelled


class Weather(msgspec.Struct):
    """What they need of an entry of the bucket WEATHER."""

    wind_speed: float | None = None  # miles an hour
    visib: float | None = None  # miles


class Delay(msgspec.Struct):
    """A result on ``delays.<origin>.<hour>``: an hour (from `start`) of an airport."""

    start: datetime
    origin: str
    hour: int
    flights: int
    departed: int
    delay: float | None = None  # mean, minutes
    worst: float | None = None
    wind_speed: float | None = None
    visib: float | None = None


def delays(spark: "SparkSession", url: str, limit: int) -> "DataFrame":
    """Delay by origin and hour beside the weather, as messages for the stream DELAYS."""
    flights = jetstream_source(
        "FLIGHTS",
        spark=spark,
        servers=url,
        columns="data",
        maxMessagesPerTrigger=limit,
        minPartitions=PARTITIONS,
        commitDurable="spark",  # its lag shows in every tool
    )
    flight = f.from_json(f.col("data").cast("string"), schema_of(Flight))
    flights = flights.select(flight.alias("flight")).select("flight.*")
    flights = flights.withColumn(
        "key", f.concat_ws(".", "origin", f.date_format("scheduled", "yyyyMMdd'T'HH"))
    )
    flights = enriched(flights, spark, "WEATHER", "key", "weather", servers=url)
    flights = flights.withColumn("weather", f.from_json("weather", schema_of(Weather)))
    hours = (
        flights.withWatermark("scheduled", PATIENCE)
        .groupBy(f.window("scheduled", "1 hour"), "origin", "hour")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departed"),
            f.avg("dep_delay").alias("delay"),
            f.max("dep_delay").alias("worst"),
            f.max("weather.wind_speed").alias("wind_speed"),  # the same for all of the hour
            f.max("weather.visib").alias("visib"),
        )
        .withColumn("start", f.col("window.start"))
    )
    return hours.select(
        f.concat_ws(".", f.lit("delays"), "origin", "hour").alias("subject"),
        f.to_json(f.struct(*Delay.__struct_fields__)).alias("data"),
    )


def results(spark: "SparkSession", url: str) -> "DataFrame":
    """The rows of the stream DELAYS: the JSON as `data`, and its fields."""
    rows = jetstream_source(
        "DELAYS", spark=spark, servers=url, subjects="delays.>", columns="data", minPartitions=1
    )
    text = f.col("data").cast("string")
    rows = rows.select(text.alias("data"), f.from_json(text, schema_of(Delay)).alias("delay"))
    return rows.select("data", "delay.*")


def writer(rows: "DataFrame", name: str, directory: Path) -> "DataStreamWriter":
    """A named query with a checkpoint of its own."""
    checkpoint = str(directory / "checkpoints" / name)
    return rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)


def start_delays(spark: "SparkSession", url: str, directory: Path, limit: int) -> "StreamingQuery":
    """Ends by itself when it has read what there is."""
    main = writer(delays(spark, url, limit), "delays", directory)
    main = main.format("jetstream").options(servers=url, stream="DELAYS")
    return main.trigger(availableNow=True).start()


def start_table(rows: "DataFrame", directory: Path) -> "StreamingQuery":
    """Follows the results; runs until it is stopped."""
    table = writer(rows.drop("data").coalesce(1), "table", directory).format("parquet")
    table = table.option("path", str(directory / "results"))
    return table.trigger(processingTime=FOLLOW).start()


def start_current(rows: "DataFrame", url: str, directory: Path) -> "StreamingQuery":
    """Follows the results; its state is the newest of each key, so an older one never wins."""

    def put(changed: "DataFrame", batch: int) -> None:
        sink = changed.write.format("jetstream").mode("append")
        sink.options(servers=url, bucket="CURRENT").save()

    key = f.concat_ws(".", "origin", "hour").alias("key")
    newest = rows.groupBy(key).agg(f.max_by("data", "start").alias("value"))
    current = writer(newest, "current", directory).outputMode("update").foreachBatch(put)
    return current.trigger(processingTime=FOLLOW).start()


def tell(query: "StreamingQuery", told: dict[str, int]) -> None:
    """Print what has not been told yet of a query's micro-batches."""
    for progress in query.recentProgress:
        if progress["batchId"] > told.get(query.name, -1):
            told[query.name] = progress["batchId"]
            print(json.dumps(progress, default=str), flush=True)


def main(url: str, directory: Path, limit: int) -> None:
    """Run the queries until all flights are through."""
    spark = slipstream.spark.session(
        f"local[{PARTITIONS}]",
        name="flights",
        config={
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(directory / "spark"),
            "spark.sql.warehouse.dir": str(directory / "spark"),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    first = start_delays(spark, url, directory, limit)
    rows = results(spark, url)
    others: list[StreamingQuery] = []
    told: dict[str, int] = {}
    while not first.awaitTermination(POLL_SECONDS):  # raises what a query failed of
        for query in (first, *others):
            tell(query, told)
        if told and not others:  # one after the other: each starts Python processes of its own
            others = [start_table(rows, directory), start_current(rows, url, directory)]
    others = others or [start_table(rows, directory), start_current(rows, url, directory)]
    for query in others:
        query.processAllAvailable()
        query.stop()
    for query in (first, *others):
        tell(query, told)
    spark.stop()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    arguments.add_argument("url")
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("limit", type=int, help="flights of a micro-batch")
    given = arguments.parse_args()
    main(given.url, given.directory, given.limit)
