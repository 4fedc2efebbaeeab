"""Bugs around a register outside of the group, planted and found by the simulation of one."""

import msgspec
import pytest

from slipstream.group.leader import Leader
from slipstream.group.members_change import GoingAlone, MembersChange
from slipstream.group.membership import Membership
from slipstream.group.messages import RegisterValue
from slipstream.group.outside_register import (
    Answer,
    Changed,
    Failed,
    OutsideRegister,
    Put,
    Request,
    Stored,
    encode_record,
)
from slipstream.testing.simulated_group import SimulatedGroup
from slipstream.testing.simulated_register import SimulatedStore
from tests.testing.test_group_bugs import LOST, WRONG, is_found


def with_register(seed: int, size: int = 3) -> SimulatedGroup:
    """A life in which the register is unsure, and leaders change."""
    group = SimulatedGroup(seed, size, outside=True)
    group.moves += [(6, group._crash), (6, group._isolate_leader), (10, group._turn_sides)]
    group.moves += [(6, group._worsen_store), (6, group._heal)]
    return group


def contended(seed: int) -> SimulatedGroup:
    """A life in which two servers never hear each other, want to lead at a time, and take an unsure
    register for it; the third one hears both."""
    group = SimulatedGroup(seed, 3, outside=True)
    group._alike = True
    for server in group.servers.values():
        server.change_rate(0, 1.0)

    def cut_two() -> None:
        group.network.cut = {("n1", "n2"), ("n2", "n1")}

    def restart_all() -> None:
        for server in group.servers.values():
            group._kill(server)
            group._start(server)

    group.moves = [(60, group._append), (3, cut_two), (1, restart_all)]
    group.moves += [(6, group._worsen_store), (3, group._calm_store)]
    return group


def of_two(seed: int) -> SimulatedGroup:
    """A life of two servers that lose each other."""
    group = with_register(seed, 2)
    group.moves += [(10, group._isolate_leader), (10, group._heal), (5, group._calm_store)]
    return group


@pytest.mark.parametrize("size", [2, 3])
def test_nothing_is_found_where_nothing_is_planted(size: int) -> None:
    for seed in range(8):
        with_register(seed, size).run(8)
        contended(seed).run(8)


def test_a_put_without_an_answer_that_is_repeated_in_its_epoch_is_found() -> None:
    """Planted: what was not answered did not happen, so it is put again, whatever is there."""

    class Repeating(OutsideRegister):
        was_lost = False

        def answered(self, now: int, number: int, answer: Answer) -> None:
            is_put = isinstance(self._awaited, Put) and self._awaited.number == number
            self.was_lost |= is_put and isinstance(answer, Failed | Changed)
            super().answered(now, number, answer)

        def _found(self, now: int, wanted: RegisterValue, data: bytes, version: str) -> None:
            if self.was_lost and data and wanted.members:
                self._number += 1
                self._ask(now, Put(self._number, encode_record(wanted, self._mark), version))
                self.was_lost = False
                return
            super()._found(now, wanted, data, version)

    def simulate(seed: int) -> SimulatedGroup:
        group = contended(seed)
        group.register_type = Repeating
        return group

    assert is_found(WRONG, simulate)


def test_a_put_that_relies_on_a_stale_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the store puts whatever comes, because a read has said what is there."""
    carry_out = SimulatedStore.carry_out

    def put_anyway(store: SimulatedStore, request: Request) -> Answer:
        if isinstance(request, Put):
            request = msgspec.structs.replace(request, version=str(len(store.versions) - 1))
        return carry_out(store, request)

    monkeypatch.setattr(SimulatedStore, "carry_out", put_anyway)
    assert is_found(WRONG, contended)


def test_a_put_that_was_refused_and_is_taken_for_ones_own_is_found() -> None:
    """Planted: as nothing newer was read, it must have been an answer that was lost."""

    class Hopeful(OutsideRegister):
        def answered(self, now: int, number: int, answer: Answer) -> None:
            super().answered(now, number, Stored() if isinstance(answer, Changed) else answer)

    def simulate(seed: int) -> SimulatedGroup:
        group = contended(seed)
        group.register_type = Hopeful
        return group

    assert is_found(WRONG, simulate)


def test_a_leader_of_two_that_was_cut_off_and_goes_on_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: it counts itself alone as soon as it has asked the register."""

    def at_once(change: GoingAlone, now: int) -> None:
        change._leader.membership = change._wanted.membership

    monkeypatch.setattr(GoingAlone, "go_on", at_once)
    assert is_found(WRONG, of_two)


def test_a_server_that_is_away_and_leads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: who knows of two servers may take the register from either of them."""
    set_over = RegisterValue.set_over

    def take(value: RegisterValue, current: RegisterValue) -> RegisterValue | None:
        is_next = value.epoch == current.epoch + 1
        return value if is_next and value.away else set_over(value, current)

    monkeypatch.setattr(RegisterValue, "set_over", take)
    assert is_found(LOST, of_two)


def test_one_of_three_that_goes_on_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Membership, "is_in_all_quorums", lambda membership, name: name in membership.members
    )
    monkeypatch.setattr(Leader, "is_silent", lambda leader, now, time: False)
    assert is_found(LOST, with_register)


def test_a_server_that_is_taken_back_without_what_was_answered_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: that it is there is enough, and nobody waits until it has what it lacks."""
    commit = MembersChange._commit

    def hasty(change: MembersChange, now: int) -> None:
        commit(change, now)
        change._needed = 0

    monkeypatch.setattr(MembersChange, "_commit", hasty)
    monkeypatch.setattr(Leader, "has_caught_up", lambda leader, now, name: True)

    def simulate(seed: int) -> SimulatedGroup:
        group = of_two(seed)
        group.settings = msgspec.structs.replace(group.settings, entries_max=1)
        group.moves += [(10, group._cut), (10, group._slow_disk), (60, group._append)]
        return group

    assert is_found(LOST, simulate)
