"""A subscriber hears of the same abandoned batches from Slipstream and from nats-server."""

from typing import Any

from slipstream.server import Server
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

VOLATILE = ("id", "timestamp")


def add(client: RawClient, batch: str, number: int, **headers: str) -> None:
    """A message of a batch; the answer is waited for."""
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
    client.request("s.a", b"x", fields | {k.replace("_", "-"): v for k, v in headers.items()})


def abandoned(port: int) -> list[tuple[str, Any]]:
    """The advisories of a few batches that come to nothing, and of some that do not."""
    found: list[tuple[str, Any]] = []
    with RawClient(port) as client, RawClient(port) as listener:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_atomic": True})
        listener.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>", 9)
        add(client, "gap", 1)
        add(client, "gap", 3)
        add(client, "unknown", 2)
        add(client, "commit", 1, Nats_Batch_Commit="x")
        add(client, "refused", 1)
        add(client, "refused", 2, Nats_Expected_Last_Sequence="9", Nats_Batch_Commit="1")
        add(client, "level", 1, Nats_Required_Api_Level="99")
        add(client, "jump", 1)
        add(client, "jump", 1001)
        for number in range(1, 1002):
            add(client, "large", number)
        add(client, "last", 1)
        add(client, "last", 1)
        while not found or found[-1][1]["batch"] != "last":
            message = listener.next_message()
            if not message.subject.startswith("$JS"):
                continue  # an answer to the client, whose inbox has the same name
            body = {k: v for k, v in message.json().items() if k not in VOLATILE}
            found.append((message.subject, body))
    return found


def test_abandoned_batches_are_told_in_the_same_words(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    assert abandoned(jetstream_server.port) == abandoned(nats_server.port)
