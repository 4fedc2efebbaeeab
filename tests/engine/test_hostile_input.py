"""What no sane client says is answered, or costs at most its own connection: numbers beyond 64
bits, JSON nested without end, heartbeats from the past.

The server does not fail, and does not hang.
"""

from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver

HUGE = "9" * 5000  # more digits than Python turns into a number
DEEP = b'{"a":' * 100_000
MANY_ENDS = b'{"a":' + b"}" * 200_000
NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"


@pytest.fixture
def asker(client: Client) -> Client:
    """A client of a stream S that has one message and a consumer C; it listens at `in`."""
    config = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
    client.api("STREAM.CREATE.S", config)
    durable = {"durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    client.store("s.a")
    client.subscribe("in")
    return client


@pytest.mark.parametrize(
    "body", [HUGE.encode(), b"9" * 30, b'{"batch":1,"expires":9223372036854775807}']
)
def test_a_pull_with_a_number_without_measure_is_served(asker: Client, body: bytes) -> None:
    asker.publish(NEXT, body, "in")
    assert [message.subject for message in asker.take()] == ["s.a"]


@pytest.mark.parametrize(
    "body", [b'{"batch":%d}' % 10**30, b'{"batch":1,"max_bytes":%d}' % 2**65, DEEP]
)
def test_a_pull_that_can_not_be_read_is_refused(asker: Client, body: bytes) -> None:
    asker.publish(NEXT, body, "in")
    assert [message.status[:15] for message in asker.take()] == ["400 Bad Request"]


def test_a_negative_heartbeat_is_none(driver: Driver, asker: Client) -> None:
    asker.publish(NEXT, b"1", "in")
    asker.publish(NEXT, b'{"batch":1,"expires":5000000000,"idle_heartbeat":-1}', "in")
    driver.advance(4 * SECOND)
    assert len(asker.take()) == 1


@pytest.mark.parametrize(
    "delay",
    ['{"delay":1' + "0" * 30 + "}", '{"delay":9223372036854775807}', "99999999999h", HUGE + "s"],
)
def test_a_nak_with_a_delay_without_measure_is_taken(asker: Client, delay: str) -> None:
    asker.publish(NEXT, b"1", "in")
    (message,) = asker.take()
    asker.publish(message.reply, b"-NAK " + delay.encode())
    assert asker.api("CONSUMER.INFO.S.C")["num_ack_pending"] == 1


def test_a_nak_with_json_without_end_asks_for_no_delay(asker: Client) -> None:
    asker.publish(NEXT, b"2", "in")
    (message,) = asker.take()
    asker.publish(message.reply, b'-NAK {"delay":' + DEEP)
    assert [again.subject for again in asker.take()] == ["s.a"]


@pytest.mark.parametrize(
    "name", ["Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence", "Nats-TTL"]
)
def test_a_header_with_a_number_without_measure_refuses_the_message(
    asker: Client, name: str
) -> None:
    answer = asker.request("s.a", b"x", {name: HUGE}).json()
    assert answer["error"]["code"] == 400


def test_a_duration_without_measure_is_none(asker: Client) -> None:
    assert asker.request("s.a", b"x", {"Nats-TTL": HUGE + "h"}).json()["error"]["code"] == 400


def test_an_api_level_without_measure_is_not_reached(asker: Client) -> None:
    answer = asker.api("STREAM.INFO.S", b"", {"Nats-Required-Api-Level": HUGE})
    assert answer["error"]["err_code"] == 10185


@pytest.mark.parametrize("body", [DEEP, MANY_ENDS, b"{}" * 100_000, b"[" * 100_000])
def test_json_without_end_is_bad_json(asker: Client, body: bytes) -> None:
    assert asker.api("STREAM.MSG.GET.S", body)["error"]["err_code"] == 10025
    assert asker.request("$JS.API.DIRECT.GET.S", body).status.startswith("408")


@pytest.mark.parametrize("first", [2**62 + 1, 2**63 - 1])
def test_no_stream_begins_where_sequences_end(asker: Client, first: int) -> None:
    refused = [
        asker.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "first_seq": first}),
        asker.api("STREAM.PURGE.S", {"seq": first}),
    ]
    assert [answer["error"]["err_code"] for answer in refused] == [10025, 10025]
    assert asker.store("s.a")["seq"] == 2


