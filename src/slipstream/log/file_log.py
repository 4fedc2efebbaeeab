"""A log in segment files: appended in memory, written and synced once for each batch.

    append ──> buffer ──prepare_sync──> file ──batch.run──> the disk ──finish_sync──> durable

A full segment is closed: its footer, which makes opening cheap, is written by a job off the hot
path. A small batch may go into the commit log instead of the file, which gets its bytes later (see
`segment_bytes`). What is removed is told by records too: ranges of sequences (tombstones),
coalesced for each batch, and a moved front, all that a queue acknowledged in order costs. See
`compaction` for holes.

A batch ends with a COMMIT record, which also says how much of the segment was durable when the
batch was prepared. So after a crash it is known which records may have been torn: those after what
the last COMMIT calls durable. What they remove counts only up to the first hole among them.

A failed fdatasync is final: the kernel may have dropped the pages, so asking again would lie. A
full disk is not: space is reserved before a sequence is given out.
"""

from collections.abc import Sequence
from typing import Any

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.log import damage
from slipstream.log.ahead import RoomAhead, SpareFile, SpareJob, first_room
from slipstream.log.base import Block, Log
from slipstream.log.block_cache import BlockCache
from slipstream.log.cold import ColdError
from slipstream.log.columns import GONE, Column
from slipstream.log.compaction import Compactor, Going, Neighbours
from slipstream.log.counts import Counts
from slipstream.log.disk import Disk, File
from slipstream.log.durability import Job, Lost, SyncBatch, is_final
from slipstream.log.end_record import Copies, EndJob, EndRecord
from slipstream.log.packing import PACK_MIN, pack
from slipstream.log.record import (
    AFTER,
    COMMIT,
    COMMIT_SIZE,
    END,
    FIXED_SIZE,
    FRONT,
    MESSAGE,
    MORE,
    PACKED,
    SKIP,
    TOMBSTONE,
    Portion,
    Record,
    encode,
    encode_number,
    length_at,
)
from slipstream.log.segment import (
    HEADER_SIZE,
    PLACES_MAX,
    RANGE,
    RANGE_SIZE,
    FooterDraft,
    FooterJob,
    Segment,
    encode_header,
    erased,
)
from slipstream.log.segment_bytes import EntryCopies, Reference, SegmentCopy
from slipstream.log.segment_reader import SegmentReader
from slipstream.log.subject_index import SubjectFilter
from slipstream.log.unlink import UnlinkJob
from slipstream.log.written_again import write_again
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

SEGMENT_BYTES: _int = 32 * 1024 * 1024
CHUNKS_BYTES_MAX: _int = 2 * 1024 * 1024  # of what was last written, readable without a syscall
MESSAGE_ROOM: _int = FIXED_SIZE + 2  # of a record with a header block, without its parts
CONTROLS_ROOM: _int = 320  # kept free after each message, to record removals on a full disk
CONTROL_SIZE: _int = 32  # of a front, a skip, an end
SALTS_KEPT: _int = 8  # of segments without a footer, in the record of the log's end
# A batch of so many bytes may go through the commit log: to write more of them twice would cost as
# much as the sync that it saves.
COPIED_MAX: _int = 64 * 1024
# A segment of this part of a full one is closed early when all of it is dead, and with the log: the
# next start reads its footer then, instead of each record.
CLOSE_EARLY: _int = 4
# What is done ahead of time, in parts of a full segment.
SPARE_PART: _int = 4  # the next one's file is made with so much room
ROOM_FROM: _int = 64  # where so much is reserved, more is ahead of time ...
ROOM_PART: _int = 8  # ... when less than this is left
# Of what is appended at once, about: no more than a disk of a group leaves whole (`WHOLE_MAX`).
PIECE_BYTES: _int = 4 * 1024 * 1024
SEARCHES_MAX: _int = 1024  # that go on where they were, or as many as wait for the disk


