"""What expires on nats-server expires on Slipstream, and leaves the same markers.

Both servers are given the same messages and store them in a stream that republishes all that it
stores, so that no marker is missed, however short it lives. Once each holds as many messages as are
to be left, what is left and all that was ever stored are compared, with headers and sequences.
"""

import base64
import re
import time
from contextlib import ExitStack
from typing import Any

import pytest

from slipstream.server import Server
from tests.compatibility.corpus import SECOND
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PATIENCE_SECONDS = 30.0

STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {"allow_msg_ttl": True},
    "MEMORY": {"allow_msg_ttl": True, "storage": "memory", "subject_delete_marker_ttl": 2 * SECOND},
    "HISTORY": {"subject_delete_marker_ttl": 2 * SECOND, "max_msgs_per_subject": 3},
    "AGED": {"subject_delete_marker_ttl": 2 * SECOND, "max_age": 2 * SECOND},
    "BUCKET": {
        "subject_delete_marker_ttl": SECOND, "max_msgs_per_subject": 1, "discard": "new",
        "deny_delete": True,
    },
    "QUEUE": {"subject_delete_marker_ttl": SECOND, "retention": "workqueue"},
}  # fmt: skip
LEFT = {"PLAIN": 2, "MEMORY": 2, "HISTORY": 2, "AGED": 1, "BUCKET": 1, "QUEUE": 2}
# Markers of one second are stored in an order of chance.
VOLATILE = re.compile(rb"Nats-(Sequence|Last-Sequence|Time-Stamp): [^\r]*\r\n")
MESSAGES: list[tuple[str, dict[str, str]]] = [
    ("gone", {"Nats-TTL": "1"}), ("stays", {}), ("stays", {"Nats-TTL": "1s"}),
    ("twice", {"Nats-TTL": "1"}), ("twice", {"Nats-TTL": "2"}), ("kept", {"Nats-TTL": "never"}),
    ("purged", {"Nats-TTL": "1", "KV-Operation": "PURGE"}),
    ("deleted", {"Nats-TTL": "1", "KV-Operation": "DEL"}),
    ("marked", {"Nats-TTL": "1", "Nats-Marker-Reason": "Remove"}), ("late", {"Nats-TTL": "3s"}),
]  # fmt: skip


def tell(client: RawClient, name: str) -> None:
    """Create the stream and publish to it."""
    republish = {"src": f"{name}.*", "dest": f"again.{name}.{{{{wildcard(1)}}}}"}
    config = {"name": name, "subjects": [f"{name}.*"], "republish": republish, **STREAMS[name]}
    assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
    for token, headers in MESSAGES:
        reply = client.request(f"{name}.{token}", b"x", headers or None)
        assert reply is not None
        assert "error" not in reply.json(), reply


def held(client: RawClient, name: str) -> dict[int, tuple[str, bytes]]:
    """What the stream holds: subject and header by sequence."""
    found = {}
    seq = 1
    while True:
        answer = client.api(f"STREAM.MSG.GET.{name}", {"seq": seq, "next_by_subj": ">"})
        if "error" in answer:
            return found
        message = answer["message"]
        found[message["seq"]] = (message["subject"], base64.b64decode(message.get("hdrs", "")))
        seq = message["seq"] + 1


def outcome(client: RawClient, name: str) -> dict[int, tuple[str, bytes]]:
    """What is left once nothing that expires is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := held(client, name)) > LEFT[name] and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def republished(client: RawClient, listener: RawClient) -> list[tuple[str, bytes, bytes]]:
    """All that the streams have ever stored, by subject."""
    stored = sum(client.api(f"STREAM.INFO.{name}")["state"]["last_seq"] for name in STREAMS)
    found = []
    while len(found) < stored:
        message = listener.next_message()
        if message.subject.startswith("again."):
            found.append((message.subject, VOLATILE.sub(b"", message.header), message.body))
    return sorted(found)


@pytest.mark.timeout(180)
def test_the_same_messages_expire_into_the_same_markers(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    servers = (jetstream_server, nats_server)
    with ExitStack() as stack:
        ours, theirs, *listeners = (
            stack.enter_context(RawClient(server.port)) for server in servers * 2
        )
        for client, listener in zip((ours, theirs), listeners, strict=True):
            listener.subscribe("again.>", 5)
            for name in STREAMS:
                tell(client, name)
        for name in STREAMS:
            assert outcome(ours, name) == outcome(theirs, name), name
        assert republished(ours, listeners[0]) == republished(theirs, listeners[1])
