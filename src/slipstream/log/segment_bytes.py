"""Bytes of segments in the commit log.

The small batches of several streams are durable with one entry of the commit log, which has a copy
of what each of them appended to its segment. The bytes themselves stay in the buffer of the
stream's log, and go to the segment's file several batches at a time, without a sync: when somebody
reads them, or a checkpoint is about to sync the file. Until that is durable a start writes the
bytes once more, before the log of the stream is opened. So recovery finds the segment as if each
batch had been synced where it belongs.

Only batches that append to one segment, whose name and header are durable, go this way. Closing a
segment, removing one and erasing in place have syncs of their own. What was written once more could
undo these, so:

* a segment that compaction has rewritten is left as it is: it was synced before it got its name,
  and its records are elsewhere in it;
* a message that was erased stays erased.

A batch that was synced in its segment leaves a *reference* in the commit log: where its bytes are.
It goes with the next entry, or with one of its own after a while, and nobody waits for that. So the
log has the order in which batches of all streams and all other changes became durable; and a start
misses what a reference speaks of and no segment has.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipstream.errors import StorageError
from slipstream.log.commit_entry import RECORD_SIZE, WRITE, name_of, put_head
from slipstream.log.disk import File
from slipstream.log.durability import Touched, is_final
from slipstream.wire.buffer import OutBuffer

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog
    from slipstream.log.segment import Segment

_int = int  # the name `int` in a compiled module's annotations is a C type

CONTENT_HEAD = struct.Struct("<IQ")  # salt of the segment, offset in it
_HEAD_SIZE: _int = CONTENT_HEAD.size
_SALT_BYTES: _int = 4
_OFFSET_BYTES: _int = 8
_SIZE_BYTES: _int = 4  # of the size of its content, with which the head of a record ends
_REFERENCE = struct.Struct("<IQQQI")  # salt, offset, end, last sequence, checksum


@dataclass(slots=True)
class Reference:
    """Bytes of one or more batches, one after the other, that were synced in a segment."""

    path: str  # of the segment
    stream_created: int
    salt: int  # of the segment
    start: int  # offset of the first byte ...
    end: int  # ... and behind the last one
    last_seq: int  # the last sequence that is durable with them
    # Of the last record, which ends a batch and is never erased; each record before has its own.
    checksum: int

    @property
    def base(self) -> int:
        """The first sequence of the segment, which is its name."""
        return int(self.path.rpartition("/")[2].removesuffix(".seg"))

    def take_in(self, later: "Reference") -> bool:
        """Cover what `later` does, too; False if it does not follow."""
        if later.start != self.end or later.path != self.path or later.salt != self.salt:
            return False
        self.end, self.last_seq, self.checksum = later.end, later.last_seq, later.checksum
        return True

    def encode(self) -> bytes:
        """The content of a record of the commit log."""
        return _REFERENCE.pack(self.salt, self.start, self.end, self.last_seq, self.checksum)

    @staticmethod
    def decode(path: str, stream_created: int, content: bytes) -> "Reference":
        """The reverse. Raises `StorageError`."""
        try:
            found = Reference(path, stream_created, *_REFERENCE.unpack(content))
            found.base  # noqa: B018
            return found
        except (struct.error, ValueError) as error:
            raise StorageError(f"the commit log has half an entry about {path}") from error


class SegmentCopy:
    """What the commit log has of the segment that is written to (a `commit_log.Kept`)."""

    def __init__(self, log: "FileLog", segment: "Segment") -> None:
        assert segment.file is not None
        self.path: str = segment.path
        self.stream_created: int = log.stream_created
        self.retired = False
        self.written = 0
        self._log = log
        self.file: File = segment.file
        self.salt: int = segment.salt
        # What the commit log's records about it begin with, from the first copy on: what stands
        # before a record's size, and behind it.
        self.before_size = b""
        self.behind_size = b""
        self.head_size = 0  # of these, with the size and an offset
        self.round = 0  # of what the next checkpoint applies, in which it stands
        # Offsets and bytes that may not be in the segment durably.
        self._contents: list[tuple[int, bytes]] = []
        self._taken = 0  # of these, how many were applied and are not known to be durable
        self._rewritten = False  # whether they were written again for that
        self._flushing = 0  # how many are being handed to the system beside those of others ...
        self._flushed: int | None = None  # ... and have been
        self._flush_error: OSError | None = None

    def took(self, content: tuple[int, bytes]) -> None:
        """The segment's file was given bytes, at an offset, of which the commit log has copies, or
        is about to have them."""
        self._contents.append(content)

    def hand_over(self) -> None:
        """Have the segment's file be given all that there is for it."""
        if not self.retired:
            self._log.hand_over()

    def retire(self) -> None:
        """The segment is synced, and about to be removed."""
        self.retired = True
        self._contents.clear()

    def begin_flush(self) -> None:
        """What was appended so far is about to be handed to the system, by who says `flushed`."""
        self._flushing = len(self._contents)

    def flushed(self, error: OSError | None) -> None:
        """That has happened, or gone wrong."""
        self._flushed, self._flush_error = self._flushing, error

    def _flush(self) -> int:
        """Have the system have what was appended; how many contents that are. Raises OSError."""
        count, self._flushed = self._flushed, None
        error, self._flush_error = self._flush_error, None
        if error is not None:
            raise error
        if count is None:
            count = len(self._contents)
            self.file.flush()
        return count

    def apply(self, _content: bytes, touched: Touched) -> None:
        """Have the segment's file hold what was appended. Blocks; raises OSError,
        `StorageError`."""
        # After a sync that failed the system may have dropped what it was given, and say no more.
        self._rewritten = self._log.failed != ""
        if self._rewritten:
            count = len(self._contents)
            head = CONTENT_HEAD.pack
            contents = [head(self.salt, at) + data for at, data in self._contents[:count]]
            self._log.write_again(self.path, contents)
        else:
            try:
                count = self._flush()
            except OSError as error:
                self.forgotten(error)
                raise
        self._taken = count
        touched.files[self.path] = None

    def applied(self) -> bool:
        """What was applied last has been synced. If the log has failed meanwhile, its sync may have
        taken the error that this one did not get to see."""
        if self.retired:
            return True
        if self._log.failed and not self._rewritten:
            return False
        del self._contents[: self._taken]
        self._taken = 0
        return True

    def forgotten(self, error: Exception) -> None:
        """What was applied last could not be written or synced. That is final for the log, as is
        any sync that fails: what it appended since may have gone with it."""
        self.written = 0
        if is_final(error):
            self._log.sync_failed(error)


