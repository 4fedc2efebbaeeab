"""The record: how one message stands in a segment file.

    offset  size
       0     4   CRC-32 of everything after it, begun with the segment's salt
       4     4   length of the whole record
       8     1   magic, 0xA5: where to look for the next record after a damaged one
       9     1   kind (low four bits) and flags
      10     2   length of the subject
      12     4   place: the sequence minus the segment's base sequence
      16     8   time in nanoseconds since the epoch
      24     2   length of the header block, only with the flag
      ..     .   subject, header block, body

All numbers are little-endian. The salt is a random number that only the segment knows, so neither a
record of another segment nor bytes that a client made up check out.

The compiled build replaces this module by `record.pyx`; this is its plain twin and test oracle.
"""

import struct

from slipstream.log.columns import GONE, Column
from slipstream.log.subject_index import SubjectFilter, SubjectIndex
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.checksum import crc32

MESSAGE = 1  # a stored message
SKIP = 2  # the body is the last sequence used without storing anything (u64)
TOMBSTONE = 3  # the body lists removed ranges: (first u64, count u32) each
FRONT = 4  # the body is the first live sequence (u64): everything below is removed
ERASED = 5  # was a message; its bytes were destroyed
END = 6  # the last record of a closed segment; the body is the last sequence before the next (u64)
COMMIT = 7  # the last record of a batch; the body is how much of the segment was durable (u32)
VOID = 8  # was a tombstone or a front of a batch that a crash tore: it removes nothing

MAGIC = 0xA5
HAS_HEADER = 0x10
PACKED = 0x20  # a message whose body is deflated, after its size (u32); see `packing`
MORE = 0x40  # a message of a group that goes on with the next message; see `groups`
AFTER = 0x80  # a message of the same group as the message before it
FIXED_SIZE = 24
COMMIT_SIZE = 28
_KINDS = frozenset(
    kind | flag
    for kind in (
        *range(MESSAGE, VOID + 1),
        *(MESSAGE | packed | group for packed in (0, PACKED) for group in range(0, 0x100, MORE)),
    )
    for flag in (0, HAS_HEADER)
)
_PACKED_HEAD = struct.Struct("<QqIIH")  # of a message among many
_FIXED = struct.Struct("<IIBBHIq")


class Record:
    """A stored message by reference: the parts lie in `data` at the offsets given."""

    __slots__ = (
        "body_start",
        "data",
        "end",
        "header_start",
        "kind",
        "packed",
        "seq",
        "subject",
        "ts",
    )

    def __init__(self) -> None:
        self.seq = 0
        self.ts = 0
        self.subject = b""
        self.data = b""
        self.header_start = 0
        self.body_start = 0
        self.end = 0
        self.kind = 0
        self.packed = False  # the body is not what was published yet

    def header(self) -> bytes:
        """The header block; b"" when there is none."""
        return self.data[self.header_start : self.body_start]

    def body(self) -> bytes:
        """The payload without headers."""
        return self.data[self.body_start : self.end]


def encode(
    out: OutBuffer,
    kind: int,
    salt: int,
    place: int,
    ts: int,
    subject: bytes,
    data: bytes,
    header_start: int,
    body_start: int,
    end: int,
) -> int:
    """Append a record to `out`; its length.

    Raises IndexError if the parts reach outside of `data`, ValueError if the subject or the header
    block is longer than 65,535 bytes.
    """
    if not 0 <= header_start <= body_start <= end <= len(data):
        raise IndexError("a record's parts lie outside of its data")
    if len(subject) > 0xFFFF or body_start - header_start > 0xFFFF:
        raise ValueError("a record's subject or header block is longer than 65,535 bytes")
    header_size = body_start - header_start
    flags = HAS_HEADER if header_size else 0
    length = FIXED_SIZE + (2 if flags else 0) + len(subject) + end - header_start
    fixed = _FIXED.pack(0, length, MAGIC, kind | flags, len(subject), place, ts)[4:]
    extra = header_size.to_bytes(2, "little") if flags else b""
    rest = fixed + extra + subject + data[header_start:end]
    out.put(crc32(rest, salt).to_bytes(4, "little") + rest)
    return length


