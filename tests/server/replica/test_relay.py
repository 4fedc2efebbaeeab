"""Clients of a follower on their way to the leader, also those that are slow or too many."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions
from slipstream.server.replica import relay as relay_module
from slipstream.server.replica.relay import Relay
from tests.server.group.hosts import LOCAL, Lines
from tests.server.group.waiting import until


class Leader:
    """Sends without an end to who says anything; counts who is there."""

    def __init__(self) -> None:
        self.count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        try:
            while await reader.read(100):
                while True:
                    writer.write(bytes(65536))
                    await writer.drain()
        except OSError:
            pass
        finally:
            self.count -= 1
            writer.transport.abort()


@pytest.fixture
async def leader() -> Leader:
    return Leader()


@pytest.fixture
async def relay(leader: Leader) -> AsyncIterator[Relay]:
    server = await asyncio.start_server(leader.serve, LOCAL, 0)
    relay = Relay(LOCAL, 0, Logger(Lines(), LoggingOptions()))
    await relay.listen()
    relay.follow(f"{LOCAL}:{server.sockets[0].getsockname()[1]}")
    yield relay
    await relay.close()
    server.close()


async def test_a_client_that_takes_nothing_is_cut_off(
    relay: Relay, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "WRITE_SECONDS_MAX", 0.1)
    with socket.create_connection((LOCAL, relay.port)) as client:
        client.sendall(b"x")
        await until(lambda: leader.count == 1, "it is brought to the leader")
        await until(lambda: leader.count == 0, "it is cut off")


async def test_more_clients_than_there_is_room_for_are_refused(
    relay: Relay, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_most", 2)
    clients = [await asyncio.open_connection(LOCAL, relay.port) for _ in range(2)]
    await until(lambda: leader.count == 2, "they are brought to the leader")
    reader, writer = await asyncio.open_connection(LOCAL, relay.port)
    try:
        assert await reader.read(1) == b""
    except ConnectionResetError:
        pass
    for _, one in [*clients, (reader, writer)]:
        one.close()
    await until(lambda: leader.count == 0, "they have gone")
