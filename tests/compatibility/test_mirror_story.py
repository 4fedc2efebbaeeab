"""Mirrors and sources bring the same messages to the same places on both servers."""

import base64
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.server import Server
from tests.compatibility.compare import normalise
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
_IDENTITY = re.compile(r"(Nats-Stream-Source: [^\r]* )\w{8}\r")

Story = Callable[[RawClient], None]


def create(client: RawClient, name: str, **config: Any) -> None:
    """Create a stream."""
    answer = client.api(f"STREAM.CREATE.{name}", {"name": name, **config})
    assert "error" not in answer, answer


def update(client: RawClient, name: str, **config: Any) -> None:
    """Update a stream."""
    answer = client.api(f"STREAM.UPDATE.{name}", {"name": name, **config})
    assert "error" not in answer, answer


def publish(client: RawClient, subject: str, body: bytes = b"x", **headers: str) -> None:
    """Store a message."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.request(subject, body, fields or None)
    assert answer is not None
    assert "seq" in answer.json(), answer


def wait(client: RawClient, name: str, **state: int) -> None:
    """Wait until a stream's state has these values."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = client.api(f"STREAM.INFO.{name}")["state"]
        if all(found.get(key) == value for key, value in state.items()):
            return
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{name} has {found}, not {state}")


def contents(client: RawClient, name: str) -> list[Any]:
    """Every message of a stream, without times and identities."""
    found = []
    message: Any = {"seq": 0}
    while message is not None:
        asked = {"seq": message["seq"] + 1, "next_by_subj": ">"}
        reply = client.request(f"$JS.API.STREAM.MSG.GET.{name}", asked)
        assert reply is not None
        message = reply.json().get("message")
        if message is not None:
            found.append(normalise(message) | {"hdrs": _headers(message)})
    return found


def _headers(message: Any) -> str:

    block = base64.b64decode(message.get("hdrs", "")).decode()
    return _IDENTITY.sub(r"\1*\r", block)


def state(client: RawClient, name: str) -> Any:
    """StreamState without times, and what is shown of upstreams."""
    info = client.api(f"STREAM.INFO.{name}")
    shown = {key: info[key] for key in ("state", "mirror", "sources", "config") if key in info}
    return normalise(shown)


def mirrored(client: RawClient) -> None:
    """A mirror beside its upstream: gaps, headers, filters, transforms, a purge, promotion."""
    create(client, "U", subjects=["u.>"], allow_rollup_hdrs=True, allow_msg_ttl=True)
    for n in range(8):
        publish(client, f"u.{n % 3}", b"%d" % n)
    client.api("STREAM.MSG.DELETE.U", {"seq": 3})
    client.api("STREAM.PURGE.U", {"seq": 2})
    create(client, "M", mirror={"name": "U"})
    create(client, "F", mirror={"name": "U", "filter_subject": "u.1"})
    create(client, "T", mirror={"name": "U", "subject_transforms": [
        {"src": "u.0", "dest": "z"}, {"src": "u.2", "dest": ""},
    ]})  # fmt: skip
    create(client, "Q", mirror={"name": "U", "opt_start_seq": 5})
    create(client, "X", mirror={"name": "U"}, subject_transform={"src": "u.*", "dest": "x.$1"})
    create(client, "R", mirror={"name": "U"}, allow_rollup_hdrs=True)
    for name in ("M", "F", "Q", "X", "R"):
        wait(client, name, last_seq=8)
    wait(client, "T", last_seq=7)
    publish(client, "u.1", b"h", Nats_Expected_Last_Sequence="8", A="b")
    publish(client, "u.1", b"e", Nats_Expected_Last_Sequence="9")
    for name in ("M", "F", "X", "R"):
        wait(client, name, last_seq=10)
    publish(client, "u.1", b"r", Nats_Rollup="sub")
    publish(client, "u.1", b"t", Nats_TTL="1h")
    for name in ("M", "F", "X", "R"):
        wait(client, name, last_seq=12)
    client.api("STREAM.PURGE.U", {"seq": 20})
    publish(client, "u.1", b"last")
    for name in ("M", "F", "X", "R"):
        wait(client, name, last_seq=20)


