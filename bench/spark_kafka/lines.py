"""The lines of the table: what is measured, and what it has to reach beside Kafka's connector."""

import statistics
from dataclasses import dataclass

from bench.compare import interval
from bench.report import Row


@dataclass(slots=True, frozen=True)
class Line:
    """One line. `work` is what a round does for it, `figure` what of that is looked at."""

    name: str
    work: str
    figure: str
    goal: float | None = None  # ours / Kafka's, at least, or at most where lower is better
    lower_is_better: bool = False
    floor: float | None = None  # what ours has to be at least
    bound: float | None = None  # what ours may be at most
    beside: str = ""  # the figure of Kafka's; the same one by default


LINES = (
    Line("batch, all columns, cold (rows/s)", "batch", "cold", 2.0),
    Line("batch, all columns, warm (rows/s)", "batch", "warm", 3.0),
    Line("batch, data and two columns (rows/s)", "batch", "few", floor=1e6),
    Line(
        "held by a Python worker that reads all (MB)",
        "batch",
        "held",
        lower_is_better=True,
        bound=200,
    ),
    Line("AvailableNow, 250,000 a batch (rows/s)", "now", "now", 1.5),
    Line("20 messages/s, publish to row, p50 (ms)", "trickle", "p50", 0.5, lower_is_better=True),
    Line("20 messages/s, publish to row, p99 (ms)", "trickle", "p99", 0.5, lower_is_better=True),
    Line("sink, at least once (rows/s)", "sink", "once", 3.0),
    Line("sink, exactly once; Kafka at least once (rows/s)", "sink", "exact", 1.0, beside="once"),
)


def row_of(
    line: Line,
    ours: dict[str, list[float]],
    kafka: dict[str, list[float]],
    ready: dict[str, list[float]],
) -> Row:
    """The row of what the rounds have found."""
    limit = ready.get(line.beside or line.figure, [0.0]) if line.bound is None else [0.0]
    own = ours[line.figure]
    theirs = kafka[line.beside or line.figure]
    ratio = interval(own, theirs) if statistics.median(theirs) else None
    middle, low, high = interval(own, [1.0])
    met = True
    if line.goal is not None and ratio is not None:
        met = ratio[2] <= line.goal if line.lower_is_better else ratio[1] >= line.goal
    if line.floor is not None:
        met = met and low >= line.floor
    if line.bound is not None:
        met = met and high <= line.bound
    return {
        "name": line.name,
        "ours": middle,
        "theirs": statistics.median(theirs),
        "always": None,
        "ratio": ratio,
        "ratio_always": None,
        "goal": line.goal,
        "goal_always": None,
        "own": (middle, low, high),
        "floor": line.floor,
        "bound": line.bound,
        "lower_is_better": line.lower_is_better,
        "met": met,
        "limit": statistics.median(limit),
    }
