"""Bugs that are planted into a group of servers, and found by the simulation of one."""

from collections.abc import Callable

import msgspec
import pytest

from slipstream.group import DiskJob, Entry, Mark, Message, State
from slipstream.group.candidate import Candidate, Stage
from slipstream.group.leader import Leader
from slipstream.group.lease import SealPromise, Settings
from slipstream.group.log_replica import LogReplica
from slipstream.group.member import Member
from slipstream.group.members_change import MembersChange
from slipstream.group.members_change import Stage as Changing
from slipstream.group.members_register import MembersRegister
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    Accepted,
    Appended,
    Ballot,
    Promise,
    RegisterValue,
    Seal,
    Sealed,
    make_entry,
)
from slipstream.group.outbox import Outbox, Write
from slipstream.testing.ledger import ViolationError
from slipstream.testing.log_disk import LogDisk
from slipstream.testing.simulated_group import SimulatedGroup
from tests.testing.group_scripts import (
    DirectedLife,
    earlier_epoch,
    epoch_of_another,
    forgotten_seal,
    forgotten_vote,
    longer_log,
    repaired_from_a_loser,
    resumed_epoch,
)

SECONDS = 8
SEEDS_UNTIL_FOUND = 300


def busy(seed: int, size: int = 3) -> SimulatedGroup:
    """A life with more changes of leader than else, and crashes amid writing."""
    group = SimulatedGroup(seed, size)
    group.moves += [(6, group._crash), (6, group._cut), (4, group._heal), (4, group._slow_disk)]
    group.moves += [(6, group._isolate_leader), (10, group._turn_sides), (3, group._lose_leader)]
    group.crash_amid_writing(group.random.choice((0.003, 0.02)))
    return group


LOST = ("history:", "durable:", "once:", "corruption:")  # what was committed is not, somewhere
WRONG = (*LOST, "leader:", "read:", "order:")


def is_found(
    kinds: tuple[str, ...],
    simulate: Callable[[int], SimulatedGroup] = busy,
    seconds: int = SECONDS,
) -> bool:
    """Whether a few seeds come upon a violation of one of these kinds."""
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            simulate(seed).run(seconds)
        except ViolationError as error:
            if str(error).startswith(kinds):
                return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_found_where_nothing_is_planted(seed: int) -> None:
    busy(seed, 3 + 2 * (seed % 2)).run(SECONDS)


def answer_at_once(monkeypatch: pytest.MonkeyPatch, *kinds: type) -> None:
    send_synced = Outbox.send_synced

    def hasty(outbox: Outbox, receiver: str, message: Message) -> None:
        (Outbox.send if isinstance(message, kinds) else send_synced)(outbox, receiver, message)

    monkeypatch.setattr(Outbox, "send_synced", hasty)


def test_entries_that_are_not_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_at_once(monkeypatch, Appended)
    assert is_found(LOST)


def test_a_leader_that_serves_before_its_epoch_is_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leader, "serves", property(lambda leader: True))
    assert is_found(("read:",))


def test_a_chain_that_is_not_compared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LogReplica.append

    def append_anywhere(log: LogReplica, after: Mark, entries: tuple[Entry, ...]) -> int | None:
        return append(log, log.mark(after.index) or after, entries)

    monkeypatch.setattr(LogReplica, "append", append_anywhere)
    assert is_found(LOST)


def test_an_answer_before_a_majority_has_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "index_on_quorum", lambda leader: leader._log.synced)
    assert is_found(LOST)


def test_a_leader_that_takes_the_longest_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = Candidate.sealed

    def by_index(candidate: Candidate, sender: str, message: Sealed) -> None:
        class Longest(dict[str, Mark]):
            def values(self) -> list[Mark]:  # type: ignore[override]
                latest = max(super().values(), key=lambda end: end.index)
                return [latest]

        if not isinstance(candidate._ends, Longest):
            candidate._ends = Longest(candidate._ends)
        sealed(candidate, sender, message)

    monkeypatch.setattr(Candidate, "sealed", by_index)
    assert is_found_by(longer_log, LOST)


def test_a_leader_that_seals_nobody_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Candidate,
        "_are_enough",
        lambda candidate, members: candidate.stage is Stage.SEALING or len(members) > 1,
    )
    assert is_found(WRONG)


