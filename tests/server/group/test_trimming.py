"""The beginning of a group's log goes, and who was away then has a checkpoint installed."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from slipstream.errors import DiskFullError
from slipstream.model.durations import SECOND
from slipstream.server.group import GroupHost, TrimmedError
from slipstream.server.group import transfers as transfers_module
from slipstream.server.group.store import decode_copy
from tests.server.group.hosts import Group, history
from tests.server.group.owner import Owner
from tests.server.group.waiting import until

KEEP = 20_000
SEGMENT = 16 * 1024


def owned(directory: Path, **owners: Owner) -> Group:
    """Three servers with owners that trim."""
    found = {name: owners.get(name, Owner()) for name in ("n1", "n2", "n3")}
    return Group(directory, owners=found, keep_bytes=KEEP, segment_bytes=SEGMENT)


def wanted(first: int, count: int, size: int = 1000) -> list[bytes]:
    return [b"%d".ljust(size) % number for number in range(first, first + count)]


async def append_all(group: Group, bodies: list[bytes]) -> None:
    """Have many bodies be committed, in order."""
    leader = await group.leader()
    for at in range(0, len(bodies), 50):
        await asyncio.gather(*(leader.append(body) for body in bodies[at : at + 50]))


async def all_have_applied(group: Group, bodies: list[bytes]) -> None:
    def have() -> bool:
        owners = [group.owners[name] for name in group.hosts]
        return all([body for body in one.applied if body] == bodies for one in owners)

    await until(have, "all have applied the same")


async def follower_is_left_behind(group: Group) -> str:
    """A follower is away while the others trim what it lacks; its name."""
    leader = await group.leader()
    await append_all(group, wanted(0, 20))
    await all_have_applied(group, wanted(0, 20))
    away = group.another(leader)
    await group.stop(away)
    await append_all(group, wanted(20, 180))
    hosts = group.hosts.values()
    await until(lambda: all(host.base_index > 100 for host in hosts), "the others have trimmed")
    return away


async def test_who_was_away_comes_back_by_a_checkpoint_while_appends_go_on(tmp_path: Path) -> None:
    async with owned(tmp_path) as group:
        away = await follower_is_left_behind(group)
        host = await group.start(away)
        number = 200
        while not group.owners[away].installed:
            await append_all(group, wanted(number, 10))
            number += 10
        await append_all(group, wanted(number, 50))
        await all_have_applied(group, wanted(0, number + 50))
        assert not host.is_installing
        assert host.base_index > 100
        assert all(owner.open_count == 0 for owner in group.owners.values())
        await group.stop(away)
        await group.start(away)
        await append_all(group, wanted(number + 50, 10))
        await all_have_applied(group, wanted(0, number + 60))
        assert group.owners[away].installs == len(group.owners[away].installed)


async def test_who_has_installed_a_checkpoint_leads_as_any_other(tmp_path: Path) -> None:
    async with owned(tmp_path) as group:
        away = await follower_is_left_behind(group)
        await group.start(away)
        await all_have_applied(group, wanted(0, 200))
        leader = await group.leader()
        if leader.name != away:
            leader.hand_over(away)
        assert (await group.leader(leader.name)).name == away
        await append_all(group, wanted(200, 10))
        await all_have_applied(group, wanted(0, 210))


async def install_is_in_the_middle(group: Group) -> tuple[GroupHost, Owner]:
    """A server has begun to install a checkpoint, and goes on once its owner may; both of them."""
    away = await follower_is_left_behind(group)
    owner = group.owners[away]
    owner.may_go_on.clear()
    host = await group.start(away)
    await until(lambda: owner.is_half and owner.applied, "it is in the middle")
    return host, owner


async def test_an_install_that_was_ended_in_the_middle_begins_again(tmp_path: Path) -> None:
    async with owned(tmp_path) as group:
        host, owner = await install_is_in_the_middle(group)
        assert host.is_installing
        assert not host.epoch
        await group.stop(host.name)
        assert owner.is_half
        await append_all(group, wanted(200, 10))
        owner.may_go_on.set()
        host = await group.start(host.name)
        await all_have_applied(group, wanted(0, 210))
        assert not host.is_installing
        assert (owner.installs, len(owner.installed)) == (2, 1)


async def test_a_link_that_breaks_in_the_middle_has_the_transfer_begin_again(
    tmp_path: Path,
) -> None:
    async with owned(tmp_path) as group:
        host, owner = await install_is_in_the_middle(group)
        for link in list(host._links._links.values()):
            link.close("planted")
        owner.may_go_on.set()
        await all_have_applied(group, wanted(0, 200))
        assert (owner.installs, len(owner.installed)) == (2, 1)
        assert group.logs[host.name].has("the link has ended; it is asked for again")


async def test_an_owner_that_fails_to_install_is_asked_again(tmp_path: Path) -> None:
    class Failing(Owner):
        failures = 1

        async def install(self, index, pieces):  # type: ignore[no-untyped-def]
            if self.failures:
                self.failures -= 1
                raise OSError(28, "No space left on device")
            await super().install(index, pieces)

    owners = {name: Failing() for name in ("n1", "n2", "n3")}
    async with owned(tmp_path, **owners) as group:
        away = await follower_is_left_behind(group)
        await group.start(away)
        await all_have_applied(group, wanted(0, 200))
        assert group.logs[away].has("No space left on device")


async def test_a_checkpoint_that_finds_no_space_is_asked_for_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not sent in vain each second."""
    monkeypatch.setattr(transfers_module, "RETRY", 3600 * SECOND)
    monkeypatch.setattr(transfers_module, "PATIENCE", 2 * SECOND)

    class Full(Owner):
        failures = 1

        async def install(self, index, pieces):  # type: ignore[no-untyped-def]
            if self.failures:
                self.failures -= 1
                raise DiskFullError("no space left on the disk")
            await super().install(index, pieces)

    owners = {name: Full() for name in ("n1", "n2", "n3")}
    async with owned(tmp_path, **owners) as group:
        away = await follower_is_left_behind(group)
        await group.start(away)
        await all_have_applied(group, wanted(0, 200))
        assert group.logs[away].has("A checkpoint is not installed: no space left on the disk")


