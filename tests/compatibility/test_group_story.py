"""Clients of one priority group get the same messages from Slipstream as from nats-server.

Each client has a connection of its own. A story is told to Slipstream, and then to nats-server,
where after each step what has come is looked at until it is the same, or the patience is over.
Pins, which each server makes up, are shown by the order in which they first came.
"""

import json
import re
import time
from contextlib import ExitStack
from typing import Any

import pytest

from slipstream.server import Server
from tests.compatibility.corpus import SECOND
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

NAMES = ("one", "two", "three", "four")
LONG = 600 * SECOND
PATIENCE_SECONDS = 20.0
PIN = re.compile(r"Nats-Pin-Id: ([^\r]+)")

Step = tuple[str, Any]
# Never two that could be served: whose turn it is then depends on when nats-server looks.
OVERFLOW: list[Step] = [
    ("one", {"batch": 9, "min_pending": 3}), ("publish", 2), ("publish", 1), ("publish", 3),
    ("two", {"min_ack_pending": 5}), ("three", {}), ("three", {}), ("publish", 1),
    ("two", {"min_pending": 90, "min_ack_pending": 2}), ("publish", 1),
    ("two", {"min_pending": 1, "min_ack_pending": 90}), ("publish", 1),
    ("two", {"min_pending": 2}), ("publish", 1), ("four", b"1"), ("publish", 2),
    ("one", {"no_wait": True, "expires": 0, "min_pending": 50}),
    ("one", {"no_wait": True, "expires": 0, "min_pending": 1}),
]  # fmt: skip
PINNED: list[Step] = [
    ("one", {"batch": 2}), ("two", {"batch": 3}), ("publish", 1), ("publish", 3),
    ("three", {"id": "nobody"}), ("three", {"id": "nobody", "group": "B"}), ("one", {"id": 1}),
    ("one", {"id": 1, "batch": 4}), ("publish", 1), ("unpin", "A"), ("info", None),
    ("publish", 1), ("info", None), ("one", {"id": 1}), ("publish", 1), ("unpin", "B"),
    ("three", {"group": "B", "batch": 2}), ("publish", 2), ("info", None), ("two", {"id": 2}),
    ("four", {"no_wait": True, "expires": 0}), ("publish", 2),
    ("four", {"no_wait": True, "expires": 0}), ("unpin", "A"), ("one", {"id": 3, "batch": 2}),
    ("four", {"no_wait": True, "expires": 0}), ("publish", 1), ("info", None),
]  # fmt: skip
PRIORITIZED: list[Step] = [
    ("one", {"batch": 3, "priority": 5}), ("two", {"batch": 3, "priority": 1}),
    ("three", {"batch": 3, "priority": 1}), ("publish", 4), ("four", {"batch": 2}),
    ("publish", 3), ("publish", 3), ("one", {"batch": 2, "priority": 9}), ("four", b"2"),
    ("publish", 3), ("two", {"batch": 2, "priority": 0}), ("publish", 3),
]  # fmt: skip
STORIES = {"overflow": OVERFLOW, "pinned_client": PINNED, "prioritized": PRIORITIZED}


class Teller:
    """Tells a story to one server."""

    def __init__(self, stack: ExitStack, port: int, policy: str) -> None:
        self._control = stack.enter_context(RawClient(port))
        self._clients = {name: stack.enter_context(RawClient(port)) for name in NAMES}
        self._pins: list[str] = []
        self._control.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {
            "durable_name": "c", "ack_policy": "explicit", "ack_wait": LONG,
            "priority_policy": policy, "priority_groups": ["A", "B"], "priority_timeout": LONG,
        }  # fmt: skip
        asked = {"stream_name": "S", "config": config}
        answer = self._control.api("CONSUMER.CREATE.S.c", asked)
        assert "error" not in answer, answer
        for name, client in self._clients.items():
            client.subscribe(f"in.{name}.>", 7)

    def tell(self, step: Step, told: Any = None) -> Any:
        """Take a step; the state of the consumer and what each client was sent since the last one.
        `told` is what is waited for."""
        what, detail = step
        if what == "publish":
            for _ in range(detail):
                assert self._control.request("s", b"x") is not None
        elif what == "unpin":
            answer = self._control.api("CONSUMER.UNPIN.S.c", {"group": detail})
            assert "error" not in answer, answer
        elif what != "info":
            self._ask(what, detail)
        deadline = time.monotonic() + PATIENCE_SECONDS
        sent: dict[str, list[Any]] = {name: [] for name in NAMES}
        while True:
            for name in NAMES:
                sent[name] += self._sent_to(name)
            found = (self._state(), sent)
            if told is None or found == told or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def _ask(self, name: str, request: Any) -> None:
        body = request
        if isinstance(request, dict):
            asked = {"batch": 1, "expires": LONG, "group": "A", **request}
            if isinstance(asked.get("id"), int):
                asked["id"] = self._pins[asked["id"] - 1]
            body = json.dumps(asked).encode()
        reply = f"in.{name}.x".encode()
        self._clients[name].publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=reply)

    def _sent_to(self, name: str) -> list[Any]:
        """What comes before messages that the client sends itself: the first is sent back in the
        turn that reads a request before it, the second after that turn has delivered."""
        client = self._clients[name]
        found = []
        for _ in range(2):
            client.publish(f"in.{name}.mark")
            while (message := client.next_message()).subject != f"in.{name}.mark":
                if message.subject.startswith("_INBOX."):
                    continue  # an answer to another connection, whose inboxes have the same names
                header = PIN.sub(lambda m: f"pin {self._number(m[1])}", message.header.decode())
                found.append((message.subject, header, message.reply.split(".")[4:7]))
        return found

    def _state(self) -> Any:
        found = self._control.api("CONSUMER.INFO.S.c")
        (group,) = found["priority_groups"]
        pin = group.get("pinned_client_id")
        counts = [found[f"num_{what}"] for what in ("waiting", "pending", "ack_pending")]
        return group["group"], pin and self._number(pin), counts

    def _number(self, pin: str) -> int:
        if pin not in self._pins:
            self._pins.append(pin)
        return self._pins.index(pin) + 1


@pytest.mark.timeout(180)
@pytest.mark.parametrize("policy", STORIES)
def test_each_client_of_a_group_is_served_as_by_nats_server(
    policy: str, jetstream_server: Server, nats_server: NatsServer
) -> None:
    story = STORIES[policy]
    with ExitStack() as stack:
        ours = Teller(stack, jetstream_server.port, policy)
        told = [ours.tell(step) for step in story]
        theirs = Teller(stack, nats_server.port, policy)
        for number, (step, expected) in enumerate(zip(story, told, strict=True)):
            assert expected == theirs.tell(step, expected), f"step {number}: {step}"
