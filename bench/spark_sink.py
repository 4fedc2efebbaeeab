"""Spark writing a stream: ``python -m bench.spark_sink [--messages N] [--rounds N]``.

Server and Spark share the machine (`local[2]`). Rows have 128 bytes and one of 16 subjects, and go
into a file stream, once in each of the sink's modes. Each figure is rows per second, the median of
the rounds, after one round that warms up; behind it the processor time that the server takes for a
row, in microseconds, which says what a busy machine hides.
"""

import argparse
import os
import statistics
import sys
import time
import uuid
from typing import TYPE_CHECKING

import slipstream.spark
import slipstream.sync
from bench.servers import NATS_SERVER, Contender, Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLIPSTREAM = Contender("slipstream", [sys.executable, "-m", "slipstream.server.command"])
STREAM = "SINK"
MODES = ("exactly-once", "deduplicated", "at-least-once")


def rows(spark: "SparkSession", count: int) -> "DataFrame":
    """What is written."""
    made = spark.range(count, numPartitions=2)
    return made.selectExpr(
        "concat('sink.', id % 16) AS subject", "binary(lpad(id, 128, '0')) AS data"
    )


def write(frame: "DataFrame", url: str, mode: str) -> float:
    """Write the rows into a new stream; the seconds that took."""
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        if STREAM in list(js.stream_names()):
            js.delete_stream(STREAM)
        js.create_stream(name=STREAM, subjects=["sink.>"], storage="file", allow_direct=True)
    writer = frame.write.format("jetstream").mode("append")
    writer = writer.options(servers=url, stream=STREAM, mode=mode, writerId=uuid.uuid4().hex)
    begin = time.perf_counter()
    writer.save()
    return time.perf_counter() - begin


def check(url: str, count: int) -> None:
    """Fail unless every row is there once."""
    with slipstream.sync.connect(url) as nc:
        subjects = nc.jetstream().stream(STREAM).info(subjects_filter="sink.>").state.subjects
    found = sum((subjects or {}).values())
    if found != count:
        raise SystemExit(f"{found} rows are in the stream, and {count} were written")


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(frame: "DataFrame", server: Running, mode: str, count: int, rounds: int) -> str:
    """One cell of the table."""
    url = f"nats://{server.address}"
    assert server.process is not None
    pid = server.process.pid
    write(frame, url, mode)
    check(url, count)
    before = processor_seconds(pid)
    seconds = statistics.median(write(frame, url, mode) for _ in range(rounds))
    used = (processor_seconds(pid) - before) / (count * rounds) * 1e6
    return f"{count / seconds:,.0f} ({used:.1f})"


def show_table(spark: "SparkSession", count: int, rounds: int) -> None:
    """Measure all modes on both servers, and print the table."""
    frame = rows(spark, count)
    print(f"{'rows/s':<14}" + "".join(f"{mode:>20}" for mode in MODES), flush=True)
    for contender in (SLIPSTREAM, NATS_SERVER):
        with Running(contender) as server:
            print(f"{contender.name:<14}", end="")
            for mode in MODES:
                print(f"{measure(frame, server, mode, count, rounds):>20}", end="", flush=True)
            print()


def main() -> None:
    """The sink alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = slipstream.spark.session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    try:
        show_table(spark, options.messages, options.rounds)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
