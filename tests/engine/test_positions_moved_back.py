"""A stream that has lost what it had delivered gives those sequences to other messages.

The positions of its consumers are moved back at a start, and whatever happens then, nobody misses
the others.
"""

import json
from random import Random

import pytest

from slipstream.engine.protocol.options import AccountLimits
from slipstream.engine.session.account import Account
from slipstream.model.durations import SECOND
from slipstream.testing.driver import BEGIN, Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

KIB = 1024
LATE = 5  # messages at the end of the stream, which are lost


class Scene:
    """Stream S with consumers that have all of its messages out; then the power fails, and its last
    messages are lost."""

    def __init__(self, consumers: int, messages: int, log_bytes: int, settles: bool) -> None:
        self.names = [f"c{n:02}" for n in range(consumers)]
        self.log_bytes = log_bytes
        self.disk = SimulatedDisk(Random(1))
        self.now = BEGIN
        client = self.start()
        config = {"name": "S", "subjects": ["s"], "persist_mode": "async"}
        client.api("STREAM.CREATE.S", config)
        for name in self.names:
            client.api(f"CONSUMER.CREATE.S.{name}", durable(name))
        for _ in range(messages):
            client.store("s")
        self.driver.advance(30 * SECOND)
        [segment] = self.disk.files(".seg")
        end = len(self.disk.read(segment).rstrip(b"\0"))
        for _ in range(LATE):
            client.store("s")
        self.driver.advance(60 * SECOND)
        for name in self.names:
            asked = json.dumps({"batch": messages + LATE, "no_wait": True}).encode()
            client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", asked, client.inbox)
            assert len(client.take()) == messages + LATE
        self.driver.advance(60 * SECOND if settles else SECOND // 4)
        for name in ("x0", "x1", "x2", "x3"):  # something that the next start leaves
            client.ask(f"$JS.API.CONSUMER.CREATE.S.{name}", durable(name))
        self.disk.crash()
        size = len(self.disk.read(segment).rstrip(b"\0"))
        self.disk.overwrite(segment, end, bytes(size - end))

    def start(self) -> Client:
        """A server on what the disk has."""
        self.driver = Driver(self.disk, now=self.now, log_bytes=self.log_bytes).start()
        return self.driver.client()

    def start_again(self) -> Client:
        """The next one, a second later."""
        self.now = self.driver.clock.now + SECOND
        return self.start()

    def passed_over(self, client: Client) -> list[str]:
        """Who does not get all that is stored now, after another crash."""
        before = client.api("STREAM.INFO.S")["state"]["last_seq"]
        for _ in range(LATE):
            client.store("s")
        self.driver.advance(20 * SECOND)
        self.disk.crash()
        client = self.start_again()
        found = client.api("STREAM.INFO.S")["state"]["last_seq"] - before
        assert found == LATE
        infos = {name: client.api(f"CONSUMER.INFO.S.{name}") for name in self.names}
        return [name for name, info in infos.items() if info["num_pending"] < LATE]


def durable(name: str) -> dict[str, object]:
    """The request for a consumer that is kept."""
    config = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": 10_000}
    return {"stream_name": "S", "config": config}


@pytest.mark.parametrize(
    ("consumers", "messages"), [(4, 50), (40, 300), (1, 1700)], ids=["few", "many", "one large"]
)
def test_they_are_saved_also_where_the_log_has_no_room_for_them(
    consumers: int, messages: int
) -> None:
    scene = Scene(consumers, messages, 64 * KIB, settles=True)
    assert scene.passed_over(scene.start_again()) == []


def test_what_a_full_disk_refuses_is_saved_when_there_is_space() -> None:
    scene = Scene(5, 250, 64 * KIB, settles=False)
    scene.disk.capacity = scene.disk.used()
    client = scene.start_again()
    scene.disk.capacity = 1 << 40
    scene.driver.advance(SECOND)
    assert scene.passed_over(client) == []


@pytest.mark.parametrize("ms", [1000, 2001, 2010, 20_000])
def test_an_account_that_is_switched_on_amid_a_checkpoint_overrules_it(ms: int) -> None:
    disk = SimulatedDisk(Random(1))
    driver, account = with_account(disk, BEGIN, True)
    client = driver.client(account)
    config = {"name": "S", "subjects": ["s"], "persist_mode": "async"}
    client.api("STREAM.CREATE.S", config)
    names = [f"c{n:02}" for n in range(40)]
    for name in names:
        client.api(f"CONSUMER.CREATE.S.{name}", durable(name))
    driver.advance(20 * SECOND)
    for _ in range(LATE):
        client.store("s")
    for name in names:
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"5", client.inbox)
        assert len(client.take()) == LATE
    driver.advance(SECOND // 4)  # the positions are durable, and the messages are not
    disk.crash()
    driver, account = with_account(disk, driver.clock.now + SECOND, False)
    driver.advance(ms * 1_000_000)
    account.limits = AccountLimits()
    driver.engine.stop_account(account)
    driver.engine.start_account(account, driver.store)
    driver.finish()
    client = driver.client(account)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 0
    for _ in range(LATE):
        client.store("s")
    driver.advance(20 * SECOND)
    disk.crash()
    driver, account = with_account(disk, driver.clock.now + SECOND, True)
    client = driver.client(account)
    infos = [client.api(f"CONSUMER.INFO.S.{name}") for name in names]
    assert [info["num_pending"] for info in infos] == [LATE] * len(names)


def with_account(disk: SimulatedDisk, now: int, has_jetstream: bool) -> tuple[Driver, Account]:
    """A server that has an account A, with or without JetStream."""
    driver = Driver(disk, now=now)
    limits = AccountLimits() if has_jetstream else AccountLimits(jetstream=None)
    account = driver.engine.add_account("A", limits)
    driver.start()
    return driver, account
