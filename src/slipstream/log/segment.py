"""A segment file: a header, records, and once it is closed a footer that says what is in it.

    header   "SLIPSEG2", base sequence (u64), salt (u32), whether it was
             rewritten (u8), zeros (7 bytes), CRC-32                                  32 bytes
    records  see `record`
    footer   head, names, stats, removed_ranges | ids, steps       each but the head packed by zlib
    trailer  offset of the footer (u64), salt (u32), CRC-32 of the first part, "SLF2" 20 bytes

All checksums but the header's begin with the salt, a random number. A client does not know it, so
nothing that a client stores can pass for a record or a footer. In segments of the first format
("SLIPSEG1", zeros for the salt; "SLFT", no salt in the trailer) the salt is made of the base
sequence, and the footer's checksums begin with 0.

The first part of a footer is read when the log is opened: counts, times, and each subject with its
count, first and last place, and what its records removed. `as_of` says how much of what later
segments removed it knows already: all that was told by segments with a lower base. The second part,
the subject id and the place in the file of each record, is unpacked when somebody reads or removes
in that segment, and forgotten again; when the log is opened only its checksum is verified. The
counts of the first part are true of the second one alone: if either is damaged, a scan makes both
anew. A segment without a whole footer (the one written to, or one that
a crash left) is scanned instead.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.errors import CorruptionError, DiskFullError
from slipstream.log.base import Block
from slipstream.log.columns import GONE, Column
from slipstream.log.disk import File
from slipstream.log.packing import inflate
from slipstream.log.record import (
    ERASED,
    FRONT,
    MESSAGE,
    SKIP,
    TOMBSTONE,
    Record,
    decode,
    encode,
    next_whole,
)
from slipstream.log.subject_index import SubjectIndex
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.checksum import crc32

_int = int  # the name `int` in a compiled module's annotations is a C type

SEQUENCE_MAX = (1 << 63) - 1  # of what is read from a disk: those after it fit into 64 bits, too
PLACES_MAX: _int = 4 * 1024 * 1024  # of a segment: small records keep its columns small, too
HEADER_SIZE = 32
FORMAT = 2  # of new segments
_HEADER_MAGIC = b"SLIPSEG2"
_HEADER = struct.Struct("<8sQIB7xI")
_TRAILER_MAGIC = b"SLF2"
_TRAILER = struct.Struct("<QII4s")
_FIRST_HEADER_MAGIC = b"SLIPSEG1"
_FIRST_TRAILER_MAGIC = b"SLFT"
_FIRST_TRAILER = struct.Struct("<QI4s")
# places, live, bytes, first ts, last ts, end of records, front, last sequence, as of, width of ids,
# sizes of: names, stats, removed_ranges, ids, steps; CRC-32 of the second part
_HEAD = struct.Struct("<IIQqqQQQQBIIIIII")
_WITH_HEADERS = 0x80  # beside the width: a message in the segment has had a header block
RANGE = struct.Struct("<QI")  # a removed range: first sequence, how many
RANGE_SIZE: _int = RANGE.size


class Segment(Block):
    """A block in a file. `offsets` goes with `ids`; both are None while not in memory."""

    def __init__(self, base: _int, path: str) -> None:
        super().__init__(base)
        self.path = path
        self.format = FORMAT
        self.salt = 0  # what the checksums of its records begin with
        self.rewritten = False  # compaction has moved its records
        self.offsets: Column | None = Column()
        self.written = HEADER_SIZE  # bytes handed to the operating system
        self.records_end = HEADER_SIZE  # where the footer is, or will be
        self.places = 0  # sequences covered, once closed
        self.dead: bytearray | None = None  # bits of places removed since it was closed
        self.removed_ranges = bytearray()  # that its own records tell of, packed (`RANGE`),
        self.front = 0  # the last moved front,
        self.last_seq = 0  # and how far sequences were used without a record
        self.as_of = 0  # its footer knows what segments with a lower base removed
        self.file: File | None = None  # opened when needed
        self.pins = 0  # uses of `file` by syncs and jobs that are under way
        self.unwanted = False  # close `file` with the last of them
        self.closed = False
        self.footed = False
        self.compact_below = 0  # live bytes below which rewriting it is worth while
        self.offset_samples: tuple[int, array[_int]] | None = None  # see `segment_reader`
        self.chunks: list[tuple[int, bytes]] = []  # what was last written, by offset
        self.copy: Any = None  # what the commit log has of it, a `SegmentCopy`
        self.referred = HEADER_SIZE  # how far batches reach to which it has references
        self.checksum = 0  # of the last control record that was written

    def pin(self) -> None:
        """Somebody elsewhere begins to use `file`."""
        self.pins += 1

    def unpin(self) -> None:
        """Allow the file to be closed, once for each `pin`."""
        self.pins -= 1
        if self.unwanted:
            self.let_go()

    def let_go(self) -> None:
        """Close `file`, now or when nobody uses it."""
        self.unwanted = self.pins > 0
        if not self.unwanted and self.file is not None:
            self.file.close()
            self.file = None

    def bury(self, i: _int) -> None:
        """Note that place `i` was removed after the segment was closed."""
        if self.dead is None:
            self.dead = bytearray(self.places // 8 + 1)
        self.dead[i >> 3] |= 1 << (i & 7)


def first_format_salt(base: _int) -> _int:
    """What the checksums begin with in a segment of the first format."""
    return crc32(base.to_bytes(8, "little"))


def encode_header(segment: Segment) -> bytes:
    """The first bytes of a segment file."""
    first = segment.format == 1
    magic = _FIRST_HEADER_MAGIC if first else _HEADER_MAGIC
    salt = 0 if first else segment.salt
    head = _HEADER.pack(magic, segment.base, salt, segment.rewritten, 0)[:-4]
    return head + crc32(head).to_bytes(4, "little")


@dataclass
class Header:
    """What the first bytes of a segment file say."""

    base: int
    salt: int
    format: int
    rewritten: bool


def decode_header(data: bytes) -> Header:
    """The header in the first bytes of `data`; raises `CorruptionError`."""
    if len(data) >= HEADER_SIZE:
        magic, base, salt, rewritten, crc = _HEADER.unpack_from(data)
        if crc32(data[: HEADER_SIZE - 4]) == crc and base <= SEQUENCE_MAX:
            if magic == _HEADER_MAGIC:
                return Header(base, salt, FORMAT, bool(rewritten))
            if magic == _FIRST_HEADER_MAGIC:
                return Header(base, first_format_salt(base), 1, bool(rewritten))
    raise CorruptionError("the header of a segment file is damaged")


@dataclass
class FooterDraft:
    """What a footer will say, copied out of a segment; `dense` are its ids as places in `names`."""

    places: int
    live: int
    size: int
    first_ts: int
    last_ts: int
    front: int
    last_seq: int
    as_of: int
    names: list[bytes]
    dense: Column
    removed_ranges: bytes
    has_headers: bool

    @staticmethod
    def of(segment: Segment, subjects: SubjectIndex, as_of: int) -> "FooterDraft":
        """What there is to say about `segment` now; its columns are in memory."""
        assert segment.ids is not None
        dense, ids = segment.ids.translate()
        return FooterDraft(
            dense.size,
            segment.live,
            segment.bytes,
            segment.first_ts,
            segment.last_ts,
            segment.front,
            segment.last_seq,
            as_of,
            [subjects.subject(id) for id in ids],
            dense,
            bytes(segment.removed_ranges),
            segment.has_headers,
        )

    def encode(self, records_end: int, offsets: Column, segment: Segment) -> bytes:
        """The footer of `segment` with its trailer, to stand at `records_end`."""
        count = len(self.names)
        width = 1 if count < 0xFF else 2 if count < 0xFFFF else 4
        raw = (
            b"\n".join(self.names),
            self.dense.stats(count),
            self.removed_ranges,
            self.dense.pack(width),
            offsets.pack_steps(HEADER_SIZE),
        )
        parts = [zlib.compress(part, 1) for part in raw]
        salt = segment.salt if segment.format > 1 else 0
        second = b"".join(parts[3:])
        head = _HEAD.pack(
            self.places,
            self.live,
            self.size,
            self.first_ts,
            self.last_ts,
            records_end,
            self.front,
            self.last_seq,
            self.as_of,
            width | (_WITH_HEADERS if self.has_headers else 0),
            *(len(part) for part in parts),
            crc32(second, salt),
        )
        first = head + b"".join(parts[:3])
        crc = crc32(first, salt)
        if segment.format == 1:
            trailer = _FIRST_TRAILER.pack(records_end, crc, _FIRST_TRAILER_MAGIC)
        else:
            trailer = _TRAILER.pack(records_end, salt, crc, _TRAILER_MAGIC)
        return first + second + trailer


class FooterJob:
    """Writes the footer of a segment that was just closed."""

    def __init__(
        self, segment: Segment, draft: FooterDraft, done: Callable[[Segment], None]
    ) -> None:
        assert segment.file is not None
        assert segment.offsets is not None
        self.error: Exception | None = None
        self._segment = segment
        self._file = segment.file
        self._end = segment.records_end
        self._draft = draft
        self._offsets = segment.offsets  # of a closed segment: they do not change any more
        self._done = done
        segment.pin()

    def run(self) -> None:
        """Pack, append, fdatasync."""
        try:
            self._file.truncate(self._end)
            self._file.append(self._draft.encode(self._end, self._offsets, self._segment))
            self._file.sync()
        except (OSError, DiskFullError) as error:  # then the segment is scanned at start
            self.error = error

    def finish(self) -> None:
        """The segment's columns may leave memory from now on."""
        self._segment.unpin()
        if self.error is None:
            self._segment.footed = True
            self._segment.as_of = self._draft.as_of
            self._done(self._segment)


