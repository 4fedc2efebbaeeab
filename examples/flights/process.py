"""The process with the queries: started, watched, killed in the middle, started again.

The kill is a SIGKILL of the whole process group, Python and Java, at the very moment when results
of a micro-batch arrive at the server: some of its rows are stored, and Spark has not written down
that it is done. What runs next has to find these rows, and add the others.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipstream.client import Connection

ROOT = Path(__file__).parents[2]
LOG_LINES = 15
STARTS_MAX = 4
TOO_BUSY = "Python worker failed to connect back"
Progress = dict[str, Any]


class Queries:
    """Runs `examples.flights.queries` on a directory, and shows how far it is."""

    def __init__(self, url: str, directory: Path, total: int, limit: int) -> None:
        self.total = total
        self.last: dict[str, Progress] = {}  # of each query, what it told last
        self.rows: dict[str, int] = {}
        self.dropped = 0  # rows that came later than the watermark
        self.busy_seconds: dict[str, float] = {}  # of each query, within micro-batches
        self._command = [sys.executable, "-m", "examples.flights.queries"]
        self._command += [url, str(directory), str(limit)]
        self._directory = directory
        self._log = directory / "spark.log"
        self._begun_at = 0

    async def run(self) -> None:
        """Run until all is through. Exits with the end of the log if the process fails."""
        for attempt in range(STARTS_MAX):
            async with self._process() as process:
                await self._watch(process)
            if process.returncode == 0:
                return
            self._excuse(attempt)

    async def run_until_killed(self, nc: Connection, middle: datetime) -> None:
        """Run until the first result after `middle` is on its way, and kill it there."""
        seen = await nc.subscribe("delays.>")
        killing = asyncio.create_task(first_after(seen, middle))
        for attempt in range(STARTS_MAX):
            async with self._process() as process:
                watching = asyncio.create_task(self._watch(process))
                await asyncio.wait([watching, killing], return_when=asyncio.FIRST_COMPLETED)
                if killing.done():
                    os.killpg(process.pid, signal.SIGKILL)
                    await watching
                    await seen.unsubscribe()
                    return
            self._excuse(attempt)

    def batches(self) -> tuple[int, int]:
        """Of the query `delays`, the last micro-batch in its checkpoint: begun, and done."""
        checkpoint = self._directory / "checkpoints" / "delays"
        names = ([p.name for p in (checkpoint / d).glob("*")] for d in ("offsets", "commits"))
        begun, done = (max((int(n) for n in found if n.isdigit()), default=-1) for found in names)
        return begun, done

    def _excuse(self, attempt: int) -> None:
        """Exit with the end of the log, unless it is only that the machine is too busy."""
        log = self._log.read_text()
        if attempt + 1 < STARTS_MAX and TOO_BUSY in log[self._begun_at :]:
            print("  Spark gives its Python workers 10 s to start, and they were slower; again:")
            return
        tail = log.splitlines()[-LOG_LINES:]
        sys.exit("\n".join([*tail, f"the queries have failed; all they said: {self._log}"]))

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[asyncio.subprocess.Process]:
        with self._log.open("ab") as log:
            self._begun_at = log.tell()
            process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=1 << 20,
                start_new_session=True,
            )
        print(f"  process {process.pid}: starting Spark ...", flush=True)
        try:
            yield process
            await process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"{"):
                self._take(json.loads(line))

    def _take(self, progress: Progress) -> None:
        name = progress["name"]
        self.last[name] = progress
        self.rows[name] = self.rows.get(name, 0) + progress["numInputRows"]
        busy = self.busy_seconds.get(name, 0.0) + progress["batchDuration"] / 1000
        self.busy_seconds[name] = busy
        if name != "delays":
            return
        for operator in progress["stateOperators"]:
            self.dropped += operator["numRowsDroppedByWatermark"]
        end = json.loads(progress["sources"][0]["endOffset"])
        done = int(end["FLIGHTS"]["next"]) - 1
        waits = self.total - done
        watermark = progress["eventTime"].get("watermark", "")[:10]
        print(
            f"  batch {progress['batchId']:>2}  {done:>8,} of {self.total:,} flights  "
            f"{progress['processedRowsPerSecond']:>7,.0f}/s  lag {waits:>8,}  "
            f"watermark {watermark}",
            flush=True,
        )


def backlog(progress: Progress) -> int | None:
    """How many messages wait behind a micro-batch; None for one that was run again: not said."""
    latest = progress["sources"][0]["latestOffset"]
    found: dict[str, Any] = json.loads(latest or "null") or {}
    if not found:
        return None
    return sum(int(stream["backlogMessages"]) for stream in found.values())


async def first_after(seen: Any, middle: datetime) -> None:
    """Wait for the first result of an hour that begins at `middle` or later."""
    async for message in seen:
        start = datetime.fromisoformat(json.loads(message.data)["start"])
        if start.astimezone(UTC) >= middle:
            return
