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


class Bytes:
    """A file that was read as a whole, for what reads files."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        return self.data[offset : offset + size]

    def size(self) -> int:
        """How many there are."""
        return len(self.data)


class _EverySubject:
    """An index of subjects that knows each one."""

    def find(self, _subject: bytes) -> int:
        """The number of the one subject."""
        return 0


@dataclass
class Block:
    """Messages in the memory of one block: a segment's bytes with its columns, or `parts`."""

    base: int
    first_seq: int  # what lies below is gone
    data: bytes = b""
    salt: int = 0
    ids: Column | None = None
    offsets: Column | None = None
    parts: list[Any] | None = None  # of a log in memory


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
        self._memory: list[tuple[int, list[Any]]] = []
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
            self._memory = [(block.base, list(block.parts)) for block in blocks if block.live]

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._parts) or len(self._memory)

    def block(self, i: int) -> Block:
        """Block number `i`. Blocks; any thread. Raises OSError, `StorageError`."""
        if self._memory:
            base, parts = self._memory[i]
            return Block(base, self.first_seq, parts=parts)
        part = self._parts[i]
        segment = part.segment
        if part.file is not None:
            part.file.flush()
        if not self._disk.exists(segment.path):
            raise StorageError(f"{segment.path} is gone")
        data = self._disk.read(segment.path)
        ids, offsets = self._columns(part, data)
        if part.dead is not None:
            ids.bury(part.dead)
        return Block(segment.base, self.first_seq, data, segment.salt, ids, offsets)

    def _columns(self, part: _Part, data: bytes) -> tuple[Column, Column]:
        if part.ids is not None and part.offsets is not None:
            return Column.unpack(part.ids, 4), part.offsets
        segment = part.segment
        file: Any = Bytes(data)
        try:
            return read_columns(file, read_footer(file, segment), None)
        except CorruptionError:
            every: Any = _EverySubject()
            return scan_columns(data[: segment.records_end], segment, every)

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
