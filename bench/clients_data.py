"""Key-value, objects and scans beside nats-py: ``python -m bench.clients_data [--rounds N]``.

Both run on the same server and on uvloop; they take turns, and a figure is the median of the
rounds. Objects lie in memory streams, so that the clients are measured and not the disk.
"""

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import nullcontext

from bench.clients import row
from bench.data_loads import CLIENTS, LOADS
from bench.servers import NATS_SERVER, SLIPSTREAM, Running

LOAD_SECONDS_MAX = 60


def measure(client: str, load: str, url: str) -> dict[str, float] | None:
    """One figure from a fresh process; None if it does not come to an end."""
    command = [sys.executable, "-m", "bench.data_loads", client, load, url, "0"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"  {client}: not done within {LOAD_SECONDS_MAX} s")
        return None
    if done.returncode:
        raise SystemExit(f"{client}: {load}: {done.stderr.decode()}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="loads whose name has this text in it")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="names, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=["nats-server", "slipstream"], default="slipstream")
    parser.add_argument("--url", default="", help="a server that runs already")
    options = parser.parse_args()
    clients = options.clients.split(",")
    contender = NATS_SERVER if options.server == "nats-server" else SLIPSTREAM
    running = nullcontext() if options.url else Running(contender)
    with running as server:
        url = options.url or f"nats://{server.address}"
        for load in LOADS:
            if options.only not in load:
                continue
            print(f"{load}  (by the clock; by processor time, and that against nats-py)")
            found: dict[str, list[dict[str, float]]] = {}
            for _ in range(options.rounds):
                for client in clients:
                    figures = measure(client, load, url)
                    if figures is not None:
                        found.setdefault(client, []).append(figures)
            theirs = found.get("nats-py", [])
            base = statistics.median(f["per_cpu_second"] for f in theirs) if theirs else 0.0
            for client, taken in found.items():
                print(row(client, taken, base), flush=True)


if __name__ == "__main__":
    main()