def test_a_leader_that_goes_on_in_its_epoch_after_a_crash_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = Candidate.look_at_register

    def resume(candidate: Candidate, now: int) -> bool:
        outcome = candidate._register.outcome
        if outcome and not outcome.is_set and outcome.value.leader == candidate._name:
            candidate.epoch = outcome.value.epoch
            candidate.stage = Stage.SEALING
            for member in candidate.membership.everyone:
                candidate._outbox.send(member, Seal(candidate.epoch))
            return True
        return look(candidate, now)

    class Unaware(Member):
        def _stand(
            self, now: int, is_successor: bool = False, taken: RegisterValue | None = None
        ) -> None:
            super()._stand(now, is_successor, taken)
            if self._candidate and self._candidate.epoch > 1 and taken is None:
                self._candidate.epoch -= 1

    def simulate(seed: int) -> SimulatedGroup:
        group = DirectedLife(seed, resumed_epoch)
        group.member_type = Unaware
        return group

    monkeypatch.setattr(Candidate, "look_at_register", resume)
    assert is_found(WRONG, simulate, 1)


def test_a_successor_that_is_given_an_epoch_which_the_register_has_not_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def invented(member: Member, leader: Leader) -> RegisterValue | None:
        value = RegisterValue(leader.epoch + 1, leader.successor, ())
        return value.with_membership(leader.told) if leader.successor else None

    monkeypatch.setattr(Member, "_taken", invented)
    assert is_found_by(epoch_of_another, ("leader:",))


def test_a_promise_that_hides_what_was_accepted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: who promises does not say what it has accepted."""
    prepare = MembersRegister._prepare

    def silent(register: MembersRegister, sender: str, ballot: Ballot) -> None:
        state = register._outbox.state
        hidden = msgspec.structs.replace(state, value=None)
        register._outbox.state = hidden
        prepare(register, sender, ballot)
        register._outbox.state = msgspec.structs.replace(
            register._outbox.state, value=state.value, accepted=state.accepted
        )

    monkeypatch.setattr(MembersRegister, "_prepare", silent)
    assert is_found(WRONG)


def test_an_end_that_is_written_anew_piece_by_piece_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a new leader gives the entries that it does not know to be committed its epoch."""
    begin = Leader.__init__

    def rewrite(leader: Leader, name: str, epoch: int, members: tuple[str, ...], log: LogReplica,
                *rest: object) -> None:  # fmt: skip
        first = log.committed + 1
        old = log.read(first, 1000)
        after = log.mark(first - 1)
        for entry in old:
            assert after is not None
            new = make_entry(epoch, after, entry.body)
            log.append(after, (new,))
            after = new.mark
        begin(leader, name, epoch, members, log, *rest)  # type: ignore[arg-type]
        for follower in leader._followers.values():
            follower.sent = follower.agreed = first - 1

    monkeypatch.setattr(Leader, "__init__", rewrite)
    assert is_found(LOST)


def damaged(seed: int, size: int = 3) -> SimulatedGroup:
    """A life in which entries are damaged while their server is down."""
    group = SimulatedGroup(seed, size, damage=True)
    group.moves += [(10, group._crash), (20, group._damage)]
    return group


@pytest.mark.parametrize("seed", range(20))
def test_damage_that_is_repaired_is_nothing(seed: int) -> None:
    damaged(seed).run(SECONDS)


def test_a_member_that_has_lost_its_end_and_counts_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("is_whole", "counts"):
        monkeypatch.setattr(LogReplica, name, property(lambda log: not log.damaged))
    monkeypatch.setattr(LogReplica, "is_short", False, raising=False)
    assert is_found(LOST, damaged)


