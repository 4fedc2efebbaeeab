"""What a schedule publishes on nats-server it publishes on Slipstream: the same headers and bodies.

Both servers are given the same schedules, and are asked until each has published what it was to.
"""

import base64
import re
import time

from slipstream.server import Server
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PATIENCE_SECONDS = 30.0
PAST = "@at 2001-01-01T00:00:00Z"
TIME = re.compile(rb"(Nats-Schedule-Next: )\d[^\r]*")

# Subject, headers beside the target, body; the target is the subject with "to." before it.
SCHEDULES: list[tuple[str, dict[str, str], bytes]] = [
    ("once", {
        "Nats-Schedule": PAST, "Nats-Msg-Id": "m", "A": "b", "Nats-TTL": "2h",
        "Nats-Schedule-X": "y", "NATS-Schedule-Z": "1", "Nats-Expected-Stream": "S",
    }, b"1"),
    ("every", {"Nats-Schedule": "@every 1s"}, b"2"),
    ("cron", {
        "Nats-Schedule": "* * * * * *", "Nats-Schedule-TTL": "1h", "Nats-Schedule-Rollup": "sub",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
    }, b"3"),
    ("sourced", {
        "Nats-Schedule": PAST, "Nats-Schedule-Source": "s.data", "C": "d",
        "Nats-Schedule-TTL": "2h0m",
    }, b"4"),
    ("unsourced", {
        "Nats-Schedule": PAST, "Nats-Schedule-Source": "s.none", "Nats-Schedule-TTL": "3600",
    }, b"5"),
    ("empty", {"Nats-Schedule": PAST}, b""),
]  # fmt: skip


def tell(client: RawClient) -> None:
    """Create the stream and its schedules."""
    config = {
        "name": "S", "subjects": ["s.>"], "allow_msg_schedules": True, "allow_msg_ttl": True,
    }  # fmt: skip
    assert "error" not in client.api("STREAM.CREATE.S", config)
    own = {"A": "source", "Nats-Msg-Id": "q", "Nats-TTL": "1h", "nats-schedule-x": "1"}
    client.request("s.data", b"source", own)
    for name, headers, body in SCHEDULES:
        reply = client.request(
            f"s.{name}", body, {**headers, "Nats-Schedule-Target": f"s.to.{name}"}
        )
        assert reply is not None
        assert "error" not in reply.json(), reply


def published(client: RawClient, name: str) -> tuple[bytes, bytes]:
    """The header and the body of the last message on a schedule's target."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answer = client.api("STREAM.MSG.GET.S", {"last_by_subj": f"s.to.{name}"})
        if "error" not in answer:
            message = answer["message"]
            header = base64.b64decode(message.get("hdrs", ""))
            return TIME.sub(rb"\1*", header), base64.b64decode(message.get("data", ""))
    raise AssertionError(f"{name} was not published")


def left(client: RawClient) -> set[str]:
    """The schedules that are still there."""
    found = client.api("STREAM.INFO.S", {"subjects_filter": "s.*"})["state"]["subjects"]
    return set(found)


def test_schedules_publish_the_same_messages(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    with RawClient(jetstream_server.port) as ours, RawClient(nats_server.port) as theirs:
        for client in (ours, theirs):
            tell(client)
        for name, _, _ in SCHEDULES:
            assert published(ours, name) == published(theirs, name), name
        assert left(ours) == left(theirs) == {"s.data", "s.every", "s.cron"}