@dataclass
class Footer:
    """The first part of a footer."""

    places: int
    live: int
    size: int  # of the live messages, as clients count them
    first_ts: int
    last_ts: int
    records_end: int
    front: int
    last_seq: int
    as_of: int
    names: bytes
    stats: bytes
    removed_ranges: bytes
    has_headers: bool
    second: tuple[int, tuple[int, ...], int, int]  # where the second part is, sizes, width, CRC
    salt: int  # what the checksum of the second part begins with

    def apply(self, segment: Segment) -> None:
        """Describe `segment`, leaving its columns on disk."""
        segment.places = self.places
        segment.live = self.live
        segment.bytes = self.size
        segment.first_ts = self.first_ts
        segment.last_ts = self.last_ts
        segment.records_end = segment.written = segment.referred = self.records_end
        segment.removed_ranges = bytearray(self.removed_ranges)
        segment.front = self.front
        segment.last_seq = self.last_seq
        segment.as_of = self.as_of
        segment.has_headers = self.has_headers
        segment.closed = segment.footed = True
        segment.ids = None
        segment.offsets = None


@dataclass
class Trailer:
    """The last bytes of a segment file that was closed."""

    footer_at: int
    salt: int
    crc: int
    format: int


def read_trailer(file: File) -> Trailer:
    """The trailer; raises `CorruptionError` if there is none."""
    held = file.size()
    data = file.pread(max(held - _TRAILER.size, 0), _TRAILER.size)
    if held >= HEADER_SIZE + _TRAILER.size and data.endswith(_TRAILER_MAGIC):
        at, salt, crc, _ = _TRAILER.unpack(data)
        return Trailer(at, salt, crc, FORMAT)
    if held >= HEADER_SIZE + _FIRST_TRAILER.size and data.endswith(_FIRST_TRAILER_MAGIC):
        at, crc, _ = _FIRST_TRAILER.unpack(data[-_FIRST_TRAILER.size :])
        return Trailer(at, 0, crc, 1)
    raise CorruptionError("a segment has no footer")


