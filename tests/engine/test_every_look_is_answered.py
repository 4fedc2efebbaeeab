"""Whoever looks at streams and consumers is answered once, whatever goes on or ends meanwhile."""

import json
from random import Random

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

STREAMS = ("S", "T")
CONSUMERS = {"c": {}, "f": {"filter_subject": "f.>"}}
LOOKS = (
    "STREAM.INFO.{}", "CONSUMER.INFO.{}.c", "CONSUMER.INFO.{}.f", "STREAM.LIST", "STREAM.NAMES",
    "CONSUMER.LIST.{}", "CONSUMER.NAMES.{}", "INFO",
)  # fmt: skip
FAILING = ("sync", "append", "open", "rename", "sync_dir", "reserve")


class Desk:
    """A client that changes and looks at what there is, and counts the answers to its looks."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed))
        self.client: Client = Driver(self.disk).start().client()
        self.driver = self.client.driver
        self.asked = self.answered = 0
        self._acks: list[str] = []
        self.client.subscribe("_INBOX.f", 7)
        for name in STREAMS:
            self.create_stream(name)
            for consumer in CONSUMERS:
                self.create_consumer(name, consumer)
        self.driver.advance(5 * SECOND)
        self.driver.runner.hold()

    def api(self, subject: str, body: object = None, reply: str = "") -> None:
        """A request whose answer is not counted, unless `reply` is where looks are answered."""
        data = b"" if body is None else json.dumps(body).encode()
        self.client.publish("$JS.API." + subject, data, reply)

    def create_stream(self, name: str) -> None:
        """Have it created, if it is not there."""
        subjects = [f"a.{name}", f"f.{name}"]
        self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects})
        self.driver.make_places()

    def create_consumer(self, stream: str, name: str) -> None:
        """Have it created, if it is not there."""
        config = {"durable_name": name, "ack_policy": "explicit"} | CONSUMERS[name]
        self.api(
            f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
        )

    def look(self, stream: str) -> None:
        """Ask for something that shows what there is."""
        self.asked += 1
        self.api(self.random.choice(LOOKS).format(stream), None, f"_INBOX.t.look{self.asked}")

    def act(self, stream: str) -> None:
        """Change something."""
        choose = self.random.choice
        consumer = choose(list(CONSUMERS))
        actions = {
            "STREAM.PURGE.{0}": 4, "CONSUMER.MSG.NEXT.{0}.{1}": 4, "STREAM.MSG.DELETE.{0}": 2,
            "STREAM.DELETE.{0}": 2, "CONSUMER.DELETE.{0}.{1}": 4, "CONSUMER.RESET.{0}.{1}": 2,
            "create stream": 4, "create consumer": 4, "publish": 14, "acknowledge": 7,
        }  # fmt: skip
        (action,) = self.random.choices(list(actions), list(actions.values()))
        if action == "create stream":
            self.create_stream(stream)
        elif action == "create consumer":
            self.create_consumer(stream, consumer)
        elif action == "publish":
            self.client.publish(f"{choose('af')}.{stream}", b"x" * choose((3, 3_000, 30_000)))
        elif action == "acknowledge":
            if self._acks:
                self.client.publish(self._acks.pop(), b"+ACK", choose(("", "_INBOX.t.ack")))
        else:
            body = {"seq": self.random.randrange(1, 9)} if "MSG.DELETE" in action else None
            reply = "_INBOX.f" if "NEXT" in action else ""
            self.api(action.format(stream, consumer), body, reply)

    def step(self) -> None:
        """The disk does some of what it was asked for, or time passes."""
        if self.random.random() < 0.1:
            self.driver.advance(self.random.choice((SECOND // 10, SECOND, 4 * SECOND)))
        for _ in range(self.random.randrange(1, 4)):
            self.driver.runner.step(self.random.random() < 0.3)
            self.driver.finish()

    def take(self) -> None:
        """Count what has come."""
        for message in self.client.take():
            self.answered += message.subject.startswith("_INBOX.t.look")
            if message.reply.startswith("$JS.ACK"):
                self._acks.append(message.reply)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_every_look_is_answered_once(seed: int, fails: bool) -> None:
    desk = Desk(seed)
    chance = desk.random
    for _ in range(120):
        (do,) = chance.choices((desk.look, desk.act), (3, 5))
        do(chance.choice(STREAMS))
        if chance.random() < 0.3:
            desk.step()
        if fails and chance.random() < 0.01:
            desk.disk.fail(chance.choice(FAILING), chance.choice((1, 3)))
        desk.take()
    for _ in range(40):
        while desk.driver.runner.step():
            desk.driver.finish()
        desk.driver.advance(SECOND)
        desk.driver.make_places()
        desk.take()
    assert desk.answered == desk.asked
