"""Groups of hosts in one process, with files, sockets, and a proxy in each route to cut."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from slipstream.group import Entry, NotLeaderError, Settings
from slipstream.log.disk import OsDisk
from slipstream.server.group import (
    GroupHost,
    GroupStore,
    LinkContexts,
    LinkSettings,
    OutcomeUnknownError,
    RegisterStore,
)
from slipstream.server.group.host import KEEP_BYTES
from slipstream.server.group.joining import server_name_of
from slipstream.server.group.store import SEGMENT_BYTES
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions
from tests.lasting_ports import lasting_port
from tests.server.group.owner import Owner
from tests.server.group.waiting import until

LOCAL = "127.0.0.1"


class Lines:
    """A log to look at."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, level: str, text: str) -> None:
        self.lines.append(f"[{level}] {text}")

    def set_options(self, options: LoggingOptions) -> None:
        pass

    def reopen(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)


class Proxy:
    """A port in front of another one. What goes in a direction that is cut waits, as on a network
    that loses it, and comes once it is not cut any more, unless the connection ends before."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._open = {"there": asyncio.Event(), "back": asyncio.Event()}
        for event in self._open.values():
            event.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, LOCAL, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self, *directions: str) -> None:
        for direction in directions:
            self._open[direction].clear()

    def heal(self) -> None:
        for event in self._open.values():
            event.set()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(LOCAL, self._target)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, there[1], "there")),
            asyncio.ensure_future(self._pump(there[0], writer, "back")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.close()
            there[1].close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open[direction].wait()
                writer.write(data)
                await writer.drain()


class Group:
    """Three hosts, n1 to n3, each of which can be stopped and started again."""

    def __init__(
        self,
        directory: Path,
        contexts: LinkContexts | None = None,
        settings: Settings | None = None,
        size: int = 3,
        owners: dict[str, Owner] | None = None,
        keep_bytes: int = KEEP_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        make_register: Callable[[str], RegisterStore | None] = lambda name: None,
    ) -> None:
        self.make_register = make_register  # for the host of that name
        self.owners = owners or {}
        self.keep_bytes = keep_bytes
        self.segment_bytes = segment_bytes
        self.directory = directory
        self.names = [f"n{number}" for number in range(1, size + 1)]
        self.hosts: dict[str, GroupHost] = {}
        self.logs = {name: Lines() for name in self.names}
        self.ports = {name: lasting_port() for name in self.names}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.secrets = dict.fromkeys(self.names, b"of the group")
        self.settings = settings
        self._contexts = contexts
        self._host = "localhost" if contexts else LOCAL

    async def __aenter__(self) -> "Group":
        for name in self.ports:
            for other in self.ports:
                if name < other:
                    self.proxies[name, other] = await Proxy(self.ports[other]).start()
        await asyncio.gather(*(self.start(name) for name in self.names))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self.stop(name) for name in list(self.hosts)))
        await asyncio.gather(*(proxy.stop() for proxy in self.proxies.values()))

    def path(self, name: str) -> Path:
        return self.directory / name

    def port_to(self, name: str, other: str) -> int:
        proxy = self.proxies.get((name, other))
        return proxy.port if proxy else self.ports[other]

    async def add(self, name: str, owner: Owner | None = None) -> None:
        """Have the configuration of hosts that are made from now on name one more server."""
        self.names.append(name)
        self.logs[name] = Lines()
        self.ports[name] = lasting_port()
        self.secrets[name] = b"of the group"
        if owner is not None:
            self.owners[name] = owner
        for other in self.ports:
            if other < name:
                self.proxies[other, name] = await Proxy(self.ports[name]).start()

    def lose(self, name: str) -> None:
        """The disk of a host that is stopped is gone, and there is an empty one."""
        self.path(name).rename(self.directory / f"{name} lost")

    async def settled(self, *server_names: str) -> None:
        """Every host knows that these are the members, and has all that is committed."""

        def have_settled() -> bool:
            hosts = [host for host in self.hosts.values() if not host.failed]
            members = {tuple(server_name_of(one) for one in host.members) for host in hosts}
            indices = {host.committed_index for host in hosts}
            names = {host.name for host in hosts}
            return (
                members == {server_names}
                and not any(host.is_changing for host in hosts)
                and len(indices) == 1
                and all(names >= set(host.members) for host in hosts)
            )

        await until(have_settled, f"{server_names} are the members")

    def make(self, name: str) -> GroupHost:
        """A host that is not started."""
        routes = [(self._host, self.port_to(name, other)) for other in self.ports]
        return GroupHost(
            name,
            "test",
            len(self.ports),
            GroupStore(OsDisk(), str(self.path(name)), self.segment_bytes),
            LinkSettings(
                host=LOCAL,
                port=self.ports[name],
                routes=routes,
                secret=b"" if self._contexts else self.secrets[name],
                timeout=2.0,
            ),
            Logger(self.logs[name], LoggingOptions()),
            self.settings,
            self._contexts,
            checkpoints=self.owners.get(name),
            keep_bytes=self.keep_bytes,
            register=self.make_register(name),
        )

    async def start(self, name: str) -> GroupHost:
        self.hosts[name] = self.make(name)
        await self.hosts[name].start()
        if name in self.owners:
            self.owners[name].begin(self.hosts[name])
        return self.hosts[name]

    async def stop(self, name: str) -> None:
        await self.hosts.pop(name).stop()
        if name in self.owners:
            await self.owners[name].end()

    def another(self, host: GroupHost) -> str:
        """The name of a server that is not that one."""
        return next(name for name in self.names if name != server_name_of(host.name))

    async def leader(self, *but: str) -> GroupHost:
        """Who serves, of all but some."""
        return await until(
            lambda: next((h for h in self.hosts.values() if h.epoch and h.name not in but), None),
            f"another leader than {but}: {[self.logs[name].lines[-3:] for name in self.names]}",
        )

    async def append(self, *bodies: bytes, but: str = "") -> None:
        """Have bodies be committed, by whoever leads but one; each at least once."""
        for body in bodies:
            while True:
                leader = await self.leader(but)
                try:
                    await leader.append(body)
                except (NotLeaderError, OutcomeUnknownError):
                    await asyncio.sleep(0.02)
                    continue
                break

    async def all_have(self, index: int) -> None:
        """Every host knows that all up to `index` is committed."""
        await until(
            lambda: all(host.committed_index >= index for host in self.hosts.values()),
            f"all have {index}",
        )


async def history(host: GroupHost, until_index: int, after: int = 0) -> list[Entry]:
    """What a host has as committed."""
    found: list[Entry] = []
    async with asyncio.timeout(60), contextlib.aclosing(host.committed(after)) as pieces:
        async for piece in pieces:
            found += piece
            if found[-1].index >= until_index:
                break
    return found[: until_index - after]


def bodies(entries: list[Entry]) -> list[bytes]:
    """What was appended, without what begins an epoch."""
    return [entry.body for entry in entries if entry.body]
