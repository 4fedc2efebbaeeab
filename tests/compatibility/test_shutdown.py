"""What those who wait for messages get when a server stops: the same from both servers."""

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer
from tests.fix_server_process import StartProcess

SECOND = 1_000_000_000
CONSUMERS = {
    "durable": {"durable_name": "durable", "ack_policy": "explicit"},
    "ephemeral": {"name": "ephemeral", "ack_policy": "none", "mem_storage": True},
    "filtered": {"durable_name": "filtered", "filter_subject": "s.none"},
    "full": {"durable_name": "full", "ack_policy": "explicit", "max_ack_pending": 1},
    "impatient": {"durable_name": "impatient", "filter_subject": "s.none"},
    "paused": {"durable_name": "paused", "pause_until": "2200-01-01T00:00:00Z"},
}
IMPATIENT = ({"batch": 5, "expires": 60 * SECOND, "no_wait": True},)
ASKED = (
    {"batch": 10, "expires": 60 * SECOND},
    {"batch": 10, "expires": 60 * SECOND, "idle_heartbeat": 20 * SECOND},
    {"batch": 7, "expires": 60 * SECOND, "max_bytes": 10_000},
    {"batch": 1},
)


def _farewell(process: subprocess.Popen[bytes], port: int) -> list[tuple[str, bytes]]:
    """What requests of all kinds get, each at its inbox, when the server is stopped."""
    found = []
    with RawClient(port) as client:
        client.send(b"SUB pushed 2\r\n")
        for storage in ("file", "memory"):
            name = f"S_{storage}"
            client.api(f"STREAM.CREATE.{name}", {"name": name, "storage": storage})
            client.request(name, b"x")
            push = {"durable_name": "push", "deliver_subject": "pushed"}
            for consumer, config in (*CONSUMERS.items(), ("push", push)):
                config = {**config, "filter_subject": config.get("filter_subject", name)}
                body = {"stream_name": name, "config": config}
                client.api(f"CONSUMER.CREATE.{name}.{consumer}", body)
            for consumer in CONSUMERS:
                for i, asked in enumerate(IMPATIENT if consumer == "impatient" else ASKED):
                    body = json.dumps(asked).encode()
                    inbox = f"_INBOX.raw.{storage}_{consumer}_{i}".encode()
                    client.publish(
                        f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", body, reply=inbox
                    )
                    client.flush()
            # nats-server takes requests in by and by; the last one was sent to this consumer.
            while client.api(f"CONSUMER.INFO.{name}.paused")["num_waiting"] < len(ASKED):
                pass
        process.send_signal(signal.SIGTERM)
        with suppress(ConnectionError):
            while True:
                message = client.next_message()
                if b" 409 " in message.header:
                    found.append((message.subject, message.header))
    return sorted(found)


def test_every_kind_of_pull_request_hears_that_the_server_shuts_down(
    start_server: StartProcess, nats_server: NatsServer, tmp_path: Path
) -> None:
    server = start_server("-js", "-sd", str(tmp_path / "store"))
    ours = _farewell(server.process, server.port)
    theirs = _farewell(nats_server.process, nats_server.port)
    assert ours == theirs
    assert len(ours) > 30
