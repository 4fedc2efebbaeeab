"""How a message is shown: its origin, its headers, its body."""

import base64
import subprocess
import sys
from typing import Any

from slipstream.cli.output import say
from slipstream.cli.values import show_stamp
from slipstream.client.jetstream import StoredMessage
from slipstream.client.message import Message


def show_body(data: bytes, translate: str = "") -> None:
    """The body as it is, or what the command `translate` makes of it; {} in it stays as it is."""
    if translate:
        done = subprocess.run(translate, shell=True, input=data, capture_output=True, check=False)
        data = done.stdout if done.returncode == 0 else done.stderr
    say_bytes(data)


def say_bytes(data: bytes) -> None:
    """A line of bytes, untouched where the output is no terminal."""
    if sys.stdout.isatty():
        say(data.decode("utf-8", "replace"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def show_headers(headers: Any) -> None:
    """One header a line, then an empty line; nothing where there is none."""
    found = list(headers.items())
    for key, value in found:
        for one in value if isinstance(value, list | tuple) else [value]:
            say(f"{key}: {one}")
    if found:
        say()


def show_stored(message: StoredMessage, raw: bool, translate: str) -> None:
    """A message of a stream."""
    if raw:
        show_body(message.data, translate)
        return
    say(f"[{message.sequence}] Subject: {message.subject} Received: {show_stamp(message.time)}")
    show_headers(message.headers)
    show_body(message.data, translate)
    say()


def json_field(name: str, data: bytes) -> dict[str, str]:
    """`data` under `name` as text; where it is not UTF-8 in base64, and `encoding` says so."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), "encoding": "base64"}


def received_json(message: Message) -> dict[str, Any]:
    """A message that was received: subject, reply, headers as lists, data as `json_field`."""
    found: dict[str, Any] = {"subject": message.subject}
    if message.reply:
        found["reply"] = message.reply
    headers = {key: message.headers.get_all(key) for key in message.headers}
    if headers:
        found["headers"] = headers
    return found | json_field("data", message.data)


def json_message(message: StoredMessage) -> dict[str, Any]:
    """A message of a stream as the API has it: `hdrs` and `data` in base64."""
    found: dict[str, Any] = {"subject": message.subject, "seq": message.sequence}
    if message.headers:
        found["hdrs"] = base64.b64encode(message.headers.encode()).decode()
    if message.data:
        found["data"] = base64.b64encode(message.data).decode()
    found["time"] = show_stamp(message.time)
    return found
