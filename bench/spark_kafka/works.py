"""What a round does with a side: read, follow, write, and wait for rows that trickle in."""

import shutil
import tempfile
import time
import uuid
from typing import TYPE_CHECKING

from bench.spark import drain
from bench.spark_kafka.ready import PACE_SECONDS
from bench.spark_kafka.sides import FILLED, Side
from bench.spark_latency import PATIENCE_SECONDS, WARM_SECONDS, Latency
from bench.spark_memory import peak

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_TRIGGER = 250_000
SINK_SHARE = 4  # of the rows that are read, one in so many is written
WARM_ROWS = 10_000


def rows(spark: "SparkSession", count: int) -> "DataFrame":
    """What is written: 200 bytes, one of 16 subjects."""
    made = spark.range(count, numPartitions=2)
    return made.selectExpr("concat('k', id % 16) AS subject", "binary(lpad(id, 200, '0')) AS data")


def write_rows(
    spark: "SparkSession", side: Side, name: str, count: int, *, exact: bool = False
) -> float:
    """Write rows into a new stream or topic; rows a second. Fails unless all are there."""
    side.make(name)
    frame = rows(spark, count)
    begin = time.perf_counter()
    side.write(frame, name, exact=exact)
    seconds = time.perf_counter() - begin
    found = side.table(name).count()
    if found != count:
        raise SystemExit(f"{found} rows are in {name}, and {count} were written")
    return count / seconds


def measure(
    spark: "SparkSession", side: Side, works: list[str], messages: int, seconds: float
) -> dict[str, float]:
    """The figures of one round, by name."""
    found: dict[str, float] = {}
    if "batch" in works:
        found |= read(spark, side, messages)
    if "now" in works:
        found["now"] = available_now(side, messages)
    if "trickle" in works:
        found |= trickle(side, seconds)
    if "sink" in works:
        found |= write(spark, side, messages // SINK_SHARE)
    return found


def read(spark: "SparkSession", side: Side, messages: int) -> dict[str, float]:
    """Batch reads: the first of the session, the second, and one of fewer columns."""
    found = {}
    for name in ("cold", "warm", "few"):
        begin = time.perf_counter()
        drain(side.table(FILLED, few=name == "few"))
        found[name] = messages / (time.perf_counter() - begin)
    found["held"] = peak(spark) / 1e6
    return found


def available_now(side: Side, messages: int) -> float:
    """Rows a second of a query that takes what is there, in several micro-batches, and ends."""
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    begin = time.perf_counter()
    writer = side.follow(FILLED, PER_TRIGGER).writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    rate = messages / (time.perf_counter() - begin)
    taken = sum(progress.numInputRows for progress in query.recentProgress)
    if taken != messages:
        raise SystemExit(f"AvailableNow took {taken} rows, and there are {messages}")
    shutil.rmtree(checkpoint, ignore_errors=True)
    return rate


def write(spark: "SparkSession", side: Side, count: int) -> dict[str, float]:
    """The sink's rates, each after a small write that warms it up."""
    found = {}
    modes = {"once": False, "exact": True} if side.has_exactly_once else {"once": False}
    for figure, exact in modes.items():
        for wanted in (WARM_ROWS, count):
            name = f"sink{uuid.uuid4().hex[:12]}"
            found[figure] = write_rows(spark, side, name, wanted, exact=exact)
            side.drop(name)
    return found


def trickle(side: Side, seconds: float) -> dict[str, float]:
    """Milliseconds from the publish of a message to its row in Python, 20 messages a second."""
    name = f"trickle{uuid.uuid4().hex[:12]}"
    side.make(name)
    publish = side.publisher(name)
    late = Latency()
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    writer = side.follow(name).writeStream.foreachBatch(late.take)
    query = writer.option("checkpointLocation", checkpoint)
    running = query.trigger(processingTime="0 seconds").start()
    try:
        publish(b"%r" % time.time())
        if not late.first_row.wait(PATIENCE_SECONDS):
            raise RuntimeError(f"no row came in {PATIENCE_SECONDS:g} s: {running.exception()}")
        for wanted in (WARM_SECONDS, seconds):
            late.milliseconds.clear()
            for _ in range(int(wanted / PACE_SECONDS)):
                publish(b"%r" % time.time())
                time.sleep(PACE_SECONDS)
            running.processAllAvailable()
    finally:
        running.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    side.drop(name)
    return {"p50": late.quantile(0.5), "p99": late.quantile(0.99)}
