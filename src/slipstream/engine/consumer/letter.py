"""A dead letter as bytes: the message that it was, with fields in front that say what became of it.

The fields of the last step come first. A dead letter that itself becomes one keeps those that it
had after them, so without the first of each name the message is as it was.
"""

from typing import TYPE_CHECKING

from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.ingest_checks import HEADER_BYTES_MAX
from slipstream.log.record import Record
from slipstream.model.header_fields import SLIPSTREAM_DEAD_PREFIX
from slipstream.model.times import time_text
from slipstream.wire.headers import VERSION_LINE, fields, find

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.stream.stream import Stream

MAX_DELIVER = "max_deliver"
TERMINATED = "terminated"

CAUSE = SLIPSTREAM_DEAD_PREFIX + b"Letter"  # `MAX_DELIVER` or `TERMINATED`
REASON = SLIPSTREAM_DEAD_PREFIX + b"Reason"
DELIVERIES = SLIPSTREAM_DEAD_PREFIX + b"Deliveries"
STREAM = SLIPSTREAM_DEAD_PREFIX + b"Stream"
CONSUMER = SLIPSTREAM_DEAD_PREFIX + b"Consumer"
SUBJECT = SLIPSTREAM_DEAD_PREFIX + b"Subject"
SEQUENCE = SLIPSTREAM_DEAD_PREFIX + b"Sequence"
TIME = SLIPSTREAM_DEAD_PREFIX + b"Time"  # when the message was stored first, RFC 3339
ID = SLIPSTREAM_DEAD_PREFIX + b"Id"  # see `letter_id`
LEFT_OUT = SLIPSTREAM_DEAD_PREFIX + b"Left-Out"  # names of fields for which a block had no room

REASON_BYTES_MAX = 1024
LEFT_OUT_BYTES_MAX = 1024


def letter_id(stream: "Stream", seq: int, consumer: "Consumer") -> bytes:
    """What tells a dead letter from a copy of it: where it is stored, and whose it is. No other
    message of `stream` has it as its own, because none has its sequence."""
    return b"%d-%d-%d" % (stream.created, seq, consumer.created)


def write_letter(
    consumer: "Consumer", record: Record, cause: str, reason: str, count: int, id: bytes
) -> Inbound:
    """The dead letter of the message in `record`, without a subject yet."""
    text = reason.encode("utf-8", "replace").replace(b"\r", b" ").replace(b"\n", b" ")
    lines = [
        b"%b: %b" % field
        for field in (
            (CAUSE, cause.encode()),
            (REASON, text[:REASON_BYTES_MAX].decode("utf-8", "ignore").encode()),
            (DELIVERIES, b"%d" % count),
            (STREAM, consumer.stream.name.encode()),
            (CONSUMER, consumer.name.encode()),
            (SUBJECT, record.subject),
            (SEQUENCE, b"%d" % record.seq),
            (TIME, time_text(record.ts).encode()),
            (ID, id),
        )
    ]
    own = fields(record.header())
    return Inbound(header=_block(lines, own), body=record.body())


def _block(lines: list[bytes], own: list[tuple[bytes, bytes]]) -> bytes:
    """A header block of at most `HEADER_BYTES_MAX` bytes: where there is no room for all that the
    message had, the longest of its fields stay away, and `LEFT_OUT` names them."""
    own_lines = [b"%b: %b" % field for field in own]
    block = b"\r\n".join((VERSION_LINE, *lines, *own_lines, b"", b""))
    if len(block) <= HEADER_BYTES_MAX:
        return block
    excess = len(block) - HEADER_BYTES_MAX + len(LEFT_OUT) + LEFT_OUT_BYTES_MAX + 4
    dropped: set[int] = set()
    for at in sorted(range(len(own)), key=lambda at: -len(own_lines[at])):
        if excess <= 0:
            break
        dropped.add(at)
        excess -= len(own_lines[at]) + 2
    names = dict.fromkeys(own[at][0] for at in sorted(dropped))
    named = b", ".join(names)[:LEFT_OUT_BYTES_MAX]
    kept = [line for at, line in enumerate(own_lines) if at not in dropped]
    return b"\r\n".join((VERSION_LINE, *lines, b"%b: %b" % (LEFT_OUT, named), *kept, b"", b""))


def field_of(record: Record, name: bytes) -> str:
    """The first value of a field of a stored message; "" without it."""
    value = find(record.data, record.header_start, record.body_start, name) or b""
    return value.decode("utf-8", "replace")
