"""The messages of a log as entries of an archive, and back."""

from slipstream.archive.entries import EntryReader, may_be_subject, put_entry
from slipstream.errors import CorruptionError
from slipstream.log.base import Log
from slipstream.log.columns import Column
from slipstream.log.frozen import Block
from slipstream.log.packing import unpack
from slipstream.log.record import ERASED, MESSAGE, Record, decode
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.wire.buffer import OutBuffer

_int = int  # the name `int` in a compiled module's annotations is a C type

SKIPPED_ONE_BY_ONE_MAX: _int = 4096  # missing sequences; more of them are left out at once


class DamagedMessageError(CorruptionError):
    """Message `seq` cannot be read."""

    def __init__(self, seq: _int) -> None:
        super().__init__(f"message {seq} is damaged")
        self.seq = seq


class MessageWriter:
    """Writes a run of messages of one block, those at the places from `start` to `stop`. Making one
    blocks; raises OSError, `StorageError`."""

    def __init__(self, block: Block, start: _int, stop: _int) -> None:
        self._base = block.base
        self._salt = block.salt
        self._ids = block.ids or Column()
        self._offsets = block.offsets or Column()
        self._parts = block.parts
        self._record = Record()
        self._place = start
        self._stop = stop
        self._data = b""
        self._at = 0  # where `_data` begins in the file
        if block.parts is None:
            self._data, self._at = block.read(start, stop)

    def write(self, out: OutBuffer, bytes_max: _int) -> bool:
        """Append entries until `out` has `bytes_max` bytes; False once there are no more.
        Raises `DamagedMessageError`."""
        if self._parts is not None:
            return self._write_parts(out, bytes_max)
        ids = self._ids
        offsets = self._offsets
        record = self._record
        i = ids.next_used(self._place)
        while 0 <= i < self._stop:
            if out.size >= bytes_max:
                self._place = i
                return True
            at = offsets.get(i)
            end = decode(self._data, at - self._at, self._salt, self._base, record)
            if not end or record.seq != self._base + i:
                raise DamagedMessageError(self._base + i)
            if record.kind == MESSAGE:
                if record.packed:
                    unpack(record)
                put_entry(
                    out,
                    record.subject,
                    record.ts,
                    record.seq,
                    record.data,
                    record.header_start,
                    record.body_start,
                    record.end,
                )
            elif record.kind != ERASED:  # destroyed on purpose, meanwhile
                raise DamagedMessageError(self._base + i)
            i = ids.next_used(i + 1)
        return False

    def _write_parts(self, out: OutBuffer, bytes_max: _int) -> bool:
        """Append entries of a log in memory, as `write` does."""
        assert self._parts is not None
        while self._place < self._stop:
            if out.size >= bytes_max:
                return True
            part = self._parts[self._place]
            if part is not None:
                data, header_size, ts, subject = part
                seq = self._base + self._place
                put_entry(out, subject, ts, seq, data, 0, header_size, len(data))
            self._place += 1
        return False


def store_messages(entries: EntryReader, record: Record, log: Log) -> bool:
    """Append the messages that come next among `entries`, with their sequences; False when more of
    the archive has to come, True when `record` is an entry that is no message. Raises
    `StorageError`, also for what cannot be a message of an archive."""
    while entries.next(record):
        if record.seq == 0:
            return True
        if record.seq <= log.last_seq or record.seq > SEQUENCE_MAX:
            raise CorruptionError(f"the archive has message {record.seq} out of order")
        if record.ts < 0 or not may_be_subject(record.subject):
            raise CorruptionError(f"message {record.seq} of the archive has no valid subject")
        if record.seq != log.last_seq + 1:
            skip_to(log, record.seq - 1, record.ts)
        log.append(
            record.subject,
            record.data,
            record.header_start,
            record.body_start,
            record.end,
            record.ts,
        )
    return False


def skip_to(log: Log, seq: _int, ts: _int) -> None:
    """There are no more messages up to `seq`. Raises `StorageError`."""
    gap = seq - log.last_seq
    if gap > 0 and (log.messages == 0 or gap > SKIPPED_ONE_BY_ONE_MAX):
        log.advance(seq)
    else:
        for _ in range(gap):
            log.skip(ts)
