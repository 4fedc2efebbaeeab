"""Files of one server of a group that are damaged: it gets whole ones from another server, and what
it cannot read any more is lost to nobody."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import StreamConfig
from tests.server.group.waiting import until
from tests.server.replica.serving import Served, ServedGroup, stored

COUNT = 50
FETCHED = "fetched from another server"


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ServedGroup]:
    async with ServedGroup(tmp_path) as group:
        yield group


def flip_behind_the_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    size = len(data.rstrip(b"\0"))
    data[size - size // 16 - 1] ^= 4
    path.write_bytes(data)


def damage_all(paths: Iterable[Path]) -> None:
    found = list(paths)
    assert found
    for path in found:
        flip_behind_the_header(path)


async def all_is_noted(nc: Any, server: Served) -> None:
    """What it has is durable, so that entries that made it are not applied once more; both copies
    of the note are there."""
    for number in range(2):
        before = noted(server)
        await nc.jetstream().publish("s.last", b"last %d" % number)
        await until(lambda before=before: is_new(noted(server), before), "all is noted")


def is_new(found: list[bytes], before: list[bytes]) -> bool:
    """Whether there is another note, and none is just being written."""
    return found != before and all(note.rstrip(b"\0") for note in found)


def noted(server: Served) -> list[bytes]:
    return [path.read_bytes() for path in sorted(server.directory.glob("store/applied.?"))]


async def all_have_the_same_files(group: ServedGroup) -> Served:
    """The leader, once the others have what it has."""
    leader = await group.leader()
    for other in group.others(leader):
        await until(
            lambda other=other: other.files == leader.files, "all servers have the same files"
        )
    return leader


async def all_is_stored(group: ServedGroup, nc: Any) -> Served:
    """Store messages; the leader, once what the commit log has of them is where it belongs, and all
    servers have the same files."""
    js = nc.jetstream()
    await js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    for number in range(COUNT):
        await js.publish("s.a", b"%d" % number)
    first = await group.leader()
    await first.end(signal.SIGTERM)
    await first.start()
    return await all_have_the_same_files(group)


@asynccontextmanager
async def damaged_follower(group: ServedGroup, pattern: str) -> AsyncIterator[tuple[Any, Served]]:
    """A client, and a follower that has started on damaged files. Nobody has read them yet."""
    async with group.client() as nc:
        leader = await all_is_stored(group, nc)
        follower = group.others(leader)[0]
        await all_is_noted(nc, follower)
        await follower.end()
        damage_all((follower.directory / "store").glob(pattern))
        await follower.start()
        yield nc, follower


async def everything_when_led_by(group: ServedGroup, nc: Any, server: Served) -> list[bytes]:
    """All messages, in order, once this server leads."""
    while True:
        try:
            if (await group.leader()) is not server:
                request = b'{"placement": {"preferred": "%s"}}' % server.name.encode()
                await nc.request("$JS.API.STREAM.LEADER.STEPDOWN.S", request, timeout=2)
                await asyncio.sleep(0.2)
                continue
            return list(await stored(nc, "S"))
        except slipstream.Error:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "pattern",
    ["files/jetstream/*/S/msgs/*.seg", "files/jetstream/*/S/meta.?", "applied.?"],
    ids=["messages", "configurations", "notes"],
)
async def test_a_server_with_damaged_files_gets_whole_ones(
    group: ServedGroup, pattern: str
) -> None:
    async with damaged_follower(group, pattern) as (nc, follower):
        found = await everything_when_led_by(group, nc, follower)
        assert found[:COUNT] == [b"%d" % number for number in range(COUNT)]
    assert FETCHED in follower.log
    await all_have_the_same_files(group)


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_is_damaged_on_all_servers_keeps_none_from_leading(
    group: ServedGroup, restarts: bool
) -> None:
    async with group.client() as nc:
        await all_is_stored(group, nc)
        for server in group.servers:
            await all_is_noted(nc, server)
    for server in group.servers:
        await server.end()
    for server in group.servers:
        damage_all((server.directory / "store").glob("files/jetstream/*/S/msgs/*.seg"))
        await server.start()
    if restarts:
        await until(lambda: any(FETCHED in one.log for one in group.servers), "one has found it")
        for server in group.servers:
            await server.end()
        for server in group.servers:
            await server.start()
    await group.leader()
    async with group.client() as nc:
        found = await everything_when_led_by(group, nc, await group.leader())
        assert len(found) >= COUNT - 2  # a bit has turned in one message, on each server
        await nc.jetstream().publish("s.a", b"more")
    await all_have_the_same_files(group)
