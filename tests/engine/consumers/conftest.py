"""One stream on an engine driven by hand, and short words for what tests of consumers do to it."""

import json
from typing import Any

import pytest

from slipstream.testing.driver import Client, Driver, Message

MS = 1_000_000
SECOND = 1000 * MS


class Bench:
    """A stream S on s.>, a client that administers, and clients that consume."""

    def __init__(self) -> None:
        self.driver = Driver().start()
        self.client = self.driver.client()
        self.pulls = 0
        self.stream()

    def stream(self, **config: Any) -> None:
        """(Re)create the stream."""
        self.client.api("STREAM.DELETE.S")
        full = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
        answer = self.client.api("STREAM.CREATE.S", full)
        assert "error" not in answer, answer

    def consumer(self, name: str = "c", **config: Any) -> dict[str, Any]:
        """Create or update a durable consumer with explicit acks; its info."""
        full = {"durable_name": name, "ack_policy": "explicit", **config}
        body = {"stream_name": "S", "config": full}
        answer: dict[str, Any] = self.client.api(f"CONSUMER.CREATE.S.{name}", body)
        assert "error" not in answer, answer
        return answer

    def publish(self, *subjects: str, body: bytes = b"x") -> None:
        """One message on each subject."""
        for subject in subjects:
            assert self.client.store(subject, body)["seq"]

    def pull(self, name: str = "c", client: Client | None = None, **asked: Any) -> list[Message]:
        """A pull request with an inbox of its own; what it brought at once."""
        client = client or self.client
        self.pulls += 1
        inbox = f"pull.{self.pulls}"
        body = json.dumps({"batch": 1, **asked})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}"
        client.send(
            f"SUB {inbox} {1000 + self.pulls}\r\n"
            f"PUB {subject} {inbox} {len(body)}\r\n{body}\r\n".encode()
        )
        return client.take()

    def ack(self, message: Message, body: bytes = b"") -> list[Message]:
        """Acknowledge as a request; the answers."""
        return self.client.ask(message.reply, body)

    def info(self, name: str = "c") -> dict[str, Any]:
        """ConsumerInfo."""
        found: dict[str, Any] = self.client.api(f"CONSUMER.INFO.S.{name}")
        return found

    def advance(self, ns: int) -> list[Message]:
        """Let time pass; what came meanwhile."""
        self.driver.advance(ns)
        return self.client.take()

    def engine_consumer(self, name: str = "c") -> Any:
        """The consumer itself."""
        return self.driver.js.streams["S"].consumers[name]


@pytest.fixture
def bench() -> Bench:
    """A stream without messages and consumers."""
    return Bench()


def statuses(messages: list[Message]) -> list[str]:
    """The status messages among what came, as code and text."""
    return [message.status for message in messages if message.header]


def sequences(messages: list[Message]) -> list[int]:
    """The stream sequences of what was delivered."""
    return [int(m.reply.split(".")[5]) for m in messages if m.reply.startswith("$JS.ACK")]
