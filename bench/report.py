"""The table that a run prints and saves."""

import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import slipstream
from bench.loads import Load
from bench.servers import NATS_SERVER
from slipstream import build

RESULTS = Path(__file__).parent / "RESULTS.md"


@dataclass(slots=True)
class Row:
    """A measured load."""

    load: Load
    ours: float
    theirs: float
    always: float | None
    spread: float  # widest (max - min) / median among the contenders

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours / self.theirs

    @property
    def met(self) -> bool:
        """Whether every goal of the load is reached."""
        pairs = []
        if self.load.goal is not None:
            pairs.append((self.ratio, self.load.goal))
        if self.always is not None and self.load.goal_always is not None:
            pairs.append((self.ours / self.always, self.load.goal_always))
        if self.load.lower_is_better:
            return all(ratio <= goal for ratio, goal in pairs)
        return all(ratio >= goal for ratio, goal in pairs)

    def cells(self) -> list[str]:
        """The row's cells as text."""
        sign = "≤" if self.load.lower_is_better else "≥"
        theirs, ratio, goal = (
            f"{self.theirs:,.0f}",
            f"{self.ratio:.2f}x",
            f"{sign} {self.load.goal:g}x",
        )
        if self.always is not None:
            theirs += f" (always: {self.always:,.0f})"
            ratio += f" ({self.ours / self.always:.2f}x)"
            goal += f" ({sign} {self.load.goal_always:g}x)"
        met = "met" if self.met else "not met"
        return [
            self.load.name,
            f"{self.ours:,.0f}",
            theirs,
            ratio,
            goal,
            met,
            f"±{self.spread / 2:.0%}",
        ]

    def text(self) -> str:
        """One line for the terminal."""
        name, ours, theirs, ratio, goal, met, spread = self.cells()
        return f"{name:<52} {ours:>11} {theirs:>32} {ratio:>16} {goal:>18} {met:<8} {spread}"


@dataclass(slots=True)
class ScaleRow:
    """A figure at rest or at scale."""

    name: str
    ours: float
    theirs: float
    met: bool

    def cells(self) -> list[str]:
        """The row's cells as text."""
        met = "met" if self.met else "not met"
        return [self.name, _figure(self.ours), _figure(self.theirs), met]

    def text(self) -> str:
        """One line for the terminal."""
        name, ours, theirs, met = self.cells()
        return f"{name:<60} {ours:>12} {theirs:>12} {met}"


def write_results(rows: list[Row], rounds: int) -> None:
    """Save the table of loads with what it was measured on."""
    text = (
        f"{_measured_on()}\nMedian of {rounds} rounds, the servers taking turns; "
        "the last column is half the widest spread.\n"
        "Figures are messages per second, or microseconds where the name says so.\n\n"
        "| load (128-byte bodies) | Slipstream | nats-server | ratio | goal | | noise |\n"
        "|---|---:|---:|---:|---:|---|---:|\n"
    )
    text += "".join("| " + " | ".join(row.cells()) + " |\n" for row in rows)
    _save("Loads", text)


def write_scale_results(rows: list[ScaleRow]) -> None:
    """Save the table of figures at rest and at scale."""
    text = f"{_measured_on()}\n\n| at rest and at scale | Slipstream | nats-server | |\n"
    text += "|---|---:|---:|---|\n"
    text += "".join("| " + " | ".join(row.cells()) + " |\n" for row in rows)
    _save("At rest and at scale", text)


def _save(section: str, text: str) -> None:
    """Replace one section of the page, and leave the others as they were measured."""
    page = RESULTS.read_text() if RESULTS.exists() else "# Results\n"
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    sections[section] = "\n" + text
    body = "".join(f"\n## {name}\n{content.rstrip()}\n" for name, content in sections.items())
    RESULTS.write_text("# Results\n" + body)


def _measured_on() -> str:
    version = subprocess.run(
        [NATS_SERVER.command[0], "--version"], capture_output=True, text=True
    ).stdout.strip()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {_processors()} processors, "
        f"{platform.system()} {platform.release()}, CPython {platform.python_version()}; "
        f"Slipstream {slipstream.__version__} ({build.describe()} build) against {version}."
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _processors() -> int:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return len([line for line in lines if line.startswith("processor")])
