"""Groups of `slipstream serve` processes on loopback, with clients that say what was answered."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import slipstream
from slipstream.client.errors import ConnectError
from tests.fix_server_process import environment
from tests.lasting_ports import lasting_port
from tests.server.group.waiting import until

LOCAL = "127.0.0.1"


class Served:
    """One server of a group."""

    def __init__(
        self, name: str, directory: Path, routes: list[int], number: int, *more: str
    ) -> None:
        self.name = name
        self.directory = directory / name
        self.port = lasting_port()
        self.is_stopped = False
        self.routes = routes  # ports where the servers listen for each other; its own is a number
        self._number = number
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._more = more
        self.before: tuple[str, ...] = ()  # what its command begins with, and ends as it

    @property
    def _words(self) -> list[str]:
        own = self.routes[self._number]
        return [
            "serve", "-a", LOCAL, "-p", str(self.port), "-n", self.name, "-sd", str(self.directory),
            "--cluster", f"nats://u:secret@{LOCAL}:{own}", "--cluster_name", "C",
            "--routes", ",".join(f"nats://{LOCAL}:{port}" for port in self.routes), *self._more,
        ]  # fmt: skip

    @property
    def url(self) -> str:
        """Where clients connect, whoever leads."""
        return f"nats://{LOCAL}:{self.port}"

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.returncode is None

    @property
    def files(self) -> dict[str, bytes]:
        """What its store holds, without the zeros that were reserved."""
        root = self.directory / "store" / "files"
        return {
            str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
            for path in root.rglob("*")
            if path.is_file()
        }

    async def start(self) -> None:
        """Start the process; it is up when it takes clients."""
        count = self.log.count("Server is ready, in the group")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.before, sys.executable, "-m", "slipstream", *self._words,
                stdout=log, stderr=log, env=environment(),
            )  # fmt: skip
        await until(
            lambda: self.log.count("Server is ready, in the group") > count,
            f"{self.name} takes clients",
        )

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Have the process end."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)
        self.is_stopped = number is signal.SIGSTOP


class ServedGroup:
    """Three servers, or five; `more` are flags of each."""

    def __init__(self, directory: Path, size: int = 3, *more: str) -> None:
        routes = [lasting_port() for _ in range(size)]
        self.servers = [
            Served(f"n{number + 1}", directory, routes, number, *more) for number in range(size)
        ]

    async def __aenter__(self) -> "ServedGroup":
        await asyncio.gather(*(server.start() for server in self.servers))
        await self.leader()
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(server.end() for server in self.servers))

    @property
    def urls(self) -> list[str]:
        """Of all."""
        return [server.url for server in self.servers]

    async def leader(self, after: Served | None = None) -> Served:
        """The one that leads, as it answers itself: another one than `after`, which was asked to
        hand over and serves until then."""
        while True:
            for server in self.servers:
                if not server.is_running or server.is_stopped:
                    continue
                found = await _cluster_of(server.url)
                for one in self.servers:
                    if one.name == found and one is not after:
                        return one
            await asyncio.sleep(0.05)

    def others(self, server: Served) -> list[Served]:
        """All but one."""
        return [one for one in self.servers if one is not server]

    def client(self, **options: Any) -> Any:
        """A client that goes on whoever leads."""
        return slipstream.connect(
            self.urls, max_reconnect_attempts=-1, reconnect_wait=0.05, **options
        )


async def followers(nc: Any, stream: str) -> dict[str, bool]:
    """The servers that follow the leader, as a stream's information names them: whether each is
    current."""
    try:
        info = await nc.jetstream().api.request(f"STREAM.INFO.{stream}", timeout=2)
    except slipstream.Error:
        return {}
    return {one["name"]: one["current"] for one in info["cluster"]["replicas"]}


async def _cluster_of(url: str) -> str:
    """Who leads, as a client is told that comes to `url`; "" if nobody says so."""
    try:
        async with slipstream.connect(url, reconnect=False, connect_timeout=3) as nc:
            return nc.server_info.server_name
    except ConnectError:
        return ""


class Publishers:
    """Publish numbered messages until `stop`, and keep which were acknowledged, and as what."""

    def __init__(self, nc: Any, subject: str, count: int = 10) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self._js = nc.jetstream()
        self._subject = subject
        self._is_stopped = False
        self._tasks = [asyncio.create_task(self._publish(n)) for n in range(count)]

    async def _publish(self, worker: int) -> None:
        number = 0
        while not self._is_stopped:
            body = b"%d-%d" % (worker, number)
            try:
                done = await self._js.publish(self._subject, body, timeout=2)
                self.acknowledged[body] = done.sequence
            except slipstream.Error:
                await asyncio.sleep(0.02)
            number += 1

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted, f"{count} more are acknowledged")

    async def stop(self) -> None:
        """Publish no more."""
        self._is_stopped = True
        await asyncio.gather(*self._tasks)


async def stored(nc: Any, stream: str) -> dict[bytes, list[int]]:
    """The sequences of each body that a stream has, read in order."""
    found: dict[bytes, list[int]] = {}
    js = nc.jetstream()
    if not (await js.stream_info(stream)).state.messages:
        return found
    async with js.ordered_consumer(stream).messages() as messages:
        async for message in messages:
            found.setdefault(message.data, []).append(message.metadata.stream_sequence)
            if message.metadata.num_pending == 0:
                break
    return found
