"""Three servers that act as one, beside three nats-servers with streams of three replicas:
``python -m bench.group [--rounds N] [--load WORDS] [--group NAME]``.

The groups run on this machine, one after the other in each round, in turn first. Clients connect
to the server that leads the stream. Beside them runs a group that does nothing but sync what is
published on a majority (`ideal_group.rs`): the limit of both publishes here. Prints a table of
medians; a load that fails says so.
"""

import argparse
import contextlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import slipstream
import slipstream.sync
from bench.loads import run_loadgen
from bench.programs import IDEAL_GROUP, build_programs
from bench.servers import NATS_SERVER, check_installed
from slipstream.server.replica.free_ports import free_ports

LOCAL = "127.0.0.1"
READY_SECONDS = 60.0
SIZE = 128  # bytes of a body


class Group:
    """Three servers of a kind, with stores of their own."""

    def __init__(self, name: str, command: list[str], config: str = "") -> None:
        self.name = name
        self._command = command
        self._config = config
        self._directory = Path(tempfile.mkdtemp(prefix="bench-group-"))
        ports = free_ports(6, LOCAL)
        self.ports, self._routes = ports[:3], ports[3:]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Group":
        named = ",".join(f"'nats://u:secret@{LOCAL}:{port}'" for port in self._routes)
        for number, (port, route) in enumerate(zip(self.ports, self._routes, strict=True), 1):
            name = f"n{number}"
            file = self._directory / f"{name}.conf"
            file.write_text(
                f"server_name: {name}, listen: '{LOCAL}:{port}'\n"
                f"jetstream {{ store_dir: '{self._directory / name}' {self._config} }}\n"
                f"cluster {{ name: C, listen: '{LOCAL}:{route}', routes: [{named}]\n"
                "  authorization { user: u, password: secret } }\n"
            )
            self.start(name)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, name: str) -> None:
        """Start a server, with what it has stored."""
        file = self._directory / f"{name}.conf"
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self._command, "-c", str(file)], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """End a server without warning."""
        self._processes[name].kill()
        self._processes[name].wait()

    @property
    def loads(self) -> "dict[str, Load]":
        """Those that it is measured with."""
        return LOADS

    @property
    def urls(self) -> list[str]:
        """Of all three."""
        return [f"nats://{LOCAL}:{port}" for port in self.ports]

    def make_stream(self, name: str, subject: str) -> str:
        """A new stream of three replicas; the address of the server that leads it."""
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                with slipstream.sync.connect(self.urls) as nc:
                    js = nc.jetstream()
                    config: dict[str, Any] = {"num_replicas": 3, "subjects": [subject]}
                    info = js.create_or_update_stream(name=name, **config).info()
                if info.cluster is not None and info.cluster.leader:
                    leader = int(info.cluster.leader.removeprefix("n")) - 1
                    return f"{LOCAL}:{self.ports[leader]}"
            except slipstream.Error:
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def name_of(self, address: str) -> str:
        """The server at an address."""
        return f"n{self.ports.index(int(address.rpartition(':')[2])) + 1}"


class IdealGroup(Group):
    """A leader that has its followers by itself, and knows no streams."""

    def start(self, name: str) -> None:
        if name == "n1":
            words = ["-p", str(self.ports[0]), "--directory", str(self._directory)]
            self._processes[name] = subprocess.Popen([*self._command, *words])

    def make_stream(self, name: str, subject: str) -> str:
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                socket.create_connection((LOCAL, self.ports[0])).close()
                return f"{LOCAL}:{self.ports[0]}"
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.2)

    @property
    def loads(self) -> "dict[str, Load]":
        return {name: load for name, load in LOADS.items() if load in (publish, publish_one)}


def publish(group: Group) -> float:
    """Messages a second, 1000 on their way."""
    address = group.make_stream("P", "p.>")
    n = 60_000 if group.name.startswith("nats-server") else 300_000
    return run_loadgen(address, "jspub", n=n, size=SIZE, subject="p.a", window=1000)["per_sec"]


def publish_one(group: Group) -> float:
    """ms until a message is acknowledged, one at a time."""
    address = group.make_stream("L", "l.>")
    line = run_loadgen(address, "jspub", n=2000, size=SIZE, subject="l.a", window=1)
    return line["p50_us"] / 1000


def pull(group: Group) -> float:
    """Messages a second that one consumer pulls by 500 and acknowledges."""
    address = group.make_stream("W", "w.>")
    n = 100_000
    run_loadgen(address, "jspub", n=n, size=SIZE, subject="w.a", window=1000)
    with slipstream.sync.connect(f"nats://{address}") as nc:
        nc.jetstream().create_consumer("W", durable_name="c", max_ack_pending=-1)
    return run_loadgen(address, "pull", n=n, stream="W", consumer="c", batch=500, ack=1)["per_sec"]


def consumers(group: Group) -> float:
    """Durable consumers a second that are created one after the other."""
    address = group.make_stream("C", "c.>")
    n = 300 if group.name == "slipstream" else 30
    with slipstream.sync.connect(f"nats://{address}") as nc:
        js = nc.jetstream()
        begin = time.perf_counter()
        for number in range(n):
            js.create_consumer("C", durable_name=f"c{number}")
        return n / (time.perf_counter() - begin)


def kill(group: Group) -> float:
    """Seconds from the kill of the leader to the next message that is acknowledged. Last: one
    server less is left."""
    address = group.make_stream("K", "k.>")
    with slipstream.sync.connect(group.urls, reconnect_wait=0.02) as nc:
        js = nc.jetstream()
        js.publish("k.a", b"x")
        begin = time.perf_counter()
        group.kill(group.name_of(address))
        while True:
            with contextlib.suppress(slipstream.Error):
                js.publish("k.a", b"x", timeout=0.5)
                return time.perf_counter() - begin


Load = Callable[[Group], float]
LOADS: dict[str, Load] = {
    "publish, window 1000 (per second)": publish,
    "publish, window 1: p50 (ms)": publish_one,
    "pull 500 and acknowledge (per second)": pull,
    "durable consumers, one after the other (per second)": consumers,
    "leader killed to next acknowledgement (s)": kill,
}
SLIPSTREAM_COMMAND = [sys.executable, "-m", "slipstream", "serve"]


def groups() -> Iterator[Group]:
    """One of each kind."""
    yield IdealGroup("limit", [str(IDEAL_GROUP)])
    yield Group("slipstream", SLIPSTREAM_COMMAND)
    yield Group("nats-server", NATS_SERVER.command)
    yield Group("nats-server always", NATS_SERVER.command, ", sync_interval: always")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.group", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", default="", help="only loads with these words in their name")
    parser.add_argument("--group", default="", help="only groups with this in their name")
    options = parser.parse_args()
    check_installed()
    build_programs()
    loads = {name: load for name, load in LOADS.items() if options.load in name}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in loads}
    for number in range(options.rounds):
        contenders = [group for group in groups() if options.group in group.name]
        for group in contenders if number % 2 == 0 else reversed(contenders):
            with group:
                for name, measure in loads.items():
                    if name not in group.loads:
                        continue
                    try:
                        figure = measure(group)
                    except (RuntimeError, slipstream.Error) as error:
                        print(f"{group.name}, {name}: {error}", file=sys.stderr)
                        continue
                    found[name].setdefault(group.name, []).append(figure)
    names = [group.name for group in groups() if options.group in group.name]
    print("| load | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))
    for name, figures in found.items():
        cells = [
            f"{statistics.median(figures[one]):,.3g}" if one in figures else "-" for one in names
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
