"""A stream moves from Slipstream into a cluster of three nats-servers, and back, while messages
flow and one of the three is killed: as docs/moving.md says it is done."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import slipstream
from slipstream.client.jetstream import JetStream, StreamSource
from tests.lasting_ports import lasting_port
from tests.leaf.servers import NATS, SLIPSTREAM, Node, running, until
from tests.leaf.test_jetstream import messages_of

T = TypeVar("T")

ENOUGH = 3_000  # messages before something happens to those who carry them


class Publisher:
    """Publishes numbered messages until it is told to stop; what is refused is tried again."""

    def __init__(self, connection: slipstream.Connection, first: int) -> None:
        self._js = connection.jetstream()
        self.next = first
        self._stopped = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stopped:
            number = self.next
            try:
                await self._js.publish(
                    f"orders.{number % 5}", b"%d" % number, message_id=f"n{number}", timeout=5
                )
            except slipstream.Error:
                await asyncio.sleep(0.05)
            else:
                self.next = number + 1

    async def stop(self) -> int:
        """End; how many there are now."""
        self._stopped = True
        await self._task
        return self.next

    async def has_sent(self, count: int) -> None:
        """Wait until so many are acknowledged."""

        async def condition() -> bool:
            return self.next >= count

        await until(condition, f"{count} messages are not published")


def cluster(directory: Path) -> list[Node]:
    """Three nats-servers, each with a port for leaf nodes."""
    ports = [lasting_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    return [
        Node(
            NATS,
            f"C{number}",
            directory,
            'listen: "127.0.0.1:LEAF_PORT"',
            "cloud",
            f'cluster {{ name: C\nlisten: "127.0.0.1:{port}"\nroutes: [ {routes} ] }}',
        )
        for number, port in enumerate(ports)
    ]


async def works(js: JetStream) -> bool:
    """Whether JetStream answers."""
    try:
        await js.account_info()
    except slipstream.Error:
        return False
    return True


async def last(js: JetStream, stream: str) -> int:
    """A stream's last sequence; 0 while nobody says."""
    try:
        return (await js.stream_info(stream)).state.last_seq
    except slipstream.Error:
        return 0


async def promote(js: JetStream, name: str, subjects: list[str], wanted: int) -> None:
    """Make a mirror the stream itself, once it has all."""

    async def has_all() -> bool:
        return await last(js, name) >= wanted

    await until(has_all, f"the mirror {name} does not get message {wanted}")

    async def promoted() -> bool:
        try:
            config = (await js.stream_info(name)).config
            if config.mirror is not None:
                await js.update_stream(config.replace(mirror=None, subjects=subjects))
        except slipstream.Error:
            return False
        return config.mirror is None

    await until(promoted, f"{name} is not promoted")


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """What is asked of a cluster, which answers nobody while it looks for a leader."""

    async def condition() -> list[T]:
        try:
            return [await ask()]
        except slipstream.Error:
            return []

    found: list[T] = await until(condition, "the cluster does not answer")
    return found[0]


async def retire(js: JetStream, name: str) -> int:
    """Let a stream take no more messages; its last sequence."""

    async def retired() -> int:
        config = (await js.stream_info(name)).config
        await js.update_stream(config.replace(subjects=["retired." + name]))
        return (await js.stream_info(name)).state.last_seq

    return await answered(retired)


def numbers(messages: list[tuple[int, str, bytes]]) -> list[int]:
    """What the bodies count."""
    return [int(body) for _, _, body in messages]


async def linked_node(nodes: list[Node]) -> Node:
    """The one of a cluster that the edge is linked to."""

    async def find() -> Any:
        for node in nodes:
            if await node.links():
                return node
        return None

    found: Node = await until(find, "the edge is linked to none")
    return found


async def test_a_stream_moves_into_a_cluster_and_back(tmp_path: Path) -> None:
    nodes = cluster(tmp_path)
    urls = ", ".join(f'"{node.leaf_url}"' for node in nodes)
    edge = Node(SLIPSTREAM, "EDGE", tmp_path, f"remotes: [ {{ urls: [ {urls} ] }} ]", "edge")
    async with running(*nodes, edge):
        cloud = await slipstream.connect([node.url for node in nodes])
        local = await slipstream.connect(edge.url)
        async with cloud, local:
            there, here = cloud.jetstream(timeout=5), local.jetstream(timeout=5)

            async def ready() -> bool:
                return await works(there)

            await until(ready, "the cluster has no leader")
            # There: a mirror follows while messages flow and the server at the other end is killed.
            await here.create_stream(name="ORDERS", subjects=["orders.*"])
            publisher = Publisher(local, 0)
            await publisher.has_sent(ENOUGH)

            async def mirrored() -> bool:
                mirror = StreamSource.of_domain("ORDERS", "edge")
                try:
                    await there.create_stream(name="MOVED", mirror=mirror, num_replicas=3)
                except slipstream.Error:
                    return False
                return True

            await until(mirrored)
            await publisher.has_sent(2 * ENOUGH)
            victim = await linked_node(nodes)
            await asyncio.to_thread(victim.kill)
            await publisher.has_sent(3 * ENOUGH)
            sent = await retire(here, "ORDERS")
            await promote(there, "MOVED", ["orders.*"], sent)
            await publisher.has_sent(4 * ENOUGH)
            count = await publisher.stop()
            moved = await answered(lambda: messages_of(there, "MOVED"))
            assert moved[:sent] == await messages_of(here, "ORDERS")
            assert numbers(moved) == list(range(count))
            # And back, the same way.
            await victim.start()
            await here.delete_stream("ORDERS")
            publisher = Publisher(cloud, count)
            mirror = StreamSource.of_domain("MOVED", "cloud")
            await here.create_stream(name="BACK", mirror=mirror)
            await publisher.has_sent(count + ENOUGH)
            sent = await retire(there, "MOVED")
            await promote(here, "BACK", ["orders.*"], sent)
            await publisher.has_sent(count + 2 * ENOUGH)
            count = await publisher.stop()
            back = await messages_of(here, "BACK")
            assert back[:sent] == await answered(lambda: messages_of(there, "MOVED"))
            assert numbers(back) == list(range(count))
