"""A steady load: how far a continuous query is behind, and what everybody holds, second by second.

20,000 messages of 200 bytes a second come from a process of their own, once the query has seen a
first row. The lag of a micro-batch is the age of its oldest row, by the time that the server has
given it, when the batch is done; while none is done it is the age of the newest row of the last
one. The first seconds, in which Spark warms up, are drawn and not judged. Of the Python workers
the largest counts: Spark starts another one whenever two tasks happen to run at a time. As a
program the module publishes to the server at an address, as many messages as it is told.
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import slipstream
from bench import report
from bench.plots import COLORS, PLOTS
from bench.spark_kafka import fetch
from bench.spark_kafka.sides import Side
from bench.spark_latency import PATIENCE_SECONDS
from bench.spark_memory import workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RATE = 20_000
SIZE = 200
STREAM = "steady"
WARM_SECONDS = 30.0
LAG_MAX_SECONDS = 2.0
GROWTH_MAX = 1.1  # of the last quarter over the second one
SAMPLE_SECONDS = 1.0


class Sample(NamedTuple):
    """One second: seconds since the start, lag in seconds, megabytes that the server and the
    largest worker hold."""

    at: float
    lag: float
    server: float
    worker: float
    rows: int


class Watch:
    """Hears of each micro-batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_row = threading.Event()
        self._lag = 0.0
        self._newest = time.time()

    def take(self, batch: "DataFrame", number: int) -> None:
        """A micro-batch; what `foreachBatch` is given."""
        found = batch.selectExpr(
            "min(unix_micros(timestamp))", "max(unix_micros(timestamp))", "count(*)"
        )
        oldest, newest, count = found.collect()[0]
        if count:
            self._newest = newest / 1e6
            self._lag = max(self._lag, time.time() - oldest / 1e6)
            self.rows += count
            self.first_row.set()

    def lag(self) -> float:
        """The largest since it was last asked for."""
        found, self._lag = self._lag, 0.0
        return max(found, time.time() - self._newest)


def run(
    spark: "SparkSession", side: Side, name: str, address: str, seconds: float, pid: int
) -> list[Sample]:
    """The samples of so many seconds; `pid` is the server's process."""
    side.make(STREAM)
    watch = Watch()
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    writer = side.follow(STREAM).writeStream.foreachBatch(watch.take)
    query = writer.option("checkpointLocation", checkpoint)
    running = query.trigger(processingTime="0 seconds").start()
    found: list[Sample] = []
    count = int(seconds * RATE)
    try:
        side.publisher(STREAM)(bytes(SIZE))
        if not watch.first_row.wait(PATIENCE_SECONDS):
            raise RuntimeError(f"no row came in {PATIENCE_SECONDS:g} s: {running.exception()}")
        publishing = _publisher(name, address, count)
        try:
            _sample(spark, running, watch, seconds, pid, found)
            publishing.wait()
        finally:
            publishing.kill()
        running.processAllAvailable()
    finally:
        running.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    if watch.rows != count + 1:
        raise SystemExit(f"{watch.rows} rows came of {count + 1} that were published")
    side.drop(STREAM)
    return found


def _sample(
    spark: "SparkSession",
    running: "StreamingQuery",
    watch: Watch,
    seconds: float,
    pid: int,
    found: list[Sample],
) -> None:
    """Add a sample to `found` each second, for so many seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        time.sleep(SAMPLE_SECONDS)
        at = time.monotonic() - begin
        if not running.isActive:
            raise RuntimeError(f"the query ended after {at:.0f} s: {running.exception()}")
        held = max((_resident(worker) for worker in workers(spark)), default=0.0)
        found.append(Sample(at, watch.lag(), _resident(pid), held, watch.rows))


def _publisher(name: str, address: str, count: int) -> "subprocess.Popen[bytes]":
    """Start what publishes."""
    if name == "kafka":
        classes = str(fetch.fetch().broker / "*")
        tool = ["java", "-Xmx256m", "-cp", classes, "org.apache.kafka.tools.ProducerPerformance"]
        tool += ["--topic", STREAM, "--num-records", str(count), "--record-size", str(SIZE)]
        tool += ["--throughput", str(RATE), "--producer-props", f"bootstrap.servers={address}"]
    else:
        tool = [sys.executable, "-m", "bench.spark_kafka.steady", address, str(count)]
    return subprocess.Popen(tool, stdout=subprocess.DEVNULL)


async def _publish_paced(url: str, count: int) -> None:
    body = bytes(SIZE)
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        begun = time.monotonic()
        for number in range(count):
            if number % 100 == 0:
                await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            await js.publish_async(f"{STREAM}.{number % 16}", body)
        await js.publish_async_complete()


def _resident(pid: int) -> float:
    """Megabytes that a process holds; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * 4096 / 1e6


def show(runs: dict[str, list[Sample]], seconds: float, *, is_saved: bool) -> None:
    """Print the rows, and save and draw them."""
    rows = rows_of(runs, seconds)
    for row in rows:
        print(report.line(report.scale_cells(row), (62, 12, 12, 12, 8)))
    if is_saved:
        draw(runs)
        report.save("spark_steady", rows, seconds=seconds)


def rows_of(runs: dict[str, list[Sample]], seconds: float) -> list[report.Row]:
    """What of the samples the page tells."""
    judged = {
        name: [sample for sample in samples if sample.at > min(WARM_SECONDS, seconds / 3)]
        for name, samples in runs.items()
    }
    lags = {name: max(sample.lag for sample in samples) for name, samples in judged.items()}
    middle = {
        name: statistics.median(sample.lag for sample in samples)
        for name, samples in judged.items()
    }
    growths = [
        (
            f"{what}: its memory in the last quarter over the second",
            {
                name: _growth([getattr(sample, field) for sample in samples])
                for name, samples in runs.items()
            },
            f"≤ {GROWTH_MAX:g}",
            GROWTH_MAX,
        )
        for what, field in (("server", "server"), ("Python worker", "worker"))
    ]
    told = [
        ("the most that a micro-batch is behind (s)", lags, "≤ 2", LAG_MAX_SECONDS),
        ("the same, median of the seconds (s)", middle, "", float("inf")),
        *growths,
    ]
    return [
        {
            "name": name,
            "ours": found["slipstream"],
            "theirs": found.get("kafka"),
            "goal": goal,
            "met": found["slipstream"] <= most,
        }
        for name, found, goal, most in told
    ]


def _growth(held: list[float]) -> float:
    quarter = max(len(held) // 4, 1)
    before = statistics.median(held[quarter : 2 * quarter])
    return statistics.median(held[-quarter:]) / before if before else 0.0


def draw(runs: dict[str, list[Sample]]) -> None:
    """Lag and memory over time, as a picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (lag, memory) = plt.subplots(1, 2, figsize=(11.2, 4.4), dpi=110)
    for (name, samples), color in zip(runs.items(), COLORS.values(), strict=False):
        times = [sample.at for sample in samples]
        lag.plot(times, [sample.lag for sample in samples], color=color, label=name)
        for field, style in (("server", "-"), ("worker", "--")):
            held = [getattr(sample, field) for sample in samples]
            if any(held):
                memory.plot(times, held, style, color=color, label=f"{name}, {field}")
    lag.set(title="behind (s)", xlabel="seconds", ylim=(0, None))
    memory.set(title="resident memory (MB)", xlabel="seconds", ylim=(0, None))
    for axis in (lag, memory):
        axis.legend()
        axis.grid(alpha=0.3)
    PLOTS.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(PLOTS / "spark_steady.png", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    asyncio.run(_publish_paced(f"nats://{sys.argv[1]}", int(sys.argv[2])))
