"""Messages as columns: what arrives from the wire goes straight into the buffers of Arrow arrays.

A scan of a million messages must not make a million Python objects. So each frame is appended, as
it lies in the bytes that the socket brought, to a handful of growing buffers, which `take` hands
over in the layout that Arrow expects: offsets and bytes for text, 64-bit numbers, a map of lists
for headers. Two kinds of frames are understood, and both say what they are:

* the answers of a batched direct get carry sequence, time and subject in headers that the server
  appended to the message's own (docs/protocol/streams.md#direct-get); these are taken off again.
  Each names the message before it, so that one which was lost on the way shows (`GAP`). A server
  that packs them brings many in one answer (#packed-batches), which is read to where it goes beyond
  what is wanted.
* deliveries of a consumer carry them in the acknowledgement subject
  (docs/protocol/consumers.md#acknowledgement-subjects), and count
  up a number of their own when the consumer is an ordered one.

The compiled build replaces this module by `columns.pyx`, which owns raw memory; this is its plain
twin and test oracle.
"""

import struct
from calendar import timegm

from slipstream.model.ack_subject import AckSubject
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
    SLIPSTREAM_PACKED,
)
from slipstream.wire.headers import fields as fields_of

ADDED = 1
STATUS = 0  # not a message: a status of the server, for the caller to read
# Of what is none of these nothing was added; of a packed answer what comes before.
BEYOND = 2  # a message after `last_wanted` or not before `time_end`
GAP = 3  # at least one message is missing before this one
MALFORMED = -1  # neither a direct get's answer nor a consumer's delivery, or one that is cut off

SUBJECT = 1
TIMESTAMP = 2
HEADERS = 4
DATA = 8
SIZE = 16
REPLY = 32

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_ADDED_BY_DIRECT_GET = {
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_SEQUENCE,
    NATS_TIME_STAMP,
    NATS_NUM_PENDING,
    NATS_LAST_SEQUENCE,
    SLIPSTREAM_PACKED,
}
_PACKED = struct.Struct("<QqIIH")  # sequence, time, bytes of headers, body and subject
_Fields = list[tuple[bytes, bytes]]


