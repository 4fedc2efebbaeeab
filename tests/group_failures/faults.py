"""What fails in a round. Each fault is a small class with a name; all chance comes from the round.

`NAMED` are the failures that the issues of nats-server and Jepsen's report of 2.12.1 name,
`GENERAL` are others. A fault may leave links cut, processes stopped, ended or with clocks that are
off: the round mends all of it afterwards.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import slipstream
from tests.group_failures.disks import flip_bits
from tests.group_failures.load import STREAM, Load
from tests.group_failures.network import Link, Network
from tests.group_failures.servers import NatsServer, Served, empty

BRIEFLY, LONGER = 0.5, 2.5  # seconds
FEW = 20  # acknowledgements
WAIT_SECONDS = 8.0  # for acknowledgements, of a group that may have no majority


@dataclass
class Field:
    """Where a fault strikes."""

    network: Network
    servers: list[Served]
    random: Random
    load: Load
    nc: Any  # a connection for questions
    notes: list[str] = field(default_factory=list)  # what was done, for who reads of the round

    @property
    def minority(self) -> int:
        """How many servers a group can do without."""
        return (len(self.servers) - 1) // 2

    async def leader(self) -> Served:
        """Who leads the stream; any server if nobody says so."""
        name = await leader_of(self.nc)
        for server in self.servers:
            if server.name == name:
                return server
        return self.random.choice(self.servers)

    async def followers(self) -> list[Served]:
        """All but the leader, in an order by chance."""
        leader = await self.leader()
        others = [one for one in self.servers if one is not leader]
        return self.random.sample(others, len(others))

    def some(self, count: int) -> list[Served]:
        """Servers by chance."""
        return self.random.sample(self.servers, count)

    def note(self, text: str) -> None:
        """Say what was done."""
        self.notes.append(text)

    async def more(self, count: int = FEW) -> None:
        """Let the load go on, if it can."""
        await self.load.more(count, WAIT_SECONDS)

    async def restart(self, servers: list[Served]) -> None:
        """Start those that have ended, all at once."""
        await asyncio.gather(*(one.start() for one in servers if not one.is_running))


async def leader_of(nc: Any) -> str:
    """The name of the stream's leader, "" if nobody says so."""
    try:
        answer = await nc.request(f"$JS.API.STREAM.INFO.{STREAM}", b"", timeout=2)
    except slipstream.Error:
        return ""
    return str(json.loads(answer.data).get("cluster", {}).get("leader", ""))


class Fault:
    """A kind of failure. `records` says that power is cut, so disks have to be recorded; `clocks`
    that clocks are put off."""

    name: ClassVar[str]
    issue: ClassVar[str] = ""  # of nats-server, in which it is described
    records: ClassVar[bool] = False
    clocks: ClassVar[bool] = False

    async def strike(self, at: Field) -> None:
        """Have it happen."""
        raise NotImplementedError


# -- links ---------------------------------------------------------------------------------------


class Partition(Fault):
    """A minority, or by chance the leader alone, reaches the others no more."""

    name = "partition"

    async def strike(self, at: Field) -> None:
        """See the class."""
        few = [await at.leader()] if at.random.random() < 0.5 else at.some(at.minority)
        await _cut(at, few, both_ways=True)


class OneWay(Fault):
    """Servers hear the others, and are not heard, or the other way round."""

    name = "one-way"

    async def strike(self, at: Field) -> None:
        """See the class."""
        few = [await at.leader()] if at.random.random() < 0.5 else at.some(at.minority)
        if at.random.random() < 0.5:
            await _cut(at, few, both_ways=False)
        else:
            rest = [one for one in at.servers if one not in few]
            await _cut(at, rest, both_ways=False)


class Ring(Fault):
    """Each server is cut off from one other, so that no two see the same group."""

    name = "ring"

    async def strike(self, at: Field) -> None:
        """See the class."""
        hosts = [one.number for one in at.some(len(at.servers))]
        for one, other in zip(hosts[:-1:2], hosts[1::2], strict=False):
            at.network.cut([one], [other])
        at.note(f"links of {hosts} are cut by pairs")
        await asyncio.sleep(LONGER)


class SlowLinks(Fault):
    """Packets are late, overtake each other, or are lost, on some links in some directions."""

    name = "slow-links"

    async def strike(self, at: Field) -> None:
        """See the class."""
        for one in at.servers:
            for other in at.servers:
                if one is not other and at.random.random() < 0.6:
                    delay = at.random.choice((0.0, 0.02, 0.1))
                    link = Link(at.random.choice((0.0, 0.05, 0.3)), delay, delay)
                    at.network.set(one.number, other.number, link)
        at.note("links are slow and lose packets")
        await asyncio.sleep(LONGER)


