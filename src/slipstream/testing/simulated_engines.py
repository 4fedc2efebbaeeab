"""A simulated group whose servers have stores, and whose leaders have engines with clients.

    SimulatedEngines(seed=4711, size=3).run(seconds=4)

It is a `SimulatedGroup` in which entries are operations on files. Each server applies them to a
`StoreDirectory` on a `SimulatedDisk`, which crashes with it; checkpoints are made of these files.
Who leads opens an engine over a `GroupDisk` (`simulated_lead`) and forgets it when it leads no
more. What clients do is in `group_clients`, what they are to find in `engine_history`. After faults
have ended, all stores have to hold the same bytes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from random import Random

from slipstream.errors import DiskFullError
from slipstream.group import Entry, Mark, Member, NotLeaderError
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.server.replica.group_disk import LostLeadError
from slipstream.server.replica.operations import Kind, Operation, encode_operations
from slipstream.server.replica.store_copy import PIECE_BYTES, Held
from slipstream.server.replica.store_directory import StoreDirectory
from slipstream.testing.driver import BEGIN, Message
from slipstream.testing.engine_history import EngineHistory
from slipstream.testing.group_clients import Caller, Line, Workload
from slipstream.testing.lanes import LaneFuture
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.testing.simulated_group import CALM_MAX, SETTLE_MAX, Server, SimulatedGroup
from slipstream.testing.simulated_lead import Connection, Lead

STORE = "store"
OPEN_AGAIN = 200 * MILLISECOND  # after a leader could not open the store
HOP = MILLISECOND // 100  # from a lane to the group's thread
FULL_AGAIN = 50 * MILLISECOND  # after which files that had no space are written to again
CAPACITY = 1 << 40  # bytes of a disk that is not full
SMALL_PIECE_BYTES = 2048  # of a copy that takes many of them
CLIENT_DELAY_MAX = 2 * MILLISECOND
CONNECTED_MAX = 10 * SECOND  # after the end of all faults until everything was read


class AppliedFiles:
    """What the entries have come to: the files of a store."""

    def __init__(self, random: Random) -> None:
        self.disk = SimulatedDisk(random)
        self.directory = StoreDirectory(self.disk, STORE, 0)

    @property
    def index(self) -> int:
        """Up to which entry there is all."""
        return self.directory.applied

    @property
    def durable(self) -> int:
        """Up to which it is durable."""
        return self.directory.durable

    @property
    def entries(self) -> tuple[Entry, ...]:
        """None: files do not tell."""
        return ()

    def open(self, log_end: int) -> None:
        """A server starts."""
        self.directory = StoreDirectory(self.disk, STORE, log_end)

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """The next entries are committed."""
        self.directory.apply_all(entries)

    def keep(self) -> None:
        """Make durable what was applied."""
        self.directory.keep()

    def held(self) -> Held:
        """Which files need not be sent."""
        return self.directory.held()

    def copy(self, random: Random, first: int, held: Held) -> tuple[int, Iterator[bytes]]:
        """The files as they are now."""
        snapshot = self.directory.snapshot(held)

        def pieces() -> Iterator[bytes]:
            yield from snapshot.pieces(random.choice((PIECE_BYTES, SMALL_PIECE_BYTES)))
            snapshot.close()

        return snapshot.index, pieces()

    def begin_install(self) -> None:
        """The files of another server are about to take the place of these."""

    def install(self, index: int, pieces: list[bytes]) -> None:
        """They do so."""
        self.break_off(index, pieces)
        self.directory.install()

    def break_off(self, index: int, pieces: list[bytes]) -> None:
        """Some of them have come."""
        self.directory.begin_install(index)
        for piece in pieces:
            self.directory.take(piece)

    def crash(self, random: Random) -> None:
        """The power fails."""
        self.disk.crash()

    def lose(self) -> None:
        """All files are gone."""
        self.disk.lose(STORE)

    def content(self) -> dict[str, bytes]:
        """What the files hold, but for the space that is reserved at their ends."""
        prefix = f"{STORE}/files/"
        return {
            path: self.disk.read(path).rstrip(b"\0")
            for path in self.disk.files()
            if path.startswith(prefix)
        }


class Pending:
    """An entry of a lead that has no answer yet."""

    def __init__(self, mark: Mark, future: "Future[None]", deadline: int) -> None:
        self.mark = mark
        self.future = future
        self.deadline = deadline
        self.is_committed = False


class Host:
    """What a server has besides its member, while it runs."""

    def __init__(self) -> None:
        self.lead: Lead | None = None
        self.left: list[Lead] = []  # leads that are over, and may not have noticed
        self.led = 0  # the epoch that it knows to lead
        self.last_epoch = 0  # in which it has opened the store
        self.pending: deque[Pending] = deque()
        self.open_at = 0  # when the store may be opened again
        self.is_announcing = False  # until an earlier lead's entries have an outcome
        self.apply_at = 0  # when it goes on applying
        self.has_failed = False  # whether its store has, so that it ends at once


class ClientLine:
    """A client's connection: what either side says comes in its order, until it ends."""

    def __init__(
        self, engines: "SimulatedEngines", caller: Caller, server: Server, lead: Lead
    ) -> None:
        self.lead = lead
        self._engines = engines
        self._caller = caller
        self._server = server
        self._life = server.life
        self._there_at = self._back_at = 0
        self._is_closed = False
        self.connection = Connection(self._take)
        self._bring(partial(lead.connect, self.connection))

    def _bring(self, happens: Callable[[], None]) -> None:
        engines = self._engines
        self._there_at = max(self._there_at, engines.now + engines.client_delay())
        arrives = partial(engines.input, self._server, self._life, happens)
        engines.after(self._there_at - engines.now, arrives)

    def send(self, data: bytes) -> None:
        """Have bytes reach the engine."""
        self._bring(partial(self.lead.receive, self.connection, data))

    def _take(self, messages: list[Message]) -> None:
        """The engine has said something; it is on its way now."""
        self._engines.has_answered(self._server, self.lead)
        shows_memory = self._engines.was_full and self.lead.shows_memory
        self._back(lambda: self._caller.taken(messages, shows_memory))

    def _back(self, happens: Callable[[], None]) -> None:
        engines = self._engines
        self._back_at = max(self._back_at, engines.now + engines.client_delay())

        def arrive() -> None:
            if not self._is_closed:
                happens()

        engines.after(self._back_at - engines.now, arrive)

    def close(self) -> None:
        """The client ends it."""
        self._is_closed = True
        self._bring(partial(self.lead.disconnect, self.connection))

    def end(self) -> None:
        """The server has ended it: the client comes to know, and what is on its way may be lost."""
        if self._is_closed:
            return

        def lost() -> None:
            self._is_closed = True
            self._caller.lost()

        if self._engines.random.random() < 0.5:
            self._back_at = 0
        self._back(lost)


