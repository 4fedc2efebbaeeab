"""Clients that publish at the same time share a commit; one that is alone does not wait for it."""

import asyncio
from pathlib import Path

import slipstream
from slipstream import Server

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

    def publish(self) -> None:
        """Send one message."""
        self.send(f"PUB orders.new {self._inbox} 2\r\nhi\r\n")

    async def acknowledged(self) -> None:
        """The message is on disk."""
        await self._read_until(b"}\r\n")

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _read_until(self, end: bytes) -> None:
        while not (await self._reader.readline()).endswith(end):
            pass


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
