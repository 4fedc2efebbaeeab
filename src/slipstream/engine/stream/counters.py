"""Counters: streams whose messages add to a total for each subject (ADR-49).

A message says by how much in `Nats-Incr`. What is stored is the new total, ``{"val":"12"}``, a
decimal number of any length, so the last message of a subject has its total.
"""

import re
import sys
from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.staging import Staged
from slipstream.log.record import Record
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

# Python turns no longer text into a number, nor a longer number into text, as that takes long.
DIGITS_MAX = min(sys.get_int_max_str_digits() or 4300, 4300) - 1

_INTEGER = re.compile(rb"[+-]?[0-9]+")
_FORBIDDEN = (
    b"Nats-Rollup",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Stream",
)


class Total(msgspec.Struct):
    """The body of a stored message."""

    val: str


def read_increment(value: bytes) -> int:
    """The number in a `Nats-Incr` header. Raises `ApiError` 10171."""
    if not _INTEGER.fullmatch(value) or len(value) > DIGITS_MAX:
        raise ApiError(10171)
    return int(value)


def check_increment(stream: "Stream", message: Inbound, value: bytes) -> int:
    """By how much a message adds, which is checked. Raises `ApiError`."""
    increment = read_increment(value)
    if not stream.config.allow_msg_counter:
        raise ApiError(10168)
    if message.end > message.body_start:
        raise ApiError(10170)
    for name in _FORBIDDEN:
        if find(message.data, message.header_start, message.body_start, name):
            raise ApiError(10171)
    return increment


def add_up(
    stream: "Stream", subject: bytes, message: Inbound, increment: int, staged: Staged | None
) -> bytes:
    """Make the total the message's body; how the acknowledgement's JSON goes on.

    `staged` is what the message's batch has brought before. Raises `ApiError`.
    """
    known = staged.counters.get(subject) if staged is not None else None
    total = increment + (_total(stream, subject) if known is None else known)
    try:
        text = b"%d" % total
    except ValueError:
        raise ApiError(10171) from None
    data = message.header() + b'{"val":"%b"}' % text
    if 0 <= stream.config.max_msg_size < len(data):
        raise ApiError(10054)
    if staged is not None:
        staged.counters[subject] = total
    message.data = data
    message.body_start -= message.header_start
    message.header_start = 0
    message.end = len(message.data)
    return b',"val":"%b"}' % text


def _total(stream: "Stream", subject: bytes) -> int:
    """What the messages on `subject` have added up to. Raises `ApiError` 10172."""
    seq = stream.log.last_of(subject)
    record = Record()
    if not seq or not stream.log.read(seq, record):
        return 0
    try:
        return int(msgspec.json.decode(record.body(), type=Total).val)
    except (ValueError, msgspec.MsgspecError):
        raise ApiError(10172) from None
