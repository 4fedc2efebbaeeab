"""Bugs that are planted into groups whose leaders have engines, and found by what clients see."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from slipstream.engine.api import covered
from slipstream.engine.consumer.life import ConsumerLife
from slipstream.errors import StorageError
from slipstream.group import Member
from slipstream.group.leader import Leader
from slipstream.group.members_change import GoingAlone
from slipstream.group.messages import RegisterValue
from slipstream.log.durability import Touched
from slipstream.server.replica.group_disk import GroupDisk, GroupFile
from slipstream.server.replica.operations import Operation
from slipstream.server.replica.store_copy import Changes, Held, Snapshot
from slipstream.server.replica.store_directory import StoreDirectory
from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_engines import Host, SimulatedEngines
from slipstream.testing.simulated_group import Server

SECONDS = 6
SEEDS_UNTIL_FOUND = 300

SEEN = ("durable:", "linearizable:", "history:", "position:", "once:", "order:", "removed:")


def busy(seed: int) -> SimulatedEngines:
    """A life with more changes of leader than else, while clients go on."""
    group = SimulatedEngines(seed, 3, callers=6)
    group.moves += [(6, group._crash), (4, group._isolate_leader), (8, group._turn_sides)]
    group.moves += [(4, group._heal), (3, group._lose_leader), (100, group._append)]
    return group


def cut_off(seed: int) -> SimulatedEngines:
    """A life in which leaders are cut off while clients go on with them."""
    group = SimulatedEngines(seed, 3, callers=8)

    def cut_off_slow() -> None:
        """The clock of the leader is slow, so that it takes itself for the leader for long."""
        for server in group.servers.values():
            server.change_rate(group.now, 0.5 if server.serves else 2.0)
        group._isolate_leader()

    group.moves = [(1, cut_off_slow), (1, group._heal), (60, group._append)]
    group.moves += [(15, group._cut_client)]  # clients come to the new leader, too
    # A read behind a write that has no majority waits for that: there are few writes.
    group.workload.kinds = [(1, group.workload._put), (12, group.workload._get)]
    return group


def of_two(seed: int) -> SimulatedEngines:
    """A life of two servers that lose each other, with a register that is there as a rule."""
    group = SimulatedEngines(seed, 2, callers=6, outside=True)
    group.moves += [(6, group._crash), (10, group._isolate_leader), (10, group._heal)]
    group.moves += [(20, group._calm_store), (100, group._append)]
    return group


def in_three(seed: int) -> SimulatedEngines:
    """A life of three, as chance has it."""
    return SimulatedEngines(seed, 3)


def first_found(
    kinds: tuple[str, ...], simulate: Callable[[int], SimulatedEngines] = busy
) -> int | None:
    """The first seed that comes upon a violation of one of these kinds."""
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            simulate(seed).run(SECONDS)
        except ViolationError as error:
            if str(error).startswith(kinds):
                return seed
        except Exception:  # what a bug has brought about may also end in a fault of the program
            continue
    return None


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("simulate", [busy, cut_off, of_two])
def test_nothing_is_found_where_nothing_is_planted(
    seed: int, simulate: Callable[[int], SimulatedEngines]
) -> None:
    simulate(seed).run(SECONDS)


def test_an_answer_before_a_majority_has_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupFile, "sync", lambda file: file._group.hand_on())
    assert first_found(SEEN) is not None


def test_an_answer_once_the_leader_alone_has_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "index_on_quorum", lambda leader: leader._log.synced)
    assert first_found((*SEEN, "corruption:")) is not None


def test_a_double_acknowledgement_that_is_answered_at_once_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsumerLife, "when_saved", lambda life, done: done())
    assert first_found(("position:",)) is not None


def test_information_that_no_majority_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "covered", lambda js, fields, streams=(), consumers=(): fields)
    assert first_found(("info:",)) is not None


def test_an_engine_that_goes_on_after_its_server_was_deposed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a server that gets the lead back goes on with the engine that it had."""
    look = SimulatedEngines._look

    def keep(group: SimulatedEngines, server: Server, member: Member) -> None:
        lead = group.hosts[server.name].lead
        if lead is not None and server.applied.index >= member.committed:
            if not member.epoch:
                return
            lead.epoch = group.hosts[server.name].led = member.epoch
        look(group, server, member)

    submit = SimulatedEngines._submit

    def in_any_epoch(
        group: SimulatedEngines, server: Server, epoch: int, body: bytes
    ) -> Future[None]:
        assert server.member is not None
        return submit(group, server, server.member.epoch or epoch, body)

    monkeypatch.setattr(SimulatedEngines, "_look", keep)
    monkeypatch.setattr(SimulatedEngines, "_submit", in_any_epoch)
    monkeypatch.setattr(GroupDisk, "is_lost", False)
    assert first_found((*SEEN, "files:")) is not None