@pytest.mark.parametrize(
    ("time", "found"),
    [("0001-01-01T00:00:00Z", True), ("0001-01-01T00:00:00+23:00", True),
     ("9999-12-31T23:59:59Z", False), ("9999-12-31T23:59:59.9-23:00", False)],
)  # fmt: skip
def test_a_time_outside_of_64_bits_is_before_or_behind_everything(
    asker: Client, time: str, found: bool
) -> None:
    got = asker.api("STREAM.MSG.GET.S", {"start_time": time})
    assert ("message" in got) is found
    config: dict[str, Any] = {"deliver_policy": "by_start_time", "opt_start_time": time}
    made = asker.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    assert made["num_pending"] == int(found)
    asker.api("CONSUMER.PAUSE.S.C", {"pause_until": time})


def test_a_bound_of_a_subscription_without_measure_ends_it(asker: Client) -> None:
    asker.send(b"UNSUB 2 %b\r\n" % (b"9" * 40))
    asker.publish("in", b"x")
    assert asker.take() == []
    assert asker.errors == []


def test_a_protocol_number_without_measure_costs_its_connection_alone(driver: Driver) -> None:
    other = driver.client()
    other.send(b'CONNECT {"protocol":99999999999999999999}\r\n')
    assert other.transport.closed


@pytest.mark.parametrize("protocol", [2, -1, 2**31, 2**32, 2**63 - 1, -(2**63)])
def test_a_protocol_that_there_is_not_is_refused_whatever_its_size(
    driver: Driver, protocol: int
) -> None:
    other = driver.client()
    other.send(b'CONNECT {"protocol":%d}\r\n' % protocol)
    other.take()
    assert other.errors == [b"invalid client protocol"]
    assert other.transport.closed


@pytest.mark.parametrize("call", ["STREAM.INFO", "CONSUMER.NAMES", "DIRECT.GET"])
def test_a_subject_that_is_not_utf8_names_no_stream(
    driver: Driver, asker: Client, call: str
) -> None:
    asker.subscribe("$JS.EVENT.ADVISORY.API", 3)
    asker.send(b"PUB $JS.API.%b.\xff in 0\r\n\r\n" % call.encode())
    answers = [message for message in asker.take() if message.subject == "in"]
    assert len(answers) == 1
    assert answers[0].status.startswith("503") or answers[0].json()["error"]["err_code"] == 10059


def test_a_connect_nested_without_end_costs_its_connection_alone(driver: Driver) -> None:
    other = driver.client()
    other.send(b'CONNECT {"a":' + b'{"a":' * 700 + b"\r\n")
    assert other.transport.closed


@pytest.mark.parametrize("operation", [b"CONNECT", b"INFO"])
@pytest.mark.parametrize("inner", [b"[" * 1990 + b"]" * 1990, b"[" * 3900])
def test_who_sends_json_that_is_nested_too_deeply_is_told_so(
    driver: Driver, operation: bytes, inner: bytes
) -> None:
    other = driver.client()
    other.send(operation + b' {"a":' + inner + b"}\r\n")
    assert other.transport.closed
    other.take()
    assert other.errors == [b"Maximum JSON nesting exceeded"]


@pytest.mark.parametrize("name", [b"\\ud800", b"\\udc00x", b"\xed\xa0\x80", b"\xff"])
def test_half_a_character_in_a_name_is_one_that_is_not_known(driver: Driver, name: bytes) -> None:
    other = driver.client()
    other.send(b'CONNECT {"verbose":false,"name":"%b"}\r\nPING\r\n' % name)
    other.take()
    assert other.lines[-1] == b"PONG"
    assert "\ufffd" in other.session.connect.name


def test_half_a_character_in_a_request_is_one_that_is_not_known(asker: Client) -> None:
    found = asker.api("STREAM.MSG.GET.S", b'{"last_by_subj":"s.\\ud800"}')
    assert found["error"]["err_code"] == 10037
    body = b'{"name":"T","subjects":["t"],"description":"\\ud83d\\ude00 \\ud83d \\\\ud800"}'
    made = asker.api("STREAM.CREATE.T", body)
    assert made["config"]["description"] == "\U0001f600 \ufffd \\ud800"


@pytest.mark.parametrize(
    "body", [b'{"batch":' + DEEP, b'{"batch":1,"id":"\\ud800"}', HUGE.encode()]
)
def test_an_acknowledgement_with_a_strange_request_is_taken(asker: Client, body: bytes) -> None:
    asker.publish(NEXT, b"1", "in")
    (message,) = asker.take()
    asker.publish(message.reply, b"+NXT " + body, "in")
    asker.take()
    assert asker.api("CONSUMER.INFO.S.C")["num_ack_pending"] == 0


def test_a_timer_that_sets_itself_for_now_does_not_hold_up_the_others(driver: Driver) -> None:
    timers, rung = driver.engine.timers, []

    def again() -> None:
        rung.append("again")
        timers.after(0, again)

    timers.after(0, again)
    timers.after(0, lambda: rung.append("other"))
    driver.engine.tick()
    assert rung == ["again", "other"]
