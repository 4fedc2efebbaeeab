"""The story of a server at the edge: it loses its hub, goes on storing, and finds the hub again.

Both servers run inside this process: ``python examples/edge_server.py``. docs/moving.md has the
configuration for a hub of its own.
"""

import asyncio
import socket
import tempfile

import slipstream
from slipstream import Server
from slipstream.client.jetstream import JetStream, StreamSource
from slipstream.server.options import (
    JetStreamOptions,
    LeafAuthorizationOptions,
    LeafNodesOptions,
    LeafRemoteOptions,
)


def free_port() -> int:
    """A port that the hub can come back to."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def make_hub(directory: str, leaf_port: int) -> Server:
    """A server where leaf nodes connect."""
    login = LeafAuthorizationOptions(user="edge", password="secret")
    return Server(
        server_name="hub",
        jetstream=JetStreamOptions(enabled=True, store_dir=f"{directory}/hub", domain="hub"),
        leafnodes=LeafNodesOptions(host="127.0.0.1", port=leaf_port, authorization=login),
    )


def make_edge(directory: str, leaf_port: int) -> Server:
    """A server that is a leaf node of the hub."""
    hub = LeafRemoteOptions(urls=[f"nats-leaf://edge:secret@127.0.0.1:{leaf_port}"])
    return Server(
        server_name="edge",
        jetstream=JetStreamOptions(enabled=True, store_dir=f"{directory}/edge", domain="edge"),
        leafnodes=LeafNodesOptions(remotes=[hub], reconnect=200_000_000),  # in ns
    )


async def count_when(js: JetStream, wanted: int) -> int:
    """How many readings the hub has, once it has that many."""
    for _ in range(1_000):
        try:
            messages = (await js.stream_info("READINGS_OF_EDGE")).state.messages
        except slipstream.Error:
            messages = 0
        if messages >= wanted:
            return messages
        await asyncio.sleep(0.05)
    raise RuntimeError("the hub does not get the readings")


async def measure(edge: slipstream.Connection, first: int, last: int) -> None:
    """Store readings at the edge."""
    for number in range(first, last):
        await edge.jetstream().publish("readings.kiln", f"{number} degrees")


async def main() -> None:
    """Store at the edge, with the hub and without it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        async with make_edge(directory, port) as edge:
            nc = await slipstream.connect(edge.url)
            await nc.jetstream().create_stream(name="READINGS", subjects=["readings.>"])
            async with (
                make_hub(directory, port) as hub,
                await slipstream.connect(hub.url) as far,
            ):
                mirror = StreamSource.of_domain("READINGS", "edge")
                await far.jetstream().create_stream(name="READINGS_OF_EDGE", mirror=mirror)
                await measure(nc, 0, 100)
                print(f"the hub has {await count_when(far.jetstream(), 100)} readings")
            await measure(nc, 100, 250)
            stored = (await nc.jetstream().stream_info("READINGS")).state.messages
            print(f"the hub is away; the edge has stored {stored} readings")
            async with (
                make_hub(directory, port) as hub,
                await slipstream.connect(hub.url) as far,
            ):
                await measure(nc, 250, 300)
                print(f"the hub is back, and has {await count_when(far.jetstream(), 300)}")
            await nc.close()


if __name__ == "__main__":
    asyncio.run(main())
