"""A turn that leaves what it stored to the next one to commit."""

from typing import Any

import pytest

from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

MILLISECOND = 1_000_000


def begin(disk: SimulatedDisk, **config: Any) -> tuple[Client, Client]:
    """Two clients of a server with a stream and a consumer; the second one has an inbox of its
    own."""
    publisher = Driver(disk).start().client()
    stream = {"name": "ORDERS", "subjects": ["orders.>"], **config}
    assert "error" not in publisher.api("STREAM.CREATE.ORDERS", stream)
    consumer = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    asked = {"stream_name": "ORDERS", "config": consumer}
    assert "error" not in publisher.api("CONSUMER.CREATE.ORDERS.c", asked)
    reader = publisher.driver.client()
    reader.send(b"UNSUB 1\r\nSUB reader 1\r\n")
    return publisher, reader


def pull(reader: Client) -> list[str]:
    """What comes to a request for a message that is there: bodies, and statuses."""
    reader.publish("$JS.API.CONSUMER.MSG.NEXT.ORDERS.c", b'{"batch":1,"no_wait":true}', "reader")
    return [message.status or message.body.decode() for message in reader.take()]


def test_what_was_acknowledged_at_once_is_there_for_whoever_asks_next(disk: SimulatedDisk) -> None:
    publisher, reader = begin(disk, persist_mode="async")
    publisher.driver.gathers = True
    assert publisher.store("orders.new", b"hi")["seq"] == 1
    assert pull(reader) == ["hi"]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_what_was_not_acknowledged_yet_is_not_delivered(disk: SimulatedDisk, storage: str) -> None:
    publisher, reader = begin(disk, storage=storage)
    publisher.driver.gathers = True
    assert publisher.ask("orders.new", b"hi") == []
    assert pull(reader) == ["404 No Messages"]
    publisher.driver.gathers = False
    publisher.driver.finish()
    assert [message.json()["seq"] for message in publisher.take()] == [1]
    assert pull(reader) == ["hi"]


def test_a_batch_knows_since_when_messages_wait_that_a_turn_has_left(disk: SimulatedDisk) -> None:
    publisher, _ = begin(disk)
    driver = publisher.driver
    driver.runner.hold()
    driver.gathers = True
    publisher.publish("orders.new", b"hi")
    stored_at = driver.clock.now
    driver.clock.now += MILLISECOND
    publisher.publish("orders.new", b"hi")
    driver.gathers = False
    driver.finish()
    job: Any = driver.runner.waiting[0].job
    assert job.since == stored_at
