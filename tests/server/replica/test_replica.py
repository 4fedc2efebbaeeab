"""Replicas in one process: files that follow the leader's entries, or come as a whole."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from slipstream.errors import StorageError
from slipstream.log.disk import OsDisk
from slipstream.server.group import BusyError, GroupHost, GroupStore, LinkSettings
from slipstream.server.group.host import BODY_MAX
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions
from slipstream.server.replica import replica
from slipstream.server.replica.group_disk import GroupDisk, LostLeadError
from slipstream.server.replica.operations import (
    Kind,
    Operation,
    decode_operations,
    encode_operations,
)
from slipstream.server.replica.replica import Replica
from slipstream.server.replica.store_copy import Held, Snapshot
from slipstream.server.replica.store_directory import StoreDirectory
from tests.lasting_ports import lasting_port
from tests.server.group.hosts import LOCAL, Lines
from tests.server.group.waiting import until

NAMES = ("n1", "n2", "n3")
KEPT_BYTES = 256 * 1024
SEGMENT_BYTES = 128 * 1024


class Owned:
    """A replica, and what its owner is told."""

    def __init__(self, name: str, ports: dict[str, int], directory: Path) -> None:
        self.name = name
        self.path = directory / name
        self.lines = Lines()
        self.why = ""
        others = [(LOCAL, port) for other, port in ports.items() if other != name]

        def make_host() -> GroupHost:
            return GroupHost(
                name,
                "C",
                len(ports),
                GroupStore(OsDisk(), f"{self.path}/group", SEGMENT_BYTES),
                LinkSettings(host=LOCAL, port=ports[name], routes=others, secret=b"s", timeout=2.0),
                Logger(self.lines, LoggingOptions()),
                keep_bytes=KEPT_BYTES,
            )

        self.replica = Replica(
            make_host,
            lambda end: StoreDirectory(OsDisk(), f"{self.path}/store", end),
            self,
            Logger(self.lines, LoggingOptions()),
        )

    def changed(self) -> None:
        pass

    def failed_with(self, why: str) -> None:
        self.why = why

    @property
    def files(self) -> dict[str, bytes]:
        root = self.path / "store" / "files"
        return {
            str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
            for path in root.rglob("*")
            if path.is_file()
        }

    @property
    def log_bytes(self) -> int:
        """Of the group's log; its files come and go."""
        found = 0
        for path in (self.path / "group" / "log").iterdir():
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def disk(self) -> GroupDisk:
        """As the one that leads has it."""
        assert self.replica.directory is not None
        return GroupDisk(OsDisk(), self.replica.directory.root, self.replica.submit)


@asynccontextmanager
async def replicas(directory: Path) -> AsyncIterator[dict[str, Owned]]:
    ports = {name: lasting_port() for name in NAMES}
    owned = {name: Owned(name, ports, directory) for name in NAMES}
    await asyncio.gather(*(asyncio.to_thread(one.replica.start) for one in owned.values()))
    try:
        yield owned
    finally:
        await asyncio.gather(*(asyncio.to_thread(one.replica.stop) for one in owned.values()))


async def leader_of(owned: dict[str, Owned]) -> Owned:
    return await until(
        lambda: next((one for one in owned.values() if one.replica.leads), None), "one leads"
    )


def write_much(one: Owned, name: str, count: int) -> None:
    """Files of 16 KiB, each synced."""
    disk = one.disk()
    assert one.replica.directory is not None
    root = one.replica.directory.root
    for number in range(count):
        file = disk.open(f"{root}/{name}-{number % 20}")
        file.pwrite(number * 7, number.to_bytes(4, "little") * 4096)
        file.sync()
        file.close()


async def same_files(owned: dict[str, Owned]) -> None:
    await until(
        lambda: len({tuple(sorted(one.files.items())) for one in owned.values()}) == 1,
        "all have the same files",
    )


