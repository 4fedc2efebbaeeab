"""`slipstream.Group`: a group of servers in the threads of one process."""

import asyncio
import gc
import json
import queue
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import slipstream
import slipstream.sync
from slipstream.errors import ConfigError, DiskFullError, Error
from slipstream.group import DiskJob
from slipstream.server import Server
from slipstream.server.group import GroupHost
from slipstream.server.group.store import GroupStore
from slipstream.server.replica import group_server
from slipstream.server.replica.free_ports import free_ports, is_free
from slipstream.server.replica.relay import Relay
from slipstream.server.replica.replica import Replica
from slipstream.server.runtime import Runtime
from tests.server.group.waiting import until


def publish(url: str, body: bytes) -> int:
    with slipstream.sync.connect(url) as nc:
        return nc.jetstream().publish("s.a", body).sequence


def make_stream(url: str) -> None:
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=1)


def bodies(url: str) -> list[bytes]:
    with slipstream.sync.connect(url) as nc:
        stream = nc.jetstream().stream("S")
        count = stream.info().state.messages
        return [stream.get_message(sequence + 1).data for sequence in range(count)]


def publish_to_each_and_hand_over(group: slipstream.Group) -> str:
    """The server that led before another one does."""
    make_stream(group.urls[0])
    for number, url in enumerate(group.urls):
        assert publish(url, b"%d" % number) == number + 1
    before = group.leader
    group.hand_over()
    assert group.leader in {*group.names} - {before}
    return before


def test_what_is_published_through_each_url_is_there_after_a_hand_over() -> None:
    with slipstream.Group(3) as group:
        assert group.names == ["n1", "n2", "n3"]
        assert len(set(group.urls)) == 3
        before = publish_to_each_and_hand_over(group)
        for url in group.urls:
            assert bodies(url) == [b"0", b"1", b"2"]
        group.hand_over(before)
        assert group.leader == before
        assert publish(group.urls[2], b"3") == 4


def test_a_server_that_is_stopped_while_it_hands_over_does_so_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as by who has it step down before. The others need not find out that it is gone."""
    done: list[str] = []
    settle, close, hand_over = Runtime.settle, Runtime.close, Replica.hand_over

    async def stopped_meanwhile(runtime: Runtime) -> None:
        leader.thread.ask_to_stop()
        await settle(runtime)

    async def closed(runtime: Runtime) -> None:
        await close(runtime)
        done.append("the store is closed")

    async def handed_over(replica: Replica, successor: str, is_slow: bool) -> None:
        await hand_over(replica, successor, is_slow)
        done.append("another server leads")

    with slipstream.Group(3) as group:
        leader = next(one for one in group._members if one.name == group.leader)
        monkeypatch.setattr(Runtime, "settle", stopped_meanwhile)
        monkeypatch.setattr(Runtime, "close", closed)
        monkeypatch.setattr(Replica, "hand_over", handed_over)
        leader.thread.call(leader.server.hand_over)
        leader.thread.join()
        assert done == ["the store is closed", "another server leads"]


def test_a_leader_with_a_full_disk_takes_no_clients_any_more_when_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening: list[int] = []
    abandoned: list[Runtime] = []
    abandon = Runtime.abandon

    async def listen(relay: Relay) -> None:
        listening.append(relay.port)

    async def left_as_it_is(runtime: Runtime) -> None:
        await abandon(runtime)
        abandoned.append(runtime)

    with slipstream.Group(3) as group:
        leader = next(one for one in group._members if one.name == group.leader)
        monkeypatch.setattr(Replica, "is_full", True)
        monkeypatch.setattr(Relay, "listen", listen)
        monkeypatch.setattr(Runtime, "abandon", left_as_it_is)
        leader.thread.ask_to_stop()
        leader.thread.join()
        assert abandoned
    assert not listening


@pytest.fixture
def is_full(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, no server of a group has space for what is written to its log."""
    is_full = threading.Event()
    write = GroupStore.write

    def written_or_full(store: GroupStore, job: DiskJob) -> None:
        if is_full.is_set() and job.writes:
            store.is_full = True
            raise DiskFullError("no space")
        write(store, job)

    monkeypatch.setattr(GroupStore, "write", written_or_full)
    return is_full