class FileLog(Log):
    """Messages in the segment files of `directory`; open one with `recovery.open_log`."""

    def __init__(self, disk: Disk, directory: str, cache: BlockCache | None = None,
                 first_seq: _int = 1, segment_bytes: _int = SEGMENT_BYTES,
                 copies: Copies | None = None) -> None:  # fmt: skip
        super().__init__(first_seq)
        self.disk = disk
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._close_early = segment_bytes // CLOSE_EARLY
        self.reader = SegmentReader(disk, cache or BlockCache(), self.subjects)
        self.failed = ""  # why nothing can be written any more
        self.replaying = False  # while recovery repeats removals that are on disk already
        self._out = OutBuffer()
        self._active: Segment | None = None
        self._recorded_seq = self.last_seq  # what the records on disk say about last_seq ...
        self._recorded_first = self.first_seq  # ... and about the front
        # What is mostly empty is None or a tuple, of which there is but one that is empty: each
        # list would be a look at memory of its own for each batch (see `Stream`).
        # Removed ranges that are not written yet: first, count.
        self._removed_ranges: list[list[int]] | None = None
        self._unsynced: tuple[Segment, ...] = ()
        self._emptied: tuple[Segment, ...] = ()  # dropped; emptied with the next batch
        self._going: list[Going] = []
        self._unlinked: list[str] = []  # files of these that were removed since the last batch
        self.sparse: tuple[Segment, ...] = ()  # to be compacted, oldest first
        self.compactor = Compactor(self)
        self._jobs: tuple[Job, ...] = ()
        self._footers: list[Job] = []  # of segments that are not synced yet
        self._batches: tuple[SyncBatch, ...] = ()  # prepared and not finished, in order
        self._carried: Segment | None = None  # of which an entry under way has a copy, and ...
        self._carried_seq = self._carried_first = 0  # ... what is durable with that, as of ...
        self._carried_base = self._carried_at = 0  # ... a batch: see `SyncBatch`
        self._carried_proves_base = self._carried_proves_at = 0
        self._carried_counts = Counts()
        self.dir_dirty = False  # names in it have changed
        self.unsynced_above: list[str] = []  # directories that the first batch makes durable
        self._written = False  # something was handed over that is not synced yet
        self.stream_created = 0  # when the stream was created, if the commit log may have batches
        self._lost = Lost()
        self._reserved = 0  # how far messages may have the active segment grow; 0 once failed
        self._room = 0  # ... and what removes some, which has room there for longer
        self._group = 0  # messages of a group that are still to come
        self._group_flags = 0  # of the last message
        self._group_after = 0  # the last sequence before the group
        self._committed = 0  # how far COMMIT records cover the active segment
        self._tail = 0  # bytes of the last control record
        # Positions are a segment's base and an offset in it, in two numbers: a batch moves several.
        self._durable_base = self._durable_at = 0  # up to here everything is durable
        self._claimed_base = self._claimed_at = 0  # up to here a COMMIT record says so ...
        self._proven_base = self._proven_at = 0  # ... which is durable itself
        self._closed_base = self._closed_at = 0  # where the segment before the active one ends
        self._durable_first = self.first_seq  # what lies below was removed durably
        self.durable_counts = self.counts()
        self.copies = copies  # keeps where the log ends
        self._end_due = False  # segments have come or gone: it is to be kept durably
        self._saved = b""  # what was kept last
        self.looks_ahead = False  # whether jobs make files and room before they are needed
        self._spare: SpareFile | None = None  # the next segment's file
        self._spare_asked = False  # ... was asked for ...
        self._spare_due = False  # ... and is being made
        self._room_asked = False  # the same of room in the active segment
        self._names: list[tuple[File, str]] = []  # that the next batch gives to files
        # How far searches came that wait for the disk, by their patterns and where they began.
        self._searched: dict[tuple[tuple[bytes, ...], int], int] = {}

    # -- writing -------------------------------------------------------------------------------

    def size_of(self, subject_size: _int, header_size: _int, body_size: _int) -> _int:
        return 30 + subject_size + body_size + (4 + header_size if header_size else 0)

    def append(
        self, subject: bytes, data: bytes, header_start: _int, body_start: _int, end: _int, ts: _int
    ) -> _int:
        segment: Any = self._active
        length = MESSAGE_ROOM + len(subject) + end - header_start
        if (
            segment is None
            or (segment.records_end + length > self.segment_bytes and not self._group)
            or segment.offsets.size >= PLACES_MAX
        ):
            segment = self._fresh_segment(self.last_seq + 1, length)
        # Zeros after it say that it is in use, and removals have room there on a full disk.
        if segment.records_end + length + CONTROLS_ROOM >= self._reserved:
            self._reserve(segment, segment.records_end + length + CONTROLS_ROOM)
        seq = self.last_seq + 1
        at = segment.records_end
        out = self._out
        place = seq - segment.base
        pack_it = self.packs and end - body_start >= PACK_MIN
        small = pack(data, header_start, body_start, end) if pack_it else b""
        kind = MESSAGE if self._group == 0 else self._next_of_group()
        if small:
            kind, n = kind | PACKED, body_start - header_start
            encode(out, kind, segment.salt, place, ts, subject, small, 0, n, len(small))
        else:
            n = header_start
            encode(out, kind, segment.salt, place, ts, subject, data, n, body_start, end)
        length = self._out.size - (at - segment.written)
        segment.records_end = at + length
        id = self.subjects.intern(subject)
        self.subjects.added(id, seq)
        segment.ids.append(id)
        segment.offsets.append(at)
        size = 30 + len(subject) + end - header_start
        if body_start > header_start:
            size += 4
            segment.has_headers = True
        if segment.live == 0:
            segment.first_ts = ts
        segment.live += 1
        segment.bytes += size
        segment.last_ts = ts
        self.messages += 1
        self.bytes += size
        self.appended_size = size
        if self.messages == 1:
            self.first_seq = seq
            self.note_first_ts(ts)
        self.last_seq = seq
        self._recorded_seq = seq
        self.last_ts = ts
        return seq

    def begin_group(self, messages: _int, stored: _int, size: _int) -> None:
        segment = self._active
        need = size + MESSAGE_ROOM * stored + CONTROLS_ROOM
        if (
            segment is None
            or segment.records_end + need > self.segment_bytes
            or self.last_seq + 1 - segment.base + messages > PLACES_MAX
        ):
            segment = self._fresh_segment(self.last_seq + 1, need)
        if segment.records_end + need >= self._reserved:
            self._reserve(segment, segment.records_end + need + 1)
        self._group = stored
        self._group_flags = 0
        self._group_after = self.last_seq

    def break_group(self) -> None:
        self._group = 0
        if self.last_seq > self._group_after:
            self._give_up(StorageError("an atomic batch was stored in part"))

    def _next_of_group(self) -> _int:
        """The kind of a message of a group, which says that there are others."""
        self._group -= 1
        after = AFTER if self._group_flags else 0
        self._group_flags = after | (MORE if self._group else 0)
        return MESSAGE | self._group_flags

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
        self._fresh_segment(last_seq + 1, 0)
        self.last_seq = last_seq
        if self.messages == 0:
            self.first_seq = last_seq + 1

    def cut(self) -> None:
        """Have all messages in closed segments: a new one begins. Raises `StorageError`."""
        if self._active is not None and self._active.base <= self.last_seq:
            self._fresh_segment(self.last_seq + 1, 0)

    def _reserve(self, segment: Segment, size: _int) -> None:
        if self.failed:
            raise StorageError(self.failed)
        assert segment.file is not None
        self._room_asked = False
        try:
            self._reserved = self._room = segment.file.reserve(size)
        except OSError as error:
            self._refuse(error)

    def ask_for_room_again(self) -> None:
        self._reserved = 0

    def _fresh_segment(self, base: _int, length: _int) -> Segment:
        """Close the active segment, if there is one with records, and begin the next."""
        if self.failed:
            raise StorageError(self.failed)
        if self._active is not None and self._active.base == base:
            return self._active
        segment = Segment(base, f"{self.directory}/{base:020d}.seg")
        segment.salt = int.from_bytes(self.disk.random_bytes(4), "little")
        reserved = 0
        try:
            reserved = self._open(segment, HEADER_SIZE + length + CONTROLS_ROOM)
        except OSError as error:
            self._refuse(error)
        self._close_active(base)
        self.blocks.append(segment)
        self._active = segment
        self._reserved = self._room = reserved
        self._spare_asked = self._room_asked = False
        self._committed = HEADER_SIZE
        self.dir_dirty = True
        self._end_due = True
        return segment

    def _open(self, segment: Segment, size: _int) -> _int:
        """Give a new segment a file with a header and room for `size` bytes; how much there is.
        Raises OSError, `DiskFullError`."""
        spare = self._spare
        file = spare.file if spare is not None else None
        try:
            if spare is not None and file is not None:
                reserved = spare.reserved if size <= spare.reserved else file.reserve(size)
                file.append(encode_header(segment))
                self._names.append((file, segment.path))
                segment.file, self._spare = file, None
                return reserved
            segment.file = self.disk.open(segment.path)
            reserved = segment.file.reserve(size)
            segment.file.append(encode_header(segment))
            return reserved
        except (OSError, DiskFullError):
            if segment.file is not None:
                segment.let_go()
                self._remove_unused(segment)
            raise

    def _remove_unused(self, segment: Segment) -> None:
        """Remove the file of a segment that could not be begun, at once: the next attempt takes its
        name."""
        try:
            self.disk.remove(segment.path)
        except OSError:
            pass  # the next attempt takes it as it is

    def _is_spare_wanted(self) -> bool:
        """Whether a new segment may be begun soon: also one with little in it goes on being written
        to when all of that is removed."""
        segment = self._active
        if segment is None or segment.records_end > self._close_early:
            return True
        places: _int = segment.ids.size if segment.ids is not None else 0
        return places > PLACES_MAX // 2

    def _ask_for_spare(self) -> None:
        if self._spare is None and not self._spare_asked:
            self._spare_asked = self._spare_due = True
            full = self.segment_bytes
            room = full // SPARE_PART if self.blocks else first_room(full)
            self._jobs += (SpareJob(self, room),)

    def look_ahead(self) -> None:
        """Have jobs make what the log is about to need."""
        if self.looks_ahead and not self.failed:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Have jobs make what this segment or the next one is about to need."""
        if self._is_spare_wanted():
            self._ask_for_spare()
        segment = self._active
        if segment is None or segment.file is None:
            return
        full, end, reserved = self.segment_bytes, segment.records_end, self._reserved
        if self._room_asked or not full // ROOM_FROM <= reserved < full:
            return
        if segment.written < reserved and reserved - end < min(reserved // 2, full // ROOM_PART):
            self._room_asked = True
            more = min(reserved, full // ROOM_PART)
            self._jobs += (RoomAhead(self, segment, reserved + more),)

    def spare_made(self, spare: SpareFile) -> bool:
        """A job has made a file, or could not; False if nobody needs it."""
        self._spare_due = False
        return self.take_spare(spare)

    def take_spare(self, spare: SpareFile) -> bool:
        """There is a file for the next segment; False if nobody needs it."""
        if not self.looks_ahead or self.failed or self._spare is not None:
            return False
        self._spare = spare if spare.file is not None else None
        return True

    def take_room(self, room: RoomAhead) -> None:
        """A job has reserved room."""
        if self._active is room.segment and room.reserved > self._reserved and not self.failed:
            self._reserved = self._room = room.reserved
            self._room_asked = False

    def name_at_once(self) -> None:
        """Give all segments their names. Blocks; raises `StorageError`."""
        try:
            for file, path in self._names:
                file.rename(path)
            for batch in self._batches:
                batch.give_names()
        except OSError as error:
            self._fail(error)

    def _close_active(self, following: _int) -> None:
        segment = self._active
        if segment is None:
            return
        assert segment.ids is not None
        told = self._write_controls(segment)
        self._put_commit(segment)
        if told:
            self._put_number(segment, END, following - 1, 8)
            self._recorded_seq = segment.last_seq = following - 1
        self._write_out()
        self._closed_base, self._closed_at = segment.base, segment.records_end
        segment.places = segment.ids.size
        segment.closed = True
        segment.chunks = []
        self._will_sync(segment)
        self._written = False
        self._active = None
        if segment.live == 0:
            self.blocks.remove(segment)
            self._found = None
            self._dropped(segment)
            return
        # Only once the records are durable: a sync that fails for the footer may take them along.
        self._footers.append(self._footer(segment, following))

    def request_footer(self, segment: Segment, as_of: _int) -> None:
        """Have the footer of a closed, durable segment written."""
        self._jobs += (self._footer(segment, as_of),)

    def _footer(self, segment: Segment, as_of: _int) -> Job:
        self.compactor.watch(segment)
        draft = FooterDraft.of(segment, self.subjects, as_of)
        return FooterJob(segment, draft, self.reader.may_unload)

    def _will_sync(self, segment: Segment) -> None:
        segment.pin()
        self._unsynced += (segment,)

    def _write_controls(self, segment: Segment) -> bool:
        """Put what was removed or skipped since the last batch into records of its own.

        False on a full disk: that waits, and what was removed might come back after a crash.
        """
        size = 4 * CONTROL_SIZE + RANGE_SIZE * len(self._removed_ranges or ()) + 2 * COMMIT_SIZE
        try:
            if segment.records_end + size >= self._room:
                self._reserve(segment, segment.records_end + size)
        except DiskFullError:
            return False
        if self._removed_ranges:
            ranges = b"".join(RANGE.pack(first, count) for first, count in self._removed_ranges)
            segment.removed_ranges += ranges
            self._put_ranges(segment, ranges)
            self._removed_ranges = None
        if self.first_seq > self._recorded_first:
            self._put_number(segment, FRONT, self.first_seq, 8)
            self._recorded_first = segment.front = self.first_seq
        if self.last_seq > self._recorded_seq:
            self._put_number(segment, SKIP, self.last_seq, 8)
            self._recorded_seq = segment.last_seq = self.last_seq
        return True

    def _put_ranges(self, segment: Segment, body: bytes) -> None:
        assert segment.ids is not None
        out, place, ts = self._out, segment.ids.size, self.last_ts
        size = encode(out, TOMBSTONE, segment.salt, place, ts, b"", body, 0, 0, len(body))
        segment.records_end += size
        self._tail = size

    def _put_number(self, segment: Segment, kind: _int, number: _int, width: _int) -> None:
        assert segment.ids is not None
        place = segment.ids.size
        size = encode_number(self._out, kind, segment.salt, place, self.last_ts, number, width)
        segment.records_end += size
        self._tail = size

    def _put_commit(self, segment: Segment) -> None:
        """End a batch, if it has put any records into `segment`. There is always room for that."""
        if segment.records_end == self._committed:
            return
        durable = 0
        if self._durable_base == segment.base:
            durable = self._durable_at
        elif not _is_before(
            self._durable_base, self._durable_at, self._closed_base, self._closed_at
        ):
            durable = HEADER_SIZE
        if durable:
            self._claimed_base, self._claimed_at = segment.base, durable
        self._put_number(segment, COMMIT, durable, 4)
        self._committed = segment.records_end

    def _write_out(self) -> None:
        """Hand the buffer to the operating system."""
        segment = self._active
        if segment is None or self._out.size == 0:
            return
        assert segment.file is not None
        data = self._out.take()
        if 0 < self._tail <= len(data):  # of a batch that ends here; else it comes when that ends
            segment.checksum = _number_at(data, len(data) - self._tail)
        failure: Exception | None = None
        if not self.failed:  # else it would be put where the file ends, before its place
            try:
                if len(data) <= PIECE_BYTES:
                    segment.file.append(data)
                else:
                    for piece in _in_pieces(data):
                        segment.file.append(piece)
            except (OSError, DiskFullError) as error:
                failure = error
        # Not before: a checkpoint, on its thread, takes it that the file has what it finds there.
        if segment.referred > segment.written and segment.copy is not None:
            segment.copy.took((segment.written, data[: segment.referred - segment.written]))
        segment.chunks.append((segment.written, data))  # to be read, whatever the disk says
        segment.written += len(data)
        if segment.written > segment.referred:
            self._written = True
        if segment.written > CHUNKS_BYTES_MAX:
            self._let_chunks_go(segment)
        if failure is not None:
            self._fail(failure)

    def _let_chunks_go(self, segment: Segment) -> None:
        """Keep the newer half of what was last written, if that is too much: dropping one chunk for
        each batch would move all the others, and there may be many small ones."""
        if segment.written - segment.chunks[0][0] <= CHUNKS_BYTES_MAX:
            return
        kept_from = segment.written - CHUNKS_BYTES_MAX // 2
        old = 0
        while old + 1 < len(segment.chunks) and segment.chunks[old][0] < kept_from:
            old += 1
        del segment.chunks[:old]

    def _refuse(self, error: OSError) -> None:
        """Nothing was written yet: without descriptors it may be asked again."""
        if is_final(error):
            self._fail(error)
        raise StorageError(
            f"no file can be opened for the log in {self.directory}: {error}; close connections, "
            "or let the server open more files"
        ) from error

    def _fail(self, error: Exception) -> None:
        self._give_up(error)
        raise StorageError(self.failed) from error

    def _give_up(self, error: Exception) -> None:
        """Write nothing any more, for a reason that does not go away."""
        if not self.failed:
            self.failed = (
                f"the log in {self.directory} cannot be written any more: {error}; "
                "what was acknowledged is safe, look after the disk and restart the server"
            )
        self._reserved = self._room = 0  # so that the next append asks, and hears of it

    def sync_failed(self, error: Exception) -> None:
        """A write or sync of a segment has failed elsewhere. Any thread may call."""
        self._give_up(error)

    def write_again(self, path: str, contents: list[bytes]) -> None:
        """Write to a segment's file what the commit log has of it. Blocks; raises OSError,
        `StorageError`."""
        write_again(self.disk, path, contents)

    def hand_over(self) -> None:
        """Have the active segment's file be given all that was appended."""
        try:
            self._write_out()
        except StorageError:
            pass  # `failed` says why

    def unwritten(self) -> _int:
        segment = self._active
        if segment is None:
            return 0
        return segment.records_end - max(segment.written, segment.referred)

    def prepare_sync(self, instead_of: SyncBatch | None = None) -> SyncBatch | None:
        told = False
        try:
            told = self._tell_removed()
            if self._active is not None:
                self._put_commit(self._active)
                if self._active.records_end > self._active.referred:
                    self._write_out()
        except StorageError:
            pass  # `failed` says why
        if self.failed:
            return SyncBatch(self.disk, [], (), self.last_seq, OSError(self.failed))
        self.untold = not told
        if self.looks_ahead:
            self._look_ahead()
        if self._written and self._active is not None:
            self._will_sync(self._active)
        self._written = False
        if not self._unsynced and not self.dir_dirty:
            return instead_of
        files = _files_of(list(self._unsynced))
        directories = (self.directory, *self.unsynced_above) if self.dir_dirty else ()
        # What was skipped and could not be recorded is given out again after a crash.
        last_seq = self.last_seq if told else self._recorded_seq
        batch = SyncBatch(self.disk, files, directories, last_seq)
        batch.segments, self._unsynced = list(self._unsynced), ()
        if self.dir_dirty and self._unlinked:
            batch.unlinked, self._unlinked = self._unlinked, []
        self._note(batch)
        if not told:
            batch.first_seq = self._durable_first
        if self._names:
            batch.names, self._names = self._names, []
        if self._emptied:
            batch.emptied = self._take_emptied(told)
        if self._footers:
            batch.jobs, self._footers = self._footers, []
        if told and self.sparse:
            batch.jobs = [*batch.jobs, *self.compactor.draw_up()]
        self.dir_dirty = False
        self._refer(batch)
        if instead_of is not None:
            batch.take_over(instead_of)
            self._batches = tuple([one for one in self._batches if one is not instead_of])
        self._batches += (batch,)
        return batch

    def _refer(self, batch: SyncBatch) -> None:
        """Note what a batch has put into segments, for the commit log."""
        if self.stream_created:
            batch.references = [
                self._reference(segment, batch.last_seq)
                for segment in batch.segments
                if segment.written > segment.referred
            ]

    def _reference(self, segment: Segment, last_seq: _int) -> Reference:
        """To all of a segment that was not referred to yet."""
        start, segment.referred = segment.referred, segment.written
        last_seq = min(end_of(segment), last_seq)
        return Reference(
            segment.path, self.stream_created, segment.salt, start, segment.written, last_seq,
            segment.checksum,
        )  # fmt: skip

    def _note(self, batch: SyncBatch) -> None:
        """Have a batch say how far the log is durable with it."""
        batch.end_base, batch.end_at = self._closed_base, self._closed_at
        if self._active is not None:
            batch.end_base, batch.end_at = self._active.base, self._active.records_end
        batch.proves_base, batch.proves_at = self._claimed_base, self._claimed_at
        batch.first_seq = self.first_seq
        batch.counts = self.counts()

    def carry(self, copies: EntryCopies) -> bool:
        segment = self._active
        if segment is None or not self._may_be_carried(segment):
            return False
        changed = self._has_changed()
        size = segment.records_end - segment.referred + COMMIT_SIZE
        if changed:
            size += 4 * CONTROL_SIZE + RANGE_SIZE * len(self._removed_ranges or ())
        if segment.copy is None:
            segment.copy = SegmentCopy(self, segment)
        if size > COPIED_MAX or not copies.has_room(segment.copy, size):
            return False
        try:
            if changed and not self._write_controls(segment):
                return False
            self._put_commit(segment)
        except StorageError:
            return False  # `failed` says why
        self._put_copy(segment, copies)
        if self.looks_ahead:
            self._look_ahead()
        segment.pin()
        self._carried = segment
        self._carried_seq, self._carried_first = self.last_seq, self.first_seq
        self._carried_base, self._carried_at = segment.base, segment.records_end
        self._carried_proves_base, self._carried_proves_at = self._claimed_base, self._claimed_at
        self.count_into(self._carried_counts)
        return True

    def _put_copy(self, segment: Segment, copies: EntryCopies) -> None:
        """Have the commit log have what was appended since the last batch. The segment's file is
        given that later, together with more of it: by the next checkpoint, or by who reads it."""
        at = segment.referred
        data = b""
        if segment.written > at:  # somebody has read what is not committed
            data = _since(segment.chunks, at)
            segment.copy.took((at, data))
        copies.put(segment.copy, at, data, self._out, max(at - segment.written, 0))
        segment.referred = segment.records_end
        self._written = False
        if self._out.size > COPIED_MAX:
            self.hand_over()

    def _may_be_carried(self, segment: Segment) -> bool:
        """Whether the next batch does nothing but append something to the active segment, which is
        durable up to there."""
        if not self.stream_created or self.failed:
            return False
        if segment.records_end == segment.referred and not self._has_changed():
            return False
        if self._carried is not None or self._batches:
            return False
        # Footers wait with the segments that they are of, names with their directory.
        if self.dir_dirty or self._unsynced or self._emptied or self.sparse:
            return False
        return segment.live > 0 or segment.records_end <= self._close_early

    def _has_changed(self) -> bool:
        """Whether something was removed or skipped that no record tells yet."""
        return self.owes_removals() or self.last_seq > self._recorded_seq

    def _tell_removed(self) -> bool:
        """Have all that was removed or skipped in records; False if that has to wait for space."""
        active = self._active
        try:
            if active is not None and active.live == 0 and active.records_end > self._close_early:
                if not self._spare_due:  # else a later batch does it, which has a file for that
                    self._fresh_segment(self.last_seq + 1, 0)
            if self._has_changed():
                segment = self._active or self._fresh_segment(self.last_seq + 1, 0)
                return self._write_controls(segment)
        except DiskFullError:
            return False
        return True

    def _take_emptied(self, told: bool) -> list[Segment]:
        """Emptied segments whose files go once this batch is durable.

        If what was removed could not be told, only those that no older segment depends on.
        """
        oldest = self.blocks[0].base if self.blocks else self.last_seq + 1
        emptied = self._emptied
        self._emptied = tuple([s for s in emptied if not told and s.base > oldest])
        return [s for s in emptied if told or s.base < oldest]

    def finish_sync(self, batch: SyncBatch) -> None:
        self._batches = tuple([other for other in self._batches if other is not batch])
        for segment in batch.segments:
            segment.unpin()
        if batch.error is not None or self.failed:
            self._fail(batch.error or OSError(self.failed))
        self._is_durable_to(batch.end_base, batch.end_at)
        self._is_proven_to(batch.proves_base, batch.proves_at)
        self._holds_durably(batch.last_seq, batch.first_seq, batch.counts)
        self._finish_files(batch)
        if self._end_due or batch.emptied:
            self._end_due = False
            self._keep_end(True, batch.emptied)

    def _finish_files(self, batch: SyncBatch) -> None:
        """What a batch has done beside appending is durable."""
        self.unsynced_above = []
        self._jobs += tuple(batch.jobs)
        if batch.unlinked:
            self._going = [one for one in self._going if one.path not in batch.unlinked]
        for segment in batch.emptied:
            segment.let_go()
            if segment.copy is not None:
                segment.copy.retire()

    def finish_carried(self, error: Exception | None) -> None:
        segment, self._carried = self._carried, None
        assert segment is not None
        segment.unpin()
        if error is not None or self.failed:
            self._fail(error or OSError(self.failed))
        before = self.durable_counts or Counts()
        self._is_durable_to(self._carried_base, self._carried_at)
        self._is_proven_to(self._carried_proves_base, self._carried_proves_at)
        self._holds_durably(self._carried_seq, self._carried_first, self._carried_counts)
        self._carried_counts = before  # to be filled anew
        if self._end_due:
            self._end_due = False
            self._keep_end(True, [])

    def _holds_durably(self, last_seq: _int, first_seq: _int, counts: Counts | None) -> None:
        """A batch, or what was carried in its place, has made this durable."""
        self.durable_seq = max(self.durable_seq, last_seq)
        self._durable_first = max(self._durable_first, first_seq)
        self.durable_counts = counts
        self.keep_end_later()

    def _is_durable_to(self, base: _int, at: _int) -> None:
        if _is_before(self._durable_base, self._durable_at, base, at):
            self._durable_base, self._durable_at = base, at

    def _is_proven_to(self, base: _int, at: _int) -> None:
        if _is_before(self._proven_base, self._proven_at, base, at):
            self._proven_base, self._proven_at = base, at

    def durable_end(self, segment: Segment) -> _int:
        """How many bytes of a segment a sync has covered; a batch ends there."""
        base, size = self._durable_base, self._durable_at
        if segment.footed or segment.base < base:  # a footer follows the sync
            return segment.records_end
        return size if segment.base == base else 0

    def owes_removals(self) -> bool:
        return bool(self._removed_ranges) or self.first_seq > self._recorded_first

    def has_jobs(self) -> bool:
        return bool(self._jobs)

    def take_jobs(self) -> list[Job]:
        jobs, self._jobs = list(self._jobs), ()
        return jobs

    # -- where the log ends, kept elsewhere ------------------------------------------------------

    def recall_end(self) -> EndRecord | None:
        """What was kept; None for nothing that can be read."""
        if self.copies is None:
            return None
        try:
            self._saved = self.copies.load()
            return EndRecord.decode(self._saved)
        except (CorruptionError, OSError):
            self._saved = b""
            return None

    def keep_end_later(self) -> None:
        """Where the log ends is to be kept, by `save_end`."""
        self.end_moved = self.copies is not None

    def save_end(self) -> None:
        """Have it kept, by a job, where the log ends now. It need not be durable at once."""
        self.end_moved = False
        if not self.failed:
            self._keep_end(False, [])

    def _keep_end(self, sync: bool, emptied: Sequence[Segment]) -> None:
        """Keep where the log ends; then, and not before, the files of `emptied` go: a file that is
        missed at the next start has not been removed by the log."""

        def done(error: Exception | None) -> None:
            if self.failed:
                return
            if error is not None:
                self._saved = b""
                self._end_due = True
            if error is None or isinstance(error, DiskFullError):  # space counts for more
                # The older ones first: the others may have the tombstones of what these had.
                self._unlink([one.path for one in sorted(emptied, key=lambda one: one.base)])
            else:
                self._emptied += tuple(emptied)

        if self.copies is None:
            done(None)
            return
        content = self._end().encode()
        if emptied or content != self._saved:
            self._saved = content if sync else b""
            self._jobs += (EndJob(self.copies, content, sync, done),)

    def _unlink(self, paths: list[str]) -> None:
        """Have files removed in which nothing lives, once nobody reads the log as it was."""
        going = self.reader.may_go(paths)
        if going:
            self._jobs += (UnlinkJob(self, going),)

    def unlinked(self, paths: list[str]) -> None:
        """These files of segments were removed, which a crash may undo until a directory is
        synced."""
        self._unlinked += paths

    def neighbours(self) -> Neighbours:
        """The segments that a start may find, and for which tombstones are kept: not those below
        the front."""
        first = self.blocks[0].base if self.blocks else self.last_seq
        going = [one for one in self._going if one.base > first]
        return Neighbours.of(sorted([*self.blocks, *going], key=lambda one: one.base))

    def release(self) -> None:
        """One fewer reads the files as they were: jobs remove what was kept for that."""
        self._unlink(self.reader.release())

    def _end(self) -> EndRecord:
        """Where the log ends, as far as that is durable."""
        salts = [(s.base, s.salt) for s in self.blocks[-SALTS_KEPT:] if not s.footed]
        gaps = []
        expected = self._durable_first
        for segment in self.blocks:
            if segment.base > expected:
                gaps.append((expected, segment.base - 1))
            expected = max(expected, end_of(segment) + 1)
        if expected <= self.durable_seq:
            gaps.append((expected, self.durable_seq))
        end = (self._durable_base, self._durable_at)
        return EndRecord(self.durable_seq, self._durable_first, end, dict(salts), gaps)

    def keep_end_at_once(self) -> None:
        """Keep durably where the log ends. Blocks. What the disk says to it does no harm."""
        self._end_due = self.end_moved = False
        waiting = self.take_jobs()
        self._keep_end(True, [])
        for job in self.take_jobs():
            job.run()
            job.finish()
        self._jobs = tuple(waiting)

    def lose_end(self, last_seq: _int) -> None:
        """Sequences up to `last_seq` were given out, as somebody remembers, and are not here any
        more: count them as lost, and go on after them. Blocks; raises OSError, `StorageError`."""
        if last_seq > self.last_seq:
            damage.lose_range(self, self.last_seq + 1, last_seq)
            self.go_on_after(last_seq)

    def go_on_after(self, last_seq: _int) -> None:
        """Give out no sequence up to `last_seq`; a new segment begins after it. Takes no space.
        Blocks: what is kept about the log's end says next that this is durable."""
        segment = self._active
        self._close_active(last_seq + 1)
        if segment is not None and segment.file is not None:
            try:
                segment.file.sync()
            except OSError as error:
                self._fail(error)
        self.last_seq = self.durable_seq = last_seq
        if self.messages == 0:
            self.first_seq = last_seq + 1

    # -- reading -------------------------------------------------------------------------------

    def read_near(self, seq: _int, record: Record) -> bool:
        self.reader.near = True
        try:
            return self.read(seq, record)
        finally:
            self.reader.near = False

    def next_near(self, seq: _int, matching: SubjectFilter | None, record: Record) -> bool:
        self.reader.near = True
        try:
            if matching is None:
                return self.next(seq, None, record)
            return self._search_on(seq, matching, record)
        finally:
            self.reader.near = False

    def copy_near(
        self, seq: _int, matching: SubjectFilter | None, portion: Portion, out: OutBuffer
    ) -> _int:
        if not self.first_seq <= seq <= self.last_seq:
            return 0
        segment = self._block_of(seq)
        if not isinstance(segment, Segment):
            return 0
        return self.reader.copy_run(segment, seq - segment.base, matching, portion, out)

    def _search_on(self, seq: _int, matching: SubjectFilter, record: Record) -> bool:
        """As `next`, from where the same search was when it had to wait for the disk. What lies
        before that has left memory meanwhile, if there is much of it; and no message comes to lie
        there."""
        start = seq
        if self._searched:
            start = self._searched.pop((matching.patterns, seq), seq)
        try:
            return self.next(start, matching, record)
        except ColdError as cold:
            most = max(SEARCHES_MAX, 2 * self.reader.awaited)
            while len(self._searched) >= most:
                del self._searched[next(iter(self._searched))]
            self._searched[matching.patterns, seq] = max(cold.base, start)
            raise

    @property
    def lost(self) -> Lost:
        return self._lost

    def _ids(self, block: Any) -> Column:
        if block.ids is None:
            self.reader.load(block)
        ids: Column = block.ids
        return ids

    def _fill(self, block: Any, i: _int, record: Record) -> None:
        segment = block
        active = self._active
        if active is not None and segment is active:
            offsets: Any = active.offsets
            if offsets.get(i) >= active.written:
                self.hand_over()
        self.reader.fill(segment, i, record)
        if record.kind != MESSAGE and not self.replaying:
            raise CorruptionError(f"message {segment.base + i} was erased")

    def _find(self, block: Any, i: _int, record: Record) -> bool:
        known = block.ids is None and self.reader.find(block, i, record)
        return known or Log._find(self, block, i, record)

    # -- what recovery and compaction use ------------------------------------------------------

    def active_base(self) -> _int:
        """Where the segment that is written to begins, or would."""
        return self._active.base if self._active is not None else self.last_seq + 1

    def set_lost(self, lost: Lost) -> None:
        """What damage has taken so far."""
        self._lost = lost

    def resume(self, segment: Segment) -> None:
        """Go on writing at the end of `segment`, the last one."""
        self._active = segment
        self._reserved = self._room = self._committed = segment.written

    def recovered(self) -> None:
        """What the log says now is what the disk says."""
        segment = self._active
        if segment is not None and self.last_seq >= segment.base + PLACES_MAX:
            self._close_active(self.last_seq + 1)
            segment = None
        if segment is not None:  # sequences that were used without a record have places too
            assert segment.ids is not None
            assert segment.offsets is not None
            while segment.base + segment.ids.size <= self.last_seq:
                segment.ids.append(GONE)
                segment.offsets.append(segment.records_end)
        self._recorded_seq = self.last_seq
        if not self._emptied:
            self._recorded_first = self.first_seq
        last = self.blocks[-1] if self.blocks else None
        if last is not None:
            self._durable_base, self._durable_at = last.base, last.records_end
            if segment is None:
                self._closed_base, self._closed_at = last.base, last.records_end
        self._durable_first = self.first_seq
        self.durable_counts = self.counts()

    # -- removing ------------------------------------------------------------------------------

    def _lose(self, seq: _int) -> None:
        self.reader.near = False  # nothing is to be left half done
        self.untold = not self.replaying
        segment = self._block_of(seq)
        assert isinstance(segment, Segment)
        damage.lose(self, segment, seq)

    def _forgotten(self, block: Any, i: _int, erase: bool) -> None:
        segment = block
        seq = segment.base + i
        if erase:
            self._note_removed(seq, 1)
            self._erase(segment, i)
        if segment.closed:
            segment.bury(i)
            if segment.bytes < segment.compact_below:
                self.compactor.add(segment)
        if erase or self.replaying or seq == self.first_seq:
            return  # it stands on disk already, or the moved front will say it
        self._tell_later(seq, 1)

    def _forgotten_run(self, block: Block, i: _int, count: _int, is_front: bool) -> None:
        assert isinstance(block, Segment)
        segment = block
        if segment.closed:
            for k in range(i, i + count):
                segment.bury(k)
            if segment.bytes < segment.compact_below:
                self.compactor.add(segment)
        if not self.replaying and not is_front:
            self._tell_later(segment.base + i, count)

    def _tell_later(self, first: _int, count: _int) -> None:
        """Have the next batch record that `count` messages from `first` on were removed."""
        ranges = self._removed_ranges
        if ranges and ranges[-1][0] + ranges[-1][1] == first:
            ranges[-1][1] += count
        else:
            self._note_removed(first, count)

    def _note_removed(self, first: _int, count: _int) -> None:
        if self._removed_ranges is None:
            self._removed_ranges = []
        self._removed_ranges.append([first, count])

    def _erase(self, segment: Segment, i: _int) -> None:
        """Destroy a message's bytes; the record stays whole, so that the next one is found."""
        if self.failed:  # what tells of it cannot be written, and memory has what the disk refused
            return
        assert segment.offsets is not None
        offset = segment.offsets.get(i)
        proven = _is_before(segment.base, offset, self._proven_base, self._proven_at)
        if not proven and not segment.footed:
            self._put_something_behind(segment)
        elif segment is self._active:
            self._write_out()
        record = Record()
        self.reader.fill_as_stored(segment, i, record)
        file = self.reader.file_of(segment)
        file.pwrite(offset, erased(segment, i, record))
        self.reader.changed(segment)
        if segment not in self._unsynced:
            self._will_sync(segment)
        self.compactor.was_erased(segment)

    def _put_something_behind(self, segment: Segment) -> None:
        """Blocks. Before a record of a batch that may count as torn is written over, it is durable
        that it was removed, and a durable COMMIT record says that its batch is: torn by a crash,
        the record would void what its batch removed, or cost the rest of its group. If it were the
        last one, a message could get its sequence once more."""
        active = self._active or self._fresh_segment(self.last_seq + 1, 0)
        self._recorded_seq = 0  # so that it is recorded again
        self._write_controls(active)
        self._put_commit(active)
        self._write_out()
        waiting = [*self._unsynced, *(one for batch in self._batches for one in batch.segments)]
        if self._carried is not None:
            waiting.append(self._carried)
        files = [self.reader.file_of(one) for one in (*waiting, segment, active)]
        self._sync_at_once(files)
        # All that is appended so far is durable now.
        self._is_durable_to(active.base, active.records_end)
        self._committed = 0  # so that there is a COMMIT record that says so
        self._put_commit(active)
        self._write_out()
        self._sync_at_once([self.reader.file_of(active)])
        self._is_proven_to(self._claimed_base, self._claimed_at)

    def _sync_at_once(self, files: list[File]) -> None:
        """Blocks. What a batch under way has failed to make durable, nothing else does."""
        self.name_at_once()
        try:
            for file in dict.fromkeys(files):
                file.sync()
            if self.dir_dirty:
                self.disk.sync_dir(self.directory)
        except OSError as error:
            self._fail(error)
        for batch in self._batches:
            if batch.error is not None:
                self._fail(batch.error)

    def _dropped(self, block: Any) -> None:
        segment = block
        # Its tombstones may still hold for older segments: record them again.
        # The front, which goes with the same batch, tells of all below the first segment.
        if segment.removed_ranges and self.blocks and self.blocks[0].base < segment.base:
            needed = self.neighbours().needed(bytes(segment.removed_ranges), segment.base)
            for first, count in RANGE.iter_unpack(needed):
                self._note_removed(first, count)
        self._recorded_first = 0  # the front may stand in its records alone: record it again
        self.reader.forget(segment)
        self._emptied += (segment,)
        self._going.append(Going(segment.base, segment.as_of, segment.path))
        self.dir_dirty = True

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        self.looks_ahead = False
        if not self.failed:
            active = self._active
            # One without any places stays: the next would take its name, and go with it.
            if active and active.base <= self.last_seq and active.records_end > self._close_early:
                self._close_active(self.last_seq + 1)
            self.hand_over()
            self.prepare_sync()
            if self._carried is not None:
                self._sync_carried(self._carried)
            for batch in self._batches:  # also what is on its way, or waits for its interval
                batch.run()
                self.finish_sync(batch)
            self.do_jobs()
            if self._active is not None and self._active.file is not None:
                self._active.file.truncate(self._active.written)
            self.keep_end_at_once()
            if self._spare is not None:
                self._spare.discard()
        self._release()

    def _sync_carried(self, segment: Segment) -> None:
        """Blocks. The entry that has a copy of a segment is not waited for."""
        assert segment.file is not None
        failed: OSError | None = None
        try:
            segment.file.sync()
        except OSError as error:
            failed = error
        self.finish_carried(failed)

    def _release(self) -> None:
        self.looks_ahead = False
        if self._spare is not None and self._spare.file is not None:
            self._spare.file.close()
        self._spare = None
        emptied = [segment for batch in self._batches for segment in batch.emptied]
        for segment in [*self.blocks, *self._emptied, *emptied]:
            if segment.file is not None:
                segment.file.close()
                segment.file = None

    def delete(self) -> None:
        for segment in self.blocks:
            self.reader.forget(segment)
        emptied = [segment for batch in self._batches for segment in batch.emptied]
        for segment in [*self.blocks, *self._emptied, *emptied]:
            if segment.copy is not None:
                segment.copy.retire()
            if segment.file is not None:
                # Nothing more is to be written to it: a start that finds messages without a
                # configuration takes the stream for damaged.
                segment.file.drop()
                segment.file = None
        self._release()
        self.blocks.clear()
        self._active = None
        self._out.clear()
        self.failed = "the log was deleted"
        if self.copies is not None:
            self.copies.retire()