async def _cut(at: Field, few: list[Served], *, both_ways: bool) -> None:
    rest = [one.number for one in at.servers if one not in few]
    numbers = [one.number for one in few]
    at.network.cut(numbers, rest, both_ways)
    ways = "both ways" if both_ways else "one way"
    at.note(f"{', '.join(one.name for one in few)} cut off, {ways}")
    await asyncio.sleep(at.random.choice((BRIEFLY, LONGER, 2 * LONGER)))


# -- processes -----------------------------------------------------------------------------------


class Kills(Fault):
    """The leader, any server or all are killed, one time after the other."""

    name = "kills"
    issue = "6888"

    async def strike(self, at: Field) -> None:
        """See the class."""
        for _ in range(3):
            leader = await at.leader()
            who = at.random.choice(
                ([leader], at.some(1), at.some(at.minority + 1), list(at.servers))
            )
            for one in who:
                one.kill()
            at.note(f"killed {' '.join(one.name for one in who)}")
            if len(who) <= at.minority and at.random.random() < 0.5:
                await at.more()
            await at.restart(who)
            if at.random.random() < 0.7:
                await at.more()


class Pauses(Fault):
    """Processes stop and go on, and do not know it: the leader first."""

    name = "pauses"

    async def strike(self, at: Field) -> None:
        """See the class."""
        for who in ([await at.leader()], at.some(at.minority), at.some(at.minority + 1)):
            for one in who:
                one.pause()
            at.note(f"paused {' '.join(one.name for one in who)}")
            await asyncio.sleep(at.random.choice((BRIEFLY, LONGER)))
            for one in who:
                one.resume()
            await asyncio.sleep(at.random.random() * BRIEFLY)


class Clocks(Fault):
    """The time of day of servers jumps ahead and back, by up to days."""

    name = "clocks"
    clocks = True

    async def strike(self, at: Field) -> None:
        """See the class."""
        for _ in range(4):
            one = at.random.choice(at.servers)
            seconds = at.random.choice((-1, 1)) * 10 ** at.random.uniform(-2, 5.5)
            if not one.set_clock(seconds):
                at.note(f"the clock of {one.name} cannot be put off")
                return
            at.note(f"clock of {one.name} off by {seconds:.2f} s")
            await asyncio.sleep(BRIEFLY)
        leader = await at.leader()
        leader.kill()
        await at.more()
        await at.restart([leader])


# -- power ---------------------------------------------------------------------------------------


class PowerOfAll(Fault):
    """All machines lose their power in the same moment: what was acknowledged has to be synced."""

    name = "power-of-all"
    issue = "7564"
    records = True

    async def strike(self, at: Field) -> None:
        """See the class."""
        _cut_power(at, at.servers)
        await at.restart(at.servers)


class PowerOfSome(Fault):
    """A machine or two lose their power, the leader's by chance."""

    name = "power-of-some"
    records = True

    async def strike(self, at: Field) -> None:
        """See the class."""
        for _ in range(2):
            leader = await at.leader()
            who = at.some(at.random.randint(1, 2))
            if leader not in who and at.random.random() < 0.5:
                who[0] = leader
            _cut_power(at, who)
            if len(who) <= at.minority and at.random.random() < 0.5:
                await at.more()
            await at.restart(who)
            await at.more()


class CrashAndPauses(Fault):
    """One machine crashes after the other follower was away: the two of them, who are a majority,
    must not go on without what the paused leader has."""

    name = "crash-and-pauses"
    issue = "7567"
    records = True

    async def strike(self, at: Field) -> None:
        """See the class."""
        for _ in range(2):
            leader, followers = await at.leader(), await at.followers()
            away = followers[: at.minority]
            crashed = followers[at.minority :]
            for one in away:
                one.pause()
            at.note(f"paused {' '.join(one.name for one in away)}")
            await at.more(3 * FEW)
            _cut_power(at, at.random.sample(crashed, 1))
            leader.pause()
            at.note(f"paused the leader {leader.name}")
            for one in away:
                one.resume()
            await at.restart(crashed)
            await at.more()
            leader.resume()
            await at.more()


def _cut_power(at: Field, who: list[Served]) -> None:
    """All at once, as nearly as that can be: all are stopped first."""
    for one in who:
        one.pause()
    for one in who:
        at.note(f"power cut of {one.name}: {one.cut_power(at.random)}")


