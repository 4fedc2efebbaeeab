"""Slipstream against nats-server in one run: `python -m bench.compare [--rounds N] [--only TEXT]`.

For each load there are rounds, and in each of them the servers come in random order, each with an
empty store, so that a noisy moment of the machine hits all. The figure is the median of the rounds,
the ratio that of the medians, with a 95% interval (bootstrap). A goal is met only if the whole
interval meets it. Slipstream acknowledges what is on disk; nats-server runs with its default (no
fsync) and, where the table asks for it, with `sync_interval: always`. Two servers that do nothing
run last, one of which never sleeps: the better figure is the limit. `--again` measures a second
time and says which ratios agree with the saved ones.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from bench import limits, report
from bench.commit_loads import COMMIT_LOADS
from bench.loads import LOADS, Load
from bench.programs import build_programs
from bench.servers import (
    IDEAL,
    NATS_SERVER,
    NATS_SERVER_ALWAYS,
    SPINNING_IDEAL,
    SYNCING_IDEALS,
    Contender,
    Running,
    check_installed,
)

WIDTHS = (56, 11, 28, 34, 30, 22, 8, 12)
ROUNDS = 7
RESAMPLES = 2000
APART_MIN = 0.05  # nothing agrees better than this by more than luck
ALL_LOADS = [*LOADS, *COMMIT_LOADS]

Measure = Callable[[Running], float]


def measure_once(measure: Measure, contender: Contender) -> float:
    """One figure from a fresh server."""
    with Running(contender) as server:
        return measure(server)


def compare(load: Load, rounds: int, disk: limits.Disk, random: Random) -> report.Row:
    """The row of one load."""
    runs: dict[str, tuple[Measure, Contender]] = {
        "ours": (load.measure, load.ours),
        "theirs": (load.measure, NATS_SERVER),
    }
    if load.goal_always:
        runs["always"] = load.measure, NATS_SERVER_ALWAYS
    if load.beside:
        runs["beside"] = load.beside.measure, load.ours
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name in random.sample(list(runs), len(runs)):
            figures[name].append(measure_once(*runs[name]))
    return make_row(load, figures, _ideal(load), disk)


def _ideal(load: Load) -> float:
    """The better figure of two servers that do nothing: one sleeps while it waits, one does not.
    0 for loads that ask for more than such a server knows. Where one message at a time is stored,
    each is written and synced."""
    if load.bound_over_commit is None and load not in LOADS:
        return 0.0
    servers = (IDEAL, SPINNING_IDEAL) if load.bound_over_commit is None else SYNCING_IDEALS
    found = [measure_once(load.measure, server) for server in servers]
    return min(found) if load.lower_is_better else max(found)


def make_row(
    load: Load, figures: dict[str, list[float]], ideal: float, disk: limits.Disk
) -> report.Row:
    """The row of what was measured, by the name of the run."""
    ours = figures["ours"]
    always, beside = figures.get("always"), figures.get("beside")
    row: dict[str, Any] = {
        "name": load.name,
        "rounds": len(ours),
        "ours": statistics.median(ours),
        "theirs": statistics.median(figures["theirs"]),
        "always": statistics.median(always) if always else None,
        "ratio": interval(ours, figures["theirs"]),
        "ratio_always": interval(ours, always) if always else None,
        "share": interval(ours, beside) if beside else None,
        "share_of": load.beside.name if load.beside else "",
        "own": interval(ours, [1.0]),
        "lower_is_better": load.lower_is_better,
        "goal": load.goal,
        "goal_always": load.goal_always,
        "goal_share": load.beside.goal if load.beside else None,
        "bound": load.bound,
        "limit": limits.of_load(load, ideal, disk) if ideal else 0,
        "bandwidth": limits.share_of_bandwidth(load, statistics.median(ours), disk),
    }
    if load.bound_over_commit is not None:
        row["bound"] = disk.commit_us + load.bound_over_commit
    row["met"] = is_met(row)
    return row


def is_met(row: report.Row) -> bool:
    """Whether the whole of each interval meets its goal."""
    lower = row["lower_is_better"]
    pairs = [
        (row["ratio"], row["goal"], lower),
        (row["ratio_always"], row["goal_always"], lower),
        (row["share"], row["goal_share"], False),
        (row["own"], row["bound"], True),
    ]
    return all(
        found[2] <= goal if at_most else found[1] >= goal
        for found, goal, at_most in pairs
        if found is not None and goal is not None
    )


def interval(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The ratio of the medians, and the 95% interval around it, by resampling the rounds."""
    random = Random(0)  # so that the same figures have the same interval
    median = statistics.median
    found = sorted(
        median(random.choices(ours, k=len(ours))) / median(random.choices(theirs, k=len(theirs)))
        for _ in range(RESAMPLES)
    )
    low, high = found[int(RESAMPLES * 0.025)], found[int(RESAMPLES * 0.975)]
    return median(ours) / median(theirs), low, high


def agreement(rows: list[report.Row]) -> list[str]:
    """How the ratios of a second run stand to the saved ones."""
    saved = report.load().get("loads", {"rows": {}})["rows"]
    differing, agreed = [], 0
    for row in rows:
        first = saved.get(row["name"])
        if first is None or not isinstance(first["ratio"], list):
            continue
        before, now = first["ratio"], row["ratio"]
        if abs(now[0] - before[0]) <= _reach(now) + _reach(before):
            agreed += 1
        else:
            differing.append(f"{row['name']} ({before[0]:.2f}x, then {now[0]:.2f}x)")
    text = f"A second run agrees in {agreed} of {agreed + len(differing)} ratios"
    return [text + (": not in " + "; ".join(differing) if differing else "") + "."]


def _reach(ratio: Sequence[float]) -> float:
    """How far a ratio may lie from where it was found."""
    return max(ratio[2] - ratio[0], ratio[0] - ratio[1], APART_MIN * ratio[0])


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="runs of each load on each server"
    )
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    parser.add_argument("--seed", type=int, default=None, help="of the order of the servers")
    parser.add_argument("--list", action="store_true", help="print the names of the loads")
    parser.add_argument(
        "--again",
        action="store_true",
        help="a second run: say whether it agrees with the saved one",
    )
    parser.add_argument("--no-save", action="store_true", help="print, and leave RESULTS.md alone")


def run(options: argparse.Namespace) -> None:
    """Measure the loads, print and save the rows."""
    loads = [load for load in ALL_LOADS if options.only in load.name]
    if options.list:
        print("\n".join(load.name for load in loads))
        return
    check_installed()
    build_programs()
    begin = time.monotonic()
    print("==> the disk", flush=True)
    disk = limits.measure_disk()
    head = [
        "load (128-byte bodies)",
        "Slipstream",
        "nats-server",
        "ratio",
        "95% interval",
        "goal",
        "",
    ]
    print(f"==> {len(loads)} loads, {options.rounds} rounds each", flush=True)
    print(report.line([*head, "limit"], WIDTHS), flush=True)
    print(f"==> load average {os.getloadavg()[0]:.2f} before the first one", flush=True)
    rows = []
    random = Random(options.seed)
    for load in loads:
        row = compare(load, options.rounds, disk, random)
        print(report.line(report.load_cells(row), WIDTHS), flush=True)
        rows.append(row)
        if not options.no_save and not options.again:
            report.save("loads", [row])
    if options.again:
        again = agreement(rows)
        print("\n".join(again))
        if not options.no_save:
            report.save("loads", [], again=again)
    elif not options.no_save:
        report.save("limits", disk.rows())
    print(f"==> {time.monotonic() - begin:.0f} s", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
