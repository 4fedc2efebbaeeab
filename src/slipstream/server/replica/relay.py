"""Clients that come to a follower: their bytes go on to the leader, and its answers back.

The leader is told first, and has it proved, at which address the client is (`relay_proof`).
So a client may know the address of any server of the group. When the leader changes, its
connections end, and the client connects again, as NATS clients do by themselves.
"""

import asyncio
import time
from contextlib import suppress

from slipstream.server.listeners import BACKLOG, open_listeners
from slipstream.server.logger import Logger
from slipstream.server.proxy_header import SIGNATURE, Address
from slipstream.server.relay_proof import NONCE_SIZE, announce, prove
from slipstream.server.room import RESERVE_IN_GROUP, Room, descriptors_for_clients
from slipstream.server.seldom import Seldom

LEADER_SECONDS_MAX = 1.5  # for which a client waits while nobody leads; clients give up after 2
# Clients that are brought to the leader at the same time; the next ones wait. When thousands come
# at once, all of them together would take longer than they wait, and come again.
AT_ONCE_MAX = 64
AGAIN_SECONDS = 0.05  # between attempts to connect to it
# A client that takes nothing is cut off by the leader, which then says so to whom it may concern.
# The follower looks this much later, because it does not see that while it waits for the client.
SLOW_SECONDS = 1.0
LINGER_SECONDS = 1.0  # in which a client gets to read what was the last, as on the leader
PIECE = 64 * 1024  # bytes that are read at a time
FILES_EACH = 2  # descriptors of a client: of its connection, and of the one to the leader


class Relayed:
    """A client that is brought to the leader."""

    __slots__ = (
        "address",
        "cid",
        "in_bytes",
        "last_activity",
        "out_bytes",
        "own_address",
        "started",
        "writer",
    )

    def __init__(self, cid: int, writer: asyncio.StreamWriter) -> None:
        self.cid = cid  # a number of this server's; the leader has another one
        # Both are asked for at once: the system knows neither of a connection that was reset.
        self.address = _end_of(writer, "peername")
        self.own_address = _end_of(writer, "sockname")  # of this server, where it has come to
        self.writer = writer
        self.started = self.last_activity = time.time_ns()
        self.in_bytes = 0
        self.out_bytes = 0

    @property
    def pending(self) -> int:
        """Bytes that it has not taken yet."""
        return self.writer.transport.get_write_buffer_size()

    @property
    def is_known(self) -> bool:
        """Whether it can be said at which address it is; else it had gone when it was taken."""
        return bool(self.address.host and self.own_address.host)


def _end_of(writer: asyncio.StreamWriter, which: str) -> Address:
    """The address of an end of a connection; "" if it has none any more."""
    try:
        found = writer.get_extra_info(which)
    except ValueError:  # of uvloop's, where the socket is closed already
        found = None
    return Address(*(found or ("", 0))[:2])


