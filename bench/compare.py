"""Slipstream against nats-server in one run: `python -m bench.compare [--rounds N] [--only TEXT]`.

For each load the servers take turns, so that a noisy moment of the machine hits both; the figure
is the median of the rounds. Slipstream acknowledges what is on disk; nats-server runs with its
default (no fsync) and, where the table asks for it, with `sync_interval: always`.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from bench.loads import LOADGEN, LOADS, Load
from bench.report import Row, write_results
from bench.servers import NATS_SERVER, NATS_SERVER_ALWAYS, SLIPSTREAM, Contender, Running


def build_loadgen() -> None:
    """Compile the load generator, or say clearly what is missing."""
    source = Path(__file__).parent / "loadgen.rs"
    if LOADGEN.exists() and LOADGEN.stat().st_mtime > source.stat().st_mtime:
        return
    if not shutil.which("rustc"):
        sys.exit(
            "rustc is missing: the load generator is written in Rust; "
            "install it with rustup or from your distribution"
        )
    LOADGEN.parent.mkdir(parents=True, exist_ok=True)
    print("==> building the load generator", flush=True)
    subprocess.run(
        ["rustc", "-O", "--edition", "2021", "-o", str(LOADGEN), str(source)], check=True
    )


def measure_once(load: Load, contender: Contender) -> float:
    """One figure from a fresh server."""
    with Running(contender) as server:
        return load.measure(server)


def compare(load: Load, rounds: int) -> Row:
    """The row of one load: medians of both servers and their spread."""
    contenders = [SLIPSTREAM, NATS_SERVER] + ([NATS_SERVER_ALWAYS] if load.goal_always else [])
    figures: dict[str, list[float]] = {c.name: [] for c in contenders}
    for _ in range(rounds):
        for contender in contenders:
            figures[contender.name].append(measure_once(load, contender))
    return Row(
        load=load,
        ours=statistics.median(figures[SLIPSTREAM.name]),
        theirs=statistics.median(figures[NATS_SERVER.name]),
        always=statistics.median(figures[NATS_SERVER_ALWAYS.name]) if load.goal_always else None,
        spread=max((max(f) - min(f)) / statistics.median(f) for f in figures.values()),
    )


def main() -> None:
    """Measure every load and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each load on each server")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    parser.add_argument(
        "--no-save", action="store_true", help="print, but leave bench/RESULTS.md alone"
    )
    options = parser.parse_args()
    build_loadgen()
    rows = []
    for load in (load for load in LOADS if options.only in load.name):
        row = compare(load, options.rounds)
        print(row.text(), flush=True)
        rows.append(row)
    if not options.no_save:
        write_results(rows, options.rounds)


if __name__ == "__main__":
    main()
