"""Acknowledgements of all kinds, and what they leave in a consumer's books
(docs/protocol/consumers.md#acknowledgements)."""

from random import Random

import pytest

from slipstream.testing.driver import Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk

from .conftest import MS, SECOND, Bench, sequences


def floor(bench: Bench) -> tuple[int, int]:
    at = bench.info()["ack_floor"]
    return at["consumer_seq"], at["stream_seq"]


def take(bench: Bench, count: int) -> list[Message]:
    bench.publish(*["s.a"] * count)
    return bench.pull(batch=count, expires=3600 * SECOND)


@pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK"])
def test_the_floor_follows_acknowledgements_without_gaps(bench: Bench, body: bytes) -> None:
    bench.consumer()
    messages = take(bench, 3)
    bench.ack(messages[1], body)
    assert floor(bench) == (0, 0)
    bench.ack(messages[0], body)
    assert floor(bench) == (2, 2)
    bench.ack(messages[2], body)
    assert floor(bench) == (3, 3)
    assert bench.info()["num_ack_pending"] == 0


def test_all_acknowledges_everything_before(bench: Bench) -> None:
    bench.consumer(ack_policy="all")
    messages = take(bench, 4)
    bench.ack(messages[2])
    assert (floor(bench), bench.info()["num_ack_pending"]) == ((3, 3), 1)


@pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK", b"-NAK", b"+WPI", b"+TERM", b"what?"])
def test_an_acknowledgement_that_is_a_request_is_answered_with_nothing(
    bench: Bench, body: bytes
) -> None:
    bench.consumer()
    [message] = take(bench, 1)
    [answer] = bench.ack(message, body)
    assert (answer.header, answer.body, answer.reply) == (b"", b"", "")


def test_acknowledging_twice_is_answered_again_and_changes_nothing(bench: Bench) -> None:
    bench.consumer()
    messages = take(bench, 2)
    assert len(bench.ack(messages[0])) == 1
    before = bench.info()
    assert len(bench.ack(messages[0])) == 1
    assert bench.info()["ack_floor"] == before["ack_floor"]


def test_what_was_not_delivered_can_not_be_acknowledged(bench: Bench) -> None:
    bench.consumer()
    [message] = take(bench, 1)
    ahead = message.reply.replace(".1.1.1.", ".1.7.7.")
    assert bench.client.ask(ahead, b"+ACK") == []
    assert bench.info()["num_ack_pending"] == 1


def test_a_negative_acknowledgement_brings_the_message_again_at_once(bench: Bench) -> None:
    bench.consumer()
    first, _ = take(bench, 2)
    bench.client.publish(first.reply, b"-NAK")
    [again] = bench.pull()
    assert again.reply.startswith("$JS.ACK.S.c.2.1.3.")
    assert bench.info()["num_redelivered"] == 1


@pytest.mark.parametrize(
    "body",
    [b'-NAK {"delay": 2000000000}', b'-NAK {"Delay":2000000000,"x":null}', b"-NAK 2s"],
)
def test_a_negative_acknowledgement_may_ask_for_a_delay(bench: Bench, body: bytes) -> None:
    bench.consumer(ack_wait=SECOND)
    [message] = take(bench, 1)
    bench.client.publish(message.reply, body)
    bench.pull(expires=60 * SECOND)
    assert bench.advance(1999 * MS) == []
    assert sequences(bench.advance(10 * MS)) == [1]


def test_messages_wait_ack_wait_and_come_again_in_order(bench: Bench) -> None:
    bench.consumer(ack_wait=SECOND)
    take(bench, 3)
    bench.pull(batch=3, expires=60 * SECOND)
    assert bench.advance(999 * MS) == []
    assert sequences(bench.advance(2 * MS)) == [1, 2, 3]


def test_a_deadline_is_kept_though_the_next_thing_to_watch_comes_later(bench: Bench) -> None:
    bench.consumer(ack_wait=200 * MS)
    bench.pull(batch=9, expires=60 * SECOND)  # its end is what the timer stands at
    bench.publish("s.a")
    assert sequences(bench.client.take()) == []  # taken by `store`
    assert sequences(bench.advance(250 * MS)) == [1]


def test_progress_begins_the_wait_anew(bench: Bench) -> None:
    bench.consumer(ack_wait=SECOND)
    [message] = take(bench, 1)
    bench.pull(expires=60 * SECOND)
    bench.advance(800 * MS)
    bench.client.publish(message.reply, b"+WPI")
    assert bench.advance(800 * MS) == []
    assert sequences(bench.advance(300 * MS)) == [1]


