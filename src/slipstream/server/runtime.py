"""The engine on an event loop: its listener, its connections, its store, its end."""

import asyncio
import gc
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from random import SystemRandom
from typing import TYPE_CHECKING

from slipstream.engine.engine import Engine
from slipstream.engine.loop.clock import Clock
from slipstream.engine.protocol.options import EngineOptions
from slipstream.log.disk import DirectoryLock, Disk, OsDisk
from slipstream.log.stream_store import Store
from slipstream.server.busy_poll import BusyPoll
from slipstream.server.connection import Connection
from slipstream.server.disk_thread import DiskThread, RunAhead
from slipstream.server.listeners import BACKLOG, open_listeners
from slipstream.server.logger import Logger
from slipstream.server.measures import Measures
from slipstream.server.room import RESERVE, Refused, Room, descriptors_for_clients
from slipstream.server.turns import Turns

if TYPE_CHECKING:
    from slipstream.engine.protocol.group import Group
    from slipstream.server.tls import Tls

# How long the end of a server waits for clients to take what is meant for them.
DRAIN_STEPS_MAX = 200
DRAIN_STEP_SECONDS = 0.005
# ... and for commits that are under way, of which clients are told then.
COMMIT_STEPS_MAX = 200
# For how long a leader that hands over acts on what clients have sent, and how often it looks.
SETTLE_STEPS_MAX = 20
SETTLE_STEP_SECONDS = 0.003
# Has what it is given run, and does not wait; done once what that has written is durable.
RunGathered = Callable[[Callable[[], None]], "Future[None]"]
# In a group a batch waits for other servers, and the disk is idle meanwhile. So a second batch
# follows it from here on: half of what a client has outstanding with 1,000 messages of 128 bytes.
GROUP_QUEUED_BYTES_MIN = 64 * 1024
APPLIED_FIRST = 32  # small files that a start writes; the first checkpoint sees to the others
OPENING_THREADS = 16  # open logs at a start, where each of them waits for the disk


def keep_what_is_there() -> None:
    """For a process that is only a server: what is there now stays, and cycles are rare."""
    gc.freeze()
    gc.enable()  # the command has turned it off while everything was loaded
    gc.set_threshold(50_000, 50, 50)


