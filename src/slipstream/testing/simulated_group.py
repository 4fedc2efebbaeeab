"""A group of servers under a seed: a network, disks, clocks and clients; and a ledger that watches.

One `SimulatedGroup` is one life of a group of 1, 3 or 5 members. Faults come by chance, and clients
append numbered entries and read through the leader. Then all faults end, and the group has to
serve within 10 s; `GroupHistory` compares all the time what was answered with what there is.

    SimulatedGroup(seed=4711, size=3).run(seconds=6)

With `trims`, servers keep what they have applied and trim their logs, and those that need what is
gone are sent all that another one has applied, in pieces; some lose what they had applied. What a
server has applied is a list of entries here (`applied`), which has to be the one history, also
after a crash amid all this.

With `fills`, disks are full for a while: what a server has to write waits until there is space.

With `changes`, servers join the group and leave it, one at a time. Those that were removed, and
those that are not in it yet, run on, come back after crashes, and disturb the others.

With `outside`, the register is in a store outside of the group (`simulated_register`); then there
may be two servers, too, of which one goes on alone and takes the other one back.

Time is real time; each server has a clock of its own, at half to twice the speed, and another one
with the date, which jumps. Parts can be replaced to plant faults: `moves`, `now_of`, the members.
"""

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import msgspec

from slipstream.errors import DiskFullError, StorageError
from slipstream.group import (
    DiskHealth,
    Mark,
    Member,
    NotLeaderError,
    Settings,
    decode,
    encode,
)
from slipstream.group.messages import Accepted, Appended, Promise, Sealed
from slipstream.group.outside_register import Answer, OutsideRegister, Request
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.testing.applied import Applied, AppliedEntries, Piece
from slipstream.testing.group_history import GroupHistory
from slipstream.testing.ledger import ViolationError
from slipstream.testing.log_disk import LogDisk
from slipstream.testing.simulated_network import SimulatedNetwork
from slipstream.testing.simulated_register import SimulatedStore

TICK = 40 * MILLISECOND
MOVE = 60 * MILLISECOND  # from one thing that happens to the next, on average
CALM_MAX = 10 * SECOND  # from the end of all faults until the group serves
SETTLE_MAX = 10 * SECOND  # ... until all servers have the same
HISTORY_SHOWN = 40
ANSWERS = (Promise, Accepted, Sealed, Appended)  # that promise something to be there
TRANSFER_MAX = SECOND  # after which a checkpoint is asked for anew
SIZE_MAX = 7  # servers in the group, while it changes
SERVERS_MAX = 10  # that there are at all
FULL_STEP = 20 * MILLISECOND  # after which a full disk is tried again
FULL_MAX = 4 * SECOND
RATES = (0.5, 0.8, 1.0, 1.0, 1.25, 2.0)


class Transfer:
    """A checkpoint on its way to a server."""

    def __init__(self, until: int) -> None:
        self.until = until  # when it is given up
        self.mark: Mark | None = None  # the last entry in it, once it has begun
        self.answer: object = None  # the question may be doubled, and answered twice
        self._counts: dict[object, int] = {}  # of its pieces, by answer, once all have left
        self._pieces: dict[tuple[object, int], Piece] = {}  # by answer and number

    @property
    def is_complete(self) -> bool:
        """Whether all has come."""
        return self.mark is not None and len(self.pieces) == self._counts.get(self.answer, -1)

    def take(self, answer: object, number: int, piece: Piece) -> None:
        """A piece has come, maybe before the answer's beginning."""
        self._pieces[answer, number] = piece

    def end(self, answer: object, count: int) -> None:
        """There are so many pieces."""
        self._counts[answer] = count

    @property
    def pieces(self) -> list[Piece]:
        """Those of the answer that has begun, in order, up to the first one that is missing."""
        found: list[Piece] = []
        while (self.answer, len(found)) in self._pieces:
            found.append(self._pieces[self.answer, len(found)])
        return found


