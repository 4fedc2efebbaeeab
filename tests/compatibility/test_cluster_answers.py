"""A server that leads a group answers as three nats-servers that are one cluster.

What differs on purpose is in docs/group.md#what-clients-see: a stream is on all servers, whatever
`num_replicas` says, and one server leads everything.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.js.api
import nats.js.errors
import pytest
import pytest_asyncio

import slipstream
from slipstream import Server
from slipstream.client import Connection
from slipstream.engine.protocol.group import Member
from slipstream.server.config import load_text
from tests.compatibility.compare import differences, normalise
from tests.fix_group import FakeGroup, facts_of
from tests.fix_nats_cluster import ACCOUNTS, nats_cluster
from tests.server.monitoring.http_client import fields, get, shape

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("cluster of nats-servers"),
]

API = "$JS.API."
LOOKS_MAX = 300
# Of the raft groups that nats-server has, and of what only it counts.
OF_RAFT = {"raft_group", "system_account", "traffic_account", "snapshot"}
CONFIG = """
host: 127.0.0.1
port: -1
http_port: -1
server_name: n0
server_tags: ["az:0"]
jetstream: enabled
"""


@dataclass(slots=True)
class Side:
    """One of the two: a client of each account, and where monitoring is."""

    user: Connection
    boss: Connection
    monitor: str

    async def ask(self, subject: str, body: Any = b"", timeout: float = 10) -> Any:
        """A request's answer; calls for the system account are made by its user."""
        asker = self.boss if subject.startswith(("META.", "SERVER.", "$SYS")) else self.user
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = subject if subject.startswith("$SYS") else API + subject
        return json.loads((await asker.request(subject, data, timeout=timeout)).data)

    async def ask_until(self, subject: str, body: Any, is_enough: Callable[[Any], bool]) -> Any:
        """Ask until the answer is enough: somebody leads, or has all copies."""
        for _ in range(LOOKS_MAX):
            try:
                answer = await self.ask(subject, body, timeout=1)
            except slipstream.Error:  # nobody leads who could answer
                continue
            if is_enough(answer):
                return answer
            await asyncio.sleep(0.1)
        raise AssertionError(f"{subject}: {answer}")

    async def leader(self, stream: str) -> str:
        return str((await self.ask(f"STREAM.INFO.{stream}"))["cluster"]["leader"])


@dataclass(slots=True)
class Both:
    """A cluster of nats-servers, and ours, with the same streams and consumers."""

    theirs: Side
    ours: Side
    group: FakeGroup

    async def answers(self, subject: str, body: Any = b"") -> tuple[Any, Any]:
        return await self.ours.ask(subject, body), await self.theirs.ask(subject, body)


def succeeded(answer: Any) -> bool:
    return "error" not in answer


def has_all_copies(answer: Any) -> bool:
    cluster = answer["cluster"]
    replicas = cluster["replicas"]
    return bool(cluster.get("leader")) and all(
        one["current"] and "lag" not in one for one in replicas
    )


async def _connect(url: str, monitor: str) -> Side:
    as_boss = url.replace("://", "://boss:secret@")
    return Side(await slipstream.connect(url), await slipstream.connect(as_boss), monitor)


