"""The flights on three servers whose leader is killed twice: ``python -m examples.flights.group``.

    make demo-group           or with [--days N] [--directory D]

The first kill comes while the flights are published, the second while Spark computes. Neither the
publisher nor Spark is started again, and no one tells them who leads: they know three addresses.
Each flight has to be in the stream once, and Spark has to end with what pandas computes.
"""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from examples.flights import ready

if TYPE_CHECKING:
    import pandas as pd
    from examples.flights.data import Event
    from examples.flights.process import Queries
    from examples.flights.servers import Servers

    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream

AT_ONCE = 1000  # publishes that are on their way together
AGAIN_SECONDS = 0.1
REPLICAS = 3


async def main(days: int, directory: Path) -> int:
    """Run it; the exit code."""
    from examples.flights import check, data
    from examples.flights.__main__ import clear, compare
    from examples.flights.screen import title
    from examples.flights.servers import Servers

    import slipstream

    begun = perf_counter()
    clear(directory)
    print("reading the flights of 2013 ...", flush=True)
    flights, weather = data.flights_table(days), data.weather_table()
    told = data.events(flights)

    title(1, "three servers on this machine that act as one")
    async with (
        Servers(directory / "servers") as servers,
        slipstream.connect(servers.urls) as nc,
    ):
        title(2, f"{len(told):,} events into a stream, and the leader killed in the middle")
        js = nc.jetstream(max_ack_pending=AT_ONCE)
        await make(js)
        await publish(js, "weather put into a bucket", weather_puts(weather))
        agree = await publish_flights(js, servers, told)

        title(3, "delay by origin and hour on Spark, and the leader killed in the middle")
        wanted = check.computed(flights, weather)
        await compute(nc, servers, directory, len(told), wanted)

        title(4, "the same from pandas, compared to the row and the last bit")
        agree &= await compare(nc, directory, wanted)
        for stream in ("FLIGHTS", "DELAYS"):
            agree &= await servers.until_all_have_all(js, stream)
    print(f"\n{'everything agrees' if agree else 'SOMETHING DIFFERS'}", end="")
    print(f", after two killed leaders and {perf_counter() - begun:.0f} s")
    return 0 if agree else 1


async def make(js: "JetStream") -> None:
    """The streams and buckets."""
    from examples.flights.data import CLOCK_SUBJECT, FLIGHTS_SUBJECT

    for name, subjects in (
        ("FLIGHTS", [FLIGHTS_SUBJECT, CLOCK_SUBJECT]),
        ("DELAYS", ["delays.*.*"]),
    ):
        await js.create_stream(
            name=name, subjects=subjects, allow_direct=True, num_replicas=REPLICAS
        )
    for bucket in ("WEATHER", "CURRENT"):
        await js.create_key_value(bucket, num_replicas=REPLICAS)


def weather_puts(weather: "pd.DataFrame") -> "list[Event]":
    """The weather as messages of its bucket."""
    from examples.flights.data import weather_entries

    return [(f"$KV.WEATHER.{key}", body.encode()) for key, body in weather_entries(weather)]


# -- the publisher ---------------------------------------------------------------------------------


async def publish(
    js: "JetStream", label: str, told: "list[Event]", middle: asyncio.Event | None = None
) -> None:
    """Publish every event; returns once each is acknowledged. Sets `middle` half way.

    What is not acknowledged when a leader is killed may be stored or not: it is published again
    under the same message id, and stored once.
    """
    from examples.flights.screen import Progress

    progress = Progress(label, len(told))
    for first in range(0, len(told), AT_ONCE):
        left = list(range(first, min(first + AT_ONCE, len(told))))
        while left:
            left = await publish_some(js, told, left)
        progress.show(min(first + AT_ONCE, len(told)))
        if middle is not None and first + AT_ONCE >= len(told) // 2:
            middle.set()


async def publish_some(js: "JetStream", told: "list[Event]", numbers: list[int]) -> list[int]:
    """Publish some of the events; those of which no acknowledgement came."""
    import slipstream

    acks = []
    for number in numbers:
        subject, body = told[number]
        message_id = f"{subject}-{number}"
        try:
            acks.append(await js.publish_async(subject, body, message_id=message_id))
        except slipstream.Error:
            break
    results = await asyncio.gather(*acks, return_exceptions=True)
    done = {n for n, r in zip(numbers, results, strict=False) if not isinstance(r, BaseException)}
    if len(done) < len(numbers):
        await asyncio.sleep(AGAIN_SECONDS)
    return [number for number in numbers if number not in done]


async def publish_flights(js: "JetStream", servers: "Servers", told: "list[Event]") -> bool:
    """Publish the flights while the leader is killed; whether each is there once."""
    middle = asyncio.Event()
    publishing = asyncio.create_task(publish(js, "flights published", told, middle))
    waiting = asyncio.create_task(middle.wait())
    await asyncio.wait([publishing, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await servers.kill_leader("half of the flights are published")
    await publishing
    wanted = Counter(subject for subject, _ in told)
    found = (await js.stream_info("FLIGHTS", subjects_filter=">")).state
    agree = found.subjects == wanted and found.messages == len(told)
    print(f"  {found.messages:,} events are in the stream, on {len(wanted)} subjects:", end=" ")
    print("each of them once" if agree else "THE COUNTS DIFFER")
    return agree


# -- Spark -----------------------------------------------------------------------------------------


async def compute(
    nc: "Connection", servers: "Servers", directory: Path, total: int, wanted: "pd.DataFrame"
) -> "Queries":
    """Run the queries, and kill the leader when half of the hours are written."""
    from examples.flights.__main__ import MICRO_BATCHES
    from examples.flights.process import Queries, first_after

    queries = Queries(servers.urls, directory, total, -(-total // MICRO_BATCHES))
    seen = await nc.subscribe("delays.>")
    half = asyncio.create_task(
        first_after(seen, wanted["start"].sort_values().iloc[len(wanted) // 2])
    )
    running = asyncio.create_task(queries.run())
    await asyncio.wait([running, half], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()  # it may say why
    half.cancel()
    await seen.unsubscribe()
    begun, _ = queries.batches()
    await servers.kill_leader(f"Spark writes batch {begun}")
    await running
    return queries


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="examples.flights.group", description=__doc__)
    parser.add_argument("--days", type=int, default=365, help="of the year, from its first")
    parser.add_argument("--directory", type=Path, default=Path("build/demo-group"))
    given = parser.parse_args()
    ready.check()
    sys.exit(asyncio.run(main(given.days, given.directory)))
