"""Dead letters: what is given up or terminated is stored where the consumer says, and settled."""

import json
from random import Random
from typing import Any

import pytest

from slipstream.testing.driver import Client, Driver, HandRunner, Message
from slipstream.testing.simulated_disk import SimulatedDisk

SECOND = 1_000_000_000


class Desk:
    """A stream S on s.>, dead letters in D on d.>, and clients."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        source: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        makes_target: bool = True,
    ) -> None:
        self.disk = disk or SimulatedDisk(Random(1))
        self.pulls = 0
        self.start()
        self.make("S", subjects=["s.>"], **(source or {}))
        if makes_target:
            self.make("D", subjects=["d.>"], **(target or {}))

    def start(self) -> None:
        """A server on what the disk has."""
        self.driver = Driver(self.disk).start()
        self.client = self.driver.client()

    def crash(self) -> None:
        """The power fails, and the server comes back."""
        self.disk.crash()
        self.disk.heal()
        self.start()

    def make(self, name: str, **config: Any) -> None:
        answer = self.client.api(f"STREAM.CREATE.{name}", {"name": name, **config})
        assert "error" not in answer, answer

    def try_consumer(self, name: str = "c", stream: str = "S", **config: Any) -> dict[str, Any]:
        full = {"durable_name": name, "ack_policy": "explicit", "dead_letter": "d.x", **config}
        body = {"stream_name": stream, "config": full}
        answer: dict[str, Any] = self.client.api(f"CONSUMER.CREATE.{stream}.{name}", body)
        return answer

    def consumer(self, name: str = "c", stream: str = "S", **config: Any) -> dict[str, Any]:
        answer = self.try_consumer(name, stream, **config)
        assert "error" not in answer, answer
        return answer

    def pull(self, name: str = "c", stream: str = "S", batch: int = 1) -> list[Message]:
        """What is delivered at once."""
        self.pulls += 1
        inbox = f"pull.{self.pulls}"
        self.client.subscribe(inbox, 100 + self.pulls)
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, inbox)
        return [m for m in self.client.take() if m.reply.startswith("$JS.ACK")]

    def letters(self, stream: str = "D") -> list[Message]:
        """What a stream shows, in order."""
        found = []
        seq = 1
        while True:
            asked = {"seq": seq, "next_by_subj": ">"}
            answer = self.client.api(f"STREAM.MSG.GET.{stream}", asked)
            if "error" in answer:
                return found
            message = answer["message"]
            seq = message["seq"] + 1
            found.append(stored(message))

    def info(self, name: str = "c", stream: str = "S") -> dict[str, Any]:
        found: dict[str, Any] = self.client.api(f"CONSUMER.INFO.{stream}.{name}")
        return found

    def why(self, name: str = "c", stream: str = "S") -> dict[str, Any]:
        answer: dict[str, Any] = self.client.request(
            f"$SLIPSTREAM.CONSUMER.EXPLAIN.{stream}.{name}"
        ).json()
        return answer

    def messages(self, stream: str = "S") -> int:
        return int(self.client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


def stored(message: dict[str, Any]) -> Message:
    """A message as STREAM.MSG.GET has it."""
    import base64

    header = base64.b64decode(message.get("hdrs", ""))
    body = base64.b64decode(message.get("data", ""))
    return Message(message["subject"], "", "", header, body)


def test_a_terminated_message_is_a_dead_letter_with_all_that_it_had() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a", b"body", Kind="order")
    (message,) = desk.pull()
    assert desk.client.ask(message.reply, b"+TERM no such customer")
    (letter,) = desk.letters()
    assert (letter.subject, letter.body) == ("d.x", b"body")
    fields = letter.fields
    assert fields.pop("Slipstream-Dead-Time").startswith("2023-")
    assert fields.pop("Slipstream-Dead-Id")
    assert fields == {
        "Slipstream-Dead-Letter": "terminated",
        "Slipstream-Dead-Reason": "no such customer",
        "Slipstream-Dead-Deliveries": "1",
        "Slipstream-Dead-Stream": "S",
        "Slipstream-Dead-Consumer": "c",
        "Slipstream-Dead-Subject": "s.a",
        "Slipstream-Dead-Sequence": "1",
        "Kind": "order",
    }
    info = desk.info()
    assert info["num_ack_pending"] == 0
    assert info["ack_floor"]["stream_seq"] == 1
    assert info["config"]["dead_letter"] == "d.x"


@pytest.mark.parametrize("backoff", [[], [SECOND, 2 * SECOND]])
def test_a_message_that_reaches_max_deliver_is_a_dead_letter(backoff: list[int]) -> None:
    desk = Desk(source={"retention": "workqueue"})
    desk.consumer(max_deliver=2, ack_wait=SECOND, backoff=backoff)
    desk.client.store("s.a", b"poison")
    for _ in range(2):
        assert desk.pull()
        desk.driver.advance(3 * SECOND)
    assert not desk.pull()
    (letter,) = desk.letters()
    assert letter.fields["Slipstream-Dead-Letter"] == "max_deliver"
    assert letter.fields["Slipstream-Dead-Deliveries"] == "2"
    assert desk.messages() == 0
    assert desk.info()["num_redelivered"] == 0


def test_a_refusal_of_the_last_delivery_makes_a_dead_letter_at_once() -> None:
    desk = Desk()
    desk.consumer(max_deliver=1)
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"-NAK")
    assert len(desk.letters()) == 1


def test_a_lower_limit_makes_dead_letters_of_what_is_beyond_it() -> None:
    desk = Desk()
    desk.consumer(max_deliver=5, ack_wait=SECOND)
    desk.client.store("s.a")
    for _ in range(3):
        assert desk.pull()
        desk.driver.advance(2 * SECOND)
    desk.consumer(max_deliver=2, ack_wait=SECOND)
    assert len(desk.letters()) == 1
    assert not desk.pull()