def test_one_of_two_that_waits_for_the_other_ones_damaged_log_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: who has a damaged log is not asked, as in a group of three."""
    monkeypatch.setattr(Membership, "has_even_group", False)
    assert is_found(("stall: the group does not serve",), lambda seed: damaged(seed, 2))


def test_a_disk_that_forgets_what_was_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = LogDisk.finish

    def forget(disk: LogDisk) -> DiskJob:
        job = disk.jobs[0]
        disk.jobs[0] = msgspec.structs.replace(job, writes=[])
        finish(disk)
        return job

    monkeypatch.setattr(LogDisk, "finish", forget)
    assert is_found(LOST)


def cut_off(seed: int) -> SimulatedGroup:
    """A life in which leaders do not hear some or all others for long, and go on answering."""
    group = SimulatedGroup(10 + seed, 3)
    group.moves = [(2, group._cut_link), (1, group._isolate_leader), (60, group._append)]
    group.moves += [(1, group._crash), (2, group._change_clock)]
    return group


def test_a_member_that_lets_itself_be_sealed_under_a_lease_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SealPromise, "is_over", lambda promise, now: True)
    assert is_found(("read:",), cut_off)


def swinging(seed: int) -> SimulatedGroup:
    """A life in which two servers never hear each other, but in turns one that crashes."""
    group = SimulatedGroup(seed, 3)
    group.moves = [(60, group._append), (4, group._swing), (1, group._change_clock)]
    group.crash_amid_writing(0.0)
    return group


@pytest.mark.parametrize("seed", range(20))
def test_a_server_between_two_sides_that_crashes_loses_nothing(seed: int) -> None:
    swinging(seed).run(SECONDS)


def trimming(seed: int) -> SimulatedGroup:
    """A life in which logs are trimmed, and servers come back after that."""
    group = SimulatedGroup(seed, 3, damage=seed % 2 == 1, trims=True)
    group.moves += [(20, group._trim), (4, group._crash), (4, group._cut), (3, group._heal)]
    group.moves += [(4, group._isolate_leader), (5, group._turn_sides), (2, group._lose_leader)]
    group.crash_amid_writing(group.random.choice((0.003, 0.02)))
    return group


def left_behind(seed: int) -> SimulatedGroup:
    """A life in which followers come back after logs were trimmed, and so do leaders."""
    group = SimulatedGroup(seed, 3, trims=True)
    group.moves = [(60, group._append), (3, group._leave_behind), (20, group._trim)]
    group.moves += [(4, group._isolate_leader), (6, group._turn_sides), (2, group._heal)]
    group.moves += [(1, group._change_clock)]
    return group


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("simulate", [trimming, left_behind])
def test_trimming_alone_is_nothing(seed: int, simulate: Callable[[int], SimulatedGroup]) -> None:
    simulate(seed).run(SECONDS)


def test_a_log_that_is_trimmed_where_it_is_not_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trim(log: LogReplica, index: int) -> None:
        mark = log.end
        log._drop(mark)
        log._outbox.keep(msgspec.structs.replace(log._outbox.state, base=mark))

    monkeypatch.setattr(LogReplica, "trim", trim)
    assert is_found(LOST, trimming)


def test_an_install_that_begins_before_that_is_noted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Member, "may_install", property(lambda member: member.is_installing))
    assert is_found(("applied:",), trimming)


def keep_another_state(
    monkeypatch: pytest.MonkeyPatch, another: Callable[[State, State], State]
) -> None:
    """Planted: an install keeps what `another` makes of the state before and of the right one."""
    reset = Outbox.reset

    def forget(outbox: Outbox, state: State) -> None:
        reset(outbox, another(outbox.state, state))

    monkeypatch.setattr(Outbox, "reset", forget)


def test_an_install_that_forgets_what_was_promised_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_promises(before: State, state: State) -> State:
        return State(base=state.base, synced=state.synced, committed=state.committed)

    keep_another_state(monkeypatch, without_promises)
    assert is_found(WRONG, left_behind)


def test_a_leader_without_what_the_others_have_trimmed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a candidate that cannot fetch what is gone leads with what it has."""
    tick = Candidate.tick

    def hurry(candidate: Candidate, now: int) -> bool:
        if candidate.stage is Stage.FETCHING:
            candidate._best = candidate._log.end
        return tick(candidate, now)

    class Hasty(Member):
        def tick(self, now: int) -> None:
            super().tick(now)
            if self._candidate is not None and self._candidate.stage is Stage.READY:
                self._lead(now, self._candidate)
                self._finish_turn(now)

    def simulate(seed: int) -> SimulatedGroup:
        group = trimming(seed)
        group.member_type = Hasty
        return group

    monkeypatch.setattr(Candidate, "tick", hurry)
    assert is_found(LOST, simulate)


def test_an_install_that_does_not_keep_where_the_log_begins_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_the_old_base(before: State, state: State) -> State:
        return msgspec.structs.replace(state, base=before.base)

    keep_another_state(monkeypatch, with_the_old_base)
    assert is_found((*WRONG, "applied:", "stall:"), trimming)


def wandering(seed: int) -> SimulatedGroup:
    """A life in which leaders are cut off while clients go on with them, and clocks change."""
    group = SimulatedGroup(10 + seed, 3)
    group.moves = [(2, group._isolate_leader), (1, group._heal), (60, group._append)]
    group.moves += [(8, group._change_clock)]
    return group