async def test_what_a_leader_has_synced_is_on_all_servers(tmp_path: Path) -> None:
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        await asyncio.to_thread(write_much, leader, "file", 50)
        await same_files(owned)
        assert len(leader.files) == 20
        assert all(one.why == "" for one in owned.values())


async def test_a_follower_that_was_away_for_long_gets_the_files_themselves(tmp_path: Path) -> None:
    """What it has missed is gone from the log of the others."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        await asyncio.to_thread(write_much, leader, "before", 10)
        away = next(one for one in owned.values() if one is not leader)
        await asyncio.to_thread(away.replica.stop)
        await asyncio.to_thread(write_much, leader, "meanwhile", 600)
        await until(lambda: leader.log_bytes < 600 * 16_384 // 2, "the log's beginning goes")
        ports = {name: one.replica.host.port for name, one in owned.items() if one is not away}
        ports[away.name] = away.replica.host.port
        back = Owned(away.name, {name: ports[name] for name in NAMES}, tmp_path)
        owned[away.name] = back
        await asyncio.to_thread(back.replica.start)
        await asyncio.to_thread(write_much, leader, "after", 30)
        await until(lambda: back.lines.has("The checkpoint up to"), "a checkpoint is installed")
        await same_files(owned)
        await until(lambda: back.replica.directory is not None, "the directory is there")
        assert all(one.why == "" for one in owned.values() if one is not away)


async def test_a_leader_that_is_alone_cannot_sync(tmp_path: Path) -> None:
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        disk = leader.disk()
        assert leader.replica.directory is not None
        root = leader.replica.directory.root
        file = await asyncio.to_thread(disk.open, f"{root}/file")
        for one in owned.values():
            if one is not leader:
                await asyncio.to_thread(one.replica.stop)
        file.append(b"nobody has this")
        try:
            await asyncio.to_thread(file.sync)
        except LostLeadError:
            pass
        else:
            raise AssertionError("a sync has succeeded without a majority")
        assert file.pread(0, 100) == b"nobody has this"
        assert (leader.path / "store" / "files" / "file").read_bytes() == b""
        await until(lambda: not leader.replica.leads, "it leads no more")


async def test_a_leader_whose_files_fail_leaves_the_lead_to_another_server(tmp_path: Path) -> None:
    """Who waits for an entry of it is told, and who asks later, too."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        disk, directory = leader.disk(), leader.replica.directory
        assert directory is not None
        file = await asyncio.to_thread(disk.open, f"{directory.root}/file")

        def fail(index: int, body: bytes) -> None:
            raise OSError(28, "No space left on device")

        directory.apply = fail  # type: ignore[method-assign]
        file.append(b"x")
        for attempt in (file.sync, lambda: leader.disk().makedirs(f"{directory.root}/d")):
            async with asyncio.timeout(30):
                with pytest.raises(LostLeadError):
                    await asyncio.to_thread(attempt)
        assert "cannot be written" in leader.why
        others = {name: one for name, one in owned.items() if one is not leader}
        new = await leader_of(others)
        await asyncio.to_thread(write_much, new, "file", 3)
        assert leader.replica.leads == 0


async def test_an_entry_of_an_epoch_that_is_over_is_not_appended(tmp_path: Path) -> None:
    """The server may lead again by then, behind entries of others that change what it would say."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        epoch = leader.replica.leads
        await leader.replica.hand_over()
        other = await leader_of({n: one for n, one in owned.items() if one is not leader})
        await other.replica.hand_over(leader.name)
        await until(lambda: leader.replica.leads > epoch, "it leads again")
        body = encode_operations([Operation(Kind.CREATE, "late")])
        with pytest.raises(LostLeadError):
            await asyncio.wrap_future(leader.replica.submit(body, epoch))
        await asyncio.wrap_future(leader.replica.submit(body, leader.replica.leads))


async def test_who_submits_what_no_log_takes_or_after_the_end_is_told(tmp_path: Path) -> None:
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        for _ in range(2):
            async with asyncio.timeout(30):
                with pytest.raises(LostLeadError):
                    await asyncio.wrap_future(leader.replica.submit(bytes(BODY_MAX + 1)))
            await asyncio.to_thread(leader.replica.stop)


async def test_a_leader_is_not_told_to_bring_clients_to_itself(tmp_path: Path) -> None:
    """Between two epochs it would: each connection would make another one to the same port."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        epoch = leader.replica.leads
        await asyncio.wrap_future(leader.replica.announce("here:4222", epoch))
        assert leader.replica.leader_url == ""
        others = [one.replica for one in owned.values() if one is not leader]
        await until(lambda: all(one.leader_url == "here:4222" for one in others), "others know")


