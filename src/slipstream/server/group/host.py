"""A member of a group on an event loop: time, connections and the disk are brought to it.

    await host.start()
    index = await host.append(body)              once a majority has it, if this server leads
    async for entries in host.committed(after):  on every server, in order
    host.trim(index)                             what they have come to is kept, so they may go

Each input, a message, a finished job, a tick or new entries, is a turn: the member handles it, what
it says leaves, and its jobs are done, one behind the other (`log_writer`). What a turn says leaves
before its jobs are done: a leader's entries are on their way while it syncs its own copy. The clock
goes forward only, and counts the time in which the machine sleeps, so that no lease outlives that.

**The first start.** A store that is empty is that of a new server, or one that has been lost, after
which nobody knows what this server has promised. So a group is founded once each server has heard
all others say that they have promised nothing yet either; from then on each of them keeps who is
in the group. A server whose store is empty joins where another one has a group (`joining`).

**Trimming.** The owner says up to which index it has applied entries, durably. Of what may go
`keep_bytes` stay for followers that are a little behind, and up to `HOLD_FACTOR` times that for
those that are sent entries, or a checkpoint. Who is further behind has a checkpoint installed.

**The register** is the members' own, or lies outside of the group (`outside`). All servers have to
have the same one, also over restarts, or an epoch could have two leaders.
"""

import asyncio
import random
import secrets
import time
import typing
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial

from slipstream.errors import ConfigError, Error, StorageError
from slipstream.group import (
    DiskHealth,
    DiskJob,
    Entry,
    FollowerState,
    Mark,
    Member,
    Message,
    NotLeaderError,
    OutsideRegister,
    Settings,
    State,
    Wish,
)
from slipstream.group.membership import Membership
from slipstream.group.messages import About, CheckpointMessage
from slipstream.group.outside_register import Answer as RegisterAnswer
from slipstream.model.durations import SECOND
from slipstream.server.group.checkpoints import Checkpoints, TrimmedError
from slipstream.server.group.handshake import Greeting, Standing
from slipstream.server.group.joining import new_member_name, next_members, server_name_of
from slipstream.server.group.link import LinkContexts
from slipstream.server.group.links import Links, LinkSettings
from slipstream.server.group.log_writer import LogWriter
from slipstream.server.group.outside import RegisterCarrier, RegisterStore
from slipstream.server.group.standstill import Standstill
from slipstream.server.group.store import GroupStore, Identity, Stored
from slipstream.server.group.transfers import Transfers
from slipstream.server.logger import Logger

BODY_MAX = 32 * 1024 * 1024  # bytes of one entry
WAITING_MAX = 64 * 1024 * 1024  # bytes that are appended, and not known to be committed
PIECE = 1024  # entries that `committed` gives at a time, at most
KEEP_BYTES = 64 * 1024 * 1024  # of entries that stay when the log is trimmed
HOLD_FACTOR = 8  # of these, for servers that come closer
ABOUT_BYTES_MAX = 64 * 1024  # of what a server says of itself
_TICK = 0.02  # s
_TRIM_EVERY = SECOND // 4  # ns
_AFTER_SPACE = 5 * SECOND  # for entries that waited for space to be committed then
_ADMIT_EVERY = SECOND // 4
_NOT_FOR_MEMBERS = (*typing.get_args(CheckpointMessage), About)
OUTSIDE_ATTEMPT = 5 * SECOND  # ns: a register outside of the group may take long to answer


class OutcomeUnknownError(Error):
    """An entry was appended, and nobody can say yet whether it is in the log for good."""


class BusyError(Error):
    """More is waiting for a majority than is good."""


def clock() -> int:
    """ns, forward only; where the system can, also while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


Answer = Callable[[int, Error | None], None]  # an entry's index; or why it has none


class _Waiting:
    """An append whose caller waits."""

    __slots__ = ("_answer", "deadline", "epoch", "mark", "size")

    def __init__(self, answer: Answer, size: int, deadline: int, epoch: int) -> None:
        self._answer: Answer | None = answer
        self.epoch = epoch  # in which it is to be appended
        self.size = size
        self.deadline = deadline
        self.mark: Mark | None = None

    def answer(self, index: int, error: Error | None = None) -> None:
        """Tell the caller, once."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(index, error)