def test_a_leader_does_not_wait_for_space_while_it_closes_the_store_to_stop(
    monkeypatch: pytest.MonkeyPatch, is_full: threading.Event
) -> None:
    """Its loop would stand still: it would be deaf to signals, and lead on."""
    settle = Runtime.settle

    async def full_meanwhile(runtime: Runtime) -> None:
        is_full.set()
        await settle(runtime)

    with slipstream.Group(3) as group:
        make_stream(group.urls[0])
        publish(group.urls[0], b"which is noted when the store is closed")
        monkeypatch.setattr(Runtime, "settle", full_meanwhile)
        monkeypatch.setattr(GroupHost.submit, "__defaults__", (0.5, 0))  # seconds, epoch
        leader = next(one for one in group._members if one.name == group.leader)
        leader.thread.ask_to_stop()
        leader.thread._thread.join(20)
        has_stopped = not leader.thread._thread.is_alive()
        is_full.clear()
    assert has_stopped


async def test_a_leader_does_not_stand_still_while_it_opens_the_store_without_space(
    monkeypatch: pytest.MonkeyPatch, is_full: threading.Event
) -> None:
    start_here = Server.start_here
    opening: list[asyncio.AbstractEventLoop] = []
    told: queue.Queue[str] = queue.Queue()

    async def full_meanwhile(server: Server) -> None:
        if not opening:
            is_full.set()
            opening.append(asyncio.get_running_loop())
        await start_here(server)

    with slipstream.Group(3) as group:
        monkeypatch.setattr(Server, "start_here", full_meanwhile)
        monkeypatch.setattr(GroupHost.submit, "__defaults__", (0.5, 0))  # seconds, epoch
        leader = next(one for one in group._members if one.name == group.leader)
        leader.thread.call(leader.server.hand_over)
        await until(lambda: bool(opening), "another one begins to lead")
        try:
            opening[0].call_soon_threadsafe(told.put, "this one listens")
            assert await asyncio.to_thread(told.get, timeout=20) == "this one listens"
        finally:
            is_full.clear()
        await until(lambda: bool(group.leader), "it leads once there is space")


def test_a_client_of_the_group_is_told_who_leads() -> None:
    with slipstream.Group(3, name="orders") as group:
        for url in group.urls:
            with slipstream.sync.connect(url) as nc:
                assert nc.server_info.server_name == group.leader
                assert nc.server_info.cluster == "orders"


def test_the_next_group_on_a_directory_has_its_streams(tmp_path: Path) -> None:
    with slipstream.Group(3, tmp_path) as group:
        make_stream(group.urls[0])
        publish(group.urls[1], b"kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n1", "n2", "n3"]
    with slipstream.Group(3, tmp_path) as group:
        assert bodies(group.urls[2]) == [b"kept"]


def test_after_the_stop_nobody_listens_and_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    group = slipstream.Group(3).start()
    urls = group.urls
    group.stop()
    group.stop()
    assert group.leader == ""
    assert group.urls == []
    for url in urls:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    assert not [
        thread.name
        for thread in set(threading.enumerate()) - before
        if thread.name in ("slipstream-n1", "slipstream-n2", "slipstream-n3")
    ]


