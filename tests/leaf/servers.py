"""Servers that are linked, of either kind: the same configuration starts both."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream import Server
from slipstream.server.config import load_options
from slipstream.server.options import ServerOptions
from tests.fix_nats_server import WAIT_SECONDS, find_nats_server
from tests.lasting_ports import lasting_port

NATS, SLIPSTREAM = "nats-server", "slipstream"
# Who is the hub, and who its leaf.
PAIRS = [(NATS, SLIPSTREAM), (SLIPSTREAM, NATS), (SLIPSTREAM, SLIPSTREAM)]


async def until(condition: Callable[[], Awaitable[Any]], what: str = "") -> Any:
    """Wait for what `condition` gives to be true, and return it."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        found = await condition()
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"in vain: {what or condition}"
        await asyncio.sleep(0.02)


@dataclass
class Node:
    """One server, which may end and begin again."""

    kind: str
    name: str
    directory: Path
    leafnodes: str
    domain: str = ""
    more: str = ""  # of the configuration
    port: int = field(default_factory=lasting_port)
    leaf_port: int = field(default_factory=lasting_port)
    monitor_port: int = field(default_factory=lasting_port)
    _running: Any = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def leaf_url(self) -> str:
        """Where leaf nodes connect."""
        return f"nats-leaf://127.0.0.1:{self.leaf_port}"

    def configuration(self) -> str:
        """The text of its file."""
        domain = f"domain: {self.domain}" if self.domain else ""
        return f"""
            server_name: {self.name}
            listen: "127.0.0.1:{self.port}"
            http: "127.0.0.1:{self.monitor_port}"
            jetstream {{
              store_dir: "{self.directory / self.name}"
              {domain}
            }}
            leafnodes {{
              reconnect: "100ms"
              {self.leafnodes.replace("LEAF_PORT", str(self.leaf_port))}
            }}
            {self.more}
        """

    async def start(self) -> None:
        """Start, and wait until clients can connect."""
        path = self.directory / f"{self.name}.conf"
        path.write_text(self.configuration())
        if self.kind == NATS:
            self._running = await asyncio.to_thread(self._spawn, path)
            await until(self.is_open, f"{self.name} does not start")
        else:
            self._running = Server(config=load_options(str(path)))
            await self._running.start_here()

    def _spawn(self, path: Path) -> "subprocess.Popen[bytes]":
        with (self.directory / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen([find_nats_server(), "-c", str(path)], stderr=log)

    async def is_open(self) -> bool:
        """Whether the port is there."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> None:
        """End, if it runs."""
        running, self._running = self._running, None
        if running is None:
            return
        if self.kind == NATS:
            running.terminate()
            await asyncio.to_thread(running.wait)
        else:
            await running.stop_here()

    def reload(self, options: ServerOptions) -> None:
        """Go on with other options; for Slipstream."""
        self._running.reload_here(options)

    def kill(self) -> None:
        """End a nats-server without a word."""
        self._running.kill()
        self._running.wait()
        self._running = None

    async def monitor(self, path: str) -> Any:
        """What an endpoint says."""
        url = f"http://127.0.0.1:{self.monitor_port}{path}"

        def get() -> Any:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)

        return await asyncio.to_thread(get)

    async def links(self) -> list[dict[str, Any]]:
        """Its links, as /leafz has them."""
        found = await self.monitor("/leafz?subs=1")
        return found["leafs"] or []


@dataclass
class Pair:
    """A hub, and a server that is a leaf of it."""

    hub: Node
    leaf: Node

    async def is_linked(self) -> bool:
        """Whether both know of each other, and of each other's interest."""
        both = await self.hub.links() + await self.leaf.links()
        return len(both) == 2 and all(link["subscriptions"] for link in both)


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Servers that are started in their order, and end with the test."""
    try:
        for node in nodes:
            await node.start()
        yield
    finally:
        for node in reversed(nodes):
            await node.stop()


def make_pair(
    kinds: tuple[str, str],
    directory: Path,
    *,
    hub: str = "",
    remote: str = "",
    user: str = "",
    hub_more: str = "",
    leaf_more: str = "",
    domains: tuple[str, str] = ("hub", "leaf"),
) -> Pair:
    """A pair that has not been started; `hub` and `remote` are more of their `leafnodes` blocks."""
    first = Node(
        kinds[0],
        "HUB",
        directory,
        f'listen: "127.0.0.1:LEAF_PORT"\n{hub}',
        domains[0],
        hub_more,
    )
    url = first.leaf_url.replace("//", f"//{user}@") if user else first.leaf_url
    second = Node(
        kinds[1],
        "LEAF",
        directory,
        f'remotes: [ {{ url: "{url}"\n{remote} }} ]',
        domains[1],
        leaf_more,
    )
    return Pair(first, second)


@asynccontextmanager
async def linked(kinds: tuple[str, str], directory: Path, **more: Any) -> AsyncIterator[Pair]:
    """A pair that is linked."""
    pair = make_pair(kinds, directory, **more)
    async with running(pair.hub, pair.leaf):
        await until(pair.is_linked, "the servers are not linked")
        yield pair
