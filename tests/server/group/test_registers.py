"""Hosts whose register lies outside of the group, in a store in memory that may be away."""

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from slipstream.errors import ConfigError, Error
from slipstream.registers import ObjectRegister
from tests.server.group.hosts import Group, bodies, history
from tests.server.group.waiting import until


class Away(ObjectRegister):
    """A register that its servers cannot reach for a while."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, "C.json", "memory://C.json")
        self.is_away = False
        self.asked = 0

    async def get(self) -> tuple[bytes, str]:
        self._go()
        return await super().get()

    async def put(self, data: bytes, version: str) -> bool:
        self._go()
        return await super().put(data, version)

    def _go(self) -> None:
        self.asked += 1
        if self.is_away:
            raise Error("the road is closed")


@pytest.fixture
def register() -> Away:
    return Away(MemoryStore())


def outside(tmp_path: Path, register: Away, size: int) -> Group:
    return Group(tmp_path, size=size, make_register=lambda name: register)


async def test_three_servers_find_leaders_by_it_and_go_on_while_it_is_away(
    tmp_path: Path, register: Away
) -> None:
    async with outside(tmp_path, register, 3) as group:
        first = await group.leader()
        await first.append(b"1")
        register.is_away = True
        for number in range(20):
            await first.append(b"%d" % number)
        asked = register.asked
        await group.stop(first.name)
        await until(lambda: register.asked > asked, "somebody wants to lead")
        await until(
            lambda: any(log.has("is of no use just now") for log in group.logs.values()),
            "it is said",
        )
        assert not any(host.epoch for host in group.hosts.values())
        register.is_away = False
        second = await group.leader()
        await second.append(b"last")
        assert bodies(await history(second, second.committed_index))[-1] == b"last"
        log = group.logs[second.name]  # another one may not have asked again
        assert log.has("is of no use just now") == log.has("is of use again")


async def test_one_of_two_goes_on_alone_and_takes_the_other_one_back(
    tmp_path: Path, register: Away
) -> None:
    async with outside(tmp_path, register, 2) as group:
        first = await group.leader()
        name, other = first.name, group.another(first)
        await first.append(b"1")
        await group.stop(other)
        assert await first.append(b"2", timeout=60)
        assert group.hosts[name].epoch == first.epoch  # it has led all the time
        assert group.logs[name].has(f"{name} goes on alone")
        await group.start(other)
        await until(lambda: len(first.in_sync) == 2 and not first.is_changing, f"{other} is back")
        await first.append(b"3")
        await group.stop(name)
        second = await group.leader()
        assert second.name == other
        await second.append(b"4", timeout=60)
        assert bodies(await history(second, second.committed_index)) == [b"1", b"2", b"3", b"4"]


async def test_who_is_away_does_not_lead(tmp_path: Path, register: Away) -> None:
    async with outside(tmp_path, register, 2) as group:
        first = await group.leader()
        name, other = first.name, group.another(first)
        await group.stop(other)
        await first.append(b"only here", timeout=60)
        await group.stop(name)
        late = await group.start(other)
        asked = register.asked
        await until(lambda: register.asked > asked, "it asks whether it may lead")
        assert not late.epoch
        again = await group.start(name)
        await until(lambda: again.epoch, "the one that has everything leads")
        await until(lambda: late.committed_index >= 2, "the other one has it, too")
        assert b"only here" in bodies(await history(late, late.committed_index))


async def test_two_that_are_cut_off_from_each_other_are_not_both_led(
    tmp_path: Path, register: Away
) -> None:
    async with outside(tmp_path, register, 2) as group:
        await group.leader()
        for proxy in group.proxies.values():
            proxy.cut("there", "back")
        alone = await until(
            lambda: next((h for h in group.hosts.values() if len(h.in_sync) == 1), None),
            "one goes on alone",
        )
        await until(lambda: alone.epoch, "it leads")
        await alone.append(b"1", timeout=60)
        other = group.hosts[group.another(alone)]
        assert not other.may_read()
        for proxy in group.proxies.values():
            proxy.heal()
        await until(lambda: len(alone.in_sync) == 2, "the other one is back")
        assert bodies(await history(other, 2))[-1:] == [b"1"]


async def test_servers_with_another_register_are_not_linked(tmp_path: Path, register: Away) -> None:
    async with Group(
        tmp_path, make_register=lambda name: register if name != "n3" else None
    ) as group:
        await until(lambda: group.logs["n3"].has("its register is memory://C.json"), "n3 says why")
        assert "n3" not in group.hosts["n1"].linked_names


async def test_a_store_of_a_group_with_another_kind_of_register_is_refused(
    tmp_path: Path, register: Away
) -> None:
    async with outside(tmp_path, register, 1) as group:
        await group.append(b"1")
        await group.stop("n1")
        group.make_register = lambda name: None
        with pytest.raises(ConfigError, match="has its register outside of it"):
            await group.start("n1")


async def test_a_server_of_two_whose_disk_was_lost_joins_anew(
    tmp_path: Path, register: Away
) -> None:
    async with outside(tmp_path, register, 2) as group:
        first = await group.leader()
        other = group.another(first)
        await first.append(b"1")
        await group.stop(other)
        group.lose(other)
        late = await group.start(other)
        await until(lambda: late.name in first.in_sync, "it is a member under a new name")
        assert len(first.members) == 2
        await first.append(b"2")
        assert bodies(await history(late, first.committed_index)) == [b"1", b"2"]