class SimulatedEngines(SimulatedGroup):
    """See the module's text."""

    def __init__(
        self,
        seed: int,
        size: int = 3,
        damage: bool = False,
        callers: int = 4,
        fills: bool = False,
        outside: bool = False,
    ) -> None:
        super().__init__(
            seed,
            size,
            damage,
            trims=True,
            fills=fills,
            make_applied=_make_applied,
            outside=outside,
        )
        self.history = EngineHistory()
        self.hosts = {name: Host() for name in self.servers}
        self.workload = Workload(self, self.history, callers)
        self.opened = 0  # stores by leaders
        self.lead_type: type[Lead] = Lead
        self._lines: list[ClientLine] = []
        self._append_timeout = self.random.choice((SECOND, 10 * SECOND))
        self._is_slow_to_apply = self.random.random() < 0.3
        self.moves += [(1, self._fail_store), (1, self._refuse_entry), (1, self._cut_client)]
        self.moves += [(self.random.choice((60, 400)), self._append)]
        self._refuses = False
        self.was_full = False  # some disk
        if outside:
            self.moves += [(3, self._shut_store)]

    # -- what clients need of the simulation -----------------------------------------------------

    def note(self, text: str) -> None:
        """Tell the story."""
        self._note(text)

    def after(self, delay: int, event: Callable[[], None]) -> None:
        """Have something happen later."""
        self._at(delay, event)

    def input(self, server: Server, life: int, happens: Callable[[], None]) -> None:
        """Something comes to a server."""
        self._input(server, life, happens)

    def client_delay(self) -> int:
        """From a client to its server, or back."""
        return self.random.randrange(CLIENT_DELAY_MAX // 10, CLIENT_DELAY_MAX)

    def connect(self, caller: Caller) -> Line | None:
        """A connection with a server that says it leads."""
        found = [
            (self.servers[name], host.lead)
            for name, host in self.hosts.items()
            if host.lead is not None and host.lead.is_open
        ]
        if not found:
            return None
        server, lead = self.random.choice(found)
        line = ClientLine(self, caller, server, lead)
        self._lines.append(line)
        return line

    def has_answered(self, server: Server, lead: Lead) -> None:
        """An engine has said something to a client."""
        self.ledger.answers(server.name, lead.epoch, server.applied.index)

    def _end_lines(self, lead: Lead) -> None:
        ended = [line for line in self._lines if line.lead is lead]
        self._lines = [line for line in self._lines if line.lead is not lead]
        for line in ended:
            line.end()

    # -- what a server does ----------------------------------------------------------------------

    def _prepare(self) -> None:
        ready: list[bool] = []
        self.workload.prepare(lambda: ready.append(True))
        self._run_until(lambda: bool(ready), 20 * SECOND, "begin to serve clients")

    def _start(self, server: Server) -> None:
        self.hosts[server.name] = Host()
        super()._start(server)

    def _kill(self, server: Server) -> None:
        host = self.hosts[server.name]
        lead, host.lead = host.lead, None
        for one in [*host.left, *([lead] if lead else [])]:
            one.end()
        host.left.clear()
        if lead is not None:
            self._end_lines(lead)
        super()._kill(server)

    def run(self, seconds: float) -> "SimulatedEngines":
        """Let things happen for so long, then come to rest. Raises `ViolationError`."""
        try:
            super().run(seconds)
        finally:
            for host in self.hosts.values():
                for lead in [*host.left, *([host.lead] if host.lead else [])]:
                    lead.end()
        return self

    def _apply(self, server: Server, member: Member) -> None:
        host = self.hosts[server.name]
        if host.has_failed or (self.now < host.apply_at and self._has_faults):
            return
        try:
            super()._apply(server, member)
        except DiskFullError:
            host.apply_at = self.now + FULL_AGAIN
            return
        except OSError as error:
            self._store_failed(server, error)
            return
        if self._is_slow_to_apply and self.random.random() < 0.1:
            host.apply_at = self.now + self.random.randrange(50 * MILLISECOND)

    def _store_failed(self, server: Server, error: OSError) -> None:
        """This server takes no part until it is started again."""
        self._note(f"the store of {server.name} fails: {error}")
        self.hosts[server.name].has_failed = True
        life = server.life
        self._at(0, lambda: self._crash_one(server) if server.life == life else None)

    def _keep(self, server: Server) -> bool:
        if self.hosts[server.name].has_failed:
            return False
        try:
            server.applied.keep()
        except DiskFullError:
            return False
        except OSError as error:
            self._store_failed(server, error)
            return False
        return True

    def _watch(self, server: Server, member: Member) -> None:
        super()._watch(server, member)
        if server.member is member:
            self._settle(server, member)
            self._look(server, member)

    def _tick_leads(self, server: Server) -> None:
        host = self.hosts[server.name]
        if host.lead is not None:
            host.lead.tick()
        for lead in [one for one in host.left if one.is_idle]:
            host.left.remove(lead)
            lead.end()

    def _tick(self, server: Server, life: int) -> None:
        self._input(server, life, lambda: self._tick_leads(server))
        super()._tick(server, life)

    # -- entries of a lead -----------------------------------------------------------------------

    def _submit(self, server: Server, epoch: int, body: bytes) -> "Future[None]":
        """Have an entry appended in that epoch, or not at all."""
        future = LaneFuture()
        life = server.life

        def append() -> None:
            host, member = self.hosts[server.name], server.member
            if member is None:
                return
            if self._refuses or member.epoch != epoch:
                self._refuses = False
                future.set_exception(LostLeadError("not appended"))
                return
            try:
                (mark,) = member.append(self.now_of(server), [body])
            except NotLeaderError as error:
                future.set_exception(LostLeadError(str(error)))
                return
            host.pending.append(Pending(mark, future, self.now + self._append_timeout))

        self._at(HOP, lambda: self._input(server, life, append))
        return future

    def _settle(self, server: Server, member: Member) -> None:
        """Tell who waits for entries."""
        host = self.hosts[server.name]
        left: deque[Pending] = deque()
        applied = server.applied.index
        for one in host.pending:
            one.is_committed = one.is_committed or member.is_committed(one.mark)
            if one.is_committed and one.mark.index <= applied:
                one.future.set_result(None)
            elif not one.is_committed and (
                one.mark.epoch != member.epoch or self.now >= one.deadline
            ):
                one.future.set_exception(LostLeadError("the entry may be in the log or not"))
            else:
                left.append(one)
        host.pending = left

    # -- who leads -------------------------------------------------------------------------------

    def _look(self, server: Server, member: Member) -> None:
        """Open the store, or forget an engine, as things are."""
        host = self.hosts[server.name]
        epoch = member.epoch
        if epoch and server.applied.index < member.committed:
            epoch = host.led if epoch == host.led else 0  # not all is applied yet
        host.led = epoch
        lead = host.lead
        if lead is not None and (lead.epoch != epoch or lead.disk.is_lost):
            self._leave(server)
        if epoch and host.lead is None and self.now >= host.open_at and not host.is_announcing:
            if epoch == host.last_epoch:  # what was under way then has an outcome first
                self._announce(server, epoch, lambda: self._open(server, epoch))
            else:
                self._open(server, epoch)

    def _leave(self, server: Server) -> None:
        """Forget the engine."""
        host = self.hosts[server.name]
        lead, host.lead = host.lead, None
        assert lead is not None
        self._note(f"{server.name} forgets its engine of {lead.epoch}")
        lead.leave()
        host.left.append(lead)
        self._end_lines(lead)

    def _announce(self, server: Server, epoch: int, then: Callable[[], None]) -> None:
        """Have all servers know who leads; `then` all that was appended before has an outcome."""
        host, life = self.hosts[server.name], server.life
        host.is_announcing = True
        operation = Operation(Kind.LEADS, server.name, b"here")
        future = self._submit(server, epoch, encode_operations([operation]))

        def done(future: "Future[None]") -> None:
            host.is_announcing = False
            if server.life == life and future.exception() is None:
                then()
            else:
                host.open_at = self.now + OPEN_AGAIN

        future.add_done_callback(done)

    def _open(self, server: Server, epoch: int) -> None:
        host, life = self.hosts[server.name], server.life
        member = server.member
        if member is None or host.lead is not None or host.led != epoch:
            return
        host.last_epoch = epoch
        applied = server.applied
        assert isinstance(applied, AppliedFiles)
        self._note(f"{server.name} opens the store in {epoch}, at {applied.index}")
        begun = self.now

        def opened() -> None:
            self.opened += 1
            self._note(
                f"{server.name} takes clients in {epoch}, {(self.now - begun) / SECOND:.3f} s"
            )
            self._announce(server, epoch, lambda: None)

        def failed(error: Exception) -> None:
            if host.lead is not lead or lead.disk.is_lost:
                return
            if not isinstance(error, DiskFullError):
                raise error
            self._leave(server)
            host.open_at = self.now + OPEN_AGAIN

        def later(event: Callable[[], None]) -> None:
            delay = HOP + self.random.randrange(MILLISECOND // 10)
            self._at(delay, lambda: self._input(server, life, event))

        lead = host.lead = self.lead_type(
            epoch,
            applied.disk,
            applied.directory.root,
            partial(self._submit, server, epoch),
            lambda lead: self._may_answer(server, member, lead),
            lambda: BEGIN + self.now + server.date_offset,
            later,
            self.random.getrandbits(30),
            opened,
            failed,
            lambda: server.is_full or bool(member.without_space(self.now_of(server))),
        )

    def _may_answer(self, server: Server, member: Member, lead: Lead) -> bool:
        host = self.hosts[server.name]
        return member.may_read(self.now_of(server)) and host.led == lead.epoch

    # -- what may happen -------------------------------------------------------------------------

    def _append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.workload.act()

    def _answered(self) -> int:
        return self.history.answered

    def _hand_over(self) -> None:
        """A leader hands over: it closes its store in good order, or does not."""
        server = self._leader()
        host = self.hosts[server.name] if server is not None else None
        lead = host.lead if host is not None else None
        if server is None or lead is None or not lead.is_open or self.random.random() < 0.3:
            super()._hand_over()
            return
        life, closing = server.life, lead
        self._note(f"{server.name} closes its store")
        self._end_lines(lead)
        lead.is_open, lead.is_stopping = False, True

        def wait() -> None:
            if server.life != life or self.hosts[server.name].lead is not closing:
                return
            if closing.is_idle:
                closing.close(closed)
            else:
                self._at(MILLISECOND, lambda: self._input(server, life, wait))

        def closed() -> None:
            if self.hosts[server.name].lead is closing and server.member is not None:
                self._at(0, lambda: self._input(server, life, give))

        def give() -> None:
            others = [name for name in self.servers if name != server.name]
            if self.hosts[server.name].lead is closing:
                self._leave(server)
            if server.member is None or not others:
                return
            self.hosts[server.name].open_at = self.now + SECOND
            try:
                server.member.hand_over(self.now_of(server), self.random.choice(others))
            except (NotLeaderError, ValueError):  # or it leads alone: the other one is away
                pass

        self._input(server, life, wait)

    def _fail_store(self) -> None:
        """The disk under a server's files fails to do something."""
        server = self.random.choice(list(self.servers.values()))
        applied = server.applied
        assert isinstance(applied, AppliedFiles)
        if server.member is not None:
            operation = self.random.choice(("sync", "pwrite", "rename", "sync_dir", "mkdir"))
            self._note(f"{operation} of the store of {server.name} will fail")
            applied.disk.fail(operation, self.random.randint(1, 20))

    def _fill_disk(self) -> None:
        self.was_full = True
        super()._fill_disk()
        for server in self.servers.values():
            applied = server.applied
            assert isinstance(applied, AppliedFiles)
            if server.is_full and applied.disk.capacity == CAPACITY:
                applied.disk.capacity = applied.disk.used() + self.random.randrange(5_000)

    def _make_space(self, server: Server) -> None:
        super()._make_space(server)
        applied = server.applied
        assert isinstance(applied, AppliedFiles)
        applied.disk.capacity = CAPACITY

    def _refuse_entry(self) -> None:
        """An entry is not taken, because too much waits: the engine has to be opened anew."""
        self._note("an entry will be refused")
        self._refuses = True

    def _cut_client(self) -> None:
        if self._lines:
            line = self.random.choice(self._lines)
            self._lines.remove(line)
            line.end()

    # -- rest ------------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        self._refuses = False
        self.workload.is_over = True
        for server in self.servers.values():
            applied = server.applied
            assert isinstance(applied, AppliedFiles)
            applied.disk.heal()
        super()._come_to_rest()

    def _check(self) -> None:
        self._read_all()
        self._run_until(self._is_settled, SETTLE_MAX, "settle after reading")
        self._check_files()
        leader = self._leader()
        if leader is not None:
            self._note(f"{leader.name} crashes at rest")
            self._kill(leader)
            self._start(leader)
        self._serve_again()
        self._read_all()
        self.history.check()

    def _read_all(self) -> None:
        callers = self.workload.callers
        self._run_until(
            lambda: all(caller.is_idle for caller in callers), CONNECTED_MAX, "answer clients"
        )
        ready: list[bool] = []
        self.workload.read_all(lambda: ready.append(True))
        self._run_until(lambda: bool(ready), CALM_MAX + CONNECTED_MAX, "let clients read")

    def _check_files(self) -> None:
        first, *others = self.servers.values()
        wanted = _content(first)
        for server in others:
            found = _content(server)
            if found == wanted:
                continue
            differing = sorted(
                path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)
            )
            raise ViolationError(f"files: {server.name} and {first.name} differ in {differing}")


def _make_applied(random: Random) -> AppliedFiles:
    return AppliedFiles(Random(random.getrandbits(60)))


def _content(server: Server) -> dict[str, bytes]:
    applied = server.applied
    assert isinstance(applied, AppliedFiles)
    return applied.content()
