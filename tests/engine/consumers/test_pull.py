"""What a pull request gets: messages, and statuses byte for byte
(docs/protocol/consumers.md#pull-requests)."""

import pytest

from .conftest import MS, SECOND, Bench, sequences, statuses


def test_messages_come_under_their_stored_subject_with_the_acknowledgement_as_reply(
    bench: Bench,
) -> None:
    bench.consumer()
    bench.publish("s.a", "s.b")
    now = bench.driver.clock.now
    found = bench.pull(batch=2)
    assert [(m.subject, m.reply) for m in found] == [
        ("s.a", f"$JS.ACK.S.c.1.1.1.{now}.1"),
        ("s.b", f"$JS.ACK.S.c.1.2.2.{now}.0"),
    ]


@pytest.mark.parametrize(
    ("body", "delivered"), [(b"", 1), (b"3", 3), (b"0", 1), (b"many", 1), (b'{"batch":2}', 2)]
)
def test_a_request_may_be_empty_a_number_json_or_anything(
    bench: Bench, body: bytes, delivered: int
) -> None:
    bench.consumer()
    bench.publish("s.a", "s.a", "s.a", "s.a")
    bench.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, "_INBOX.t.x")
    assert len(bench.client.take()) == delivered


PULL_FIELDS = (
    "batch", "expires", "no_wait", "max_bytes", "idle_heartbeat", "group", "min_pending",
    "min_ack_pending", "id", "priority",
)  # fmt: skip


@pytest.mark.parametrize("field", PULL_FIELDS)
def test_null_in_a_request_means_that_the_field_is_absent(bench: Bench, field: str) -> None:
    bench.consumer()
    bench.publish("s.a", "s.b")
    [first] = bench.pull(**{field: None})
    assert first.subject == "s.a"
    bench.client.publish(first.reply, b'+NXT {"%b":null}' % field.encode(), "_INBOX.t.next")
    assert [m.subject for m in bench.client.take()] == ["s.b"]


def test_names_in_a_request_have_no_case_and_unknown_ones_are_ignored(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a", "s.a", "s.a")
    bench.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"Batch":2,"later":null}', "_INBOX.t.x")
    assert len(bench.client.take()) == 2