class Runtime:
    """One server on the running loop."""

    def __init__(
        self, options: EngineOptions, *, log: Logger, group: "Group | None" = None
    ) -> None:
        self.log = log
        self.tls: Tls | None = None  # for connections to come
        self.allow_non_tls = False
        self.relay_key = b""  # with which servers of the group prove that they speak for clients
        self.proxy_protocol = False  # whether everybody may say for whom a connection was made
        self.write_deadline_seconds = 10.0
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(time.time_ns())
        self.measures = Measures()
        self.disk_thread = DiskThread(self.loop, self.turn, self.measures)
        self.engine = Engine(self.clock, SystemRandom(), options, self.disk_thread, group=group)
        self.engine.meter = self.measures
        self.turns = Turns(self.loop, self.engine, log, self.measures.turn)
        self.connections: set[Connection] = set()
        self.room = Room(descriptors_for_clients(RESERVE), "are connected already", log)
        self.stalls = 0  # how often a publisher rested, because somebody did not keep up
        self._servers: list[asyncio.Server] = []
        self._lock: DirectoryLock | None = None
        self.store: Store | None = None
        self.reads_nothing = False  # whatever a session waits for
        self.run_gathered: RunGathered | None = None  # on the disk of a group
        self.left: Future[None] | None = None  # what the end has written, on its way to others

    def turn(self, action: Callable[[], None]) -> None:
        """Run `action` as a turn of the engine."""
        self.turns.run(action)

    def poll_busily(self) -> None:
        """For a process that is only a server: nobody else's threads wait while the loop looks for
        more."""
        self.turns.busy_poll = BusyPoll(self.loop)

    # -- beginning and end ---------------------------------------------------------------------

    def open_store(self, directory: str, log_dir: str = "") -> Store:
        """The store directory, locked against other servers; its commit log in `log_dir`, if that
        is named. Blocks."""
        if self._lock is None:
            self._lock = DirectoryLock(directory)
        self.store = Store(
            OsDisk(), directory, log_dir=log_dir, threads=OPENING_THREADS,
            applied_first=APPLIED_FIRST,
        )  # fmt: skip
        return self.store

    def open_group_store(
        self, disk: Disk, directory: str, runs_ahead: RunAhead, run_gathered: RunGathered
    ) -> Store:
        """The store of a group, on the disk of its leader. Blocks."""
        self.run_gathered = run_gathered
        self.disk_thread.runs_here = False  # each sync waits for other servers
        self.disk_thread.runs_ahead = runs_ahead
        self.engine.commit.queued_bytes_min = GROUP_QUEUED_BYTES_MIN
        self.store = Store(disk, directory, threads=OPENING_THREADS)
        return self.store

    async def listen(self, host: str, port: int) -> int:
        """Accept clients; the port, which the system chose for 0. Raises `OSError`."""

        listeners = await open_listeners(host, port)
        found: int = listeners[0].getsockname()[1]
        for listener in listeners:
            server = await self.loop.create_server(self.accept, sock=listener, backlog=BACKLOG)
            self._servers.append(server)
        return found

    def accept(self) -> asyncio.Protocol:
        """What speaks with a client that has come."""
        if len(self.connections) >= self.room.most:
            return Refused(self.room)
        connection = self._new_connection()
        if not self.relay_key and not self.proxy_protocol:
            return connection
        from slipstream.server.proxied import Proxied

        return Proxied(connection, self.relay_key, self.proxy_protocol)

    def _new_connection(self) -> Connection:
        if self.tls is None:
            return Connection(self)
        from slipstream.server.tls_connection import TlsConnection

        return TlsConnection(self, self.tls)

    def give_up_clients_of(self, followers: Collection[str]) -> int:
        """End the connections by which these servers of the group bring clients; how many."""
        found = [one for one in self.connections if one.brought_by in followers]
        for connection in found:
            connection.give_up()
        return len(found)

    def stop_listening(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def settle(self) -> None:
        """Before another server leads: act on what clients have sent, and keep the answers until
        none is missing. Who waits for one sends nothing meanwhile. So when the connection ends,
        right behind the answers, nothing is on its way that nobody would answer."""
        for connection in self.connections:
            connection.hold()
        came_before = -1
        for _ in range(SETTLE_STEPS_MAX):
            came = sum(session.in_msgs for session in self.engine.sessions.values())
            if came == came_before and not self._waits_for_commits():
                break
            came_before = came
            await asyncio.sleep(SETTLE_STEP_SECONDS)

    async def close(self) -> None:
        """End every connection, sync and close every stream. On the disk of a group the last that
        was written may be on its way still: `left`."""
        self.stop_listening()
        self.turns.finish_last()  # who waits for a shared commit is answered ...
        await self._end_commits()  # ... also on a disk that is not quick
        self.engine.dismiss()
        for session in self.engine.all_sessions():
            session.close("Server Shutdown")
        self.engine.rounds.finish_turn()
        self.turns.end()
        await self._let_go()
        self.disk_thread.close()
        if self.run_gathered is not None:
            self.left = self.run_gathered(self.engine.close)
        else:
            self.engine.close()
        if self._lock is not None:
            self._lock.release()

    async def _end_commits(self) -> None:
        """Let commits end that are under way. Nothing more is read meanwhile. In a group they wait
        for others, and a leader that hands over has settled."""
        if not self._waits_for_commits() or self.run_gathered is not None:
            return
        self.reads_nothing = True
        for connection in self.connections:
            connection.pause_reading()
        for _ in range(COMMIT_STEPS_MAX):
            if not self._waits_for_commits():
                break
            await asyncio.sleep(DRAIN_STEP_SECONDS)
        self.reads_nothing = False
        for connection in self.connections:
            connection.read_on()

    def _waits_for_commits(self) -> bool:
        """Whether something that was stored is not durable yet, or will be committed."""
        commit = self.engine.commit
        return commit.own_batches > 0 or commit.is_waiting or bool(self.engine.turn.streams)

    async def abandon(self) -> None:
        """End without a word, and leave the store to whoever leads the group now: nothing that
        this server has to say leaves, and who is connected looks for the leader."""
        self.turns.end()
        self.stop_listening()
        for connection in list(self.connections):
            connection.abort()
        await self.loop.run_in_executor(None, self.disk_thread.close)

    async def _let_go(self) -> None:
        """Give clients a moment to take what is meant for them, then be rid of them."""
        for _ in range(DRAIN_STEPS_MAX):
            if not any(connection.unsent() for connection in self.connections):
                break
            await asyncio.sleep(DRAIN_STEP_SECONDS)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
