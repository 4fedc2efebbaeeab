"""One round: servers start, clients publish, something fails, all is mended and compared."""

import asyncio
import base64
import json
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import slipstream
from tests.group_failures.checker import Verdict, judge
from tests.group_failures.faults import Fault, Field, leader_of
from tests.group_failures.load import STREAM, SUBJECT, Load, connect
from tests.group_failures.network import Network, have_own_mounts, on_thread
from tests.group_failures.servers import Served, ServerEndedError, empty, make_servers

SERVES_SECONDS_MAX = 40.0
LEADS_SECONDS_MAX = 20.0
WINDOW = 10 * 24 * 3600 * 10**9  # ns; longer than any clock is off: ids are forgotten by it
AT_ONCE = 64  # messages that are asked for at a time
NOT_FOUND = 10037
NO_STREAM = 10059


@dataclass
class Round:
    """What is to be done. `kind` is the program that serves: see `make_servers`."""

    seed: int
    faults: Sequence[type[Fault]]
    size: int = 3
    kind: str = "slipstream"
    warm: int = 150  # acknowledgements before anything fails
    after: int = 80  # ... and after all is mended


@dataclass
class Outcome:
    """What has come of it."""

    round: Round
    verdict: Verdict
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """In one line."""
        faults = "+".join(one.name for one in self.round.faults)
        found = ", ".join(f"{count} {name}" for name, count in self.verdict.counts.items())
        return (
            f"{self.round.kind} seed {self.round.seed} of {self.round.size} {faults}: "
            f"{self.verdict.acknowledged} acknowledged, {found or 'nothing broken'} "
            f"({self.seconds:.1f} s)"
        )


def play(one: Round, directory: Path, libraries: Path) -> Outcome:
    """Do a round; `directory` is made, and has the stores afterwards. `libraries` has what is
    preloaded into servers."""
    directory.mkdir(parents=True)

    def run() -> Outcome:
        have_own_mounts()
        network = Network(one.size, one.seed)
        try:
            return asyncio.run(_play(one, directory, libraries, network))
        finally:
            network.close()

    return on_thread(run)


async def _play(one: Round, directory: Path, libraries: Path, network: Network) -> Outcome:
    began = time.monotonic()
    random = Random(f"{one.seed}/round")
    servers = make_servers(
        network, one.size, directory, one.kind, libraries,
        recorded=any(fault.records for fault in one.faults),
        clocks=any(fault.clocks for fault in one.faults),
        is_small=random.random() < 0.7,
    )  # fmt: skip
    notes: list[str] = []
    try:
        verdict = await _live(one, servers, network, random, notes)
    finally:
        for server in servers:
            server.kill()
        if one.kind != "slipstream":
            _copy_images(servers)
        for server in servers:
            server.disk.close()
    return Outcome(one, verdict, notes, time.monotonic() - began)


def _copy_images(servers: list[Served]) -> None:
    """What is on a file system that is about to go, for who looks at the round."""
    for server in servers:
        path = server.disk.path
        shutil.copytree(path, path.with_name(f"{path.name}.files"), dirs_exist_ok=True)