def test_where_the_leader_is_and_its_token_are_of_one_server(tmp_path: Path) -> None:
    """The next one may begin to lead between two looks: without a token its clients would be
    brought to it as this server's own."""

    class Host:
        name = "n1"

        def __init__(self) -> None:
            self._leaders = ["n2", "n3"]

        @property
        def leader_name(self) -> str:
            return self._leaders.pop(0)

    replica = Owned("n1", {"n1": 0}, tmp_path).replica
    replica._host = cast(GroupHost, Host())
    replica.directory = StoreDirectory(OsDisk(), str(tmp_path), 0)
    for index, name in enumerate(("n2", "n3"), 1):
        leads = Operation(Kind.LEADS, name, name.encode(), other=f"token of {name}")
        replica.directory.apply(index, encode_operations([leads]))
    assert replica.leader_clients == ("n2", "token of n2")


async def test_a_server_without_its_files_gets_those_of_another_one(tmp_path: Path) -> None:
    """As the error about a damaged note of what is applied advises."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        without = next(one for one in owned.values() if one is not leader)
        await asyncio.to_thread(write_much, leader, "file", 600)
        first = without.path / "group" / "log" / f"{1:016x}"
        await until(lambda: not first.exists(), "its log's beginning goes, durably")
        ports = {name: owned[name].replica.host.port for name in NAMES}
        await asyncio.to_thread(without.replica.stop)
        (without.path / "store").rename(without.path / "damaged")
        back = owned[without.name] = Owned(without.name, ports, tmp_path)
        await asyncio.to_thread(back.replica.start)
        await asyncio.to_thread(write_much, leader, "after", 3)
        await until(lambda: back.lines.has("The checkpoint up to"), "a checkpoint is installed")
        await same_files(owned)
        assert back.why == ""


async def test_files_count_as_full_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "FULL_SECONDS", 0.01)
    asked: list[bool] = []
    async with replicas(tmp_path) as owned:
        one = await leader_of(owned)
        directory, host = one.replica.directory, one.replica.host
        assert directory is not None

        def has_space() -> bool:
            asked.append(host.are_files_full)
            return len(asked) > 3

        monkeypatch.setattr(directory, "has_space", has_space)
        one.replica.had_no_space()
        await until(lambda: len(asked) > 3 and not host.are_files_full, "there is space")
        assert asked == [True] * 4


async def test_no_entry_follows_one_of_its_epoch_that_was_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that came while the leader was about to hand over, which nothing came of: files
    would have what follows without what went before. Nor is it forgotten for one of another."""
    async with replicas(tmp_path) as owned:
        first = await leader_of(owned)
        await first.replica.hand_over()
        leader = await leader_of({n: other for n, other in owned.items() if other is not first})
        one, epoch = leader.replica, leader.replica.leads
        bodies = [encode_operations([Operation(Kind.CREATE, name)]) for name in ("a", "b", "c")]

        def refuse(*_: object, **__: object) -> None:
            monkeypatch.undo()
            raise BusyError("too much waits")

        monkeypatch.setattr(one.host, "submit", refuse)
        told = [(bodies[0], epoch), (bodies[0], epoch - 1), (bodies[1], epoch)]
        for future in [one.submit(body, its) for body, its in told]:
            with pytest.raises(LostLeadError):
                await asyncio.wrap_future(future)
        await asyncio.wrap_future(one.announce("here:4222", epoch))
        await asyncio.wrap_future(one.submit(bodies[2], epoch))
        assert sorted(leader.files) == ["c"]


