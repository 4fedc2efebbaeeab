"""What is read and written without a server: documents, times, ack subjects, statuses, requests."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.client.jetstream import (
    ConsumerConfig,
    JetStreamMessage,
    Metadata,
    StreamConfig,
    StreamSource,
)
from slipstream.client.jetstream.errors import (
    ApiError,
    BadPullRequestError,
    ConsumerDeletedError,
    ConsumerTypeError,
    FeatureError,
    JetStreamError,
    MaxBytesExceededError,
    NoConsumerResponseError,
    NotJetStreamMessageError,
    PinMismatchError,
    StreamNotFoundError,
    WrongLastSequenceError,
    api_error,
)
from slipstream.client.jetstream.publish import read_ack
from slipstream.client.jetstream.pull import Pull, request_body
from slipstream.client.jetstream.status import StatusMeaning, meaning_of, pending_of
from slipstream.client.message import Message
from slipstream.model.infos import AccountInfo, ConsumerInfo, StreamInfo
from slipstream.model.times import Timestamp, datetime_text
from slipstream.wire.headers import Headers

NUMBER = st.integers(0, 2**62)
NAME = st.text("abcXYZ019_-", min_size=1, max_size=12)


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_times_keep_their_nanoseconds(ns: int) -> None:
    made = Timestamp.from_ns(ns)
    assert made.ns == ns
    again = Timestamp.parse(datetime_text(made))
    assert again is not None
    assert again.ns == ns


def test_zones_and_the_zero_time_are_read_as_go_writes_them() -> None:
    assert Timestamp.parse("0001-01-01T00:00:00Z") is None
    at = Timestamp.parse("2026-03-01T10:00:00.5+02:00")
    assert at == datetime(2026, 3, 1, 8, 0, 0, 500_000, tzinfo=UTC)


def test_a_configuration_says_only_what_was_said() -> None:
    assert StreamConfig(name="S").to_wire() == {
        "name": "S",
        "retention": "limits",
        "discard": "old",
        "storage": "file",
    }


@given(
    st.builds(
        StreamConfig,
        name=NAME,
        subjects=st.lists(NAME, max_size=3),
        max_msgs=st.integers(-1, 2**40),
        max_age=st.integers(0, 10**7).map(float),
        sources=st.lists(st.builds(StreamSource, name=NAME, opt_start_seq=NUMBER), max_size=2),
        metadata=st.dictionaries(NAME, NAME, max_size=2),
    )
)
def test_what_is_written_is_read_again(config: StreamConfig) -> None:
    assert StreamConfig.from_wire(json.loads(json.dumps(config.to_wire()))) == config


def test_lengths_of_time_are_seconds_here_and_nanoseconds_there() -> None:
    config = ConsumerConfig(ack_wait=timedelta(milliseconds=1500), backoff=[0.5, timedelta(days=1)])
    sent = config.to_wire()
    assert sent["ack_wait"] == 1_500_000_000
    assert sent["backoff"] == [500_000_000, 86_400_000_000_000]
    assert ConsumerConfig.from_wire(sent).backoff == [0.5, 86_400.0]


def test_infos_are_objects_all_the_way_down() -> None:
    info = StreamInfo.from_wire(
        {
            "config": {"name": "S", "max_age": 10**9},
            "state": {"messages": 3, "lost": {"msgs": [2], "bytes": 7}},
            "created": "2026-01-02T03:04:05.000000006Z",
            "mirror": {"name": "M", "lag": 4, "active": -1},
            "cluster": {"leader": "a", "replicas": [{"name": "b", "active": 5 * 10**8}]},
            "newer": True,
        }
    )
    assert info.config.max_age == 1.0
    assert info.state.lost is not None
    assert info.state.lost.msgs == [2]
    assert info.mirror is not None
    assert info.mirror.active is None
    assert info.cluster is not None
    assert info.cluster.replicas[0].active == 0.5
    assert info.extra == {"newer": True}
    account = AccountInfo.from_wire({"tiers": {"R1": {"limits": {"max_streams": 3}}}, "streams": 1})
    assert account.tiers["R1"].limits.max_streams == 3
    consumer = ConsumerInfo.from_wire({"config": {}, "priority_groups": [{"group": "A"}]})
    assert consumer.priority_groups[0].pinned_ts is None


# -- acknowledgement subjects ------------------------------------------------------------------


@given(NAME, NAME, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)
def test_the_short_form_of_an_ack_subject_is_read(
    stream: str, consumer: str, count: int, sequence: int, delivery: int, ns: int, pending: int
) -> None:
    reply = f"$JS.ACK.{stream}.{consumer}.{count}.{sequence}.{delivery}.{ns}.{pending}"
    read = Metadata(reply.encode())
    assert (read.stream, read.consumer, read.domain) == (stream, consumer, "")
    assert (read.num_delivered, read.stream_sequence, read.consumer_sequence) == (
        count,
        sequence,
        delivery,
    )
    assert (read.timestamp_ns, read.num_pending) == (ns, pending)


@pytest.mark.parametrize("extra", ["", ".random", ".more.of.it"])
def test_the_long_form_has_domain_and_account_and_may_grow(extra: str) -> None:
    read = Metadata(b"$JS.ACK.hub.szMpdrwD.D.c.1.2.3.4.5" + extra.encode())
    assert (read.domain, read.account_hash) == ("hub", "szMpdrwD")
    assert (read.stream, read.consumer) == ("D", "c")
    assert (read.num_delivered, read.stream_sequence, read.consumer_sequence) == (1, 2, 3)
    assert (read.timestamp_ns, read.num_pending) == (4, 5)
    assert Metadata(b"$JS.ACK._.szMpdrwD.D.c.1.2.3.4.5").domain == ""


@given(st.binary(max_size=80) | st.text("$JS.ACK0", max_size=40).map(str.encode))
def test_anything_else_is_no_ack_subject(reply: bytes) -> None:
    if reply.count(b".") == 8 or reply.count(b".") >= 10:
        return
    with pytest.raises(NotJetStreamMessageError):
        Metadata(reply)


def test_a_message_with_another_reply_has_no_metadata() -> None:
    with pytest.raises(NotJetStreamMessageError, match="_INBOX"):
        assert JetStreamMessage("a", b"", reply="_INBOX.x").metadata


# -- errors ------------------------------------------------------------------------------------


def test_errors_say_what_was_asked_and_what_is_wrong() -> None:
    error = api_error({"code": 404, "err_code": 10059, "description": "stream not found"}, "INFO")
    assert isinstance(error, StreamNotFoundError)
    assert str(error) == "INFO: stream not found (404/10059)"
    unknown = api_error({"code": 400, "err_code": 19999, "description": "new"})
    assert type(unknown) is ApiError


def test_a_wrong_sequence_tells_the_right_one_if_the_server_does() -> None:
    told = api_error({"err_code": 10071, "description": "wrong last sequence: 17"})
    untold = api_error({"err_code": 10164, "description": "wrong last sequence"})
    assert isinstance(told, WrongLastSequenceError)
    assert isinstance(untold, WrongLastSequenceError)
    assert (told.last_sequence, untold.last_sequence) == (17, None)


def test_an_answer_of_somebody_else_is_not_taken_for_an_acknowledgement() -> None:
    with pytest.raises(JetStreamError, match="not a stream's acknowledgement"):
        read_ack(b"thank you", "publish")
    with pytest.raises(ApiError):
        read_ack(b'{"error":{"code":400,"err_code":10060},"stream":"S","seq":0}', "publish")


# -- statuses ----------------------------------------------------------------------------------


def status(code: int, text: str, **headers: str) -> Message:
    block = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    block.status, block.description = code, text
    return Message("_INBOX.x", headers=block.encode())


@pytest.mark.parametrize(
    ("code", "text", "meaning", "error"),
    [
        (100, "Idle Heartbeat", StatusMeaning.ALIVE, None),
        (404, "No Messages", StatusMeaning.DONE, None),
        (408, "Request Timeout", StatusMeaning.DONE, None),
        (408, "Interest Expired", StatusMeaning.DONE, None),
        (409, "Batch Completed", StatusMeaning.DONE, None),
        (400, "Bad Request - heartbeat value too large", StatusMeaning.FATAL, BadPullRequestError),
        (409, "Exceeded MaxRequestBatch of 5", StatusMeaning.FATAL, BadPullRequestError),
        (409, "Exceeded MaxWaiting", StatusMeaning.LOST, JetStreamError),
        (409, "Message Size Exceeds MaxBytes", StatusMeaning.LOST, MaxBytesExceededError),
        (409, "Consumer Deleted", StatusMeaning.FATAL, ConsumerDeletedError),
        (409, "Consumer is push based", StatusMeaning.FATAL, ConsumerTypeError),
        (409, "Leadership Change", StatusMeaning.LOST, JetStreamError),
        (409, "Server Shutdown", StatusMeaning.LOST, JetStreamError),
        (412, "Required Api Level", StatusMeaning.FATAL, FeatureError),
        (423, "Nats-Wrong-Pin-Id", StatusMeaning.LOST, PinMismatchError),
        (503, "", StatusMeaning.LOST, NoConsumerResponseError),
        (599, "Something New", StatusMeaning.LOST, JetStreamError),
    ],
)
def test_each_status_has_its_meaning(
    code: int, text: str, meaning: StatusMeaning, error: type[Exception] | None
) -> None:
    found, raised = meaning_of(status(code, text), "consumer 'c'")
    assert found is meaning
    assert raised is None if error is None else isinstance(raised, error)


def test_a_status_tells_what_a_request_still_had_to_get() -> None:
    message = status(408, "Request Timeout", Nats_Pending_Messages="7", Nats_Pending_Bytes="900")
    assert pending_of(message) == (7, 900)
    assert pending_of(status(404, "No Messages")) == (0, 0)


# -- requests ----------------------------------------------------------------------------------


def test_a_pull_request_says_only_what_is_wanted() -> None:
    assert request_body(1) == b'{"batch":1}'
    asked = json.loads(
        request_body(
            5,
            expires=1.5,
            max_bytes=100,
            heartbeat=0.5,
            no_wait=True,
            group={"group": "A", "min_pending": 3},
            pin_id="p",
        )
    )
    assert asked == {
        "batch": 5,
        "expires": 1_500_000_000,
        "max_bytes": 100,
        "idle_heartbeat": 500_000_000,
        "no_wait": True,
        "group": "A",
        "min_pending": 3,
        "id": "p",
    }


def test_pull_options_have_the_defaults_of_go() -> None:
    pull = Pull.of({})
    assert (pull.max_messages, pull.threshold_messages) == (500, 250)
    assert (pull.expires, pull.heartbeat) == (30.0, 15.0)
    by_bytes = Pull.of({"max_bytes": 1001})
    assert (by_bytes.max_messages, by_bytes.threshold_bytes) == (1_000_000, 501)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_messages": 0},
        {"max_bytes": -1},
        {"expires": 0.5},
        {"heartbeat": 20.0},
        {"max_messages": 5, "threshold_messages": 6},
        {"priority": 10, "group": "A"},
    ],
)
def test_pull_options_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Pull.of(wrong)  # type: ignore[arg-type]


def test_an_unknown_pull_option_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="batch_size"):
        Pull.of({"batch_size": 5})  # type: ignore[typeddict-unknown-key]