def test_a_temporary_directory_goes_with_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with slipstream.Group(1):
        assert [path.name.startswith("slipstream-group-") for path in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []


def test_a_group_of_one_serves_and_has_nobody_to_hand_over_to() -> None:
    with slipstream.Group(1) as group:
        make_stream(group.urls[0])
        assert publish(group.urls[0], b"x") == 1
        with pytest.raises(Error, match="nobody to hand over to: make it with 2, 3 or 5"):
            group.hand_over()


def test_options_that_are_read_again_while_a_server_begins_to_lead_take_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with slipstream.Group(3) as group:
        start_here = Server.start_here

        async def start_and_reload(server: Server) -> None:
            await start_here(server)
            [owner] = [one.server for one in group._members if one.name == next_leader]
            limits = msgspec.structs.replace(owner.options.limits, max_payload=1000)
            owner.reload_here(msgspec.structs.replace(owner.options, limits=limits))

        monkeypatch.setattr(Server, "start_here", start_and_reload)
        next_leader = next(name for name in group.names if name != group.leader)
        group.hand_over(next_leader)
        with slipstream.sync.connect(group.urls[0]) as nc:
            assert nc.server_info.server_name == next_leader
            assert nc.server_info.max_payload == 1000


@pytest.fixture
def process_for_tests() -> Iterator[None]:
    """What a server does to a process that it has alone is undone."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("process_for_tests")
def test_the_engine_of_a_lead_that_has_ended_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a process where nobody else looks for cycles. One that leads again keeps no other one."""
    monkeypatch.setattr(group_server, "DROP_SECONDS", 0.3)
    with slipstream.Group(3) as group:
        first = group.leader
        [server] = [one.server for one in group._members if one.name == first]
        group.hand_over()
        server.have_process_alone()  # as at the start of a process, before it leads
        gc.disable()
        kept = gc.get_freeze_count()
        engines = []
        for _ in range(2):
            group.hand_over(first)
            assert server.runtime is not None
            engines.append(weakref.ref(server.runtime.engine))
            group.hand_over()
        end = time.monotonic() + 60
        while any(engine() is not None for engine in engines):
            assert time.monotonic() < end, "an engine is still there"
            time.sleep(0.01)
        assert gc.get_freeze_count() <= kept


def test_it_says_who_could_lead_when_somebody_unknown_is_named() -> None:
    with slipstream.Group(3) as group:
        others = ", ".join(name for name in group.names if name != group.leader)
        for name in ("n4", group.leader):
            with pytest.raises(Error, match=f"{name} is no other server .*choose from {others}"):
                group.hand_over(name)


@pytest.mark.parametrize("size", [-1, 0, 4, 7])
def test_a_size_that_no_group_has_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"{size} servers, and a group has 1, 2, 3 or 5"):
        slipstream.Group(size)


def test_two_servers_have_their_register_beside_their_stores(tmp_path: Path) -> None:
    with slipstream.Group(2, tmp_path) as group:
        publish_to_each_and_hand_over(group)
        assert (tmp_path / "register" / "group.json").exists()
    with slipstream.Group(2, tmp_path) as group:
        for url in group.urls:
            assert bodies(url) == [b"0", b"1"]


def leads_alone(group: slipstream.Group, name: str) -> bool:
    member = next(one for one in group._members if one.name == name)
    return member.server.leads and not member.server.successors


def stop_member(group: slipstream.Group, name: str) -> None:
    member = next(one for one in group._members if one.name == name)
    member.thread.ask_to_stop()
    member.thread.join()


def test_one_of_two_goes_on_alone_when_the_other_one_has_stopped(tmp_path: Path) -> None:
    with slipstream.Group(2, tmp_path) as group:
        make_stream(group.urls[0])
        assert publish(group.urls[0], b"0") == 1
        gone, stays = group.leader, next(one for one in group.names if one != group.leader)
        stop_member(group, gone)
        group._wait(lambda: leads_alone(group, stays), f"{stays} does not lead alone")
        assert publish(group.urls[group.names.index(stays)], b"1") == 2
    with slipstream.Group(2, tmp_path) as group:
        for url in group.urls:
            assert bodies(url) == [b"0", b"1"]


def test_one_of_two_that_goes_on_alone_does_not_close_its_store_to_hand_over(
    tmp_path: Path,
) -> None:
    with slipstream.Group(2, tmp_path) as group:
        make_stream(group.urls[0])
        gone, stays = group.leader, next(one for one in group.names if one != group.leader)
        stop_member(group, gone)
        group._wait(lambda: leads_alone(group, stays), f"{stays} does not lead alone")
        with slipstream.sync.connect(group.urls[group.names.index(stays)], reconnect=False) as nc:
            member = next(one for one in group._members if one.name == stays)
            for name in ("", gone):
                with pytest.raises(Error, match="goes on alone until the other one is back"):
                    member.thread.call(lambda name=name: member.server.hand_over(name))
            assert nc.jetstream().publish("s.a", b"over the same connection").sequence == 1


