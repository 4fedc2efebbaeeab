"""What a message log promises, whatever stores it.

A log keeps messages by sequence. It knows subjects, sizes and times, and nothing about consumers,
accounts or who may publish. `FileLog` keeps them in segment files, `MemoryLog` in memory.

Appending never touches the disk: it puts the record into a buffer. Making it durable takes three
steps, so that whoever owns the event loop decides where the blocking one runs:

1. ``batch = log.prepare_sync()``  on the loop: hands the buffer to the operating system (`write`),
2. ``batch.run()``                 on the loop or on any thread: the fdatasync,
3. ``log.finish_sync(batch)``      on the loop: `durable_seq` moves, or the log has failed for good.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.log.record import Record
from slipstream.log.subject_index import SubjectIndex


@dataclass(slots=True)
class Lost:
    """Messages that damage has made unreadable."""

    sequences: list[int] = field(default_factory=list)
    bytes: int = 0


class SyncBatch(Protocol):
    """What one fdatasync has to cover."""

    last_seq: int
    error: OSError | None

    def run(self) -> None:
        """Block until the disk has it all. Never raises: a failure is kept in `error`."""


class Cursor:
    """Finds the messages that match some subject filters, in order of sequence.

    A cursor remembers which subjects match and where their next messages lie, so that stepping
    does not look at messages that do not match.
    """

    def next(self, seq: int, record: Record) -> bool:
        """Fill `record` with the first live matching message at or after `seq`, if there is one."""
        raise NotImplementedError


class Log:
    """Messages by sequence; see the module's text. Sequences start at 1 (or at `first_seq`)."""

    def __init__(self, first_seq: int = 1) -> None:
        self.first_seq = first_seq  # lowest live sequence; last_seq + 1 when the log is empty
        self.last_seq = first_seq - 1  # highest sequence ever given out; never goes down
        self.first_ts = 0  # nanoseconds since the epoch, of the first live message; 0 when empty
        self.last_ts = 0  # of the last sequence given out; 0 when never written
        self.messages = 0
        self.bytes = 0  # as clients expect it: the `size_of` of each live message, summed
        self.durable_seq = self.last_seq  # everything up to here survives a crash
        self.subjects = SubjectIndex()

    # -- writing -------------------------------------------------------------------------------

    def size_of(self, subject_size: int, header_size: int, body_size: int) -> int:
        """What a message of these sizes adds to `bytes` (spec store.md: file 30 [+4], memory 16)."""
        raise NotImplementedError

    def append(
        self, subject: bytes, data: bytes, header_start: int, body_start: int, end: int, ts: int
    ) -> int:
        """Store a message and return its sequence.

        Raises `DiskFullError` (nothing stored, no sequence used) or `StorageError` once failed.
        """
        raise NotImplementedError

    def skip(self, ts: int) -> int:
        """Use up a sequence without storing anything (interest retention, nobody interested)."""
        raise NotImplementedError

    def advance(self, last_seq: int) -> None:
        """Jump so that the next message gets ``last_seq + 1`` (a purge beyond the end)."""
        raise NotImplementedError

    def prepare_sync(self) -> SyncBatch | None:
        """Hand what is buffered to the operating system; None if there is nothing to sync."""
        raise NotImplementedError

    def finish_sync(self, batch: SyncBatch) -> None:
        """Take note that `batch` has run; raises `StorageError` if it failed: final for this log."""
        raise NotImplementedError

    # -- removing ------------------------------------------------------------------------------

    def remove(self, seq: int, erase: bool) -> bool:
        """Remove one message; `erase` also destroys its bytes on disk. False if it is not there."""
        raise NotImplementedError

    def drop_below(self, seq: int) -> int:
        """Remove every message below `seq`; the number removed. Cost: O(removed)."""
        raise NotImplementedError

    def purge(self, filters: tuple[bytes, ...], below: int, keep: int) -> int:
        """Remove messages that match `filters` (all when empty), below `below` (0: no bound),
        all but the newest `keep`; the number removed."""
        raise NotImplementedError

    # -- reading -------------------------------------------------------------------------------

    def read(self, seq: int, record: Record) -> bool:
        """Fill `record` with message `seq`; False if there is none (any more)."""
        raise NotImplementedError

    def next(self, seq: int, cursor: Cursor | None, record: Record) -> bool:
        """Fill `record` with the first live message at or after `seq` (matching `cursor`)."""
        raise NotImplementedError

    def cursor(self, filters: tuple[bytes, ...]) -> Cursor:
        """A cursor over the messages whose subject matches one of `filters`."""
        raise NotImplementedError

    def count(self, filters: tuple[bytes, ...], first_seq: int) -> int:
        """How many live messages at or after `first_seq` match `filters` (all when empty).

        Exact; costs O(matching subjects + segments), never O(messages).
        """
        raise NotImplementedError

    def first_of(self, subject: bytes) -> int:
        """The lowest live sequence on the literal `subject`; 0 if it has no message. O(1) amortised."""
        raise NotImplementedError

    def last_of(self, pattern: bytes, up_to: int = 0) -> int:
        """The highest live sequence that matches `pattern` (at most `up_to` unless 0); 0 if none."""
        raise NotImplementedError

    def last_per_subject(self, filters: tuple[bytes, ...], up_to: int = 0) -> list[int]:
        """The last sequence of each matching subject, ascending."""
        raise NotImplementedError

    def seq_at(self, ts: int) -> int:
        """The first live sequence stored at or after `ts` (ns); ``last_seq + 1`` if there is none."""
        raise NotImplementedError

    def deleted(self) -> Iterator[int]:
        """The sequences between first and last that hold no message, ascending."""
        raise NotImplementedError

    @property
    def num_deleted(self) -> int:
        """How many sequences between first and last hold no message."""
        return self.last_seq - self.first_seq + 1 - self.messages if self.messages else 0

    @property
    def lost(self) -> Lost:
        """What damage has taken; empty for a healthy log."""
        return Lost()

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable and release the files. Blocks."""
        raise NotImplementedError

    def delete(self) -> None:
        """Remove the log and everything it stored."""
        raise NotImplementedError
