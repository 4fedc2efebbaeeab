"""The clients' port of a server of a group, which is open whoever leads.

While this server leads, it answers who comes. Else their bytes go on to the leader, and its answers
back; the leader is told first, and has it proved, at which address the client is (`relay_proof`).
While nobody leads a client waits for whoever comes to lead, this server or another one. So a client
may know the address of any server of the group. When the leader changes, its connections end, and
the client connects again, as NATS clients do by themselves.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from slipstream.errors import ProtocolError
from slipstream.server.listeners import BACKLOG, open_listeners
from slipstream.server.logger import Logger
from slipstream.server.proxy_header import SIGNATURE, Address, may_begin, read_header
from slipstream.server.relay_proof import NONCE_SIZE, announce, is_ours, prove
from slipstream.server.room import RESERVE_IN_GROUP, Room, descriptors_for_clients
from slipstream.server.seldom import Seldom

LEADER_SECONDS_MAX = 1.9  # for which a client waits while nobody leads; clients give up after 2
# Clients that are brought to the leader at the same time; the next ones wait. When thousands come
# at once, all of them together would take longer than they wait, and come again.
AT_ONCE_MAX = 64
AGAIN_SECONDS = 0.05  # between attempts to connect to it
# A client that takes nothing is cut off by the leader, which then says so to whom it may concern.
# The follower looks this much later, because it does not see that while it waits for the client.
SLOW_SECONDS = 1.0
LAST_WORDS_SECONDS = 0.05  # for what a leader has sent before it handed over
LINGER_SECONDS = 1.0  # in which a client gets to read what was the last, as on the leader
PIECE = 64 * 1024  # bytes that are read at a time
FILES_EACH = 2  # descriptors of a client: of its connection, and of the one to the leader


class _Arrival(asyncio.Protocol):
    """A client that has just come, and nobody answers yet. What it sends meanwhile is kept: a
    server of the group begins with a header, and some clients with TLS."""

    def __init__(self, arrived: "Callable[[_Arrival], None]") -> None:
        self.ended: Callable[[], object] | None = None  # called when it goes
        self.has_spoken = asyncio.Event()
        self._arrived = arrived
        self._early = b""
        self._has_said_all = False  # and still takes what it is answered
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, too
        self._arrived(self)

    def data_received(self, data: bytes) -> None:
        """What is no more than a beginning is kept; the rest waits with the system."""
        self._early += data
        self.has_spoken.set()
        if len(self._early) > PIECE:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """It says no more. What it has said is answered, as it is by a leader; who has said nothing
        has gone, and who brings a client says more than this before its end."""
        self._has_said_all = bool(self._early) and not self.is_from_group
        return self._has_said_all

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone by itself."""
        if self.ended is not None:
            self.ended()

    @property
    def is_from_group(self) -> bool:
        """Whether another server brings a client, as to a leader."""
        try:
            header = read_header(self._early) if may_begin(self._early, lines=False) else None
        except ProtocolError:
            return False
        return header is not None and is_ours(header)

    def become(self, protocol: asyncio.Protocol) -> None:
        """Somebody answers it from now on."""
        transport = self.transport
        if transport.is_closing():
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if len(self._early) > PIECE:
            transport.resume_reading()
        if self._early and not transport.is_closing():
            protocol.data_received(self._early)
        if self._has_said_all and not transport.is_closing() and not protocol.eof_received():
            transport.close()


class Relayed:
    """A client that is brought to the leader, or waits for one."""

    __slots__ = (
        "address",
        "arrival",
        "cid",
        "in_bytes",
        "is_passed_on",
        "last_activity",
        "out_bytes",
        "own_address",
        "started",
        "transport",
    )

    def __init__(self, cid: int, arrival: _Arrival) -> None:
        self.cid = cid  # a number of this server's; the leader has another one
        self.arrival = arrival
        self.transport = arrival.transport
        # Both are asked for at once: the system knows neither of a connection that was reset.
        self.address = _end_of(self.transport, "peername")
        self.own_address = _end_of(self.transport, "sockname")  # of this server, where it came to
        self.is_passed_on = False  # to this server, which leads now
        self.started = self.last_activity = time.time_ns()
        self.in_bytes = 0
        self.out_bytes = 0

    @property
    def pending(self) -> int:
        """Bytes that it has not taken yet."""
        return self.transport.get_write_buffer_size()

    @property
    def is_known(self) -> bool:
        """Whether it can be said at which address it is; else it had gone when it was taken."""
        return bool(self.address.host and self.own_address.host)