def end_of(segment: Segment) -> _int:
    """The last sequence that a segment answers for."""
    places: _int = segment.places if segment.ids is None else segment.ids.size
    return max(segment.last_seq, segment.base + places - 1)


def _in_pieces(data: bytes) -> list[bytes]:
    """Records in pieces of several, or of one that is large."""
    pieces = []
    start = at = 0
    while at < len(data):
        end = at + length_at(data, at)
        if start < at and end - start > PIECE_BYTES:
            pieces.append(data[start:at])
            start = at
        at = end
    pieces.append(data[start:])
    return pieces


def _number_at(data: bytes, at: _int) -> _int:
    """The number in four bytes of `data`."""
    low = data[at] | data[at + 1] << 8
    high = data[at + 2] | data[at + 3] << 8
    return high << 16 | low


def _is_before(base: _int, at: _int, other_base: _int, other_at: _int) -> bool:
    """Whether one position comes before another one."""
    return base < other_base or (base == other_base and at < other_at)


def _since(chunks: list[tuple[_int, bytes]], at: _int) -> bytes:
    """What chunks have from offset `at` on, of which the last one has something."""
    first = len(chunks) - 1
    while chunks[first][0] > at:
        first -= 1
    begin = chunks[first][0]
    return b"".join([data for _, data in chunks[first:]])[at - begin :]


def _files_of(segments: list[Segment]) -> list[File]:
    """Each file of `segments` once, in their order."""
    if len(segments) == 1:  # as nearly always
        file = segments[0].file
        return [file] if file is not None else []
    return list(dict.fromkeys(one.file for one in segments if one.file is not None))
