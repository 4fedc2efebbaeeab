"""The endpoints of both servers in the same state: same fields, same types, same statuses."""

import json
from typing import Any

import pytest

from tests.server.monitoring.http_client import fields, shape
from tests.server.monitoring.twins import Twins

# What a single server without Go has no counterpart for.
VARZ_OF_GO = {"git_commit"}
# Exported, but reached by nobody who does not import it, which no account can do here.
NOT_EXPORTED = "$SYS.DEBUG.SUBSCRIBERS"

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    counts = ("streams", "consumers", "messages", "bytes", "storage", "reserved_storage")
    for name in (*counts, "accounts"):
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
    for name in ("A", "B", "SYS", "$G"):
        theirs, ours = (a.json["account_detail"] for a in twins.ask(f"/accountz?acc={name}"))
        # The domain is no mapping here.
        for source in [m for m in theirs.get("mappings", {}) if m.startswith("$JS.hub.")]:
            del theirs["mappings"][source]
        assert fields(shape(ours)) == fields(shape(theirs))
        for name in ("imports", "exports"):
            found, expected = (
                [s for s in detail.get(name, []) if s["subject"] != NOT_EXPORTED]
                for detail in (ours, theirs)
            )
            assert sorted(found, key=str) == sorted(expected, key=str)
        assert ours.get("mappings", {}) == theirs.get("mappings", {})
        assert ours["jetstream_enabled"] == theirs["jetstream_enabled"], name


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
