"""Streams into tables: rows a second, and how long from a publish to its row in the table.

    python -m bench.tables [--rows 2000000] [--rate 20000] [--seconds 60] [--format delta]

Server, publisher and writer are processes of their own on one machine; the writer is
`slipstream pipeline table`. Rows a second are those of the whole command, its start and the making
of the tables included, and of the time between its first and its last commit. The latency of a
message goes from its publish until the writer has said that the commit with its row is made; one
row in twenty is looked at. Without --server a Slipstream server is started.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import slipstream

STREAM = "BENCH_TABLE"
SAMPLED = 20
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")


class Row(msgspec.Struct):
    """A body of about 135 bytes."""

    flight: int
    carrier: str
    origin: str
    dest: str
    delay: float
    distance: int
    tail: str
    scheduled: str


def body(number: int) -> bytes:
    """The body of a message."""
    made = Row(
        number,
        CARRIERS[number % 8],
        "JFK",
        "LAX",
        number % 180 / 2 - 20,
        number % 2500,
        f"N{number % 3000}",
        "2013-01-01T05:15:00Z",
    )
    return msgspec.json.encode(made)


async def publish(url: str, rows: int, rate: int) -> list[float]:
    """Publish rows, `rate` a second (0: as fast as it goes); when every twentieth was published."""
    times: list[float] = []
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        begun = time.time()
        for number in range(rows):
            if rate and number % 100 == 0:
                await asyncio.sleep(max(0.0, begun + number / rate - time.time()))
            if number % SAMPLED == 0:
                times.append(time.time())
            await js.publish_async("bench.table", body(number))
        await js.publish_async_complete()
    return times


async def make_stream(url: str) -> None:
    """An empty stream."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        if STREAM in [name async for name in js.stream_names()]:
            await js.delete_stream(STREAM)
        await js.create_stream(name=STREAM, subjects=["bench.table"])


class Writer:
    """`slipstream pipeline table` in a process of its own, and what it says of its commits."""

    def __init__(self, url: str, folder: Path, kind: str, *words: str) -> None:
        command = [sys.executable, "-m", "slipstream", "pipeline", "table", STREAM, "--json"]
        self.begun = time.time()
        self.commits: list[tuple[float, int]] = []
        self._process = subprocess.Popen(
            [*command, "--server", url, "--to", str(folder), "--format", kind, *words],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"'):
                self.commits.append((time.time(), json.loads(line)["sequence"]))

    def wait_for(self, sequence: int, seconds: float) -> None:
        """Wait until so much is committed."""
        deadline = time.time() + seconds
        while not self.commits or self.commits[-1][1] < sequence:
            if time.time() > deadline or self._process.poll() is not None:
                break
            time.sleep(0.02)

    def end(self) -> None:
        """Wait for its end, and tell it to end if it goes on."""
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.terminate()
        self._process.wait()
        self._thread.join()


def throughput(url: str, folder: Path, kind: str, rows: int) -> None:
    """Print rows a second of a stream that is there."""
    asyncio.run(make_stream(url))
    asyncio.run(publish(url, rows, 0))
    writer = Writer(url, folder, kind)
    writer.wait_for(rows, 600)
    writer.end()
    (first, first_rows), (last, last_rows) = writer.commits[0], writer.commits[-1]
    steady = (last_rows - first_rows) / (last - first)
    print(f"{last_rows:,} rows in {last - writer.begun:.1f} s, start included:", end=" ")
    print(f"{last_rows / (last - writer.begun):,.0f} rows/s; {steady:,.0f} rows/s after the first")
    print(f"commit ({len(writer.commits)} commits)")


def latency(url: str, folder: Path, kind: str, rate: int, seconds: int) -> None:
    """Print how long messages take that are published at a pace."""
    asyncio.run(make_stream(url))
    writer = Writer(url, folder, kind, "--follow")
    time.sleep(3)  # it has opened the tables by then
    rows = rate * seconds
    begun = time.time()
    times = asyncio.run(publish(url, rows, rate))
    reached = rows / (times[-1] - begun)
    writer.wait_for(rows, 60)
    writer.end()
    found, commit = [], 0
    for at, published in enumerate(times):
        while writer.commits[commit][1] < at * SAMPLED + 1:
            commit += 1
        found.append(writer.commits[commit][0] - published)
    cuts = statistics.quantiles(found, n=100)
    print(
        f"{reached:,.0f} rows/s published for {seconds} s, {len(writer.commits)} commits:", end=" "
    )
    print(
        f"p50 {cuts[49]:.2f} s, p95 {cuts[94]:.2f} s, p99 {cuts[98]:.2f} s, most {max(found):.2f} s"
    )


@contextmanager
def server(url: str, folder: Path) -> Iterator[str]:
    """The server that was named, or one that is started."""
    if url:
        yield url
        return
    words = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder), "-js"]
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstream.server.command", *words, "-sd", str(folder / "store")],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (found := list(folder.glob("*.ports"))) or not found[0].read_text():
            time.sleep(0.05)
        yield json.loads(found[0].read_text())["nats"][0]
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--server", default="")
    parser.add_argument("--format", choices=("iceberg", "delta", "parquet"), default="iceberg")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tables-") as name:
        folder = Path(name)
        with server(asked.server, folder) as url:
            if asked.rows:
                throughput(url, folder / "all", asked.format, asked.rows)
            if asked.seconds:
                latency(url, folder / "follow", asked.format, asked.rate, asked.seconds)


if __name__ == "__main__":
    main()