async def _prepare(side: Side) -> None:
    config = {"name": "R3", "subjects": ["r3.>"], "num_replicas": 3}
    await side.ask_until("STREAM.CREATE.R3", config, succeeded)
    for replicas in (1, 2):
        config = {"name": f"R{replicas}", "num_replicas": replicas}
        assert "error" not in await side.ask(f"STREAM.CREATE.R{replicas}", config)
    wanted = {"stream_name": "R3", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    assert "error" not in await side.ask("CONSUMER.CREATE.R3.C", wanted)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    directory = tmp_path_factory.mktemp("cluster")
    text = f'store_dir: "{directory / "ours"}"\n{CONFIG}{ACCOUNTS}'
    server = Server(config=load_text(text).options)
    server.group = group = FakeGroup(
        followers=[
            Member(
                "n1",
                active=1_000_000,
                tags=("az:1",),
                address="127.0.0.1:6222",
                facts=facts_of("n1", tags=("az:1",)),
            ),
            Member("n2", active=2_000_000, tags=("az:2",), facts=facts_of("n2", tags=("az:2",))),
        ]
    )
    with nats_cluster(Path(directory)) as servers, server:
        monitor = f"http://127.0.0.1:{servers[0].monitor_port}"
        found = Both(
            await _connect(servers[0].url, monitor),
            await _connect(server.url, server.monitoring_url),
            group,
        )
        for side in (found.theirs, found.ours):
            await _prepare(side)
        yield found
        for side in (found.theirs, found.ours):
            await side.user.close()
            await side.boss.close()


def without_raft(value: Any) -> Any:
    """What both sides show, without raft groups."""
    if isinstance(value, dict):
        return {k: without_raft(v) for k, v in value.items() if k not in OF_RAFT}
    return [without_raft(item) for item in value] if isinstance(value, list) else value


def without_cluster(answer: Any) -> Any:
    return normalise({name: value for name, value in answer.items() if name != "cluster"})


# -- calls that are refused ----------------------------------------------------------------------


def stream(name: str = "NEW", **config: Any) -> tuple[str, Any]:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def change(name: str, **config: Any) -> tuple[str, Any]:
    return f"STREAM.UPDATE.{name}", {"name": name, **config}


def consumer(stream: str, **config: Any) -> tuple[str, Any]:
    wanted = {"durable_name": "NEW", "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.{stream}.NEW", {"stream_name": stream, "config": wanted}


BAD_PLACEMENTS: list[Any] = [{"preferred": "zz"}, {"cluster": "X"}, {"tags": ["none"]}]
REFUSED: list[tuple[str, Any]] = [
    *(stream(num_replicas=replicas) for replicas in (-1, 4, 5, 6)),
    stream(placement={"cluster": "X"}),
    stream(placement={"preferred": "n1"}),
    stream(placement={"tags": ["none"]}),
    stream(placement={"tags": ["none", "az:9"]}),
    stream(placement={"tags": ["az:1"]}, num_replicas=3),
    stream(placement={"tags": ["!az:1"]}, num_replicas=3),
    stream(placement={"cluster": "C", "tags": ["az:1"]}, num_replicas=4),
    stream(placement={"cluster": "X", "tags": ["az:1"]}, num_replicas=4),
    stream("R3", num_replicas=1),
    change("R3", num_replicas=4),
    change("R3", num_replicas=6),
    change("R3", subjects=["r3.>"], num_replicas=3, placement={"cluster": "X"}),
    change("R3", subjects=["r3.>"], num_replicas=3, placement={"tags": ["X"]}),
    change("R1", num_replicas=5),
    *(consumer("R3", num_replicas=replicas) for replicas in (-1, 4, 5)),
    consumer("R1", num_replicas=3),
    consumer("NONE", num_replicas=3),
    *(
        (call, {"placement": placement})
        for call in (
            "STREAM.LEADER.STEPDOWN.R3",
            "CONSUMER.LEADER.STEPDOWN.R3.C",
            "META.LEADER.STEPDOWN",
        )
        for placement in BAD_PLACEMENTS
    ),
    ("STREAM.LEADER.STEPDOWN.R3", {"x": 1}),
    ("STREAM.LEADER.STEPDOWN.NONE", b""),
    ("STREAM.LEADER.STEPDOWN.NONE", {"placement": {"preferred": "zz"}}),
    ("CONSUMER.LEADER.STEPDOWN.R3.NONE", b""),
    ("CONSUMER.LEADER.STEPDOWN.NONE.NONE", b""),
    ("META.LEADER.STEPDOWN", {"x": 1}),
    *(
        (call, body)
        for call in ("STREAM.PEER.REMOVE.R3", "CONSUMER.PEER.REMOVE.R3.C", "SERVER.REMOVE")
        for body in (b"", {}, {"peer": ""}, {"peer": "zz"}, {"x": 1})
    ),
    ("STREAM.PEER.REMOVE.R3", {"peer": "n1"}),
    ("STREAM.PEER.EVACUATE.R3", {"peer": "n1"}),
    ("CONSUMER.PEER.REMOVE.R3.C", {"peer": "n1"}),
    ("CONSUMER.PEER.EVACUATE.R3.C", {"peer": "n1"}),
    ("STREAM.PEER.REMOVE.NONE", {"peer": "n1"}),
    ("CONSUMER.PEER.REMOVE.R3.NONE", {"peer": "n1"}),
    ("STREAM.CANCEL_MOVE.R3", b""),
    ("SERVER.REMOVE", {"peer_id": "zz"}),
    ("SERVER.EVACUATE", {"peer": "zz"}),
]


@pytest.mark.parametrize(("subject", "body"), REFUSED, ids=lambda value: str(value)[:70])
async def test_what_is_refused_is_refused_alike(both: Both, subject: str, body: Any) -> None:
    ours, theirs = await both.answers(subject, body)
    assert "error" in theirs
    assert differences(normalise(ours), normalise(theirs)) == []


@pytest.mark.parametrize("call", ["STREAM.LEADER.STEPDOWN.R3", "META.LEADER.STEPDOWN"])
async def test_who_leads_already_is_refused_alike(both: Both, call: str) -> None:
    texts = []
    for side in (both.ours, both.theirs):
        leader = await side.leader("R3")
        if call.startswith("META"):
            leader = (await meta_cluster(side, "/jsz", ("meta_cluster",)))["leader"]
        answer = await side.ask(call, {"placement": {"preferred": leader}})
        texts.append(answer["error"]["description"].replace(leader, "*"))
    assert texts[0] == texts[1] == 'preferred server "*" is already leader'


# -- calls that succeed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        stream("P1", placement={"cluster": "C"}, num_replicas=3),
        stream("P2", placement={"tags": ["az:1"]}),
        stream("P3", placement={"tags": ["!az:1"]}, num_replicas=2),
        stream("R2", num_replicas=2),  # it is there
        change("R3", subjects=["r3.>", "x3"], num_replicas=3),
        ("STREAM.INFO.R1", b""),
        ("STREAM.INFO.R3", b""),
        ("CONSUMER.INFO.R3.C", b""),
    ],
    ids=lambda value: str(value)[:70],
)
async def test_what_succeeds_is_shown_alike(both: Both, subject: str, body: Any) -> None:
    ours, theirs = await both.answers(subject, body)
    assert differences(without_cluster(ours), without_cluster(theirs)) == []