def sourced(client: RawClient) -> None:
    """One stream gathers from one other at a time, so that the order is certain."""
    create(client, "A", subjects=["a.>"])
    publish(client, "a.1", b"1", Nats_Msg_Id="one")
    publish(client, "a.2", b"2", Nats_Expected_Last_Sequence="1")
    publish(client, "a.1", b"3", X="y")
    create(client, "S", subjects=["s"], sources=[{"name": "A", "filter_subject": "a.1"}])
    create(client, "T", sources=[
        {"name": "A", "subject_transforms": [{"src": "a.*", "dest": "t.{{wildcard(1)}}"}]},
    ])  # fmt: skip
    create(client, "D", sources=[{"name": "A"}], duplicate_window=60 * 10**9)
    create(client, "X", sources=[{"name": "A"}], subject_transform={"src": "a.>", "dest": "x.>"})
    wait(client, "S", messages=2)
    publish(client, "s", b"own")
    create(client, "SS", sources=[{"name": "S"}])
    publish(client, "a.1", b"4")
    wait(client, "S", messages=4)
    wait(client, "SS", messages=4)
    for name in ("T", "D", "X"):
        wait(client, name, messages=4)
    update(client, "S", subjects=["s"])
    publish(client, "a.1", b"5")
    publish(client, "a.1", b"6")
    update(client, "S", subjects=["s"], sources=[{"name": "A", "filter_subject": "a.1"}])
    wait(client, "S", messages=6)
    wait(client, "SS", messages=6)
    for name in ("T", "D", "X"):
        wait(client, name, messages=6)


def counted(client: RawClient) -> None:
    """Counters add up over two levels."""
    create(client, "E", subjects=["c.e.>"], allow_msg_counter=True)
    create(client, "W", subjects=["c.w.>"], allow_msg_counter=True, max_msgs_per_subject=1)
    create(client, "P", subjects=["p"])
    publish(client, "c.e.k", b"", Nats_Incr="5")
    publish(client, "c.w.k", b"", Nats_Incr="7")
    publish(client, "c.w.k", b"", Nats_Incr="-2")
    to_sum = [{"src": "c.e.>", "dest": "c.sum.>"}]
    create(client, "SUM", subjects=["c.sum.>"], allow_msg_counter=True, sources=[
        {"name": "E", "subject_transforms": to_sum},
    ])  # fmt: skip
    wait(client, "SUM", messages=1)
    update(client, "SUM", subjects=["c.sum.>"], allow_msg_counter=True, sources=[
        {"name": "E", "subject_transforms": to_sum},
        {"name": "W", "subject_transforms": [{"src": "c.w.>", "dest": "c.sum.>"}]},
    ])  # fmt: skip
    wait(client, "SUM", messages=2)
    create(client, "TOP", allow_msg_counter=True, sources=[{"name": "SUM"}])
    create(client, "RAW", sources=[{"name": "SUM"}])
    create(client, "NO", allow_msg_counter=True, sources=[{"name": "P"}])
    publish(client, "p", b"no counter")
    publish(client, "c.sum.k", b"", Nats_Incr="100")
    publish(client, "c.e.k", b"", Nats_Incr="1")
    wait(client, "SUM", messages=4)
    wait(client, "TOP", messages=4)
    wait(client, "RAW", messages=4)


def let_go(client: RawClient) -> None:
    """Work queues and streams by interest let go of what was taken."""
    create(client, "W", subjects=["w.>"], retention="workqueue")
    create(client, "I", subjects=["i.>"], retention="interest")
    publish(client, "w.1", b"1")
    create(client, "M", mirror={"name": "W"})
    create(client, "S", sources=[{"name": "I"}])
    wait(client, "I", consumer_count=1)
    wait(client, "M", messages=1)
    publish(client, "w.1", b"2")
    publish(client, "i.1", b"1")
    for name, count in (("M", 2), ("S", 1)):
        wait(client, name, messages=count)
    wait(client, "W", messages=0)
    wait(client, "I", messages=0)


STORIES: dict[Story, list[str]] = {
    mirrored: ["U", "M", "F", "T", "Q", "X", "R"],
    sourced: ["A", "S", "T", "D", "X", "SS"],
    counted: ["E", "W", "SUM", "TOP", "RAW", "NO"],
    let_go: ["W", "I", "M", "S"],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_mirrors_and_sources_bring_is_what_they_bring_in_nats_server(
    story: Story, jetstream_server: Server, nats_server: NatsServer
) -> None:
    with RawClient(jetstream_server.port) as ours, RawClient(nats_server.port) as theirs:
        story(ours)
        story(theirs)
        for name in STORIES[story]:
            assert contents(ours, name) == contents(theirs, name), name
            assert _shown(ours, name) == _shown(theirs, name), name


def _shown(client: RawClient, name: str) -> Any:
    """What is said of a stream, without what only one of the servers says of an upstream."""
    shown = state(client, name)
    for upstream in [*shown.get("sources", []), shown.get("mirror", {})]:
        upstream.pop("error", None)
        upstream.pop("lag", None)
    return shown
