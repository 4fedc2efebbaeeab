"""Servers that follow: what they answer over HTTP, and how the leader sees their clients."""

import asyncio
import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import slipstream
from slipstream.server.monitoring.metrics.metric_list import SECTIONS
from tests.server.group.waiting import until
from tests.server.replica.serving import LOCAL, Served, ServedGroup
from tests.server.replica.test_group_of_servers import make_stream

CLIENT = "127.0.0.7"
PATHS = ["/", "/varz", "/connz", "/routez", "/jsz", "/healthz", "/metrics", "/expvarz", "/gatewayz"]
FOLLOWER_METRICS = {
    metric.name
    for section in SECTIONS
    if section.title == "Followers"
    for metric in section.metrics
}
LEADER_ALONE = [
    "/console/",
    "/accountz",
    "/accstatz",
    "/subsz",
    "/leafz",
    "/jsz?streams=true",
    "/jsz?acc=$G",
]


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ServedGroup]:
    async with ServedGroup(tmp_path, 3, "-m", "-1", "-D", "--console") as group:
        yield group


def monitoring(server: Served) -> str:
    """Where its endpoints are, since it started."""
    found = re.findall(r"Starting http monitor on (\S+)", server.log)
    return f"http://{found[-1]}"


async def get(server: Served, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(monitoring(server) + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


class Client(msgspec.Struct):
    ip: str
    port: int


class Replica(msgspec.Struct):
    name: str
    current: bool


class MetaCluster(msgspec.Struct):
    leader: str
    replicas: list[Replica]


class Shown(msgspec.Struct):
    """What the tests look at of several endpoints."""

    server_id: str
    server_name: str = ""
    num_routes: int = 0
    connections: list[Client] | int = 0
    meta_cluster: MetaCluster | None = None
    http_req_stats: dict[str, int] = {}
    leader: str = ""


async def shown(server: Served, path: str) -> Shown:
    status, body = await get(server, path)
    assert status == 200
    return msgspec.json.decode(body, type=Shown)


async def metrics(server: Served) -> dict[str, float]:
    _, body = await get(server, "/metrics")
    families = text_string_to_metric_families(body)
    return {one.name: one.value for family in families for one in family.samples}


async def health(server: Served, wanted: int = 200) -> str:
    """What it says of its health, once it has this status."""
    while True:
        status, body = await get(server, "/healthz")
        if status == wanted:
            return body
        await asyncio.sleep(0.02)


async def both_see_a_client_at_its_own_address(leader: Served, follower: Served) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, follower.port, local_addr=(CLIENT, 0))
    info = json.loads((await reader.readuntil(b"\r\n")).removeprefix(b"INFO "))
    assert (info["client_ip"], info["server_name"]) == (CLIENT, leader.name)
    writer.write(b'CONNECT {"verbose":false,"name":"relayed"}\r\nPING\r\n')
    await reader.readuntil(b"PONG\r\n")
    address = (CLIENT, writer.get_extra_info("sockname")[1])
    for server in (leader, follower):
        found = await shown(server, "/connz?sort=start")
        assert isinstance(found.connections, list)
        assert address in [(one.ip, one.port) for one in found.connections]
    assert f'{CLIENT}:{address[1]} - cid:{info["client_id"]} - "relayed"' not in follower.log
    writer.close()
    await until(
        lambda: f'{CLIENT}:{address[1]} - cid:{info["client_id"]} - "relayed"' in leader.log,
        "the leader's log says that it has gone",
    )


async def test_all_servers_answer_and_see_clients_whoever_leads(group: ServedGroup) -> None:
    leader = await group.leader()
    follower, other = group.others(leader)
    await both_see_a_client_at_its_own_address(leader, other)
    for server in group.servers:
        await health(server)
        for path in PATHS:
            assert (path, (await get(server, path))[0]) == (path, 200)
        is_leader = server is leader
        assert (await metrics(server)).keys() >= FOLLOWER_METRICS or is_leader
        assert (await metrics(server))["slipstream_group_is_leader"] == is_leader
        meta = (await shown(server, "/jsz")).meta_cluster
        assert meta is not None
        assert meta.leader == leader.name
        assert server.name not in [one.name for one in meta.replicas]
        assert all(one.current for one in meta.replicas if is_leader or one.name == leader.name)
        assert (await shown(server, "/varz")).server_name == server.name
        assert (await shown(server, "/routez")).num_routes == 2
        for path in LEADER_ALONE:
            status, body = await get(server, path)
            assert (path, status) == (path, 200 if is_leader else 503)
            assert is_leader or json.loads(body)["leader"] == leader.name
    ports = {server: monitoring(server) for server in group.servers}
    ids = {server: (await shown(server, "/varz")).server_id for server in group.servers}
    async with group.client() as nc:
        await make_stream(nc)
        preferred = json.dumps({"placement": {"preferred": follower.name}}).encode()
        await nc.request("$JS.API.STREAM.LEADER.STEPDOWN.S", preferred)
    assert await group.leader(after=leader) is follower
    for server in group.servers:
        await health(server)
        assert (await metrics(server))["slipstream_group_is_leader"] == (server is follower)
        found = await shown(server, "/varz")
        assert (await get(server, "/console/"))[0] == (200 if server is follower else 503)
        assert (found.server_id, monitoring(server)) == (ids[server], ports[server])
        assert found.http_req_stats["/jsz"] >= 1  # from before
    await both_see_a_client_at_its_own_address(follower, leader)
    await follower.end()
    await leader.end()
    assert "JetStream: " in await health(other, 503)
    assert (await metrics(other))["slipstream_healthy"] == 0


async def is_told(server: Served, wanted: list[Served]) -> None:
    """Returns once who comes to a server is told that it may connect to these."""
    while True:
        async with slipstream.connect(server.url) as nc:
            if {f"nats://{url}" for url in nc.server_info.connect_urls} == {
                one.url for one in wanted
            }:
                return
        await asyncio.sleep(0.1)


async def test_a_client_that_knows_one_server_is_told_of_all_that_are_there(
    group: ServedGroup,
) -> None:
    """So that it goes on without this one, which may be the first that ever led."""
    leader = await group.leader()
    left = group.others(leader)
    async with slipstream.connect(leader.url, reconnect_wait=0.05) as nc:
        await is_told(leader, group.servers)
        await until(lambda: len(nc.discovered_servers) == 2, "it is told of the others")
        await leader.end()
        await until(lambda: nc.stats.reconnects > 0, "it goes on with another one")
    await is_told(left[0], left)


async def test_clients_of_a_follower_that_is_gone_are_given_up(group: ServedGroup) -> None:
    """It may have lost its power, and queue groups would go on sending them their share."""
    leader = await group.leader()
    follower, other = group.others(leader)
    async with slipstream.connect(other.url) as nc, slipstream.connect(follower.url) as lost:
        await lost.subscribe("asked", queue="q")
        subscription = await nc.subscribe("asked", queue="q")
        await lost.flush()
        await nc.flush()
        follower.send(signal.SIGSTOP)
        await until(lambda: f"clients that came by {follower.name}" in leader.log, "they end")
        messages = aiter(subscription)
        for number in range(20):
            await nc.publish("asked", b"%d" % number)
            assert (await anext(messages)).data == b"%d" % number
        follower.send(signal.SIGCONT)
        assert f"came by {other.name}" not in leader.log


USERS = """
accounts {
  SYS { users: [ { user: admin, password: p } ] }
  A { jetstream: enabled, users: [ { user: a, password: a } ] }
}
system_account: SYS, no_auth_user: a
"""


async def test_servers_read_their_configuration_again_whoever_leads(tmp_path: Path) -> None:
    path = tmp_path / "more.conf"
    path.write_text(USERS)
    async with ServedGroup(tmp_path, 3, "-c", str(path)) as group:
        leader = await group.leader()
        follower = group.others(leader)[0]
        path.write_text(USERS + "debug: true, max_payload: 1000\n")
        for server in group.servers:
            server.send(signal.SIGHUP)
        for server in group.servers:
            await until(lambda one=server: "Reloaded server conf" in one.log, "it is read again")  # type: ignore[misc]
            assert "Reloaded: debug = true" in server.log
            later = "Takes effect when this server leads: limits.max_payload"
            assert (later in server.log) == (server is not leader)
        async with slipstream.connect(follower.url) as nc:
            assert nc.server_info.max_payload == 1000
        await leader.end(signal.SIGTERM)
        leader = await group.leader()
        async with slipstream.connect(leader.url) as nc:
            assert nc.server_info.max_payload == 1000
        path.write_text(USERS + "debug: true, max_payload: 2000\n")
        async with slipstream.connect(leader.url, user="admin", password="p") as nc:
            await nc.request(f"$SYS.REQ.SERVER.{nc.server_info.server_id}.RELOAD")
        async with slipstream.connect(leader.url) as nc:
            assert nc.server_info.max_payload == 2000
        path.write_text("http_base_path: /elsewhere\n")
        follower.send(signal.SIGHUP)
        await until(lambda: "Failed to reload" in follower.log, "it is refused")
