"""Spark reading a stream, beside Parquet: ``python -m bench.spark [--messages N] [--rounds N]``.

Server and Spark share the machine (`local[2]`). Messages have 128 bytes and lie in a file stream.
Each figure is rows per second, the median of the rounds, after one round that warms up.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import slipstream
import slipstream.spark
import slipstream.sync
from bench.servers import NATS_SERVER, Contender, Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLIPSTREAM = Contender("slipstream", [sys.executable, "-m", "slipstream.server.command"])
STREAM = "BENCH"
PER_TRIGGER = 200_000


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


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = slipstream.spark.session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    parquet = Path(tempfile.mkdtemp(prefix="bench-parquet-"))
    loads = ("no-op sink", "grouped count", "AvailableNow")
    print(f"{'rows/s':<14}" + "".join(f"{name:>16}" for name in loads))
    try:
        for contender in (SLIPSTREAM, NATS_SERVER):
            with Running(contender) as server:
                url = f"nats://{server.address}"
                fill(url, options.messages)
                rows = table(spark, url)
                works = (lambda: drain(rows), lambda: group(rows), lambda: follow(spark, url))  # noqa: B023
                found = [rate(work, options.messages, options.rounds) for work in works]
                print(f"{contender.name:<14}" + "".join(f"{f:>16,.0f}" for f in found), flush=True)
                rows.write.mode("overwrite").parquet(str(parquet / "table"))
        stored = spark.read.parquet(str(parquet / "table"))
        works = (lambda: drain(stored), lambda: group(stored))
        found = [rate(work, options.messages, options.rounds) for work in works]
        print(f"{'Parquet':<14}" + "".join(f"{f:>16,.0f}" for f in found))
    finally:
        shutil.rmtree(parquet, ignore_errors=True)
        spark.stop()


if __name__ == "__main__":
    main()
