"""Giving back the space of removed messages that lie between live ones.

A closed segment of which less than half lives is written anew, beside the old one, on a thread:

    <base>.seg  ──live records, byte for byte──> <base>.new ──fdatasync, rename──> <base>.seg

Sequences and places stay what they were. Whenever the power fails, there is the old file or the
new one, whole. What the new file leaves out was removed durably before: the job is drawn up when a
batch is prepared and runs only after that batch has been synced.

The tombstones that a segment carries for others are kept as long as one of those could come back
without them.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from slipstream.errors import StorageError
from slipstream.log.columns import Column
from slipstream.log.disk import File
from slipstream.log.record import COMMIT, END, FRONT, TOMBSTONE, copy_used, encode
from slipstream.log.segment import RANGE, FooterDraft, Segment, encode_header
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog

SMALLEST = 64  # segments smaller than this part of a full one are left alone


class Going(NamedTuple):
    """A segment in which nothing lives any more, and whose file a crash may bring back."""

    base: int
    as_of: int
    path: str


@dataclass(frozen=True)
class Neighbours:
    """Where the log's segments begin, and what each one's footer knows."""

    bases: list[int]
    as_of: list[int]

    @staticmethod
    def of(segments: "Sequence[Segment | Going]") -> "Neighbours":
        """Segments, in order."""
        return Neighbours([s.base for s in segments], [s.as_of for s in segments])

    def needed(self, removed_ranges: bytes, told_by: int) -> bytes:
        """The packed ranges of segment `told_by` that still concern an older segment."""
        kept = bytearray()
        for first, count in RANGE.iter_unpack(removed_ranges):
            at = max(bisect_right(self.bases, first) - 1, 0)
            while at < len(self.bases) and self.bases[at] < first + count:
                if self.bases[at] != told_by and self.as_of[at] <= told_by:
                    kept += RANGE.pack(first, count)
                    break
                at += 1
        return bytes(kept)


class Compactor:
    """Decides which segments of `log` are written anew, one at a time."""

    def __init__(self, log: "FileLog") -> None:
        self._log = log
        self._job: CompactionJob | None = None  # drawn up or under way

    def watch(self, segment: Segment) -> None:
        """A closed segment counts from now on: `add` it once its live bytes are below a bound."""
        large = segment.records_end * SMALLEST >= self._log.segment_bytes
        segment.compact_below = segment.records_end // 2 if large else 0
        if segment.bytes < segment.compact_below:
            self.add(segment)

    def add(self, segment: Segment) -> None:
        """More of this segment is dead than alive."""
        segment.compact_below = 0
        self._log.sparse += (segment,)

    def was_erased(self, segment: Segment) -> None:
        """Bytes of `segment` were destroyed: a copy that is under way has them still."""
        if self._job is not None and self._job.segment is segment:
            self._job.erased = True

    def draw_up(self) -> "list[CompactionJob]":
        """What is to run once this batch is durable, in which all removals are told."""
        log = self._log
        if self._job is not None or not log.sparse or log.reader.held:
            return []
        segment, log.sparse = log.sparse[0], log.sparse[1:]
        if segment.live == 0 or segment not in log.blocks:
            return []
        if not segment.footed:
            log.sparse += (segment,)
            return []
        most = segment.base + segment.places - max(segment.base, log.first_seq)
        if segment.live * 2 > most:  # it empties from the front, and will go as a whole
            segment.compact_below = segment.bytes // 2
            return []
        try:
            if segment.ids is None:
                log.reader.load(segment)
        except OSError:
            log.sparse += (segment,)  # later, when the disk can be read
            return []
        draft = FooterDraft.of(segment, log.subjects, log.active_base())
        self._job = CompactionJob(log, segment, draft, log.neighbours(), self._done)
        return [self._job]

    def _done(self, job: "CompactionJob") -> None:
        self._job = None
        if not self._take_over(job):
            job.discard()

    def _take_over(self, job: "CompactionJob") -> bool:
        """Put the new file in the old one's place, if that may still be."""
        log = self._log
        segment = job.segment
        if job.error is not None:
            segment.compact_below = segment.bytes // 2  # try again when it is worth more
            return False
        if log.failed or segment.live == 0:
            return False
        if job.erased or segment.pins or log.reader.held:
            self.add(segment)
            return False
        try:
            log.disk.rename(job.path, segment.path)
        except OSError:
            return False
        log.dir_dirty = True
        segment.let_go()
        log.reader.changed(segment)
        segment.rewritten = True
        if segment.ids is not None:
            segment.offsets = job.offsets
        segment.records_end = segment.written = segment.referred = job.records_end
        segment.removed_ranges = bytearray(job.draft.removed_ranges)
        segment.last_seq = job.draft.last_seq
        segment.as_of = job.draft.as_of
        self.watch(segment)
        return True


