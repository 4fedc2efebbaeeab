"""What headers ask of a publish, in the order in which nats-server looks
(docs/protocol/streams.md#publishing)."""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import read_number
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.counters import ack_end, add_up, check_increment
from slipstream.engine.stream.schedule_checks import Schedule, check_cancel, check_schedule
from slipstream.engine.stream.staging import Staged
from slipstream.engine.stream.ttl import INVALID, parse_ttl, raise_ttl
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_EXPECTED_LAST_MSG_ID,
    NATS_EXPECTED_LAST_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_EXPECTED_STREAM,
    NATS_INCR,
    NATS_MSG_ID,
    NATS_PREFIX,
    NATS_REQUEST_INFO,
    NATS_ROLLUP,
    NATS_STREAM_SOURCE,
    NATS_TTL,
)
from slipstream.wire.headers import count_prefix, find, without, without_status

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

DIGITS_MAX = 20  # of a number with 64 bits
HEADER_BYTES_MAX = 65_535  # of a message's block, as a record of the log holds it


class Verdict:
    """What the headers lead to, where they do not refuse the message."""

    def __init__(self, message_id: bytes = b"", rollup: str = "", ttl: _int = 0) -> None:
        self.message_id = message_id
        self.increment: _int | None = None  # of a counter
        self.total: _int | None = None  # ... if it may be noted
        self.schedule: Schedule | None = None  # that the message is
        self.cancels = b""  # the subject of the schedule that ends with it
        self.duplicate_of = 0
        self.rollup = rollup  # "sub" or "all"
        self.ttl = ttl  # seconds; 0 is none, below that without an end
        self.ack_end = b"}"  # how the JSON of its acknowledgement goes on after the sequence


def check_headers(
    stream: "Stream", subject: bytes, message: Inbound, staged: Staged | None = None
) -> Verdict:
    """Look at every header that means something; `staged` is what the message's batch has brought
    before. Raises `ApiError`, also where the block gets too long by what is put into it here."""
    verdict = Verdict()
    increment = _value(message, NATS_INCR)
    if increment:
        fields = count_prefix(message.data, message.header_start, message.body_start, NATS_PREFIX)
        verdict.increment = check_increment(stream, message, increment, is_alone=fields == 1)
        if fields == 1:  # nothing else is asked for
            verdict.total = add_up(stream, subject, message, verdict.increment, staged)
            verdict.ack_end = ack_end(message)
            return _within_bounds(message, verdict)
    expected_stream = _value(message, NATS_EXPECTED_STREAM)
    if expected_stream and expected_stream != stream.name.encode():
        raise ApiError(ErrorCode.STREAM_NOT_MATCH)
    ttl = parse_ttl(_value(message, NATS_TTL))
    if ttl and ttl != INVALID and stream.ttls is None:
        raise ApiError(ErrorCode.MESSAGE_TTL_DISABLED)
    if ttl and not stream.config.allow_msg_counter:
        fields = count_prefix(message.data, message.header_start, message.body_start, NATS_PREFIX)
        if fields == 1:  # nothing else is asked for
            _take_ttl(stream, subject, message, ttl, verdict)
            return _within_bounds(message, verdict)
    expected_of = _value(message, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE)
    of = _value(message, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT)
    _check_subject_sequence(stream, subject, expected_of, of)
    expected = _value(message, NATS_EXPECTED_LAST_SEQUENCE)
    if expected and read_number(expected, DIGITS_MAX) != stream.log.last_seq:
        raise ApiError(ErrorCode.STREAM_WRONG_LAST_SEQUENCE, seq=stream.log.last_seq)
    verdict.schedule = check_schedule(stream, subject, message)
    verdict.cancels = check_cancel(stream, subject, message)
    if _value(message, NATS_STREAM_SOURCE):
        raise ApiError(ErrorCode.MESSAGE_SOURCE_HDR_NOT_ALLOWED)
    message_id = _value(message, NATS_MSG_ID)
    if message_id:
        verdict.message_id = message_id
        verdict.duplicate_of = stream.dedupe.find(message_id)
        if verdict.duplicate_of:
            return verdict
    last_id = _value(message, NATS_EXPECTED_LAST_MSG_ID)
    if last_id and last_id != stream.last_msg_id:
        raise ApiError(
            ErrorCode.STREAM_WRONG_LAST_MSG_ID, id=stream.last_msg_id.decode("utf-8", "replace")
        )
    rollup = _value(message, NATS_ROLLUP)
    if rollup:
        verdict.rollup = _rollup(stream, rollup)
    if stream.config.allow_msg_counter:
        if verdict.increment is None:
            raise ApiError(ErrorCode.MESSAGE_INCR_MISSING)
        verdict.total = add_up(stream, subject, message, verdict.increment, staged)
        verdict.ack_end = ack_end(message)
    _take_ttl(stream, subject, message, ttl, verdict)
    return _within_bounds(message, verdict)


def _value(message: Inbound, name: bytes) -> bytes:
    """The value of a header field; one without a value is as good as none."""
    return find(message.data, message.header_start, message.body_start, name) or b""


def _take_ttl(
    stream: "Stream", subject: bytes, message: Inbound, ttl: _int, verdict: Verdict
) -> None:
    if ttl == INVALID:
        if stream.config.retention != "interest" or stream.is_wanted(subject):
            raise ApiError(ErrorCode.MESSAGE_TTL_INVALID)
    elif stream.ttls is not None:
        if 0 < ttl < stream.ttls.shortest():
            ttl = stream.ttls.shortest()
            raise_ttl(message, ttl)
        verdict.ttl = ttl


def _within_bounds(message: Inbound, verdict: Verdict) -> Verdict:
    if message.body_start - message.header_start > HEADER_BYTES_MAX:
        raise ApiError(ErrorCode.STREAM_HEADER_EXCEEDS_MAXIMUM)
    return verdict


def _check_subject_sequence(
    stream: "Stream", subject: bytes, expected: bytes, other: bytes
) -> None:
    if not expected:
        if other:
            raise ApiError(ErrorCode.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
        return
    last = stream.log.last_of(other or subject)
    if read_number(expected, DIGITS_MAX) != last:
        raise ApiError(ErrorCode.STREAM_WRONG_LAST_SEQUENCE, seq=last)


def _rollup(stream: "Stream", value: bytes) -> str:
    config = stream.config
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise ApiError(ErrorCode.STREAM_ROLLUP_FAILED, err="rollup not permitted")
    kind = value.decode("utf-8", "replace").lower()
    if kind not in ("sub", "all"):
        raise ApiError(ErrorCode.STREAM_ROLLUP_FAILED, err=f'rollup value invalid: "{kind}"')
    return kind


def remove_status(message: Inbound) -> None:
    """Take the status out of the header's first line: it is not stored."""
    _replace_header(message, without_status(message.header()))


def remove_request_info(message: Inbound) -> None:
    """Take out what the server itself tells the answerer of a request."""
    if find(message.data, message.header_start, message.body_start, NATS_REQUEST_INFO):
        _replace_header(message, without(message.header(), NATS_REQUEST_INFO))


def _replace_header(message: Inbound, block: bytes) -> None:
    message.data = block + message.body()
    message.header_start = 0
    message.body_start = len(block)
    message.end = len(message.data)
