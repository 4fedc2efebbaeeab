"""What the commit log has of a segment, written to it once more.

A start does so before it opens the log of the stream, and a checkpoint after a sync that failed
(see `segment_bytes`). What compaction has rewritten and what was erased stay as they are.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.disk import Disk, File
from slipstream.log.durability import Touched
from slipstream.log.record import ERASED, MESSAGE, Record, decode
from slipstream.log.segment import HEADER_SIZE, Header, decode_header, read_trailer
from slipstream.log.segment_bytes import CONTENT_HEAD


class Repeated(NamedTuple):
    """What a start has written to a segment from the commit log, one byte after the other: the last
    that the log has of it."""

    path: str  # of the segment
    salt: int
    start: int  # offset of the first byte ...
    end: int  # ... and behind the last one


class UnwrittenSegment:
    """Bytes of an earlier process, which a start writes to a segment; what the disk refuses then is
    kept, and their stream cannot be opened before the next start."""

    retired = False

    def __init__(
        self, disk: Disk, path: str, stream_created: int, contents: Sequence[bytes]
    ) -> None:
        self.path = path
        self.stream_created = stream_created
        self.written = 0
        self._disk = disk
        self._contents = contents
        self.repeated: Repeated | None = None  # of what was written

    def apply(self, _content: bytes, touched: Touched) -> None:
        """Write them. Blocks; raises OSError, `StorageError`."""
        self.repeated = write_again(self._disk, self.path, self._contents)
        touched.files[self.path] = None

    def applied(self) -> bool:
        """The written segments are durable."""
        return True

    def forgotten(self, error: Exception) -> None:
        """The written segments could not be synced."""
        self.written = 0


def write_again(disk: Disk, path: str, contents: Sequence[bytes]) -> Repeated | None:
    """Write to a segment what the commit log has of it, in order, unless it was removed or
    rewritten since; what of that came last. Not synced. Blocks; raises OSError, `StorageError`."""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        header = _header_of(file)
        data_end = file.data_end()
        parts: list[bytes] = []  # of one piece of the segment, from `start` to `end`
        start = end = 0
        for content in contents:
            salt, offset = CONTENT_HEAD.unpack_from(content)
            data = content[CONTENT_HEAD.size :]
            if header is None:  # damaged
                if not _has_trailer(file, salt):  # what has one may be rewritten
                    _write_parts(file, data_end, offset, [data], salt)
            elif header.salt == salt and not header.rewritten:  # another one may have had the name
                if offset != end:
                    _write_parts(file, data_end, start, parts, salt)
                    start, parts = offset, []
                parts.append(data)
                end = offset + len(data)
        if header is None or not parts:
            return None
        _write_parts(file, data_end, start, parts, header.salt)
        return Repeated(path, header.salt, start, end)
    except struct.error as error:
        raise StorageError(f"the commit log has half an entry about {path}") from error
    finally:
        file.close()


def _header_of(file: File) -> Header | None:
    """The header of a segment; None if it is damaged."""
    try:
        return decode_header(file.pread(0, HEADER_SIZE))
    except CorruptionError:
        return None


def _has_trailer(file: File, salt: int) -> bool:
    try:
        return read_trailer(file).salt == salt
    except CorruptionError:
        return False


def _write_parts(file: File, data_end: int, offset: int, parts: list[bytes], salt: int) -> None:
    """Write what lies one after the other from `offset` on; what is erased there stays so. The file
    had only zeros from `data_end` on: reading them would cost as much as what was written."""
    if not parts:
        return
    data = b"".join(parts)
    there = file.pread(offset, max(min(len(data), data_end - offset), 0))
    if there != data and there != bytes(len(there)):
        there = there.ljust(len(data), b"\0")  # what was erased ends with zeros
        at = 0
        for n, part in enumerate(parts):
            parts[n] = _with_erased(there[at : at + len(part)], part, salt)
            at += len(part)
        data = b"".join(parts)
    file.pwrite(offset, data)


def _with_erased(there: bytes, data: bytes, salt: int) -> bytes:
    """Records as they are to be written in place of those that are there."""
    merged = bytearray(data)
    record, other = Record(), Record()
    at = 0
    while (end := decode(data, at, salt, 0, record)) > 0:
        if record.kind == MESSAGE and decode(there, at, salt, 0, other) == end:
            if other.kind == ERASED:
                merged[at:end] = there[at:end]
        at = end
    return bytes(merged)