class Relay:
    """Listens on `host` and `port`, from `listen` to `stop_listening`."""

    def __init__(self, host: str, port: int, log: Logger) -> None:
        self.port = port
        self._host = host
        self._log = log
        self.name = ""  # of this server in the group
        self.leader = ""  # host and port; "": nobody knows
        self._key = b""  # that proves to the leader for whom a connection is; empty: it asks not
        self._has_leader = asyncio.Event()
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._servers: list[asyncio.Server] = []
        self.clients: dict[int, Relayed] = {}  # who is there, by number
        self.total = 0  # who has come so far
        self.slow_count = 0  # of clients that were cut off because they took nothing
        self.write_deadline_seconds = 10.0  # in which a client has to take something
        self._ended_bytes = (0, 0)  # of clients that have gone: from them, to them
        self._tasks: set[asyncio.Task[None]] = set()
        self._joined: set[asyncio.Task[None]] = set()  # of clients that have reached a leader
        most = descriptors_for_clients(RESERVE_IN_GROUP) // FILES_EACH
        self._unreached = Seldom(log)  # says that a leader cannot be reached
        self._why = ""  # it could not be, last
        self.room = Room(most, "are relayed already", log)

    async def listen(self) -> None:
        """Take clients. Raises OSError."""
        if self._servers:
            return
        for listener in await open_listeners(self._host, self.port):
            self.port = self.port or listener.getsockname()[1]
            server = await asyncio.start_server(self._accepted, sock=listener, backlog=BACKLOG)
            self._servers.append(server)

    def stop_listening(self) -> None:
        """Take no more, and end those that are there."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._end()

    def follow(self, leader: str, key: bytes = b"") -> None:
        """The leader is at this host and port; "": nobody knows. It is told the addresses of
        clients if there is a `key`."""
        self._key = key
        if leader == self.leader:
            return
        self.leader = leader
        for task in self._joined:  # who waits for a leader goes on to the new one
            task.cancel()
        if leader:
            self._has_leader.set()
        else:
            self._has_leader.clear()

    @property
    def brought_bytes(self) -> tuple[int, int]:
        """How much has come from clients so far, and how much they were sent."""
        came, went = self._ended_bytes
        came += sum(client.in_bytes for client in self.clients.values())
        went += sum(client.out_bytes for client in self.clients.values())
        return came, went

    async def close(self) -> None:
        """End; returns when nothing runs any more."""
        self.stop_listening()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()

    # -- a client --------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self.room.most:
            self.room.refuse(writer.transport)
            return
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.total += 1
        client = self.clients[self.total] = Relayed(self.total, writer)
        try:
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                if client.is_known:
                    await self._bring(client, reader)
                else:
                    writer.transport.abort()
        finally:
            del self.clients[client.cid]
            came, went = self._ended_bytes
            self._ended_bytes = came + client.in_bytes, went + client.out_bytes

    async def _bring(self, client: Relayed, reader: asyncio.StreamReader) -> None:
        writer = client.writer
        try:
            async with asyncio.timeout(LEADER_SECONDS_MAX), self._gate:
                if reader.at_eof():  # it has not waited for its turn
                    writer.transport.abort()
                    return
                there = await self._reach(client)
        except _RefusedError as error:
            await self._refuse(client, reader, error.said)
            return
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, TimeoutError) and self.leader:
                self._unreached.error(
                    f"Clients cannot be brought to the leader, which says that they find it at "
                    f"{self.leader}: {self._why or 'it does not answer'}"
                )
            raise
        task = asyncio.current_task()
        assert task is not None
        self._joined.add(task)
        try:
            await _join(client, reader, *there, self.write_deadline_seconds + SLOW_SECONDS)
        except _SlowError:
            self.slow_count += 1
            self._log.info(
                f"{client.address.host}:{client.address.port} - cid:{client.cid} - Slow Consumer "
                "Detected: it takes nothing of what the leader has sent it, and is cut off"
            )
        finally:
            self._joined.discard(task)

    async def _refuse(self, client: Relayed, reader: asyncio.StreamReader, said: bytes) -> None:
        """Tell a client what the leader has said before it ended the connection."""
        client.writer.write(said)
        client.out_bytes += len(said)
        try:
            await _part(client.writer, reader)
        finally:
            client.writer.transport.abort()

    async def _connect(self) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """The leader, and a connection to it, once there is one that takes it."""
        while True:
            await self._has_leader.wait()
            leader = self.leader
            host, _, port = leader.rpartition(":")
            try:
                there = await asyncio.open_connection(host.strip("[]"), int(port), limit=PIECE)
                self._why = ""
                return leader, *there
            except (OSError, OverflowError, ValueError) as error:
                self._why = str(error)
                await asyncio.sleep(AGAIN_SECONDS)  # it may have failed, which is known soon

    async def _reach(self, client: Relayed) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the leader, which knows at which address the client is. Raises
        `_RefusedError`."""
        while True:
            leader, reader, writer = await self._connect()
            is_reached = False
            try:
                await self._announce(client, reader, writer)
                is_reached = leader == self.leader
            except asyncio.IncompleteReadError as error:
                if b"-ERR" in error.partial:
                    raise _RefusedError(error.partial) from error
                self._why = "it does not believe that this server is one of its group"
            except (OSError, asyncio.LimitOverrunError):
                pass
            finally:
                if not is_reached:
                    writer.transport.abort()
            if is_reached:
                return reader, writer
            await asyncio.sleep(AGAIN_SECONDS)  # its token may be on its way to this server

    async def _announce(
        self,
        client: Relayed,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Tell the leader at which address the client is; what it sent before that is of no
        account. Raises OSError, IncompleteReadError if it refuses, and LimitOverrunError if it is
        no leader."""
        key = self._key
        if not key:
            return
        header = announce(key, client.address, client.own_address, self.name)
        writer.write(header)
        await reader.readuntil(SIGNATURE)
        nonce = await reader.readexactly(NONCE_SIZE)
        writer.write(prove(key, nonce, header))


class _SlowError(Exception):
    """A client takes nothing of what waits for it."""


class _RefusedError(Exception):
    """The leader has ended the connection; `said` is what it sent before, such as that it has too
    many already."""

    def __init__(self, said: bytes) -> None:
        super().__init__("the leader has ended the connection")
        self.said = said


async def _join(
    client: Relayed,
    reader: asyncio.StreamReader,
    there_reader: asyncio.StreamReader,
    there_writer: asyncio.StreamWriter,
    deadline: float,
) -> None:
    """Bring bytes both ways until both sides have said all, or one has gone. Raises `_SlowError`
    for a client that takes nothing for `deadline` seconds."""
    ways = [
        asyncio.create_task(_bring_to_leader(client, reader, there_writer)),
        asyncio.create_task(_bring_to_client(client, there_reader, deadline)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if ways[1].done():
            ways[0].cancel()
            await asyncio.wait(ways[:1])
            there_writer.transport.abort()
            ways[1].result()
            await _part(client.writer, reader)
        else:
            ways[0].result()
            _end_writing(there_writer)  # what it has said is still answered, and that brought
            await asyncio.wait(ways[1:], timeout=deadline)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for one in (client.writer, there_writer):
            one.close()
            if one.transport.get_write_buffer_size():  # it may never be taken
                loop = asyncio.get_running_loop()
                loop.call_later(deadline, one.transport.abort)


def _end_writing(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        writer.write_eof()


async def _part(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
    """Say no more to a client, and wait a moment until it has read that. The system would drop the
    last error on its way if this closed a connection with input that nobody has read."""
    _end_writing(writer)
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(PIECE):
                pass


async def _bring_to_leader(
    client: Relayed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while data := await reader.read(PIECE):
        client.in_bytes += len(data)
        client.last_activity = time.time_ns()
        writer.write(data)
        await writer.drain()


async def _bring_to_client(client: Relayed, reader: asyncio.StreamReader, deadline: float) -> None:
    """The same. Raises `_SlowError` for a client that takes nothing: the leader may have cut it off
    for that, which could not be seen from here while it is waited for."""
    writer = client.writer
    while data := await reader.read(PIECE):
        client.out_bytes += len(data)
        client.last_activity = time.time_ns()
        writer.write(data)
        left = writer.transport.get_write_buffer_size()
        while True:
            try:
                async with asyncio.timeout(deadline):
                    await writer.drain()
                break
            except TimeoutError:
                before, left = left, writer.transport.get_write_buffer_size()
                if left >= before:
                    writer.transport.abort()
                    raise _SlowError from None
