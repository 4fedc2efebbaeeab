"""How fast a stream is backed up and restored, by both servers and the same client.

    python -m bench.backups [--megabytes 500] [--size 1000]

Beside the time that passes it prints the processor time of the server alone, which other programs
on the machine do not lengthen.
"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import slipstream
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running, check_installed
from slipstream.client.jetstream import JetStream

STREAM = "BACKED"
ROUNDS = 3
WORDS, BODIES = 2000, 5000  # the second is made of the first, and packed to about a third


class Stopwatch:
    """Seconds since it was made: those that passed, and those that the server computed."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._begun = time.perf_counter(), self._ticks()

    def _ticks(self) -> int:
        fields = self._stat.read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def rates(self, megabytes: float) -> tuple[float, float]:
        """Megabytes in a second, and in a second of the server's processor time."""
        passed = time.perf_counter() - self._begun[0]
        computed = (self._ticks() - self._begun[1]) / os.sysconf("SC_CLK_TCK")
        return megabytes / passed, megabytes / max(computed, 0.01)


async def fill(js: JetStream, megabytes: int, size: int) -> float:
    """A stream of about that size; megabytes as the server counts them."""
    await js.create_stream(name=STREAM, subjects=["backed.>"])
    chance = random.Random(1)
    words = [chance.randbytes(4).hex() for _ in range(WORDS)]
    bodies = [
        " ".join(chance.choices(words, k=size // 9 + 1)).encode()[:size] for _ in range(BODIES)
    ]
    for i in range(megabytes * 1_000_000 // size):
        await js.publish_async(f"backed.{i % 100}", bodies[i % BODIES])
    await js.publish_async_complete()
    return (await js.stream_info(STREAM)).state.bytes / 1e6


async def measure(contender: Contender, megabytes: int, size: int) -> None:
    """Print one server's figures: the medians of some rounds."""
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    backups: list[tuple[float, float]] = []
    restores: list[tuple[float, float]] = []
    try:
        with Running(contender) as server:
            assert server.process is not None
            async with await slipstream.connect(f"nats://{server.address}") as nc:
                js = nc.jetstream(timeout=60)
                stored = await fill(js, megabytes, size)
                for i in range(ROUNDS):
                    watch = Stopwatch(server.process.pid)
                    found = await js.backup_stream(STREAM, directory / str(i))
                    backups.append(watch.rates(stored))
                    await js.delete_stream(STREAM)
                    watch = Stopwatch(server.process.pid)
                    await js.restore_stream(directory / str(i))
                    restores.append(watch.rates(stored))
    finally:
        shutil.rmtree(directory)
    packed = found.bytes / 1e6
    print(f"{contender.name}: {stored:.0f} MB in messages of {size} bytes, packed {packed:.0f} MB")
    for what, rates in (("backup", backups), ("restore", restores)):
        clocked, computed = (statistics.median(column) for column in zip(*rates, strict=True))
        print(
            f"  {what:8} {clocked:5.0f} MB/s, {computed:5.0f} MB/s of the server's processor time"
        )


def main() -> None:
    """Both servers, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m bench.backups")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--size", type=int, default=1000)
    options = parser.parse_args()
    check_installed()
    for contender in (SLIPSTREAM, NATS_SERVER):
        asyncio.run(measure(contender, options.megabytes, options.size))


if __name__ == "__main__":
    main()