async def test_files_that_may_be_ahead_are_sent_and_their_copy_says_so(tmp_path: Path) -> None:
    """Also by who does not lead: without the files nobody may be able to."""
    one = Owned("n1", {"n1": lasting_port()}, tmp_path)
    StoreDirectory(OsDisk(), f"{one.path}/store", 0)
    one.replica.directory = StoreDirectory(OsDisk(), f"{one.path}/store", 7)
    copy = await one.replica.open(b"")
    assert copy.index == 0
    found = [one async for piece in copy.pieces() for one in decode_operations(piece)]
    assert found == [Operation(Kind.AHEAD, "", offset=7)]
    await copy.close()


async def test_damaged_files_are_sent_by_who_leads_alone(tmp_path: Path) -> None:
    one = Owned("n1", {"n1": lasting_port()}, tmp_path)
    directory = one.replica.directory = StoreDirectory(OsDisk(), f"{one.path}/store", 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    copy = await one.replica.open(b"")
    one.replica.distrust()
    with pytest.raises(StorageError, match="are damaged"):  # also what is on its way
        async for _ in copy.pieces():
            pass
    await copy.close()
    with pytest.raises(StorageError, match="are damaged"):
        await one.replica.open(b"")
    one.replica._led = 1
    await (await one.replica.open(b"")).close()


async def test_a_copy_that_nobody_waits_for_any_more_leaves_no_names(tmp_path: Path) -> None:
    one = Owned("n1", {"n1": lasting_port()}, tmp_path)
    directory = one.replica.directory = StoreDirectory(OsDisk(), f"{one.path}/store", 0)
    directory.apply(1, encode_operations([Operation(Kind.CREATE, "a")]))
    snapshot, may_go_on, has_begun = directory.snapshot, threading.Event(), threading.Event()

    def slow(held: Held | None = None) -> Snapshot:
        has_begun.set()
        may_go_on.wait(10)
        return snapshot(held)

    directory.snapshot = slow  # type: ignore[method-assign]
    opening = asyncio.create_task(one.replica.open(b""))
    await until(has_begun.is_set, "it is being made")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_go_on.set()
    names = Path(one.path, "store", "checkpoint")
    await until(lambda: directory._snapshot_number == 1 and not list(names.iterdir()), "it is gone")


async def test_who_has_all_brings_one_that_was_away_back_also_before_it_leads(
    tmp_path: Path,
) -> None:
    """The third server is gone for good: the two are a majority. The one that has all has not
    applied the end of its log, of which nothing says yet that it is committed; the other one has to
    have its files before anything can be."""
    async with replicas(tmp_path) as owned:
        leader = await leader_of(owned)
        ports = {name: owned[name].replica.host.port for name in NAMES}
        away, lost = (one for one in owned.values() if one is not leader)
        await asyncio.to_thread(away.replica.stop)
        await asyncio.to_thread(write_much, leader, "meanwhile", 600)
        await until(lambda: leader.log_bytes < 600 * 16_384 // 2, "the log's beginning goes")
        await asyncio.to_thread(lost.replica.stop)
        late = leader.replica.submit(encode_operations([Operation(Kind.CREATE, "late")]))
        member = leader.replica.host._member
        assert member is not None
        await until(lambda: member.log.synced > member.committed, "it has that entry alone")
        await asyncio.to_thread(leader.replica.stop)
        with pytest.raises(LostLeadError):
            late.result()
        del owned[lost.name]
        for one in (leader, away):
            owned[one.name] = Owned(one.name, ports, tmp_path)
        await asyncio.gather(*(asyncio.to_thread(one.replica.start) for one in owned.values()))
        again = await leader_of(owned)
        assert again.name == leader.name
        await asyncio.to_thread(write_much, again, "after", 3)
        await same_files(owned)
        assert "late" in again.files