def test_a_request_without_a_reply_subject_is_ignored(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c")
    assert bench.info()["num_waiting"] == 0


def test_who_asks_a_consumer_that_is_not_there_hears_that_nobody_responds(bench: Bench) -> None:
    [answer] = bench.client.ask("$JS.API.CONSUMER.MSG.NEXT.S.nobody")
    assert answer.header == (
        b"NATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.S.nobody\r\n\r\n"
    )


def test_no_wait_with_nothing_pending_is_answered_at_once(bench: Bench) -> None:
    bench.consumer()
    [answer] = bench.pull(batch=5, no_wait=True)
    assert answer.header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_no_wait_takes_what_is_there_and_ends(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a", "s.a")
    found = bench.pull(batch=5, no_wait=True)
    assert sequences(found) == [1, 2]
    assert statuses(found) == ["404 No Messages"]


def test_no_wait_with_expires_waits_for_the_first_message_only(bench: Bench) -> None:
    bench.consumer()
    assert bench.pull(batch=5, no_wait=True, expires=SECOND) == []
    bench.client.publish("s.a", b"x")
    found = bench.client.take()
    assert sequences(found) == [1]
    assert statuses(found) == ["404 No Messages"]


def test_no_wait_behind_requests_that_want_more_than_there_is_is_turned_away(bench: Bench) -> None:
    bench.consumer(max_ack_pending=1)
    bench.publish("s.a", "s.a", "s.a")
    bench.pull(batch=10, expires=60 * SECOND)
    [answer] = bench.pull(batch=1, no_wait=True)
    assert answer.header == b"NATS/1.0 408 Requests Pending\r\n\r\n"


def test_a_full_consumer_keeps_no_wait_requests_waiting(bench: Bench) -> None:
    bench.consumer(max_ack_pending=2)
    bench.publish("s.a", "s.a", "s.a")
    found = bench.pull(batch=5, no_wait=True)
    assert (sequences(found), statuses(found)) == ([1, 2], [])
    bench.client.publish(found[0].reply, b"+ACK")
    assert sequences(bench.client.take()) == [3]


def test_an_expired_request_says_how_much_it_did_not_get(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    assert sequences(bench.pull(batch=4, max_bytes=1000, expires=SECOND)) == [1]
    size = len("s.a" + f"$JS.ACK.S.c.1.1.1.{bench.driver.clock.now}.0" + "x")
    [answer] = bench.advance(SECOND)
    assert answer.header == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n"
        b"Nats-Pending-Bytes: %d\r\n\r\n" % (1000 - size)
    )


def test_a_message_that_does_not_fit_ends_the_request(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a", body=b"x" * 200)
    [answer] = bench.pull(batch=2, max_bytes=100)
    assert answer.header == (
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 2\r\n"
        b"Nats-Pending-Bytes: 100\r\n\r\n"
    )
    assert bench.info()["num_pending"] == 1


def test_a_full_batch_with_bytes_to_spare_is_reported(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a", body=b"x" * 10)
    found = bench.pull(batch=1, max_bytes=1000)
    assert statuses(found) == ["409 Batch Completed"]
    assert found[1].fields["Nats-Pending-Messages"] == "0"


def test_who_does_not_want_to_wait_and_has_messages_is_done_at_the_first_heartbeat(
    bench: Bench,
) -> None:
    bench.consumer(max_ack_pending=1)
    bench.publish("s.a", "s.a")
    asked = {"batch": 2, "no_wait": True, "expires": 2 * SECOND, "idle_heartbeat": SECOND // 2}
    assert sequences(bench.pull(**asked)) == [1]
    assert bench.advance(499 * MS) == []
    [end] = bench.advance(1501 * MS)
    assert end.header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_who_does_not_want_to_wait_and_has_nothing_gets_heartbeats(bench: Bench) -> None:
    bench.consumer(max_ack_pending=1)
    bench.publish("s.a", "s.a")
    bench.pull()
    asked = {"batch": 2, "no_wait": True, "expires": SECOND, "idle_heartbeat": SECOND // 2}
    assert bench.pull(**asked) == []
    assert statuses(bench.advance(2 * SECOND)) == ["100 Idle Heartbeat", "408 Request Timeout"]


def test_a_server_that_stops_says_so_to_all_who_wait_and_how_much_they_did_not_get(
    bench: Bench,
) -> None:
    bench.stream(storage="file")
    bench.consumer()
    bench.consumer("m", mem_storage=True)
    bench.publish("s.a")
    assert sequences(bench.pull(batch=3, expires=SECOND)) == [1]
    bench.pull("m", batch=1)
    bench.pull("m", batch=5, no_wait=True, expires=SECOND, max_bytes=1000)
    bench.driver.engine.dismiss()
    bench.driver.finish()
    found = [(m.status, m.fields) for m in bench.client.take()]
    assert all(status == "409 Server Shutdown" for status, _ in found)
    assert [tuple(fields.values()) for _, fields in found] == [("2", "0"), ("5", "1000")]


def test_heartbeats_come_while_nothing_else_does(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a")
    bench.pull(batch=3, expires=SECOND, idle_heartbeat=300 * MS)
    found = bench.advance(650 * MS)
    assert [m.header for m in found] == 2 * [
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("asked", "config", "status"),
    [
        ({"expires": SECOND, "idle_heartbeat": 600 * MS}, {},
         "400 Bad Request - heartbeat value too large"),
        ({"batch": 11}, {"max_batch": 10}, "409 Exceeded MaxRequestBatch of 10"),
        ({"expires": 2 * SECOND}, {"max_expires": SECOND}, "409 Exceeded MaxRequestExpires of 1s"),
        ({"max_bytes": 101}, {"max_bytes": 100}, "409 Exceeded MaxRequestMaxBytes of 100"),
        ({"priority": 10}, {}, "400 Bad Request - Priority must be between 0 and 9"),
        ({"min_pending": 1}, {}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"id": "me"}, {}, "400 Bad Request - Not a Pinned Client Priority consumer"),
    ],
)  # fmt: skip
def test_requests_that_ask_too_much_are_refused(
    bench: Bench, asked: dict[str, int], config: dict[str, int], status: str
) -> None:
    bench.consumer(**config)
    [answer] = bench.pull(**asked)
    assert answer.header == f"NATS/1.0 {status}\r\n\r\n".encode()


def test_more_requests_than_max_waiting_are_refused_unless_they_have_heartbeats(
    bench: Bench,
) -> None:
    bench.consumer(max_waiting=1)
    bench.pull(expires=SECOND)
    [answer] = bench.pull(expires=SECOND)
    assert answer.header == b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
    assert bench.pull(expires=SECOND, idle_heartbeat=200 * MS) == []


def test_requests_are_served_in_turn(bench: Bench) -> None:
    bench.consumer()
    one, two = bench.driver.client(), bench.driver.client()
    bench.pull(client=one, batch=2, expires=SECOND)
    bench.pull(client=two, batch=2, expires=SECOND)
    bench.publish("s.a", "s.b", "s.c", "s.d")
    assert (sequences(one.take()), sequences(two.take())) == ([1, 3], [2, 4])


def test_a_request_whose_inbox_nobody_listens_to_is_dropped_without_a_word(bench: Bench) -> None:
    bench.consumer()
    bench.pull(batch=2)
    bench.client.send(f"UNSUB {1000 + bench.pulls}\r\n".encode())
    bench.pull(batch=1)
    bench.client.publish("s.a", b"x")
    assert [m.sid for m in bench.client.take()] == [str(1000 + bench.pulls)]
    assert bench.info()["num_waiting"] == 0


def test_a_deleted_consumer_says_so_to_those_who_wait(bench: Bench) -> None:
    bench.consumer()
    bench.pull(batch=3, expires=SECOND)
    bench.client.publish("$JS.API.CONSUMER.DELETE.S.c")
    [answer] = bench.client.take()
    assert answer.header == b"NATS/1.0 409 Consumer Deleted\r\n\r\n"


def test_a_client_that_falls_behind_does_not_hold_up_others(bench: Bench) -> None:
    bench.consumer()
    slow, quick = bench.driver.client(), bench.driver.client()
    bench.pull(client=slow, batch=100, expires=60 * SECOND)
    slow.transport.backlog = 1 << 25
    for _ in range(4):
        bench.publish("s.a", body=b"x" * 100_000)
    held = sequences(slow.take())
    held += sequences(bench.pull(client=quick, batch=100, expires=60 * SECOND))
    bench.publish("s.a", "s.a")
    assert held + sequences(quick.take()) == [1, 2, 3, 4, 5, 6]
    assert bench.info()["num_waiting"] == 2
    slow.transport.backlog = 0
    slow.session.drained()
    bench.publish("s.a", "s.a")
    assert (len(sequences(slow.take())), len(sequences(quick.take()))) == (1, 1)


def test_a_stream_tells_only_those_of_a_message_who_can_take_it(bench: Bench) -> None:
    for name in ("idle", "waiting", "also_idle"):
        bench.consumer(name)
    bench.pull("waiting", batch=3)
    stream = bench.driver.js.streams["S"]
    assert [consumer.name for consumer in stream.awaiting_next] == ["waiting"]
    bench.publish("s.a")
    assert [consumer.name for consumer in stream.awaiting_next] == ["waiting"]
    assert [bench.info(name)["num_pending"] for name in ("idle", "waiting")] == [1, 0]


def test_a_consumer_at_rest_counts_what_came_and_went_when_it_is_asked(bench: Bench) -> None:
    bench.consumer()
    bench.publish("s.a", "s.a", "s.b")
    bench.client.api("STREAM.MSG.DELETE.S", {"seq": 2})
    bench.publish("s.c")
    bench.client.api("STREAM.MSG.DELETE.S", {"seq": 4})
    assert bench.info()["num_pending"] == 2
    bench.publish("s.d")
    assert sequences(bench.pull(batch=5)) == [1, 3, 5]


def test_a_full_consumer_is_told_of_nothing_until_it_has_room(bench: Bench) -> None:
    bench.consumer(max_ack_pending=1)
    bench.publish("s.a")
    [first] = bench.pull(batch=3)
    stream = bench.driver.js.streams["S"]
    assert stream.awaiting_next == []
    bench.publish("s.b")
    bench.client.publish(first.reply)
    assert sequences(bench.client.take()) == [2]


def test_who_does_not_want_to_wait_waits_for_the_pace_of_a_replay(bench: Bench) -> None:
    bench.publish("s.a")
    bench.driver.advance(SECOND)
    bench.publish("s.a")
    bench.consumer(replay_policy="original")
    assert sequences(bench.pull(batch=3, no_wait=True)) == [1]
    later = bench.advance(1010 * MS)
    assert sequences(later) == [2]
    assert statuses(later) == ["404 No Messages"]
