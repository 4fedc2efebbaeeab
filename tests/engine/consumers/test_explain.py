"""A consumer says why it does not deliver."""

import msgspec
import pytest

from slipstream.engine.consumer.explain import facts_of
from slipstream.model.times import time_text
from slipstream.model.why import Explanation, Facts, explain

from .conftest import MS, SECOND, Bench


def why(bench: Bench) -> Explanation:
    return explain(facts(bench))


def facts(bench: Bench) -> Facts:
    return facts_of(bench.engine_consumer())


def codes(bench: Bench) -> list[str]:
    """What keeps it from delivering."""
    return [reason.code for reason in why(bench).reasons if reason.blocks]


def text(bench: Bench, code: str) -> str:
    (found,) = [reason.text for reason in why(bench).reasons if reason.code == code]
    return found


def test_it_says_until_when_it_is_paused(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    until = bench.driver.clock.now + 90 * SECOND
    bench.client.api("CONSUMER.PAUSE.S.c", {"pause_until": time_text(until)})
    bench.pull(expires=60 * SECOND)
    assert codes(bench) == ["paused"]
    assert facts(bench).paused_until == until
    assert "(for 1m30s)" in text(bench, "paused")


def test_it_says_that_nobody_asks(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.advance(5 * SECOND)
    assert codes(bench) == ["nobody_asks"]
    assert "no client was heard for 5.00s" in text(bench, "nobody_asks")


def test_it_says_that_nothing_is_pending(bench: Bench) -> None:
    bench.consumer()
    bench.pull(expires=SECOND)
    assert codes(bench) == ["nothing_pending"]


def test_it_says_that_no_stored_subject_matches(bench: Bench) -> None:
    bench.consumer(filter_subject="s.nobody")
    bench.publish("s.a")
    bench.pull(expires=SECOND)
    assert codes(bench) == ["nothing_pending", "filter_matches_nothing"]
    assert facts(bench).unmatched_filters == ["s.nobody"]
    assert '"s.nobody" matches no subject' in text(bench, "filter_matches_nothing")


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ({"deliver_policy": "new"}, "deliver_new"),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 10}, "starts_later"),
    ],
)
def test_it_says_that_it_begins_with_what_is_still_to_be_published(
    bench: Bench, start: dict[str, str | int], reason: str
) -> None:
    bench.publish("s.a", "s.a")
    bench.consumer(**start)
    bench.pull(expires=SECOND)
    assert codes(bench) == ["nothing_pending", reason]
    assert "none of the 2 messages in stream S is for it" in text(bench, "nothing_pending")


def test_it_names_the_messages_that_fill_max_ack_pending_and_since_when(bench: Bench) -> None:
    bench.consumer(max_ack_pending=2)
    bench.publish("s.a", "s.a", "s.a", "s.a")
    begin = bench.driver.clock.now
    bench.pull(batch=4, expires=60 * SECOND)
    bench.advance(3 * SECOND)
    assert codes(bench) == ["max_ack_pending"]
    out = facts(bench).outstanding
    assert [(one.seq, one.subject, one.delivered) for one in out] == [
        (1, "s.a", begin),
        (2, "s.a", begin),
    ]
    assert text(bench, "max_ack_pending").count("delivered 3.00s ago") == 2
    assert text(bench, "pending") == "2 messages wait to be delivered."


def test_it_says_when_a_backoff_ends(bench: Bench) -> None:
    bench.consumer(backoff=[2 * SECOND, 9 * SECOND], max_deliver=5)
    bench.publish("s.a")
    bench.pull(batch=2, expires=60 * SECOND)
    assert codes(bench) == ["nothing_pending"]
    assert facts(bench).redelivery_at == bench.driver.clock.now + 2 * SECOND
    assert "when its backoff is over" in text(bench, "redelivery")
    assert "(in 2.00s)" in text(bench, "redelivery")


def test_it_names_messages_that_were_delivered_as_often_as_they_may_be(bench: Bench) -> None:
    bench.consumer(max_deliver=1, ack_wait=100 * MS)
    bench.publish("s.a", "s.b")
    bench.pull(batch=3, expires=60 * SECOND)
    bench.advance(SECOND)
    assert [one.seq for one in facts(bench).exhausted] == [1, 2]
    assert "2 messages have used up their only delivery" in text(bench, "max_deliver")


def test_it_says_that_more_requests_are_refused(bench: Bench) -> None:
    bench.consumer(max_waiting=1)
    bench.pull(expires=SECOND)
    assert "1 pull request waits, as many as may (max_waiting)" in text(bench, "max_waiting")


def test_it_says_that_nobody_listens_on_the_deliver_subject(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", deliver_group="workers")
    bench.publish("s.a")
    bench.client.subscribe("to.me", 5)  # not a member of the group
    assert codes(bench) == ["no_interest"]
    assert text(bench, "no_interest") == (
        'Nobody listens on its deliver subject "to.me" in queue group "workers".'
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


def test_what_is_due_again_is_delivered_although_nothing_new_is_pending(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.client.send(b"SUB held 77\r\n")
    (message,) = bench.pull(expires=60 * SECOND)
    bench.ack(message, b"-NAK")
    bench.engine_consumer().delivery.request(b"held", b"")
    assert facts(bench).due == 1
    assert why(bench).delivers
    assert text(bench, "pending") == "1 message waits to be delivered again."


def test_a_consumer_that_delivers_says_so(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.engine_consumer().delivery.request(b"_INBOX.t.pull", b"")
    assert why(bench).delivers
    assert [reason.code for reason in why(bench).reasons] == ["pending", "waiting"]


def test_the_answer_on_the_wire_has_reasons_and_facts(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    (message,) = bench.client.ask("$SLIPSTREAM.CONSUMER.EXPLAIN.S.c", b"")
    answer = msgspec.json.decode(message.body, type=Explanation)
    assert answer == why(bench)
    (message,) = bench.client.ask("$SLIPSTREAM.CONSUMER.EXPLAIN.S.nobody", b"")
    assert msgspec.json.decode(message.body)["error"]["err_code"] == 10014
