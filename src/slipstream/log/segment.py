"""A segment file: a header, records, and once it is closed a footer that says what is in it.

    header   "SLIPSEG1", base sequence (u64), reserved (12 bytes), CRC-32             32 bytes
    records  see `record`
    footer   head, names, stats, tombs | ids, steps       each but the head packed by zlib
    trailer  offset of the footer (u64), CRC-32 of the first part, "SLFT"             16 bytes

The first part of a footer is read when the log is opened: counts, times, and each subject with its
count, first and last place, and what its records removed. `as_of` says how much of what later
segments removed it knows already: all that was told by segments with a lower base. The second part,
the subject id and the place in the file of each record, is read when somebody reads or removes in
that segment, and forgotten again. A segment without a whole footer (the one written to, or one that
a crash left) is scanned instead.
"""

import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipstream.errors import CorruptionError, DiskFullError
from slipstream.log.base import Block
from slipstream.log.columns import GONE, Column
from slipstream.log.disk import File
from slipstream.log.record import ERASED, MESSAGE, Record, decode, encode, resync
from slipstream.log.subject_index import SubjectIndex
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

HEADER_SIZE = 32
TRAILER_SIZE = 16
_HEADER_MAGIC = b"SLIPSEG1"
_TRAILER_MAGIC = b"SLFT"
_HEADER = struct.Struct("<8sQ12xI")
_TRAILER = struct.Struct("<QI4s")
# places, live, bytes, first ts, last ts, end of records, front, last sequence, as of, width of ids,
# sizes of: names, stats, tombs, ids, steps; CRC-32 of the second part
_HEAD = struct.Struct("<IIQqqQQQQBIIIIII")
_WITH_HEADERS = 0x80  # beside the width: a message in the segment has had a header block
RANGE = struct.Struct("<QI")  # a removed range: first sequence, how many


class Segment(Block):
    """A block in a file. `offsets` goes with `ids`; both are None while not in memory."""

    def __init__(self, base: _int, path: str) -> None:
        super().__init__(base)
        self.path = path
        self.salt = salt_of(base)
        self.offsets: Column | None = Column()
        self.written = HEADER_SIZE  # bytes handed to the operating system
        self.records_end = HEADER_SIZE  # where the footer is, or will be
        self.places = 0  # sequences covered, once closed
        self.dead: bytearray | None = None  # bits of places removed since it was closed
        self.tombs = bytearray()  # removed ranges that its own records tell of, packed (`RANGE`),
        self.front = 0  # the last moved front,
        self.last_seq = 0  # and how far sequences were used without a record
        self.as_of = 0  # its footer knows what segments with a lower base removed
        self.file: File | None = None  # opened when needed
        self.pins = 0  # uses of `file` by syncs and jobs that are under way
        self.unwanted = False  # close `file` with the last of them
        self.closed = False
        self.footed = False
        self.compact_below = 0  # live bytes below which rewriting it is worth while
        self.signposts: tuple[int, array[_int]] | None = None  # see `segment_reader`
        self.chunks: list[tuple[int, bytes]] = []  # what was last written, by offset

    def pin(self) -> None:
        """Somebody elsewhere begins to use `file`."""
        self.pins += 1

    def unpin(self) -> None:
        """Not any more."""
        self.pins -= 1
        if self.unwanted:
            self.let_go()

    def let_go(self) -> None:
        """Close `file`, now or when nobody uses it."""
        self.unwanted = self.pins > 0
        if not self.unwanted and self.file is not None:
            self.file.close()
            self.file = None

    def bury(self, i: _int) -> _int:
        """Note that place `i` was removed after the segment was closed."""
        if self.dead is None:
            self.dead = bytearray(self.places // 8 + 1)
        self.dead[i >> 3] |= 1 << (i & 7)
        return 0


def salt_of(base: _int) -> _int:
    """What the checksums of a segment's records begin with."""
    return zlib.crc32(base.to_bytes(8, "little"))


def encode_header(base: _int) -> bytes:
    """The first bytes of a segment file."""
    head = _HEADER.pack(_HEADER_MAGIC, base, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little")


def decode_header(data: bytes) -> _int:
    """The base sequence; raises `CorruptionError`."""
    if len(data) >= HEADER_SIZE:
        magic, base, crc = _HEADER.unpack_from(data)
        if magic == _HEADER_MAGIC and zlib.crc32(data[: HEADER_SIZE - 4]) == crc:
            return int(base)
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
    tombs: bytes
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
            bytes(segment.tombs),
            segment.has_headers,
        )

    def encode(self, records_end: int, offsets: Column) -> bytes:
        """The footer with its trailer, to stand at `records_end`."""
        count = len(self.names)
        width = 1 if count < 0xFF else 2 if count < 0xFFFF else 4
        raw = (
            b"\n".join(self.names),
            self.dense.stats(count),
            self.tombs,
            self.dense.pack(width),
            offsets.pack_steps(HEADER_SIZE),
        )
        parts = [zlib.compress(part, 1) for part in raw]
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
            zlib.crc32(second),
        )
        first = head + b"".join(parts[:3])
        return first + second + _TRAILER.pack(records_end, zlib.crc32(first), _TRAILER_MAGIC)


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
            self._file.append(self._draft.encode(self._end, self._offsets))
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
    tombs: bytes
    has_headers: bool
    second: tuple[int, tuple[int, ...], int, int]  # where the second part is, sizes, width, CRC

    def apply(self, segment: Segment) -> None:
        """Describe `segment`, leaving its columns on disk."""
        segment.places = self.places
        segment.live = self.live
        segment.bytes = self.size
        segment.first_ts = self.first_ts
        segment.last_ts = self.last_ts
        segment.records_end = segment.written = self.records_end
        segment.tombs = bytearray(self.tombs)
        segment.front = self.front
        segment.last_seq = self.last_seq
        segment.as_of = self.as_of
        segment.has_headers = self.has_headers
        segment.closed = segment.footed = True
        segment.ids = None
        segment.offsets = None


