"""What a log asks of the disk, as work that its owner runs where it likes; what damage took."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.log.disk import Disk, File

LISTED_MAX = 10_000  # of lost sequences, named one by one


@dataclass
class Lost:
    """Messages that damage has made unreadable; `bytes` were damaged."""

    ranges: list[tuple[int, int]] = field(default_factory=list)  # first and last sequence
    bytes: int = 0

    def add(self, first: int, last: int, size: int) -> None:
        """These, too."""
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


class SyncBatch(Protocol):
    """What one fdatasync has to cover."""

    last_seq: int
    error: OSError | None

    def flush(self) -> None:
        """Hand it to the operating system: then it survives the end of the process. Blocks."""

    def run(self) -> None:
        """Block until the disk has it all. Never raises: a failure is kept in `error`."""


class Job(Protocol):
    """Work off the hot path, such as a finished segment's index: `run` blocks, on any thread."""

    def run(self) -> None:
        """Do the blocking part. Never raises."""

    def finish(self) -> None:
        """Take over the result, on the loop."""


class FailedBatch:
    """Stands for a batch that could not even be written."""

    def __init__(self, last_seq: int, why: str) -> None:
        self.last_seq = last_seq
        self.error: OSError | None = OSError(why)

    def flush(self) -> None:
        """There is nothing to do."""

    def run(self) -> None:
        """There is nothing to do."""


class FileSyncBatch:
    """The files that one group commit has to sync, oldest first."""

    def __init__(self, disk: Disk, files: list[File], directory: str, last_seq: int) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory  # "" when nothing in it was created or removed
        self.last_seq = last_seq
        self.error: OSError | None = None

    def flush(self) -> None:
        """Hand what was written to the operating system, without waiting for the disk."""
        try:
            for file in self._files:
                file.flush()
        except OSError as error:
            self.error = error

    def run(self) -> None:
        """fdatasync each file, then the directory if need be."""
        try:
            for file in self._files:
                file.sync()
            if self._directory:
                self._disk.sync_dir(self._directory)
        except OSError as error:
            self.error = error
