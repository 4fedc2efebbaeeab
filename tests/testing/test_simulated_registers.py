"""Groups whose register lies outside: in a store that is slow, away, stale, unsure, or shut."""

import json
from collections import Counter

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.simulated_group import SimulatedGroup

SECONDS = 4


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_register_outside_costs_nothing_that_was_answered(size: int) -> None:
    for seed in range(30):
        SimulatedGroup(seed, size, outside=True).run(SECONDS)


@pytest.mark.parametrize("size", [2, 3])
def test_a_register_that_refuses_costs_nothing_that_was_answered(size: int) -> None:
    for seed in range(30, 60):
        group = SimulatedGroup(seed, size, outside=True)
        group.moves += [(6, group._shut_store)]
        group.run(SECONDS)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("trims", [False, True])
def test_members_that_come_and_go_cost_nothing(size: int, trims: bool) -> None:
    for seed in range(300, 320):
        SimulatedGroup(seed, size, trims=trims, changes=True, outside=True).run(SECONDS)


def test_damaged_entries_of_three_are_repaired() -> None:
    for seed in range(500, 520):
        SimulatedGroup(seed, 3, damage=True, trims=True, outside=True).run(SECONDS)


@pytest.mark.parametrize("seed", range(3))
def test_a_register_that_is_away_does_not_depose_a_leader(seed: int) -> None:
    group = SimulatedGroup(seed, 3, outside=True)
    group.moves = [(30, group._append)]
    group.crash_amid_writing(0)
    group.run(1)
    leader = group._leader()
    assert leader is not None
    assert group.store is not None
    epoch, answered = leader.serves, len(group.ledger.answered)
    group.store.is_away = True
    group._has_faults = True  # else nothing moves any more
    group._at(0, group._move)
    group._run_until(lambda: len(group.ledger.answered) > answered + 100, 60 * SECOND, "serve")
    assert leader.serves == epoch


def test_one_of_two_goes_on_alone_and_takes_the_other_one_back() -> None:
    steps: Counter[str] = Counter()
    for seed in range(30):
        group = SimulatedGroup(seed, 2, outside=True).run(SECONDS)
        assert group.store is not None
        records = [json.loads(data) for data in group.store.versions[1:]]
        assert not records[-1]["away"]
        steps["alone"] += sum(bool(one["away"]) for one in records)
        steps["back"] += sum(bool(one["previous"]) for one in records)
    assert steps["alone"] > 10
    assert steps["back"] > 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_leaders", [False, True])
def test_a_full_disk_of_one_of_two_does_not_stop_the_other_one(seed: int, is_leaders: bool) -> None:
    group = SimulatedGroup(seed, 2, outside=True)
    group.moves = [(30, group._append)]
    group.crash_amid_writing(0)
    group.run(1)
    leader = group._leader()
    full, other = group.servers.values()
    if (full is leader) != is_leaders:
        full, other = other, full
    full.is_full = True
    group._has_faults = True  # else nothing moves any more
    group._at(0, group._move)
    answered, until = len(group.ledger.answered), group.now + 10 * SECOND
    group._run_until(lambda: len(group.ledger.answered) > answered + 300, 20 * SECOND, "serve")
    group._run_until(lambda: group.now > until, 20 * SECOND, "go on")
    assert other.member is not None
    assert (other.member.members, other.member.membership.away) == ((other.name,), (full.name,))
    assert other.serves
    full.is_full = False
    group._run_until(lambda: group._is_whole([full, other]), 10 * SECOND, "take it back")
    group._come_to_rest()


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_does_not_hand_over_while_the_register_is_away(seed: int) -> None:
    group = SimulatedGroup(seed, 3, outside=True)
    group.moves = [(10, group._append), (1, group._hand_over)]
    group.crash_amid_writing(0)
    group.run(1)
    leader = group._leader()
    assert leader is not None
    assert group.store is not None
    group.store.is_away = True
    group._has_faults = True
    group._at(0, group._move)
    epoch, until = leader.serves, group.now + 10 * SECOND
    group._run_until(lambda: group.now > until, 20 * SECOND, "go on")
    assert leader.serves == epoch


def test_a_server_that_is_away_is_taken_back_also_by_a_group_that_has_grown() -> None:
    """n1 is away when n4 joins n3 and n2."""
    SimulatedGroup(3210, 2, trims=True, changes=True, outside=True).run(SECONDS)
