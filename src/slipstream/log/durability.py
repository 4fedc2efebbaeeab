"""What a log asks of the disk, as work that its owner runs where it likes; what damage took."""

from dataclasses import dataclass, field
from typing import Protocol

from slipstream.log.disk import Disk, File


@dataclass
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


class Job(Protocol):
    """Work off the hot path, such as a finished segment's index: `run` blocks, on any thread."""

    def run(self) -> None:
        """Do the blocking part. Never raises."""

    def finish(self) -> None:
        """Take over the result, on the loop."""


class FileSyncBatch:
    """The files that one group commit has to sync, oldest first."""

    def __init__(self, disk: Disk, files: list[File], directory: str, last_seq: int) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory  # "" when nothing in it was created or removed
        self.last_seq = last_seq
        self.error: OSError | None = None

    def run(self) -> None:
        """fdatasync each file, then the directory if need be."""
        try:
            for file in self._files:
                file.sync()
            if self._directory:
                self._disk.sync_dir(self._directory)
        except OSError as error:
            self.error = error
