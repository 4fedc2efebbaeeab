"""This client beside the others from PyPI: ``python -m bench.clients [--only TEXT] [--rounds N]``.

All run on the same server (nats-server unless told otherwise) and on uvloop; they take turns, and a
figure is the median of the rounds. A client that is not installed is left out and said to be.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys

from bench.client_loads import CLIENTS, LOADS
from bench.servers import NATS_SERVER, SLIPSTREAM, Running

MODULES = {"nats-py": "nats"}  # where the import's name is another
LOAD_SECONDS_MAX = 120


def measure(client: str, load: str, url: str, n: int) -> dict[str, float] | None:
    """One figure from a fresh process; None if the client can not do it."""
    command = [sys.executable, "-m", "bench.client_loads", client, load, url, str(n)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(f"    {client}: {done.stderr.decode().strip().splitlines()[-1]}", file=sys.stderr)
        return None
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def row(name: str, figures: list[dict[str, float]], base: float) -> str:
    """A client's line of the table."""
    wall = statistics.median(f["per_second"] for f in figures)
    cpu = statistics.median(f["per_cpu_second"] for f in figures)
    ratio = f"{cpu / base:.1f}x" if base else ""
    return f"  {name:<12} {wall:>12,.0f}/s {cpu:>14,.0f}/s {ratio:>8}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="loads whose name has this text in it")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="names, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=0, help="instead of each load's own number")
    parser.add_argument("--server", choices=["nats-server", "slipstream"], default="nats-server")
    options = parser.parse_args()
    clients = [
        name
        for name in options.clients.split(",")
        if importlib.util.find_spec(MODULES.get(name, name))
    ]
    missing = set(options.clients.split(",")) - set(clients)
    if missing:
        print(f"not installed: {', '.join(sorted(missing))}")
    contender = NATS_SERVER if options.server == "nats-server" else SLIPSTREAM
    with Running(contender) as server:
        url = f"nats://{server.address}"
        for load in LOADS:
            if options.only not in load:
                continue
            print(f"{load}  (by the clock; by processor time, and that against nats-py)")
            found: dict[str, list[dict[str, float]]] = {}
            for _ in range(options.rounds):
                for client in clients:
                    figures = measure(client, load, url, options.messages)
                    if figures is not None:
                        found.setdefault(client, []).append(figures)
            theirs = found.get("nats-py", [])
            base = statistics.median(f["per_cpu_second"] for f in theirs) if theirs else 0.0
            for client, taken in found.items():
                print(row(client, taken, base), flush=True)


if __name__ == "__main__":
    main()
