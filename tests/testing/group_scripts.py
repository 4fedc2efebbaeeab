"""Lives of a simulated group in which a few things happen in one order, and chance has the rest.

    DirectedLife(seed, script).run(4)

Bugs that need several faults in a row come up too rarely where all is chance. A script cuts links,
crashes servers and waits for what it needs; if that does not come in time, the life goes on without
it. Where nothing is planted nothing is violated.
"""

from collections.abc import Callable

from slipstream.group import Member, Settings
from slipstream.group.candidate import Stage
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_group import Server, SimulatedGroup


class DirectedLife(SimulatedGroup):
    """See the module's text. Three servers, of which `leader` is the first to lead."""

    def __init__(self, seed: int, script: "Callable[[DirectedLife], None]") -> None:
        super().__init__(seed, 3)
        self.settings = Settings(entries_max=1)
        self.crash_amid_writing(0.0)
        self.moves = [(1, self._append)]
        self.is_complete = False  # whether all of the script has happened
        self._script = script
        for server in self.servers.values():
            server.change_rate(0, 1.0)

    def _prepare(self) -> None:
        leader = self._leader()
        assert leader is not None
        self.leader = leader
        others = [one for one in self.servers.values() if one is not leader]
        self.middle, self.other = self.random.sample(others, 2)
        try:
            self._script(self)
            self.is_complete = True
        except ViolationError as error:
            if "does not" not in str(error):
                raise
        self.network.heal()

    def until(self, is_reached: Callable[[], bool], limit: int = 6 * SECOND) -> None:
        """Wait for something; the script ends if it does not come."""
        self._run_until(is_reached, limit, "go on")

    def wait(self, time: int) -> None:
        """Let time go by."""
        end = self.now + time
        self._at(time, lambda: None)
        self.until(lambda: self.now >= end)

    def hears(self, *linked: Server) -> None:
        """Only these servers hear each other."""
        self.network.cut = {
            (a.name, b.name)
            for a in self.servers.values()
            for b in self.servers.values()
            if a is not b and not (a in linked and b in linked)
        }

    def crash(self, server: Server) -> None:
        """The power of a server fails."""
        self._note(f"{server.name} crashes")
        self._kill(server)

    def start(self, server: Server) -> None:
        """It comes back."""
        self._start(server)

    def append(self, server: Server, count: int = 1) -> None:
        """Clients append entries, whether it can commit them or not."""
        for _ in range(count):
            self._number += 1
            numbers = range(self._number, self._number + 1)
            self._input(server, server.life, self._appending(server, numbers))

    def hand_over(self, server: Server, successor: Server) -> None:
        """A leader is asked to have another server lead."""
        _member(server).hand_over(self.now_of(server), successor.name)
        self._flush(server)


def _member(server: Server) -> Member:
    assert server.member is not None
    return server.member


def earlier_epoch(life: DirectedLife) -> None:
    """An entry of an earlier epoch is on a majority at last, and a later leader never had it."""
    first, middle, other = life.leader, life.middle, life.other
    life.hears(first)
    life.append(first)
    life.wait(20 * MILLISECOND)
    life.hears(middle, other)
    life.until(lambda: any(_member(one)._leader is not None for one in (middle, other)))
    second = other if _member(other)._leader is not None else middle
    third = middle if second is other else other
    life.crash(third)  # what is on its way to it is lost
    life.hears(second)
    life.wait(50 * MILLISECOND)
    life.crash(second)
    first.change_rate(life.now, 2.0)  # so that it is the one to stand
    third.change_rate(life.now, 0.5)
    life.start(third)
    life.hears(first, third)
    end = _member(first).log.end
    life.until(lambda: _member(first).log.end.epoch > end.epoch)
    life.until(lambda: _member(first).committed >= end.index)
    for server in (first, third):
        life.crash(server)
    life.wait(10 * MILLISECOND)  # what is on its way is lost
    life.start(third)
    life.start(second)
    life.hears(second, third)
    life.until(lambda: bool(second.serves) or bool(third.serves))


def forgotten_vote(life: DirectedLife) -> None:
    """Who accepted a leader in the register crashes right after it has said so."""
    old, middle, other = life.leader, life.middle, life.other
    life.hears(middle, other)
    for one in (middle, other):
        one.sync_time = 100 * MILLISECOND

    def set_by() -> Server | None:
        for one in (middle, other):
            candidate = one.member._candidate if one.member else None
            if candidate is not None and candidate.stage is Stage.SEALING:
                return one
        return None

    life.until(lambda: set_by() is not None)
    new = set_by()
    assert new is not None
    witness = other if new is middle else middle
    life.crash(witness)
    witness.sync_time = MILLISECOND
    life.start(witness)
    life.until(lambda: bool(new.serves))
    life.append(new)
    life.wait(50 * MILLISECOND)
    life.hears(old, witness)
    life.until(lambda: bool(old.serves) or bool(witness.serves))
    life.append(old)
    life.wait(100 * MILLISECOND)