def encode_number(
    out: OutBuffer, kind: int, salt: int, place: int, ts: int, value: int, size: int
) -> int:
    """Append a record that has nothing but a number, in `size` bytes, at most 8; its length.

    Raises ValueError for another size.
    """
    if not 0 < size <= 8:
        raise ValueError("a number of a record has one to eight bytes")
    return encode(out, kind, salt, place, ts, b"", value.to_bytes(size, "little"), 0, 0, size)


def peek(data: bytes, at: int, base: int, record: Record) -> int:
    """Fill `record` from the record at `at` without checking its sum.

    The offset after it, or 0 if no whole record can begin there.
    """
    if at < 0 or at + FIXED_SIZE > len(data):
        return 0
    _, length, magic, kind, subject_size, place, ts = _FIXED.unpack_from(data, at)
    start = at + FIXED_SIZE
    header_size = 0
    if kind & HAS_HEADER:
        if at + FIXED_SIZE + 2 > len(data):
            return 0
        header_size = int.from_bytes(data[start : start + 2], "little")
        start += 2
    end = at + length
    if (
        magic != MAGIC
        or kind not in _KINDS
        or end > len(data)
        or start + subject_size + header_size > end
    ):
        return 0
    record.seq = base + place
    record.ts = ts
    record.kind = kind & 0x0F
    record.packed = kind & PACKED != 0
    record.subject = data[start : start + subject_size]
    record.data = data
    record.header_start = start + subject_size
    record.body_start = record.header_start + header_size
    record.end = end
    return int(end)


def decode(data: bytes, at: int, salt: int, base: int, record: Record) -> int:
    """`peek`, and 0 as well if the checksum does not fit."""
    end = peek(data, at, base, record)
    if not end or crc32(data[at + 4 : end], salt) != int.from_bytes(data[at : at + 4], "little"):
        return 0
    return end


def length_at(data: bytes, at: int) -> int:
    """The length that the record at `at` claims; 0 if its fixed part is not all there."""
    if at < 0 or at + FIXED_SIZE > len(data):
        return 0
    return int.from_bytes(data[at + 4 : at + 8], "little")


def resync(data: bytes, at: int, salt: int, place: int) -> int:
    """The offset of the next whole record of this `place` or a later one, at or after `at`; -1 if
    there is none. A record of an earlier place is a copy that was stored as a body."""
    if at < 0:
        return -1
    record = Record()
    magic = data.find(bytes([MAGIC]), at + 8)
    while magic >= 0:
        if decode(data, magic - 8, salt, 0, record) and record.seq >= place:
            return magic - 8
        magic = data.find(bytes([MAGIC]), magic + 1)
    return -1


def next_whole(data: bytes, at: int, salt: int, place: int) -> int:
    """The offset of the next whole record after the damaged one at `at`; -1 if there is none.

    `place` is that of the next message. If a record of this place or of the one after it begins
    where the damaged record says that it ends, nothing but that record is damaged, and its body is
    not searched.
    """
    record = Record()
    end = at + length_at(data, at)
    if end >= at + FIXED_SIZE and decode(data, end, salt, 0, record):
        if place <= record.seq <= place + 1:
            return end
    return resync(data, at + 1, salt, place)


class RunCounts:
    """What `read_run` has counted."""

    __slots__ = (
        "committed",
        "durable",
        "first_ts",
        "groups",
        "last_ts",
        "messages",
        "text_bytes",
        "with_header",
    )

    def __init__(self) -> None:
        self.messages = 0
        self.with_header = 0
        self.text_bytes = 0  # subjects, header blocks and bodies
        self.first_ts = 0
        self.last_ts = 0
        self.committed = 0  # where the last COMMIT record ends
        self.durable = 0  # the most that one has called durable
        self.groups = False  # whether there are messages of groups

    def add(self, subject_size: int, header_size: int, body_size: int, ts: int) -> None:
        """Count one message."""
        if self.messages == 0:
            self.first_ts = ts
        self.messages += 1
        self.with_header += header_size > 0
        self.text_bytes += subject_size + header_size + body_size
        self.last_ts = ts


