"""What one commit holds, as bytes: an entry of records, and the head of a file of entries.

    head of a file    magic "SLIPLOG1", version u32, salt u32, index of the first entry u64, CRC-32;
                      once more 4096 bytes later; entries begin after as many bytes again
    entry             magic "SLEN", length u32, index u64, floor u64, durable u64, epoch u32,
                      CRC-32 of the entry before, CRC-32 of the rest, begun with the salt, records
    record            kind u8, stream_created u64, length of the path u16, of the content u32, path,
                      content
    content           of a small file, as it is; for bytes of a segment: its salt u32, offset u64,
                      the bytes; where such bytes are: salt u32, offset u64, end u64, last sequence
                      u64, CRC-32 of their last record (see `segment_bytes`)

All numbers are little-endian. Indices have no gaps. The salt is a random number that each use of a
file has anew, so neither an entry of an earlier use nor bytes that a client made up check out.
When an entry was made, those before its `floor` had been applied, and those up to `durable` were
known to be durable.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slipstream.errors import CorruptionError, StorageError
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.checksum import crc32

_int = int  # the name `int` in a compiled module's annotations is a C type

KEEP = 1  # the content of a small file
REMOVE = 2  # of a directory, with all that is in it
STANDS = 3  # a file that was written otherwise: forget what earlier entries say of it
WRITE = 4  # bytes of a segment, since version 2
REFER = 5  # where bytes are that were synced in a segment, since version 4

WRITES_SINCE = 2  # the version of the log from which on it may have `WRITE`
REFERS_SINCE = 4  # ... `REFER`
VERSION = 4  # 3: from which on a stream that is not there yet may begin with its configuration
EPOCH = 1  # of the server that leads; there is one server
_HEAD = struct.Struct("<8sIIQI")
_HEAD_MAGIC = b"SLIPLOG1"
_ENTRY = struct.Struct("<4sIQQQIII")
_MAGIC = b"SLEN"
_RECORD = struct.Struct("<BQHI")
_RECORD_SIZE: _int = _RECORD.size
_COPY_AT = 4096  # on another sector
HEAD_SIZE = 2 * _COPY_AT


class Record:
    """One change: `path` is relative to the store directory, `stream_created` says when the stream
    that it lies in was created (ns since the epoch)."""

    def __init__(self, kind: _int, stream_created: _int, path: str, content: bytes = b"") -> None:
        self.kind = kind
        self.stream_created = stream_created
        self.path = path
        self.content = content
        self.size = _RECORD_SIZE + 3 * len(path) + len(content)  # in bytes, at the most


@dataclass(slots=True, frozen=True)
class Head:
    """The head of a file."""

    salt: int
    first: int  # index of the first entry of the file
    version: int = VERSION

    def encode(self) -> bytes:
        """The head as bytes."""
        head = _HEAD.pack(_HEAD_MAGIC, self.version, self.salt, self.first, 0)[:-4]
        copy = (head + crc32(head).to_bytes(4, "little")).ljust(_COPY_AT, b"\0")
        return copy + copy

    @staticmethod
    def decode(data: bytes) -> "Head | None":
        """The head at the beginning of `data`; None if it was not written as a whole. Raises
        `StorageError` for one of a later version."""
        return _decode_head(data[:_COPY_AT]) or _decode_head(data[_COPY_AT:HEAD_SIZE])


def _decode_head(data: bytes) -> Head | None:
    if len(data) < _HEAD.size:
        return None
    magic, version, salt, first, crc = _HEAD.unpack_from(data)
    if magic != _HEAD_MAGIC or crc32(data[: _HEAD.size - 4]) != crc:
        return None
    if not 1 <= version <= VERSION:
        raise StorageError(
            f"the commit log has version {version}, and this server reads versions up to "
            f"{VERSION}: start the server version that wrote it"
        )
    return Head(salt, first, version)


@dataclass(slots=True, frozen=True)
class Entry:
    """What one commit holds."""

    index: int
    floor: int
    durable: int
    previous: int  # checksum of the entry before
    records: list[Record]
    crc: int
    size: int


ENTRY_SIZE = _ENTRY.size
RECORD_SIZE = _RECORD.size  # of a record without its path and its content, for other modules


def put_head(out: OutBuffer, kind: _int, stream_created: _int, path: bytes, size: _int) -> None:
    """Append what stands before the content, of `size` bytes, of a record."""
    out.put_number(kind, 1)
    out.put_number(stream_created, 8)
    out.put_number(len(path), 2)
    out.put_number(size, 4)
    out.put(path)


def name_of(path: str) -> bytes:
    """A path as a record has it."""
    return path.encode("utf-8", "surrogateescape")


def encode_entry(
    index: int,
    floor: int,
    durable: int,
    previous: int,
    salt: int,
    records: Iterable[Record],
    others: bytes = b"",
) -> tuple[bytes, int]:
    """An entry of `records` and of `others`, which are encoded already: what comes before the
    others, which are many where there are any and so are not copied, and the checksum of it all."""
    out = OutBuffer()
    for record in records:
        path = name_of(record.path)
        put_head(out, record.kind, record.stream_created, path, len(record.content))
        out.put(record.content)
    body = out.take()
    size = _ENTRY.size + len(body) + len(others)
    head = _ENTRY.pack(_MAGIC, size, index, floor, durable, EPOCH, previous, 0)[:-4]
    crc = crc32(others, crc32(body, crc32(head, salt)))
    return b"".join((head, crc.to_bytes(4, "little"), body)), crc


def size_of_entry(data: bytes, at: int) -> int:
    """How large the entry at `at` says that it is; `ENTRY_SIZE` if it cannot."""
    if at + _ENTRY.size > len(data):
        return _ENTRY.size
    size: int = _ENTRY.unpack_from(data, at)[1]
    return max(size, _ENTRY.size)


def check_entry(data: bytes, at: int, salt: int) -> Entry | None:
    """The entry at `at` without its records; None if there is no whole one."""
    if at + _ENTRY.size > len(data):
        return None
    magic, size, index, floor, durable, _, previous, crc = _ENTRY.unpack_from(data, at)
    if magic != _MAGIC or size < _ENTRY.size or at + size > len(data):
        return None
    start = at + _ENTRY.size
    with memoryview(data) as view, view[start : at + size] as body:  # it is not copied
        if crc32(body, crc32(data[at : start - 4], salt)) != crc:
            return None
    return Entry(index, floor, durable, previous, [], crc, size)


def decode_entry(
    data: bytes, at: int, salt: int, paths: dict[bytes, str] | None = None
) -> Entry | None:
    """The entry at `at`; None if there is no whole one. `paths` are those that were met before, of
    which there are few, and of each many records."""
    entry = check_entry(data, at, salt)
    if entry is None:
        return None
    try:
        known: dict[bytes, str] = {} if paths is None else paths
        records = _decode_records(data, at + _ENTRY.size, at + entry.size, known)
    except (CorruptionError, struct.error, UnicodeDecodeError):
        return None
    return replace(entry, records=records)


def _decode_records(data: bytes, at: int, after: int, paths: dict[bytes, str]) -> list[Record]:
    """Those from `at` on, up to `after`."""
    records = []
    unpack_from = _RECORD.unpack_from
    least, most = KEEP, REFER
    while at < after:
        kind, stream_created, path_size, size = unpack_from(data, at)
        at += _RECORD_SIZE
        content_at = at + path_size
        end = content_at + size
        if not least <= kind <= most or end > after:
            raise CorruptionError("a record of the commit log says what cannot be")
        name = data[at:content_at]
        path = paths.get(name)
        if path is None:
            path = paths[name] = name.decode("utf-8", "surrogateescape")
        records.append(Record(kind, stream_created, path, data[content_at:end]))
        at = end
    return records


def next_entry(
    data: bytes, at: int, salt: int, paths: dict[bytes, str] | None = None
) -> tuple[int, Entry] | None:
    """The first whole entry at or after `at`, with its offset; None if there is none."""
    while (at := data.find(_MAGIC, at)) >= 0:
        entry = decode_entry(data, at, salt, paths)
        if entry is not None:
            return at, entry
        at += 1
    return None
