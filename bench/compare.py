"""Slipstream against nats-server in one run: `python -m bench.compare [--rounds N] [--only TEXT]`.

For each load the servers take turns, each time with an empty store, so that a noisy moment of the
machine hits all; the figure is the median of the rounds, the ratio that of the rounds' ratios.
Slipstream acknowledges what is on disk; nats-server runs with its default (no fsync) and, where the
table asks for it, with `sync_interval: always`. A server that does nothing runs last: its figure is
the limit. `--again` measures a second time and says which ratios agree with the saved ones.
"""

import argparse
import statistics
import time
from typing import Any

from bench import limits, report
from bench.loads import LOADS, Load
from bench.programs import build_programs
from bench.servers import (
    IDEAL,
    NATS_SERVER,
    NATS_SERVER_ALWAYS,
    SLIPSTREAM,
    Contender,
    Running,
    check_installed,
)

WIDTHS = (52, 11, 28, 18, 6, 16, 8, 12)
NOISE_MIN = 0.05  # nothing agrees better than this by more than luck


def measure_once(load: Load, contender: Contender) -> float:
    """One figure from a fresh server."""
    with Running(contender) as server:
        return load.measure(server)


def compare(load: Load, rounds: int, disk: limits.Disk) -> report.Row:
    """The row of one load."""
    contenders = [SLIPSTREAM, NATS_SERVER] + ([NATS_SERVER_ALWAYS] if load.goal_always else [])
    figures: dict[str, list[float]] = {c.name: [] for c in contenders}
    for _ in range(rounds):
        for contender in contenders:
            figures[contender.name].append(measure_once(load, contender))
    ours, theirs = figures[SLIPSTREAM.name], figures[NATS_SERVER.name]
    always = figures.get(NATS_SERVER_ALWAYS.name)
    ratio, noise = _ratio(ours, theirs)
    row: dict[str, Any] = {
        "name": load.name,
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "always": statistics.median(always) if always else None,
        "ratio": ratio,
        "ratio_always": _ratio(ours, always)[0] if always else None,
        "noise": noise,
        "lower_is_better": load.lower_is_better,
        "goal": load.goal,
        "goal_always": load.goal_always,
        "limit": limits.of_load(load, measure_once(load, IDEAL), disk),
    }
    row["met"] = load.is_met(ratio, row["ratio_always"])
    return row


def _ratio(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """The median of the rounds' ratios, and how far a round lay from it (a fraction)."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    middle = statistics.median(ratios)
    return middle, max(abs(ratio - middle) for ratio in ratios) / middle


def agreement(rows: list[report.Row]) -> list[str]:
    """How the ratios of a second run stand to the saved ones."""
    saved = report.load().get("loads", {"rows": {}})["rows"]
    differing, agreed = [], 0
    for row in rows:
        first = saved.get(row["name"])
        if first is None:
            continue
        reach = sum(max(one["noise"], NOISE_MIN) * one["ratio"] for one in (first, row))
        if abs(row["ratio"] - first["ratio"]) <= reach:
            agreed += 1
        else:
            differing.append(f"{row['name']} ({first['ratio']:.2f}x, then {row['ratio']:.2f}x)")
    text = f"A second run agrees in {agreed} of {agreed + len(differing)} ratios"
    return [text + (": not in " + "; ".join(differing) if differing else "") + "."]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument("--rounds", type=int, default=3, help="runs of each load on each server")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names of the loads")
    parser.add_argument(
        "--again",
        action="store_true",
        help="a second run: say whether it agrees with the saved one",
    )
    parser.add_argument("--no-save", action="store_true", help="print, and leave RESULTS.md alone")


def run(options: argparse.Namespace) -> None:
    """Measure the loads, print and save the rows."""
    loads = [load for load in LOADS if options.only in load.name]
    if options.list:
        print("\n".join(load.name for load in loads))
        return
    check_installed()
    build_programs()
    begin = time.monotonic()
    print("==> the disk", flush=True)
    disk = limits.measure_disk()
    head = ["load (128-byte bodies)", "Slipstream", "nats-server", "ratio", "noise", "goal", ""]
    print(f"==> {len(loads)} loads, {options.rounds} rounds each", flush=True)
    print(report.line([*head, "limit"], WIDTHS), flush=True)
    rows = []
    for load in loads:
        row = compare(load, options.rounds, disk)
        print(report.line(report.load_cells(row), WIDTHS), flush=True)
        rows.append(row)
        if not options.no_save and not options.again:
            report.save("loads", [row], rounds=options.rounds)
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
