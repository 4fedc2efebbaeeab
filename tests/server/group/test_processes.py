"""Three processes on loopback, each with files: killed, stopped, continued."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fix_server_process import environment
from tests.lasting_ports import lasting_port
from tests.server.group.waiting import LIMIT, until

ROOT = Path(__file__).parent.parent.parent.parent
NAMES = ("n1", "n2", "n3")
LINE_MAX = 16 * 1024 * 1024


class Process:
    """One server, as a process."""

    def __init__(self, name: str, ports: dict[str, int], directory: Path) -> None:
        self.name = name
        self.acknowledged: list[int] = []
        self._settings = {
            "name": name,
            "port": ports[name],
            "routes": list(ports.values()),
            "directory": str(directory / name),
        }
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._log = directory / f"{name}.log"

    async def start(self) -> None:
        self._answers = asyncio.Queue()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.server.group.member_process",
                json.dumps(self._settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=environment(),
                limit=LINE_MAX,
            )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            found = json.loads(line)
            if "acknowledged" in found:
                self.acknowledged += found["acknowledged"]
            else:
                self._answers.put_nowait(found)

    def tell(self, do: str, **what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")

    async def answer(self, key: str) -> Any:
        async with asyncio.timeout(LIMIT):
            while True:
                found = await self._answers.get()
                if key in found:
                    return found[key]

    async def status(self) -> dict[str, Any]:
        self.tell("status")
        found: dict[str, Any] = await self.answer("status")
        return found

    async def history(self, index: int) -> list[int]:
        self.tell("history", index=index)
        found: list[int] = await self.answer("history")
        return found

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None and self._process.returncode is None:
            self.send(number)
            await self._process.wait()
        if self._reading is not None:
            await self._reading


Group = dict[str, Process]


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    ports = {name: lasting_port() for name in NAMES}
    found = {name: Process(name, ports, tmp_path) for name in NAMES}
    await asyncio.gather(*(process.start() for process in found.values()))
    yield found
    await asyncio.gather(*(process.end() for process in found.values()))


async def leader_of(group: Group, *but: str) -> Process:
    """Who serves, of all but some, which may not answer."""
    async with asyncio.timeout(LIMIT):
        while True:
            for process in group.values():
                if process.name not in but and (await process.status())["epoch"]:
                    return process
            await asyncio.sleep(0.02)


async def until_it_says(process: Process, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the status of a server is so."""
    async with asyncio.timeout(LIMIT):
        while True:
            if is_so(await process.status()):
                return
            await asyncio.sleep(0.02)


async def committed(process: Process, index: int) -> None:
    """Wait until a server knows that all up to `index` is committed."""
    await until_it_says(process, lambda status: status["committed"] >= index)


def check(acknowledged: list[int], history: list[int]) -> None:
    """Each acknowledged number is there once, and in order."""
    assert len(set(history)) == len(history)
    assert not set(acknowledged) - set(history)
    assert history == sorted(history)


async def test_what_was_acknowledged_survives_kill_9_of_the_leader(group: Group) -> None:
    first = await leader_of(group)
    first.tell("append", first=0, count=10_000, window=500)
    await until(lambda: len(first.acknowledged) >= 4000, "it has acknowledged some")
    await first.end()
    killed_with = len(first.acknowledged)
    second = await leader_of(group, first.name)
    second.tell("append", first=10_000, count=10_000, window=500)
    assert await second.answer("appended") == {"unknown": 0, "refused": 0}
    acknowledged = first.acknowledged + second.acknowledged
    assert len(acknowledged) == killed_with + 10_000
    index = (await second.status())["committed"]
    survivors = [process for process in group.values() if process is not first]
    histories = []
    for process in survivors:
        await committed(process, index)
        histories.append(await process.history(index))
        check(acknowledged, histories[-1])
    await first.start()
    await committed(first, index)
    assert await first.history(index) == histories[0] == histories[1]


async def test_all_are_killed_at_once_and_keep_what_they_have_acknowledged(group: Group) -> None:
    leader = await leader_of(group)
    leader.tell("append", first=0, count=1_000_000, window=500)
    await until(lambda: len(leader.acknowledged) >= 3000, "it has acknowledged some")
    await asyncio.gather(*(process.end() for process in group.values()))
    acknowledged = list(leader.acknowledged)
    await asyncio.gather(*(process.start() for process in group.values()))
    leader = await leader_of(group)
    index = (await leader.status())["committed"]
    for process in group.values():
        await committed(process, index)
        check(acknowledged, await process.history(index))


@pytest.mark.parametrize("stops_leader", [True, False])
async def test_a_server_that_is_stopped_for_a_while_and_goes_on_is_one_of_them_again(
    group: Group, stops_leader: bool
) -> None:
    leader = await leader_of(group)
    stopped = leader
    if not stops_leader:
        stopped = next(process for process in group.values() if process is not leader)
    leader.tell("append", first=0, count=1000, window=100)
    assert await leader.answer("appended") == {"unknown": 0, "refused": 0}
    stopped.send(signal.SIGSTOP)
    second = await leader_of(group, stopped.name)
    second.tell("append", first=1000, count=5000, window=100)
    assert await second.answer("appended") == {"unknown": 0, "refused": 0}
    index = (await second.status())["committed"]
    await until_it_says(second, lambda status: stopped.name not in status["links"])
    stopped.send(signal.SIGCONT)
    await committed(stopped, index)
    assert await stopped.history(index) == list(range(6000))
    status = await stopped.status()
    assert not status["failed"]
    assert not status["epoch"]
