"""More than two servers: leaf nodes of one hub, chains, and a leaf of two hubs."""

import asyncio
from pathlib import Path

import pytest

import slipstream
from tests.leaf.servers import NATS, SLIPSTREAM, Node, running, until
from tests.leaf.test_core import drain_until_end, knows

LISTEN = 'listen: "127.0.0.1:LEAF_PORT"'


def leaf_of(kind: str, name: str, directory: Path, *hubs: Node, more: str = "") -> Node:
    """A leaf node of each of `hubs`."""
    remotes = ", ".join(f'{{ url: "{hub.leaf_url}" }}' for hub in hubs)
    return Node(kind, name, directory, f"remotes: [ {remotes} ]\n{more}", name.lower())


async def links(node: Node, count: int) -> None:
    """Wait until a server has so many links that work."""

    async def condition() -> bool:
        found = await node.links()
        return len(found) == count and all(link["subscriptions"] for link in found)

    await until(condition, f"{node.name} does not have {count} links")


@pytest.mark.parametrize(
    "kinds",
    [(SLIPSTREAM, NATS, SLIPSTREAM), (NATS, SLIPSTREAM, SLIPSTREAM), (SLIPSTREAM,) * 3],
)
async def test_leaf_nodes_of_one_hub_reach_each_other(
    kinds: tuple[str, str, str], tmp_path: Path
) -> None:
    hub = Node(kinds[0], "HUB", tmp_path, LISTEN, "hub")
    one = leaf_of(kinds[1], "ONE", tmp_path, hub)
    two = leaf_of(kinds[2], "TWO", tmp_path, hub)
    async with running(hub, one, two):
        await links(hub, 2)
        await exchange(one, two, hub)


@pytest.mark.parametrize(
    "kinds",
    [
        (SLIPSTREAM, SLIPSTREAM, SLIPSTREAM),
        (NATS, SLIPSTREAM, NATS),
        (SLIPSTREAM, NATS, SLIPSTREAM),
    ],
)
async def test_a_chain_carries_messages_from_end_to_end(
    kinds: tuple[str, str, str], tmp_path: Path
) -> None:
    hub = Node(kinds[0], "HUB", tmp_path, LISTEN, "hub")
    middle = leaf_of(kinds[1], "MIDDLE", tmp_path, hub, more=LISTEN)
    edge = leaf_of(kinds[2], "EDGE", tmp_path, middle)
    async with running(hub, middle, edge):
        await links(middle, 2)
        await exchange(edge, hub, middle)


async def exchange(one: Node, two: Node, between: Node) -> None:
    """Each of three servers hears what another one says, once; one member of a group gets it."""
    nodes = (one, two, between)
    clients = [await slipstream.connect(node.url) for node in nodes]
    try:
        watchers = [await client.subscribe("all.*") for client in clients]
        crew = [await client.subscribe("all.*", queue="crew") for client in clients[:2]]
        for client in clients:
            await client.flush()
        for node, count in ((one, 2), (two, 2), (between, 4)):
            await knows(node, "all.*", count)
        for client, node in zip(clients, nodes, strict=True):
            for number in range(20):
                await client.publish("all.x", f"{node.name} {number}".encode())
            await client.publish("all.x", b"end")
            expected = [f"{node.name} {number}".encode() for number in range(20)]
            for watcher in watchers:
                assert await drain_until_end(watcher) == expected
        # The members of the group have got each message once, together.

        async def complete() -> bool:
            return sum(member.pending for member in crew) >= 63

        await until(complete)
        await asyncio.gather(*(client.flush() for client in clients))
        assert sum(member.pending for member in crew) == 63
    finally:
        for client in clients:
            await client.close()


async def test_a_leaf_of_two_hubs_does_not_join_them(tmp_path: Path) -> None:
    first = Node(NATS, "FIRST", tmp_path, LISTEN, "first")
    second = Node(SLIPSTREAM, "SECOND", tmp_path, LISTEN, "second")
    leaf = leaf_of(SLIPSTREAM, "LEAF", tmp_path, first, second)
    async with running(first, second, leaf):
        await links(leaf, 2)
        async with (
            await slipstream.connect(first.url) as at_first,
            await slipstream.connect(second.url) as at_second,
            await slipstream.connect(leaf.url) as at_leaf,
        ):
            heard = [await client.subscribe("s") for client in (at_first, at_second)]
            await at_first.flush()
            await at_second.flush()
            await knows(leaf, "s", 2)
            await at_second.publish("s", b"second")
            await at_leaf.publish("s", b"leaf")
            assert (await heard[0].next(timeout=10)).data == b"leaf"
            bodies = [(await heard[1].next(timeout=10)).data for _ in range(2)]
            assert bodies == [b"second", b"leaf"]


async def test_a_cluster_of_leaf_nodes_is_not_told_what_it_said_itself(tmp_path: Path) -> None:
    """Two connections of one cluster: what came over the first does not go back over the second."""
    hub = Node(SLIPSTREAM, "HUB", tmp_path, LISTEN, "hub")
    async with running(hub):
        peers = []
        for name in ("A1", "A2"):
            reader, writer = await asyncio.open_connection("127.0.0.1", hub.leaf_port)
            said = f'CONNECT {{"name":"{name}","cluster":"A","headers":true}}\r\nLS+ s\r\nPING\r\n'
            writer.write(said.encode())
            await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), 30)
            peers.append((reader, writer))
        await links(hub, 2)
        peers[0][1].write(b"LMSG s 1\r\nx\r\nPING\r\n")
        await asyncio.wait_for(peers[0][0].readuntil(b"PONG\r\n"), 30)
        peers[1][1].write(b"PING\r\n")
        heard = await asyncio.wait_for(peers[1][0].readuntil(b"PONG\r\n"), 30)
        assert b"LMSG" not in heard
        for _, writer in peers:
            writer.close()