async def _live(
    one: Round, servers: list[Served], network: Network, random: Random, notes: list[str]
) -> Verdict:
    load = Load(servers, one.seed)
    await asyncio.gather(*(server.start() for server in servers))
    broken = Verdict()
    found: dict[str, dict[int, bytes]] = {}
    async with _asking([server.url for server in servers]) as nc:
        await _make_stream(nc, one.size)
        await load.start()
        await load.more(one.warm, SERVES_SECONDS_MAX)
        for server in servers:
            server.disk.settle()
        await load.more(one.warm // 2, SERVES_SECONDS_MAX)
        at = Field(network, servers, random, load, nc, notes)
        try:
            for fault in one.faults:
                await fault().strike(at)
        except ServerEndedError as error:
            broken.add("ended", [str(error)])
        await _mend(network, servers, broken)
        await _replace(servers, notes)
        if not await load.more(one.after, SERVES_SECONDS_MAX):
            broken.add("stall", [f"the group does not serve in {SERVES_SECONDS_MAX:.0f} s"])
        await load.stop()
        for server in servers:
            contents = await _read_as_leader(nc, server, broken)
            if contents is not None:
                found[server.name] = contents
    verdict = judge(load.attempts, load.reads, found)
    verdict.counts |= broken.counts
    verdict.words += broken.words
    return verdict


async def _mend(network: Network, servers: list[Served], broken: Verdict) -> None:
    """All links are whole, all clocks right, and all processes run."""
    network.mend()
    for server in servers:
        server.set_clock(0)
        if server.is_paused:
            server.resume()
    for server in servers:
        if not server.is_running:
            try:
                await server.start()
            except ServerEndedError as error:
                broken.add("ended", [str(error)])


async def _replace(servers: list[Served], notes: list[str]) -> None:
    """What an operator does with a server that says it cannot take part any more, because nobody
    knows what it has promised: it gets an empty disk, and joins anew."""
    for server in servers:
        if server.is_out:
            notes.append(f"{server.name} takes no part, and gets an empty disk")
            server.kill()
            empty(server.disk)
            await server.start()


@asynccontextmanager
async def _asking(urls: list[str]) -> AsyncIterator[Any]:
    nc = await connect(urls)
    try:
        yield nc
    finally:
        await nc.close()


async def _ask(nc: Any, what: str, request: dict[str, Any]) -> dict[str, Any]:
    """An answer of the API; that there was none is one, too."""
    try:
        answer = await nc.request(f"$JS.API.{what}", json.dumps(request).encode(), timeout=5)
    except slipstream.Error as error:
        return {"error": {"description": str(error), "err_code": 0}}
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def _make_stream(nc: Any, replicas: int) -> None:
    request = {"name": STREAM, "subjects": [f"{SUBJECT}.>"], "num_replicas": replicas,
               "retention": "limits", "storage": "file", "duplicate_window": WINDOW}  # fmt: skip
    deadline = time.monotonic() + SERVES_SECONDS_MAX
    while "config" not in (answer := await _ask(nc, f"STREAM.CREATE.{STREAM}", request)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"there is no stream after {SERVES_SECONDS_MAX:.0f} s: {answer}")
        await asyncio.sleep(0.1)


async def _read_as_leader(nc: Any, server: Served, broken: Verdict) -> dict[int, bytes] | None:
    """Have a server lead, and read all that it has."""
    deadline = time.monotonic() + LEADS_SECONDS_MAX
    told, is_gone = "", False
    while time.monotonic() < deadline:
        if await leader_of(nc) != server.name:
            request = {"placement": {"preferred": server.name}}
            answer = await _ask(nc, f"STREAM.LEADER.STEPDOWN.{STREAM}", request)
            told = str(answer.get("error", ""))
            is_gone = answer.get("error", {}).get("err_code") == NO_STREAM
            await asyncio.sleep(0.2)
            continue
        info = await _ask(nc, f"STREAM.INFO.{STREAM}", {})
        if "state" not in info:
            continue
        state = info["state"]
        contents = await _read(nc, state["first_seq"], state["last_seq"])
        if contents is not None and await leader_of(nc) == server.name:
            return contents
    if is_gone:
        broken.add("gone", ["there is no stream"])
        return {}
    broken.add("unled", [f"{server.name} does not lead in {LEADS_SECONDS_MAX:.0f} s: {told}"])
    return None


async def _read(nc: Any, first: int, last: int) -> dict[int, bytes] | None:
    """The messages of the stream by sequence; None if somebody has not answered."""
    found: dict[int, bytes] = {}

    async def get(sequence: int) -> bool:
        answer = await _ask(nc, f"STREAM.MSG.GET.{STREAM}", {"seq": sequence})
        if "message" in answer:
            body = base64.b64decode(answer["message"]["data"])
            found[sequence] = body.split(b" ")[0]
            return True
        return bool(answer["error"]["err_code"] == NOT_FOUND)

    for start in range(max(first, 1), last + 1, AT_ONCE):
        part = range(start, min(start + AT_ONCE, last + 1))
        if not all(await asyncio.gather(*(get(sequence) for sequence in part))):
            return None
    return found
