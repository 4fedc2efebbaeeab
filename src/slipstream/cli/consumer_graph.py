"""`slipstream consumer graph`: what a consumer has done lately, as small graphs that go on."""

import asyncio
import sys
from collections import deque
from time import perf_counter
from typing import Annotated

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.output import say
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration
from slipstream.client.jetstream import ConsumerInfo

app = new_app()

LOOKS_SHOWN = 60
BARS = "▁▂▃▄▅▆▇█"


@command(app, "graph")
async def graph(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")] = "",
    interval: Annotated[str, typer.Option("--interval", help="Between two looks")] = "1s",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Draw a consumer's rates and what waits, until Ctrl-C."""
    shown = 0
    drawn = _Graphs()
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        while True:
            drawn.add(await js.consumer_info(stream, name), perf_counter())
            if sys.stdout.isatty() and not wants_json():
                say("\x1b[2J\x1b[H")
            drawn.show(f"{stream} > {name}")
            shown += 1
            if count and shown >= count:
                return
            await asyncio.sleep(duration(interval))


class _Graphs:
    """Figures of the last looks, by what they count."""

    def __init__(self) -> None:
        self._figures: dict[str, deque[float]] = {}
        self._before: tuple[float, int, int] | None = None

    def add(self, info: ConsumerInfo, now: float) -> None:
        """Take in a look; rates begin with the second."""
        delivered, acked = info.delivered.consumer_seq, info.ack_floor.consumer_seq
        if self._before is not None:
            then, delivered_then, acked_then = self._before
            seconds = max(now - then, 1e-6)
            self._put("Delivered a second", (delivered - delivered_then) / seconds)
            self._put("Acknowledged a second", (acked - acked_then) / seconds)
        self._before = (now, delivered, acked)
        self._put("Outstanding acks", info.num_ack_pending)
        self._put("Unprocessed", info.num_pending)

    def show(self, title: str) -> None:
        """A line for each figure: its graph, and the last value."""
        say(f"Consumer {title}")
        for name, values in self._figures.items():
            say(f"{name:>22}: {values[-1]:>12,.0f}  {_bars(values)}")

    def _put(self, name: str, value: float) -> None:
        self._figures.setdefault(name, deque(maxlen=LOOKS_SHOWN)).append(max(value, 0.0))


def _bars(values: "deque[float]") -> str:
    most = max(values) or 1.0
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
