"""`slipstream group up`: a group of servers on this machine, by one command."""

import asyncio
import os
import secrets
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import note, print_json, say
from slipstream.cli.session import command, new_app, wants_json
from slipstream.client import connect
from slipstream.errors import Error
from slipstream.server.cluster_options import RegisterOptions
from slipstream.server.replica.free_ports import free_ports, is_free
from slipstream.server.replica.local_register import LOCAL_SIZES, local_register

app = new_app("A group of servers on this machine.")

HOST = "127.0.0.1"
DIRECTORY = Path("slipstream-group")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0  # for a server to end in good order, before it is killed
ASK_SECONDS_MAX = 3.0  # for one look at who leads
LOOK_SECONDS = 0.05  # between two of them

Servers = Annotated[int, typer.Option("--servers", help="How many: 1, 2, 3 or 5")]
Directory = Annotated[
    Path, typer.Option("--directory", metavar="DIR", help="For stores, configurations and logs")
]
Port = Annotated[
    int, typer.Option("--port", help="Of the first server; the next ones follow; 0: any free ones")
]


@command(app, "up")
async def up(servers: Servers = 3, directory: Directory = DIRECTORY, port: Port = 4222) -> None:
    """Start the servers of a group, each a process. Ctrl-C stops all, and the data stays in DIR.

    They listen on 127.0.0.1. To try what happens when one fails, kill its process.

    Two servers have their register, which says who of them may go on alone, in a file in DIR. All
    is on this machine: a group survives the end of a process here, not the loss of the machine.
    """
    if servers not in LOCAL_SIZES:
        raise UsageError(
            f"group up: --servers {servers} is not a size of a group: choose 1, 2, 3 or 5"
        )
    if not 0 <= port <= 65_536 - servers:
        raise UsageError(f"group up: --port {port} is none: choose 0 to {65_536 - servers}")
    running = _Running(directory, _client_ports(servers, port))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.interrupted)
    try:
        await running.start()
        if not running.is_interrupted.is_set():
            await running.until_interrupted()
    finally:
        await running.stop()


def _client_ports(count: int, first: int) -> list[int]:
    if not first:
        return free_ports(count, HOST)
    ports = list(range(first, first + count))
    taken = [str(port) for port in ports if not is_free(port, HOST)]
    if taken:
        raise Error(
            f"group up: another process has port {', '.join(taken)} of {HOST}: stop it, or choose "
            "other ports by --port (0: any free ones)"
        )
    return ports


class _Running:
    """The processes of a group."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        self.is_interrupted = asyncio.Event()
        self._directory = directory
        self._register = local_register(str(directory), len(ports))
        routes = [f"{HOST}:{port}" for port in _other_ports(ports)]
        password = secrets.token_urlsafe(32)
        self._members = [
            _Member(
                f"n{number + 1}",
                directory,
                port,
                _configuration(routes, number, password, self._register),
            )
            for number, port in enumerate(ports)
        ]

    def interrupted(self) -> None:
        """Of a signal: stop all; when it comes once more, at once."""
        if self.is_interrupted.is_set():
            for member in self._members:
                member.send(signal.SIGKILL)
        self.is_interrupted.set()

    async def start(self) -> None:
        """Start all, and say who leads. Raises `Error`; returns early if it is interrupted."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Error(f"group up: cannot make {self._directory}: {error.strerror}") from error
        for member in self._members:
            await member.start()
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                leader = await self._leader_of_all()
        except TimeoutError as error:
            raise Error(
                f"group up: no server leads after {START_SECONDS_MAX:g} s: the logs in "
                f"{self._directory} say why"
            ) from error
        if leader:
            self._announce(leader)

    async def _leader_of_all(self) -> str:
        """Who leads, once a client is told so at each URL; "" if it is interrupted."""
        while not self.is_interrupted.is_set():
            for member in self._members:
                member.check()
            found = set(await asyncio.gather(*(one.leader() for one in self._members)))
            if len(found) == 1 and "" not in found:
                return found.pop()
            await asyncio.sleep(LOOK_SECONDS)
        return ""

    def _announce(self, leader: str) -> None:
        if wants_json():
            found = [
                {"name": one.name, "url": one.url, "pid": one.pid, "log": str(one.log)}
                for one in self._members
            ]
            register = {"register": self._register.url} if self._register is not None else {}
            print_json({"leader": leader, "servers": found, **register})
            return
        for member in self._members:
            say(f"{member.name}  {member.url}")
        say(f"{leader} leads. Stores and logs are in {self._directory}; Ctrl-C stops all.")
        if len(self._members) == 2:
            say(
                "Either server goes on alone when the other one ends. Their register is beside "
                "them, in a file of this machine: on two machines it has to be elsewhere "
                "(docs/group.md)."
            )

    async def until_interrupted(self) -> None:
        """Say which processes end meanwhile. Raises `Error` when none is left."""
        ends = {asyncio.create_task(one.ended()): one for one in self._members}
        signalled = asyncio.create_task(self.is_interrupted.wait())
        try:
            while ends and not signalled.done():
                await asyncio.wait([*ends, signalled], return_when=asyncio.FIRST_COMPLETED)
                if self.is_interrupted.is_set():
                    return
                for task in [task for task in ends if task.done()]:
                    member = ends.pop(task)
                    note(f"{member.name} has ended {member.how}; its log is {member.log}")
                    note(f"To start it again, in another terminal: {member.command}")
            raise Error(
                "group up: no server is left of those that it has started: the logs in "
                f"{self._directory} say why"
            )
        finally:
            for waiting in (*ends, signalled):
                waiting.cancel()

    async def stop(self) -> None:
        """End all: the leader first, while a majority takes what it saves."""
        running = [one for one in self._members if one.is_running]
        if not running:
            return
        leader = await running[0].leader()
        await asyncio.gather(*(one.stop() for one in running if one.name == leader))
        await asyncio.gather(*(one.stop() for one in running if one.name != leader))