class MessageColumns:
    """Rows under construction; `wanted` is a sum of `SUBJECT`, `DATA` and so on.

    Sequences are always kept. `rows` and `size` (bytes of subjects, bodies, and headers if they are
    wanted) say how much there is; `sequence`, `timestamp` and `pending` (how many come after it, -1
    if the server does not say) are those of the message added last; `pending` is that of the last
    one in its answer.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.last_wanted = _INT64_MAX
        self.time_end = _INT64_MAX  # nanoseconds since the epoch; only earlier messages are wanted
        self.expected = 0  # direct get: sequence of the message before; ordered: consumer sequence
        self.after = 0  # direct get: only messages behind this sequence are answers
        self.ordered = False  # deliveries count up without a gap
        self.sequence = 0
        self.timestamp = 0
        self.pending = 0
        self._ack = AckSubject()
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.size = 0
        self._sequences: list[int] = []
        self._timestamps: list[int] = []
        self._sizes: list[int] = []
        self._subjects: list[bytes] = []
        self._replies: list[bytes] = []
        self._headers: list[dict[bytes, list[bytes]]] = []
        self._bodies: list[bytes] = []

    def add_direct(self, data: bytes, header_start: int, body_start: int, end: int) -> int:
        """Add an answer of a batched direct get; `ADDED`, or why not."""
        if not 0 <= header_start <= body_start <= end <= len(data):
            raise IndexError("slice outside of the data")
        block = data[header_start:body_start]
        if block[:8] != b"NATS/1.0":
            return MALFORMED
        if _has_status(block):
            return STATUS
        fields = fields_of(block)
        found: dict[bytes, bytes] = {}
        while fields and fields[-1][0] in _ADDED_BY_DIRECT_GET and fields[-1][0] not in found:
            if fields[-1][0] == SLIPSTREAM_PACKED and NATS_SEQUENCE in found:
                break  # the message's own
            name, value = fields.pop()
            found[name] = value
        if SLIPSTREAM_PACKED in found:
            if _number(found.get(NATS_LAST_SEQUENCE, b"")) != self.expected:
                return GAP
            self.pending = _number(found.get(NATS_NUM_PENDING, b""))
            return self._add_packed(data, body_start, end)
        sequence = _number(found.get(NATS_SEQUENCE, b""))
        timestamp = _time(found.get(NATS_TIME_STAMP, b""))
        subject = found.get(NATS_SUBJECT)
        if sequence < 0 or timestamp is None or subject is None:
            return MALFORMED
        if NATS_LAST_SEQUENCE in found:
            if _number(found[NATS_LAST_SEQUENCE]) != self.expected:
                return GAP
        result = self._add_next(sequence, timestamp, subject, fields, data[body_start:end])
        if result == ADDED:
            self.pending = _number(found.get(NATS_NUM_PENDING, b""))
        return result

    def _add_packed(self, data: bytes, at: int, end: int) -> int:
        """Add the messages that are packed in data[at:end]."""
        while at < end:
            if end - at < _PACKED.size:
                return MALFORMED
            sequence, timestamp, *sizes = _PACKED.unpack_from(data, at)
            header_size, body_size, subject_size = sizes
            at += _PACKED.size
            if end - at < header_size + body_size + subject_size or sequence > _INT64_MAX:
                return MALFORMED
            header = at + subject_size
            body = header + header_size
            subject = data[at:header]
            at = body + body_size
            fields = fields_of(data[header:body])
            result = self._add_next(sequence, timestamp, subject, fields, data[body:at])
            if result != ADDED:
                return result
        return ADDED

    def _add_next(
        self, sequence: int, timestamp: int, subject: bytes, fields: _Fields, body: bytes
    ) -> int:
        """Add a message of a direct get, unless one like it came before, or it goes beyond."""
        if sequence <= self.after:
            return MALFORMED
        if sequence > self.last_wanted or timestamp >= self.time_end:
            return BEYOND
        self.expected = self.after = sequence
        return self._add(sequence, timestamp, subject, b"", fields, body)

    def add_delivered(
        self,
        subject: bytes,
        reply: bytes,
        data: bytes,
        header_start: int,
        body_start: int,
        end: int,
    ) -> int:
        """Add a delivery of a consumer; `ADDED`, or why not."""
        if not 0 <= header_start <= body_start <= end <= len(data):
            raise IndexError("slice outside of the data")
        block = data[header_start:body_start]
        if block and block[:8] != b"NATS/1.0":
            return MALFORMED
        if _has_status(block):
            return STATUS
        ack = self._ack
        if not ack.read(reply):
            return MALFORMED
        sequence, consumer = ack.stream_sequence, ack.consumer_sequence
        timestamp = ack.timestamp_ns
        if self.ordered and consumer != self.expected + 1:
            return GAP
        if sequence > self.last_wanted or timestamp >= self.time_end:
            return BEYOND
        self.expected = consumer
        self.pending = ack.num_pending
        body = data[body_start:end]
        return self._add(sequence, timestamp, subject, reply, fields_of(block), body)

    def _add(
        self,
        sequence: int,
        timestamp: int,
        subject: bytes,
        reply: bytes,
        fields: _Fields,
        body: bytes,
    ) -> int:
        size = 0
        if self.wanted & HEADERS:
            size = sum(len(name) + len(value) for name, value in fields)
        size += len(subject) + len(reply) + len(body)
        if self.size + size > _INT32_MAX:
            raise OverflowError("a batch holds at most 2 GiB: take it before adding more")
        self.size += size
        self.rows += 1
        self.sequence = sequence
        self.timestamp = timestamp
        self._sequences.append(sequence)
        self._timestamps.append(timestamp)
        self._sizes.append(len(body))
        self._subjects.append(_text(subject))
        self._replies.append(_text(reply))
        headers: dict[bytes, list[bytes]] = {}
        for name, value in fields:
            headers.setdefault(name, []).append(value)
        self._headers.append(headers)
        self._bodies.append(body)
        return ADDED

    def take(self) -> dict[str, tuple[bytes, ...]]:
        """The buffers of each wanted column; the next message begins a new batch."""
        columns: dict[str, tuple[bytes, ...]] = {"sequence": (_int64s(self._sequences),)}
        if self.wanted & SUBJECT:
            columns["subject"] = _texts(self._subjects)
        if self.wanted & TIMESTAMP:
            columns["timestamp"] = (_int64s(self._timestamps),)
        if self.wanted & HEADERS:
            columns["headers"] = _maps(self._headers)
        if self.wanted & DATA:
            columns["data"] = _texts(self._bodies)
        if self.wanted & SIZE:
            columns["size"] = (_int64s(self._sizes),)
        if self.wanted & REPLY:
            columns["reply"] = _texts(self._replies)
        self._clear()
        return columns


def _has_status(block: bytes) -> bool:
    return block[8:9] == b" " and block[9:10].isdigit()


def _number(text: bytes) -> int:
    """The decimal number that `text` spells, -1 for anything else."""
    if not 0 < len(text) <= 19 or not text.isdigit():
        return -1
    value = int(text)
    return value if value <= _INT64_MAX else -1


def _time(text: bytes) -> int | None:
    """Nanoseconds since the epoch of an RFC 3339 time; None for anything else."""
    head, rest = text[:19], text[19:]
    if len(head) < 19 or bytes(head[i] for i in (4, 7, 10, 13, 16)) != b"--T::":
        return None
    parts = [head[0:4], head[5:7], head[8:10], head[11:13], head[14:16], head[17:19]]
    if not all(part.isdigit() for part in parts):
        return None
    year, month, day, hour, minute, second = (int(part) for part in parts)
    if not 1 <= month <= 12 or not 1 <= day <= 31 or year < 1:
        return None
    fraction = b""
    if rest[:1] == b".":
        digits = len(rest[1:]) - len(rest[1:].lstrip(b"0123456789"))
        fraction, rest = rest[1 : 1 + digits], rest[1 + digits :]
        if not 1 <= digits <= 9:
            return None
    offset = 0
    if rest != b"Z":
        sign, hours, colon, minutes = rest[:1], rest[1:3], rest[3:4], rest[4:]
        if sign not in (b"+", b"-") or colon != b":" or len(hours + minutes) != 4:
            return None
        if not (hours + minutes).isdigit():
            return None
        offset = (int(hours) * 3600 + int(minutes) * 60) * (1 if sign == b"+" else -1)
    seconds = timegm((year, month, 1, hour, minute, second)) + (day - 1) * 86400 - offset
    value = seconds * 1_000_000_000 + int(fraction.ljust(9, b"0") or b"0")
    return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else None


def _text(data: bytes) -> bytes:
    """`data` if it is UTF-8, as Arrow's text must be; otherwise with what is not, replaced."""
    return data if data.isascii() else data.decode("utf-8", "replace").encode()


def _int64s(values: list[int]) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _offsets(sizes: list[int]) -> bytes:
    at = 0
    offsets = [0]
    for size in sizes:
        at += size
        offsets.append(at)
    return struct.pack(f"={len(offsets)}i", *offsets)


def _texts(values: list[bytes]) -> tuple[bytes, bytes]:
    return _offsets([len(value) for value in values]), b"".join(values)


def _maps(headers: list[dict[bytes, list[bytes]]]) -> tuple[bytes, ...]:
    """Offsets of a map's entries, its keys, offsets of the lists of values, the values."""
    names = [name for fields in headers for name in fields]
    lists = [values for fields in headers for values in fields.values()]
    return (
        _offsets([len(fields) for fields in headers]),
        *_texts([_text(name) for name in names]),
        _offsets([len(values) for values in lists]),
        *_texts([_text(value) for values in lists for value in values]),
    )