class CompactionJob:
    """Writes one segment anew; `done` takes it over on the loop, or finds that it may not."""

    def __init__(
        self,
        log: "FileLog",
        segment: Segment,
        draft: FooterDraft,
        neighbours: Neighbours,
        done: "Callable[[CompactionJob], None]",
    ) -> None:
        assert segment.offsets is not None
        self.segment = segment
        self.draft = draft
        self.path = segment.path.removesuffix(".seg") + ".new"
        self.erased = False  # bytes of the segment were destroyed meanwhile: this would keep them
        self.offsets = Column()
        self.records_end = 0
        self.error: Exception | None = None
        self._log = log
        self._neighbours = neighbours
        self._old_offsets = segment.offsets
        self._old_end = segment.records_end
        self._done = done

    def run(self) -> None:
        """Copy what lives, and sync it."""
        try:
            self._copy()
        except Exception as error:  # whatever it is, half a copy may not take the old one's place
            self.error = error

    def _copy(self) -> None:
        old = self._open(self.segment.path)
        try:
            data = old.pread(0, self._old_end)
        finally:
            old.close()
        draft = self.draft
        out = OutBuffer()
        fresh = Segment(self.segment.base, self.path)
        fresh.format, fresh.salt, fresh.rewritten = self.segment.format, self.segment.salt, True
        out.put(encode_header(fresh))
        self.offsets = copy_used(data, draft.dense, self._old_offsets, out, 0)
        draft.removed_ranges = self._neighbours.needed(draft.removed_ranges, self.segment.base)
        if draft.removed_ranges:
            self._put_control(out, TOMBSTONE, draft.removed_ranges)
        if draft.front:
            self._put_control(out, FRONT, draft.front.to_bytes(8, "little"))
        if self.segment.format > 1:  # all of it is durable once the file has its name
            self._put_control(out, COMMIT, out.size.to_bytes(4, "little"))
        last_seq = max(draft.last_seq, self.segment.base + draft.places - 1)
        self._put_control(out, END, last_seq.to_bytes(8, "little"))
        draft.last_seq = last_seq
        self.records_end = out.size
        file = self._open(self.path, anew=True)
        try:
            file.append(out.take() + draft.encode(self.records_end, self.offsets, self.segment))
            file.sync()
        finally:
            file.close()

    def _open(self, path: str, anew: bool = False) -> File:
        """Open one of the log's files, unless it was deleted: then another stream may have the
        directory's name. Raises OSError, `StorageError`."""
        log = self._log
        if log.failed:
            raise StorageError(log.failed)
        if anew:
            log.disk.remove(path)
        return log.disk.open(path)

    def _put_control(self, out: OutBuffer, kind: int, body: bytes) -> None:
        salt = self.segment.salt
        encode(out, kind, salt, self.draft.places, self.draft.last_ts, b"", body, 0, 0, len(body))

    def finish(self) -> None:
        """Take over the result, on the loop."""
        self._done(self)

    def discard(self) -> None:
        """Give up the compaction: remove the file that it was writing."""
        try:
            if not self._log.failed:  # else another stream may have the directory's name
                self._log.disk.remove(self.path)
        except OSError:
            pass  # the next opening removes it