async def test_of_a_checkpoint_only_so_much_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers_module, "WINDOW", 5000)
    owners = {name: Owner(in_piece=2) for name in ("n1", "n2", "n3")}
    async with owned(tmp_path, **owners) as group:
        host, owner = await install_is_in_the_middle(group)
        await append_all(group, wanted(200, 50))
        assert host._transfers is not None
        receiving = host._transfers._receiving
        assert receiving is not None
        await until(lambda: receiving._size > 2000, "pieces have come")
        assert receiving._size <= 5000
        owner.may_go_on.set()
        await all_have_applied(group, wanted(0, 250))


def size_of_files(directory: Path) -> int:
    size = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it goes meanwhile
            size += path.stat().st_size
    return size


async def test_files_and_memory_stay_bounded(tmp_path: Path) -> None:
    keep, segment, size, count = 1 << 20, 1 << 20, 100_000, 300
    owners = {name: Owner() for name in ("n1", "n2", "n3")}
    group = Group(tmp_path, owners=owners, keep_bytes=keep, segment_bytes=segment)
    largest_files = largest_log = 0
    async with group:
        leader = await group.leader()
        for number in range(0, count, 5):
            bodies = wanted(number, 5, size)
            await asyncio.gather(*(leader.append(body) for body in bodies))
            for name, host in group.hosts.items():
                await until(lambda h=host: h._member.log.size < 9 * keep, "it has trimmed")  # type: ignore[misc]
                largest_files = max(largest_files, size_of_files(group.path(name) / "log"))
                assert host._member is not None
                largest_log = max(largest_log, host._member.log.size)
        await all_have_applied(group, wanted(0, count, size))
        hosts = group.hosts.values()
        sizes = [host._member.log for host in hosts if host._member is not None]
        await until(lambda: all(log.size < 2 * keep for log in sizes), "all have trimmed")
    assert largest_files < 15 * keep < count * size
    assert largest_log < 10 * keep


async def test_what_is_gone_cannot_be_asked_for(tmp_path: Path) -> None:
    async with owned(tmp_path) as group:
        await append_all(group, wanted(0, 100))
        leader = await group.leader()
        await until(lambda: leader.base_index, "it has trimmed")
        with pytest.raises(TrimmedError, match="go on behind what was applied here"):
            await history(leader, 100)
        base = leader.base_index
        found = await history(leader, base + 2, after=base)
        assert [entry.index for entry in found] == [base + 1, base + 2]


async def test_without_checkpoints_nothing_is_trimmed(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        leader = await group.leader()
        with pytest.raises(ValueError, match="give checkpoints to its hosts"):
            leader.trim(1)


async def test_damage_in_what_was_applied_does_not_matter(tmp_path: Path) -> None:
    owners = {name: Owner(trims=False) for name in ("n1", "n2", "n3")}
    group = Group(tmp_path, owners=owners, keep_bytes=1 << 20)
    async with group:
        await append_all(group, wanted(0, 100))
        await all_have_applied(group, wanted(0, 100))
        leader = await group.leader()
        damaged = group.another(leader)
        copy = group.path(damaged) / "state.1"
        await until(
            lambda: decode_copy(copy.read_bytes()).state.committed > 100, "it has noted its end"
        )
        for name in group.names:
            await group.stop(name)
        (segment,) = (group.path(damaged) / "log").iterdir()
        data = bytearray(segment.read_bytes())
        at = data.index(wanted(50, 1)[0])
        data[at : at + 5000] = bytes(5000)
        segment.write_bytes(data)
        host = await group.start(damaged)
        assert host._member is not None
        assert host._member.log.damaged
        host.trim(len(owners[damaged].applied))
        await until(lambda: not host._member.log.damaged, "it counts no more")  # type: ignore[union-attr]
        assert owners[damaged].installs == 0