def _end_of(transport: asyncio.Transport, which: str) -> Address:
    """The address of an end of a connection; "" if it has none any more."""
    try:
        found = transport.get_extra_info(which)
    except ValueError:  # of uvloop's, where the socket is closed already
        found = None
    return Address(*(found or ("", 0))[:2])


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Accept = Callable[[], asyncio.Protocol]  # makes what speaks with a client


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
        self._has_news = asyncio.Event()  # another one is set once this one was
        self._accept: Accept | None = None  # of this server while it leads
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._servers: list[asyncio.Server] = []
        self.clients: dict[int, Relayed] = {}  # who is there, by number
        self.total = 0  # who has come so far
        self.slow_count = 0  # of clients that were cut off because they took nothing
        self.write_deadline_seconds = 10.0  # in which a client has to take something
        self._ended_bytes = (0, 0)  # of clients that have gone: from them, to them
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], Relayed] = {}  # that nobody answers yet
        # Of clients that have reached a leader, which has not ended it.
        self._joined: set[asyncio.Task[None]] = set()
        self._attempts: set[asyncio.Task[_Reached | None]] = set()  # to reach it
        most = descriptors_for_clients(RESERVE_IN_GROUP) // FILES_EACH
        self._unreached = Seldom(log)  # says that a leader cannot be reached
        self._why = ""  # it could not be, last
        self.room = Room(most, "are relayed already", log)

    async def listen(self) -> None:
        """Take clients. Raises OSError."""
        if self._servers:
            return
        loop = asyncio.get_running_loop()
        for listener in await open_listeners(self._host, self.port):
            self.port = self.port or listener.getsockname()[1]
            server = await loop.create_server(
                lambda: _Arrival(self._arrived), sock=listener, backlog=BACKLOG
            )
            self._servers.append(server)

    def stop_listening(self) -> None:
        """Take no more, and end those that are there."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in self._tasks:
            task.cancel()

    def follow(self, leader: str, key: bytes = b"") -> None:
        """The leader is at this host and port; "": nobody knows. It is told the addresses of
        clients if there is a `key`."""
        is_same = leader == self.leader
        if is_same and key == self._key:
            return
        self.leader, self._key = leader, key
        news, self._has_news = self._has_news, asyncio.Event()
        news.set()
        for attempt in self._attempts:  # who waits for a leader goes on to the new one
            attempt.cancel()
        if is_same:
            return
        loop = asyncio.get_running_loop()
        for task in self._joined:  # a leader that hands over answers what it was sent, and ends it
            loop.call_later(LAST_WORDS_SECONDS, self._end_joined, task)
        if leader:
            self._has_leader.set()
        else:
            self._has_leader.clear()

    def _end_joined(self, task: "asyncio.Task[None]") -> None:
        """Once, and not while a client gets to read what was the last."""
        if task in self._joined:
            self._joined.discard(task)
            task.cancel()

    def answer_here(self, accept: Accept | None) -> None:
        """This server leads, and `accept` makes what speaks with each client, those included that
        wait. None: it does not any more."""
        self._accept = accept
        if accept is None:
            return
        for task, client in self._waiting.items():
            client.is_passed_on = True
            task.cancel()
            client.arrival.become(accept())

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

    # -- a client --------------------------------------------------------------------------------

    def _arrived(self, arrival: _Arrival) -> None:
        if self._accept is not None:
            arrival.become(self._accept())
            return
        if len(self._tasks) >= self.room.most:
            self.room.refuse(arrival.transport)
            return
        self.total += 1
        client = self.clients[self.total] = Relayed(self.total, arrival)
        task = asyncio.get_running_loop().create_task(self._relay(client))
        self._waiting[task] = client
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, client))
        arrival.ended = task.cancel

    def _ended(self, client: Relayed, task: "asyncio.Task[None]") -> None:
        """Nothing brings a client any more, be it that its task was cancelled before it ran."""
        self._tasks.discard(task)
        del self.clients[client.cid]
        came, went = self._ended_bytes
        self._ended_bytes = came + client.in_bytes, went + client.out_bytes
        if self._waiting.pop(task, None) is not None and not client.is_passed_on:
            client.transport.abort()

    async def _relay(self, client: Relayed) -> None:
        if client.is_known:
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._bring(client)

    async def _bring(self, client: Relayed) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(LEADER_SECONDS_MAX), self._gate:
                there = await self._reach(client)
        except _RefusedError as error:
            del self._waiting[task]
            await _refuse(client, error.said)
            return
        except TimeoutError:
            if self.leader:
                self._unreached.error(
                    f"Clients cannot be brought to the leader, which says that they find it at "
                    f"{self.leader}: {self._why or 'it does not answer'}"
                )
            raise
        del self._waiting[task]
        self._joined.add(task)
        try:
            deadline = self.write_deadline_seconds + SLOW_SECONDS
            parted = partial(self._joined.discard, task)
            await _join(client, _streams(client.arrival), there, deadline, parted)
        except _SlowError:
            self.slow_count += 1
            self._log.info(
                f"{client.address.host}:{client.address.port} - cid:{client.cid} - Slow Consumer "
                "Detected: it takes nothing of what the leader has sent it, and is cut off"
            )
        finally:
            self._joined.discard(task)

    async def _reach(self, client: Relayed) -> "_Reached":
        """A connection to the leader, which knows at which address the client is. Raises OSError,
        `_RefusedError`."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            await self._has_leader.wait()
            leader, news = self.leader, self._has_news
            if client.arrival.is_from_group:
                raise ConnectionAbortedError("who brings it has to find the leader anew")
            attempt = asyncio.get_running_loop().create_task(self._try(client, leader))
            self._attempts.add(attempt)
            try:
                found = await attempt
            except asyncio.CancelledError:
                if task.cancelling():
                    attempt.add_done_callback(_drop)
                    raise
                continue  # another server leads meanwhile
            finally:
                self._attempts.discard(attempt)
            if found is not None and leader == self.leader:
                return found
            if leader == self.leader:  # it has failed, or its token is on its way to this server
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await news.wait()
            elif found is not None:
                found.writer.transport.abort()

    async def _try(self, client: Relayed, leader: str) -> "_Reached | None":
        """The same once; None if that leader does not take it."""
        host, _, port = leader.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=PIECE)
        except (OSError, OverflowError, ValueError) as error:
            self._why = str(error)
            return None
        self._why = ""
        said: bytes | None = None
        try:
            await self._announce(client, reader, writer)
            said = await _first_word(reader, client.arrival)
            if said is None:
                self._why = "it ends the connection without a word"
        except asyncio.IncompleteReadError as error:
            if b"-ERR" in error.partial:
                raise _RefusedError(error.partial) from error
            self._why = "it does not believe that this server is one of its group"
        except (OSError, asyncio.LimitOverrunError):
            pass
        finally:
            if said is None:
                writer.transport.abort()
        return None if said is None else _Reached(reader, writer, said)

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


