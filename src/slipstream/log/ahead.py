"""What a log has done ahead of time, on a thread: the next segment's file, and room in this one.

Opening a file and reserving room in it may take as long as a disk likes. So before a segment is
full, a job makes the file of the next one under a name that nothing else has, ``<random>.spare``.
The batch that begins the segment gives it its name, before it syncs it. A crash may leave a spare
file; it holds nothing that anybody was answered for, and the next opening removes it.
"""

from typing import TYPE_CHECKING

from slipstream.errors import StorageError
from slipstream.log.disk import File
from slipstream.log.segment import Segment

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog

SPARE = ".spare"  # how the names of such files end


class SpareFile:
    """A job that makes the file of the next segment, with room for `size` bytes."""

    def __init__(self, log: "FileLog", size: int) -> None:
        self.path = f"{log.directory}/{log.disk.random_bytes(8).hex()}{SPARE}"
        self.file: File | None = None  # once it is there
        self.reserved = 0
        self._log = log
        self._size = size

    def run(self) -> None:
        """Make it, unless the log has ended meanwhile. Never raises: without it the log opens a
        file when it needs one."""
        log = self._log
        log.applying.begin(self.path)
        try:
            if log.looks_ahead and not log.failed:
                file = log.disk.open(self.path)
                try:
                    self.reserved = file.reserve(self._size)
                    self.file = file
                finally:
                    if self.file is None:
                        file.close()
                        log.disk.remove(self.path)
        except (OSError, StorageError):
            pass
        finally:
            log.applying.end()

    def finish(self) -> None:
        """Have the log use it."""
        if not self._log.take_spare(self):
            self.discard()

    def discard(self) -> None:
        """Nobody needs it. Blocks."""
        if self.file is not None:
            self.file.close()
            self.file = None
            try:
                self._log.disk.remove(self.path)
            except OSError:
                pass  # the next opening does it


class RoomAhead:
    """A job that reserves more room in the segment that is written to."""

    def __init__(self, log: "FileLog", segment: Segment, size: int) -> None:
        assert segment.file is not None
        self.segment = segment
        self.reserved = 0
        self._log = log
        self._file: File = segment.file
        self._size = size
        segment.pin()

    def run(self) -> None:
        """Reserve it. Never raises: without it the log asks again when it needs more."""
        try:
            self.reserved = self._file.reserve_ahead(self._size)
        except (OSError, StorageError):
            pass

    def finish(self) -> None:
        """Have the log use it."""
        self.segment.unpin()
        self._log.take_room(self)