class Server:
    """One server: a disk that stays, a member while it runs, a clock."""

    def __init__(self, name: str, random: Random, disk: LogDisk, applied: Applied) -> None:
        self.name = name
        self.disk = disk
        self.applied = applied  # what it has taken for committed has come to
        self.member: Member | None = None
        self.life = 0  # how often it was started
        self.register: OutsideRegister | None = None
        self.waiting: dict[int, tuple[Mark, int]] = {}  # by number; index answered before it
        self.is_half = False  # whether what it has applied is half of a checkpoint
        self.has_lost = False  # ... or is lost in part
        self.transfer: Transfer | None = None
        self.serves = 0  # the epoch that it leads
        self.paused: list[Callable[[], None]] | None = None  # what has come meanwhile
        self.sync_time = MILLISECOND
        self.is_full = False  # its disk
        self.crash_share = 0.0  # of inputs after which it crashes if it is writing ...
        self.crash_share_answered = 0.0  # ... if it has just answered, too
        self.date_offset = 0  # ns by which the date has jumped
        self._rate = random.choice(RATES)
        self._base = (0, random.randrange(1000 * SECOND))  # real time and its own

    def clock(self, now: int) -> int:
        """Its own time, which goes forward only."""
        real, own = self._base
        return own + int((now - real) * self._rate)

    def date(self, now: int) -> int:
        """The time of day, which jumps."""
        return self.clock(now) + self.date_offset

    def change_rate(self, now: int, rate: float) -> None:
        """Have its clock run at another speed from now on."""
        self._base = (now, self.clock(now))
        self._rate = rate


