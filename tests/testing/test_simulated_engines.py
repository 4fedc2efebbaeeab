"""Groups with engines live through faults, and clients find what they were told."""

import json
from collections import Counter

import pytest

from slipstream.testing.simulated_engines import SimulatedEngines

SECONDS = 4


@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_what_clients_were_told_holds(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedEngines(seed, size, damage=seed % 2 == 1).run(SECONDS)


@pytest.mark.parametrize("first", range(40, 60, 10))
@pytest.mark.parametrize("size", [1, 3])
def test_full_disks_take_nothing_from_clients(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedEngines(seed, size, fills=True).run(SECONDS)


@pytest.mark.parametrize("first", range(60, 100, 10))
@pytest.mark.parametrize("size", [2, 3])
def test_a_register_outside_takes_nothing_from_clients(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedEngines(seed, size, damage=seed % 2 == 1, outside=True).run(SECONDS)


@pytest.mark.parametrize("first", range(100, 120, 10))
def test_full_disks_of_two_take_nothing_from_clients(first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedEngines(seed, 2, fills=True, outside=True).run(SECONDS)


def test_clients_go_on_with_one_of_two_and_with_both_again() -> None:
    steps: Counter[str] = Counter()
    for seed in range(20):
        group = SimulatedEngines(seed, 2, outside=True).run(SECONDS)
        assert group.store is not None
        records = [json.loads(data) for data in group.store.versions[1:]]
        assert not records[-1]["away"]
        steps["alone"] += sum(bool(one["away"]) for one in records)
        steps["back"] += sum(bool(one["previous"]) for one in records)
        steps["opened"] += group.opened
    assert all(count > 10 for count in steps.values()), steps


def test_the_same_seed_gives_the_same_life() -> None:
    lives = [SimulatedEngines(7, 3).run(SECONDS).story for _ in range(2)]
    assert lives[0] == lives[1]


def test_much_happens_in_some_lives() -> None:
    groups = [SimulatedEngines(seed, 3).run(6) for seed in range(100, 120)]
    assert sum(group.history.answered for group in groups) > 1_000
    assert sum(group.opened for group in groups) > 50
    assert sum(group.installs for group in groups) > 3
    kinds = {call.kind for group in groups for call in group.history.calls if call.is_known}
    assert kinds == {
        "publish", "put", "get", "purge", "delete", "add", "total", "create", "drop", "look",
        "fetch", "settle", "remove", "end", "floor",
    }  # fmt: skip
    assert any(not call.is_known for group in groups for call in group.history.calls)


def test_damage_of_what_is_known_to_be_committed_keeps_no_group_from_a_leader() -> None:
    """The others had trimmed the entry, and with two of five gone all that were left are needed."""
    SimulatedEngines(4079, 5, damage=True, fills=True).run(6)