class GroupHost:
    """See the module's text. `size` is how many servers the configuration names, this one included:
    a group is founded by so many, and takes in new ones up to there."""

    def __init__(
        self,
        name: str,
        cluster: str,
        size: int,
        store: GroupStore,
        links: LinkSettings,
        log: Logger,
        settings: Settings | None = None,
        contexts: LinkContexts | None = None,
        now: Callable[[], int] = clock,
        checkpoints: Checkpoints | None = None,
        keep_bytes: int = KEEP_BYTES,
        register: RegisterStore | None = None,
    ) -> None:
        self.name = name
        self.checkpoints = checkpoints  # may be set until `start`
        self.failed = ""  # why this server takes no part in the group
        self.on_change: Callable[[], None] = lambda: None  # who leads or fails, or `is_full`
        self.on_wish: Callable[[Wish], None] = self._fulfil  # another server had better lead
        self.are_files_full = False  # whether the owner finds the disk full; as the owner says
        self.may_wait_for_space = True  # entries, for as long as it takes; on any thread
        self.log_end = 0  # the last index that the log had when this server started
        self._cluster = cluster
        self._size = size
        self._store = store
        self._log = log
        self._settings = settings or (
            Settings(attempt=OUTSIDE_ATTEMPT) if register is not None else Settings()
        )
        self._register = register
        self._carrier: RegisterCarrier | None = None
        self._now = now
        self._looked_at = now()  # when the deadlines were looked at
        self._loop = asyncio.get_running_loop()
        self._links = Links(name, links, self, log, contexts)
        self._writer = LogWriter(self._loop, store, self._written)
        self._here: DiskJob | None = None  # it is done once what was said before it has left
        self._member: Member | None = None
        self._identity: Identity | None = None
        self._heard: dict[str, Greeting] = {}  # the last of each server
        self._about: dict[str, bytes] = {}  # what each server has said of itself, as it led or not
        self._founding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._new: list[tuple[bytes, _Waiting]] = []  # bodies that are appended in the next turn
        self._waiting: deque[_Waiting] = deque()  # in the order of their marks
        self._waiting_size = 0  # bytes of both
        self._committed = 0  # index, as the readers know it
        self._damaged = 0  # entries
        self._was_installing = False
        self._readers: list[asyncio.Future[None]] = []
        self._keep_bytes = keep_bytes
        self._applied = 0  # index up to which entries may go
        self._trim_at = 0
        self._admit_at = 0
        self._is_full = False  # the disk, as was said last
        self._was_full = False  # `is_full`, as was said last
        self._without_space: list[str] = []  # servers, which keep this leader from committing
        self._step = 0  # of the members' changes that is known
        self._standstill = Standstill()
        self._transfers: Transfers | None = None
        self._leader_name = ""
        self._epoch = 0
        self._is_stopped = False

    # -- the beginning, the end ------------------------------------------------------------------

    async def start(self) -> None:
        """Read the store, listen, dial; the group serves once a majority has. Raises `Error`."""
        stored = await self._writer.run(self._open)
        if stored is not None:
            state = stored.state or State()
            # Where the end is lost, entries were applied that the log does not have any more.
            self.log_end = max(state.base.index + len(stored.entries), state.synced)
            for finding in stored.findings:
                self._log.error(f"The store of the group is damaged: {finding}")
            if stored.state is None:
                self._fail(
                    f"the state in {self._store.path} is lost: what this server has promised is "
                    "not known"
                )
            else:
                self._check(stored)
                self._begin(stored)
        await self._links.start()
        if self._member is None and not self.failed:
            self._look_for_members()

    def _open(self) -> Stored | None:
        return None if self._store.is_empty else self._store.open()

    def _check(self, stored: Stored) -> None:
        identity = stored.identity
        assert identity is not None
        if (identity.cluster, server_name_of(identity.name)) != (self._cluster, self.name):
            raise ConfigError(
                f'the store {self._store.path} is of server "{server_name_of(identity.name)}" in '
                f'cluster "{identity.cluster}", not of "{self.name}" in "{self._cluster}": start '
                "it under its own name, or name another store directory"
            )
        if identity.is_outside != (self._register is not None):
            where = "outside of it" if identity.is_outside else "with its own servers"
            raise ConfigError(
                f"the group of the store {self._store.path} has its register {where}, and the "
                "configuration says otherwise: two registers could have two servers lead at a "
                "time; set cluster.register as it was"
            )
        self._identity = identity
        self._call(identity.name)

    def _call(self, name: str) -> None:
        """Be this member of the group from now on."""
        if name != self.name:
            self.name = name
            self._links.rename(name)

    def _begin(self, stored: Stored) -> None:
        assert self._identity is not None
        outside = None
        if self._register is not None:
            outside = OutsideRegister(self.name, secrets.token_hex(8), self._settings)
            self._carrier = RegisterCarrier(
                outside, self._register, partial(self._hear_register, outside), self._log
            )
        self._member = Member(
            self.name,
            self._identity.members,
            stored.state,
            stored.entries,
            self._now(),
            random.Random(),
            self._settings,
            outside,
        )
        self._transfers = Transfers(
            self._member,
            self.checkpoints,
            self._send,
            lambda name: name in self._links.names,
            self._turn,
            self._now,
            self._log,
        )
        self._timer = self._loop.call_later(_TICK, self._tick)
        self._turn()

    def _hear_register(self, outside: OutsideRegister, number: int, answer: RegisterAnswer) -> None:
        member = self._member
        if member is None or self._is_stopped:
            return
        now = self._now()
        try:
            outside.answered(now, number, answer)
            member.look_at_register(now)
        except Exception as error:
            self._stop_at_fault("an answer of the register", error)
        self._turn()

    def _send(self, receiver: str, message: Message) -> None:
        self._links.send(receiver, message)
        self._links.flush()

    async def stop(self) -> None:
        """End. Who waits for an append is told that nobody knows."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._founding is not None:
            await asyncio.wait([self._founding])
        if self._transfers is not None:
            await self._transfers.stop()
        if self._carrier is not None:
            await self._carrier.stop()
        elif self._register is not None:
            await self._register.close()
        await self._links.stop()
        self._writer.close()
        self._store.close()
        self._end_waits("this server stops")
        self._wake_readers()

    # -- founding --------------------------------------------------------------------------------

    def greeting(self, nonce: bytes) -> Greeting:
        """What this server says of itself."""
        step = self._member.membership.number if self._member is not None else 0
        register = self._register.called if self._register is not None else ""
        return Greeting(
            self._cluster, self.name, self._standing, self._whole, nonce, step, register
        )

    @property
    def _standing(self) -> Standing:
        member = self._member
        if self._identity is None:
            return Standing.KEPT if self.failed else Standing.EMPTY
        has_failed = self.failed or (member is not None and member.is_removed)
        if member is not None and not has_failed and not self._is_member:
            return Standing.JOINING
        return Standing.NEW if member is not None and member.is_new else Standing.KEPT

    @property
    def _is_member(self) -> bool:
        return self._member is not None and self.name in self._member.membership.whole

    def may_link(self, greeting: Greeting) -> str:
        """Why a server is not one to talk to; "" if it is."""
        if greeting.cluster != self._cluster:
            return f'its cluster is "{greeting.cluster[:64]}", this one is "{self._cluster}"'
        own = self._register.called if self._register is not None else ""
        if greeting.register != own:
            named = [one or "the servers' own" for one in (greeting.register, own)]
            return f"its register is {named[0]}, this one has {named[1]}"[:512]
        if self._identity is None or self._standing is Standing.JOINING:
            return ""
        if greeting.standing in (Standing.EMPTY, Standing.JOINING):
            return ""
        step = self._member.membership.number if self._member is not None else 0
        if greeting.step > step:  # it knows of a later change
            if self._member is None or self.name in greeting.members:
                return ""
            self._member.hear_membership(Membership(greeting.members, (), greeting.step))
            self._turn()
            return self.failed
        if greeting.name not in self._whole:
            return f"the group has the servers {', '.join(self.members)}"
        if not greeting.members:
            return "it takes no part in its group; its log says why"
        if greeting.step == step and set(greeting.members) != set(self._whole):
            return f"its group has the servers {', '.join(greeting.members)}"[:512]
        return ""

    def linked(self, greeting: Greeting) -> None:
        """A server is there."""
        self._heard[greeting.name] = greeting
        if self._identity is None and not self.failed:
            self._look_for_members()

    def unlinked(self, name: str) -> None:
        """A server is not there any more."""
        if self._member is None or self._transfers is None or self._is_stopped:
            return
        self._transfers.unlinked(name)
        self._member.unlinked(self._now(), name)

    def _look_for_members(self) -> None:
        """Found the group, if all others are there and have promised nothing; or join one."""
        members = tuple(sorted([self.name, *self._heard]))
        if self._founding is not None or self._is_stopped:
            return
        has_group = any(one.standing is Standing.JOINING for one in self._heard.values())
        for name, other in self._heard.items():
            if other.members and (other.standing is Standing.KEPT or other.members != members):
                if other.standing is not Standing.KEPT and len(members) < self._size:
                    return  # the others are not heard yet
                self._found_store(self._new_identity(new_member_name(self.name), ()))
                self._log.warn(
                    f"{name} has a group of {_shown(other.members)}, and the store "
                    f"{self._store.path} of this server is empty: it joins the group anew, once "
                    "its leader lets it"
                )
                return
        if has_group:
            return  # its members are not heard yet
        if len(members) > self._size:
            self._fail(
                f"the servers {', '.join(members)} have been heard, and the routes name "
                f"{self._size}: give each server its own server_name, and all the same routes"
            )
        elif len(members) == self._size:
            self._found_store(self._new_identity(self.name, members))

    def _new_identity(self, name: str, members: tuple[str, ...]) -> Identity:
        return Identity(self._cluster, name, members, self._register is not None)

    def _found_store(self, identity: Identity) -> None:
        self._founding = self._loop.create_task(self._found(identity))

    async def _found(self, identity: Identity) -> None:
        def found() -> Stored:
            self._store.found(identity)
            self._store.close()
            return self._store.open()

        try:
            stored = await self._writer.run(found)
        except (OSError, Error) as error:
            self._fail(f"the store {self._store.path} cannot be made: {error}")
            return
        if self._is_stopped:
            return
        self._identity = identity
        if identity.members:
            self._log.info(f"The group {self._cluster} has the servers {_shown(identity.members)}")
        self._call(identity.name)
        self._begin(stored)

    # -- members ---------------------------------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Whether a server is about to join or to leave, as far as this one knows."""
        member = self._member
        return member is not None and (member.is_changing or bool(member.membership.previous))

    def remove(self, server_name: str) -> None:
        """Have a server leave the group, soon. Raises `NotLeaderError`, and ValueError."""
        member = self._leading_member()
        gone = next((one for one in self.members if server_name_of(one) == server_name), None)
        if gone is None:
            raise ValueError(f"{server_name} is not in the group of {_shown(self.members)}")
        if member.is_changing:
            raise ValueError(
                f"{_shown(member.joining) or 'another server'} is about to join or to leave: ask "
                "again in a while"
            )
        kept = tuple(one for one in self.members if one != gone)
        away = member.membership.away
        counted = [one for one in kept if one not in away]
        there = [one for one in counted if one == self.name or one in self._links.names]
        if len(there) <= len(counted) // 2:
            raise ValueError(
                f"of {_shown(kept)} no more than {_shown(there)} can be reached, which is no "
                f"majority: {server_name} cannot leave now"
            )
        member.change_members(self._now(), kept)
        self._log.info(f"{server_name} is to leave the group")
        self._turn()

    def _removed(self) -> str:
        return (
            f"the group has the servers {_shown(self.members)} now, and the place of this one in "
            "it is gone, or a new one's: start it with an empty store directory to have it join "
            "anew"
        )

    def _leading_member(self) -> Member:
        if self._member is None:
            raise NotLeaderError(self._no_leader())
        return self._member

    def _admit(self, member: Member) -> None:
        """Have servers join that wait for it, if this one leads; nobody, if they have gone."""
        there = {self.name, *self._links.names}
        joining = member.joining
        if any(one not in there for one in joining) and member.give_up_change(self._now()):
            self._log.warn(f"{_shown(joining)} does not join the group: it has gone")
        if not member.may_change:
            return
        waiting = [
            name
            for name, greeting in self._heard.items()
            if greeting.standing is Standing.JOINING
            and name in there
            and name not in member.membership.whole
        ]
        members = next_members(self.members, waiting, there, self._size)
        if members is not None:
            (newcomer,) = set(members) - set(self.members)
            self._log.info(f"{server_name_of(newcomer)} joins the group: it is sent what it lacks")
            member.change_members(self._now(), members)

    def _look_at_members(self, member: Member) -> None:
        """Say it when the members are others than before."""
        membership = member.membership
        if membership.number != self._step and not membership.previous:
            if self._step or membership.number:
                text = f"The group {self._cluster} has the servers {_shown(self.members)}"
                if membership.away:
                    text += (
                        f"; {_shown(membership.members)} goes on alone, and what is answered from "
                        f"now on is there alone until {_shown(membership.away)} is back"
                    )
                self._log.info(text)
            self._step = membership.number
            self.on_change()

    # -- what is asked of it ---------------------------------------------------------------------

    @property
    def leader_name(self) -> str:
        """Who leads, as far as this server knows; "" if it does not."""
        return self._member.leader_name if self._member is not None else ""

    @property
    def epoch(self) -> int:
        """In which this server serves as leader; 0 if it does not."""
        return self._member.epoch if self._member is not None else 0

    @property
    def committed_index(self) -> int:
        """Up to which entries are committed, as far as this server knows."""
        return self._member.committed if self._member is not None else 0

    @property
    def heard_committed_index(self) -> int:
        """Up to which entries are committed, as this server has heard, whether it has them or
        not."""
        member = self._member
        return max(member.heard_committed, member.committed) if member is not None else 0

    @property
    def base_index(self) -> int:
        """Up to which entries are gone."""
        return self._member.log.base.index if self._member is not None else 0

    @property
    def is_installing(self) -> bool:
        """Whether what was applied here may be half of a checkpoint; so after a crash, too."""
        return self._member is not None and self._member.is_installing

    @property
    def members(self) -> tuple[str, ...]:
        """Who is in the group, also while it is away; empty while that is not known."""
        if self._member is not None:
            return (*self._member.members, *self._member.membership.away)
        return self._identity.members if self._identity is not None else ()

    @property
    def in_sync(self) -> tuple[str, ...]:
        """The members whose copies count: not those that are away."""
        return self._member.members if self._member is not None else ()

    @property
    def _whole(self) -> tuple[str, ...]:
        """The members, those that are away, and while they change those of before, whose word
        counts, too."""
        return self._member.membership.whole if self._member is not None else self.members

    @property
    def linked_names(self) -> set[str]:
        """To which servers there is a connection."""
        return self._links.names

    @property
    def port(self) -> int:
        """Where other servers connect."""
        return self._links.port

    def may_read(self) -> bool:
        """Whether all that is committed anywhere is committed here."""
        return self._member is not None and self._member.may_read(self._now())

    def followers(self) -> list[FollowerState]:
        """How far the other servers are; empty if this one does not lead. On any thread."""
        return self._member.followers(self._now()) if self._member is not None else []

    def say_of_itself(self, about: bytes) -> None:
        """Have the leader know this of this server, for those who ask. It may be lost."""
        if self.leader_name not in ("", self.name) and not self._is_stopped:
            self._send(self.leader_name, About(about))

    def said_of_itself(self, name: str) -> bytes:
        """What that server has last said of itself; empty for nothing. On any thread."""
        return self._about.get(name, b"")

    def trim(self, index: int) -> None:
        """This server has applied, durably, all entries up to `index`, and needs them no more: they
        go, at once or later. Raises ValueError in a group that could not do without them."""
        if self.checkpoints is None and len(self.members) != 1:
            raise ValueError(
                "the log of a group of several servers is trimmed only if checkpoints stand for "
                "what is gone: give checkpoints to its hosts"
            )
        self._applied = max(self._applied, index)
        self._trim(self._now())

    def _trim(self, now: int) -> None:
        """Have go what may: a quarter of what stays at once, or more."""
        member = self._member
        if member is None or now < self._trim_at or member.is_installing:
            return
        self._trim_at = now + _TRIM_EVERY
        log, keep = member.log, 0 if self._is_full else self._keep_bytes
        limit = min(self._applied, member.committed)
        lost = [index for index in log.damaged if index < limit]
        if log.size >= keep + keep // 4 or lost:
            if log.size <= self._keep_bytes * HOLD_FACTOR:
                limit = min(limit, member.needed_behind(now))
            index = log.index_before(keep, limit)
            if lost:  # what was applied needs no repair
                index = max(index, max(lost) + 1)
            if index > log.base.index:
                member.trim(now, index)

    def hand_over(self, successor: str = "", is_slow: bool = False) -> None:
        """Have another server lead, soon; "" is the one that has most of the log. `is_slow`:
        because the disk here is. Raises `NotLeaderError`, and ValueError if there is no such
        server, or none could lead."""
        member = self._leading_member()
        if self._without_space:
            raise ValueError(
                f"the disks of {_shown(self._without_space)} are full, or nearly, and the others "
                "are no majority that could have a server lead"
            )
        self._append()  # what was submitted before goes over, too
        member.hand_over(self._now(), self._member_named(successor), is_slow)
        self._turn()

    def prepare_hand_over(self, successor: str = "") -> str:
        """Do ahead of `hand_over` what can be done while this server serves; which server is to
        lead. Raises as that does, also where nobody could lead soon."""
        member = self._leading_member()
        found = member.prepare_hand_over(self._now(), self._member_named(successor))
        self._turn()
        return server_name_of(found)

    def _member_named(self, server: str) -> str:
        """The member that a server is; the name itself if it is none."""
        return next((one for one in self.members if server_name_of(one) == server), server)

    @property
    def is_handing_over(self) -> bool:
        """Whether this server leads, and waits until another one has all entries."""
        return self._member is not None and self._member.is_handing_over

    def say_committed(self) -> None:
        """Have the other servers know now how far entries are committed, if this one leads."""
        if self._member is not None and not self._is_stopped:
            self._member.say_committed(self._now())
            self._turn()

    def lose_applied(self) -> None:
        """What was applied is lost, and the log does not have all of it: a checkpoint of another
        server is to be installed. Raises `StorageError` where there can be none."""
        is_alone = len(self.members) == 1
        if self._member is None or is_alone or not self._member.lose_applied(self._now()):
            raise StorageError(
                "what the entries had come to is lost, and the log has no more than those behind "
                f"{self.base_index}: restore a backup"
            )
        self._turn()

    def fail(self, why: str) -> None:
        """What the owner does with the entries cannot go on: this server takes no part any more,
        and another one leads if this one did."""
        if self._member is None:
            if not self.failed:
                self._fail(why)
        elif not self._member.failed:
            self._member.fail(why)
            self._turn()

    def give_up_waiting(self, why: str) -> None:
        """Tell who waits for an entry that nobody knows what becomes of it."""
        self._end_waits(why)

    async def append(self, body: bytes, timeout: float = 10.0, epoch: int = 0) -> int:
        """Append an entry; its index, once a majority has it. With an `epoch` it is appended in
        that one or not at all: what it says may be wrong after what others have appended.

        Raises `NotLeaderError` or `BusyError` if it was not appended, `OutcomeUnknownError` if it
        was and may be in the log or not.
        """
        future: asyncio.Future[int] = self._loop.create_future()

        def answer(index: int, error: Error | None) -> None:
            if future.done():  # who waited was cancelled
                return
            if error is None:
                future.set_result(index)
            else:
                future.set_exception(error)

        self.submit(body, answer, timeout, epoch)
        return await future

    def submit(self, body: bytes, answer: Answer, timeout: float = 10.0, epoch: int = 0) -> None:
        """As `append`, for a caller that does not wait: it is told, in a turn of this host. Raises
        `NotLeaderError` and `BusyError` at once, if it can."""
        if len(body) > BODY_MAX:
            raise ValueError(f"an entry of {len(body)} bytes: at most {BODY_MAX} are taken")
        now_in = self.epoch
        if not now_in:
            raise NotLeaderError(self._no_leader())
        if epoch and epoch != now_in:
            raise NotLeaderError(f"{self.name} leads in epoch {now_in}, and led in {epoch}")
        if self._waiting_size + len(body) > WAITING_MAX:
            raise BusyError(
                f"{self._waiting_size} bytes wait for a majority of the group: try again later"
            )
        deadline = self._now() + int(timeout * SECOND)
        waiting = _Waiting(answer, len(body), deadline, now_in)
        if not self._new:
            self._loop.call_soon(self._append)
        self._new.append((body, waiting))
        self._waiting_size += len(body)

    def _no_leader(self) -> str:
        if self.failed:
            return f"{self.name} takes no part in the group: {self.failed}"
        leader = self.leader_name
        hint = f"ask {leader}" if leader not in ("", self.name) else "no leader is known yet"
        return f"{self.name} does not lead the group: {hint}"

    def _append(self) -> None:
        new, self._new = self._new, []
        if not new:
            return
        try:
            assert self._member is not None
            epoch = self._member.epoch
            if any(waiting.epoch != epoch for _, waiting in new):
                raise NotLeaderError(f"{self.name} does not lead in that epoch any more")
            marks = self._member.append(self._now(), [body for body, _ in new])
        except NotLeaderError as error:
            for _, waiting in new:
                self._waiting_size -= waiting.size
                waiting.answer(0, NotLeaderError(str(error)))
            return
        for (_, waiting), mark in zip(new, marks, strict=True):
            waiting.mark = mark
            self._waiting.append(waiting)
        self._turn()

    async def committed(self, after: int = 0) -> AsyncGenerator[tuple[Entry, ...], None]:
        """The committed entries behind index `after`, in order, as they come; the first one of
        each epoch has no body. None come while a checkpoint is installed.

        Raises `TrimmedError` if entries behind that index are gone, and `StorageError` once this
        server takes no part any more.
        """
        while not self._is_stopped:
            if self.failed:
                raise StorageError(self.failed)
            found: tuple[Entry, ...] = ()
            if self._member is not None and not self._member.is_installing:
                if after < self._member.log.base.index:
                    raise TrimmedError(
                        f"the entries up to {self._member.log.base.index} are gone, and those "
                        f"behind {after} were asked for: go on behind what was applied here"
                    )
                count = min(self._member.committed - after, PIECE)
                found = self._member.log.read(after + 1, count) if count > 0 else ()
            if found:
                yield found
                after = found[-1].index
                continue
            news: asyncio.Future[None] = self._loop.create_future()
            self._readers.append(news)
            await news

    # -- inputs ----------------------------------------------------------------------------------

    def received(self, sender: str, messages: list[Message]) -> None:
        """Messages have come."""
        if self._member is None or self._is_stopped:
            return
        now = self._now()
        try:
            for message in messages:
                if not isinstance(message, _NOT_FOR_MEMBERS):
                    self._member.receive(now, sender, message)
                elif isinstance(message, About):
                    if len(message.body) <= ABOUT_BYTES_MAX:
                        self._about[sender] = message.body
                else:
                    assert self._transfers is not None
                    self._transfers.received(sender, message)
        except Exception as error:
            self._stop_at_fault("a message", error)
        self._turn()

    def _stop_at_fault(self, doing: str, error: Exception) -> None:
        """A mistake of the program: a member that has done half of something takes no part any
        more, as after a crash."""
        assert self._member is not None
        self._log.fault(f"handling {doing} in the group", error)
        self._member.fail(f"handling {doing} has failed: {error!r}; start the server again")

    def _tick(self) -> None:
        assert self._member is not None
        if self._is_stopped or self.failed:
            return
        self._timer = self._loop.call_later(_TICK, self._tick)
        now = self._now()
        try:
            self._member.tick(now)
            if self._transfers is not None:
                self._transfers.tick(now)
            self._trim(now)
            self._look_at_disk(self._member, now)
            if said := self._standstill.look(now, self._member, self._links.names):
                self._log.error(said)
            if now >= self._admit_at:
                self._admit_at = now + _ADMIT_EVERY
                self._admit(self._member)
        except Exception as error:
            self._stop_at_fault("the time", error)
        self._look_at_deadlines(now)
        self._turn()

    def _look_at_deadlines(self, now: int) -> None:
        """Tell those whose time is over. While entries wait for space it stands still, if they may:
        they are in the log once there is some, and whoever began anew would wait behind them."""
        passed, self._looked_at = now - self._looked_at, now
        for waiting in self._waiting:
            if self.waits_for_space and self.may_wait_for_space:
                waiting.deadline = max(waiting.deadline + passed, now + _AFTER_SPACE)
            elif now >= waiting.deadline:
                waiting.answer(
                    0,
                    OutcomeUnknownError(
                        "no majority has answered in time: the entry may be in the log or not"
                    ),
                )

    def _written(self, number: int, why: str) -> None:
        """A job was done on the thread, or has failed."""
        if self._member is not None and not self._is_stopped:
            self._take_result(number, why)
            self._turn()

    def _write_here(self) -> None:
        job, self._here = self._here, None
        if job is not None and not self._is_stopped:
            self._take_result(job.number, self._writer.write_here(job))
            self._turn()

    def _take_result(self, number: int, why: str | None) -> None:
        """A job was done, or has failed; None: it is on its way."""
        assert self._member is not None
        if why is None:
            return
        if why:
            self._member.fail(f"the disk has failed: {why}")
        else:
            try:
                self._member.synced(self._now(), number)
            except Exception as error:
                self._stop_at_fault("a finished write", error)

    def _look_at_disk(self, member: Member, now: int) -> None:
        """Say how it is, and whether another server had better lead."""
        self._writer.look_for_space()
        health = self._writer.health()
        is_full = health.is_full or self.are_files_full
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                self._log.error(
                    "The disk of this server is full, or nearly: it acknowledges what it has "
                    "written and goes on with the rest once there is space; free some"
                )
            else:
                self._log.info("The disk of this server has space again")
        member.note_disk(now, DiskHealth(is_full, health.sync_ns))
        self._look_at_others(member.without_space(now))
        if self.is_full != self._was_full:
            self._was_full = self.is_full
            self.on_change()
        wish = member.wish(now)
        if wish is not None:
            why = "is full" if wish.is_full else "is much slower than that of others"
            self._log.warn(
                f"The disk of this server {why}: {server_name_of(wish.successor)} is to lead"
            )
            self.on_wish(wish)

    def _look_at_others(self, full: list[str]) -> None:
        """Say it where others' full disks keep this server, which leads, from committing."""
        others = [name for name in full if name != self.name]
        if bool(others) != bool(self._without_space):
            if others:
                self._log.error(
                    f"The disks of {_shown(others)} are full, or nearly, and the others are no "
                    "majority: this server refuses what needs space until there is some"
                )
            elif self.epoch:
                self._log.info("A majority of the group's servers has space again")
        self._without_space = others

    def _fulfil(self, wish: Wish) -> None:
        assert self._member is not None
        self._member.hand_over(self._now(), wish.successor, is_slow=not wish.is_full)

    @property
    def is_full(self) -> bool:
        """Whether the disk under the group's log has no space, or little, here or on so many other
        servers that none of it can be committed. On any thread."""
        return self._writer.is_full or bool(self._without_space)

    @property
    def waits_for_space(self) -> bool:
        """Whether entries may wait for space, here or on other servers. On any thread."""
        return self._writer.waits_for_space or bool(self._without_space)

    # -- outputs ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Have what the member says leave, and its jobs done."""
        if self._is_stopped:
            return
        member = self._member
        assert member is not None
        self._say_and_write(member)
        if self._carrier is not None:
            self._carrier.look()
        if member.failed and not self.failed:
            self._fail(self._removed() if member.is_removed else member.failed)
        self._settle(member)
        if self._transfers is not None:
            self._transfers.look()
        self._look_at_members(member)
        if (member.leader_name, member.epoch) != (self._leader_name, self._epoch):
            is_new = member.leader_name != self._leader_name
            self._leader_name, self._epoch = member.leader_name, member.epoch
            if is_new and self._leader_name:
                self._log.info(f"{server_name_of(self._leader_name)} leads the group")
            self.on_change()

    def _say_and_write(self, member: Member) -> None:
        """Have messages leave and jobs be done, and what follows from these. The socket is written
        to after a callback of the loop has ended, so a job that follows messages has the next."""
        while True:
            messages = member.take_messages()
            for receiver, message in messages:
                self._links.send(receiver, message)
            if messages:
                self._links.flush()
            if self._here is not None or (job := member.take_job()) is None:
                return
            if self._writer.may_write_here(job):
                if messages:
                    self._here = job
                    self._loop.call_soon(self._write_here)
                else:
                    self._take_result(job.number, self._writer.write_here(job))
            elif not member.leads and self._writer.may_await(job):
                self._take_result(job.number, self._writer.write_awaited(job))
            else:
                self._writer.start(job)

    def _settle(self, member: Member) -> None:
        """Tell those who wait."""
        waits = self._waiting
        epoch, committed = member.epoch, member.committed
        while waits:
            first = waits[0]
            assert first.mark is not None
            if first.mark.epoch != epoch:
                self._end_waits("this server leads no more")
                break
            if first.mark.index > committed:
                break
            waits.popleft()
            self._waiting_size -= first.size
            first.answer(first.mark.index)
        damaged = len(member.log.damaged)
        if committed > self._committed or damaged < self._damaged or self._was_installing:
            self._wake_readers()
        self._committed, self._damaged = committed, damaged
        self._was_installing = member.is_installing

    def _end_waits(self, why: str) -> None:
        left = [*self._waiting, *(one for _, one in self._new)]
        self._waiting.clear()
        self._new.clear()
        self._waiting_size = 0
        for waiting in left:
            waiting.answer(0, OutcomeUnknownError(f"{why}: the entry may be in the log or not"))

    def _wake_readers(self) -> None:
        readers, self._readers = self._readers, []
        for news in readers:
            if not news.done():
                news.set_result(None)

    def _fail(self, why: str) -> None:
        """This server takes no part any more."""
        self.failed = why
        self._log.error(f"This server takes no part in the group: {why}")
        if self._identity is not None and not self._is_member:
            self._links.end_all("it does not join the group")  # or the leader would wait for it
        self._end_waits("this server takes no part in the group any more")
        self._wake_readers()
        self.on_change()


def _shown(members: Iterable[str]) -> str:
    return ", ".join(server_name_of(member) for member in members)
