"""Servers that join a group while it goes on, take a lost one's place, and leave."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from slipstream.group import Member, NotLeaderError
from slipstream.group.membership import Membership
from slipstream.server.group.handshake import Standing
from slipstream.server.group.joining import new_member_name, next_members, server_name_of
from tests.server.group.hosts import Group, bodies, history
from tests.server.group.owner import Owner
from tests.server.group.waiting import until

MEMBERS = ("n1", "n2 1a", "n3")


@pytest.mark.parametrize(
    ("waiting", "there", "size", "expected"),
    [
        ((), {"n1", "n3"}, 5, None),
        (("n4 2b",), {"n1", "n2 1a", "n3", "n4 2b"}, 5, (*MEMBERS, "n4 2b")),
        (("n4 2b",), {"n1", "n2 1a", "n3", "n4 2b"}, 3, None),
        (("n2 2b",), {"n1", "n3", "n2 2b"}, 3, ("n1", "n2 2b", "n3")),
        (("n2 2b",), {"n1", "n2 1a", "n3", "n2 2b"}, 5, None),
        (("n2 2b", "n4 3c"), {"n1", "n2 1a", "n3", "n4 3c", "n2 2b"}, 5, (*MEMBERS, "n4 3c")),
    ],
    ids=["nobody", "one more", "enough", "in place", "it is there", "one of two"],
)
def test_who_joins_next(
    waiting: tuple[str, ...], there: set[str], size: int, expected: tuple[str, ...] | None
) -> None:
    assert next_members(MEMBERS, waiting, there, size) == expected


def test_a_name_among_the_members_is_never_used_again() -> None:
    names = {new_member_name("n3") for _ in range(100)}
    assert len(names) == 100
    assert {server_name_of(name) for name in names} == {"n3"}


async def lose_a_follower(group: Group) -> str:
    """One whose disk is gone, and which is not started again."""
    lost = group.another(await group.leader())
    await group.stop(lost)
    group.lose(lost)
    return lost


async def test_a_server_whose_disk_is_lost_joins_anew(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1", b"2")
        for body in (b"3", b"4"):
            lost = await lose_a_follower(group)
            host = await group.start(lost)
            await group.settled("n1", "n2", "n3")
            await group.append(body)
            await group.settled("n1", "n2", "n3")
            assert host.name in host.members
            assert host.name != lost
            (group.directory / f"{lost} lost").rename(group.directory / f"{lost} {body!r}")
        for host in group.hosts.values():
            found = bodies(await history(host, host.committed_index))
            assert found == [b"1", b"2", b"3", b"4"]


async def test_it_is_relied_upon_afterwards_and_knows_itself_again(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        lost = await lose_a_follower(group)
        host = await group.start(lost)
        await group.settled("n1", "n2", "n3")
        member_name = host.name
        for name in group.names:
            await group.stop(name)
        other = next(name for name in group.names if name != lost)
        host = await group.start(lost)
        assert host.name == member_name
        await group.start(other)  # the two are a majority
        await group.append(b"2")
        end = (await group.leader()).committed_index
        assert bodies(await history(host, end)) == [b"1", b"2"]


async def test_the_lost_disk_is_of_no_account_when_it_comes_back(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        lost = await lose_a_follower(group)
        await group.start(lost)
        await group.settled("n1", "n2", "n3")
        await group.stop(lost)
        group.path(lost).rename(tmp_path / "new")
        (tmp_path / f"{lost} lost").rename(group.path(lost))
        host = await group.start(lost)
        await until(lambda: host.failed, "it hears that it was removed")
        assert "start it with an empty store directory" in host.failed
        await group.append(b"2")
        await group.stop(lost)
        group.path(lost).rename(tmp_path / "old")
        (tmp_path / "new").rename(group.path(lost))
        await group.start(lost)
        await group.settled("n1", "n2", "n3")


async def test_two_of_three_disks_that_are_lost_are_not_covered_up(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        lost = [name for name in group.names if name != leader.name]
        for name in lost:
            await group.stop(name)
            group.lose(name)
        for name in lost:
            await group.start(name)
        await until(lambda: all(group.logs[name].has("joins the group anew") for name in lost), "")
        await until(lambda: not leader.epoch, "the one that is left leads no more")
        with pytest.raises(NotLeaderError):
            await leader.append(b"2")
        assert leader.members == ("n1", "n2", "n3")


async def test_what_is_trimmed_reaches_a_newcomer_as_a_checkpoint(tmp_path: Path) -> None:
    owners = {f"n{number}": Owner() for number in (1, 2, 3)}
    async with Group(tmp_path, owners=owners, keep_bytes=1000) as group:
        await group.append(*(b"%d" % number for number in range(200)))
        lost = await lose_a_follower(group)
        await group.owners[lost].end()
        owner = group.owners[lost] = Owner()
        await group.append(*(b"%d" % number for number in range(200, 300)))
        await group.start(lost)
        await group.settled("n1", "n2", "n3")
        await group.append(b"300")
        expected = [b"%d" % number for number in range(301)]
        await until(lambda: [body for body in owner.applied if body] == expected, "it has all")


async def test_a_newcomer_that_fails_keeps_nobody_from_joining_or_leaving(tmp_path: Path) -> None:
    owners = {f"n{number}": Owner() for number in (1, 2, 3)}
    async with Group(tmp_path, owners=owners, keep_bytes=1000) as group:
        await group.append(*(b"%d" % number for number in range(200)))
        lost = await lose_a_follower(group)
        await group.owners[lost].end()
        owner = group.owners[lost] = Owner()
        owner.may_go_on.clear()
        await group.append(*(b"%d" % number for number in range(200, 300)))
        newcomer = await group.start(lost)
        await until(lambda: owner.installs, "it is sent a checkpoint")
        leader = await group.leader()
        assert leader.is_changing
        newcomer.fail("its disk cannot be written")
        await until(lambda: not leader.is_changing, "the leader does not wait for it")
        leader.remove(lost)
        await until(lambda: len(leader.members) == 2, "the lost one leaves")
        owner.may_go_on.set()


async def test_a_group_grows_from_one_to_three_and_shrinks_again(tmp_path: Path) -> None:
    async with Group(tmp_path, size=1) as group:
        await group.append(b"1")
        await group.stop("n1")
        for name in ("n2", "n3"):
            await group.add(name)
        for name in group.names:  # each with the new configuration
            await group.start(name)
        await group.settled(*await order(group))
        await group.append(b"2")
        for size in (3, 2):
            leader = await group.leader()
            await until(lambda host=leader: not host.is_changing, "the last one has joined")
            gone = next(name for name in group.hosts if name != server_name_of(leader.name))
            leader.remove(gone)
            await until(lambda host=leader, size=size: len(host.members) < size, f"{gone} leaves")
            await until(lambda name=gone: group.hosts[name].failed, f"{gone} knows")
            await group.append(b"%d" % (6 - size))
            await group.stop(gone)
        (host,) = group.hosts.values()
        assert len(host.members) == 1
        assert bodies(await history(host, host.committed_index)) == [b"1", b"2", b"3", b"4"]


async def order(group: Group) -> tuple[str, ...]:
    """The members, once there are as many as the configuration names."""
    leader = await group.leader()
    await until(lambda: len(leader.members) == len(group.names), f"{group.names} join")
    return tuple(server_name_of(one) for one in leader.members)


async def test_a_server_leaves_only_if_a_majority_is_left(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        others = [name for name in group.names if name != leader.name]
        with pytest.raises(ValueError, match="n9 is not in the group of n1, n2, n3"):
            leader.remove("n9")
        with pytest.raises(ValueError, match="have it hand over before it leaves"):
            leader.remove(leader.name)
        await group.stop(others[0])
        await until(lambda: others[0] not in leader.linked_names, "it has gone")
        with pytest.raises(ValueError, match="which is no majority"):
            leader.remove(others[1])
        leader.remove(others[0])
        await until(lambda: len(leader.members) == 2, "the one that is not there has left")
        await group.append(b"2")


async def test_a_leader_that_hands_over_takes_in_nobody_and_goes_on(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        lost, successor = (name for name in group.names if name != leader.name)
        await group.stop(lost)
        group.lose(lost)
        proxies = [proxy for pair, proxy in group.proxies.items() if successor in pair]
        for proxy in proxies:
            proxy.cut("there", "back")
        unknown = asyncio.ensure_future(leader.append(b"2"))  # which the successor does not get
        for _ in range(2):  # its task begins, and then its turn
            await asyncio.sleep(0)
        leader.hand_over(successor)
        await group.start(lost)
        await until(lambda: group.logs[lost].has("joins the group anew"), "it waits to join")
        await until(lambda: not leader.epoch, "nothing has come of it")
        for proxy in proxies:
            proxy.heal()
        await group.settled("n1", "n2", "n3")
        assert not leader.failed
        await asyncio.gather(unknown, return_exceptions=True)


async def test_who_joins_is_not_kept_from_it_by_another_one_that_does(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        lost = await lose_a_follower(group)
        host = group.make(lost)
        other = next(iter(group.hosts.values())).greeting(b"")
        joining = msgspec.structs.replace(
            other, name="n4 3c", standing=Standing.JOINING, members=()
        )
        host.linked(joining)
        host.linked(other)
        await until(lambda: host.name != lost, "it joins, too")
        await host.stop()


async def test_who_is_about_to_be_replaced_counts_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is back: a majority of the members before may need it."""
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        other = group.hosts[group.another(leader)]
        kept = tuple(name for name in leader.members if name != other.name)
        before, after = Membership(leader.members), (*kept, f"{other.name} 2b")
        with monkeypatch.context() as patch:
            joint = before.begin_change(after)
            patch.setattr(Member, "membership", property(lambda _: joint))
            greeting = leader.greeting(b"")
        assert other.may_link(greeting) == ""
        with monkeypatch.context() as patch:
            patch.setattr(Member, "membership", property(lambda _: joint.end_change()))
            greeting = leader.greeting(b"")
        assert "is gone, or a new one's" in other.may_link(greeting)
