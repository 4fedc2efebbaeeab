"""Reading segment files: records through a window of bytes, columns through their footers.

Reads in order cost one look at the disk for each window, or none for what was just written. What
stays in memory is bounded: the cache's windows, and the columns of a few closed segments.

Of the others, once their columns were in memory, a sample of the offsets stays: where every so
manyth record is.
From there a message is found by its sequence within a few kilobytes, however many segments there
are. Only a segment without holes has them; in any other the columns say what is gone.
"""

import errno
from array import array
from dataclasses import dataclass
from typing import Any

from slipstream.errors import CorruptionError
from slipstream.log.block_cache import BlockCache
from slipstream.log.cold import NearFile, Span
from slipstream.log.columns import GONE, Column
from slipstream.log.disk import Disk, File
from slipstream.log.packing import unpack
from slipstream.log.record import (
    ERASED,
    HAS_HEADER,
    MAGIC,
    MESSAGE,
    Portion,
    Record,
    copy_run,
    decode,
    next_whole,
)
from slipstream.log.segment import Segment, read_columns, read_footer, scan_columns
from slipstream.log.subject_index import SubjectFilter, SubjectIndex
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

COLUMNS_LOADED_MAX: _int = 6  # closed segments whose columns stay in memory
SAMPLE_BYTES: _int = 8 * 1024  # how far apart offset_samples are, about
SAMPLE_RECORDS: _int = 64  # ... but not more records than this


@dataclass
class Remains:
    """A message that cannot be read: where it was, its bytes, its size as clients count it."""

    offset: int
    data: bytes
    size: int
    erased: bool  # it was destroyed on purpose


