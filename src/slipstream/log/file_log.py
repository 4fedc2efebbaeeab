"""A log in segment files: appended in memory, written and synced once for each batch.

    append ──> buffer ──prepare_sync──> write(2) ──batch.run──> fdatasync ──finish_sync──> durable

A segment that is full is closed: its footer, which makes opening cheap, is written by a job off the
hot path. What is removed is told by records too: ranges of sequences (tombstones), coalesced for
each batch, and a moved front, which is all that a work queue acknowledged in order costs.

A failed fdatasync is final for the log: the kernel may have dropped the pages, so asking again
would lie. A full disk is not: space is reserved before a sequence is given out.
"""

import zlib
from typing import Any

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.log.base import Log
from slipstream.log.block_cache import BlockCache
from slipstream.log.columns import GONE, Column
from slipstream.log.disk import Disk, File
from slipstream.log.durability import FileSyncBatch, Job, Lost, SyncBatch
from slipstream.log.record import FRONT, MESSAGE, SKIP, TOMBSTONE, Record, decode, encode
from slipstream.log.segment import (
    HEADER_SIZE,
    Segment,
    encode_header,
    erased,
    footer_job,
    read_columns,
    read_footer,
    scan_columns,
)
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

SEGMENT_BYTES: _int = 32 * 1024 * 1024
PLACES_MAX: _int = 4 * 1024 * 1024  # small records: keep a segment's columns small too
COLUMNS_LOADED_MAX: _int = 6  # closed segments whose columns stay in memory
CHUNKS_BYTES_MAX: _int = (
    2 * 1024 * 1024
)  # of what was last written, kept readable without a syscall
JUMP_MAX: _int = 4096  # a longer run of skipped sequences starts a new segment


