"""What a log holds at one moment, to be read later on another thread while the log goes on.

Nothing is copied but the columns in memory. All messages lie in closed segments, because a new one
is begun; the log keeps their files, whatever is removed or compacted meanwhile, until the last
reader has called `release`. A message that is erased on purpose is not read any more.
"""

from dataclasses import dataclass
from typing import Any

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.base import Log
from slipstream.log.columns import Column
from slipstream.log.disk import Disk, File
from slipstream.log.file_log import FileLog
from slipstream.log.memory_log import MemoryBlock
from slipstream.log.record import Record
from slipstream.log.segment import Segment, read_columns, read_footer, scan_columns


class _EverySubject:
    """An index of subjects that knows each one."""

    def find(self, _subject: bytes) -> int:
        """The number of the one subject."""
        return 0


@dataclass
class Block:
    """Messages in the memory of one block: the columns of a segment in a file, or `parts`."""

    base: int
    first_seq: int  # what lies below is gone
    salt: int = 0
    ids: Column | None = None
    offsets: Column | None = None
    end: int = 0  # of the records, in the file
    path: str = ""
    disk: Disk | None = None
    parts: list[Any] | None = None  # of a log in memory
    size: int = 0  # ... bytes of all of them

    def next_run(self, place: int, size: int) -> tuple[int, int, int]:
        """The messages from `place` on, in about `size` bytes: the place of the first one, the
        place where they end, and how many bytes they take. (0, 0, 0) if there are none."""
        place = max(place, self.first_seq - self.base)
        if self.parts is not None:
            return self._run_of_parts(place, size)
        assert self.ids is not None
        assert self.offsets is not None
        place = self.ids.next_used(place)
        if place < 0:
            return 0, 0, 0
        start = self._offset(place)
        low, high = place + 1, self.ids.size
        while low < high:  # the last place up to which the records do not take more
            middle = (low + high + 1) // 2
            if self._offset(middle) - start <= size:
                low = middle
            else:
                high = middle - 1
        return place, low, max(self._offset(low) - start, 0)

    def _run_of_parts(self, place: int, size: int) -> tuple[int, int, int]:
        assert self.parts is not None
        count = len(self.parts)
        if place >= count:
            return 0, 0, 0
        each = max(self.size // count, 1)
        stop = min(place + max(size // each, 1), count)
        return place, stop, (stop - place) * each

    def _offset(self, place: int) -> int:
        assert self.offsets is not None
        return self.offsets.get(place) if place < self.offsets.size else self.end

    def read(self, place: int, stop: int) -> tuple[bytes, int]:
        """The bytes of a run of messages, and where they begin in the file. What the page cache
        does not have comes from the device, and does not stay there. Blocks; any thread. Raises
        OSError, `StorageError`."""
        assert self.disk is not None
        at = self._offset(place)
        size = max(self._offset(stop) - at, 0)
        if not self.disk.exists(self.path):
            raise StorageError(f"{self.path} is gone")
        file = self.disk.open(self.path)
        try:
            data = file.pread_near(at, size)
            return (file.pread_stored(at, size) if data is None else data), at
        finally:
            file.close()


@dataclass
class _Part:
    """What is needed to find the live messages of a segment."""

    segment: Segment  # a copy; of the log's own only what does not change
    ids: bytes | None  # packed
    offsets: Column | None
    dead: bytearray | None
    file: File | None  # open, and perhaps with something to write


class FrozenLog:
    """The messages of `log` up to its last one, in blocks; made on the loop."""

    def __init__(self, log: Log) -> None:
        self.first_seq = log.first_seq
        self.last_seq = log.last_seq
        self._log = log
        self._is_held = False
        self._memory: list[tuple[int, list[Any], int]] = []
        self._parts: list[_Part] = []
        if isinstance(log, FileLog):
            log.cut()
            log.name_at_once()
            log.reader.held += 1
            self._is_held = True
            self._disk: Disk = log.disk
            self._parts = [_part(block) for block in log.blocks if block.live]
        else:
            blocks: list[MemoryBlock] = log.blocks
            self._memory = [
                (block.base, list(block.parts), block.bytes) for block in blocks if block.live
            ]

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._parts) or len(self._memory)

    def block(self, i: int) -> Block:
        """Block number `i`. Blocks; any thread. Raises OSError, `StorageError`."""
        if self._memory:
            base, parts, size = self._memory[i]
            return Block(base, self.first_seq, parts=parts, size=size)
        part = self._parts[i]
        segment = part.segment
        if part.file is not None:
            part.file.flush()
        self._disk.settle()
        if not self._disk.exists(segment.path):
            raise StorageError(f"{segment.path} is gone")
        ids, offsets = self._columns(part)
        if part.dead is not None:
            ids.bury(part.dead)
        return Block(
            segment.base,
            self.first_seq,
            segment.salt,
            ids,
            offsets,
            segment.records_end,
            segment.path,
            self._disk,
        )

    def _columns(self, part: _Part) -> tuple[Column, Column]:
        if part.ids is not None and part.offsets is not None:
            return Column.unpack(part.ids, 4), part.offsets
        segment = part.segment
        file = self._disk.open(segment.path)
        try:
            return read_columns(file, read_footer(file, segment), None)
        except CorruptionError:
            every: Any = _EverySubject()
            return scan_columns(file.pread(0, segment.records_end), segment, every)
        finally:
            file.close()

    def release(self) -> None:
        """End the reading of the copy. On the loop; a second call does no harm."""
        if self._is_held and isinstance(self._log, FileLog):
            self._is_held = False
            self._log.release()
        self._parts = []
        self._memory = []


def _part(segment: Segment) -> _Part:
    copy = Segment(segment.base, segment.path)
    copy.format = segment.format
    copy.salt = segment.salt
    copy.records_end = segment.records_end
    copy.places = segment.places
    copy.removed_ranges = bytearray(segment.removed_ranges)
    if segment.ids is not None:
        return _Part(copy, segment.ids.pack(4), segment.offsets, None, segment.file)
    dead = bytearray(segment.dead) if segment.dead is not None else None
    return _Part(copy, None, None, dead, None)


def find_damage(log: Log, seq: int) -> None:
    """Message `seq` cannot be read from its file: have the log see that, and count it as lost."""
    if isinstance(log, FileLog):
        for segment in [one for one in log.blocks if one.base <= seq][-1:]:
            log.reader.changed(segment)  # what is kept of it in memory may be well
    log.read(seq, Record())
