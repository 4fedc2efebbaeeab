"""Servers that are lost with their disks, join and leave, as processes, while clients publish."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from slipstream.client.jetstream import StreamConfig
from tests.server.group.waiting import LIMIT, until
from tests.server.replica.serving import Publishers, ServedGroup, followers, stored

JOINED = "The group C has the servers n1, n2, n3"


async def all_follow(nc: Any, *names: str) -> None:
    """These servers, and the leader, have everything."""

    async with asyncio.timeout(LIMIT):
        while True:
            found = await followers(nc, "S")
            if set(found) <= set(names) and len(found) == len(names) - 1 and all(found.values()):
                return
            await asyncio.sleep(0.05)


async def test_servers_whose_disks_are_lost_join_anew_one_after_the_other(tmp_path: Path) -> None:
    async with ServedGroup(tmp_path) as group, group.client() as nc:
        await nc.jetstream().create_stream(StreamConfig(name="S", subjects=["s.>"]))
        publishers = Publishers(nc, "s.a")
        for server in group.servers:  # until nothing is left of the first three disks
            await publishers.more(200)
            await server.end()
            shutil.rmtree(server.directory)
            await publishers.more(100)
            joined = server.log.count(JOINED)
            await server.start()
            await until(
                lambda server=server, joined=joined: server.log.count(JOINED) > joined,
                f"{server.name} has joined",
            )
            await all_follow(nc, *(one.name for one in group.servers))
        await publishers.more(200)
        await (await group.leader()).end()
        await publishers.more(200)
        await publishers.stop()
        found = await stored(nc, "S")
        lost = [
            body for body, at in publishers.acknowledged.items() if at not in found.get(body, [])
        ]
        assert lost == []


async def test_a_group_grows_from_one_server_to_three(tmp_path: Path) -> None:
    group = ServedGroup(tmp_path)
    first = group.servers[0]
    routes = first.routes
    first.routes = routes[:1]
    await first.start()
    await group.leader()
    try:
        async with group.client() as nc:
            await nc.jetstream().create_stream(StreamConfig(name="S", subjects=["s.>"]))
            publishers = Publishers(nc, "s.a")
            await publishers.more(300)
            await first.end()
            first.routes = routes
            await asyncio.gather(*(server.start() for server in group.servers))
            await all_follow(nc, "n1", "n2", "n3")
            await publishers.more(300)
            await first.end()
            await publishers.more(300)
            await publishers.stop()
            found = await stored(nc, "S")
            assert publishers.acknowledged.keys() <= found.keys()
    finally:
        await asyncio.gather(*(server.end() for server in group.servers))
