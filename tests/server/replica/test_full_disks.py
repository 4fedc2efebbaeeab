"""Servers of a group whose file systems are really full: each has a tmpfs in a mount namespace of
its own. The simulated disk fills up in `tests/testing` and in `tests/server/group`.
"""

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream.errors import ApiError
from tests.fix_nats_server import NatsServer
from tests.server.group.waiting import until
from tests.server.replica.serving import Served, ServedGroup, followers

IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size={size}m tmpfs "$0" && exec "$@"'
BODY = bytes(64 * 1024)
SMALL, ROOMY = 32, 192  # MB
MANY = 384  # bodies, which a small disk cannot hold twice: in the group's log and in the stream


def in_mount(directory: Path, size: int) -> tuple[str, ...]:
    """What a command begins with that has a small file system at `directory`."""
    return (*IN_NAMESPACE, "sh", "-c", MOUNT.format(size=size), str(directory))


@pytest.fixture(autouse=True)
def _mounts(tmp_path: Path) -> None:
    probe = (*in_mount(tmp_path, 1), "true")
    if not shutil.which("unshare") or subprocess.run(probe, check=False).returncode:
        pytest.skip("this system lets no user mount a tmpfs in a namespace of its own")


class SmallDisks(ServedGroup):
    """A group of which some servers have small disks."""

    def __init__(self, directory: Path, small: set[str], size: int = 3, *more: str) -> None:
        super().__init__(directory, size, *more)
        for server in self.servers:
            server.directory.mkdir()
            size = SMALL if server.name in small else ROOMY
            server.before = in_mount(server.directory, size)

    async def lead(self, name: str) -> None:
        """Have a server lead, and the stream."""
        async with await self.client() as nc:
            replicas = len(self.servers)
            await nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=replicas)
        while (await self.leader()).name != name:
            async with await self.client() as nc:
                asked = b'{"placement": {"preferred": "%s"}}' % name.encode()
                await nc.request("$JS.API.STREAM.LEADER.STEPDOWN.S", asked, timeout=5)
            await asyncio.sleep(0.2)


async def publish(nc: Any, count: int) -> int:
    """The highest sequence of so many messages, each of which is tried until it is stored."""
    seqs: list[int] = []

    async def publish_some() -> None:
        while len(seqs) < count:
            try:
                seqs.append((await nc.jetstream().publish("s", BODY, timeout=5)).sequence)
            except slipstream.Error:
                await asyncio.sleep(0.05)

    async with asyncio.timeout(60):
        await asyncio.gather(*(publish_some() for _ in range(8)))
    return max(seqs)


async def fill_up(js: Any, at_once: int = 1) -> ApiError:
    """Publish until the leader refuses, each time so many `at_once`; its word."""
    for _ in range(1000 // at_once):
        publishing = [js.publish("s", BODY, timeout=20) for _ in range(at_once)]
        for found in await asyncio.gather(*publishing, return_exceptions=True):
            if isinstance(found, ApiError):
                return found
    raise AssertionError(f"disks of {SMALL} MB took 64 MB")


async def has_caught_up(nc: Any, name: str) -> None:
    """Wait until a follower has nearly all."""
    async with asyncio.timeout(60):
        while True:
            if (await followers(nc, "S")).get(name):
                return
            await asyncio.sleep(0.1)


def give_space(server: Served) -> None:
    """Have the file system of a server be larger from now on."""
    size = f"remount,size={ROOMY}m"
    inside = ("nsenter", "-U", "-m", "--preserve-credentials", "-t", str(server.pid))
    subprocess.run((*inside, "mount", "-o", size, str(server.directory)), check=True)


async def test_a_follower_whose_disk_was_full_catches_up(tmp_path: Path) -> None:
    async with SmallDisks(tmp_path, {"n3"}) as group:
        await group.lead("n1")
        async with await group.client() as nc:
            await publish(nc, 2 * MANY)  # its log alone does not hold them
            full = group.servers[2]
            assert "The disk of this server is full" in full.log
            assert not (await followers(nc, "S"))["n3"]
            give_space(full)
            await until(lambda: "has space again" in full.log, "there is space")
            await has_caught_up(nc, "n3")
            assert (await group.leader()).name == "n1"
            assert full.log.count("The disk of this server is full") == 1


async def test_a_leader_whose_disk_is_full_has_another_server_lead(tmp_path: Path) -> None:
    async with SmallDisks(tmp_path, {"n3"}) as group:
        await group.lead("n3")
        async with await group.client() as nc:
            last = await publish(nc, MANY)
            assert last >= MANY
            assert (await group.leader()).name != "n3"
            info = await nc.jetstream().api.request("STREAM.INFO.S")
            assert info["state"]["messages"] >= MANY


@pytest.mark.parametrize("leads", ["n1", "n2"])
async def test_of_two_servers_the_one_that_has_space_goes_on_alone(
    tmp_path: Path, nats_server: NatsServer, leads: str
) -> None:
    async with await slipstream.connect(nats_server.url) as nc:
        await nc.jetstream().create_key_value("groups")
    config = tmp_path / "group.conf"
    config.write_text(f'cluster {{ register {{ url: "{nats_server.url}", bucket: groups }} }}\n')
    async with SmallDisks(tmp_path, {"n1"}, 2, "-c", str(config)) as group:
        await group.lead(leads)
        full, other = group.servers
        async with await group.client() as nc:
            stored = await publish(nc, 2 * MANY)
            await until(lambda: "n2 goes on alone" in other.log, "the other one is alone")
            assert (await group.leader()).name == "n2"
            give_space(full)
            await has_caught_up(nc, "n1")
            assert await publish(nc, 1) > stored


async def test_where_the_followers_disks_are_full_the_leader_refuses_and_reads_go_on(
    tmp_path: Path,
) -> None:
    async with SmallDisks(tmp_path, {"n2", "n3"}) as group:
        await group.lead("n1")
        leader = group.servers[0]
        async with await group.client() as nc:
            js = nc.jetstream()
            refused = await fill_up(js, at_once=64)
            assert refused.err_code == 10077
            stream = await js.stream("S")
            stored = (await stream.info()).state.messages
            assert (await stream.get_message(stored)).data == BODY
            assert "are full, or nearly, and the others are no majority" in leader.log
            assert (await group.leader()).name == "n1"
        async with asyncio.timeout(20):  # nothing that waits for space holds it up
            await leader.end(signal.SIGTERM)
        for server in group.others(leader):
            give_space(server)
        await leader.start()
        async with await group.client() as nc:
            assert await publish(nc, 10) > stored


async def test_where_all_disks_are_full_publishes_are_refused_until_there_is_space(
    tmp_path: Path,
) -> None:
    async with SmallDisks(tmp_path, {"n1", "n2", "n3"}) as group, await group.client() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"], num_replicas=3)
        assert (await fill_up(js)).err_code == 10077
        stored = (await stream.info()).state.messages
        assert (await stream.get_message(stored)).data == BODY
        await stream.delete_message(1)
        assert (await stream.info()).state.messages == stored - 1
        for server in group.servers:
            give_space(server)
        assert await publish(nc, 10) > stored
