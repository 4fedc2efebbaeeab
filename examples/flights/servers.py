"""Three servers on this machine that act as one, each a process: started, killed, started again."""

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path
from time import perf_counter

import slipstream
from slipstream.client.errors import ConnectError
from slipstream.server.replica.free_ports import free_ports

HOST = "127.0.0.1"
COUNT = 3
LOOK_SECONDS = 0.05
WAIT_SECONDS = 60.0


class Servers:
    """The servers n1, n2 and n3, with stores, configurations and logs in a directory."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2 * COUNT, HOST)
        routes, password = ports[COUNT:], secrets.token_urlsafe(16)
        self._directory = directory
        self._ports = {f"n{number + 1}": ports[number] for number in range(COUNT)}
        self._processes: dict[str, Process] = {}
        directory.mkdir(parents=True, exist_ok=True)
        listed = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
        for name, route in zip(self._ports, routes, strict=True):
            (directory / f"{name}.conf").write_text(
                f"server_name: {name}\n"
                f'listen: "{HOST}:{self._ports[name]}"\n'
                f'jetstream {{ store_dir: "{directory / name}" }}\n'
                "cluster {\n"
                f'  name: flights, listen: "{HOST}:{route}", routes: [{listed}]\n'
                f'  authorization {{ user: group, password: "{password}" }}\n'
                "}\n"
            )

    @property
    def urls(self) -> str:
        """Where clients connect: all of them, with commas between."""
        return ",".join(self._url(name) for name in self._ports)

    def _url(self, name: str) -> str:
        return f"nats://{HOST}:{self._ports[name]}"

    async def __aenter__(self) -> "Servers":
        for name in self._ports:
            await self._start(name)
        leader = await self.leader()
        for name, process in self._processes.items():
            role = "leads" if name == leader else "follows"
            print(f"  {name}  {self._url(name)}  process {process.pid:<7} {role}", flush=True)
        return self

    async def __aexit__(self, *error: object) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _start(self, name: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "slipstream", "serve", "-c", f"{self._directory}/{name}.conf",
                stdin=DEVNULL, stdout=log, stderr=log, env=os.environ, start_new_session=True,
            )  # fmt: skip

    async def leader(self) -> str:
        """Who leads, once the servers that run say the same. Exits if they do not."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    running = [n for n, p in self._processes.items() if p.returncode is None]
                    found = await asyncio.gather(*(self._leader_by(name) for name in running))
                    if found[0] in running and len(set(found)) == 1:
                        return found[0]
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            sys.exit(f"nobody leads after {WAIT_SECONDS:g} s; the logs are in {self._directory}")

    async def _leader_by(self, name: str) -> str:
        """Who leads, as a client is told that comes to a server; "" if nobody says so."""
        try:
            async with slipstream.connect(self._url(name), reconnect=False) as nc:
                return nc.server_info.server_name
        except ConnectError:
            return ""

    async def kill_leader(self, meanwhile: str) -> None:
        """SIGKILL for the one that leads; it is started again when another one leads."""
        killed = await self.leader()
        self._processes[killed].kill()
        await self._processes[killed].wait()
        begun = perf_counter()
        print(f"  ✗ SIGKILL for {killed}, which leads: {meanwhile}", flush=True)
        leader = await self.leader()
        seconds = perf_counter() - begun
        await self._start(killed)
        print(f"    {leader} leads after {seconds:.1f} s; {killed} is started again", flush=True)

    async def until_all_have_all(self, js: "slipstream.JetStream", stream: str) -> bool:
        """Wait until the followers have what the leader has; whether they come to have it."""
        end = perf_counter() + WAIT_SECONDS
        while perf_counter() < end:
            cluster = (await js.stream_info(stream)).cluster
            replicas = cluster.replicas or [] if cluster is not None else []
            if len(replicas) == COUNT - 1 and all(r.current and not r.offline for r in replicas):
                names = ", ".join(sorted(replica.name for replica in replicas))
                leader = cluster.leader if cluster else ""
                print(f"  {names} have all of {stream} that {leader} has")
                return True
            await asyncio.sleep(LOOK_SECONDS)
        print("  NOT ALL SERVERS HAVE THE SAME")
        return False
