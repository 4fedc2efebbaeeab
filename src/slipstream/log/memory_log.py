"""A log in memory, for streams with memory storage: durable as far as it ever gets, at once."""

from typing import Any

from slipstream.log.base import Block, Log
from slipstream.log.columns import GONE
from slipstream.log.durability import SyncBatch
from slipstream.log.record import MESSAGE, Record

_int = int  # the name `int` in a compiled module's annotations is a C type

# A block is dropped when its last message goes, so small blocks give memory back early.
BLOCK_MESSAGES: _int = 4096


class MemoryBlock(Block):
    """A block whose messages lie beside its ids: (header and body, header size, time, subject)."""

    def __init__(self, base: _int) -> None:
        super().__init__(base)
        self.parts: list[Any] = []


class MemoryLog(Log):
    """Messages in memory; see `Log`."""

    def size_of(self, subject_size: _int, header_size: _int, body_size: _int) -> _int:
        return subject_size + header_size + body_size + 16

    def append(
        self,
        subject: bytes,
        data: bytes,
        header_start: _int,
        body_start: _int,
        end: _int,
        ts: _int,
    ) -> _int:
        block = self._active()
        id = self.subjects.intern(subject)
        seq = self.last_seq + 1
        self.subjects.added(id, seq)
        assert block.ids is not None
        block.ids.append(id)
        block.parts.append((data[header_start:end], body_start - header_start, ts, subject))
        size = len(subject) + end - header_start + 16
        block.live += 1
        block.bytes += size
        block.last_ts = ts
        self.messages += 1
        self.bytes += size
        self.appended_size = size
        if self.messages == 1:
            self.first_seq = seq
            self.note_first_ts(ts)
        self.last_seq = seq
        self.last_ts = ts
        self.durable_seq = seq
        return seq

    def skip(self, ts: _int) -> _int:
        block = self._active()
        assert block.ids is not None
        block.ids.append(GONE)
        block.parts.append(None)
        self.last_seq += 1
        self.last_ts = ts
        self.durable_seq = self.last_seq
        if self.messages == 0:
            self.first_seq = self.last_seq + 1
        return self.last_seq

    def advance(self, last_seq: _int) -> None:
        self.last_seq = max(self.last_seq, last_seq)
        self.durable_seq = self.last_seq
        if self.messages == 0:
            self.first_seq = self.last_seq + 1
        self.blocks.append(MemoryBlock(self.last_seq + 1))

    def _active(self) -> MemoryBlock:
        """The block that the next sequence goes to."""
        if self.blocks:
            block: MemoryBlock = self.blocks[-1]
            if self._ids(block).size < BLOCK_MESSAGES:
                return block
            if block.live == 0:
                self.blocks.pop()
                self._found = None
        fresh = MemoryBlock(self.last_seq + 1)
        self.blocks.append(fresh)
        return fresh

    def prepare_sync(self, instead_of: SyncBatch | None = None) -> SyncBatch | None:
        return None

    def finish_sync(self, batch: SyncBatch) -> None:
        raise AssertionError("a memory log has nothing to sync")

    def close(self) -> None:
        """Nothing to release."""

    def delete(self) -> None:
        self.blocks.clear()

    def _fill(self, block: Any, i: _int, record: Record) -> None:
        memory = block
        part = memory.parts[i]
        data = part[0]
        record.seq = block.base + i
        record.data = data
        record.header_start = 0
        record.body_start = part[1]
        record.end = len(data)
        record.ts = part[2]
        record.subject = part[3]
        record.kind = MESSAGE

    def _forgotten(self, block: Any, i: _int, erase: bool) -> None:
        memory = block
        memory.parts[i] = None

    def _forgotten_run(self, block: Block, i: _int, count: _int, is_front: bool) -> None:
        assert isinstance(block, MemoryBlock)
        block.parts[i : i + count] = [None] * count
