"""Spark reading a stream, beside Parquet: ``python -m bench.spark [--messages N] [--rounds N]``.

Server and Spark share the machine (`local[2]`). Messages have 128 bytes and lie in a file stream.
Rates are rows per second with all that a query costs, the median of the rounds after one round that
warms up. Latency is that of rows of a continuous query (`bench.spark_latency`). Memory is the most
that a Python worker needed for the no-op load on top of a worker that has read two messages
(`bench.spark_memory`). The sink has a table of its own, which `python -m bench.spark_sink` prints
alone.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import slipstream
import slipstream.spark
import slipstream.sync
from bench import spark_sink
from bench.servers import NATS_SERVER, SLIPSTREAM, Running, check_installed
from bench.spark_latency import latency
from bench.spark_memory import forget_peaks, peak

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "BENCH"
PER_TRIGGER = 200_000
HEADINGS = (
    "no-op rows/s",
    "grouped rows/s",
    "now rows/s",
    "latency p50 ms",
    "p99 ms",
    "held MB",
)


def fill(url: str, count: int) -> None:
    """The stream that is read."""
    body = bytes(128)
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=["bench.>"], storage="file", allow_direct=True)

    async def publish() -> None:
        async with await slipstream.connect(url) as nc:
            js = nc.jetstream()
            for number in range(count):
                await js.publish_async(f"bench.{number % 16}", body)
            await js.publish_async_complete()

    asyncio.run(publish())


def table(spark: "SparkSession", url: str) -> "DataFrame":
    """The stream as a table."""
    reader = spark.read.format("jetstream").option("servers", url)
    return reader.option("stream", STREAM).load()


def drain(rows: "DataFrame") -> None:
    """Read everything into nothing."""
    rows.write.format("noop").mode("overwrite").save()


def group(rows: "DataFrame") -> None:
    """A grouped count."""
    rows.groupBy("subject").count().collect()


def follow(spark: "SparkSession", url: str) -> None:
    """AvailableNow from the beginning."""
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    reader = spark.readStream.format("jetstream").option("servers", url)
    reader = reader.option("stream", STREAM).option("startingOffsets", "earliest")
    rows = reader.option("maxMessagesPerTrigger", PER_TRIGGER).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)


def rate(work: Callable[[], None], count: int, rounds: int) -> float:
    """Rows per second."""
    seconds = []
    for number in range(rounds + 1):
        begin = time.perf_counter()
        work()
        if number:
            seconds.append(time.perf_counter() - begin)
    return count / statistics.median(seconds)


def held(spark: "SparkSession", url: str) -> float:
    """Megabytes that one Python worker needs for a read, however long the stream is."""
    rows = table(spark, url)
    few = spark.read.format("jetstream").option("servers", url).option("stream", STREAM)
    drain(few.option("endingOffsets", f'{{"{STREAM}": 3}}').option("minPartitions", 2).load())
    before = forget_peaks(spark)
    drain(rows)
    return (peak(spark) - before) / 1e6


def measure(spark: "SparkSession", url: str, count: int, rounds: int, seconds: float) -> list[str]:
    """The cells of one server."""
    rows = table(spark, url)
    memory = held(spark, url)
    cells = [
        f"{rate(lambda: drain(rows), count, rounds):,.0f}",
        f"{rate(lambda: group(rows), count, rounds):,.0f}",
        f"{rate(lambda: follow(spark, url), count, rounds):,.0f}",
    ]
    late = latency(spark, url, seconds)
    cells += [f"{late.quantile(share):,.0f}" for share in (0.5, 0.99)]
    return [*cells, f"{memory:.0f}"]


def show(name: str, cells: Iterable[str]) -> None:
    """One line of the table."""
    print(f"{name:<14}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-seconds", type=float, default=15.0)
    options = parser.parse_args()
    check_installed()
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = slipstream.spark.session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    parquet = Path(tempfile.mkdtemp(prefix="bench-parquet-"))
    show("", HEADINGS)
    try:
        for contender in (SLIPSTREAM, NATS_SERVER):
            with Running(contender) as server:
                url = f"nats://{server.address}"
                fill(url, options.messages)
                seconds = options.latency_seconds
                show(
                    contender.name,
                    measure(spark, url, options.messages, options.rounds, seconds),
                )
                table(spark, url).write.mode("overwrite").parquet(str(parquet / "table"))
        stored = spark.read.parquet(str(parquet / "table"))
        works = (lambda: drain(stored), lambda: group(stored))
        found = [rate(work, options.messages, options.rounds) for work in works]
        show("Parquet", (f"{figure:,.0f}" for figure in found))
        spark_sink.show_table(spark, options.messages // 2, options.rounds)
    finally:
        shutil.rmtree(parquet, ignore_errors=True)
        spark.stop()


if __name__ == "__main__":
    main()
