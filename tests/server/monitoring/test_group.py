"""The endpoints of a server that leads a group (docs/group.md#what-clients-see)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

import slipstream
from slipstream import Server
from slipstream.engine.protocol.group import Member
from slipstream.model.durations import SECOND
from tests.fix_group import FakeGroup
from tests.server.monitoring.http_client import Answer, get

AWAY = Member("n1", is_current=False, is_offline=True, active=12 * SECOND, lag=9)
BEHIND = Member("n2", is_current=False, lag=3)


@pytest.fixture
def group() -> FakeGroup:
    return FakeGroup()


@pytest_asyncio.fixture
async def server(group: FakeGroup) -> AsyncIterator[Server]:
    """A server that leads `group`."""
    server = Server(monitoring_port=0, server_name="n0")
    server.group = group
    async with server:
        yield server


async def ask(server: Server, path: str) -> Answer:
    return await asyncio.to_thread(get, server.monitoring_url, path)


async def test_followers_that_lag_are_no_problem(server: Server, group: FakeGroup) -> None:
    group.followers = [AWAY, BEHIND]
    for query in ("", "?js-meta-only=1", "?js-enabled-only=1"):
        assert (await ask(server, "/healthz" + query)).json == {"status": "ok"}


async def test_a_group_without_a_majority_is_unavailable(server: Server, group: FakeGroup) -> None:
    group.followers = [AWAY, Member("n2", is_offline=True, active=61 * SECOND)]
    for query in ("", "?js-meta-only=1", "?account=$G"):
        found = await ask(server, "/healthz" + query)
        assert found.status == 503
        assert found.json["error"] == (
            "JetStream has no majority of the group C: nothing was heard of n1 for 12s, n2 for 1m1s"
        )
    assert (await ask(server, "/healthz?js-server-only=1")).status == 200


async def test_one_of_two_that_goes_on_alone_is_well(server: Server, group: FakeGroup) -> None:
    group.followers = [msgspec.structs.replace(AWAY, is_needed=False)]
    assert (await ask(server, "/healthz")).json == {"status": "ok"}
    meta = (await ask(server, "/jsz")).json["meta_cluster"]
    assert (meta["cluster_size"], meta["quorum_needed"]) == (2, 1)
    group.followers = [AWAY]
    assert (await ask(server, "/healthz")).status == 503


async def test_a_server_that_is_away_has_no_route(server: Server, group: FakeGroup) -> None:
    group.followers = [AWAY, Member("n2", active=3 * SECOND, address="[::1]:6222")]
    (route,) = (await ask(server, "/routez")).json["routes"]
    assert route["remote_name"] == "n2"
    assert (route["ip"], route["port"], route["idle"]) == ("::1", 6222, "3s")
    varz = (await ask(server, "/varz")).json
    assert (varz["routes"], varz["remotes"]) == (1, 1)
    assert varz["cluster"] == {"name": "C", "urls": ["[::1]:6222"]}


async def test_the_leader_says_who_follows(server: Server, group: FakeGroup) -> None:
    group.followers = [AWAY, BEHIND]
    meta = (await ask(server, "/jsz")).json["meta_cluster"]
    assert (meta["name"], meta["leader"], meta["peer"]) == ("C", "n0", "6DVFpukC")
    assert [one["name"] for one in meta["replicas"]] == ["n1", "n2"]
    assert meta["replicas"][0]["offline"] is True
    assert [one["lag"] for one in meta["replicas"]] == [9, 3]


async def test_details_name_the_servers_of_each_stream(server: Server) -> None:
    async with await slipstream.connect(server.url) as nc:
        stream = await nc.jetstream().create_stream(name="S", subjects=["s"])
        await stream.create_consumer(durable_name="C")
    found = (await ask(server, "/jsz?consumers=1&raft=1")).json
    assert (found["streams_leader"], found["consumers_leader"]) == (1, 1)
    (detail,) = found["account_details"][0]["stream_detail"]
    for one in (detail, detail["consumer_detail"][0]):
        assert one["cluster"]["name"] == "C"
        assert [replica["name"] for replica in one["cluster"]["replicas"]] == ["n1", "n2"]


async def test_metrics_tell_of_each_member(server: Server, group: FakeGroup) -> None:
    group.followers = [AWAY, BEHIND, Member("n3"), Member("n4")]
    text = (await ask(server, "/metrics")).body.decode()
    found = {
        f"{sample.name} {sample.labels.get('member', '')}".rstrip(): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("slipstream_group_")
    }
    wanted = {
        "slipstream_group_members": 5,
        "slipstream_group_online_members": 4,
        "slipstream_group_current_members": 3,
        "slipstream_group_is_leader": 1,
        "slipstream_group_member_lag_entries n1": 9,
        "slipstream_group_member_lag_entries n2": 3,
        "slipstream_group_member_idle_seconds n1": 12,
    }
    assert found.items() >= wanted.items()
    assert 'cluster="C",domain="",meta_leader="n0",is_meta_leader="true"' in text


async def test_clients_learn_of_new_servers_while_they_are_connected(
    server: Server, group: FakeGroup
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"protocol": 1, "verbose": false}\r\nPING\r\n')
    infos: list[Any] = []
    while len(infos) < 2:  # at once, and after the first PING
        infos += await _info(reader)
    group.client_urls = ["n0:1", "n3:1"]
    runtime = server.runtime
    assert runtime is not None
    runtime.turn(runtime.engine.group_changed)
    while len(infos) < 3:
        infos += await _info(reader)
    writer.close()
    assert infos[0]["connect_urls"] == ["n0:4222", "n1:4222", "n2:4222"]
    assert infos[2]["connect_urls"] == ["n0:1", "n3:1"]
    assert (await ask(server, "/varz")).json["connect_urls"] == ["n0:1", "n3:1"]


async def _info(reader: asyncio.StreamReader) -> list[Any]:
    line = await reader.readline()
    return [json.loads(line[5:])] if line.startswith(b"INFO ") else []


async def test_a_step_down_is_answered_before_the_leader_goes(
    server: Server, group: FakeGroup
) -> None:
    async with await slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"], num_replicas=3)
        answer = await js.api.request(
            "STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": "n2"}}
        )
    assert answer["success"] is True
    assert group.asked == ["n2"]
