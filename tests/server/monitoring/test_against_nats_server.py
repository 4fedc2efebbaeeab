"""The endpoints of both servers in the same state: same fields, same types, same statuses."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from slipstream import Server
from slipstream.server.config import load_text
from tests.fix_nats_server import start_nats_server, stop_nats_server
from tests.server.monitoring.http_client import Answer, get, shape

CONFIG = """
host: 127.0.0.1
port: -1
http_port: -1
server_name: twin
server_tags: [Blue]
server_metadata { place: here }
jetstream { max_mem: 1GB, max_file: 1GB, domain: hub
  limits { max_ack_pending: 9 } }
accounts {
  A { users: [{user: a, password: a}], jetstream: enabled, mappings { old: new } }
  B { users: [{user: b, password: b}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""

# What a single server without Go has no counterpart for.
VARZ_OF_GO = {"git_commit", "feature_flags"}
# Imports and exports by which nats-server lets accounts reach its own services.
DETAIL_OF_NATS = {"imports", "exports"}


@dataclass(slots=True)
class Twins:
    """Both servers after the same program."""

    theirs: str  # where monitoring is
    ours: str

    def ask(self, path: str) -> tuple[Answer, Answer]:
        """Both answers, theirs first."""
        return get(self.theirs, path), get(self.ours, path)


async def run_program(url: str) -> list[Client]:
    a = await nats.connect(url, user="a", password="a", name="first")
    js = a.jetstream(domain="hub")
    await js.add_stream(name="S", subjects=["s.>"], max_bytes=1_000_000)
    for i in range(5):
        await js.publish(f"s.{i}", b"hello")
    subscription = await js.pull_subscribe("s.>", "C", stream="S")
    messages = await subscription.fetch(2)
    await messages[0].ack_sync()
    await a.subscribe("jobs.*", queue="workers")
    await a.flush()
    b = await nats.connect(url, user="b", password="b")
    gone = await nats.connect(url, user="b", password="b", name="gone")
    await gone.subscribe("x")
    await gone.close()
    return [a, b]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Twins]:
    directory = tmp_path_factory.mktemp("twins")
    path = directory / "nats.conf"
    path.write_text(CONFIG)
    theirs = start_nats_server(directory, "-c", str(path))
    options = load_text(f'store_dir: "{directory / "ours"}"\n{CONFIG}').options
    with Server(config=options) as ours:
        # Who starts nats-server waits until it accepts a connection, which counts.
        socket.create_connection(("127.0.0.1", ours.port)).close()
        clients = [*await run_program(theirs.url), *await run_program(ours.url)]
        yield Twins(f"http://127.0.0.1:{theirs.monitor_port}", ours.monitoring_url)
        for client in clients:
            await client.close()
    stop_nats_server(theirs)


pytestmark = pytest.mark.asyncio(loop_scope="module")


def fields(value: Any, path: str = "") -> set[str]:
    """The fields of an answer, each with its path and type; items of a list are alike."""
    if isinstance(value, dict):
        return {f for name, item in value.items() for f in fields(item, f"{path}.{name}")}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {f for item in value for f in fields(item, f"{path}[]")}
    return {f"{path}: {value}"}


def without(answer: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


async def test_varz_has_the_same_fields(twins: Twins) -> None:
    theirs, ours = (without(answer.json, VARZ_OF_GO) for answer in twins.ask("/varz"))
    # Acknowledged means on disk here.
    assert ours["jetstream"]["config"].pop("sync_always") is True
    assert fields(shape(ours)) == fields(shape(theirs))
    same = ["server_name", "proto", "max_payload", "ping_interval", "write_deadline", "tags"]
    same += ["auth_required", "metadata", "in_msgs", "connections", "total_connections"]
    for name in same:
        assert ours[name] == theirs[name], name
    assert ours["jetstream"]["limits"] == theirs["jetstream"]["limits"]
    assert ours["jetstream"]["stats"]["storage"] == theirs["jetstream"]["stats"]["storage"]


@pytest.mark.parametrize(
    "path",
    [
        "/connz?auth=1&subs=detail",
        "/connz?subs=1",
        "/connz?state=closed&auth=1",
        "/connz?state=closed&sort=stop",
        "/connz?acc=A",
        "/connz?acc=NO",
        "/connz?user=b",
        "/connz?cid=99999",
        "/connz?limit=1&offset=1&sort=subs",
        "/routez",
        "/leafz",
        "/gatewayz",
        "/ipqueuesz",
        "/accountz",
        "/accstatz?unused=1",
        "/jsz",
        "/jsz?acc=A",
        "/jsz?acc=NO",
        "/jsz?accounts=1",
        "/jsz?streams=1",
        "/jsz?consumers=1",
        "/subsz",
        "/subsz?subs=1&test=jobs.one",
        "/healthz",
        "/healthz?account=A&stream=S&consumer=C",
    ],
)
async def test_an_endpoint_has_the_same_fields(twins: Twins, path: str) -> None:
    theirs, ours = twins.ask(path)
    assert (ours.status, ours.headers["Content-Type"]) == (200, "application/json")
    assert ours.headers["Access-Control-Allow-Origin"] == "*"
    found = ours.json
    found.get("config", {}).pop("sync_always", None)
    assert fields(shape(found)) == fields(shape(theirs.json))


async def test_connections_have_the_same_values(twins: Twins) -> None:
    theirs, ours = (answer.json for answer in twins.ask("/connz?auth=1&state=any&subs=detail"))
    assert (ours["total"], ours["num_connections"]) == (theirs["total"], theirs["num_connections"])
    for mine, other in zip(ours["connections"], theirs["connections"], strict=True):
        for name in ("kind", "type", "ip", "in_msgs", "in_bytes", "subscriptions"):
            assert mine.get(name) == other.get(name), name
        for name in ("name", "lang", "version", "authorized_user", "account", "name_tag"):
            assert mine.get(name) == other.get(name), name
        lists = [c.get("subscriptions_list_detail", []) for c in (mine, other)]
        counts = [
            sorted((s["msgs"], s["sid"], s.get("qgroup", "")) for s in found) for found in lists
        ]
        assert counts[0] == counts[1]


async def test_streams_and_consumers_have_the_same_values(twins: Twins) -> None:
    theirs, ours = (answer.json for answer in twins.ask("/jsz?acc=A&consumers=1&config=1"))
    for name in ("streams", "consumers", "messages", "bytes", "storage", "reserved_storage"):
        assert ours[name] == theirs[name], name
    mine, other = (answer["account_details"][0]["stream_detail"][0] for answer in (ours, theirs))
    times = {"first_ts", "last_ts"}
    assert without(mine["state"], times) == without(other["state"], times)
    assert mine["cluster"] == other["cluster"]
    assert without(mine["config"], {"metadata"}) == without(other["config"], {"metadata"})
    mine, other = mine["consumer_detail"][0], other["consumer_detail"][0]
    for name in ("num_pending", "num_ack_pending", "num_redelivered", "name", "stream_name"):
        assert mine[name] == other[name], name
    for name in ("delivered", "ack_floor"):
        assert without(mine[name], {"last_active"}) == without(other[name], {"last_active"})


async def test_an_account_has_the_same_fields(twins: Twins) -> None:
    for name in ("A", "B", "SYS"):
        theirs, ours = (a.json["account_detail"] for a in twins.ask(f"/accountz?acc={name}"))
        # The domain is no mapping here.
        for source in [m for m in theirs.get("mappings", {}) if m.startswith("$JS.hub.")]:
            del theirs["mappings"][source]
        assert fields(shape(ours)) == fields(shape(without(theirs, DETAIL_OF_NATS)))
        assert ours.get("mappings", {}) == theirs.get("mappings", {})


@pytest.mark.parametrize(
    "path",
    [
        "/connz?sort=zzz",
        "/connz?sort=stop",
        "/connz?sort=reason&state=any",
        "/connz?state=foo",
        "/connz?limit=x",
        "/connz?offset=99999999999999999999",
        "/connz?cid=-1",
        "/connz?subs=x",
        "/connz?auth=maybe",
        "/accountz?acc=NOPE",
        "/accstatz?unused=x",
        "/subsz?test=foo.*",
        "/subsz?limit=1.5",
        "/jsz?limit=x",
        "/jsz?streams=x",
        "/healthz?js-enabled-only=x",
        "/healthz?stream=S",
        "/healthz?consumer=C",
        "/healthz?account=NO",
        "/healthz?account=A&stream=NO",
        "/healthz?account=A&stream=S&consumer=NO",
        "/healthz?account=A&stream=S&consumer=NO&details=1",
        "/healthz?account=B&stream=X",
        "/raftz",
        "/nope",
    ],
)
async def test_a_refusal_is_the_same_to_the_letter(twins: Twins, path: str) -> None:
    theirs, ours = twins.ask(path)
    assert (ours.status, ours.headers["Content-Type"]) == (
        theirs.status,
        theirs.headers["Content-Type"],
    )
    assert ours.body.strip() == theirs.body.strip()


async def test_json_is_written_the_same_way(twins: Twins) -> None:
    theirs, ours = twins.ask("/jsz?acc=A&streams=1&config=1")
    assert b'"s.\\u003e"' in ours.body
    assert b'"s.\\u003e"' in theirs.body
    assert ours.body.startswith(b'{\n  "memory": 0,\n')
    assert json.loads(ours.body)
