"""What the engine tells of messages whose publisher's trace is sampled, and of no others."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.session import watch
from slipstream.engine.session.watch import HandedOut, Publication, TraceContext, sampled_trace
from slipstream.model.error_codes import ErrorCode
from slipstream.testing.driver import Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk

SECOND = 1_000_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01"
UNSAMPLED = f"00-{TRACE}-00f067aa0ba902b7-00"


class Watch:
    """Takes note of all that it is told."""

    def __init__(self, driver: Driver) -> None:
        self.open = 0
        self.publications: list[Publication] = []
        self.deliveries: list[tuple[HandedOut, str, str]] = []
        self._clock = driver.clock

    def now(self) -> int:
        return self._clock.now

    def published(self, publication: Publication) -> None:
        self.publications.append(publication)

    def delivered(self, delivery: HandedOut, outcome: str, reason: str) -> None:
        self.deliveries.append((delivery, outcome, reason))

    @property
    def outcomes(self) -> list[tuple[int, int, str]]:
        """Of each delivery that is over: the sequence, its number, how it ended."""
        return [(one.sequence, one.number, outcome) for one, outcome, _ in self.deliveries]


def watched(driver: Driver) -> Watch:
    """Have an engine that is not started yet tell of its messages."""
    found = Watch(driver)
    driver.engine.message_watch = found
    driver.start()
    return found


@pytest.fixture
def driver() -> Driver:
    return Driver()


def create(client: Client, **config: Any) -> None:
    answer = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
    assert "error" not in answer, answer


def consumer(client: Client, **config: Any) -> None:
    asked = {"durable_name": "c", "ack_policy": "explicit", **config}
    answer = client.api(
        "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": asked, "action": "create"}
    )
    assert "error" not in answer, answer


def publish(client: Client, subject: str = "s.a", **headers: str) -> Any:
    return client.store(subject, b"hello", traceparent=SAMPLED, **headers)


def take(client: Client, batch: int = 1) -> list[Message]:
    client.subscribe("deliveries", 7)
    body = b'{"batch":%d,"expires":3600000000000}' % batch
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, "deliveries")
    return client.take()


# -- what comes to a stream ---------------------------------------------------------------------


def test_a_message_is_told_of_once_it_is_durable() -> None:
    driver = Driver(SimulatedDisk(Random(1)))
    told = watched(driver)
    client = driver.client()
    create(client)
    driver.runner.hold()
    client.publish("s.a", b"hello", "_INBOX.t.x", {"traceparent": SAMPLED, "Nats-Msg-Id": "7"})
    came = driver.clock.now
    assert told.publications == []
    driver.clock.now += SECOND
    driver.runner.release()
    driver.finish()
    [one] = told.publications
    assert (one.account, one.stream, one.subject, one.sequence) == ("$G", "S", "s.a", 1)
    assert (one.body_size, one.message_id, one.began) == (5, "7", came)
    assert one.trace == TraceContext(SAMPLED)
    assert not one.error


def test_the_message_is_stored_as_it_came(driver: Driver) -> None:
    watched(driver)
    client = driver.client()
    create(client)
    client.request("s.a", b"hello", {"traceparent": SAMPLED, "tracestate": "a=b", "Kind": "x"})
    stored = client.messages("S")[1]
    assert stored.fields == {"traceparent": SAMPLED, "tracestate": "a=b", "Kind": "x"}


def test_of_messages_that_nobody_traces_nothing_is_told(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client)
    client.store("s.a")
    client.store("s.a", traceparent=UNSAMPLED)
    client.store("s.a", traceparent="what?")
    for message in take(client, 3):
        client.publish(message.reply)
    assert told.publications == []
    assert told.deliveries == []


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
def test_a_sampled_trace_is_found_under_the_names_that_clients_write(name: str) -> None:
    block = f"NATS/1.0\r\n{name}: {SAMPLED}\r\ntracestate: v=1\r\n\r\n".encode()
    assert sampled_trace(block, 0, len(block)) == TraceContext(SAMPLED, "v=1")


@pytest.mark.parametrize(
    "parent",
    [
        SAMPLED + "-more",
        SAMPLED.replace("00-", "ff-", 1),
        SAMPLED.upper(),
        SAMPLED.replace(TRACE, "0" * 32),
        SAMPLED.replace("00f067aa0ba902b7", "0" * 16),
        SAMPLED.replace("4", "\x1b"),
        "-" * 54 + "1" * 60_000,
    ],
)
def test_a_parent_that_cannot_be_names_no_trace(parent: str) -> None:
    block = f"NATS/1.0\r\ntraceparent: {parent}\r\n\r\n".encode()
    assert sampled_trace(block, 0, len(block)) is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("a=b , c@d=e f", True),
        ("a=" + "b" * 256, True),
        (",".join(f"a{n}=b" for n in range(32)), True),
        (",".join(f"a{n}=b" for n in range(33)), False),
        ("a=b," + "c" * 509, False),
        ("a=b\x1b[31m", False),
        ("a=b" + " " * 60_000 + "x", False),
        ("no pair", False),
    ],
)
def test_of_a_state_no_more_is_kept_than_may_be_there(state: str, kept: bool) -> None:
    later = SAMPLED.replace("00-", "01-", 1)
    block = f"NATS/1.0\r\ntraceparent: {later}-more\r\ntracestate: {state}\r\n\r\n".encode()
    assert sampled_trace(block, 0, len(block)) == TraceContext(later, state if kept else "")


def test_a_refusal_has_the_code_of_the_api(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client, max_msg_size=200)
    client.request("s.a", b"x" * 300, {"traceparent": SAMPLED})
    publish(client, Nats_Expected_Stream="T")
    publish(client)
    codes = [one.error_code for one in told.publications]
    assert codes == [
        ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM,
        ErrorCode.STREAM_NOT_MATCH,
        0,
    ]
    assert [one.sequence for one in told.publications] == [0, 0, 1]
    assert told.publications[1].error == "expected stream does not match"


@pytest.mark.parametrize("expected", [{}, {"Nats_Expected_Last_Sequence": "1"}])
def test_a_duplicate_has_the_sequence_of_the_message_that_it_repeats(
    driver: Driver, expected: dict[str, str]
) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    publish(client, Nats_Msg_Id="7")
    publish(client, Nats_Msg_Id="7", **expected)
    assert [(one.sequence, one.is_duplicate) for one in told.publications] == [
        (1, False),
        (1, True),
    ]


def test_a_failing_disk_is_the_error_of_what_was_to_be_stored() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk)
    told = watched(driver)
    client = driver.client()
    create(client)
    disk.fail("sync")
    client.request("s.a", b"hello", {"traceparent": SAMPLED})
    [one] = told.publications
    assert one.error_code == ErrorCode.STREAM_STORE_FAILED
    assert one.sequence == 0


def test_a_message_of_a_batch_has_a_sequence_when_the_batch_does(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client, allow_atomic=True)
    fields = {"traceparent": SAMPLED, "Nats-Batch-Id": "b"}
    client.request("s.a", b"1", fields | {"Nats-Batch-Sequence": "1"})
    client.request("s.a", b"2", fields | {"Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"})
    client.request("s.a", b"3", fields | {"Nats-Batch-Sequence": "3"})
    assert [one.sequence for one in told.publications] == [0, 2, 0]
    assert [one.error_code for one in told.publications] == [
        0,
        0,
        ErrorCode.ATOMIC_PUBLISH_INCOMPLETE_BATCH,
    ]


def test_messages_of_a_fast_batch_are_told_of_as_they_come(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client, allow_batched=True, max_msg_size=200)
    traced = {"traceparent": SAMPLED}
    client.publish("s.a", b"1", "_INBOX.t.b.10.ok.1.0.$FI", traced | {"Nats-Msg-Id": "7"})
    client.publish("s.a", b"2", "_INBOX.t.b.10.ok.2.1.$FI", traced | {"Nats-Msg-Id": "7"})
    client.publish("s.a", b"3" * 300, "_INBOX.t.b.10.ok.3.1.$FI", traced)
    found = [(one.sequence, one.is_duplicate, one.error_code) for one in told.publications]
    assert found == [
        (1, False, 0),
        (1, True, 0),
        (0, False, ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM),
    ]


# -- what goes out to consumers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome"), [(b"", "ack"), (b"+ACK", "ack"), (b"-NAK", "nak"), (b"+TERM no", "term")]
)
def test_a_delivery_ends_with_what_the_client_says(
    driver: Driver, answer: bytes, outcome: str
) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client)
    publish(client)
    driver.advance(SECOND)
    [message] = take(client)
    assert (told.deliveries, told.open) == ([], 1)
    went_out = driver.clock.now
    driver.advance(SECOND)
    client.publish(message.reply, answer)
    [(delivery, ended, reason)] = told.deliveries
    assert (ended, reason) == (outcome, "no" if outcome == "term" else "")
    assert (delivery.consumer, delivery.sequence, delivery.number) == ("c", 1, 1)
    assert (delivery.began, delivery.stored_at) == (went_out, went_out - SECOND)
    assert delivery.trace == TraceContext(SAMPLED)
    assert told.open == 0


def test_a_message_that_nobody_acknowledges_in_time_goes_out_again(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client, ack_wait=SECOND)
    publish(client)
    take(client, 2)
    driver.advance(SECOND)
    assert told.outcomes == [(1, 1, "timeout")]
    [again] = client.take()
    client.publish(again.reply)
    assert told.outcomes == [(1, 1, "timeout"), (1, 2, "ack")]


def test_an_acknowledgement_of_all_ends_every_delivery_before(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client, ack_policy="all")
    for _ in range(3):
        publish(client)
    messages = take(client, 3)
    client.publish(messages[1].reply)
    assert told.outcomes == [(1, 1, "ack"), (2, 1, "ack")]
    assert told.open == 1


def test_without_acknowledgements_a_delivery_ends_as_it_begins(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client, ack_policy="none")
    publish(client)
    take(client)
    assert told.outcomes == [(1, 1, "delivered")]
    assert told.open == 0


def test_a_delivery_ends_when_its_message_or_its_consumer_goes(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client)
    for _ in range(3):
        publish(client)
    take(client, 3)
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    client.api("STREAM.PURGE.S", {"seq": 3})
    client.api("CONSUMER.DELETE.S.c")
    assert told.outcomes == [(1, 1, "removed"), (2, 1, "removed"), (3, 1, "reset")]
    assert told.open == 0


def test_more_than_so_many_are_not_waited_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.consumer.watched.OPEN_MAX", 2)
    assert watch.OPEN_MAX > 1000
    told = watched(driver)
    client = driver.client()
    create(client)
    consumer(client)
    for _ in range(3):
        publish(client)
    take(client, 3)
    assert told.outcomes == [(3, 1, "delivered")]
    assert told.open == 2


def test_what_a_mirror_takes_over_is_not_told_of(driver: Driver) -> None:
    told = watched(driver)
    client = driver.client()
    create(client)
    publish(client)
    client.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}})
    driver.advance(SECOND)
    assert client.api("STREAM.INFO.M")["state"]["messages"] == 1
    assert len(told.publications) == 1
    assert told.deliveries == []
