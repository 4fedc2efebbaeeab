"""A leader whose disk is slow hands over, once, to one whose disk is quick; one whose disk is full
to one that has space (`disk_watch`)."""

import pytest

from slipstream.group import Settings, disk_watch
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.testing.simulated_group import Server, SimulatedGroup

LED_MIN, SLOW_FOR = 2 * SECOND, SECOND
SECONDS = 8
SLOW = 200 * MILLISECOND


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes half a minute takes two seconds here."""
    monkeypatch.setattr(disk_watch, "LED_MIN", LED_MIN)
    monkeypatch.setattr(disk_watch, "SLOW_FOR", SLOW_FOR)
    monkeypatch.setattr(disk_watch, "AGAIN", LED_MIN)


class SlowLife(SimulatedGroup):
    """A calm life of three servers in which some disks are slow from the beginning, of the first
    leader at least; all clocks run at their right speed, and no server goes for good at the end."""

    _may_lose_minority = False

    def __init__(self, seed: int, slow: int) -> None:
        super().__init__(seed, 3)
        self.settings = Settings()  # or followers would be behind, which are sent a few bytes
        self.crash_amid_writing(0.0)
        self.moves = [(1, self._append)]
        self.leaders: list[str] = []
        self._slow = slow
        for server in self.servers.values():
            server.change_rate(0, 1.0)

    def _prepare(self) -> None:
        first = self._leader()
        assert first is not None
        self.first = first.name
        others = [one for one in self.servers.values() if one is not first]
        for server in [first, *others][: self._slow]:
            server.sync_time = SLOW

    def _note(self, text: str) -> None:
        super()._note(text)
        name, _, what = text.partition(" leads ")
        if what and what != "no more":
            self.leaders.append(name)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slow", [1, 2])
def test_the_lead_goes_to_a_quick_disk_and_stays_there(seed: int, slow: int) -> None:
    life = SlowLife(seed, slow).run(SECONDS)
    first, *later = life.leaders
    assert first == life.first
    assert len(later) == 1
    assert life.wishes == 1


@pytest.mark.parametrize("seed", range(3))
def test_where_all_disks_are_slow_the_lead_stays(seed: int) -> None:
    life = SlowLife(seed, 3).run(SECONDS)
    assert life.leaders == [life.first]


class FullLife(SlowLife):
    """The disks of some servers are full from the beginning, that of the first leader at least."""

    def __init__(self, seed: int, full: int) -> None:
        super().__init__(seed, 0)
        self._full = full
        self.answered_full = 0  # how much had been answered when they became full
        self.answered = 0  # ... and when they had space again

    def _prepare(self) -> None:
        super()._prepare()
        self.answered_full = self._answered()
        others = [name for name in self.servers if name != self.first]
        for name in [self.first, *others][: self._full]:
            self.servers[name].is_full = True

    def _come_to_rest(self) -> None:
        self.answered = self._answered()
        super()._come_to_rest()


@pytest.mark.parametrize("seed", range(5))
def test_the_lead_goes_to_a_disk_that_has_space(seed: int) -> None:
    life = FullLife(seed, 1).run(SECONDS)
    assert len(life.leaders) == 2
    assert life.answered > life.answered_full + 20


@pytest.mark.parametrize("seed", range(3))
def test_without_a_majority_that_has_space_nothing_is_answered_and_nothing_lost(seed: int) -> None:
    life = FullLife(seed, 2).run(SECONDS)
    assert life.answered == life.answered_full


class TurningLife(SlowLife):
    """Whoever leads has the slow disk, as where leading itself is what makes it slow."""

    def _look_at_disk(self, server: Server, member: object) -> None:
        leads = server.serves != 0
        server.sync_time = SLOW if leads and self._has_faults else MILLISECOND
        super()._look_at_disk(server, member)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_the_lead_does_not_go_in_turns(seed: int) -> None:
    life = TurningLife(seed, 1).run(2 * SECONDS)
    assert len(life.leaders) == 3
    assert len(set(life.leaders)) == 3