def _other_ports(ports: list[int]) -> list[int]:
    """Ports for what the servers say to each other."""
    return [port for port in free_ports(2 * len(ports), HOST) if port not in ports][: len(ports)]


def _configuration(
    routes: list[str], number: int, password: str, register: RegisterOptions | None
) -> str:
    urls = ", ".join(f'"nats://{route}"' for route in routes)
    place = f'  register {{ url: "{register.url}" }}\n' if register is not None else ""
    return (
        "# Written by `slipstream group up`, anew at each start.\n"
        "cluster {\n"
        "  name: group\n"
        f'  listen: "{routes[number]}"\n'
        f"  routes: [{urls}]\n"
        f'  authorization {{ user: group, password: "{password}" }}\n'
        f"{place}"
        "}\n"
    )


class _Member:
    """One process: `slipstream serve`."""

    def __init__(self, name: str, directory: Path, port: int, configuration: str) -> None:
        self.name = name
        self.url = f"nats://{HOST}:{port}"
        self.log = directory / f"{name}.log"
        self._port = port
        self._store = directory / name
        self._file = directory / f"{name}.conf"
        self._configuration = configuration
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Of its process; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.returncode is None

    @property
    def how(self) -> str:
        """How it has ended."""
        status = self._process.returncode if self._process is not None else None
        if status is not None and status < 0:
            return f"by {signal.Signals(-status).name}"
        return f"with status {status}"

    @property
    def command(self) -> str:
        """What starts it by hand, as a shell takes it."""
        return shlex.join(["slipstream", *self._words])

    @property
    def _words(self) -> list[str]:
        return [
            "serve", "-c", str(self._file), "-n", self.name, "-a", HOST, "-p", str(self._port),
            "-sd", str(self._store),
        ]  # fmt: skip

    def _write_configuration(self) -> None:
        """The secret is in a file that only its owner can read: all users of the machine can read
        command lines."""
        self._file.unlink(missing_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(self._configuration)

    async def start(self) -> None:
        """Start the process."""
        self._write_configuration()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "slipstream", *self._words,
                stdin=DEVNULL, stdout=log, stderr=log,
                process_group=0,  # a Ctrl-C reaches this command alone, which stops them in order
            )  # fmt: skip

    def check(self) -> None:
        """Raise `Error` if it has ended."""
        if not self.is_running:
            lines = self.log.read_text(errors="replace").splitlines()
            last = lines[-1] if lines else "nothing"
            raise Error(
                f"group up: {self.name} has ended {self.how}: its log {self.log} ends with: {last}"
            )

    async def leader(self) -> str:
        """Who leads, as a client is told that comes here; "" if nobody says so."""
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                async with connect(self.url, reconnect=False) as nc:
                    return nc.server_info.server_name
        except (Error, OSError, TimeoutError):
            return ""

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        """Wait for its end."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self) -> None:
        """End it."""
        self.send(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self.ended()
        except TimeoutError:
            note(f"{self.name} has not ended after {STOP_SECONDS_MAX:g} s, and is killed")
            self.send(signal.SIGKILL)
            await self.ended()
