"""A stream is written into an Iceberg table while server and writer are killed, again and again.

    make demo-kill            or: python -m examples.killed_table [--rate N] [--kills N]

Numbers are published with message ids, some of them as bodies that fit no row. The writer is
`slipstream pipeline table --follow`, the server `slipstream serve`; each kill is a SIGKILL at a
random moment, of one of them or of both. In the end the table and the table of rejected messages
are compared with what was published: every number is there, and none is there twice.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.tables.iceberg import open_catalog

STREAM = "NUMBERS"
IN_FLIGHT = 500
MISFIT_EVERY = 10  # of the bodies, one in so many fits no row
PAUSE_SECONDS_MAX = 4.0


class Mortal:
    """A process that is killed and started again."""

    def __init__(self, *words: str) -> None:
        self._words = [sys.executable, "-m", "slipstream", *words]
        self.start()

    def start(self) -> None:
        """Start it."""
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._words, stdout=quiet, stderr=quiet, env=os.environ)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()


def body(number: int) -> bytes:
    """A number as a body; some are no JSON."""
    return f"no row: {number}".encode() if number % MISFIT_EVERY == 0 else b'{"n":%d}' % number


async def publish(js: JetStream, rate: int, is_over: asyncio.Event) -> int:
    """Publish so many numbers a second until it is over; how many there were.

    What is not acknowledged is published again under the same message id.
    """
    begun, messages = perf_counter(), 0
    while not is_over.is_set():
        left = list(range(messages, messages + IN_FLIGHT))
        messages += IN_FLIGHT
        while left:
            left = await publish_some(js, left)
        await asyncio.sleep(max(0.0, begun + messages / rate - perf_counter()))
    return messages


async def publish_some(js: JetStream, numbers: list[int]) -> list[int]:
    """Publish numbers; those of which no acknowledgement came."""
    acks = []
    for number in numbers:
        try:
            acks.append(await js.publish_async("numbers", body(number), message_id=str(number)))
        except slipstream.Error:
            break
    results = await asyncio.gather(*acks, return_exceptions=True)
    done = {n for n, r in zip(numbers, results, strict=False) if not isinstance(r, BaseException)}
    if not done:
        await asyncio.sleep(0.1)
    return [number for number in numbers if number not in done]


async def kill(server: Mortal, writer: Mortal, kills: int, chance: random.Random) -> None:
    """Kill one or both at random moments."""
    for number in range(1, kills + 1):
        await asyncio.sleep(chance.uniform(0.05, PAUSE_SECONDS_MAX))
        chosen = chance.choice([("writer",), ("writer",), ("server",), ("writer", "server")])
        print(f"  ✗ {number:>3} of {kills}: SIGKILL for the {' and the '.join(chosen)}", flush=True)
        for name, process in (("writer", writer), ("server", server)):
            if name in chosen:
                process.kill()
        if "server" in chosen:
            server.start()
        if "writer" in chosen:
            writer.start()


def compare(directory: Path, messages: int) -> bool:
    """Print whether the tables have every number once."""
    catalog = open_catalog(str(directory / "tables"))
    rows = catalog.load_table("streams.numbers").scan().to_arrow()
    rejected = catalog.load_table("streams.numbers_rejected").scan().to_arrow()
    fitting = Counter(rows["n"].to_pylist())
    misfits = Counter(int(data.split()[-1]) for data in rejected["data"].to_pylist())
    wanted = {n for n in range(messages) if n % MISFIT_EVERY}
    agree = True
    for name, found, expected in (
        ("rows in the table", fitting, wanted),
        ("rejected messages", misfits, set(range(messages)) - wanted),
    ):
        twice = sum(count - 1 for count in found.values())
        lost = len(expected - found.keys())
        other = len(found.keys() - expected)
        agree &= not (twice or lost or other)
        print(f"  {name:<18} {len(found):>9,}   lost {lost}   twice {twice}   of others {other}")
    print(f"  {'sum of the rows':<18} {sum(fitting):>9,}   wanted {sum(wanted):,}")
    return agree


def prepare(directory: Path) -> str:
    """An empty directory; a free port."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def finish(to_table: tuple[str, ...]) -> int:
    """Have the writer write what is left; the sequence where the table ends."""
    command = [sys.executable, "-m", "slipstream", *to_table, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=os.environ, check=True)
    last: int = json.loads(done.stdout.splitlines()[-1])["sequence"]
    return last


async def main(rate: int, kills: int, seed: int, directory: Path) -> int:
    """Run it; the exit code."""
    port = prepare(directory)
    url = f"nats://127.0.0.1:{port}"
    to_table = ("pipeline", "table", STREAM, "--to", str(directory / "tables"), "--server", url)
    print(f"{rate:,} messages a second, {kills} kills, seed {seed}", flush=True)
    server = Mortal("serve", "-a", "127.0.0.1", "-p", port, "-sd", str(directory / "store"))
    writer = None
    try:
        async with slipstream.connect(url, wait_for_server=True) as nc:
            js = nc.jetstream(max_ack_pending=2 * IN_FLIGHT)
            await js.create_stream(name=STREAM, subjects=["numbers"])
            writer = Mortal(*to_table, "--follow", "--commit-every", "200ms")
            is_over = asyncio.Event()
            publishing = asyncio.create_task(publish(js, rate, is_over))
            await kill(server, writer, kills, random.Random(seed))
            is_over.set()
            messages = await publishing
            writer.kill()
            end = await asyncio.to_thread(finish, to_table)
            print(f"  {messages:,} messages published; the table ends at sequence {end:,}")
        agree = await asyncio.to_thread(compare, directory, messages)
    finally:
        server.kill()
        if writer is not None:
            writer.kill()
    print("every message is there once" if agree else "SOMETHING IS WRONG")
    return 0 if agree else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="examples.killed_table", description=__doc__)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--directory", type=Path, default=Path("build/demo-kill"))
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.rate, given.kills, given.seed, given.directory)))
