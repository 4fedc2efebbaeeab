"""Small graphs of figures that are looked at again and again."""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from slipstream.cli.output import say
from slipstream.cli.session import wants_json

LOOKS_SHOWN = 60
BARS = "▁▂▃▄▅▆▇█"

Interval = Annotated[str, typer.Option("--interval", help="Between two looks")]
Count = Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")]


class Graphs:
    """Figures of the last looks, by what they count."""

    def __init__(self) -> None:
        self._figures: dict[str, deque[float]] = {}
        self._before: dict[str, tuple[float, int]] = {}

    def add(self, name: str, value: float) -> None:
        """Take in a figure."""
        self._figures.setdefault(name, deque(maxlen=LOOKS_SHOWN)).append(max(value, 0.0))

    def add_rate(self, name: str, total: int, now: float) -> None:
        """Take in what a total has grown by since the look before; rates begin with the second."""
        if name in self._before:
            then, before = self._before[name]
            self.add(name, (total - before) / max(now - then, 1e-6))
        self._before[name] = (now, total)

    def show(self, title: str) -> None:
        """A line for each figure: its graph, and the last value."""
        say(title)
        for name, values in self._figures.items():
            say(f"{name:>22}: {values[-1]:>12,.0f}  {_bars(values)}")


def _bars(values: "deque[float]") -> str:
    most = max(values) or 1.0
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


async def draw(
    title: str, look: Callable[[Graphs], Awaitable[None]], interval: float, count: int
) -> None:
    """Look and show, `interval` seconds apart, `count` times or until Ctrl-C (0)."""
    graphs = Graphs()
    shown = 0
    while True:
        await look(graphs)
        if sys.stdout.isatty() and not wants_json():
            say("\x1b[2J\x1b[H")
        graphs.show(title)
        shown += 1
        if count and shown >= count:
            return
        await asyncio.sleep(interval)
