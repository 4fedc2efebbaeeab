"""How long a message takes through a continuous query: from its publish to its row in Python.

A query with a trigger of 0 s follows a stream; `foreachBatch` collects the rows of a micro-batch.
Messages are published at a steady pace and carry the clock of their publish, so that each row tells
how old it was when Python had it. The first seconds, in which Spark warms up, are left out.
"""

import asyncio
import shutil
import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import slipstream
import slipstream.sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "LATENCY"
SUBJECT = "latency.now"
PACE_SECONDS = 0.02
WARM_SECONDS = 8.0
PATIENCE_SECONDS = 60.0


class Latency:
    """Milliseconds of every row of a query, as they come."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.first_row = threading.Event()

    def take(self, batch: "DataFrame", number: int) -> None:
        """A micro-batch; what `foreachBatch` is given."""
        published = [row.data for row in batch.select("data").collect()]
        now = time.time()
        self.milliseconds += [(now - float(text)) * 1000 for text in published]
        if published:
            self.first_row.set()

    def quantile(self, share: float) -> float:
        """The latency that this share of the rows does not exceed."""
        return statistics.quantiles(self.milliseconds, n=100)[round(share * 100) - 1]


def latency(spark: "SparkSession", url: str, seconds: float) -> Latency:
    """Latencies of the rows of so many seconds. Raises RuntimeError if no row comes."""
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_stream(name=STREAM, subjects=["latency.>"], storage="file")
    found = Latency()
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    reader = spark.readStream.format("jetstream").option("servers", url)
    rows = reader.option("stream", STREAM).option("startingOffsets", "earliest").load()
    writer = rows.writeStream.foreachBatch(found.take).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        asyncio.run(_publish(url, 1))
        if not found.first_row.wait(PATIENCE_SECONDS):
            raise RuntimeError(f"no row came in {PATIENCE_SECONDS:g} s: {query.exception()}")
        asyncio.run(_publish(url, int(WARM_SECONDS / PACE_SECONDS)))
        query.processAllAvailable()
        found.milliseconds.clear()
        asyncio.run(_publish(url, int(seconds / PACE_SECONDS)))
        query.processAllAvailable()
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return found


async def _publish(url: str, count: int) -> None:
    """So many messages, one after the other, at a steady pace."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        for _ in range(count):
            await js.publish(SUBJECT, repr(time.time()).encode())
            await asyncio.sleep(PACE_SECONDS)
