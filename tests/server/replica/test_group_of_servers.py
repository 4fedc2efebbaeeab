"""Three servers that act as one, as processes: what was answered is there, whoever fails."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import slipstream
from slipstream.client.jetstream import Placement, Stream, StreamConfig
from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND
from tests.fix_nats_cluster import ACCOUNTS
from tests.fix_server_process import CLI, environment
from tests.server.group.waiting import until
from tests.server.replica.serving import LOCAL, Publishers, ServedGroup, stored


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ServedGroup]:
    async with ServedGroup(tmp_path) as group:
        yield group


async def make_stream(nc: slipstream.Connection, name: str = "S") -> Stream:
    """Once there is a leader that answers."""
    js = nc.jetstream()
    config = StreamConfig(name=name, subjects=[f"{name.lower()}.>"])
    while True:
        try:
            return await js.create_or_update_stream(config)
        except slipstream.Error:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def publishing(
    group: ServedGroup,
) -> AsyncIterator[tuple[slipstream.Connection, Publishers]]:
    """A client, and publishers on its connection."""
    async with group.client() as nc:
        await make_stream(nc)
        yield nc, Publishers(nc, "s.a")


def lost(publishers: Publishers, found: dict[bytes, list[int]]) -> list[bytes]:
    return [
        body
        for body, sequence in publishers.acknowledged.items()
        if sequence not in found.get(body, [])
    ]


async def test_nothing_answered_is_lost_while_leaders_are_killed(group: ServedGroup) -> None:
    async with publishing(group) as (nc, publishers):
        for _ in range(4):
            await publishers.more(200)
            leader = await group.leader()
            await leader.end()
            await publishers.more(100)
            await leader.start()
        await publishers.more(200)
        await publishers.stop()
        found = await stored(nc, "S")
        assert lost(publishers, found) == []
    await same_files(group)


async def same_files(group: ServedGroup) -> None:
    """The servers come to have the same store, once nothing changes."""

    def are_same() -> bool:
        first, *others = [server.files for server in group.servers]
        return all(one == first for one in others)

    await until(are_same, "all servers have the same files")


async def test_all_killed_at_once_come_back_with_what_was_answered(group: ServedGroup) -> None:
    async with publishing(group) as (nc, publishers):
        for _ in range(2):
            await publishers.more(300)
            await asyncio.gather(*(server.end() for server in group.servers))
            await asyncio.gather(*(server.start() for server in group.servers))
        await publishers.more(100)
        await publishers.stop()
        assert lost(publishers, await stored(nc, "S")) == []


async def test_consumers_keys_and_objects_move_with_the_leader(group: ServedGroup) -> None:
    async with group.client() as nc:
        js = nc.jetstream()
        stream = await make_stream(nc)
        for number in range(10):
            await js.publish("s.a", b"%d" % number)
        consumer = await stream.create_consumer(durable_name="C")
        for message in await consumer.fetch(4):
            await message.ack_sync()
        kv = await js.create_key_value("B")
        revision = await kv.put("key", b"value")
        store = await js.create_object_store("O")
        await store.put("object", b"x" * 300_000)
        leader = await group.leader()
        await leader.end()
        await group.leader()
        consumer = await js.consumer("S", "C")
        assert (await consumer.info()).ack_floor.stream_seq == 4
        assert [m.data for m in await consumer.fetch(1)] == [b"4"]
        entry = await (await js.key_value("B")).get("key")
        assert (entry.data, entry.revision) == (b"value", revision)
        assert await (await js.object_store("O")).get("object") == b"x" * 300_000


async def test_a_server_that_was_away_has_what_the_others_have(group: ServedGroup) -> None:
    async with group.client() as nc:
        await make_stream(nc)
        follower = group.others(await group.leader())[0]
        await follower.end(signal.SIGTERM)
        publishers = Publishers(nc, "s.a")
        await publishers.more(500)
        await make_stream(nc, "T")
        await follower.start()
        await publishers.more(100)
        await publishers.stop()
    await same_files(group)


async def test_without_a_majority_nothing_is_answered(group: ServedGroup) -> None:
    async with group.client() as nc:
        await make_stream(nc)
        js = nc.jetstream()
        await js.publish("s.a", b"before")
        leader = await group.leader()
        others = group.others(leader)
        for other in others:
            other.send(signal.SIGSTOP)
        with pytest.raises(slipstream.Error):
            await js.publish("s.a", b"meanwhile", timeout=4)
        with pytest.raises(slipstream.Error):
            await js.api.request("STREAM.INFO.S", timeout=2)
        for other in others:
            other.send(signal.SIGCONT)
        await group.leader()
        publishers = Publishers(nc, "s.a", 1)
        await publishers.more(1)
        await publishers.stop()
        found = await stored(nc, "S")
        assert b"before" in found
        assert len(found.get(b"meanwhile", [])) <= 1


async def test_a_leader_that_was_stopped_answers_nothing_old(group: ServedGroup) -> None:
    """It was deposed meanwhile: its clients come to the new leader, and so does it itself."""
    async with group.client() as nc:
        await make_stream(nc)
        await nc.jetstream().publish("s.a", b"old")
        leader = await group.leader()
        leader.send(signal.SIGSTOP)
        new = await group.leader()
        assert new is not leader
        async with slipstream.connect(new.url) as other:
            await other.jetstream().publish("s.a", b"new")
            leader.send(signal.SIGCONT)
            async with group.client() as back:
                while True:
                    try:
                        found = await (await back.jetstream().stream("S")).get_last_message("s.a")
                        break
                    except slipstream.Error:
                        await asyncio.sleep(0.02)
                assert found.data == b"new"
        await until(lambda: "leads the group no more" in leader.log, "the old leader follows")


async def test_a_leader_hands_over_when_it_is_asked_or_ends(group: ServedGroup) -> None:
    async with publishing(group) as (nc, publishers):
        await publishers.more(100)
        leader = await group.leader()
        wanted = group.others(leader)[1]
        await nc.request(
            "$JS.API.STREAM.LEADER.STEPDOWN.S",
            json.dumps({"placement": {"preferred": wanted.name}}).encode(),
        )
        await publishers.more(100)
        assert await group.leader(after=leader) is wanted
        await wanted.end(signal.SIGTERM)
        await publishers.more(100)
        await publishers.stop()
        assert lost(publishers, await stored(nc, "S")) == []


async def test_a_leader_goes_on_where_no_other_server_could_lead(group: ServedGroup) -> None:
    """Its clients notice nothing: the store is not closed for that."""
    leader = await group.leader()
    gone = group.others(leader)[0]
    async with slipstream.connect(leader.url) as nc:
        await make_stream(nc)
        await gone.end()
        await silent(nc, gone.name)
        wanted = json.dumps({"placement": {"preferred": gone.name}}).encode()
        await nc.request("$JS.API.STREAM.LEADER.STEPDOWN.S", wanted)
        await until(lambda: "No other server can lead just now" in leader.log, "it is refused")
        await nc.jetstream().publish("s.a", b"x")
        assert nc.stats.reconnects == 0
        assert nc.server_info.server_name == leader.name


async def silent(nc: slipstream.Connection, name: str) -> None:
    """Wait until a follower has not been heard for longer than its promise holds."""
    while True:
        info = await nc.jetstream().api.request("STREAM.INFO.S")
        replicas = {one["name"]: one["active"] for one in info["cluster"]["replicas"]}
        if replicas[name] > 1.5 * SECOND:
            return
        await asyncio.sleep(0.05)


async def test_clients_of_every_server_see_one_cluster(group: ServedGroup) -> None:
    leader = await group.leader()
    others = {server.name for server in group.others(leader)}
    for server in group.servers:
        async with slipstream.connect(server.url) as nc:
            assert nc.server_info.cluster == "C"
            assert nc.server_info.server_name == leader.name
            info = await (await make_stream(nc)).info()
            assert info.cluster is not None
            assert info.cluster.leader == leader.name
            assert {one.name for one in info.cluster.replicas} == others


async def test_every_server_answers_what_all_are_asked(tmp_path: Path) -> None:
    config = tmp_path / "accounts.conf"
    config.write_text(ACCOUNTS + "server_tags: [ssd]\n")
    async with ServedGroup(tmp_path, 3, "-c", str(config)) as group:
        url = (await group.leader()).url.replace("://", "://boss:secret@")
        names: set[str] = set()
        async with slipstream.connect(url) as nc:
            while len(names) < 3:  # until the followers have said what is true of them
                asked = nc.request_many("$SYS.REQ.SERVER.PING", max_messages=3, timeout=0.5)
                found = [json.loads(answer.data) async for answer in asked]
                names = {one["server"]["name"] for one in found}
        assert names == {server.name for server in group.servers}
        assert all(one["server"]["tags"] == ["ssd"] for one in found)
        assert all(one["statsz"]["mem"] > 0 for one in found)
        async with slipstream.connect(group.urls) as nc:
            placement = Placement(tags=["ssd"])
            await nc.jetstream().create_stream(name="S", num_replicas=3, placement=placement)


async def test_a_store_of_a_server_by_itself_is_not_taken_for_a_groups(tmp_path: Path) -> None:
    with slipstream.Server(store_dir=str(tmp_path / "store")):
        pass
    process = await asyncio.create_subprocess_exec(
        *CLI, "serve", "-a", LOCAL, "-p", "-1", "-n", "n1", "-sd", str(tmp_path / "store"),
        "--cluster", f"nats://u:p@{LOCAL}:16222", "--cluster_name", "C",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment(),
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 1
    assert b"is the store of a server by itself" in out


def test_a_server_in_a_process_is_none_of_a_group(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        "server_name: n1, jetstream: true\n"
        "cluster { name: C, listen: '127.0.0.1:6222', authorization { user: u, password: p } }"
    )
    with pytest.raises(ConfigError, match="run `slipstream serve`"):
        slipstream.Server(config=str(file))
