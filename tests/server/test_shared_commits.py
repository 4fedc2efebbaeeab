"""Clients that publish at the same time share a commit; one that is alone does not wait for it."""

import asyncio
from pathlib import Path

import pytest

import slipstream
from slipstream import Server
from slipstream.server.connection import Connection
from slipstream.server.leaf.connection import LeafConnection

CLIENTS = 8
ROUNDS = 20


def batches(server: Server) -> int:
    """How many batches were written and synced so far."""
    assert server.runtime is not None
    return sum(server.runtime.measures.sync.counts)


class Publisher:
    """A connection that publishes one message at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, server: Server, number: int) -> "Publisher":
        """Connect, and listen for answers."""
        self = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        self._inbox = f"_INBOX.{number}"
        self.send(f'CONNECT {{"verbose":false}}\r\nSUB {self._inbox} 1\r\nPING\r\n')
        await self._read_until(b"PONG\r\n")
        return self

    def send(self, text: str) -> None:
        """Send at once."""
        self._writer.write(text.encode())

    @property
    def message(self) -> bytes:
        """One message, as it is sent."""
        return f"PUB orders.new {self._inbox} 2\r\nhi\r\n".encode()

    def connection_of(self, server: Server) -> Connection:
        """The server's end of the connection."""
        port: int = self._writer.get_extra_info("sockname")[1]
        assert server.runtime is not None
        (connection,) = [one for one in server.runtime.connections if one.facts["port"] == port]
        return connection

    def publish(self) -> None:
        """Send one message."""
        self._writer.write(self.message)

    async def acknowledged(self) -> None:
        """The message is on disk."""
        await self._read_until(b"}\r\n")

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _read_until(self, end: bytes) -> None:
        while not (line := await self._reader.readline()).endswith(end):
            assert line, "the server has ended the connection"


async def test_clients_that_publish_at_the_same_time_share_a_commit(tmp_path: Path) -> None:
    async with (
        Server(store_dir=str(tmp_path)) as server,
        await slipstream.connect(server.url) as nc,
    ):
        await nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
        publishers = [await Publisher.connect(server, number) for number in range(CLIENTS)]
        before = batches(server)
        for _ in range(ROUNDS):
            for publisher in publishers:  # all is there before the server reads any of it
                publisher.publish()
            for publisher in publishers:
                await publisher.acknowledged()
        assert batches(server) - before <= 2 * ROUNDS
        info = await nc.jetstream().stream_info("ORDERS")
        assert info.state.messages == CLIENTS * ROUNDS
        for publisher in publishers:
            await publisher.close()


@pytest.mark.parametrize("is_quick", [True, False])
async def test_who_shares_a_commit_that_is_to_come_is_answered_before_the_server_ends(
    tmp_path: Path, is_quick: bool
) -> None:
    async with Server(store_dir=str(tmp_path)) as server:
        async with await slipstream.connect(server.url) as nc:
            await nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
        publisher = await Publisher.connect(server, 1)
        assert server.runtime is not None
        server.runtime.disk_thread.runs_here = is_quick
        connection = publisher.connection_of(server)
        # Some leaf node has connected, and not said anything yet.
        server.runtime.connections.add(LeafConnection(server.runtime))
        connection.data_received(publisher.message)  # and the server ends before its next round
    await publisher.acknowledged()
    await publisher.close()


@pytest.mark.parametrize(("count", "expected"), [(100, 1), (1, 2)], ids=["many", "one"])
async def test_who_sends_many_messages_at_a_time_has_what_follows_at_once_in_the_same_commit(
    tmp_path: Path, count: int, expected: int
) -> None:
    async with Server(store_dir=str(tmp_path)) as server:
        async with await slipstream.connect(server.url) as nc:
            await nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
        publisher = await Publisher.connect(server, 1)
        assert server.runtime is not None
        connection = publisher.connection_of(server)
        publisher.publish()
        await publisher.acknowledged()
        before = batches(server)
        connection.data_received(publisher.message * count)
        publisher.send((publisher.message * count).decode())  # there when the loop looks again
        for _ in range(2 * count):
            await publisher.acknowledged()
        assert batches(server) - before == expected
        await publisher.close()