def read_run(
    data: bytes,
    at: int,
    salt: int,
    subjects: SubjectIndex,
    base: int,
    ids: Column,
    offsets: Column,
    counts: RunCounts,
) -> int:
    """Take in the run of whole messages from `at` on whose places follow upon those in `ids`, and
    the COMMIT records between them.

    Each is counted in `counts` and in `subjects`, and has its subject's id and its offset appended
    to the columns. The offset where the run ends: at the end of `data`, at a record of another
    kind, at a gap between places, or at bytes that are no whole record; `decode` and `resync` tell
    which. This is how a segment without a footer is read at start, so it does no work in Python.
    """
    record = Record()
    while at >= 0:
        end = decode(data, at, salt, base, record)
        if not end or record.seq - base != len(ids):
            break
        if record.kind == COMMIT:
            durable = int.from_bytes(data[record.body_start : end], "little")
            if end - at != COMMIT_SIZE or durable > at:
                break
            counts.committed = end
            counts.durable = max(counts.durable, durable)
            at = end
            continue
        if record.kind != MESSAGE:
            break
        id = subjects.intern(record.subject)
        subjects.added(id, record.seq)
        ids.append(id)
        offsets.append(at)
        header_size = record.body_start - record.header_start
        body_size = record.end - record.body_start
        if record.packed and body_size >= 4:
            body_size = int.from_bytes(data[record.body_start : record.body_start + 4], "little")
        counts.add(len(record.subject), header_size, body_size, record.ts)
        counts.groups = counts.groups or data[at + 9] & (MORE | AFTER) != 0
        at = end
    return at


def copy_used(data: bytes, ids: Column, offsets: Column, out: OutBuffer, start: int) -> Column:
    """Append to `out` the records of the used places of `ids`, byte for byte, in order.

    `offsets` says where in `data` they are. Returns where they are in a file that has `start` bytes
    before those of `out`. A record whose length cannot be true is copied as far as it may reach,
    so that what is damaged stays to be looked at. Raises IndexError if one begins or ends behind
    `data`: the file was cut.
    """
    fresh = Column()
    for place in range(len(ids)):
        fresh.append(start + out.size)
        if ids.get(place) == GONE:
            continue
        at = offsets.get(place)
        limit = offsets.get(place + 1) if place + 1 < len(offsets) else len(data)
        length = length_at(data, at)
        if length < FIXED_SIZE or at + length > limit:
            length = limit - at
        out.put_slice(data, at, at + length)
    return fresh


class Portion:
    """How much one reader may be given at once, and how far that has come."""

    __slots__ = ("bytes", "end_seq", "large", "last_seq", "messages", "size_max")

    def __init__(self) -> None:
        self.messages = 0  # that may still come
        self.bytes = 0  # of subjects, header blocks and bodies that may; the last one may have more
        self.size_max = 0  # of the buffer, the message that reaches it included
        self.large = 0  # bytes of header block and body from which on a message is not copied
        self.end_seq = 0  # the last sequence that may come
        self.last_seq = 0  # of the message that was copied last


def copy_message(record: Record, out: OutBuffer) -> None:
    """Append a message to `out`, in the form of a packed answer
    (docs/protocol/streams.md#packed-batches)."""
    header_size = record.body_start - record.header_start
    body_size = record.end - record.body_start
    fields = (record.seq, record.ts, header_size, body_size, len(record.subject))
    out.put(_PACKED_HEAD.pack(*fields) + record.subject)
    out.put_slice(record.data, record.header_start, record.end)


def copy_run(
    data: bytes,
    start: int,
    salt: int,
    base: int,
    ids: Column,
    offsets: Column,
    i: int,
    matching: SubjectFilter | None,
    portion: Portion,
    out: OutBuffer,
) -> int:
    """Append to `out` the wanted messages from place `i` on, as far as they lie whole in `data`,
    where the segment's bytes from offset `start` on are; how many.

    They have the form of `copy_message`. A message that is not in `data`, is damaged, has a packed
    body or is large ends the run: `decode` and who reads single messages say what it is.
    """
    record = Record()
    copied = 0
    if matching is not None:
        matching.refresh()
    while portion.messages > 0 and portion.bytes > 0 and out.size < portion.size_max:
        if not 0 <= i < min(len(ids), len(offsets)) or base + i > portion.end_seq:
            break
        at = offsets.get(i) - start
        id = ids.get(i)
        if id == GONE or (matching is not None and not matching.accepts(id)):
            if at >= len(data):
                break
            i += 1
            continue
        if not decode(data, at, salt, base, record) or record.seq != base + i:
            break
        size = record.end - record.header_start
        if record.kind != MESSAGE or record.packed or size >= portion.large:
            break
        copy_message(record, out)
        portion.messages -= 1
        portion.bytes -= len(record.subject) + size
        portion.last_seq = record.seq
        copied += 1
        i += 1
    return copied
