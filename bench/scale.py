"""At rest and at scale: memory, disk, restarts. `python -m bench.scale [--messages N]`.

Each server gets the same story: idle; 10,000 idle connections; ten million messages on 1,000
subjects; a filtered consumer on them; a million subjects with one message each; a crash and a
restart; a clean stop and a restart.
"""

import argparse
import resource
import subprocess
import time
from collections.abc import Callable

from bench.compare import build_loadgen
from bench.loads import LOADGEN, run_loadgen
from bench.report import ScaleRow, write_scale_results
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running

CONNECTIONS = 10_000


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
    """Creating a consumer filtered on one subject in a thousand, in ms; the best of five."""
    best = 1e9
    for i in range(5):
        begin = time.perf_counter()
        info = server.create_consumer("BIG", f"f{i}", filter_subject=f"big.{i}")
        best = min(best, (time.perf_counter() - begin) * 1000)
        assert info["num_pending"] > 0
    return best


def story(contender: Contender, messages: int, subjects: int) -> dict[str, float]:
    """The figures of one server, by row."""
    figures: dict[str, float] = {}
    server = Running(contender)
    with server:
        time.sleep(1)
        figures["resident memory, idle (MB)"] = server.resident_mb()
        figures["resident memory per idle connection (KB)"] = per_connection_kb(server)
    server = Running(contender)
    with server:
        server.create_stream(name="BIG", subjects=["big.>"])
        line = run_loadgen(server, "jspub", n=messages, subject="big", subjects=1000, window=1000)
        figures["publish with 1,000 subjects (/s)"] = line["per_sec"]
        time.sleep(1)
        figures[f"resident memory, {messages:,} messages on 1,000 subjects (MB)"] = (
            server.resident_mb()
        )
        figures["create a filtered consumer on them (ms)"] = create_filtered_consumer_ms(server)
        server.create_stream(name="WIDE", subjects=["wide.>"])
        line = run_loadgen(
            server, "jspub", n=subjects, subject="wide", subjects=subjects, window=1000
        )
        figures[f"publish with {subjects:,} subjects (/s)"] = line["per_sec"]
        time.sleep(1)
        figures[f"resident memory with {subjects:,} subjects (MB)"] = server.resident_mb()
        figures["disk for all of it (MB)"] = server.disk_mb()
        server.stop(kill=True)
        figures["ready after kill -9 (s)"] = server.start().seconds_to_ready
        assert server.request("$JS.API.STREAM.INFO.BIG")["state"]["messages"] == messages
        server.stop()
        figures["ready after a clean stop (s)"] = server.start().seconds_to_ready
        assert server.request("$JS.API.STREAM.INFO.WIDE")["state"]["messages"] == subjects
    return figures


def goals(messages: int, subjects: int) -> dict[str, Callable[[float, float], bool]]:
    """Whether a row is reached, from ours and theirs."""
    return {
        "resident memory, idle (MB)": lambda ours, _: ours <= 60,
        "resident memory per idle connection (KB)": lambda ours, _: ours <= 20,
        "publish with 1,000 subjects (/s)": lambda ours, theirs: ours >= 2 * theirs,
        f"resident memory, {messages:,} messages on 1,000 subjects (MB)": lambda ours, _: (
            ours <= 120
        ),
        "create a filtered consumer on them (ms)": lambda ours, _: ours <= 2,
        f"publish with {subjects:,} subjects (/s)": lambda ours, theirs: ours >= 2 * theirs,
        f"resident memory with {subjects:,} subjects (MB)": lambda ours, _: ours <= 300,
        "disk for all of it (MB)": lambda ours, _: ours <= 1800,
        "ready after kill -9 (s)": lambda ours, _: ours <= 1,
        "ready after a clean stop (s)": lambda ours, _: ours <= 0.5,
    }


def main() -> None:
    """Tell the story to both servers and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    build_loadgen()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ours = story(SLIPSTREAM, options.messages, options.subjects)
    theirs = story(NATS_SERVER, options.messages, options.subjects)
    reached = goals(options.messages, options.subjects)
    rows = [
        ScaleRow(name, ours[name], theirs[name], reached[name](ours[name], theirs[name]))
        for name in ours
    ]
    for row in rows:
        print(row.text())
    if not options.no_save:
        write_scale_results(rows)


if __name__ == "__main__":
    main()
