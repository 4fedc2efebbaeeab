"""A segment file: a header, records, and once it is closed a footer that says what is in it.

    header   "SLIPSEG1", base sequence (u64), reserved (12 bytes), CRC-32             32 bytes
    records  see `record`
    footer   head, names, stats, tombs | ids, steps       each but the head packed by zlib
    trailer  offset of the footer (u64), CRC-32 of the first part, "SLFT"             16 bytes

The first part of a footer is read when the log is opened: counts, times, and each subject with its
count, first and last place, and what its records removed. The second part, the subject id and the
place in the file of each record, is read when somebody reads or removes in that segment, and
forgotten again. A segment without a whole footer
(the one written to, or one that a crash left) is scanned instead.
"""

import struct
import zlib
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
# places, live, bytes, first ts, last ts, end of records, front, last sequence, width of an id,
# sizes of: names, stats, tombs, ids, steps; CRC-32 of the second part
_HEAD = struct.Struct("<IIQqqQQQBIIIIII")
_RANGE = struct.Struct("<QI")


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
        self.tombs: list[tuple[int, int]] = []  # removed ranges that its own records tell of,
        self.front = 0  # the last moved front,
        self.last_seq = 0  # and how far sequences were used without a record
        self.file: File | None = None  # opened when needed
        self.closed = False
        self.footed = False
        self.chunks: list[tuple[int, bytes]] = []  # what was last written, by offset

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
class FooterJob:
    """Writes the footer of a segment that was just closed; everything it needs was copied out."""

    segment: Segment
    file: File
    done: Callable[[Segment], None]
    head: tuple[int, ...]
    names: bytes
    stats: bytes
    width: int
    tombs: bytes
    ids: bytes
    steps: bytes
    error: OSError | None = None

    def run(self) -> None:
        """Pack, append, fdatasync."""
        raw = (self.names, self.stats, self.tombs, self.ids, self.steps)
        parts = [zlib.compress(part, 1) for part in raw]
        second = b"".join(parts[3:])
        sizes = [len(part) for part in parts]
        head = _HEAD.pack(*self.head, self.width, *sizes, zlib.crc32(second))
        first = head + b"".join(parts[:3])
        trailer = _TRAILER.pack(self.head[5], zlib.crc32(first), _TRAILER_MAGIC)
        try:
            self.file.truncate(self.head[5])
            self.file.append(first + second + trailer)
            self.file.sync()
        except OSError as error:
            self.error = error
        except DiskFullError as error:  # without a footer the segment is scanned at start
            self.error = OSError(str(error))

    def finish(self) -> None:
        """The segment's columns may leave memory from now on."""
        if self.error is None:
            self.segment.footed = True
            self.done(self.segment)


def footer_job(
    segment: Segment,
    file: File,
    done: Callable[[Segment], None],
    subjects: "list[bytes]",
    dense: Column,
) -> FooterJob:
    """What it takes to write `segment`'s footer; `dense` are its ids as places in `subjects`."""
    assert segment.offsets is not None
    width = 1 if len(subjects) < 0xFF else 2 if len(subjects) < 0xFFFF else 4
    head = (
        dense.size,
        segment.live,
        segment.bytes,
        segment.first_ts,
        segment.last_ts,
        segment.records_end,
        segment.front,
        segment.last_seq,
    )
    return FooterJob(
        segment,
        file,
        done,
        head,
        b"\n".join(subjects),
        dense.stats(len(subjects)),
        width,
        b"".join(_RANGE.pack(first, count) for first, count in segment.tombs),
        dense.pack(width),
        segment.offsets.pack_steps(HEADER_SIZE),
    )


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
    names: bytes
    stats: bytes
    tombs: list[tuple[int, int]]
    second: tuple[int, tuple[int, ...], int, int]  # where the second part is, sizes, width, CRC

    def apply(self, segment: Segment) -> None:
        """Describe `segment`, leaving its columns on disk."""
        segment.places = self.places
        segment.live = self.live
        segment.bytes = self.size
        segment.first_ts = self.first_ts
        segment.last_ts = self.last_ts
        segment.records_end = self.records_end
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
    sizes = fields[9:14]
    first_size = _HEAD.size + sum(sizes[:3])
    first = file.pread(at, first_size)
    if zlib.crc32(first) != crc:
        raise CorruptionError("a segment's footer is damaged")
    ends = [_HEAD.size + sum(sizes[:n]) for n in range(4)]
    names, stats, tombs = (zlib.decompress(first[ends[n] : ends[n + 1]]) for n in range(3))
    removed = [(seq, count) for seq, count in _RANGE.iter_unpack(tombs)]
    second = (at + first_size, sizes[3:], fields[8], fields[14])
    places, live, size, first_ts, last_ts, records_end, front, last_seq = fields[:8]
    return Footer(
        places,
        live,
        size,
        first_ts,
        last_ts,
        records_end,
        front,
        last_seq,
        names,
        stats,
        removed,
        second,
    )


def read_columns(file: File, footer: Footer, names: "list[int] | None") -> "tuple[Column, Column]":
    """The second part: subject ids (translated by `names`) and offsets, by place."""
    at, sizes, width, crc = footer.second
    data = file.pread(at, sum(sizes))
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
        while ids.size < record.seq - segment.base:
            ids.append(GONE)
            offsets.append(at)
        id = subjects.find(record.subject) if record.kind == MESSAGE else -1
        ids.append(GONE if id < 0 else id)
        offsets.append(at)
    return ids, offsets


def erased(segment: Segment, place: int, record: Record) -> bytes:
    """What is written over a message to destroy it: as long, so that the next one is found."""
    out = OutBuffer()
    header_size = record.body_start - record.header_start
    subject = bytes(len(record.subject))
    data = bytes(record.end - record.header_start)
    encode(out, ERASED, segment.salt, place, record.ts, subject, data, 0, header_size, len(data))
    return out.take()
