"""Key-value, objects and scans of `bench.clients`: one load of one client, as JSON on stdout.

A figure is a rate by the clock and by processor time of this process (the server's is not in it).
Objects count in megabytes (10^6), everything else in operations or messages.
"""

import asyncio
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import uvloop
from nats.js.api import KeyValueConfig as TheirConfig

import slipstream

BODY = b"x" * 128
# Objects and scans are measured cold and warm: memory that a virtual machine has not used for a
# while its host has to bring first, at some 300 MB/s, whatever is done with it then.
WARM_RUNS = 3
OBJECT_BYTES = 256 * 1024 * 1024
Load = Callable[[str, int], Awaitable[dict[str, float]]]


class Clock:
    """Both times from here on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def figures(self, amount: float) -> dict[str, float]:
        """What `amount` makes in a second."""
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        return {"per_second": amount / wall, "per_cpu_second": amount / max(cpu, 1e-9)}


async def first_or_later(
    run: Callable[[], Awaitable[dict[str, float]]], what: str
) -> dict[str, float]:
    """The figures of the first run, if `what` ends with cold; else the median of some after it."""
    first = await run()
    if what.endswith("cold"):
        return first
    later = [await run() for _ in range(WARM_RUNS)]
    return {name: statistics.median(found[name] for found in later) for name in first}


async def ours_kv(url: str, n: int, what: str) -> dict[str, float]:
    """Puts or gets, one after the other."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        kv = await js.create_key_value(f"ours_{os.getpid()}")
        for i in range(100):
            await kv.put(f"key.{i}", BODY)
        clock = Clock()
        for i in range(n):
            if what == "put":
                await kv.put(f"key.{i % 100}", BODY)
            else:
                await kv.get(f"key.{i % 100}")
        figures = clock.figures(n)
        await js.delete_key_value(kv.bucket)
        return figures


async def theirs_kv(url: str, n: int, what: str) -> dict[str, float]:
    """The same with nats-py."""
    nc = await nats.connect(url)
    js = nc.jetstream()
    bucket = f"theirs_{os.getpid()}"
    kv = await js.create_key_value(config=TheirConfig(bucket=bucket, direct=True))
    for i in range(100):
        await kv.put(f"key.{i}", BODY)
    clock = Clock()
    for i in range(n):
        if what == "put":
            await kv.put(f"key.{i % 100}", BODY)
        else:
            await kv.get(f"key.{i % 100}")
    figures = clock.figures(n)
    await js.delete_key_value(bucket)
    await nc.close()
    return figures


async def ours_object(url: str, n: int, what: str) -> dict[str, float]:
    """One object of `n` bytes, there or back."""
    data = os.urandom(1 << 20) * (n >> 20)
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        store = await js.create_object_store(f"ours_{os.getpid()}", storage="memory")

        async def move() -> dict[str, float]:
            clock = Clock()
            await store.put("object", data)
            if what.startswith("get"):
                clock = Clock()
                found = await store.get("object")
            figures = clock.figures(n / 1e6)
            if what.startswith("get"):
                assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()
            await store.delete("object")
            return figures

        figures = await first_or_later(move, what)
        await js.delete_object_store(store.bucket)
        return figures


async def theirs_object(url: str, n: int, what: str) -> dict[str, float]:
    """The same with nats-py."""
    data = os.urandom(1 << 20) * (n >> 20)
    nc = await nats.connect(url)
    js = nc.jetstream()
    bucket = f"theirs_{os.getpid()}"
    store: Any = await js.create_object_store(bucket, storage="memory")

    async def move() -> dict[str, float]:
        clock = Clock()
        await store.put("object", data)
        if what.startswith("get"):
            clock = Clock()
            found = await store.get("object")
        figures = clock.figures(n / 1e6)
        if what.startswith("get"):
            assert len(found.data) == n
        await store.delete("object")
        return figures

    figures = await first_or_later(move, what)
    await js.delete_object_store(bucket)
    await nc.close()
    return figures


async def ours_scan(url: str, n: int, what: str) -> dict[str, float]:
    """A stream of `n` messages of 128 bytes into Arrow batches."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        name = f"scan_{os.getpid()}"
        stream = await js.create_stream(
            name=name, subjects=[f"{name}.>"], allow_direct=what.startswith("direct")
        )
        for i in range(n):
            await js.publish_async(f"{name}.{i % 10}", BODY)
        await js.publish_async_complete()

        async def scan() -> dict[str, float]:
            clock = Clock()
            rows = 0
            async for batch in stream.scan():
                rows += batch.num_rows
            assert rows == n
            return clock.figures(n)

        figures = await first_or_later(scan, what)
        await js.delete_stream(name)
        return figures


async def theirs_scan(url: str, n: int, what: str) -> dict[str, float]:
    """nats-py has no scan: an ordered consumer's messages into rows, which is what one writes."""
    nc = await nats.connect(url, pending_size=64 << 20)
    js = nc.jetstream()
    name = f"scan_{os.getpid()}"
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    pending = [js.publish(f"{name}.{i % 10}", BODY) for i in range(n)]
    for at in range(0, n, 1000):
        await asyncio.gather(*pending[at : at + 1000])

    async def scan() -> dict[str, float]:
        subscription = await js.subscribe(f"{name}.>", ordered_consumer=True)
        clock = Clock()
        rows = []
        while len(rows) < n:
            message = await subscription.next_msg(30)
            meta = message.metadata
            rows.append((message.subject, meta.sequence.stream, meta.timestamp, message.data))
        figures = clock.figures(n)
        await subscription.unsubscribe()
        return figures

    figures = await first_or_later(scan, what)
    await js.delete_stream(name)
    await nc.close()
    return figures


LOADS: dict[str, tuple[str, int]] = {
    "kv put": ("put", 5000),
    "kv get": ("get", 5000),
    "object put, MB, cold": ("put cold", OBJECT_BYTES),
    "object put, MB, warm": ("put warm", OBJECT_BYTES),
    "object get, MB, cold": ("get cold", OBJECT_BYTES),
    "object get, MB, warm": ("get warm", OBJECT_BYTES),
    "scan by direct gets, cold": ("direct cold", 300_000),
    "scan by direct gets, warm": ("direct warm", 300_000),
    "scan by a consumer, cold": ("consumer cold", 300_000),
    "scan by a consumer, warm": ("consumer warm", 300_000),
}
CLIENTS: dict[str, dict[str, Any]] = {
    "slipstream": {"kv": ours_kv, "object": ours_object, "scan": ours_scan},
    "nats-py": {"kv": theirs_kv, "object": theirs_object, "scan": theirs_scan},
}


def main() -> None:
    """Run the load that the arguments name."""
    client, load, url, n = sys.argv[1:5]
    what, usual = LOADS[load]
    run = CLIENTS[client][load.split()[0]]
    print(json.dumps(uvloop.run(run(url, int(n) or usual, what))))


if __name__ == "__main__":
    main()
