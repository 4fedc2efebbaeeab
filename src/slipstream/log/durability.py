"""What a log asks of the disk, as work that its owner runs where it likes; what damage took."""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from slipstream.log.disk import Disk, File

if TYPE_CHECKING:
    from slipstream.log.counts import Counts
    from slipstream.log.segment import Segment
    from slipstream.log.segment_bytes import Reference

LISTED_MAX = 10_000  # of lost sequences, named one by one

Done = Callable[[Exception | None], None]  # called once something is durable, or why it cannot be


@dataclass
class Lost:
    """Messages that damage has made unreadable; `bytes` were damaged."""

    ranges: list[tuple[int, int]] = field(default_factory=list)  # first and last sequence
    bytes: int = 0
    torn: list[tuple[int, int]] = field(default_factory=list)  # by a crash: nobody misses these

    def add(self, first: int, last: int, size: int) -> None:
        """Count the sequences from `first` to `last`, in `size` damaged bytes."""
        self.ranges.append((first, last))
        self.bytes += size

    @property
    def count(self) -> int:
        """How many messages."""
        return sum(last - first + 1 for first, last in self._distinct())

    def _distinct(self) -> Iterator[tuple[int, int]]:
        """The ranges, ascending, without what two of them have in common."""
        end = 0
        for first, last in sorted(self.ranges):
            if last > end:
                yield max(first, end + 1), last
                end = last

    @property
    def sequences(self) -> list[int]:
        """The first `LISTED_MAX` of them, ascending."""
        found: list[int] = []
        for first, last in self._distinct():
            found.extend(range(first, min(last + 1, first + LISTED_MAX - len(found))))
        return found


def is_final(error: Exception) -> bool:
    """Whether a write or sync may have lost something. Without descriptors or memory it was not
    begun."""
    if isinstance(error, MemoryError):
        return False
    return not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE))


def call_all(callbacks: Iterable[Done], error: Exception | None) -> None:
    """Call each, also if one of them raises; the first exception follows then."""
    raised: Exception | None = None
    for callback in callbacks:
        try:
            callback(error)
        except Exception as one:
            raised = raised or one
    if raised is not None:
        raise raised


class Touched:
    """Files that were written to, and directories in which names have changed, to be synced."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.directories: dict[str, None] = {}

    def sync(self, disk: Disk) -> None:
        """Make all of it durable. Blocks; raises OSError."""
        disk.sync_all(list(self.files), list(self.directories))


class Job(Protocol):
    """Work off the hot path, such as a finished segment's index: `run` blocks, on any thread."""

    def run(self) -> None:
        """Do the blocking part. Never raises."""

    def finish(self) -> None:
        """Take over the result, on the loop."""


class SyncBatch:
    """The files that one group commit has to sync, oldest first, and what may follow that."""

    def __init__(
        self,
        disk: Disk,
        files: list[File],
        directories: Sequence[str],
        last_seq: int,
        error: Exception | None = None,
    ) -> None:
        self.last_seq = last_seq  # durable with it, as are those below
        self.error = error  # why it is not
        # Durable with it, too: a position, a segment's base and an offset in it.
        self.end_base = self.end_at = 0
        # The batch records that all up to here was durable before it.
        self.proves_base = self.proves_at = 0
        self.first_seq = 0  # what lies below was removed durably then
        self.counts: Counts | None = None  # what the log holds then
        # Most batches have nothing but segments: what is empty is one tuple for all of them.
        self.segments: Sequence[Segment] = ()  # pinned until it is finished
        self.emptied: Sequence[Segment] = ()  # their files go then
        self.unlinked: Sequence[str] = ()  # files that were removed, durably then
        self.jobs: Sequence[Job] = ()  # they may begin then
        self.references: Sequence[Reference] = ()  # to what it has put into segments
        self._disk = disk
        self._files = files
        self._directories = directories  # in which something was created or removed
        self.names: Sequence[tuple[File, str]] = ()  # that files are given before they are synced

    def take_over(self, earlier: "SyncBatch") -> None:
        """Do all that an earlier batch was to do, which is not run any more."""
        self._files = list(dict.fromkeys([*earlier._files, *self._files]))
        self._directories = list(dict.fromkeys([*earlier._directories, *self._directories]))
        self.names = [*earlier.names, *self.names]
        self.segments = [*earlier.segments, *self.segments]
        self.emptied = [*earlier.emptied, *self.emptied]
        self.unlinked = [*earlier.unlinked, *self.unlinked]
        self.jobs = [*earlier.jobs, *self.jobs]
        self.references = [*earlier.references, *self.references]

    def give_names(self) -> None:
        """Have files their names; once more does no harm. Blocks; raises OSError."""
        for file, path in self.names:
            file.rename(path)

    def flush(self) -> None:
        """Hand it to the operating system: then it survives the end of the process. Blocks."""
        try:
            self.give_names()
            for file in self._files:
                file.flush()
        except OSError as error:
            self.error = error

    def run(self) -> None:
        """Block until the disk has it all. Never raises: a failure is kept in `error`."""
        try:
            self.give_names()
            for file in self._files:
                file.sync()
            for directory in self._directories:
                self._disk.sync_dir(directory)
        except OSError as error:
            self.error = error