def read_footer(file: File, segment: Segment) -> Footer:
    """The first part of the footer; raises `CorruptionError` if there is no whole one.

    Nothing is believed that cannot be: a footer of the first format may have been stored by a
    client as the end of a body.
    """
    held = file.size()
    trailer = read_trailer(file)
    salt = segment.salt if segment.format > 1 else 0
    if trailer.format != segment.format or trailer.salt != salt:
        raise CorruptionError("a segment ends with the footer of another one")
    at = trailer.footer_at
    head = file.pread(at, _HEAD.size) if HEADER_SIZE <= at < held else b""
    if len(head) < _HEAD.size:
        raise CorruptionError("a segment's footer is damaged")
    fields = _HEAD.unpack(head)
    sizes = fields[10:15]
    first_size = _HEAD.size + sum(sizes[:3])
    first = file.pread(at, min(first_size, held - at))
    if crc32(first, salt) != trailer.crc:
        raise CorruptionError("a segment's footer is damaged")
    places, live, size, first_ts, last_ts, records_end, front, last_seq, as_of = fields[:9]
    width = fields[9] & ~_WITH_HEADERS
    end_seq = segment.base + places
    if (
        records_end != at
        or places > PLACES_MAX
        or live > places
        or width not in (1, 2, 4)
        or max(size, front, last_seq, as_of, end_seq) > SEQUENCE_MAX
        or front > max(end_seq, last_seq + 1)
    ):
        raise CorruptionError("a segment's footer says what cannot be")
    ends = [_HEAD.size + sum(sizes[:n]) for n in range(4)]
    limits = (records_end, 12 * live, records_end)
    names, stats, removed_ranges = (
        inflate(first[ends[n] : ends[n + 1]], limits[n], "a segment's footer") for n in range(3)
    )
    _check_names(names, stats, live, places)
    check_ranges(removed_ranges, max(end_seq, last_seq + 1))
    return Footer(
        places,
        live,
        size,
        first_ts,
        last_ts,
        records_end,
        front,
        last_seq,
        as_of,
        names,
        stats,
        removed_ranges,
        fields[9] & _WITH_HEADERS != 0,
        (at + first_size, sizes[3:], width, fields[15]),
        salt,
    )


