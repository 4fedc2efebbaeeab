"""This client beside the others from PyPI: ``python -m bench.clients [--only TEXT] [--rounds N]``.

Each load runs in a fresh process per client, with the same number of messages; the clients come in
random order, round by round, and a figure is the median of the rounds. All run on uvloop and on the
same server: nats-server, but for objects and scans, which want a fast one. Objects and scans have
two figures each: cold is the first in a process, warm the median of three more. A client that needs
another Python than this one has it named (`--python natsio=/path/to/python`), with uvloop and the
client installed there. The table is printed as it grows and saved in `bench/CLIENTS.md`.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from contextlib import ExitStack
from random import Random

from bench import client_loads, data_loads, jetstream_loads
from bench.client_report import Figures, Row, write
from bench.servers import NATS_SERVER, SLIPSTREAM, Running

MODULES = {"nats-py": "nats"}  # where the import's name is another
ALL = ("slipstream", "nats-py", "natsio", "natsrpy")
LOAD_SECONDS_MAX = 120
SECTIONS = (client_loads, jetstream_loads, data_loads)
ON_A_FAST_SERVER = ("object", "scan")
# So many times nats-py, by the clock.
RATIO_GOALS = {
    "publish": 2.0,
    "publish to subscriber": 5.0,
    "publish, one after the other": 3.0,
    "publish, 1,000 in flight": 6.0,
    "fetch 500 and ack each": 10.0,
}
# So many a second.
RATE_GOALS = {
    "object put, MB, warm": 800.0,
    "object get, MB, warm": 800.0,
    "scan by direct gets, warm": 1_000_000.0,
    "scan by a consumer, warm": 1_000_000.0,
}


def measure(python: str, module: str, client: str, load: str, url: str, n: int) -> Figures | None:
    """One figure from a fresh process; None, with a word why, if the client cannot do it."""
    command = [python, "-m", module, client, load, url, str(n)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"    {client}: {load}: not done within {LOAD_SECONDS_MAX} s", file=sys.stderr)
        return None
    if done.returncode:
        said = done.stderr.decode().strip().splitlines() or ["no word why"]
        print(f"    {client}: {load}: {said[-1]}", file=sys.stderr)
        return None
    found = json.loads(done.stdout)
    return Figures(found["per_second"], found["per_cpu_second"])


def installed(names: list[str], elsewhere: dict[str, str]) -> list[str]:
    """Those of the clients that can be imported, or have a Python of their own; says which not."""
    there = [
        name
        for name in names
        if name in elsewhere or importlib.util.find_spec(MODULES.get(name, name))
    ]
    for name in names:
        if name not in there:
            print(f"not installed, and left out: {name}")
    return there


def main() -> None:
    """Measure, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="loads whose name has this text in it")
    parser.add_argument("--clients", default=",".join(ALL), help="names, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=0, help="instead of each load's own number")
    parser.add_argument("--server", choices=["nats-server", "slipstream"], help="for all loads")
    parser.add_argument("--no-save", action="store_true", help="leave bench/CLIENTS.md as it is")
    parser.add_argument(
        "--python", action="append", default=[], help="CLIENT=PROGRAM: the Python that it needs"
    )
    options = parser.parse_args()
    pythons = dict(word.split("=", 1) for word in options.python)
    clients = installed(options.clients.split(","), pythons)
    random = Random()
    rows: list[Row] = []
    with ExitStack() as stack:
        servers: dict[str, Running] = {}
        for section in SECTIONS:
            for load in section.LOADS:
                if options.only not in load:
                    continue
                kind = options.server
                if kind is None:
                    kind = "slipstream" if load.startswith(ON_A_FAST_SERVER) else "nats-server"
                if kind not in servers:
                    contender = SLIPSTREAM if kind == "slipstream" else NATS_SERVER
                    servers[kind] = stack.enter_context(Running(contender))
                row = Row(load, kind, RATIO_GOALS.get(load), RATE_GOALS.get(load))
                url = f"nats://{servers[kind].address}"
                n = 0 if load.startswith("object") else options.messages
                able = [client for client in clients if client in section.CLIENTS]
                for _ in range(options.rounds):
                    for client in random.sample(able, len(able)):
                        python = pythons.get(client, sys.executable)
                        found = measure(python, section.__name__, client, load, url, n)
                        if found is None:
                            able.remove(client)  # it is not given the time of every round
                        else:
                            row.add(client, found)
                rows.append(row)
                print(row.text(), flush=True)
    if not options.no_save:
        write(rows, list(ALL), options.rounds, pythons)


if __name__ == "__main__":
    main()