# -- disks ---------------------------------------------------------------------------------------


class BitFlips(Fault):
    """Bits turn over in the messages and the logs of a minority, which then is the only one that is
    there besides the fewest others that make a majority."""

    name = "bit-flips"
    issue = "7549"
    kinds: ClassVar[tuple[str, ...]] = ("messages", "log")

    async def strike(self, at: Field) -> None:
        """See the class."""
        await at.more(3 * FEW)
        who = at.some(at.minority)
        for one in who:
            one.kill()
            self._damage(at, one)
        await at.restart(who)
        await at.more()
        others = [one for one in at.servers if one not in who]
        gone = at.random.sample(others, at.minority)
        for one in gone:
            one.kill()
        at.note(f"killed {' '.join(one.name for one in gone)}")
        await at.more()
        await at.restart(gone)

    def _damage(self, at: Field, one: Served) -> None:
        random = at.random
        files = [path for kind in self.kinds for path in one.files(kind) if path.stat().st_size]
        for path in random.sample(files, min(len(files), random.randint(1, 4))):
            count = flip_bits(path, random, random.randint(1, 3), from_end=random.random() < 0.3)
            at.note(f"{count} bits flipped in {one.name}: {_below(path, one)}")
        one.disk.changed()


class DamagedSnapshots(BitFlips):
    """State, snapshots and configurations of a minority are damaged, cut short or empty."""

    name = "damaged-snapshots"
    issue = "7556"
    kinds = ("snapshots",)

    def _damage(self, at: Field, one: Served) -> None:
        random = at.random
        files = one.files("snapshots")
        for path in random.sample(files, min(len(files), random.randint(1, 6))):
            how = random.choice(("bits", "cut", "zeros"))
            size = path.stat().st_size
            if how == "bits":
                flip_bits(path, random, 8)
            elif how == "cut":
                with path.open("r+b") as file:
                    file.truncate(random.randrange(size + 1))
            else:
                path.write_bytes(bytes(size))
            at.note(f"{how} in {one.name}: {_below(path, one)}")
        one.disk.changed()


def _below(path: Path, one: Served) -> Path:
    return path.relative_to(one.disk.path)


# -- members -------------------------------------------------------------------------------------


class Members(Fault):
    """A server leaves or loses its disk, and joins anew with an empty one, while another server is
    killed or cut off."""

    name = "members"
    issue = "7545"

    async def strike(self, at: Field) -> None:
        """See the class."""
        # One that has lost its promises is replaced first: two of three would be a majority.
        out = [one for one in at.servers if one.is_out]
        leaves = out[0] if out else (await at.followers())[0]
        is_removed = at.random.random() < 0.5
        if is_removed:
            await self._remove(at, leaves)
        leaves.kill()
        empty(leaves.disk)
        at.note(f"{leaves.name} has an empty disk")
        starting = asyncio.create_task(leaves.start())
        await asyncio.sleep(at.random.random() * LONGER)
        other = at.random.choice([one for one in at.servers if one is not leaves])
        if at.random.random() < 0.5:
            other.kill()
            at.note(f"killed {other.name}")
            await starting
            await at.restart([other])
        else:
            at.network.cut([other.number], [one.number for one in at.servers if one is not other])
            at.note(f"{other.name} cut off")
            await starting
            await asyncio.sleep(LONGER)
            at.network.mend()
        await at.more()
        leader = await at.leader()
        leader.kill()
        at.note(f"killed the leader {leader.name}")
        await at.restart([leader])

    async def _remove(self, at: Field, server: Served) -> None:
        kind = "STREAM.PEER.REMOVE." + STREAM if isinstance(server, NatsServer) else "SERVER.REMOVE"
        try:
            answer = await at.nc.request(
                f"$JS.API.{kind}", json.dumps({"peer": server.name}).encode(), timeout=5
            )
            at.note(f"{server.name} was asked to leave: {answer.data.decode()[:120]}")
        except slipstream.Error as error:
            at.note(f"{server.name} was asked to leave: {error}")


NAMED: list[type[Fault]] = [
    PowerOfAll, BitFlips, DamagedSnapshots, CrashAndPauses, Members, Kills,
]  # fmt: skip
GENERAL: list[type[Fault]] = [
    Partition, OneWay, Ring, SlowLinks, Pauses, Clocks, PowerOfSome,
]  # fmt: skip
FAULTS: dict[str, type[Fault]] = {one.name: one for one in (*NAMED, *GENERAL)}
