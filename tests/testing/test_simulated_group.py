"""Groups of servers live through faults and keep what they have answered (`simulated_group`)."""

import pytest

from slipstream.testing.simulated_group import SimulatedGroup

SECONDS = 4


@pytest.mark.parametrize("first", range(0, 100, 10))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_what_a_group_has_answered_is_in_every_later_history(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size).run(SECONDS)


@pytest.mark.parametrize("first", range(100, 150, 10))
@pytest.mark.parametrize("size", [3, 5])
def test_damaged_entries_are_repaired_and_cost_nothing(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, damage=True).run(SECONDS)


@pytest.mark.parametrize("first", range(300, 350, 10))
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("damage", [False, True])
def test_logs_that_are_trimmed_cost_nothing(size: int, first: int, damage: bool) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, damage, trims=True).run(SECONDS)


@pytest.mark.parametrize("first", range(400, 450, 10))
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("trims", [False, True])
def test_members_that_come_and_go_cost_nothing(size: int, first: int, trims: bool) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, trims=trims, changes=True).run(SECONDS)


@pytest.mark.parametrize("first", range(600, 640, 10))
@pytest.mark.parametrize("size", [2, 4])
def test_damage_of_one_of_an_even_number_of_servers_costs_nothing(size: int, first: int) -> None:
    """The others are no majority, and are in each one."""
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, damage=True, trims=seed % 2 == 1).run(SECONDS)


@pytest.mark.parametrize("first", range(640, 680, 10))
@pytest.mark.parametrize("size", [3, 5])
def test_damage_while_members_come_and_go_costs_nothing(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, damage=True, trims=seed % 2 == 1, changes=True).run(SECONDS)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_that_connections_end_means_nothing_by_itself(size: int) -> None:
    for seed in range(500, 510):
        SimulatedGroup(seed, size, trims=True, changes=True, unlinks=True).run(SECONDS)


@pytest.mark.parametrize("first", range(500, 540, 10))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_disks_that_are_full_for_a_while_cost_nothing(size: int, first: int) -> None:
    for seed in range(first, first + 10):
        SimulatedGroup(seed, size, trims=seed % 2 == 1, fills=True).run(SECONDS)


def test_a_log_that_was_made_whole_is_so_for_the_next_start_too() -> None:
    """It crashed soon after that, and another server was gone."""
    SimulatedGroup(8474, 3, damage=True, trims=True).run(6)


def test_the_same_seed_gives_the_same_life() -> None:
    lives = [SimulatedGroup(7, 3).run(SECONDS).story for _ in range(2)]
    assert lives[0] == lives[1]


def test_much_happens_in_some_lives() -> None:
    groups = [SimulatedGroup(seed, 3).run(SECONDS) for seed in range(200, 220)]
    assert sum(len(group.ledger.answered) for group in groups) > 200
    assert sum(group.ledger.reads for group in groups) > 200
    assert sum(server.life for group in groups for server in group.servers.values()) > 200
    groups = [SimulatedGroup(seed, 3, trims=True).run(SECONDS) for seed in range(200, 240)]
    assert sum(group.installs for group in groups) > 10
