"""A consumer says why it does not deliver."""

from typing import Any

from slipstream.engine.consumer.explain import Explanation, explain
from slipstream.model.times import time_text

from .conftest import MS, SECOND, Bench


def why(bench: Bench) -> Explanation:
    return explain(bench.engine_consumer())


def codes(bench: Bench) -> list[str]:
    return [reason.code for reason in why(bench).reasons]


def facts(bench: Bench) -> dict[str, Any]:
    return why(bench).reasons[0].facts


def test_it_says_until_when_it_is_paused(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    until = bench.driver.clock.now + 90 * SECOND
    bench.client.api("CONSUMER.PAUSE.S.c", {"pause_until": time_text(until)})
    bench.pull(expires=60 * SECOND)
    assert codes(bench) == ["paused"]
    assert facts(bench) == {"until": until, "remaining": 90 * SECOND}
    assert "1m30s from now" in why(bench).sentence


def test_it_says_that_nobody_asks(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.advance(5 * SECOND)
    assert codes(bench) == ["no_request"]
    assert "nothing was heard for 5s" in why(bench).sentence


def test_it_says_that_nothing_is_pending(bench: Bench) -> None:
    bench.consumer()
    bench.pull(expires=SECOND)
    assert codes(bench) == ["nothing_pending"]


def test_it_says_that_no_stored_subject_matches(bench: Bench) -> None:
    bench.consumer(filter_subject="s.nobody")
    bench.publish("s.a")
    bench.pull(expires=SECOND)
    assert codes(bench) == ["no_match"]
    assert why(bench).sentence == "No stored subject matches s.nobody."


def test_it_names_the_messages_that_fill_max_ack_pending_and_since_when(bench: Bench) -> None:
    bench.consumer(max_ack_pending=2)
    bench.publish("s.a", "s.a", "s.a", "s.a")
    begin = bench.driver.clock.now
    bench.pull(batch=4, expires=60 * SECOND)
    bench.advance(3 * SECOND)
    assert codes(bench) == ["max_ack_pending"]
    assert facts(bench) == {"max_ack_pending": 2, "since": begin, "sequences": [1, 2]}
    assert "1, 2 are not acknowledged, the oldest delivered 3s ago; 2 more" in why(bench).sentence


def test_it_says_when_a_backoff_ends(bench: Bench) -> None:
    bench.consumer(backoff=[2 * SECOND, 9 * SECOND], max_deliver=5)
    bench.publish("s.a")
    bench.pull(batch=2, expires=60 * SECOND)
    assert codes(bench) == ["ack_wait"]
    assert facts(bench)["until"] == bench.driver.clock.now + 2 * SECOND
    assert "(backoff)" in why(bench).sentence


def test_it_names_messages_that_were_delivered_as_often_as_they_may_be(bench: Bench) -> None:
    bench.consumer(max_deliver=1, ack_wait=100 * MS)
    bench.publish("s.a", "s.b")
    bench.pull(batch=3, expires=60 * SECOND)
    bench.advance(SECOND)
    assert why(bench).exhausted == [1, 2]
    assert "2 messages reached max_deliver: 1, 2." in why(bench).sentence


def test_it_says_that_more_requests_are_refused(bench: Bench) -> None:
    bench.consumer(max_waiting=1)
    bench.pull(expires=SECOND)
    assert why(bench).refuses_requests
    assert "max_waiting of 1 is reached" in why(bench).sentence


def test_it_says_that_nobody_listens_on_the_deliver_subject(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", deliver_group="workers")
    bench.publish("s.a")
    bench.client.subscribe("to.me", 5)  # not a member of the group
    assert codes(bench) == ["no_interest"]
    assert why(bench).sentence.startswith(
        "Nobody listens on to.me as a member of the queue group workers."
    )


def test_it_says_that_what_is_pending_is_not_on_disk_yet(bench: Bench) -> None:
    bench.consumer()
    bench.driver.runner.hold()
    bench.client.publish("s.a", b"x", "_INBOX.t.ack")
    consumer = bench.engine_consumer()
    consumer.stream.visible_seq = 0
    consumer.next_seq = 1
    consumer.recount()
    consumer.delivery.request(b"_INBOX.t.pull", b'{"expires":1000000000}')
    assert "syncing" in codes(bench)


def test_a_consumer_that_delivers_says_so_and_as_json(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    consumer = bench.engine_consumer()
    consumer.delivery.request(b"_INBOX.t.pull", b"")
    shown = explain(consumer).as_json()
    assert shown["delivers"] is True
    assert shown["sentence"] == "It delivers: 1 messages are ready to go."
    assert (shown["num_pending"], shown["num_waiting"], shown["reasons"]) == (1, 1, [])