class _Reached(NamedTuple):
    """A leader that takes a client, and what it has said already."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    said: bytes


class _SlowError(Exception):
    """A client takes nothing of what waits for it."""


class _RefusedError(Exception):
    """The leader has ended the connection; `said` is what it sent before, such as that it has too
    many already."""

    def __init__(self, said: bytes) -> None:
        super().__init__("the leader has ended the connection")
        self.said = said


def _drop(attempt: "asyncio.Task[_Reached | None]") -> None:
    """An attempt that has succeeded as nobody waited for it any more."""
    if not attempt.cancelled() and attempt.exception() is None and (found := attempt.result()):
        found.writer.transport.abort()


async def _first_word(reader: asyncio.StreamReader, arrival: _Arrival) -> bytes | None:
    """What a leader says first. None if it ends the connection instead: it hands over, and the
    client, which knows nothing of it, is brought to the next one.

    Empty where the client has spoken first, as some do with TLS.
    """
    word = asyncio.ensure_future(reader.read(PIECE))
    spoken = asyncio.ensure_future(arrival.has_spoken.wait())
    try:
        await asyncio.wait([word, spoken], return_when=asyncio.FIRST_COMPLETED)
        return (word.result() or None) if word.done() else b""
    finally:
        word.cancel()
        spoken.cancel()
        await asyncio.gather(word, spoken, return_exceptions=True)


def _streams(arrival: _Arrival) -> Streams:
    """What reads from a client and writes to it, from now on."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    arrival.become(protocol)
    return reader, asyncio.StreamWriter(arrival.transport, protocol, reader, loop)


async def _refuse(client: Relayed, said: bytes) -> None:
    """Tell a client what the leader has said before it ended the connection."""
    reader, writer = _streams(client.arrival)
    writer.write(said)
    client.out_bytes += len(said)
    try:
        await _part(writer, reader)
    finally:
        writer.transport.abort()


async def _join(
    client: Relayed,
    here: Streams,
    there: _Reached,
    deadline: float,
    parted: Callable[[], None],
) -> None:
    """Bring bytes both ways until both sides have said all, or one has gone. `parted` is told that
    the leader has. Raises `_SlowError` for a client that takes nothing for `deadline` seconds."""
    reader, writer = here
    there_writer = there.writer
    writer.write(there.said)
    client.out_bytes += len(there.said)
    ways = [
        asyncio.create_task(_bring_to_leader(client, reader, there_writer)),
        asyncio.create_task(_bring_to_client(client, writer, there.reader, deadline)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if ways[1].done():
            parted()
            ways[0].cancel()
            await asyncio.wait(ways[:1])
            there_writer.transport.abort()
            ways[1].result()
            await _part(writer, reader)
        else:
            ways[0].result()
            _end_writing(there_writer)  # what it has said is still answered, and that brought
            await asyncio.wait(ways[1:], timeout=deadline)
    finally:
        for way in ways:
            way.cancel()
        for one in (writer, there_writer):  # before anything is waited for: it may be cancelled
            one.close()
            if one.transport.get_write_buffer_size():  # it may never be taken
                loop = asyncio.get_running_loop()
                loop.call_later(deadline, one.transport.abort)
        await asyncio.gather(*ways, return_exceptions=True)


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


async def _bring_to_client(
    client: Relayed, writer: asyncio.StreamWriter, reader: asyncio.StreamReader, deadline: float
) -> None:
    """The same. Raises `_SlowError` for a client that takes nothing: the leader may have cut it off
    for that, which could not be seen from here while it is waited for."""
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