def test_a_lease_by_the_time_of_day_is_found() -> None:
    def simulate(seed: int) -> SimulatedGroup:
        group = wandering(seed)
        group.now_of = lambda server: max(server.date(group.now), 0)  # type: ignore[method-assign]
        return group

    assert is_found(("read:",), simulate)


def test_a_read_without_a_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "may_read", lambda leader, now: leader.serves)
    assert is_found(("read:",), wandering)


def test_a_lease_by_clocks_that_are_taken_for_alike_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Settings, "lease", property(lambda settings: settings.promise))
    assert is_found(("read:",), wandering)


def changing(seed: int) -> SimulatedGroup:
    """A life in which members come and go all the time."""
    group = SimulatedGroup(seed, 1 + 2 * (seed % 2), trims=bool(seed % 4 > 1), changes=True)
    group.moves += [(20, group._change_members), (3, group._cut), (3, group._isolate_leader)]
    group.moves += [(4, group._heal), (3, group._lose_leader)]
    return group


def test_nothing_is_found_where_members_change_as_they_should() -> None:
    for seed in range(20):
        changing(seed).run(SECONDS)


def test_new_members_that_lack_what_was_committed_before_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the old members' word is enough for what was there when the change began."""
    go_on = MembersChange.go_on

    def hasty(change: MembersChange, now: int) -> None:
        go_on(change, now)
        if change.stage is Changing.COMMITTING:
            change._needed = 0

    monkeypatch.setattr(MembersChange, "go_on", hasty)
    monkeypatch.setattr(Leader, "has_caught_up", lambda leader, now, name: True)
    assert is_found(LOST, changing)


def test_a_change_without_the_step_that_needs_both_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Membership.begin_change

    def at_once(
        membership: Membership, members: tuple[str, ...], away: tuple[str, ...]
    ) -> Membership:
        return msgspec.structs.replace(begin(membership, members, away), previous=())

    monkeypatch.setattr(Membership, "begin_change", at_once)
    assert is_found(WRONG, changing)


def test_a_leader_that_counts_the_new_members_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: while the members change, copies and promises of the new ones are enough."""
    reached = Membership.reached

    def of_new(membership: Membership, values: dict[str, int]) -> int:
        return reached(Membership(membership.members), values)

    monkeypatch.setattr(Membership, "reached", of_new)
    assert is_found(WRONG, changing)


# What takes several faults in a row is looked for in lives that have them (`group_scripts`).

SCRIPTS = (
    earlier_epoch,
    forgotten_vote,
    forgotten_seal,
    repaired_from_a_loser,
    resumed_epoch,
    longer_log,
    epoch_of_another,
)


def is_found_by(script: Callable[[DirectedLife], None], kinds: tuple[str, ...]) -> bool:
    """Whether a few seeds of a script come upon a violation of one of these kinds."""
    return is_found(kinds, lambda seed: DirectedLife(seed, script), 1)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_alone_is_nothing(script: Callable[[DirectedLife], None]) -> None:
    lives = [DirectedLife(seed, script) for seed in range(20)]
    for life in lives:
        life.run(1)
    assert any(life.is_complete for life in lives)


def test_a_commit_by_counting_in_an_earlier_epoch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Leader, "_commit", lambda leader: leader._log.commit(leader.index_on_quorum())
    )
    assert is_found_by(earlier_epoch, LOST)


def test_votes_that_are_not_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_at_once(monkeypatch, Promise, Accepted)
    assert is_found_by(forgotten_vote, ("leader:",))


def test_a_seal_that_a_crash_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LogDisk.open

    def forget(disk: LogDisk) -> tuple[State | None, list[Entry | None]]:
        state, stored = found(disk)
        return state and msgspec.structs.replace(state, sealed=0), stored

    monkeypatch.setattr(LogDisk, "open", forget)
    assert is_found_by(forgotten_seal, LOST)


def test_a_repair_from_an_entry_that_was_never_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def repair(log: LogReplica, entry: Entry) -> bool:
        if entry.index not in log.damaged:
            return False
        log._entries[entry.index - log.base.index - 1] = entry
        log.damaged.discard(entry.index)
        log._outbox.write(Write(entry.index, [entry], is_end=False))
        return True

    monkeypatch.setattr(LogReplica, "repair", repair)
    assert is_found_by(repaired_from_a_loser, LOST)