def test_backoff_sets_the_wait_of_each_delivery(bench: Bench) -> None:
    bench.consumer(backoff=[100 * MS, 500 * MS], max_deliver=4)
    take(bench, 1)
    bench.pull(batch=9, expires=60 * SECOND)
    assert bench.advance(90 * MS) == []
    assert sequences(bench.advance(20 * MS)) == [1]
    assert bench.advance(480 * MS) == []
    assert sequences(bench.advance(30 * MS)) == [1]
    assert sequences(bench.advance(510 * MS)) == [1]
    assert bench.advance(5 * SECOND) == []


def test_a_message_given_up_is_advised_once_and_frees_its_place(bench: Bench) -> None:
    bench.consumer(max_deliver=1, max_ack_pending=1, ack_wait=SECOND)
    bench.client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", 8)
    bench.publish("s.a", "s.b")
    bench.pull(batch=2, expires=60 * SECOND)
    came = bench.advance(1100 * MS)
    [advisory] = [m.json() for m in came if "ADVISORY" in m.subject]
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.max_deliver"
    assert (advisory["stream_seq"], advisory["deliveries"]) == (1, 1)
    assert sequences(came) == [2]
    assert floor(bench) == (0, 0)


def test_a_terminated_message_never_comes_again_and_the_reason_is_told(bench: Bench) -> None:
    bench.consumer(ack_wait=SECOND)
    bench.client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", 8)
    [message] = take(bench, 1)
    bench.client.publish(message.reply, b"+TERM  no good ")
    [advisory] = [m.json() for m in bench.client.take()]
    assert (advisory["reason"], advisory["consumer_seq"], advisory["deliveries"]) == (
        "no good",
        1,
        1,
    )
    bench.pull(expires=60 * SECOND)
    assert bench.advance(5 * SECOND) == []


def test_an_acknowledgement_may_ask_for_the_next_message(bench: Bench) -> None:
    bench.consumer()
    [message] = take(bench, 1)
    bench.publish("s.b", "s.c", "s.d")
    assert sequences(bench.ack(message, b"+NXT")) == []
    bench.client.publish(message.reply, b'+NXT {"batch": 2}', "_INBOX.t.more")
    assert [m.subject for m in bench.client.take()] == ["s.c", "s.d"]


def test_a_message_that_is_deleted_while_it_is_out_is_settled(bench: Bench) -> None:
    bench.consumer(max_ack_pending=1)
    bench.publish("s.a", "s.b")
    bench.pull(batch=2, expires=60 * SECOND)
    bench.client.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1}')
    assert sequences(bench.client.take()) == [2]
    assert floor(bench) == (1, 1)


def test_sampled_acknowledgements_are_measured(bench: Bench) -> None:
    bench.consumer(sample_freq="100%")
    bench.client.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.S.c", 8)
    [message] = take(bench, 1)
    bench.driver.advance(70 * MS)
    bench.client.publish(message.reply, b"+ACK")
    [metric] = [m.json() for m in bench.client.take()]
    assert metric["ack_time"] == 70 * MS
    assert (metric["stream_seq"], metric["consumer_seq"], metric["deliveries"]) == (1, 1, 1)


def test_a_stream_that_becomes_an_interest_stream_lets_go_of_what_is_acknowledged(
    bench: Bench,
) -> None:
    bench.consumer()
    messages = take(bench, 2)
    changed = {"name": "S", "subjects": ["s.>"], "storage": "memory", "retention": "interest"}
    assert "error" not in bench.client.api("STREAM.UPDATE.S", changed)
    bench.ack(messages[0])
    assert bench.client.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_double_ack_that_cannot_be_saved_is_not_answered() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    client.store("s")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", "_INBOX.t.pull")
    (message,) = client.take()
    driver.advance(SECOND)
    disk.fail("sync")
    assert client.ask(message.reply, b"+ACK") == []
    driver.advance(SECOND)
    assert client.take() == []
    assert any("could not be saved" in problem for problem in driver.js.problems)
    disk.crash()
    after = Driver(disk).start().client()
    assert after.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 0
    assert after.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 1


def test_filters_that_leave_out_what_is_out_settle_what_an_interest_stream_lets_go(
    bench: Bench,
) -> None:
    bench.stream(retention="interest")
    bench.consumer()
    bench.publish("s.a", "s.b")
    assert sequences(bench.pull(batch=2, no_wait=True)) == [1, 2]
    info = bench.consumer(filter_subject="s.b")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (1, 1)