@pytest.mark.parametrize("subject", ["STREAM.INFO.R3", "CONSUMER.INFO.R3.C"])
async def test_a_cluster_of_three_is_shown_alike(both: Both, subject: str) -> None:
    shown = []
    for side in (both.ours, both.theirs):
        cluster = without_raft((await side.ask_until(subject, b"", has_all_copies))["cluster"])
        cluster["members"] = {one["name"] for one in cluster["replicas"]} | {cluster["leader"]}
        shown.append(cluster)
    ours, theirs = shown
    assert list(ours) == list(theirs)
    assert ours["members"] == theirs["members"] == {"n0", "n1", "n2"}
    assert fields(shape(ours["replicas"])) == fields(shape(theirs["replicas"]))
    peers = {one["name"]: one["peer"] for one in ours["replicas"] + theirs["replicas"]}
    assert all(peers[one["name"]] == one["peer"] for one in theirs["replicas"])


async def test_a_list_names_the_leader_of_each(both: Both) -> None:
    for call, name in (("STREAM.LIST", "streams"), ("CONSUMER.LIST.R3", "consumers")):
        ours, theirs = await both.answers(call)
        for answer in (ours, theirs):
            assert all(one["cluster"]["name"] == "C" for one in answer[name])


@pytest.mark.parametrize("body", [b"", b"x", {}, {"placement": {"preferred": "n2"}}], ids=str)
async def test_a_step_down_is_answered_alike(both: Both, body: Any) -> None:
    asked = len(both.group.asked)
    calls = ("STREAM.LEADER.STEPDOWN.R2", "CONSUMER.LEADER.STEPDOWN.R3.C", "META.LEADER.STEPDOWN")
    for call in calls:
        answer = await both.ours.ask(call, body)
        assert answer["success"] is True
        if body in (b"", {}):  # else it depends on who leads there
            assert answer == await both.theirs.ask_until(call, body, succeeded)
    assert len(both.group.asked) == asked + len(calls)