def test_files_that_are_noted_and_not_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = StoreDirectory._keep

    def forget(directory: StoreDirectory, index: int) -> None:
        directory._touched = Touched()
        keep(directory, index)

    monkeypatch.setattr(StoreDirectory, "_keep", forget)
    assert first_found((*SEEN, "files:")) is not None


def test_a_checkpoint_without_the_ends_of_files_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    content_of = Snapshot._content_of

    def cut(snapshot: Snapshot, name: str, bytes_max: int) -> Iterator[Operation]:
        yield from list(content_of(snapshot, name, bytes_max))[:-1]

    monkeypatch.setattr(Snapshot, "_content_of", cut)
    assert first_found((*SEEN, "files:")) is not None


def test_a_checkpoint_without_what_was_written_to_files_that_are_held_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Changes, "note", lambda changes, index, path: None)
    assert first_found((*SEEN, "files:")) is not None


def test_files_that_may_be_ahead_and_are_not_sent_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two servers wait for each other, who are a majority: one has all, and the other one has to
    get it before anything can be committed."""
    snapshot = StoreDirectory.snapshot

    def refuse(directory: StoreDirectory, held: Held | None = None) -> Snapshot:
        if directory.may_be_ahead:
            raise StorageError("the files may be ahead")
        return snapshot(directory, held)

    monkeypatch.setattr(StoreDirectory, "snapshot", refuse)
    assert first_found(("stall: the group does not serve",), in_three) is not None


def test_what_was_applied_and_is_lost_and_not_asked_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Member, "lose_applied", lambda member, now: True)
    assert first_found(("applied:",)) is not None


def test_a_server_that_serves_before_it_has_applied_all_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = SimulatedEngines._look

    def hurry(group: SimulatedEngines, server: Server, member: Member) -> None:
        host: Host = group.hosts[server.name]
        host.led = member.epoch
        look(group, server, member)

    def slow(seed: int) -> SimulatedEngines:
        group = busy(seed)
        group._is_slow_to_apply = True
        return group

    monkeypatch.setattr(SimulatedEngines, "_look", hurry)
    assert first_found((*SEEN, "files:"), slow) is not None


def test_a_leader_of_two_that_goes_on_before_the_register_knows_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: it counts itself alone as soon as it has asked the register."""

    def at_once(change: GoingAlone, now: int) -> None:
        change._leader.membership = change._wanted.membership

    monkeypatch.setattr(GoingAlone, "go_on", at_once)
    assert first_found((*SEEN, "corruption:"), of_two) is not None


def test_an_engine_of_two_on_a_server_that_is_away_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: who knows of two servers may take the register from either of them."""
    set_over = RegisterValue.set_over

    def take(value: RegisterValue, current: RegisterValue) -> RegisterValue | None:
        is_next = value.epoch == current.epoch + 1
        return value if is_next and value.away else set_over(value, current)

    monkeypatch.setattr(RegisterValue, "set_over", take)
    assert first_found((*SEEN, "corruption:"), of_two) is not None
