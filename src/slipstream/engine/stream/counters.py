"""Counters: streams whose messages add to a total for each subject (ADR-49).

A message says by how much in `Nats-Incr`. What is stored is the new total, ``{"val":"12"}``, a
decimal number of any length, so the last message of a subject has its total.
"""

import sys
from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import parse
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.staging import Staged
from slipstream.log.record import Record
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_COUNTER_SOURCES,
    NATS_EXPECTED_LAST_MSG_ID,
    NATS_EXPECTED_LAST_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_EXPECTED_STREAM,
    NATS_INCR,
    NATS_ROLLUP,
)
from slipstream.wire.headers import find, with_field

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

# Python turns no longer text into a number, nor a longer number into text, as that takes long.
DIGITS_MAX = min(sys.get_int_max_str_digits() or 4300, 4300) - 1

_int = int  # the name `int` in a compiled module's annotations is a C type

TOTALS_MAX = 65_536  # subjects of a stream whose totals are kept in memory

_FORBIDDEN = (
    NATS_ROLLUP,
    NATS_EXPECTED_LAST_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_EXPECTED_LAST_MSG_ID,
    NATS_EXPECTED_STREAM,
)


class Total(msgspec.Struct):
    """The body of a stored message."""

    val: str


def read_increment(value: bytes) -> _int:
    """The number in a `Nats-Incr` header. Raises `ApiError` MESSAGE_INCR_INVALID."""
    digits = value[1:] if value.startswith((b"+", b"-")) else value
    if not digits.isdigit() or len(value) > DIGITS_MAX:
        raise ApiError(ErrorCode.MESSAGE_INCR_INVALID)
    return int(value)


def check_increment(stream: "Stream", message: Inbound, value: bytes, is_alone: bool) -> _int:
    """By how much a message adds, which is checked; `is_alone` where it has no other field that
    means something. Raises `ApiError`."""
    increment = read_increment(value)
    if not stream.config.allow_msg_counter:
        raise ApiError(ErrorCode.MESSAGE_INCR_DISABLED)
    if message.end > message.body_start:
        raise ApiError(ErrorCode.MESSAGE_INCR_PAYLOAD)
    for name in () if is_alone else _FORBIDDEN:
        if find(message.data, message.header_start, message.body_start, name):
            raise ApiError(ErrorCode.MESSAGE_INCR_INVALID)
    return increment


class Totals:
    """What the last messages of some subjects have as their totals, so that they need not be read.

    A total is noted with the sequence of its message, and counts while that is the subject's last.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[_int, _int]] = {}  # sequence, total

    def find(self, subject: bytes, last: _int) -> _int | None:
        """The total of a subject whose last message is `last`; None if it has to be read."""
        known = self._known.get(subject)
        return known[1] if known is not None and known[0] == last else None

    def note(self, subject: bytes, seq: _int, total: _int) -> None:
        """Message `seq` was stored on `subject`, with this total and nothing of sources."""
        if len(self._known) >= TOTALS_MAX and subject not in self._known:
            del self._known[next(iter(self._known))]
        self._known[subject] = (seq, total)


def add_up(
    stream: "Stream", subject: bytes, message: Inbound, increment: _int, staged: Staged | None
) -> _int | None:
    """Make the total the message's body; the total, or None if it is not to be noted.

    `staged` is what the message's batch has brought before. Raises `ApiError`.
    """
    known = staged.counters.get(subject) if staged is not None else None
    seen: dict[str, dict[str, str]] = {}
    if known is None:
        known = stream.totals.find(subject, stream.log.last_on(subject))
    if known is None or staged is not None:
        last = _last(stream, subject)
        known = _total(last) if known is None else known
        seen = _seen(last)  # no message of its own batch can have come from a source
    total = increment + known
    try:
        text = b"%d" % total
    except ValueError:
        raise ApiError(ErrorCode.MESSAGE_INCR_INVALID) from None
    header = message.header()
    if seen:
        header = _with_seen(header, seen)
    data = header + b'{"val":"%b"}' % text
    if 0 <= stream.config.max_msg_size < len(data):
        raise ApiError(ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    if staged is not None:
        staged.counters[subject] = total
    message.data = data
    message.body_start = len(header)
    message.header_start = 0
    message.end = len(message.data)
    if seen or find(message.data, 0, message.body_start, NATS_COUNTER_SOURCES):
        return None  # what follows has to take over what the header says
    return total


def ack_end(message: Inbound) -> bytes:
    """How the JSON of an acknowledgement goes on for a message with a total as its body."""
    return b"," + message.data[message.body_start + 1 : message.end]


def add_sourced(stream: "Stream", message: Inbound, source: bytes, subject: bytes) -> None:
    """Make a message that was `subject`'s in the counter stream `source` add to the total here.

    Its body has that stream's total: what this one has not seen of it is added. What it has seen of
    each source stands in the header of a subject's last message. Raises `ApiError`.
    """
    start, end = message.header_start, message.body_start
    increment = find(message.data, start, end, NATS_INCR)
    if not increment:
        raise ApiError(ErrorCode.MESSAGE_INCR_MISSING)
    read_increment(increment)
    total = _read_total(message.body())
    own = message.subject if stream.transform is None else stream.transform.map(message.subject)
    last = _last(stream, own)
    seen = _seen(last)
    of_source = seen.setdefault(source.decode("utf-8", "replace"), {})
    name = subject.decode("utf-8", "replace")
    before = _number(of_source.get(name, "0"))
    of_source[name] = str(total)
    data = with_field(message.header(), NATS_INCR, b"%d" % (total - before))
    data = _with_seen(data, seen)
    text = b'{"val":"%d"}' % (_total(last) + total - before)
    message.data = data + text
    message.header_start = 0
    message.body_start = len(data)
    message.end = len(message.data)


def _with_seen(block: bytes, seen: dict[str, dict[str, str]]) -> bytes:
    """A header block that says what was seen of each source."""
    return with_field(block, NATS_COUNTER_SOURCES, msgspec.json.encode(seen, order="sorted"))


def _last(stream: "Stream", subject: bytes) -> Record | None:
    """The message on `subject` that has its total; None if there is none that can be read."""
    seq = stream.log.last_on(subject)
    record = Record()
    return record if seq and stream.log.read(seq, record) else None


def _seen(last: Record | None) -> dict[str, dict[str, str]]:
    """What was seen of each source before, by its subjects. Raises `ApiError`
    MESSAGE_COUNTER_BROKEN."""
    if last is None:
        return {}
    value = find(last.data, last.header_start, last.body_start, NATS_COUNTER_SOURCES)
    if not value:
        return {}
    try:
        found = parse(value, dict[str, dict[str, str] | None] | None)
    except msgspec.MsgspecError:
        raise ApiError(ErrorCode.MESSAGE_COUNTER_BROKEN) from None
    return {source: subjects or {} for source, subjects in (found or {}).items()}


def _total(last: Record | None) -> _int:
    """What the messages on a subject have added up to. Raises `ApiError` MESSAGE_COUNTER_BROKEN."""
    return 0 if last is None else _read_total(last.body())


def _read_total(body: bytes) -> _int:
    """The number in a stored message. Raises `ApiError` MESSAGE_COUNTER_BROKEN."""
    try:
        return _number(parse(body, Total).val)
    except msgspec.MsgspecError:
        raise ApiError(ErrorCode.MESSAGE_COUNTER_BROKEN) from None


def _number(text: str) -> _int:
    """Raises `ApiError` MESSAGE_COUNTER_BROKEN."""
    try:
        return int(text)
    except ValueError:
        raise ApiError(ErrorCode.MESSAGE_COUNTER_BROKEN) from None