async def test_a_stream_names_its_mirrors(both: Both) -> None:
    shown = []
    for side in (both.ours, both.theirs):
        for name in ("MIRROR", "OTHER"):
            config = {"name": name, "mirror": {"name": "R1"}}
            await side.ask_until(f"STREAM.CREATE.{name}", config, succeeded)
        info = await side.ask("STREAM.INFO.R1")
        shown.append(sorted(info["alternates"], key=str))
        assert "alternates" not in await side.ask("STREAM.INFO.MIRROR")
        for name in ("MIRROR", "OTHER"):
            await side.ask(f"STREAM.DELETE.{name}")
    assert shown[0] == shown[1]


async def test_nats_py_reads_the_cluster(both: Both) -> None:
    client = await nats.connect(both.ours.user.server_url)
    js = client.jetstream()
    made = await js.add_stream(name="PY", subjects=["py"], num_replicas=3)
    await js.publish("py", b"x")
    durable = nats.js.api.ConsumerConfig(durable_name="C")
    for info in (made, await js.stream_info("PY"), await js.add_consumer("PY", durable)):
        assert info.cluster is not None
        assert info.cluster.leader == "n0"
        assert [one.name for one in info.cluster.replicas or ()] == ["n1", "n2"]
    with pytest.raises(nats.js.errors.BadRequestError, match="no suitable peers"):
        await js.add_stream(name="PY5", subjects=["py5"], num_replicas=5)
    bucket = await js.create_key_value(bucket="B", replicas=3)
    await bucket.put("k", b"v")
    assert len(client.discovered_servers) > 0
    await client.close()


# -- monitoring ----------------------------------------------------------------------------------


async def test_info_has_the_fields_of_a_cluster(both: Both) -> None:
    ours, theirs = (side.user.server_info for side in (both.ours, both.theirs))
    assert ours.cluster == theirs.cluster == "C"
    assert len(ours.connect_urls) == len(theirs.connect_urls) == 3


async def meta_cluster(side: Side, path: str, names: tuple[str, ...]) -> Any:
    """The part of an answer that these names lead to, once somebody leads."""
    for _ in range(LOOKS_MAX):
        part = get(side.monitor, path).json
        for name in names:
            part = part[name]
        if part.get("leader"):
            return part
        await asyncio.sleep(0.1)
    raise AssertionError(part)


async def test_the_meta_cluster_has_the_same_fields(both: Both) -> None:
    for path, names in (("/jsz", ("meta_cluster",)), ("/varz", ("jetstream", "meta"))):
        found = []
        for side in (both.ours, both.theirs):
            part = without_raft(await meta_cluster(side, path, names))
            for one in part["replicas"]:  # those that are behind have it for a moment
                one.pop("lag", None)
            found.append(part)
        ours, theirs = found
        assert list(ours) == list(theirs)
        assert fields(shape(ours)) == fields(shape(theirs))
        assert (ours["cluster_size"], ours["quorum_needed"]) == (3, 2)
        assert (theirs["cluster_size"], theirs["quorum_needed"]) == (3, 2)


