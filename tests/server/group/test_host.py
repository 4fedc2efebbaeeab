"""Three hosts on loopback follow one leader, and keep what they have answered."""

import asyncio
import ssl
from pathlib import Path

import pytest

from slipstream.errors import ConfigError, DiskFullError
from slipstream.group import DiskJob, NotLeaderError
from slipstream.log.disk import OsDisk
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.config.cluster import CLUSTER
from slipstream.server.config.grammar import parse_text
from slipstream.server.config.kinds import Notes
from slipstream.server.group import (
    LinkContexts,
    OutcomeUnknownError,
    make_contexts,
    make_host,
)
from slipstream.server.group.store import decode_copy
from slipstream.server.logger import Logger
from slipstream.server.options import JetStreamOptions, LoggingOptions, ServerOptions, TlsOptions
from slipstream.server.tls import spki_sha256
from tests.fix_certificates import Authority
from tests.lasting_ports import lasting_port
from tests.server.group.hosts import Group, Lines, bodies, history
from tests.server.group.waiting import until


def pin_of(certificate: str) -> str:
    """How `pinned_certs` names a certificate."""
    return spki_sha256(ssl.PEM_cert_to_DER_cert(Path(certificate).read_text()))


def noted_end(copy: bytes) -> int:
    """How far the log was synced, as a copy of the state says."""
    return decode_copy(copy).state.synced


@pytest.fixture
def contexts(authority: Authority, server_files: tuple[str, str]) -> LinkContexts:
    certificate, key = server_files
    return make_contexts(TlsOptions(cert_file=certificate, key_file=key, ca_file=authority.ca_file))


@pytest.mark.parametrize("with_tls", [False, True])
async def test_what_is_appended_is_on_all_of_them_in_one_order(
    tmp_path: Path, contexts: LinkContexts, with_tls: bool
) -> None:
    async with Group(tmp_path, contexts if with_tls else None) as group:
        leader = await group.leader()
        wanted = [b"%d" % number for number in range(3000)]
        indices = await asyncio.gather(*(leader.append(body) for body in wanted))
        assert indices == sorted(indices)
        for host in group.hosts.values():
            assert bodies(await history(host, indices[-1])) == wanted
            assert host.leader_name == leader.name
            assert bool(host.epoch) == (host is leader)
        followers = [host for host in group.hosts.values() if host is not leader]
        with pytest.raises(NotLeaderError, match=f"ask {leader.name}"):
            await followers[0].append(b"1")
        warned = [lines.has("can be read on the way") for lines in group.logs.values()]
        assert warned == [not with_tls] * 3


