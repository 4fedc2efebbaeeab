"""The archive of a stream: what nats-server writes from 2.15 on, and Slipstream.

    NATSARC1                                  magic
    state.json                                the stream's state
    consumers/<name>                          {"config": ..., "state": ...}, for each consumer
    <subject>                                 each message, by sequence
    (empty name)                              the end

Each entry is a head of numbers (uvarint: size of the name, zigzag varint: time in ns, uvarint:
sequence, size of the header block, size of the body), then the name, the header block, the body.
"""

import slipstream.wire.ascii as char
from slipstream.errors import CorruptionError
from slipstream.log.record import Record
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

MAGIC = b"NATSARC1"
STATE = b"state.json"
CONSUMER = b"consumers/"
NAME_BYTES_MAX: _int = 65_535
HEADER_BYTES_MAX: _int = 65_535
BODY_BYTES_MAX: _int = 64 * 1024 * 1024  # no server stores larger messages

# A uvarint has seven bits in each byte, the lowest first; the eighth says that more follow.
_LOW_BITS = 0x7F
_MORE_FOLLOWS = 0x80
_SHIFT_MAX = 56


def may_be_subject(subject: bytes) -> bool:
    """Whether a message may have this subject: clients publish to wildcards, too, as words."""
    for i in range(len(subject)):
        c = subject[i]
        if c == char.SPACE or c == char.TAB or c == char.CR or c == char.LF:
            return False
    return len(subject) > 0


def put_number(out: OutBuffer, value: _int) -> None:
    """Append a uvarint."""
    while value > _LOW_BITS:
        out.put_byte(value & _LOW_BITS | _MORE_FOLLOWS)
        value >>= 7
    out.put_byte(value)


def put_entry(
    out: OutBuffer,
    name: bytes,
    ts: _int,
    seq: _int,
    data: bytes,
    header_start: _int,
    body_start: _int,
    end: _int,
) -> None:
    """Append an entry; the header block is ``data[header_start:body_start]``, the body follows."""
    put_number(out, len(name))
    put_number(out, ts << 1 if ts >= 0 else (-ts << 1) - 1)
    put_number(out, seq)
    put_number(out, body_start - header_start)
    put_number(out, end - body_start)
    out.put(name)
    out.put_slice(data, header_start, end)


def put_content(out: OutBuffer, name: bytes, ts: _int, content: bytes) -> None:
    """Append an entry that is no message."""
    put_entry(out, name, ts, 0, content, 0, 0, len(content))


def put_end(out: OutBuffer) -> None:
    """Append the end."""
    put_entry(out, b"", 0, 0, b"", 0, 0, 0)


class EntryReader:
    """Finds the entries in what `feed` is given, one after another."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._parts: list[bytes] = []  # what came after that
        self._waiting = 0  # bytes of these
        self._need = 0  # bytes from `_at` on that the next entry has, where that is known
        self._after = b""  # what follows where `_data` is one entry that came in two parts ...
        self._after_at = 0  # ... from here on
        self._cursor = 0
        self._is_begun = False
        self.ended = False  # the end was there, and `next` finds nothing any more

    def feed(self, data: bytes) -> None:
        """More of the archive."""
        self._parts.append(data)
        self._waiting += len(data)

    def next(self, record: Record) -> bool:
        """Fill `record` with the next entry, its name as the subject; False if more has to come.
        Raises `CorruptionError`."""
        if self._parts:
            if len(self._data) - self._at + self._waiting < self._need:
                return False
            self._go_on()
        if self._after and self._at == len(self._data):
            self._data, self._after = self._after, b""
            self._at = self._after_at
        data = self._data
        if not self._is_begun:
            if len(data) < 8:
                return False
            if data[:8] != MAGIC:
                raise CorruptionError("this is no archive of a stream: it begins otherwise")
            self._is_begun = True
            self._at = 8
        if self.ended:
            if self._at < len(data):
                raise CorruptionError("the archive is damaged: it goes on after its end")
            return False
        return self._next(data, record)

    def _go_on(self) -> None:
        """Go on in what has come. Of a large part nothing is copied but the end of an entry."""
        rest = self._data[self._at :] + self._after[self._after_at :]
        first = self._parts[0]
        missing = self._need - len(rest)
        if len(self._parts) == 1 and (not rest or 0 < missing <= len(first)):
            self._data = rest + first[:missing] if rest else first
            self._after = first if rest else b""
            self._after_at = missing
        else:
            self._data = b"".join([rest, *self._parts])
            self._after = b""
        self._parts = []
        self._at = self._waiting = self._need = 0

    def _next(self, data: bytes, record: Record) -> bool:
        self._cursor = self._at
        name_size = self._number(data)
        stamp = self._number(data)
        seq = self._number(data)
        header_size = self._number(data)
        body_size = self._number(data)
        if body_size < 0 or header_size < 0 or seq < 0 or stamp < 0 or name_size < 0:
            return False
        if (
            name_size > NAME_BYTES_MAX
            or header_size > HEADER_BYTES_MAX
            or body_size > BODY_BYTES_MAX
        ):
            raise CorruptionError("the archive is damaged: an entry is larger than one can be")
        at = self._cursor
        if at + name_size + header_size + body_size > len(data):
            self._need = at - self._at + name_size + header_size + body_size
            return False
        record.subject = data[at : at + name_size]
        record.ts = (stamp >> 1) ^ -(stamp & 1)
        record.seq = seq
        record.data = data
        record.header_start = at + name_size
        record.body_start = record.header_start + header_size
        record.end = record.body_start + body_size
        self._at = record.end
        if name_size == 0:
            self.ended = True
            return self.next(record)
        return True

    def _number(self, data: bytes) -> _int:
        """The uvarint at the cursor, which moves behind it; -1 if more has to come."""
        at = self._cursor
        size = len(data)
        if at < 0 or at >= size:
            self._cursor = -1
            return -1
        value = data[at]
        at += 1
        if value & _MORE_FOLLOWS:
            value &= _LOW_BITS
            shift = 7
            while True:
                if shift > _SHIFT_MAX:
                    raise CorruptionError("the archive is damaged: a number is too large")
                if at >= size:
                    self._cursor = -1
                    return -1
                byte = data[at]
                at += 1
                value += (byte & _LOW_BITS) << shift
                shift += 7
                if not byte & _MORE_FOLLOWS:
                    break
        self._cursor = at
        return value