class FileLog(Log):
    """Messages in the segment files of `directory`; open one with `recovery.open_log`."""

    def __init__(
        self, disk: Disk, directory: str, cache: BlockCache | None = None, first_seq: _int = 1
    ) -> None:
        super().__init__(first_seq)
        self.disk = disk
        self.directory = directory
        self.cache = cache or BlockCache()
        self.failed = ""  # why nothing can be written any more
        self._out = OutBuffer()
        self._active: Segment | None = None
        self._recorded_seq = self.last_seq  # what the records on disk say about last_seq ...
        self._recorded_first = self.first_seq  # ... and about the front
        self._tombs: list[list[int]] = []  # removed ranges not yet written: [first, count]
        self._unsynced: list[File] = []
        self._doomed: list[Segment] = []  # emptied segments, removed once that is durable
        self._jobs: list[Job] = []
        self._dir_dirty = False
        self._written = False  # something was handed over that is not synced yet
        self._lost = Lost()
        self._window_of: Segment | None = None
        self._window_start = 0
        self._window = b""
        self._loaded: list[Segment] = []
        self._reserved = 0  # how far the active segment can surely grow
        self.replaying = False  # while recovery repeats removals that are on disk already

    # -- writing -------------------------------------------------------------------------------

    def size_of(self, subject_size: _int, header_size: _int, body_size: _int) -> _int:
        return 30 + subject_size + body_size + (4 + header_size if header_size else 0)

    def append(
        self,
        subject: bytes,
        data: bytes,
        header_start: _int,
        body_start: _int,
        end: _int,
        ts: _int,
    ) -> _int:
        segment: Any = self._active
        length = 26 + len(subject) + end - header_start
        if segment is None or segment.records_end + length > SEGMENT_BYTES:
            segment = self._fresh_segment(self.last_seq + 1, length)
        elif segment.offsets.size >= PLACES_MAX:
            segment = self._fresh_segment(self.last_seq + 1, length)
        if segment.records_end + length > self._reserved:
            self._reserve(segment, segment.records_end + length)
        seq = self.last_seq + 1
        at = segment.records_end
        out = self._out
        place = seq - segment.base
        encode(out, MESSAGE, segment.salt, place, ts, subject, data, header_start, body_start, end)
        length = self._out.size - (at - segment.written)
        segment.records_end = at + length
        id = self.subjects.intern(subject)
        self.subjects.added(id, seq)
        segment.ids.append(id)
        segment.offsets.append(at)
        size = 30 + len(subject) + end - header_start
        if body_start > header_start:
            size += 4
        if segment.live == 0:
            segment.first_ts = ts
        segment.live += 1
        segment.bytes += size
        segment.last_ts = ts
        self.messages += 1
        self.bytes += size
        if self.messages == 1:
            self.first_seq = seq
            self.first_ts = ts
        self.last_seq = seq
        self._recorded_seq = seq
        self.last_ts = ts
        return seq

    def skip(self, ts: _int) -> _int:
        segment: Any = self._active
        if segment is None or segment.offsets.size >= PLACES_MAX:
            segment = self._fresh_segment(self.last_seq + 1, 0)
        self.last_seq += 1
        self.last_ts = ts
        segment.ids.append(GONE)
        segment.offsets.append(segment.records_end)
        if self.messages == 0:
            self.first_seq = self.last_seq + 1
        return self.last_seq

    def advance(self, last_seq: _int) -> None:
        if last_seq <= self.last_seq:
            return
        self.last_seq = last_seq
        if self.messages == 0:
            self.first_seq = last_seq + 1
        self._fresh_segment(last_seq + 1, 0)

    def _reserve(self, segment: Segment, size: _int) -> None:
        assert segment.file is not None
        try:
            self._reserved = segment.file.reserve(size)
        except OSError as error:
            self._fail(error)

    def _fresh_segment(self, base: _int, length: _int) -> Segment:
        """Close the active segment, if there is one with records, and begin the next."""
        if self.failed:
            raise StorageError(self.failed)
        if self._active is not None and self._active.base == base:
            return self._active
        segment = Segment(base, f"{self.directory}/{base:020d}.seg")
        try:
            segment.file = self.disk.open(segment.path)
            reserved = segment.file.reserve(HEADER_SIZE + length)
            segment.file.append(encode_header(base))
        except DiskFullError:
            if segment.file is not None:
                segment.file.close()
            raise
        except OSError as error:
            self._fail(error)
        self._close_active()
        self.blocks.append(segment)
        self._active = segment
        self._reserved = reserved
        self._dir_dirty = True
        return segment

    def _close_active(self) -> None:
        segment = self._active
        if segment is None:
            return
        self._write_controls(segment)
        self._write_out()
        assert segment.file is not None
        assert segment.ids is not None
        segment.places = segment.ids.size
        segment.closed = True
        segment.chunks = []
        self._unsynced.append(segment.file)
        self._written = False
        self._active = None
        if segment.live == 0 and not segment.tombs:
            self.blocks.remove(segment)
            self._found = None
            self._dropped(segment)
            return
        self.request_footer(segment)

    def request_footer(self, segment: Segment) -> None:
        """Have a closed segment's footer written, off the hot path."""
        assert segment.ids is not None
        assert segment.file is not None
        dense, ids = segment.ids.translate()
        subjects = [self.subjects.subject(id) for id in ids]
        job = footer_job(segment, segment.file, self._may_unload, subjects, dense)
        self._jobs.append(job)

    def _may_unload(self, segment: Segment) -> None:
        """Keep a few closed segments' columns in memory, those that were used last."""
        if segment in self._loaded:
            self._loaded.remove(segment)
        self._loaded.append(segment)
        while len(self._loaded) > COLUMNS_LOADED_MAX:
            old = self._loaded.pop(0)
            old.ids = None
            old.offsets = None
            if old.file is not None and old.file not in self._unsynced:
                old.file.close()
                old.file = None

    def _write_controls(self, segment: Segment) -> None:
        """Put what was removed or skipped since the last batch into records of its own.

        On a full disk that waits: what was removed might then come back after a crash.
        """
        try:
            self._reserve(segment, segment.records_end + 64 * (len(self._tombs) + 2))
        except DiskFullError:
            return
        for first, count in self._tombs:
            segment.tombs.append((first, count))
            body = first.to_bytes(8, "little") + count.to_bytes(4, "little")
            self._put_control(segment, TOMBSTONE, body)
        self._tombs = []
        if self.first_seq > self._recorded_first:
            self._put_control(segment, FRONT, self.first_seq.to_bytes(8, "little"))
            self._recorded_first = segment.front = self.first_seq
        if self.last_seq > self._recorded_seq:
            self._put_control(segment, SKIP, self.last_seq.to_bytes(8, "little"))
            self._recorded_seq = segment.last_seq = self.last_seq

    def _put_control(self, segment: Segment, kind: _int, body: bytes) -> None:
        place = max(self.last_seq - segment.base, 0)
        size = encode(
            self._out, kind, segment.salt, place, self.last_ts, b"", body, 0, 0, len(body)
        )
        segment.records_end += size

    def _write_out(self) -> None:
        """Hand the buffer to the operating system."""
        segment = self._active
        if segment is None or self._out.size == 0:
            return
        assert segment.file is not None
        data = self._out.take()
        try:
            segment.file.append(data)
        except (OSError, DiskFullError) as error:
            self._fail(error)
        self._written = True
        segment.chunks.append((segment.written, data))
        segment.written += len(data)
        kept = segment.written - segment.chunks[0][0]
        while kept > CHUNKS_BYTES_MAX and len(segment.chunks) > 1:
            kept -= len(segment.chunks.pop(0)[1])

    def _fail(self, error: Exception) -> None:
        self.failed = (
            f"the log in {self.directory} can not be written any more: {error}; "
            "what was acknowledged is safe, look after the disk and restart the server"
        )
        raise StorageError(self.failed) from error

    def prepare_sync(self) -> SyncBatch | None:
        if self.failed:
            return None
        changed = self._tombs or self.first_seq > self._recorded_first
        if changed or self.last_seq > self._recorded_seq:
            segment = self._active or self._fresh_segment(self.last_seq + 1, 0)
            self._write_controls(segment)
        self._write_out()
        dirty = self._written  # reading may have had it written before
        self._written = False
        files = self._unsynced
        self._unsynced = []
        if dirty and self._active is not None and self._active.file is not None:
            files.append(self._active.file)
        if not files and not self._dir_dirty:
            return None
        batch = FileSyncBatch(
            self.disk, files, self.directory if self._dir_dirty else "", self.last_seq
        )
        self._dir_dirty = False
        return batch

    def finish_sync(self, batch: SyncBatch) -> None:
        if batch.error is not None:
            self._fail(batch.error)
        self.durable_seq = max(self.durable_seq, batch.last_seq)
        for segment in self._doomed:
            if segment.file is not None:
                segment.file.close()
                segment.file = None
            self.disk.remove(segment.path)
        self._doomed = []

    def take_jobs(self) -> list[Job]:
        jobs = self._jobs
        self._jobs = []
        return jobs

    # -- reading -------------------------------------------------------------------------------

    @property
    def lost(self) -> Lost:
        return self._lost

    def note_lost(self, sequences: "list[int]", size: _int) -> None:
        """Damage took these messages."""
        self._lost.sequences.extend(sequences)
        self._lost.bytes += size

    def _ids(self, block: Any) -> Column:
        if block.ids is None:
            self._load(block)
        ids: Column = block.ids
        return ids

    def _load(self, segment: Segment) -> None:
        """Bring a closed segment's columns into memory, and let older ones go."""
        file = self._file_of(segment)
        try:
            footer = read_footer(file)
            found = [self.subjects.find(name) for name in footer.names.split(b"\n")]
            names = [GONE if id < 0 else id for id in found]
            segment.ids, segment.offsets = read_columns(file, footer, names)
        except (CorruptionError, zlib.error):
            data = file.pread(0, segment.records_end)
            segment.ids, segment.offsets = scan_columns(data, segment, self.subjects)
        if segment.dead is not None:
            segment.ids.bury(segment.dead)
        self._may_unload(segment)

    def _file_of(self, segment: Segment) -> File:
        if segment.file is None:
            segment.file = self.disk.open(segment.path)
        return segment.file

    def _fill(self, block: Any, i: _int, record: Record) -> _int:
        segment = block
        offset = segment.offsets.get(i)
        if offset >= segment.written and segment is self._active:
            self._write_out()
        if (
            segment is not self._window_of
            or offset < self._window_start
            or offset >= self._window_start + len(self._window)
        ):
            self._look(segment, offset)
        if decode(self._window, offset - self._window_start, segment.salt, segment.base, record):
            return 0
        # It runs over the window's end, or is damaged: look at exactly this record.
        self._window = self.cache.read_record(self._file_of(segment), offset)
        self._window_of = segment
        self._window_start = offset
        if decode(self._window, 0, segment.salt, segment.base, record):
            return 0
        raise CorruptionError(
            f"message {segment.base + i} in {segment.path} is damaged at byte {offset}"
        )

    def _look(self, segment: Segment, offset: _int) -> _int:
        """Move the window to where `offset` is."""
        self._window_of = segment
        n = len(segment.chunks)
        if n and offset >= segment.chunks[0][0]:
            at = n - 1
            while at > 0 and segment.chunks[at][0] > offset:
                at -= 1
            self._window_start, self._window = segment.chunks[at]
            return 0
        self._window_start, self._window = self.cache.window(
            self._file_of(segment), segment.path, offset, segment.closed
        )
        return 0

    # -- what recovery uses --------------------------------------------------------------------

    def resume(self, segment: Segment) -> None:
        """Go on writing at the end of `segment`, the last one."""
        self._active = segment
        self._reserved = segment.written

    def recovered(self) -> None:
        """What the log says now is what the disk says."""
        segment = self._active
        if segment is not None:  # sequences that were used without a record have places too
            assert segment.ids is not None
            assert segment.offsets is not None
            while segment.base + segment.ids.size <= self.last_seq:
                segment.ids.append(GONE)
                segment.offsets.append(segment.records_end)
        self._recorded_seq = self.last_seq
        if not self._doomed:
            self._recorded_first = self.first_seq

    # -- removing ------------------------------------------------------------------------------

    def _lose(self, seq: _int) -> None:
        """Message `seq` can not be read: count it as lost, and go on without it."""
        block: Any = self._block_of(seq)
        ids = self._ids(block)
        i = seq - block.base
        self.note_lost([seq], 0)
        self.subjects.removed(ids.get(i), seq)
        ids.set(i, GONE)
        if block.closed:
            block.bury(i)
        block.live -= 1
        self.messages -= 1
        if seq == self.first_seq:
            self.move_first(seq + 1)

    def _forgotten(self, block: Any, i: _int, erase: bool) -> _int:
        segment = block
        seq = segment.base + i
        if erase:
            self._erase(segment, i)
        if segment.closed:
            segment.bury(i)
        if self.replaying or seq == self.first_seq:
            return 0  # it stands on disk already, or the moved front will say it
        if self._tombs and self._tombs[-1][0] + self._tombs[-1][1] == seq:
            self._tombs[-1][1] += 1
        else:
            self._tombs.append([seq, 1])
        return 0

    def _erase(self, segment: Segment, i: _int) -> None:
        """Destroy a message's bytes; the record stays whole, so that the next one is found."""
        self._write_out()
        record = Record()
        self._fill(segment, i, record)
        assert segment.offsets is not None
        offset = segment.offsets.get(i)
        file = self._file_of(segment)
        file.pwrite(offset, erased(segment, i, record))
        segment.chunks = []
        self._window_of = None
        self.cache.forget(segment.path)
        if file not in self._unsynced:
            self._unsynced.append(file)

    def _dropped(self, block: Any) -> None:
        segment = block
        # Its tombstones still hold for older segments: tell them again.
        oldest = self.blocks[0].base if self.blocks else self.last_seq + 1
        for first, count in segment.tombs:
            if first + count > oldest and first < segment.base:
                self._tombs.append([first, count])
        if segment in self._loaded:
            self._loaded.remove(segment)
        self._recorded_first = 0  # its records may be what told of the front: tell it again
        self.cache.forget(segment.path)
        if self._window_of is segment:
            self._window_of = None
        self._doomed.append(segment)
        self._dir_dirty = True

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        if not self.failed:
            batch = self.prepare_sync()
            if batch is not None:
                batch.run()
                self.finish_sync(batch)
            for job in self.take_jobs():
                job.run()
                job.finish()
            if self._active is not None and self._active.file is not None:
                self._active.file.truncate(self._active.written)
        for segment in self.blocks:
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    def delete(self) -> None:
        for segment in [*self.blocks, *self._doomed]:
            if segment.file is not None:
                segment.file.close()
                segment.file = None
            self.cache.forget(segment.path)
        self.blocks.clear()
        self.failed = "the log was deleted"
        self.disk.remove_tree(self.directory)
