"""The table of clients that `bench.clients` prints and saves in `bench/CLIENTS.md`."""

import importlib.metadata
import platform
import statistics
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import slipstream
from bench.servers import NATS_SERVER
from slipstream import build

RESULTS = Path(__file__).parent / "CLIENTS.md"
OURS, BASE = "slipstream", "nats-py"


@dataclass(slots=True, frozen=True)
class Figures:
    """What one run did in a second of the clock, and in one of its own processor time."""

    clock: float
    processor: float


@dataclass(slots=True)
class Row:
    """A load with the figures of every client."""

    load: str
    server: str
    ratio_goal: float | None  # times nats-py, by the clock
    rate_goal: float | None  # in a second
    found: dict[str, list[Figures]] = field(default_factory=dict)

    def add(self, client: str, figures: Figures) -> None:
        """A round of one client."""
        self.found.setdefault(client, []).append(figures)

    def clock(self, client: str) -> float:
        """The median by the clock; 0 if there is none."""
        return statistics.median([f.clock for f in self.found.get(client, [])] or [0.0])

    def processor(self, client: str) -> float:
        """The median by processor time; 0 if there is none."""
        return statistics.median([f.processor for f in self.found.get(client, [])] or [0.0])

    @property
    def ratio(self) -> float:
        """Ours over nats-py's, by the clock; 0 if either is missing."""
        return self.clock(OURS) / (self.clock(BASE) or float("inf"))

    @property
    def processor_ratio(self) -> float:
        """The same by processor time of the client alone."""
        return self.processor(OURS) / (self.processor(BASE) or float("inf"))

    @property
    def noise(self) -> float:
        """Half the spread of our rounds over their median."""
        taken = [f.clock for f in self.found.get(OURS, [])]
        return (max(taken) - min(taken)) / 2 / self.clock(OURS) if taken else 0.0

    @property
    def goal(self) -> str:
        """What is to be reached; "" for loads that are only measured."""
        if self.ratio_goal is not None:
            return f"{self.ratio_goal:g}x"
        return f"{self.rate_goal:,.0f}/s" if self.rate_goal is not None else ""

    @property
    def verdict(self) -> str:
        """Whether the goal is met."""
        if self.ratio_goal is not None:
            return "met" if self.ratio >= self.ratio_goal else "not met"
        if self.rate_goal is not None:
            return "met" if self.clock(OURS) >= self.rate_goal else "not met"
        return ""

    def text(self) -> str:
        """Some lines for the terminal."""
        goal = f"; goal {self.goal}: {self.verdict}" if self.goal else ""
        lines = [f"{self.load} ({self.server}{goal})"]
        for client in self.found:
            clock, processor = self.clock(client), self.processor(client)
            lines.append(
                f"  {client:<12} {clock:>12,.0f}/s {processor:>14,.0f} per processor second"
            )
        if BASE in self.found and OURS in self.found:
            lines.append(
                f"  {self.ratio:.1f}x {BASE} by the clock (±{self.noise:.0%}), "
                f"{self.processor_ratio:.1f}x by processor time"
            )
        return "\n".join(lines)

    def cells(self, clients: list[str]) -> list[str]:
        """The row's cells as text."""
        rates = [f"{self.clock(name):,.0f}" if name in self.found else "" for name in clients]
        ratios = ["", ""]
        if BASE in self.found and OURS in self.found:
            ratios = [f"{self.ratio:.1f}x", f"{self.processor_ratio:.1f}x"]
        return [
            self.load,
            self.server,
            *rates,
            *ratios,
            self.goal,
            self.verdict,
            f"±{self.noise:.0%}",
        ]


def write(rows: list[Row], clients: list[str], rounds: int, pythons: dict[str, str]) -> None:
    """Save the table, with what it was measured on; `pythons` are those of some clients."""
    head = ["load", "server", *clients, "ratio", "by processor time", "goal", "", "noise"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head)]]
    lines += ["| " + " | ".join(row.cells(clients)) + " |" for row in rows]
    RESULTS.write_text(f"{_measured_on(clients, rounds, pythons)}\n\n" + "\n".join(lines) + "\n")


def _measured_on(clients: list[str], rounds: int, pythons: dict[str, str]) -> str:
    version = subprocess.run(
        [NATS_SERVER.command[0], "--version"], capture_output=True, text=True
    ).stdout.strip()
    others = ", ".join(
        f"{name} {_version(name, pythons.get(name))}" for name in clients if name != OURS
    )
    return (
        "# Clients\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, CPython {platform.python_version()}, "
        f"uvloop; Slipstream {slipstream.__version__} ({build.describe()} build), {others}; "
        f"{version}.\nMedian of {rounds} rounds in which the clients came in random order, all "
        "with the same number of messages; bodies of 128 bytes, a second of the clock. Objects "
        "(256 MiB) and scans are measured cold, the first in a process, with all that it has to "
        "load, and warm, the median of three more. `ratio` is over nats-py, the column beside it "
        "the same by the client's own processor time; the last is half the spread of our rounds. "
        "An empty cell is a load that a client has no API for, or did not finish."
    )


def _version(name: str, python: str | None) -> str:
    if python is not None:  # the client is installed there
        code = (
            "import importlib.metadata as m, platform; "
            f"print(m.version({name!r}), '(CPython', platform.python_version() + ')')"
        )
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.strip()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
