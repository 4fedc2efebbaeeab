"""A consumer with an inactivity threshold is given up when its client has gone, and not before."""

from random import Random
from typing import Any

import pytest

from slipstream.testing.driver import Client, Driver
from slipstream.testing.simulated_disk import SimulatedDisk

from .conftest import MS, SECOND, Bench

ACK_WAIT = 30 * SECOND
NAMES: list[dict[str, Any]] = [
    {},
    {"durable_name": ""},  # an ephemeral one
    {"pause_until": "2100-01-01T00:00:00Z"},
]


def is_there(bench: Bench) -> bool:
    """Whether the consumer has not been given up."""
    return "c" in bench.driver.js.streams["S"].consumers


def leave(client: Client) -> None:
    """The client's connection ends."""
    client.session.gone("Client Closed")
    client.driver.finish()


@pytest.mark.parametrize("config", NAMES, ids=["durable", "ephemeral", "paused"])
def test_a_push_consumer_with_messages_out_does_not_outlive_its_client(
    bench: Bench, config: dict[str, Any]
) -> None:
    listener = bench.driver.client()
    listener.subscribe("to.me", 5)
    bench.publish("s.a", "s.b")
    asked = {"deliver_subject": "to.me", "ack_wait": ACK_WAIT, "inactive_threshold": 2 * SECOND}
    bench.consumer(name="c", **asked | config)
    if "pause_until" not in config:
        assert bench.info()["num_ack_pending"] == 2
    bench.advance(10 * SECOND)
    assert is_there(bench)
    leave(listener)
    bench.advance(2 * SECOND - MS)
    assert is_there(bench)
    bench.advance(2 * MS)
    assert not is_there(bench)


def test_an_acknowledgement_puts_off_the_end_of_a_push_consumer(bench: Bench) -> None:
    listener = bench.driver.client()
    listener.subscribe("to.me", 5)
    bench.publish("s.a", "s.b")
    bench.consumer(deliver_subject="to.me", inactive_threshold=2 * SECOND)
    first = next(message for message in listener.take() if message.sid == "5")
    leave(listener)
    bench.advance(SECOND)
    bench.ack(first)
    bench.advance(2 * SECOND - MS)
    assert is_there(bench)
    bench.advance(2 * MS)
    assert not is_there(bench)


def test_a_client_that_comes_back_in_time_keeps_its_push_consumer(bench: Bench) -> None:
    listener = bench.driver.client()
    listener.subscribe("to.me", 5)
    bench.publish("s.a")
    bench.consumer(deliver_subject="to.me", inactive_threshold=2 * SECOND)
    leave(listener)
    bench.advance(SECOND)
    bench.client.subscribe("to.me", 5)
    bench.advance(60 * SECOND)
    assert is_there(bench)


def test_a_push_consumer_counts_from_when_its_last_listener_left(bench: Bench) -> None:
    listener = bench.driver.client()
    listener.send(b"SUB to.me 5\r\nUNSUB 5 3\r\n")  # for three messages
    bench.consumer(deliver_subject="to.me", inactive_threshold=2 * SECOND)
    bench.advance(60 * SECOND)
    bench.publish("s.a", "s.b", "s.c")
    bench.advance(SECOND)
    assert is_there(bench)
    bench.advance(SECOND + MS)
    assert not is_there(bench)


def test_a_pull_consumer_waits_for_what_is_out(bench: Bench) -> None:
    bench.publish("s.a")
    bench.consumer(ack_wait=5 * SECOND, inactive_threshold=2 * SECOND)
    client = bench.driver.client()
    assert len(bench.pull(client=client)) == 1
    leave(client)
    bench.advance(12 * SECOND - MS)  # it is due, and waited for once more
    assert is_there(bench)
    bench.advance(2 * MS)
    assert not is_there(bench)


@pytest.mark.parametrize("expires", [0, 3600 * SECOND], ids=["no end", "long"])
def test_a_pull_consumer_does_not_outlive_a_client_whose_request_still_waits(
    bench: Bench, expires: int
) -> None:
    bench.consumer(inactive_threshold=2 * SECOND)
    client = bench.driver.client()
    bench.pull(client=client, expires=expires)
    bench.advance(60 * SECOND)
    assert is_there(bench)
    leave(client)
    bench.advance(5 * SECOND)
    assert not is_there(bench)


def test_a_threshold_near_zero_keeps_the_server_no_busier(bench: Bench) -> None:
    bench.consumer(inactive_threshold=1)
    bench.pull(client=bench.driver.client(), expires=0)
    looks = 0
    end = bench.driver.clock.now + SECOND
    while (due := bench.driver.engine.timers.next_at()) and due <= end:
        bench.driver.advance(max(due - bench.driver.clock.now, 1))
        looks += 1
    assert looks <= 20
    assert is_there(bench)


@pytest.mark.parametrize("deliver", [{}, {"deliver_subject": "to.me"}], ids=["pull", "push"])
@pytest.mark.parametrize("in_order", [True, False])
def test_after_a_restart_the_time_begins_anew_and_ends(
    deliver: dict[str, Any], in_order: bool
) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    durable = {
        "durable_name": "c",
        "ack_policy": "explicit",
        "ack_wait": 3 * SECOND,
        "inactive_threshold": 5 * SECOND,
        **deliver,
    }
    client.subscribe("to.me", 5)
    client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": durable})
    client.store("s.a")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", "to.me")
    driver.advance(2 * SECOND)
    if in_order:
        driver.stop()
    else:
        disk.crash()
    again = Driver(disk, now=driver.clock.now + 3600 * SECOND).start()
    again.advance(4 * SECOND)
    assert "c" in again.js.streams["S"].consumers
    again.advance(6 * SECOND)
    assert "c" not in again.js.streams["S"].consumers
