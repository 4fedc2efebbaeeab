"""What a log has done ahead of time, on a thread: the next segment's file, and room in this one.

Opening a file and reserving room in it may take as long as a disk likes. So before a segment is
begun, a job makes its file under a name that nothing else has, ``<random>.spare``; a new stream has
one from the beginning. The batch that begins the segment gives it its name, before it syncs it. A
crash may leave a spare file; it holds nothing that anybody was answered for, and the next opening
removes it.
"""

from typing import TYPE_CHECKING

from slipstream.errors import StorageError
from slipstream.log.disk import Disk, File
from slipstream.log.segment import Segment

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog

SPARE = ".spare"  # how the names of such files end
FIRST_ROOM = 4096  # bytes in the file of a log's first segment: many logs never need more ...
FIRST_PART = 4  # ... or such a part of a small segment


def first_room(segment_bytes: int) -> int:
    """How many bytes the file of a log's first segment has room for."""
    return min(FIRST_ROOM, segment_bytes // FIRST_PART)


class SpareFile:
    """A file in `directory` for a segment that is to come, with room for `size` bytes."""

    def __init__(self, disk: Disk, directory: str, size: int) -> None:
        self.path = f"{directory}/{disk.random_bytes(8).hex()}{SPARE}"
        self.file: File | None = None  # once it is there
        self.reserved = 0
        self._disk = disk
        self._size = size

    def make(self) -> None:
        """Make it. Blocks. Never raises: without it the log opens a file when it needs one."""
        try:
            file = self._disk.open(self.path)
            try:
                self.reserved = file.reserve(self._size)
                self.file = file
            finally:
                if self.file is None:
                    file.close()
                    self._disk.remove(self.path)
        except (OSError, StorageError):
            pass

    def close(self) -> None:
        """Nobody needs it, and its directory goes or is looked through by the next opening."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def discard(self) -> None:
        """Nobody needs it. Blocks."""
        if self.file is not None:
            self.close()
            try:
                self._disk.remove(self.path)
            except OSError:
                pass  # the next opening does it


class SpareJob:
    """A job that makes the file of the next segment of `log`, with room for `size` bytes."""

    def __init__(self, log: "FileLog", size: int) -> None:
        self._log = log
        self._spare = SpareFile(log.disk, log.directory, size)

    def run(self) -> None:
        """Make it, unless the log has ended meanwhile: another stream may have the directory's name
        then. Never raises."""
        if self._log.looks_ahead and not self._log.failed:
            self._spare.make()

    def finish(self) -> None:
        """Have the log use it."""
        if self._log.spare_made(self._spare):
            return
        if self._log.failed:  # its directory may be gone
            self._spare.close()
        else:
            self._spare.discard()


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
