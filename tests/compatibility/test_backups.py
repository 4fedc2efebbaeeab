"""A backup of one server restores on the other, and is answered alike; so does what nats-server up
to 2.14 wrote, a tar archive of a stream's directory."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.archive.s2 import S2Writer
from slipstream.server import Server
from tests.compatibility.raw_client import RawClient, Reply
from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server

CHUNK = 16 * 1024
INBOX = "_INBOX.raw.backup"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, RawClient]]:
    """A client of each."""
    real = start_nats_server(tmp_path / "nats")
    try:
        with (
            Server(store_dir=str(tmp_path / "slipstream")) as own,
            RawClient(real.port) as theirs,
            RawClient(own.port) as ours,
        ):
            yield {"nats-server": theirs, "slipstream": ours}
    finally:
        stop_nats_server(real)


def fill(client: RawClient, storage: str) -> dict[str, Any]:
    """A stream with gaps and consumers in many states; its configuration."""
    config = {
        "name": "S", "subjects": ["s.*"], "storage": storage, "allow_direct": True,
        "metadata": {"a": "b"},
    }  # fmt: skip
    assert "error" not in client.api("STREAM.CREATE.S", config)
    for i in range(200):
        headers = {"Nats-Msg-Id": str(i)} if i % 2 else None
        ask(client, f"s.{i % 3}", b"body %d " % i * 50, headers)
    for seq in (1, 50, 51, 199):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq})
    for consumer in (
        {"durable_name": "busy", "ack_policy": "explicit"},
        {"durable_name": "memory", "ack_policy": "explicit", "mem_storage": True},
        {"durable_name": "newest", "deliver_policy": "new", "ack_policy": "none"},
        {"durable_name": "push", "ack_policy": "explicit", "deliver_subject": "nobody"},
        {"name": "passing", "ack_policy": "all", "inactive_threshold": 60_000_000_000},
    ):
        name = consumer.get("durable_name", consumer.get("name"))
        asked = {"stream_name": "S", "config": consumer}
        assert "error" not in client.api(f"CONSUMER.CREATE.S.{name}", asked)
    return config


def ask(client: RawClient, subject: str, body: bytes, headers: Any = None) -> Reply:
    """The answer to a request."""
    answer = client.request(subject, body, headers)
    assert answer is not None, subject
    return answer


def pull(client: RawClient, consumer: str, acks: list[bytes]) -> None:
    """Take a message for each of `acks`, and answer it so."""
    for ack in acks:
        [message] = client.pull(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", b"1", 1)
        if ack:
            ask(client, message.reply, ack)


def shown(client: RawClient) -> dict[str, Any]:
    """The stream and its consumers, without times."""
    info = client.api("STREAM.INFO.S", {"deleted_details": True})
    found = {"state": info["state"], "config": info["config"]["subjects"]}
    for one in client.api("CONSUMER.LIST.S")["consumers"]:
        for place in ("delivered", "ack_floor"):
            one[place].pop("last_active", None)
        for name in ("created", "ts", "cluster", "config"):
            one.pop(name, None)
        found[one["name"]] = one
    return found


def bodies(client: RawClient) -> list[Any]:
    """Every message."""
    last = client.api("STREAM.INFO.S")["state"]["last_seq"]
    found = [client.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, last + 1)]
    return [one.get("message") for one in found]


def back_up(client: RawClient, **asked: Any) -> tuple[dict[str, Any], bytes]:
    """The answer, and the archive."""
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": INBOX, **asked})
    data = b""
    while True:
        message = client.next_message()
        assert message.subject == INBOX
        if not message.body:
            assert b"204" in message.header or not message.header
            return answer, data
        data += message.body
        if message.reply:
            client.publish(message.reply, b"")


def restore(client: RawClient, answer: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The final answer."""
    asked = {"config": answer["config"], "state": answer["state"]}
    subject = client.api("STREAM.RESTORE.S", asked)["deliver_subject"]
    for at in range(0, len(data), CHUNK):
        assert ask(client, subject, data[at : at + CHUNK]).body == b""
    found: dict[str, Any] = json.loads(ask(client, subject, b"").body)
    return found


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("source", ["nats-server", "slipstream"])
@pytest.mark.parametrize("target", ["nats-server", "slipstream"])
def test_a_backup_of_either_server_restores_on_either(
    servers: dict[str, RawClient], source: str, target: str, storage: str
) -> None:
    fill(servers[source], storage)
    pull(servers[source], "busy", [b"+ACK", b"", b"-NAK", b"", b"+ACK"])
    pull(servers[source], "passing", [b"", b"+ACK"])
    before, stored = shown(servers[source]), bodies(servers[source])
    answer, data = back_up(servers[source], chunk_size=CHUNK)
    servers[source].api("STREAM.DELETE.S")
    restored = restore(servers[target], answer, data)
    assert "error" not in restored
    assert restored["type"].endswith("stream_create_response")
    assert shown(servers[target]) == before
    assert bodies(servers[target]) == stored
    if target == "nats-server":
        return  # which does not know the ids of what was restored
    again = ask(servers[target], "s.1", b"again", {"Nats-Msg-Id": "197"})
    assert json.loads(again.body)["duplicate"]


