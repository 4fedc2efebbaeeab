"""A leader that hands over answers what it was sent, and ends the connections with the answers."""

import asyncio

from slipstream.server import Server
from tests.server.group.waiting import until
from tests.server.replica.test_relay import info_of


async def greeted(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has said CONNECT."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await info_of(reader)
    writer.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
    assert await reader.readuntil(b"PONG\r\n") == b"PONG\r\n"
    return reader, writer


async def test_answers_leave_with_the_end_of_the_connection() -> None:
    async with Server() as server:
        reader, writer = await greeted(server)
        assert server.runtime is not None
        (connection,) = server.runtime.connections
        session = connection.session
        assert session is not None
        connection.hold()
        writer.write(b"PUB a 2\r\nhi\r\nPING\r\n")
        await until(lambda: session.in_msgs == 1, "it is read")
        answers = b"MSG a 1 2\r\nhi\r\nPONG\r\n"
        assert connection.unsent() == len(answers)
        server.runtime.turn(lambda: session.close("Server Shutdown"))
        assert await reader.read(-1) == answers
        writer.close()


async def test_what_a_client_has_sent_is_acted_on_before_all_is_settled() -> None:
    async with Server() as server:
        reader, writer = await greeted(server)
        assert server.runtime is not None
        settling = asyncio.create_task(server.runtime.settle())
        writer.write(b"PUB a 2\r\nhi\r\n")
        await settling
        server.runtime.turn(lambda: server.runtime.connections.pop().session.close("end"))
        assert await reader.read(-1) == b"MSG a 1 2\r\nhi\r\n"
        writer.close()


async def test_all_is_settled_once_nothing_is_on_its_way_to_the_disk() -> None:
    async with Server() as server:
        assert server.runtime is not None
        commit = server.runtime.engine.commit
        commit.own_batches = 1
        settling = asyncio.create_task(server.runtime.settle())
        await asyncio.wait([settling], timeout=0.02)
        assert not settling.done()
        commit.own_batches = 0
        await settling