def test_a_group_that_has_begun_as_two_grows_to_three_and_keeps_its_register(
    tmp_path: Path,
) -> None:
    with slipstream.Group(2, tmp_path) as group:
        make_stream(group.urls[0])
        assert publish(group.urls[0], b"0") == 1
    with slipstream.Group(3, tmp_path) as group:
        assert bodies(group.urls[2]) == [b"0"]
        leader = next(one.server for one in group._members if one.server.leads)
        group._wait(lambda: len(leader.successors) == 2, "n3 has not joined")
        members = json.loads((tmp_path / "register" / "group.json").read_bytes())["members"]
        assert [name.split()[0] for name in sorted(members)] == ["n1", "n2", "n3"]


def test_a_group_with_a_register_of_its_own_does_not_become_one_of_two(tmp_path: Path) -> None:
    with slipstream.Group(1, tmp_path):
        pass
    with pytest.raises(ConfigError, match="has its register"):
        slipstream.Group(2, tmp_path).start()


def test_a_name_that_no_group_has_is_refused() -> None:
    with pytest.raises(ConfigError, match='name "a b" has a space'):
        slipstream.Group(3, name="a b").start()


def test_a_group_that_is_stopped_cannot_hand_over() -> None:
    with pytest.raises(Error, match="no leader that could hand over: start it"):
        slipstream.Group(3).hand_over()


def test_a_store_of_a_server_by_itself_is_refused(tmp_path: Path) -> None:
    with slipstream.Server(store_dir=str(tmp_path / "n2")):
        pass
    with pytest.raises(ConfigError, match="is the store of a server by itself"):
        slipstream.Group(3, tmp_path).start()


def test_free_ports_differ_and_nobody_listens_on_them() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])


def test_a_server_takes_clients_on_its_port_while_the_lead_moves() -> None:
    with slipstream.Group(3) as group, ThreadPoolExecutor() as threads:
        before = group.leader
        is_over = threading.Event()

        def come(port: int) -> list[bytes]:
            greetings = []
            while not is_over.is_set() or not greetings:
                with socket.create_connection(("127.0.0.1", port)) as client:
                    greetings.append(client.recv(5))
            return greetings

        ports = [int(url.rpartition(":")[2]) for url in group.urls]
        coming = [threads.submit(come, port) for port in ports]
        group.hand_over()
        group._wait(lambda: group.leader not in ("", before), "nobody else leads")
        is_over.set()
        assert {greeting for one in coming for greeting in one.result()} == {b"INFO "}


@pytest.mark.parametrize("advertised", ["127.0.0.1", "127.0.0.1:{port}", "", "[127.0.0.1]"])
def test_the_leader_is_found_where_it_says_that_clients_find_it(advertised: str) -> None:
    """Without a port, it is that of the server."""
    with slipstream.Group(1) as group:
        server = group._members[0].server
        port = server.options.port
        server.options.client_advertise = advertised.format(port=port)
        assert server._client_address() == f"127.0.0.1:{port}"


def test_servers_that_all_give_the_same_address_bring_no_clients_to_themselves() -> None:
    """Such as that of something in front of them: each connection would make another one."""
    with slipstream.Group(3) as group:
        for member in group._members:
            member.server.options.client_advertise = "127.0.0.1:9"
        before = group.leader
        leader = group._members[group.names.index(before)]
        leader.thread.call(leader.server.hand_over)

        def is_over() -> bool:
            return group.leader not in ("", before)

        group._wait(is_over, "nobody else leads")
        followers = [one.server for one in group._members if not one.server.leads]

        def know() -> bool:
            return all(
                one._replica is not None and one._replica.leader_url == "127.0.0.1:9"
                for one in followers
            )

        group._wait(know, "the followers do not know")
        group._wait(lambda: not any(one.leader_address for one in followers), "they are relayed")