class SegmentReader:
    """Reads the segments of one log."""

    def __init__(self, disk: Disk, cache: BlockCache, subjects: SubjectIndex) -> None:
        self._disk = disk
        self._cache = cache
        self._subjects = subjects
        self._loaded: list[Segment] = []  # whose columns may leave memory, least recent first
        self._window_of: Segment | None = None
        self._window_start = 0
        self._window = b""
        self.held = 0  # how many read the files as they were: none is removed or written anew
        self.near = False  # whether `ColdError` is raised instead of waiting for the disk
        self.fetched: dict[Span, None] = {}  # reads that have happened for that ...
        self.awaited = 0  # ... and how many are under way
        self._kept: list[str] = []  # files that are to be removed after that

    def fill(self, segment: Segment, i: _int, record: Record) -> None:
        """Fill `record` with the message at place `i`. Raises `CorruptionError`, OSError."""
        self.fill_as_stored(segment, i, record)
        if record.packed:
            unpack(record)

    def fill_as_stored(self, segment: Segment, i: _int, record: Record) -> None:
        """Fill `record` with the message at place `i`, its body as it stands on disk."""
        offsets: Any = segment.offsets
        offset = offsets.get(i)
        if (
            segment is not self._window_of
            or offset < self._window_start
            or offset >= self._window_start + len(self._window)
        ):
            self._look(segment, offset)
        start = offset - self._window_start
        if decode(self._window, start, segment.salt, segment.base, record) and _is(
            record, segment, i
        ):
            return
        # The window may be older than what was written last, which a failing disk may not have.
        if self._look_in_chunks(segment, offset):
            start = offset - self._window_start
            if decode(self._window, start, segment.salt, segment.base, record) and _is(
                record, segment, i
            ):
                return
        # It runs over the window's end, or is damaged: look at exactly this record.
        self._window = self._record_at(segment, offset)
        self._window_of = segment
        self._window_start = offset
        # A disk may have put a copy of another record of the segment here: that one is whole, too.
        if decode(self._window, 0, segment.salt, segment.base, record) and _is(record, segment, i):
            return
        raise CorruptionError(
            f"message {segment.base + i} in {segment.path} is damaged at byte {offset}"
        )

    def copy_run(
        self,
        segment: Segment,
        i: _int,
        matching: SubjectFilter | None,
        portion: Portion,
        out: OutBuffer,
    ) -> _int:
        """See `record.copy_run`; of messages in the window that was looked at last."""
        if segment is not self._window_of or segment.ids is None or segment.offsets is None:
            return 0
        return copy_run(
            self._window, self._window_start, segment.salt, segment.base, segment.ids,
            segment.offsets, i, matching, portion, out,
        )  # fmt: skip

    def find(self, segment: Segment, i: _int, record: Record) -> bool:
        """Fill `record` with the message at place `i` of a segment whose columns are not in memory;
        False if only they can tell."""
        if segment.offset_samples is None or i >= segment.places:
            return False
        step, offsets = segment.offset_samples
        at = offsets[i // step]
        seq = segment.base + i
        try:
            data = self._readable(segment).pread(at, 2 * SAMPLE_BYTES)
        except OSError:
            return False
        start = at
        while True:
            end = decode(data, at - start, segment.salt, segment.base, record)
            if not end:
                data = self._record_at(segment, at)  # it runs over the end of what was read
                start = at
                end = decode(data, 0, segment.salt, segment.base, record)
            if not end or record.seq > seq:
                return False
            if record.seq == seq and record.kind == MESSAGE:
                if record.packed:
                    unpack(record)
                return True
            at = start + end

    def _look(self, segment: Segment, offset: _int) -> None:
        """Move the window to where `offset` is."""
        self._window_of = None
        if self._look_in_chunks(segment, offset):
            return
        try:
            self._window_start, self._window = self._cache.window(
                self._readable(segment), segment.path, offset, segment.closed
            )
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._window_start, self._window = offset, b""  # perhaps the record itself is well
        self._window_of = segment

    def _look_in_chunks(self, segment: Segment, offset: _int) -> bool:
        """Move the window to what was last written, if `offset` is there."""
        n = len(segment.chunks)
        if not n or offset < segment.chunks[0][0]:
            return False
        at = 0
        while at + 1 < n:  # chunk `at` begins at or before the offset, chunk `n` after it
            middle = (at + n) // 2
            if segment.chunks[middle][0] <= offset:
                at = middle
            else:
                n = middle
        self._window_start, self._window = segment.chunks[at]
        self._window_of = segment
        return True

    def _record_at(self, segment: Segment, offset: _int) -> bytes:
        try:
            return self._cache.read_record(self._readable(segment), offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""

    def examine(self, segment: Segment, i: _int) -> "Remains":
        """What is left of a message at place `i` that `fill` could not read."""
        offsets: Any = segment.offsets
        offset = offsets.get(i)
        limit = offsets.get(i + 1) if i + 1 < offsets.size else segment.records_end
        limit = min(limit, segment.records_end)
        try:
            data = self.file_of(segment).pread(offset, max(limit - offset, 0))
        except OSError:
            data = b""
        kind = data[9] if len(data) > 9 and data[8] == MAGIC else 0
        length = next_whole(data, 0, segment.salt, i)  # records that are no messages may follow
        if length < 0:
            length = len(data)
        size = length + (8 if kind & HAS_HEADER else 6)
        record = Record()
        whole = decode(data, 0, segment.salt, segment.base, record) > 0
        erased = whole and record.kind == ERASED and record.seq == segment.base + i
        return Remains(offset, data, size, erased)

    def file_of(self, segment: Segment) -> File:
        """The segment's file, open."""
        if segment.file is None:
            segment.file = self._disk.open(segment.path)
        segment.unwanted = False
        return segment.file

    def _readable(self, segment: Segment) -> Any:
        """What is read of the segment's file: all, or what is near."""
        file = self.file_of(segment)
        return NearFile(self, file, segment.path, segment.base) if self.near else file

    def load(self, segment: Segment) -> None:
        """Bring a closed segment's columns into memory, and let older ones go."""
        file = self._readable(segment)
        try:
            footer = read_footer(file, segment)
            found = [self._subjects.find(name) for name in footer.names.split(b"\n")]
            names = [GONE if id < 0 else id for id in found]
            segment.ids, segment.offsets = read_columns(file, footer, names)
        except CorruptionError:
            segment.ids, segment.offsets = self._scan(segment, file)
            self._drop_footer(segment, self.file_of(segment))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            # A bad sector in the footer: the records are elsewhere.
            segment.ids, segment.offsets = self._scan(segment, file)
        if segment.dead is not None:
            segment.ids.bury(segment.dead)
        self.may_unload(segment)

    def _scan(self, segment: Segment, file: File) -> tuple[Column, Column]:
        """The columns from the records, where the footer does not have them."""
        return scan_columns(file.pread(0, segment.records_end), segment, self._subjects)

    def _drop_footer(self, segment: Segment, file: File) -> None:
        """Its second part is damaged, and perhaps records too: the next opening scans and counts
        them. Until then nothing may write another footer."""
        segment.footed = False
        try:
            file.truncate(segment.records_end)
            file.sync()
        except OSError:
            pass  # it will be found damaged again

    def may_unload(self, segment: Segment) -> None:
        """Keep a few closed segments' columns in memory, those that were used last."""
        if segment in self._loaded:
            self._loaded.remove(segment)
        self._loaded.append(segment)
        while len(self._loaded) > COLUMNS_LOADED_MAX:
            old = self._loaded.pop(0)
            old.offset_samples = samples_of(old)
            old.ids = None
            old.offsets = None
            old.let_go()

    def changed(self, segment: Segment) -> None:
        """Bytes of the file are not what they were."""
        segment.chunks = []
        segment.offset_samples = None
        if self._window_of is segment:
            self._window_of = None
        self._cache.forget(segment.path)

    def may_go(self, paths: list[str]) -> list[str]:
        """Of files that are to be removed those that may go now; `release` says when others may."""
        if not self.held:
            return paths
        self._kept += paths
        return []

    def use(self, cache: BlockCache) -> None:
        """Keep windows in `cache` from now on."""
        self._cache = cache

    def release(self) -> list[str]:
        """One fewer reads the files as they were. The files that may go now."""
        self.held -= 1
        kept: list[str] = []
        if not self.held:
            kept, self._kept = self._kept, kept
        return kept

    def forget(self, segment: Segment) -> None:
        """The segment is gone."""
        if segment in self._loaded:
            self._loaded.remove(segment)
        self.changed(segment)


def _is(record: Record, segment: Segment, i: _int) -> bool:
    """Whether a whole record is the message of place `i`."""
    return record.kind == MESSAGE and record.seq == segment.base + i


def samples_of(segment: Segment) -> "tuple[int, array[_int]] | None":
    """How many records are between two samples, and where each sampled record of a segment is;
    None if the segment has holes."""
    ids: Any = segment.ids
    offsets: Any = segment.offsets
    n = segment.places
    if not n or ids.size != n or ids.count_used(0, n) != n:
        return None
    step = min(max(SAMPLE_BYTES * n // segment.records_end, 1), SAMPLE_RECORDS)
    return step, array("Q", [offsets.get(i) for i in range(0, n, step)])
