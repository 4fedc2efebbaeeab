"""`slipstream rtt` and `slipstream latency`."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, time_ns
from typing import Annotated

import typer

from slipstream.cli.output import print_json, say
from slipstream.cli.progress import count_bar
from slipstream.cli.session import (
    DEFAULT_SERVER,
    command,
    connection,
    new_app,
    round_trip,
    settings,
    wants_json,
)
from slipstream.cli.values import duration, show_duration
from slipstream.client.message import Message
from slipstream.model.times import time_text

PERCENTILES = (10, 25, 50, 75, 90, 99, 99.9, 99.99, 99.999, 100)

rtt_app = new_app(group=False)
latency_app = new_app(group=False)


@command(rtt_app, "rtt")
async def rtt(
    iterations: Annotated[int, typer.Argument(help="How many round trips", min=1)] = 5,
) -> None:
    """Measure the round trip to each server."""
    found = {}
    for url in (settings().server or DEFAULT_SERVER).split(","):
        async with connection(server=url) as nc:
            times = [await round_trip(nc) for _ in range(iterations)]
            found[url] = sum(times) / len(times)
    if wants_json():
        print_json([_as_the_tool_has_it(url, seconds) for url, seconds in found.items()])
        return
    for url, seconds in found.items():
        say(f"{url}:\n\n   rtt: {show_duration(seconds)} (average of {iterations})\n")


def _as_the_tool_has_it(url: str, seconds: float) -> dict[str, object]:
    """A server, its addresses, and nanoseconds."""
    result = {"time": time_text(time_ns()), "address": url, "rtt": round(seconds * 1e9), "url": url}
    return {"url": url, "results": [result]}


@command(latency_app, "latency")
async def latency(
    server_b: Annotated[str, typer.Option("--server-b", help="Where messages come out")] = "",
    size: Annotated[int, typer.Option("--size", help="Bytes of a message", min=0)] = 8,
    count: Annotated[int, typer.Option("--msgs", help="How many messages", min=1)] = 10_000,
    rate: Annotated[int, typer.Option("--rate", help="Messages a second", min=1)] = 1000,
    length: Annotated[
        str, typer.Option("--duration", help="How long, in place of --msgs, like 5s")
    ] = "",
    histogram: Annotated[
        str, typer.Option("--histogram", help="Write FILE.raw, each time, and FILE.histogram")
    ] = "",
) -> None:
    """Measure how long a message takes from one connection to another."""
    if length:
        count = max(round(duration(length) * rate), 1)
    times: list[float] = []
    sent: dict[int, float] = {}
    done = asyncio.Event()

    def arrived(message: Message) -> None:
        times.append(perf_counter() - sent.pop(int(message.subject.rsplit(".", 1)[1])))
        if len(times) == count:
            done.set()

    url = server_b or settings().server or DEFAULT_SERVER
    async with connection(server=url) as receiver, connection() as sender:
        inbox = receiver.new_inbox()
        await receiver.subscribe(f"{inbox}.*", handler=arrived)
        await receiver.flush()
        body = b"x" * size
        began = perf_counter()
        with count_bar("Messages") as bar:
            task = bar.add_task("", total=count)
            for n in range(count):
                pause = began + n / rate - perf_counter()
                if pause > 0:
                    await asyncio.sleep(pause)
                sent[n] = perf_counter()
                await sender.publish(f"{inbox}.{n}", body)
                bar.update(task, completed=n + 1)
        await asyncio.wait_for(done.wait(), 10)
    if histogram:
        write_times(times, histogram)
    times.sort()
    marks = (("Minimum", 0.0), ("Median", 0.5), ("90th", 0.9), ("99th", 0.99), ("Maximum", 1.0))
    picked = {name: times[min(int(part * count), count - 1)] for name, part in marks}
    if wants_json():
        print_json({name.lower(): seconds for name, seconds in picked.items()})
        return
    say(f"{count:,} messages of {size} bytes at {rate:,} a second\n")
    for name, seconds in picked.items():
        say(f"{name:>10}: {show_duration(seconds)}")


def write_times(times: Sequence[float], name: str) -> None:
    """Save `name`.raw, milliseconds as they were measured, and `name`.histogram, by percentile in
    the columns of HdrHistogram."""
    Path(f"{name}.raw").write_text("".join(f"{1000 * one:f}\n" for one in times))
    ordered, count = sorted(times), len(times)
    lines = ["Value Percentile TotalCount 1/(1-Percentile)", ""]
    for mark in PERCENTILES:
        at = min(math.ceil(mark / 100 * count), count)
        rest = f"{1 / (1 - mark / 100):.2f}" if mark < 100 else "inf"
        lines.append(f"{1000 * ordered[max(at, 1) - 1]:.6f} {mark / 100:.7f} {at} {rest}")
    Path(f"{name}.histogram").write_text("\n".join(lines) + "\n")