async def test_another_one_leads_when_the_leader_goes_and_it_catches_up(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        first = (await group.leader()).name
        await group.stop(first)
        await group.append(b"2", but=first)
        host = await group.start(first)
        second = await group.leader()
        assert second.name != first
        await group.all_have(second.committed_index)
        assert bodies(await history(host, second.committed_index)) == [b"1", b"2"]


async def test_a_leader_hands_over(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        other = group.another(leader)
        leader.hand_over(other)
        assert (await group.leader(leader.name)).name == other
        await group.append(b"2")


async def test_a_leader_hands_over_to_whom_it_chooses_and_to_nobody_else(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        with pytest.raises(ValueError, match="n9 is no other member of the group: choose from"):
            leader.hand_over("n9")
        leader.hand_over()
        assert (await group.leader(leader.name)).name != leader.name
        await group.append(b"2")


async def test_a_mistake_of_the_program_takes_the_server_out_of_the_group(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        assert leader._member is not None

        def mistake(now: int) -> None:
            raise KeyError("planted")

        leader._member.tick = mistake  # type: ignore[method-assign]
        await until(lambda: leader.failed, "it takes no part")
        assert "KeyError('planted')" in leader.failed
        assert group.logs[leader.name].has("please report this")
        await group.append(b"2", but=leader.name)


async def test_readers_go_on_where_they_were(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1", b"2")
        leader = await group.leader()
        index = leader.committed_index
        reading = asyncio.create_task(history(leader, index + 1, after=index))
        await group.append(b"3")
        assert bodies(await reading) == [b"3"]


async def test_without_a_majority_nothing_is_answered(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        for name in group.names:
            if name != leader.name:
                await group.stop(name)
        with pytest.raises((OutcomeUnknownError, NotLeaderError)):
            await leader.append(b"2", timeout=0.5)
        await until(lambda: not leader.epoch, "it leads no more")
        with pytest.raises(NotLeaderError, match="no leader is known"):
            await leader.append(b"3")


async def test_all_of_them_come_back_after_all_have_stopped(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        for name in group.names:
            await group.stop(name)
        for name in group.names:
            await group.start(name)
        await group.append(b"2")
        leader = await group.leader()
        assert bodies(await history(leader, leader.committed_index)) == [b"1", b"2"]


@pytest.mark.parametrize("directions", [("there",), ("back",), ("there", "back")])
@pytest.mark.parametrize("is_dialling", [True, False])
async def test_a_leader_that_is_cut_off_in_one_direction_is_replaced(
    tmp_path: Path, directions: tuple[str, ...], is_dialling: bool
) -> None:
    """n1 dials the others, and n3 is dialled by them."""
    async with Group(tmp_path) as group:
        await group.append(b"1")
        wanted = "n1" if is_dialling else "n3"
        leader = await group.leader()
        if leader.name != wanted:
            leader.hand_over(wanted)
            leader = await group.leader(leader.name)
        await group.append(b"2")
        cut = [proxy for pair, proxy in group.proxies.items() if leader.name in pair]
        for proxy in cut:
            proxy.cut(*directions)
        await group.append(b"3", but=leader.name)
        await until(lambda: not leader.epoch, "who was cut off leads no more")
        for proxy in cut:
            proxy.heal()
        await until(lambda: len(leader.linked_names) == 2, "it is linked again")
        await group.append(b"4")
        index = (await group.leader()).committed_index
        for host in group.hosts.values():
            assert bodies(await history(host, index)) == [b"1", b"2", b"3", b"4"]


async def test_damaged_entries_come_from_the_others(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        wanted = [b"the body of entry %d " % number * 20 for number in range(300)]
        await group.append(*wanted)
        leader = await group.leader()
        damaged = group.another(leader)
        index = leader.committed_index
        await group.all_have(index)
        await group.stop(damaged)
        (segment,) = (group.path(damaged) / "log").iterdir()
        data = bytearray(segment.read_bytes())
        at = data.index(wanted[100])
        data[at : at + 40_000] = bytes(40_000)
        segment.write_bytes(data)
        host = await group.start(damaged)
        assert group.logs[damaged].has("entries of its log are missing")
        assert bodies(await history(host, index)) == wanted
        await group.append(b"more")
        await group.stop(damaged)
        host = await group.start(damaged)
        assert bodies(await history(host, index)) == wanted


async def test_a_log_that_has_lost_its_end_is_completed(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        wanted = [b"the body of entry %d " % number * 20 for number in range(100)]
        await group.append(*wanted)
        leader = await group.leader()
        short = group.another(leader)
        index = leader.committed_index
        await group.all_have(index)
        copy = group.path(short) / "state.1"
        await until(lambda: noted_end(copy.read_bytes()) == index, "it has noted its end")
        await group.stop(short)
        (segment,) = (group.path(short) / "log").iterdir()
        data = segment.read_bytes()
        segment.write_bytes(data[: data.index(wanted[50])])
        host = await group.start(short)
        assert group.logs[short].has("entries of its log are missing")
        assert host.log_end == index  # so far it may have applied them
        assert bodies(await history(host, index)) == wanted


async def test_without_its_state_a_server_takes_no_part(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        lost = group.another(leader)
        await group.stop(lost)
        for copy in ("state.0", "state.1"):
            (group.path(lost) / copy).write_bytes(b"nothing")
        host = await group.start(lost)
        assert "what this server has promised is not known" in host.failed
        await group.append(b"2")


async def test_a_store_is_of_one_server_and_one_group(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        await group.stop("n2")
        await group.stop("n3")
        group.path("n3").rename(tmp_path / "third")
        group.path("n2").rename(group.path("n3"))
        host = group.make("n3")
        with pytest.raises(ConfigError, match='of server "n2" in cluster "test", not of "n3"'):
            await host.start()
        await host.stop()


async def test_a_group_is_founded_once_all_of_its_servers_have_been_there(tmp_path: Path) -> None:
    group = Group(tmp_path)
    late = group.names.pop()
    async with group:
        hosts = list(group.hosts.values())
        await until(lambda: all(len(host.linked_names) == 1 for host in hosts), "two are linked")
        assert [host.members for host in hosts] == [(), ()]
        with pytest.raises(NotLeaderError, match="no leader is known"):
            await hosts[0].append(b"1")
        group.names.append(late)
        await group.start(late)
        await group.append(b"1")
        assert {host.members for host in group.hosts.values()} == {("n1", "n2", "n3")}


async def test_a_leader_whose_disk_fails_is_replaced(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()

        def fail(job: DiskJob) -> None:
            raise OSError(5, "Input/output error")

        leader._store.write = fail  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknownError, match="takes no part in the group any more"):
            await leader.append(b"2")
        assert "the disk has failed: [Errno 5]" in leader.failed
        with pytest.raises(NotLeaderError, match="takes no part in the group: the disk has failed"):
            await leader.append(b"3")
        await group.append(b"4", but=leader.name)
        await group.stop(leader.name)
        host = await group.start(leader.name)
        index = (await group.leader()).committed_index
        assert bodies(await history(host, index))[-1] == b"4"


async def test_where_the_others_have_no_space_the_leader_stays_and_entries_wait(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        await group.append(b"1")
        leader = await group.leader()
        epoch = leader.epoch
        others = [host for host in group.hosts.values() if host is not leader]
        writes = [host._store.write for host in others]

        def refuse(job: DiskJob) -> None:
            raise DiskFullError("no space left")

        for host in others:
            host._store.is_full = True
            host._store.write = refuse  # type: ignore[method-assign]
            host._store.look_for_space = lambda: None  # type: ignore[method-assign]
        await until(lambda: leader.is_full, "the leader knows of it")
        assert group.logs[leader.name].has("are full, or nearly, and the others are no majority")
        with pytest.raises(ValueError, match="are full, or nearly, and the others are no majority"):
            leader.hand_over()
        waiting = asyncio.create_task(leader.append(b"2", timeout=0.05))
        assert await asyncio.wait([waiting], timeout=0.5) == (set(), {waiting})
        assert leader.may_read()
        assert leader.epoch == epoch
        for host, write in zip(others, writes, strict=True):
            host._store.write = write  # type: ignore[method-assign]
            host._store.is_full = False
        assert await waiting == leader.committed_index
        await until(lambda: not leader.is_full, "the leader knows that there is space")
        assert group.logs[leader.name].has("A majority of the group's servers has space again")


async def test_who_does_not_wait_any_more_is_told_so_where_entries_wait_for_space(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        leader = await group.leader()

        def refuse(job: DiskJob) -> None:
            raise DiskFullError("no space left")

        leader._store.write = refuse  # type: ignore[method-assign]
        waiting = asyncio.create_task(leader.append(b"1"))
        await until(lambda: leader.waits_for_space, "there is no space")
        leader.give_up_waiting("nobody is there")
        with pytest.raises(OutcomeUnknownError, match="nobody is there"):
            await waiting


async def test_the_options_of_a_server_make_its_host(tmp_path: Path) -> None:
    log = Lines()
    port = lasting_port()
    text = f"name: c, listen: '127.0.0.1:{port}', authorization {{ user: r, password: s }}"
    cluster = ClusterOptions()
    CLUSTER.fill(parse_text(text, "test.conf", {}), cluster, Notes())
    server = ServerOptions(server_name="n1", jetstream=JetStreamOptions(enabled=True))
    path = str(tmp_path / "group")
    host = make_host(cluster, server, OsDisk(), path, Logger(log, LoggingOptions()))
    await host.start()
    assert host.port == port
    await until(lambda: host.epoch, "a group of one leads itself")
    index = await host.append(b"1")
    assert bodies(await history(host, index)) == [b"1"]
    await host.stop()


async def test_only_pinned_certificates_are_let_in(
    tmp_path: Path, authority: Authority, server_files: tuple[str, str]
) -> None:
    certificate, key = server_files
    options = TlsOptions(cert_file=certificate, key_file=key, ca_file=authority.ca_file)
    options.pinned_certs = [pin_of(certificate)]
    async with Group(tmp_path / "right", make_contexts(options)) as group:
        await group.append(b"1")
    options.pinned_certs = ["0" * 64]
    async with Group(tmp_path / "wrong", make_contexts(options)) as group:
        await until(lambda: group.logs["n2"].has("not one of pinned_certs"), "it is refused")
        assert not any(host.linked_names for host in group.hosts.values())