class EntryCopies:
    """Copies of what was appended to segments, for the next entry of the commit log.

    There may be a thousand in each entry: they are encoded as its records when they come, and the
    log is asked for room in no more than a few steps.
    """

    def __init__(self, root: str, make_room: Callable[[int], bool]) -> None:
        self.size = 0  # bytes of them
        self.room = 0  # bytes that they may have for sure
        self.lacks_room = False  # there was none for the last one that was asked for
        self.segments: list[SegmentCopy] = []  # of which they are
        self.records = OutBuffer()
        self._root = root  # before the paths that the log has
        self._make_room = make_room  # sees to so many bytes more, and says whether it could

    def has_room(self, segment: SegmentCopy, size: int) -> bool:
        """Whether the next entry may have so many bytes of a segment."""
        if not segment.head_size:
            self._begin(segment)
        size += segment.head_size
        has_room = self.size + size <= self.room or self._make_room(size)
        self.lacks_room = not has_room
        return has_room

    def put(self, segment: SegmentCopy, at: _int, data: bytes, out: OutBuffer, start: _int) -> None:
        """Have the entry have bytes of a segment, which begin at offset `at` in it: `data`, and
        what `out` has from its offset `start` on. There is room."""
        before = self.records.size
        records = self.records
        records.put(segment.before_size)
        records.put_number(_HEAD_SIZE + len(data) + out.size - start, _SIZE_BYTES)
        records.put(segment.behind_size)
        records.put_number(at, _OFFSET_BYTES)
        if data:
            records.put(data)
        records.put_rest(out, start)
        self.segments.append(segment)
        self.size += records.size - before

    def _begin(self, segment: SegmentCopy) -> None:
        """A segment has its first copy."""
        name = name_of(segment.path.removeprefix(self._root))
        out = OutBuffer()
        put_head(out, WRITE, segment.stream_created, name, 0)
        out.put_number(segment.salt, _SALT_BYTES)
        head = out.take()
        size_at = RECORD_SIZE - _SIZE_BYTES
        segment.before_size = head[:size_at]
        segment.behind_size = head[RECORD_SIZE:]
        segment.head_size = len(head) + _OFFSET_BYTES

    def take(self) -> tuple[list[SegmentCopy], bytes]:
        """Of which segments there are copies, and their records, of `size` bytes; there are none
        after that."""
        segments, self.segments = self.segments, []
        self.size = self.room = 0
        return segments, self.records.take()

    def clear(self) -> None:
        """Have none of them."""
        self.segments = []
        self.records.clear()
        self.size = self.room = 0


def first_of_round(segments: list[SegmentCopy], coming: int) -> list[SegmentCopy]:
    """Those of `segments` that do not stand in the round `coming` yet; now they do."""
    first = []
    for segment in segments:
        if segment.round != coming:
            segment.round = coming
            first.append(segment)
    return first