def read_footer(file: File) -> Footer:
    """The first part of the footer; raises `CorruptionError` if there is no whole one."""
    held = file.size()
    trailer = (
        file.pread(held - TRAILER_SIZE, TRAILER_SIZE) if held >= HEADER_SIZE + TRAILER_SIZE else b""
    )
    if len(trailer) < TRAILER_SIZE or not trailer.endswith(_TRAILER_MAGIC):
        raise CorruptionError("a segment has no footer")
    at, crc, _ = _TRAILER.unpack(trailer)
    head = file.pread(at, _HEAD.size) if at < held else b""
    if len(head) < _HEAD.size:
        raise CorruptionError("a segment's footer is damaged")
    fields = _HEAD.unpack(head)
    sizes = fields[10:15]
    first_size = _HEAD.size + sum(sizes[:3])
    first = file.pread(at, min(first_size, held - at))
    if zlib.crc32(first) != crc:
        raise CorruptionError("a segment's footer is damaged")
    ends = [_HEAD.size + sum(sizes[:n]) for n in range(4)]
    names, stats, tombs = (zlib.decompress(first[ends[n] : ends[n + 1]]) for n in range(3))
    width = fields[9] & ~_WITH_HEADERS
    second = (at + first_size, sizes[3:], width, fields[15])
    places, live, size, first_ts, last_ts, records_end, front, last_seq, as_of = fields[:9]
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
        tombs,
        fields[9] & _WITH_HEADERS != 0,
        second,
    )


def read_columns(file: File, footer: Footer, names: "list[int] | None") -> "tuple[Column, Column]":
    """The second part: subject ids (translated by `names`) and offsets, by place."""
    at, sizes, width, crc = footer.second
    data = file.pread(at, min(sum(sizes), file.size() - at))
    if zlib.crc32(data) != crc:
        raise CorruptionError("a segment's footer is damaged")
    ids = Column.unpack(zlib.decompress(data[: sizes[0]]), width, names)
    offsets = Column.unpack_steps(zlib.decompress(data[sizes[0] :]), HEADER_SIZE)
    return ids, offsets


def scan_records(data: bytes, base: int, salt: int) -> Iterator[tuple[Record, int]]:
    """Each whole record with its offset; the same object is filled each time."""
    record = Record()
    at = HEADER_SIZE
    while at >= 0 and at < len(data):
        end = decode(data, at, salt, base, record)
        if end:
            yield record, at
            at = end
        else:
            at = resync(data, at + 1, salt)


def scan_columns(data: bytes, segment: Segment, subjects: SubjectIndex) -> tuple[Column, Column]:
    """The columns of a segment, from the records in `data`: for where its footer is damaged."""
    ids = Column()
    offsets = Column()
    for record, at in scan_records(data, segment.base, segment.salt):
        if record.kind not in (MESSAGE, ERASED):
            continue
        if ids.size > record.seq - segment.base:
            continue  # a stray copy
        while ids.size < record.seq - segment.base:
            ids.append(GONE)
            offsets.append(at)
        id = subjects.find(record.subject) if record.kind == MESSAGE else -1
        ids.append(GONE if id < 0 else id)
        offsets.append(at)
    while ids.size < segment.places:
        ids.append(GONE)
        offsets.append(segment.records_end)
    for first, count in RANGE.iter_unpack(segment.tombs):
        for seq in range(max(first, segment.base), min(first + count, segment.base + ids.size)):
            ids.set(seq - segment.base, GONE)
    return ids, offsets


def erased(segment: Segment, place: int, record: Record) -> bytes:
    """What is written over a message to destroy it: as long, so that the next one is found."""
    out = OutBuffer()
    header_size = record.body_start - record.header_start
    subject = bytes(len(record.subject))
    data = bytes(record.end - record.header_start)
    encode(out, ERASED, segment.salt, place, record.ts, subject, data, 0, header_size, len(data))
    return out.take()