def forgotten_seal(life: DirectedLife) -> None:
    """Who was sealed by a new leader crashes, and is sent entries of the old one, which still takes
    itself for the leader by its slow clock."""
    old, middle, other = life.leader, life.middle, life.other
    old.change_rate(life.now, 0.5)
    for one in (middle, other):
        one.change_rate(life.now, 2.0)
    life.hears(middle, other)
    life.until(lambda: bool(middle.serves) or bool(other.serves))
    new, witness = (middle, other) if middle.serves else (other, middle)
    life.append(new)
    life.hears(new)
    life.crash(witness)
    life.start(witness)
    life.hears(old, witness)
    life.append(old, 3)
    life.wait(SECOND)


def repaired_from_a_loser(life: DirectedLife) -> None:
    """An entry is damaged, and a server that led before has another one at its index."""
    old, middle, other = life.leader, life.middle, life.other
    life.hears(old)
    life.append(old, 2)
    life.wait(20 * MILLISECOND)
    life.hears(middle, other)
    life.until(lambda: bool(middle.serves) or bool(other.serves))
    new, witness = (middle, other) if middle.serves else (other, middle)
    life.append(new, 3)
    life.wait(300 * MILLISECOND)
    index = _member(old).log.end.index
    life.crash(witness)
    life.crash(new)
    place = index - witness.disk.base.index - 1
    if place < len(witness.disk.entries) - 1:
        witness.disk.entries[place] = None
    life.hears(old, witness)
    life.start(witness)
    life.wait(SECOND)
    life.crash(witness)
    life.start(witness)
    life.start(new)


def resumed_epoch(life: DirectedLife) -> None:
    """A leader loses entries that another server has; later entries are committed without that one,
    which has more of them, and then is one of a majority."""
    first, middle, other = life.leader, life.middle, life.other
    end = _member(first).log.end.index
    first.sync_time = SECOND
    life.hears(first, other)
    life.append(first, 8)
    life.until(lambda: _member(other).log.synced >= end + 8)
    for server in (first, other):
        life.crash(server)
    life.wait(10 * MILLISECOND)  # what is on its way is lost
    first.sync_time = MILLISECOND
    first.change_rate(life.now, 2.0)  # so that it is the one to stand
    middle.change_rate(life.now, 0.5)
    life.start(first)
    life.hears(first, middle)
    life.until(lambda: bool(first.serves))
    life.append(first)
    life.until(lambda: _member(first).committed == _member(first).log.end.index)
    life.crash(first)
    life.start(other)
    life.hears(middle, other)
    life.until(lambda: bool(middle.serves) or bool(other.serves))


def longer_log(life: DirectedLife) -> None:
    """A leader that is cut off has more entries than are committed without it in a later epoch."""
    first, middle, other = life.leader, life.middle, life.other
    life.hears(first)
    life.append(first, 8)
    life.wait(20 * MILLISECOND)
    life.hears(middle, other)
    life.until(lambda: bool(middle.serves) or bool(other.serves))
    second, third = (middle, other) if middle.serves else (other, middle)
    life.append(second)
    life.until(lambda: _member(second).committed == _member(second).log.end.index)
    life.crash(second)
    life.hears(first, third)
    life.until(lambda: bool(first.serves) or bool(third.serves))


def epoch_of_another(life: DirectedLife) -> None:
    """A leader hands over when a server that did not hear it has the register's next epoch, and has
    sealed nobody else yet."""
    first, middle, other = life.leader, life.middle, life.other
    first.change_rate(life.now, 0.5)  # so that it does not notice that it is not heard
    for server in (middle, other):
        server.change_rate(life.now, 2.0)
    life.hears(middle, other)
    life.until(lambda: any(_is_sealing(one) for one in (middle, other)))
    taker, successor = (middle, other) if _is_sealing(middle) else (other, middle)
    life.hears(first, successor)
    life.hand_over(first, successor)
    life.until(lambda: bool(successor.serves), SECOND)
    life.append(successor)
    life.wait(50 * MILLISECOND)
    life.hears(first, taker)
    for _ in range(20):
        life.wait(50 * MILLISECOND)
        life.append(taker)


def _is_sealing(server: Server) -> bool:
    candidate = _member(server)._candidate
    return candidate is not None and candidate.stage is Stage.SEALING
