"""Push consumers: interest, groups, heartbeats, flow control, rates
(docs/protocol/consumers.md#push)."""

from .conftest import MS, SECOND, Bench, sequences, statuses


def test_delivery_begins_with_interest_and_rests_without(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", ack_policy="none")
    bench.publish("s.a", "s.b")
    assert "push_bound" not in bench.info()
    bench.client.subscribe("to.me", 5)
    assert [(m.subject, m.sid) for m in bench.client.take()] == [("s.a", "5"), ("s.b", "5")]
    assert bench.info()["push_bound"] is True
    bench.client.send(b"UNSUB 5\r\n")
    bench.publish("s.c")
    assert bench.info()["num_pending"] == 1
    bench.client.subscribe("to.me", 6)
    assert sequences(bench.client.take()) == [3]


def test_a_group_shares_what_is_delivered_and_others_get_nothing(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.us", deliver_group="workers", ack_policy="none")
    one, two = bench.driver.client(), bench.driver.client()
    bench.client.subscribe("to.us", 5)
    one.send(b"SUB to.us workers 5\r\n")
    two.send(b"SUB to.us workers 5\r\n")
    for _ in range(40):
        bench.client.publish("s.a", b"x")
    taken = sequences(one.take()), sequences(two.take())
    assert sorted(taken[0] + taken[1]) == list(range(1, 41))
    assert all(taken)


def test_who_pulls_from_a_push_consumer_is_told(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me")
    [answer] = bench.pull()
    assert answer.header == b"NATS/1.0 409 Consumer is push based\r\n\r\n"


def test_heartbeats_come_when_nothing_else_does(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", idle_heartbeat=200 * MS)
    bench.client.subscribe("to.me", 5)
    bench.client.publish("s.a", b"x")
    bench.client.take()
    found = bench.advance(450 * MS)
    assert [m.header for m in found] == 2 * [
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    ]
    assert {m.reply for m in found} == {""}


def test_flow_control_asks_at_half_the_window_and_stops_at_its_end(bench: Bench) -> None:
    bench.consumer(
        deliver_subject="to.me", flow_control=True, idle_heartbeat=SECOND, ack_policy="none"
    )
    for _ in range(40):
        bench.publish("s.a", body=b"x" * 100_000)
    bench.client.subscribe("to.me", 5)
    found = bench.client.take()
    [asked] = [m for m in found if m.header]
    assert asked.header == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert asked.reply.startswith("$JS.FC.S.c.")
    assert len(sequences(found)) == 21  # the window is 2 MiB
    [beat] = bench.advance(1001 * MS)
    assert beat.fields["Nats-Consumer-Stalled"] == asked.reply
    bench.client.publish(asked.reply)
    assert len(sequences(bench.client.take())) >= 10


def test_a_rate_limit_spaces_messages_out(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", rate_limit_bps=80_000, ack_policy="none")
    bench.publish(*["s.a"] * 5, body=b"x" * 1000)
    bench.client.subscribe("to.me", 5)
    assert len(sequences(bench.client.take())) == 1
    assert sequences(bench.advance(90 * MS)) == []
    assert sequences(bench.advance(30 * MS)) == [2]
    assert sequences(bench.advance(SECOND)) == [3, 4, 5]


def test_headers_only_tells_the_size_instead_of_the_body(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", headers_only=True)
    bench.client.subscribe("to.me", 5)
    bench.client.publish("s.a", b"12345")
    bench.client.publish("s.b", b"123", headers={"A": "b"})
    first, second = bench.client.take()
    assert (first.header, first.body) == (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b"")
    assert second.fields == {"A": "b", "Nats-Msg-Size": "3"}


def test_replay_at_the_original_pace_keeps_the_gaps(bench: Bench) -> None:
    bench.publish("s.a")
    bench.driver.advance(2 * SECOND)
    bench.publish("s.a")
    bench.driver.advance(SECOND)
    bench.publish("s.a")
    bench.consumer(deliver_subject="to.me", replay_policy="original", ack_policy="none")
    bench.client.subscribe("to.me", 5)
    assert sequences(bench.client.take()) == [1]
    assert bench.advance(1990 * MS) == []
    assert sequences(bench.advance(20 * MS)) == [2]
    assert sequences(bench.advance(SECOND)) == [3]


def test_a_consumer_moved_to_another_subject_delivers_there_what_was_out(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me")
    bench.client.subscribe("to.me", 5)
    bench.client.publish("s.a", b"x")
    bench.client.send(b"UNSUB 5\r\n")
    bench.client.take()
    bench.consumer(deliver_subject="to.you")
    bench.client.subscribe("to.you", 6)
    [again] = bench.client.take()
    assert again.reply.startswith("$JS.ACK.S.c.2.1.2.")


def test_an_ephemeral_consumer_goes_when_nobody_has_listened_for_its_threshold(
    bench: Bench,
) -> None:
    config = {"deliver_subject": "to.me", "name": "e", "inactive_threshold": 2 * SECOND}
    body = {"stream_name": "S", "config": {**config, "ack_policy": "none"}}
    bench.client.subscribe("to.me", 5)
    assert "error" not in bench.client.api("CONSUMER.CREATE.S.e", body)
    bench.advance(10 * SECOND)
    assert bench.info("e")["name"] == "e"
    bench.client.send(b"UNSUB 5\r\n")
    bench.advance(1900 * MS)
    assert bench.info("e")["name"] == "e"
    bench.advance(200 * MS)
    assert bench.info("e")["error"]["err_code"] == 10014


def test_a_pull_consumer_goes_when_nobody_has_asked_for_its_threshold(bench: Bench) -> None:
    bench.consumer(inactive_threshold=SECOND)
    bench.pull(expires=5 * SECOND)
    bench.advance(4900 * MS)
    assert bench.info()["num_waiting"] == 1
    assert statuses(bench.advance(200 * MS)) == ["408 Request Timeout"]
    bench.advance(800 * MS)
    assert bench.info()["name"] == "c"
    bench.advance(2200 * MS)
    assert bench.info()["error"]["err_code"] == 10014


def test_a_paused_consumer_beats_on_and_delivers_once_it_is_resumed(bench: Bench) -> None:
    bench.consumer(deliver_subject="to.me", idle_heartbeat=200 * MS)
    bench.client.subscribe("to.me", 5)
    answer = bench.client.api("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
    assert answer["paused"] is True
    bench.client.publish("s.a", b"x")
    assert statuses(bench.advance(250 * MS)) == ["100 Idle Heartbeat"]
    bench.client.publish("$JS.API.CONSUMER.PAUSE.S.c", b"")
    assert sequences(bench.client.take()) == [1]


def test_of_many_watched_subjects_interest_in_one_wakes_one(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.consumer(name, deliver_subject=f"to.{name}")
    bench.publish("s.x")
    bench.client.subscribe("to.b", 71)
    assert [message.subject for message in bench.client.take()] == ["s.x"]
    assert ["push_bound" in bench.info(name) for name in ("a", "b", "c")] == [False, True, False]
    bench.client.subscribe("to.*", 72)
    assert ["push_bound" in bench.info(name) for name in ("a", "b", "c")] == [True, True, True]