async def test_the_cluster_in_varz_has_fields_that_nats_server_has(both: Both) -> None:
    ours, theirs = (get(side.monitor, "/varz").json for side in (both.ours, both.theirs))
    assert ours["cluster"].keys() <= theirs["cluster"].keys()
    assert ours["cluster"]["name"] == theirs["cluster"]["name"]
    assert len(ours["connect_urls"]) == len(theirs["connect_urls"])
    assert ours["remotes"] == theirs["remotes"] == 2


async def test_routes_have_fields_that_nats_server_has(both: Both) -> None:
    ours, theirs = (get(side.monitor, "/routez").json for side in (both.ours, both.theirs))
    assert fields(shape(ours)) <= fields(shape(theirs))
    names = [{route["remote_name"] for route in answer["routes"]} for answer in (ours, theirs)]
    assert names == [{"n1", "n2"}] * 2
    assert ours["num_routes"] == 2


@pytest.mark.parametrize("wanted", ["C", "", "X", "c"])
async def test_a_request_for_servers_of_a_cluster_finds_them(both: Both, wanted: str) -> None:
    for side in (both.ours, both.theirs):
        for endpoint in ("JSZ", "VARZ", "HEALTHZ", "STATSZ"):
            asked = side.ask(f"$SYS.REQ.SERVER.PING.{endpoint}", {"cluster": wanted}, timeout=0.5)
            if wanted in ("C", ""):
                assert (await asked)["server"]["cluster"] == "C"
            else:
                with pytest.raises(slipstream.Error):
                    await asked


async def test_a_ping_tells_of_the_cluster(both: Both) -> None:
    ours, theirs = await both.answers("$SYS.REQ.SERVER.PING.STATSZ")
    assert ours["statsz"]["active_servers"] == theirs["statsz"]["active_servers"] == 3
    found, wanted = (shape(one["statsz"]["routes"]) for one in (ours, theirs))
    assert fields(found) == fields(wanted)


async def test_a_leader_answers_who_asks_for_the_leader(both: Both) -> None:
    for side in (both.ours, both.theirs):
        asked = ("$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True})
        answer = await side.ask_until(*asked, succeeded)
        assert answer["data"]["meta_cluster"]["leader"] == answer["server"]["name"]


# What the settings of these servers are, and how many addresses are known.
OF_SETTINGS = (
    ".statsz.jetstream.config.",
    ".data.jetstream.config.",
    ".data.config.",
    ".data.cluster.urls",
)


async def _all_answers(side: Side, subject: str, body: Any = b"") -> dict[str, Any]:
    """The answers of all servers, by name."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answers = side.boss.request_many(subject, data, max_messages=3, timeout=10)
    found = [json.loads(answer.data) async for answer in answers]
    return {str((one.get("server") or one)["name"]): one for one in found}


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("STATSZ", b""),
        ("IDZ", b""),
        ("HEALTHZ", b""),
        ("VARZ", {"cluster": "C"}),
        ("JSZ", {"raft": True}),
    ],
)
async def test_followers_answer_what_all_servers_are_asked(
    both: Both, endpoint: str, body: Any
) -> None:
    subject = f"$SYS.REQ.SERVER.PING.{endpoint}"
    answers = [await _all_answers(side, subject, body) for side in (both.ours, both.theirs)]
    ours, theirs = (without_raft(answer) for answer in answers)
    assert ours.keys() == theirs.keys() == {"n0", "n1", "n2"}
    for follower in both.group.followers:
        found, wanted = (fields(shape(answer[follower.name])) for answer in (ours, theirs))
        assert {one for one in found - wanted if not one.startswith(OF_SETTINGS)} == set()


async def test_one_follower_is_asked_by_its_name_or_its_id(both: Both) -> None:
    for subject in (
        "$SYS.REQ.SERVER.PING.VARZ",
        f"$SYS.REQ.SERVER.{facts_of('n1').server_id}.VARZ",
    ):
        found = await both.ours.ask(subject, {"server_name": "n1", "exact_match": True})
        assert found["server"]["name"] == found["data"]["server_name"] == "n1"
        assert found["data"]["mem"] == facts_of("n1").memory
        assert found["data"]["tags"] == ["az:1"]