def _check_names(names: bytes, stats: bytes, live: _int, places: _int) -> None:
    """Raises `CorruptionError` if the numbers of the subjects do not add up."""
    count = names.count(b"\n") + 1 if stats else 0
    numbers = array("I")
    if len(stats) == 3 * numbers.itemsize * count:
        numbers.frombytes(stats)
    counts, lasts = numbers[0::3], numbers[2::3]
    if sum(counts) != live or len(counts) != count or (count and not min(counts)):
        raise CorruptionError("a segment's footer does not add up")
    if count and max(lasts) >= places:
        raise CorruptionError("a segment's footer names places that it does not have")


def check_ranges(packed: bytes, end: _int) -> None:
    """Raises `CorruptionError` if a removed range is empty or reaches to `end` or beyond."""
    if len(packed) % RANGE.size:
        raise CorruptionError("a list of removed ranges is cut off")
    for first, count in RANGE.iter_unpack(packed):
        if not first or not count or first + count > end:
            raise CorruptionError("a removed range cannot be")


def check_columns(file: File, footer: Footer) -> bytes:
    """The bytes of the second part, packed. Raises `CorruptionError` if they are damaged."""
    at, sizes, _, crc = footer.second
    data = file.pread(at, min(sum(sizes), file.size() - at))
    if crc32(data, footer.salt) != crc:
        raise CorruptionError("a segment's footer is damaged")
    return data


def read_columns(file: File, footer: Footer, names: "list[int] | None") -> "tuple[Column, Column]":
    """The second part: subject ids (translated by `names`) and offsets, by place.

    Raises `CorruptionError`.
    """
    data = check_columns(file, footer)
    _, sizes, width, _ = footer.second
    what = "a segment's footer"
    places = footer.places
    packed = inflate(data[: sizes[0]], width * places, what)
    steps = inflate(data[sizes[0] :], 4 * places, what)
    if len(packed) != width * places or len(steps) != 4 * places:
        raise CorruptionError("a segment's footer has too few places")
    try:
        ids = Column.unpack(packed, width, names)
    except ValueError as error:
        raise CorruptionError(f"a segment's footer is damaged: {error}") from error
    offsets = Column.unpack_steps(steps, HEADER_SIZE)
    if places and offsets.get(places - 1) > footer.records_end:
        raise CorruptionError("a segment's footer points to where no record is")
    return ids, offsets


def may_remove(record: Record, base: _int, place: _int) -> bool:
    """Whether a tombstone, a front or a skip says what can be: nothing about sequences that were
    not given out when it was written."""
    body = record.body()
    number = int.from_bytes(body[:8], "little")
    if record.kind == TOMBSTONE:
        try:
            check_ranges(body, base + place)
        except CorruptionError:
            return False
        return True
    if record.kind == FRONT:
        return len(body) == 8 and 0 < number <= base + place
    assert record.kind == SKIP
    return len(body) == 8 and number < base + place


def scan_records(data: bytes, base: int, salt: int) -> Iterator[tuple[Record, int]]:
    """Each whole record with its offset; the same object is filled each time."""
    record = Record()
    at = HEADER_SIZE
    place = 0
    while at >= 0 and at < len(data):
        end = decode(data, at, salt, base, record)
        if end and place <= record.seq - base <= PLACES_MAX:
            yield record, at
            place = record.seq - base + (record.kind in (MESSAGE, ERASED))
            at = end
        elif end:
            at = end  # a copy of an earlier record, or what cannot be
        else:
            at = next_whole(data, at, salt, place)


def scan_columns(data: bytes, segment: Segment, subjects: SubjectIndex) -> tuple[Column, Column]:
    """The columns of a segment, from the records in `data`: for where its footer cannot be read."""
    ids = Column()
    offsets = Column()
    for record, at in scan_records(data, segment.base, segment.salt):
        place = record.seq - segment.base
        if record.kind not in (MESSAGE, ERASED) or place >= segment.places:
            continue
        while ids.size < place:
            ids.append(GONE)
            offsets.append(at)
        id = subjects.find(record.subject) if record.kind == MESSAGE else -1
        ids.append(GONE if id < 0 else id)
        offsets.append(at)
    while ids.size < segment.places:
        ids.append(GONE)
        offsets.append(segment.records_end)
    for first, count in RANGE.iter_unpack(segment.removed_ranges):
        for seq in range(max(first, segment.base), min(first + count, segment.base + ids.size)):
            ids.set(seq - segment.base, GONE)
    for place in range(min(max(segment.front - segment.base, 0), ids.size)):
        ids.set(place, GONE)
    return ids, offsets


def erased(segment: Segment, place: int, record: Record) -> bytes:
    """What is written over a message to destroy it: as long, so that the next one is found."""
    out = OutBuffer()
    header_size = record.body_start - record.header_start
    subject = bytes(len(record.subject))
    data = bytes(record.end - record.header_start)
    encode(out, ERASED, segment.salt, place, record.ts, subject, data, 0, header_size, len(data))
    return out.take()
