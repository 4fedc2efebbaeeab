"""Servers of a group as processes, with their register in a bucket of a real nats-server."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import slipstream
from slipstream.client.jetstream import StreamConfig
from tests.fix_nats_server import NatsServer
from tests.server.group.waiting import LIMIT
from tests.server.replica.serving import Publishers, ServedGroup, followers, stored

BUCKET = "groups"
Serve = Callable[[int], AbstractAsyncContextManager[ServedGroup]]


@pytest.fixture
async def serve(tmp_path: Path, nats_server: NatsServer) -> Serve:
    """Makes a group of so many servers."""
    async with await slipstream.connect(nats_server.url) as nc:
        await nc.jetstream().create_key_value(BUCKET)
    register = f'register {{ url: "{nats_server.url}", bucket: {BUCKET} }}'
    config = tmp_path / "group.conf"
    config.write_text(f"cluster {{ {register} }}\n")

    @asynccontextmanager
    async def served(size: int) -> AsyncIterator[ServedGroup]:
        async with ServedGroup(tmp_path, size, "-c", str(config)) as group:
            yield group

    return served


async def make_stream(nc: slipstream.Connection) -> None:
    """Once there is a leader that answers."""
    while True:
        try:
            await nc.jetstream().create_or_update_stream(StreamConfig(name="S", subjects=["s.>"]))
        except slipstream.Error:
            await asyncio.sleep(0.05)
        else:
            return


async def until_current(nc: slipstream.Connection, *names: str) -> None:
    """Wait until these servers follow, and have everything."""
    async with asyncio.timeout(LIMIT):
        while True:
            if await followers(nc, "S") == dict.fromkeys(names, True):
                return
            await asyncio.sleep(0.05)


def lost(publishers: Publishers, found: dict[bytes, list[int]]) -> list[bytes]:
    """What was acknowledged, and is not there."""
    return [
        body
        for body, sequence in publishers.acknowledged.items()
        if sequence not in found.get(body, [])
    ]


async def test_leaders_change_by_a_bucket_and_go_on_while_it_is_away(
    serve: Serve, nats_server: NatsServer
) -> None:
    async with serve(3) as group, group.client() as nc:
        await make_stream(nc)
        publishers = Publishers(nc, "s.a")
        await publishers.more(100)
        first = await group.leader()
        await first.end()
        await publishers.more(100)
        second = await group.leader()
        nats_server.process.send_signal(signal.SIGSTOP)
        try:
            await publishers.more(100)
            await first.start()  # a follower comes back, which needs no register
            await until_current(nc, *(server.name for server in group.others(second)))
            await publishers.more(100)
        finally:
            nats_server.process.send_signal(signal.SIGCONT)
        assert await group.leader() is second
        await second.end()
        await publishers.more(100)
        await publishers.stop()
        assert not lost(publishers, await stored(nc, "S"))


async def test_either_of_two_goes_on_alone_and_loses_nothing(serve: Serve) -> None:
    async with serve(2) as group, group.client() as nc:
        await make_stream(nc)
        publishers = Publishers(nc, "s.a")
        for kill_leader in (True, False):
            await publishers.more(50)
            leader = await group.leader()
            (other,) = group.others(leader)
            gone, stays = (leader, other) if kill_leader else (other, leader)
            await gone.end()
            await publishers.more(50)
            assert f"{stays.name} goes on alone" in stays.log
            await gone.start()
            await until_current(nc, gone.name)
        await publishers.stop()
        assert not lost(publishers, await stored(nc, "S"))
