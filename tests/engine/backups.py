"""Taking and giving backups as a client of the engine does."""

import json
from typing import Any

from slipstream.archive.entries import CONSUMER, MAGIC, STATE, put_content, put_end, put_entry
from slipstream.archive.s2 import S2Writer
from slipstream.testing.driver import Client, Message, encode
from slipstream.wire.buffer import OutBuffer

INBOX = "backup.of.t"
CHUNKS = 3  # the subscription to it


def ask_backup(client: Client, name: str, **asked: Any) -> None:
    """Ask for a snapshot, whose chunks go to `INBOX`."""
    if "deliver_subject" not in asked:
        client.subscribe(INBOX, CHUNKS)
    message = {"deliver_subject": INBOX, **asked}
    subject, reply = f"$JS.API.STREAM.SNAPSHOT.{name}", "_INBOX.t.asked"
    client.send(encode(subject, encode_json(message), reply))


def encode_json(value: Any) -> bytes:
    """As a request has it."""
    return json.dumps(value).encode()


def receive(client: Client) -> tuple[bytes, Message | None]:
    """What has come of the archive, each chunk acknowledged; and the end, if that was there."""
    data = b""
    while found := [m for m in client.take() if m.subject == INBOX]:
        for message in found:
            if not message.body:
                return data, message
            data += message.body
            if message.reply:
                client.publish(message.reply)
    return data, None


def back_up(client: Client, name: str, **asked: Any) -> bytes:
    """A whole backup."""
    ask_backup(client, name, **asked)
    data, end = receive(client)
    assert end is not None
    assert end.status in ("", "204"), end.status
    return data


def begin_restore(client: Client, config: dict[str, Any], **state: Any) -> Any:
    """The answer to a request for a restore."""
    return client.api(f"STREAM.RESTORE.{config['name']}", {"config": config, "state": state})


def restore(client: Client, config: dict[str, Any], data: bytes, chunk: int = 4096) -> Any:
    """The final answer, or the first one with an error."""
    answer = begin_restore(client, config)
    if "error" in answer:
        return answer
    subject = answer["deliver_subject"]
    for at in range(0, len(data), chunk):
        taken = client.request(subject, data[at : at + chunk])
        if taken.body:
            return taken.json()
    return client.request(subject, b"").json()


def archive(messages: list[tuple[int, bytes, bytes]], last_seq: int = 0, **consumers: Any) -> bytes:
    """An archive made by hand: sequence, subject and body of each message."""
    out = OutBuffer()
    out.put(MAGIC)
    state = {"last_seq": last_seq or max((m[0] for m in messages), default=0)}
    put_content(out, STATE, 1, encode_json(state))
    for name, entry in consumers.items():
        put_content(out, CONSUMER + name.encode(), 1, encode_json(entry))
    for seq, subject, body in messages:
        put_entry(out, subject, seq, seq, body, 0, 0, len(body))
    put_end(out)
    return S2Writer().write(out.take())