class SimulatedGroup:
    """See the module's text."""

    def __init__(
        self,
        seed: int,
        size: int = 3,
        damage: bool = False,
        make_disk: Callable[[Random], LogDisk] = lambda random: LogDisk(),
        trims: bool = False,
        changes: bool = False,
        unlinks: bool = False,
        fills: bool = False,
        make_applied: Callable[[Random], Applied] = lambda random: AppliedEntries(),
        outside: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0
        self.ledger = GroupHistory()
        self.story: list[str] = []
        self.member_type: Callable[..., Member] = Member
        names = tuple(f"n{number}" for number in range(1, size + 1))
        self.network = SimulatedNetwork(self.random, names)
        self._make_disk = make_disk
        self._make_applied = make_applied
        self._founders = names
        self.servers = {
            name: Server(name, self.random, make_disk(self.random), make_applied(self.random))
            for name in names
        }
        self._number = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_number = 0
        self._has_faults = True
        self._is_swinging = False
        self._isolated = ""  # the leader that was cut off last
        self._gone: set[str] = set()  # servers that do not come back for now
        self.crash_amid_writing(self.random.choice((0.0, 0.0, 0.003, 0.01)))
        self._alike = self.random.random() < 0.2  # timers of all servers fire together
        self.settings = Settings(
            entries_max=self.random.choice((1, 3, 64)),
            bytes_max=self.random.choice((5, 1 << 20)),  # bodies are numbers of a few digits
            unanswered_max=self.random.choice((10, 1 << 20)),
        )
        self.moves: list[tuple[int, Callable[[], None]]] = [
            (30, self._append),
            (3, self._cut),
            (3, self._heal),
            (3, self._isolate_leader),
            (2, self._cut_link),
            (3, self._turn_sides),
            (1, self._lose_leader),
            (2, self._crash),
            (1, self._crash_all),
            (2, self._pause),
            (2, self._change_clock),
            (2, self._slow_disk),
            (1, self._fail_disk),
            (2, self._hand_over),
            (1, self._swing),
        ]
        if damage and size > 1 + outside:  # nobody could repair it, or the last one by itself
            self.moves += [(3, self._damage)]
        self.installs = 0  # checkpoints that were installed
        if trims:
            self.moves += [(20, self._trim), (3, self._leave_behind)]
            if size > 1 + outside:
                self.moves += [(1, self._lose_applied)]
        self.register_type: Callable[..., OutsideRegister] = OutsideRegister
        self.store = SimulatedStore(self.random) if outside else None
        if outside:
            self.moves += [(6, self._worsen_store), (4, self._calm_store)]
            self.settings = msgspec.structs.replace(self.settings, attempt=4 * SECOND)
        self.wishes = 0  # of leaders, for another one to lead in their place
        if fills:
            self.moves += [(4, self._fill_disk)]
        self.changes = 0  # of the members, that were begun
        if changes:
            self.moves += [(8, self._change_members)]
        self._unlinks = unlinks  # whether the ends of connections are heard of
        if unlinks:
            self.moves += [(6, self._unlink)]

    def crash_amid_writing(self, share: float) -> None:
        """Have all servers crash after that share of what comes to them while they write."""
        for server in self.servers.values():
            server.crash_share = share

    # -- events ----------------------------------------------------------------------------------

    def _at(self, delay: int, event: Callable[[], None]) -> None:
        self._event_number += 1
        heapq.heappush(self._events, (self.now + delay, self._event_number, event))

    def _step(self) -> None:
        self.now, _, event = heapq.heappop(self._events)
        event()

    def run(self, seconds: float) -> "SimulatedGroup":
        """Let things happen for so long, then come to rest. Raises `ViolationError`."""
        try:
            for server in self.servers.values():
                self._start(server)
            self._run_until(lambda: bool(self._leader()), 20 * SECOND, "begin")
            self._prepare()
            self._at(0, self._move)
            until = self.now + int(seconds * SECOND)
            while self.now < until:
                self._step()
            self._come_to_rest()
        except (ViolationError, AssertionError) as error:
            story = "\n    ".join(self.story[-HISTORY_SHOWN:])
            raise ViolationError(f"{error}\n  seed {self.seed}, after:\n    {story}") from error
        return self

    def _prepare(self) -> None:
        """The group serves: what clients need before anything happens."""

    def _run_until(self, is_reached: Callable[[], bool], limit: int, what: str) -> None:
        until = self.now + limit
        while not is_reached():
            if self.now > until:
                raise ViolationError(f"stall: the group does not {what} {self._describe()}")
            self._step()

    def _describe(self) -> str:
        return ", ".join(
            f"{server.name} {member.failed or member.committed}"
            for server in self._running()
            if (member := server.member)
        )

    def _come_to_rest(self) -> None:
        self._has_faults = False
        self._note("faults end")
        self.network.calm()
        if self.store is not None:
            self.store.calm()
        for server in self.servers.values():
            self._resume(server)
            server.sync_time = MILLISECOND
            self._make_space(server)
            if server.member is None or server.member.failed:
                self._kill(server)
                self._start(server)
        if self._may_lose_minority:
            self._serve_with_majority()
        self._serve_again()
        self._run_until(self._is_settled, SETTLE_MAX, "settle")
        self._restart_at_rest()
        self._run_until(self._is_settled, SETTLE_MAX, "settle again")
        self._check()

    @property
    def _may_lose_minority(self) -> bool:
        """Whether so many servers may go that a majority is left, and the others have all: by their
        logs and files, and by who is in the group."""
        are_founders = len(self.servers) == len(self._founders) and not self.changes
        others = [server.member for server in self._running() if server.member]
        return self.store is None and are_founders and self._have_all(others)

    def _serve_with_majority(self) -> None:
        """A minority is gone, and comes back once the others serve, which is not to depend on it.
        They may have crashed, too, amid what the next leader has to finish."""
        names = self.random.sample(list(self.servers), len(self.servers))
        self._gone = set(names[: (len(names) - 1) // 2])
        crashed = [name for name in names if name in self._gone or self.random.random() < 0.5]
        for name in crashed:
            self._note(f"{name} {'is gone' if name in self._gone else 'crashes at rest'}")
            self._kill(self.servers[name])
        for name in crashed:
            if name not in self._gone:
                self._start(self.servers[name])
        self._serve_again()
        back, self._gone = self._gone, set()
        for name in sorted(back):
            self._start(self.servers[name])

    def _check(self) -> None:
        """Compare all that was answered with all that there is."""
        self.ledger.check()

    def _serve_again(self) -> None:
        answered = self._answered()

        def append() -> None:
            if self._answered() == answered:
                self._append()
                self._at(100 * MILLISECOND, append)

        append()
        self._run_until(lambda: self._answered() > answered, CALM_MAX, "serve")

    def _answered(self) -> int:
        """How much clients were answered."""
        return len(self.ledger.answered)

    def _restart_at_rest(self) -> None:
        """A follower comes back to a leader that has nothing new to send."""
        members = self._members()
        followers = [one for one in self._running() if not one.serves and one.name in members]
        if followers:
            self._kill(followers[0])
            self._start(followers[0])

    def _members(self) -> tuple[str, ...]:
        """Who is in the group, says who leads it last; empty while they change."""
        serving = [one for one in self._running() if one.serves and one.member is not None]
        if not serving:
            return ()
        leader = max(serving, key=lambda one: one.serves).member
        assert leader is not None
        return () if leader.joining or leader.membership.previous else leader.members

    def _is_settled(self) -> bool:
        servers = [self.servers[name] for name in self._members()]
        found = {one.member.committed if one.member else 0 for one in servers}
        if self.store is not None and not self._is_whole(servers):
            return False
        have_applied = all(one.applied.index in found for one in servers)
        return len(found) == 1 and have_applied and found.pop() >= self.ledger.latest

    def _is_whole(self, servers: list[Server]) -> bool:
        """Whether nobody is away any more."""
        return not any(one.member and one.member.membership.away for one in servers)

    def _note(self, text: str) -> None:
        self.story.append(f"{self.now / SECOND:.3f} {text}")

    # -- servers ---------------------------------------------------------------------------------

    def now_of(self, server: Server) -> int:
        """The time that a server hands to its member."""
        return server.clock(self.now)

    def _running(self) -> list["Server"]:
        return [server for server in self.servers.values() if server.member is not None]

    def _leader(self) -> Server | None:
        """Some server that says it leads."""
        leaders = [server for server in self._running() if server.serves]
        return self.random.choice(leaders) if leaders else None

    def _start(self, server: Server) -> None:
        server.life += 1
        names = self._founders if server.name in self._founders else ()
        state, entries = server.disk.open()
        log_end = server.disk.base.index + len(entries)
        server.applied.open(max(log_end, state.synced) if state is not None else log_end)
        self.ledger.committed(server.name, 1, server.applied.entries)
        if self.store is not None:
            process = f"{server.name}.{server.life}"
            server.register = self.register_type(server.name, process, self.settings)
        server.member = self.member_type(
            server.name,
            names,
            state,
            entries,
            self.now_of(server),
            Random(self.seed if self._alike else self.random.random()),
            self.settings,
            *([server.register] if server.register is not None else []),
        )
        self._note(f"{server.name} starts at {server.member.log.end}")
        if server.is_half and not server.member.is_installing:
            raise ViolationError(f"applied: {server.name} goes on from half a checkpoint")
        if server.has_lost and not server.member.is_installing:
            self._ask_for_lost(server, server.member)
        self._flush(server)
        self._tick(server, server.life)

    def _tick(self, server: Server, life: int) -> None:
        def tick() -> None:
            if server.member is not None:
                server.member.tick(self.now_of(server))
                self._look_at_disk(server, server.member)
                self._install(server, server.member)

        self._input(server, life, tick)
        if server.life == life:
            self._at(TICK, lambda: self._tick(server, life))

    def _input(self, server: Server, life: int, happens: Callable[[], None]) -> None:
        """Something comes to a server; to one that is paused later, to one that is gone never."""
        if server.life != life or server.member is None:
            return
        if server.paused is not None:
            server.paused.append(lambda: self._input(server, life, happens))
            return
        happens()
        if server.member is not None:
            self._flush(server)

    def _flush(self, server: Server) -> None:
        """Send, write and write down what an input has brought about."""
        member = server.member
        assert member is not None
        crash_share = server.crash_share
        for receiver, message in member.take_messages():
            data = encode(message)
            if isinstance(message, ANSWERS) and receiver != server.name:
                crash_share = max(crash_share, server.crash_share_answered)
            for delay in self.network.delays(server.name, receiver):
                self._at(delay, self._delivery(server.name, self.servers[receiver], data))
        while server.register is not None and (request := server.register.take_request()):
            self._visit_store(server, server.register, request)
        job = member.take_job()
        if job is not None:
            server.disk.jobs.append(job)
            if len(server.disk.jobs) == 1:
                self._begin_job(server)
        self._watch(server, member)
        if self._has_faults and server.disk.jobs and self.random.random() < crash_share:
            self._crash_one(server)

    def _delivery(self, sender: str, receiver: Server, data: bytes) -> Callable[[], None]:
        def deliver() -> None:
            self._input(receiver, receiver.life, receive)

        def receive() -> None:
            if receiver.member is not None:
                receiver.member.receive(self.now_of(receiver), sender, decode(data))

        return deliver

    def _visit_store(self, server: Server, register: OutsideRegister, request: Request) -> None:
        """A request goes to the store, which the crash of the server does not hold up."""
        store, life = self.store, server.life
        assert store is not None

        def answered(answer: Answer) -> None:
            def bring() -> None:
                if server.member is not None:
                    register.answered(self.now_of(server), request.number, answer)
                    server.member.look_at_register(self.now_of(server))

            self._input(server, life, bring)

        store.visit(request, self._at, answered)

    def _worsen_store(self) -> None:
        assert self.store is not None
        self.store.worsen()
        self._note(f"the register is {'away' if self.store.is_away else 'worse'}")

    def _shut_store(self) -> None:
        assert self.store is not None
        self.store.shut()
        self._note("the register refuses")

    def _calm_store(self) -> None:
        assert self.store is not None
        self.store.calm()
        self._note("the register is well")

    def _begin_job(self, server: Server) -> None:
        life = server.life

        def finish() -> None:
            if server.life != life or not server.disk.jobs:
                return
            if server.is_full:
                self._at(FULL_STEP, finish)
                return
            job = server.disk.finish()
            if server.disk.jobs:
                self._begin_job(server)
            self._input(server, life, lambda: synced(job.number))

        def synced(number: int) -> None:
            if server.member is not None:
                server.member.synced(self.now_of(server), number)

        self._at(self.random.randrange(server.sync_time // 10, server.sync_time), finish)

    def _watch(self, server: Server, member: Member) -> None:
        """Tell the ledger what is new."""
        if member.failed and not member.is_removed:
            raise ViolationError(f"corruption: {server.name} has found: {member.failed}")
        self._apply(server, member)
        self.ledger.trimmed(server.name, member.log.base)
        epoch = member.epoch
        if epoch != server.serves:
            server.serves = epoch
            self._note(f"{server.name} leads {epoch}" if epoch else f"{server.name} leads no more")
            if epoch:
                self.ledger.serves(server.name, member)
        for number, (mark, after) in list(server.waiting.items()):
            if member.is_committed(mark):
                self._note(f"{server.name} has answered {number}, {mark.index}")
                self.ledger.answered_append(server.name, epoch, number, mark, after)
                self._check_reads()
            if mark.epoch != epoch or member.is_committed(mark):
                del server.waiting[number]

    # -- members ---------------------------------------------------------------------------------

    def _change_members(self) -> None:
        """The leader has a server join, or leave, or one take another one's place."""
        server = self._leader()
        if server is None or server.member is None or server.paused is not None:
            return
        members = (*server.member.members, *server.member.membership.away)
        gone = self.random.choice([*(name for name in members if name != server.name), ""])
        new = self._newcomer() if len(members) < SIZE_MAX else None
        kept = tuple(name for name in members if name != gone)
        if new is not None and self.random.random() < 0.7:
            if len(members) < SIZE_MAX - 2 and self.random.random() < 0.4:
                gone, kept = "", members
            kept = (*kept, new.name)
        is_repaired = self.store is not None and len(self._founders) > 2
        if kept == members or len(kept) < (3 if is_repaired else 2):
            return
        try:
            server.member.change_members(self.now_of(server), kept)
        except (NotLeaderError, ValueError):
            return
        self.changes += 1
        self._note(f"{server.name} wants {' '.join(kept)} in place of {' '.join(members)}")
        self._flush(server)
        if gone and self.random.random() < 0.3:
            self._kill(self.servers[gone])
            self._start_later(self.servers[gone], 8 * SECOND)

    def _newcomer(self) -> Server | None:
        """A server that was never in the group."""
        for server in self._running():
            member = server.member
            if member and server.name not in member.membership.everyone and not member.is_removed:
                return server
        if len(self.servers) >= SERVERS_MAX:
            return None
        name = f"n{len(self.servers) + 1}"
        disk, applied = self._make_disk(self.random), self._make_applied(self.random)
        server = self.servers[name] = Server(name, self.random, disk, applied)
        self.network.join(name)
        self._start(server)
        return server

    def _apply(self, server: Server, member: Member) -> None:
        """Apply what is committed."""
        index = server.applied.index
        if not member.is_installing and member.committed > index:
            if member.log.base.index > index:
                raise ViolationError(
                    f"applied: {server.name} has {index}, and trimmed {member.log.base}"
                )
            entries = member.log.read(index + 1, member.committed - index)
            self.ledger.committed(server.name, index + 1, entries)
            server.applied.apply(entries)

    # -- checkpoints -----------------------------------------------------------------------------

    def _trim(self) -> None:
        """A server keeps what it has applied, or does not, and trims its log up to there."""
        server = self.random.choice(list(self.servers.values()))
        is_kept, share = self.random.random() < 0.8, self.random.choice((1.0, self.random.random()))

        def trim() -> None:
            if server.member is None or server.member.is_installing:
                return
            if is_kept and not self._keep(server):
                return
            server.member.trim(self.now_of(server), int(share * server.applied.durable))

        self._input(server, server.life, trim)

    def _keep(self, server: Server) -> bool:
        """Make durable what a server has applied; whether that succeeds."""
        server.applied.keep()
        return True

    def _leave_behind(self) -> None:
        """A follower hears nobody, while the others go on and trim their logs."""
        followers = [server for server in self._running() if not server.serves]
        leader = self._leader()
        if not followers or leader is None:
            return
        self._cut_off(self.random.choice(followers))
        for _ in range(self.random.randint(1, 5)):
            self._append()
        self._at(self.random.randrange(SECOND), self._trim_all)
        self._at(
            self.random.randrange(2 * SECOND),
            lambda: self._heal() if self._has_faults else None,  # else the network is calm
        )

    def _trim_all(self) -> None:
        for _ in self.servers:
            self._trim()

    def _lose_applied(self) -> None:
        """A server that is down loses what it had applied; one at a time in the group."""
        down = [server for server in self.servers.values() if server.member is None]
        others = [server.member for server in self._running() if server.member]
        if len(down) == 1 and self._have_all(others):
            server = self.random.choice(down)
            self._note(f"{server.name} loses what it has applied")
            server.applied.lose()
            server.has_lost = True

    def _have_all(self, members: list[Member]) -> bool:
        """Whether these servers lack nothing that they had, and no other one what it has applied:
        what is lost at two of three servers is lost."""
        are_whole = all(one.log.is_whole and not one.is_installing for one in members)
        return are_whole and not any(server.has_lost for server in self.servers.values())

    def _ask_for_lost(self, server: Server, member: Member) -> None:
        """What was applied is lost: it is applied anew, or comes from another server."""
        if member.log.base.index <= server.applied.index:
            server.has_lost = False
        elif not member.lose_applied(self.now_of(server)):
            raise ViolationError(f"applied: {server.name} has lost it, and asks for nothing")

    def _install(self, server: Server, member: Member) -> None:
        """Go on with the checkpoint that a server is sent, or ask for one."""
        transfer = server.transfer
        if transfer is not None and (self.now >= transfer.until or self._breaks(transfer)):
            if transfer.mark is not None and member.may_install:
                try:
                    server.applied.break_off(transfer.mark.index, transfer.pieces)
                except (OSError, DiskFullError) as error:
                    self._install_failed(server, error)
                    return
            transfer = server.transfer = None
        sources = member.checkpoint_sources()
        if transfer is None and sources:
            source = self.random.choice(sources)
            server.transfer = transfer = Transfer(self.now + TRANSFER_MAX)
            self._ask_checkpoint(server, transfer, source)
        if transfer is None or transfer.mark is None or not member.may_install:
            return
        if not server.is_half:
            self._note(f"{server.name} begins to install {transfer.mark}")
        server.is_half = True
        server.applied.begin_install()
        if transfer.is_complete and self.random.random() < 0.5:  # it takes a while
            try:
                server.applied.install(transfer.mark.index, transfer.pieces)
            except (OSError, DiskFullError) as error:
                self._install_failed(server, error)
                return
            server.is_half = server.has_lost = False
            server.transfer = None
            self.installs += 1
            self._note(f"{server.name} has installed {transfer.mark}")
            self.ledger.committed(server.name, 1, server.applied.entries)
            self.ledger.trimmed(server.name, transfer.mark)
            if self._has_faults and self.random.random() < 0.1:  # before it can say so
                life = server.life
                self._at(0, lambda: self._crash_one(server) if server.life == life else None)
            else:
                member.installed(self.now_of(server), transfer.mark)

    def _install_failed(self, server: Server, error: Exception) -> None:
        """It is asked for again, by the process that there is or by the next one."""
        self._note(f"{server.name} does not install it: {error}")
        server.transfer = None
        life = server.life
        if self.random.random() < 0.5:
            self._at(0, lambda: self._crash_one(server) if server.life == life else None)

    def _send(self, sender: Server, receiver: Server, happens: Callable[[], None]) -> None:
        for delay in self.network.delays(sender.name, receiver.name):
            self._at(delay, lambda: self._input(receiver, receiver.life, happens))

    def _breaks(self, transfer: Transfer) -> bool:
        """Whether a transfer that has begun is over before it is whole."""
        is_on_its_way = bool(transfer.pieces) and not transfer.is_complete
        return is_on_its_way and self._has_faults and self.random.random() < 0.02

    def _ask_checkpoint(self, server: Server, transfer: Transfer, asked: str) -> None:
        source, held = self.servers[asked], server.applied.held()

        def answer() -> None:
            member = source.member
            if member is None or member.log.base.index > source.applied.index:
                return
            if member.is_installing:
                return
            try:
                index, pieces = source.applied.copy(self.random, member.log.base.index, held)
            except (OSError, StorageError):  # it is asked again
                return
            mark = member.checkpoint_mark(index)
            if mark is None:
                return
            this = object()
            self._send(source, server, begin(this, mark))
            send_next(this, pieces, source.life, 0)

        def send_next(this: object, pieces: Iterator[Piece], life: int, number: int) -> None:
            """Read a piece, while entries go on, and send it."""
            piece = next(pieces, None)
            if piece is None:
                self._send(source, server, lambda: transfer.end(this, number))
                return
            self._send(source, server, lambda: transfer.take(this, number, piece))
            again = partial(send_next, this, pieces, life, number + 1)
            self._at(self.random.randrange(MILLISECOND), lambda: self._input(source, life, again))

        def begin(this: object, mark: Mark) -> Callable[[], None]:
            def begun() -> None:
                member = server.member
                if server.transfer is not transfer or member is None or transfer.mark is not None:
                    return
                if member.begin_install(self.now_of(server), mark):
                    transfer.answer, transfer.mark = this, mark
                    self._install(server, member)
                else:
                    server.transfer = None

            return begun

        self._send(server, source, answer)

    # -- what may happen -------------------------------------------------------------------------

    def _move(self) -> None:
        if not self._has_faults:
            return
        (move,) = self.random.choices(
            [move for _, move in self.moves], [weight for weight, _ in self.moves]
        )
        move()
        self._check_reads()
        self._at(self.random.randrange(2 * MOVE), self._move)

    def _append(self) -> None:
        server = self._leader()
        if server is None:
            return
        count = self.random.choice((1, 1, 1, 2, 5, 20))
        at_once = self.random.choice((1, count))
        for _ in range(0, count, at_once):
            numbers = range(self._number + 1, self._number + at_once + 1)
            self._number += at_once
            self._input(server, server.life, self._appending(server, numbers))

    def _appending(self, server: Server, numbers: range) -> Callable[[], None]:
        after = self.ledger.latest
        bodies = [b"%d" % number for number in numbers]

        def append() -> None:
            if server.member is None:
                return
            try:
                marks = server.member.append(self.now_of(server), bodies)
            except NotLeaderError:
                return
            for number, mark in zip(numbers, marks, strict=True):
                server.waiting[number] = (mark, after)

        return append

    def _check_reads(self) -> None:
        """A member that would answer a read now has to know what was answered."""
        for server in self._running():
            member = server.member
            if member and server.paused is None and member.may_read(self.now_of(server)):
                self.ledger.may_read(server.name, member.epoch, member.committed)

    def _cut(self) -> None:
        self.network.cut_some()
        self.network.worsen()
        self._note(f"cut {sorted(self.network.cut)}")

    def _isolate_leader(self) -> None:
        """A leader is cut off; it does not know, and clients go on with it."""
        server = self._leader()
        if server is not None:
            self._isolated = server.name
            self._cut_off(server)

    def _cut_off(self, server: Server) -> None:
        self.network.cut = {
            link
            for other in self.servers
            for link in ((server.name, other), (other, server.name))
            if other != server.name
        }
        self._note(f"cut off {server.name}")

    def _cut_link(self) -> None:
        """A leader and one other do not hear each other; the rest hears both."""
        server = self._leader()
        other = self.random.choice(list(self.servers))
        if server is not None and other != server.name:
            self.network.cut = {(server.name, other), (other, server.name)}
            self._note(f"cut {server.name} and {other}")

    def _turn_sides(self) -> None:
        """The leader that was cut off is back, and its successor is cut off; of the others, one may
        forget what it knew."""
        later = [one for one in self._running() if one.serves and one.name != self._isolated]
        if not self._isolated or not later:
            return
        successor = max(later, key=lambda one: one.serves)
        self._cut_off(successor)
        others = [
            one for one in self._running() if one.name not in (self._isolated, successor.name)
        ]
        if others and self.random.random() < 0.5:
            self._crash_one(self.random.choice(others))
        self._isolated = ""

    def _swing(self) -> None:
        """One server in the middle hears one side and then the other, which never hear each other:
        all that both sides have in common is what the middle one keeps over its crashes."""
        if len(self.servers) < 3 or self._is_swinging:
            return
        self._is_swinging = True
        middle, *others = self.random.sample(list(self.servers), len(self.servers))
        half = len(others) // 2
        sides = (others[:half], others[half:])
        self._note(f"{middle} swings between {' '.join(sides[0])} and {' '.join(sides[1])}")
        self.servers[middle].sync_time = self.random.choice((1, 100, 300)) * MILLISECOND
        self.servers[middle].crash_share_answered = self.random.choice((0.0, 0.1, 0.3))

        def end() -> None:
            self._is_swinging = False
            self.servers[middle].crash_share_answered = 0.0

        self._hear_side(middle, sides, self.random.randint(2, 8), end)

    def _hear_side(
        self,
        middle: str,
        sides: tuple[list[str], list[str]],
        turns: int,
        end: Callable[[], None],
    ) -> None:
        """The server in the middle hears the first side for a while, and then the second."""
        if not turns or not self._has_faults:
            end()
            return
        heard, unheard = sides
        self.network.cut = {
            link for a in unheard for b in (*heard, middle) for link in ((a, b), (b, a))
        }
        self._note(f"{middle} hears {' '.join(heard)}")
        time = self.random.choice((300 * MILLISECOND, 4 * SECOND, 6 * SECOND))
        self._at(
            self.random.randrange(time // 2, time),
            lambda: self._hear_side(middle, (unheard, heard), turns - 1, end),
        )

    def _lose_leader(self) -> None:
        """The power fails everywhere; the leader comes back late."""
        server = self._leader()
        for one in self._running():
            self._note(f"{one.name} crashes{', long' if one is server else ''}")
            self._kill(one)
            self._start_later(one, 8 * SECOND if one is server else 20 * MILLISECOND)

    def _heal(self) -> None:
        self.network.heal()
        self._note("heal")

    def _kill(self, server: Server) -> None:
        server.life += 1
        server.member = None
        server.paused = None
        server.waiting.clear()
        server.transfer = None
        server.serves = 0
        server.disk.crash(self.random)
        server.applied.crash(self.random)
        if self._unlinks:
            self._unlink_all(server)

    def _unlink_all(self, server: Server) -> None:
        """The others hear that their connections with a server have ended, each in its time."""
        for other in self._running():
            self._at(self.random.randrange(50 * MILLISECOND), self._unlinking(other, server.name))

    def _unlink(self) -> None:
        """A connection ends, and nothing else has."""
        running = self._running()
        if running:
            other = self.random.choice(list(self.servers))
            self._unlinking(self.random.choice(running), other)()

    def _unlinking(self, server: Server, other: str) -> Callable[[], None]:
        life = server.life

        def unlinked() -> None:
            if server.member is not None:
                server.member.unlinked(self.now_of(server), other)

        return lambda: self._input(server, life, unlinked)

    def _crash(self) -> None:
        """The power of one server fails; more often of one that leads."""
        server = self._leader() if self.random.random() < 0.4 else None
        server = server or self.random.choice(list(self.servers.values()))
        if server.member is None:
            return
        self._crash_one(server)

    def _crash_one(self, server: Server) -> None:
        self._note(f"{server.name} crashes")
        self._kill(server)
        self._start_later(server, self.random.choice((20 * MILLISECOND, 2 * SECOND)))

    def _crash_all(self) -> None:
        for server in self._running():
            self._note(f"{server.name} crashes")
            self._kill(server)
            self._start_later(server, SECOND)

    def _start_later(self, server: Server, time_max: int) -> None:
        def start() -> None:
            if server.member is None and server.name not in self._gone:
                self._start(server)

        self._at(self.random.randrange(time_max), start)

    def _pause(self) -> None:
        """A server does nothing for a while, and does not know."""
        server = self.random.choice(list(self.servers.values()))
        if server.paused is None and server.member is not None:
            server.paused = []
            life = server.life
            self._note(f"{server.name} pauses")
            self._at(
                self.random.randrange(3 * SECOND),
                lambda: self._resume(server) if server.life == life else None,
            )

    def _resume(self, server: Server) -> None:
        waiting, server.paused = server.paused or [], None
        for event in waiting:
            event()

    def _change_clock(self) -> None:
        server = self.random.choice(list(self.servers.values()))
        server.change_rate(self.now, self.random.choice(RATES))
        server.date_offset += self.random.choice((-1, 1)) * self.random.randrange(5 * SECOND)

    def _slow_disk(self) -> None:
        server = self.random.choice(list(self.servers.values()))
        server.sync_time = self.random.choice((1, 1, 30, 300)) * MILLISECOND

    def _fill_disk(self) -> None:
        """There is no space on a server's disk, for a while; more often of one that leads."""
        server = self._leader() if self.random.random() < 0.5 else None
        server = server or self.random.choice(list(self.servers.values()))
        if server.is_full:
            return
        self._note(f"the disk of {server.name} is full")
        server.is_full = True
        self._at(self.random.randrange(FULL_MAX), lambda: self._make_space(server))

    def _make_space(self, server: Server) -> None:
        if server.is_full:
            self._note(f"the disk of {server.name} has space")
            server.is_full = False

    def _look_at_disk(self, server: Server, member: Member) -> None:
        """Tell a member how its disk is; a leader may wish that another one leads."""
        now = self.now_of(server)
        member.note_disk(now, DiskHealth(server.is_full, server.sync_time // 2))
        wish = member.wish(now)
        if wish is not None:
            self._note(f"{server.name} wishes {wish.successor} to lead")
            self.wishes += 1
            member.hand_over(now, wish.successor, is_slow=not wish.is_full)

    def _fail_disk(self) -> None:
        """A sync fails, which is final: the server ends, and is started again later."""
        server = self.random.choice(list(self.servers.values()))
        if server.member is not None:
            self._note(f"the disk of {server.name} fails")
            server.member.fail("a sync has failed")
            self._kill(server)
            self._start_later(server, 2 * SECOND)

    def _hand_over(self) -> None:
        server = self._leader()
        if server is None or server.paused is not None or server.member is None:
            return
        successor = self.random.choice(server.member.members)
        if successor != server.name:
            self._note(f"{server.name} hands over to {successor}")
            server.member.hand_over(self.now_of(server), successor)
            self._flush(server)

    def _damage(self) -> None:
        """A bit of one server that is down is turned over; one at a time in the group."""
        down = [server for server in self.servers.values() if server.member is None]
        others = [server.member for server in self._running() if server.member]
        if down and self._have_all(others):
            server = self.random.choice(down)
            if len(down) == 1:
                self._note(f"{server.name} has a damaged entry")
                server.disk.damage(self.random)
