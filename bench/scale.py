"""At rest and at scale: memory, disk, restarts. `python -m bench.scale [--messages N]`.

Each server gets the same story: idle; 10,000 idle connections; ten million messages on 1,000
subjects; a filtered consumer on them; a million subjects with one message each; crashes and
restarts; clean stops and restarts. Restarts happen five times, the median counts.
"""

import argparse
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import report
from bench.loads import run_loadgen
from bench.programs import LOADGEN, build_programs
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running, check_installed

CONNECTIONS = 10_000
RESTARTS = 5
WIDTHS = (60, 12, 12, 10, 8)
FULL_MESSAGES = 10_000_000
FULL_SUBJECTS = 1_000_000


@dataclass(slots=True, frozen=True)
class Goal:
    """What a figure has to reach: a bound, or a multiple of nats-server's figure."""

    text: str
    is_met: Callable[[float, float], bool]


def at_most(bound: float) -> Goal:
    """A bound on our figure."""
    return Goal(f"≤ {bound:,g}", lambda ours, _: ours <= bound)


def times(factor: float) -> Goal:
    """So many times nats-server's rate."""
    return Goal(f"≥ {factor:g}x", lambda ours, theirs: ours >= factor * theirs)


def per_connection_kb(server: Running) -> float:
    """Resident memory that one of many idle connections takes, in KB."""
    before = server.resident_mb()
    holder = subprocess.Popen(
        [str(LOADGEN), server.address, "idle", f"n={CONNECTIONS}", "secs=6"],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    time.sleep(3)  # past the first ping, so that all are really at rest
    used = server.resident_mb() - before
    holder.kill()
    holder.wait()
    return used * 1000 / CONNECTIONS


def create_filtered_consumer_ms(server: Running) -> float:
    """Creating a consumer filtered on one subject in a thousand, in ms; the median of five."""
    taken = []
    for i in range(5):
        begin = time.perf_counter()
        info = server.create_consumer("BIG", f"f{i}", filter_subject=f"big.{i}")
        taken.append((time.perf_counter() - begin) * 1000)
        assert info["num_pending"] > 0
    return statistics.median(taken)


def ready_again_s(server: Running, kill: bool, stream: str, messages: int) -> float:
    """How long a restart takes until JetStream answers, in s, with nothing lost; the median."""
    seconds = []
    for _ in range(RESTARTS):
        server.stop(kill=kill)
        seconds.append(server.start().seconds_to_ready)
        assert server.request(f"$JS.API.STREAM.INFO.{stream}")["state"]["messages"] == messages
    return statistics.median(seconds)


def story(contender: Contender, messages: int, subjects: int) -> dict[str, tuple[float, Goal]]:
    """The figures of one server, by row, each with its goal."""
    figures: dict[str, tuple[float, Goal]] = {}

    def note(name: str, value: float, goal: Goal) -> None:
        figures[name] = (value, goal)
        print(f"    {contender.name}: {name}: {report.figure(value)}", flush=True)

    with Running(contender) as server:
        time.sleep(1)
        note("resident memory, idle server (MB)", server.resident_mb(), at_most(60))
        note(
            f"resident memory of one of {CONNECTIONS:,} idle connections (KB)",
            per_connection_kb(server),
            at_most(20),
        )
    with Running(contender) as server:
        server.create_stream(name="BIG", subjects=["big.>"])
        rate = run_loadgen(
            server.address, "jspub", n=messages, subject="big", subjects=1000, window=1000
        )
        note("publish with 1,000 subjects (/s)", rate["per_sec"], times(2))
        time.sleep(1)
        name = f"resident memory, {messages:,} messages on 1,000 subjects (MB)"
        note(name, server.resident_mb(), at_most(120))
        name = "create a filtered consumer on them (ms)"
        note(name, create_filtered_consumer_ms(server), at_most(2))
        server.create_stream(name="WIDE", subjects=["wide.>"])
        rate = run_loadgen(
            server.address, "jspub", n=subjects, subject="wide", subjects=subjects, window=1000
        )
        note(f"publish with {subjects:,} subjects (/s)", rate["per_sec"], times(2))
        time.sleep(1)
        name = f"resident memory with {subjects:,} subjects too (MB)"
        note(name, server.resident_mb(), at_most(300))
        share = (messages + subjects) / (FULL_MESSAGES + FULL_SUBJECTS)
        note("disk for all of it (MB)", server.disk_mb(), at_most(round(1800 * share)))
        name = "ready after kill -9 (s)"
        note(name, ready_again_s(server, True, "BIG", messages), at_most(1))
        name = "ready after a clean stop (s)"
        note(name, ready_again_s(server, False, "WIDE", subjects), at_most(0.5))
    return figures


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument("--messages", type=int, default=FULL_MESSAGES)
    parser.add_argument("--subjects", type=int, default=FULL_SUBJECTS)
    parser.add_argument("--no-save", action="store_true", help="print, and leave RESULTS.md alone")


def run(options: argparse.Namespace) -> None:
    """Tell the story to both servers, print and save the table."""
    check_installed()
    build_programs()
    begin = time.monotonic()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"==> {options.messages:,} messages and {options.subjects:,} subjects", flush=True)
    ours = story(SLIPSTREAM, options.messages, options.subjects)
    theirs = story(NATS_SERVER, options.messages, options.subjects)
    rows: list[report.Row] = []
    for name, (value, goal) in ours.items():
        other = theirs[name][0]
        met = goal.is_met(value, other)
        rows.append({"name": name, "ours": value, "theirs": other, "goal": goal.text, "met": met})
    print(report.line(["at rest and at scale", "Slipstream", "nats-server", "goal", ""], WIDTHS))
    for row in rows:
        print(report.line(report.scale_cells(row), WIDTHS))
    if not options.no_save:
        report.save("scale", rows)
    print(f"==> {time.monotonic() - begin:.0f} s", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