@pytest.mark.parametrize("first", [0, 100])
def test_a_stream_that_never_had_a_message_comes_back(
    servers: dict[str, RawClient], first: int
) -> None:
    found: dict[str, list[Any]] = {}
    for kind, client in servers.items():
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "first_seq": first})
        answer, data = back_up(client)
        client.api("STREAM.DELETE.S")
        states = [restore(client, answer, data)["state"], client.api("STREAM.INFO.S")["state"]]
        found[kind] = [(state["first_seq"], state["last_seq"]) for state in states]
        found[kind].append(json.loads(ask(client, "s.1", b"").body)["seq"])
    assert found["slipstream"] == found["nats-server"]


def test_both_say_the_same_of_what_can_not_be(servers: dict[str, RawClient]) -> None:
    found: dict[str, list[Any]] = {}
    for kind, client in servers.items():
        fill(client, "file")
        answer, data = back_up(client)
        asked = {"config": answer["config"], "state": answer["state"]}
        found[kind] = [client.api("STREAM.RESTORE.S", asked)]
        client.api("STREAM.DELETE.S")
        for wrong in (b"no archive at all", data[: len(data) // 2], b""):
            error = restore(client, answer, wrong)["error"]
            assert error.pop("description").startswith("restore failed: ")
            found[kind].append(error)
        config = {"name": "T", "subjects": ["s.1"]}
        client.api("STREAM.CREATE.T", config)
        found[kind].append(restore(client, answer, data)["error"])
    assert found["slipstream"] == found["nats-server"]


def test_a_tar_archive_of_a_directory_restores(tmp_path: Path) -> None:
    """As versions up to 2.14 wrote it; the later nats-server reads it, too."""
    real: NatsServer = start_nats_server(tmp_path / "nats")
    try:
        with RawClient(real.port) as theirs:
            fill(theirs, "file")
            pull(theirs, "busy", [b"+ACK", b"", b"-NAK", b"", b"+ACK"])
            before, stored = shown(theirs), bodies(theirs)
            answer, _ = back_up(theirs)
    finally:
        stop_nats_server(real)
    raw = io.BytesIO()
    directory = real.store_dir / "jetstream" / "$G" / "streams" / "S"
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                tar.add(path, str(path.relative_to(directory)))
    data = S2Writer().write(raw.getvalue())
    kept = {name: one for name, one in before.items() if name != "memory"}
    kept["state"]["consumer_count"] -= 1
    with (
        Server(store_dir=str(tmp_path / "slipstream")) as own,
        RawClient(own.port) as ours,
    ):
        assert "error" not in restore(ours, answer, data)
        assert shown(ours) == kept
        assert bodies(ours) == stored
