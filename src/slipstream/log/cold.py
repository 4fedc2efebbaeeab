"""Reads that have to wait for the disk, for those who can go on later.

`Log.next_near` and `read_near` read what is in memory, also in that of the system. Where the disk
would have to be asked they raise a `ColdError`. A `FetchJob` then reads it on a thread, and the
caller asks again.
"""

from collections.abc import Callable
from typing import Protocol

from slipstream.log.disk import File

# Reads that are remembered to have happened, until they are found in memory: at least so many, and
# more for each who waits, who needs about six of them at once if the system keeps nothing.
FETCHED_MAX = 4096
FETCHED_EACH = 16

Span = tuple[str, int, int]  # path, offset and size of a read


class Fetched(Protocol):
    """Where it is remembered which reads have happened."""

    fetched: dict[Span, None]
    awaited: int  # reads that are under way for those who wait


class ColdError(Exception):
    """What is asked for has to be read from the disk before."""

    def __init__(self, reader: Fetched, file: File, span: Span, base: int) -> None:
        super().__init__(f"{span[2]} bytes of {span[0]} at {span[1]} are on the disk alone")
        self.reader = reader
        self.file = file
        self.span = span
        self.base = base  # the first sequence of the segment


class NearFile:
    """What is in memory of the `file` of the segment that begins with `base`, and what was fetched;
    see `slipstream.log.disk.File`."""

    def __init__(self, reader: Fetched, file: File, path: str, base: int) -> None:
        self._reader = reader
        self._file = file
        self._path = path
        self._base = base

    def pread(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`. Raises OSError, `ColdError`."""
        data = self._file.pread_near(offset, size)
        fetched = self._reader.fetched
        span = (self._path, offset, size)
        if data is not None:
            fetched.pop(span, None)  # once it leaves memory, it is fetched again
            return data
        if span in fetched:  # it did not stay in memory: it is waited for
            return self._file.pread(offset, size)
        raise ColdError(self._reader, self._file, span, self._base)

    def size(self) -> int:
        """Where the file ends."""
        return self._file.size()


class FetchJob:
    """Has the system read what `cold` says; then `done` may ask again."""

    def __init__(self, cold: ColdError, done: Callable[[], None]) -> None:
        self._cold = cold
        self._done = done
        cold.reader.awaited += 1

    def run(self) -> None:
        """Read it. Never raises: what the disk answers, the one who asks again finds out."""
        _, offset, size = self._cold.span
        try:
            self._cold.file.pread(offset, size)
        except Exception:  # such as of a file that was closed meanwhile; who asks waits for this
            pass

    def finish(self) -> None:
        """Note that it was read, and go on."""
        reader = self._cold.reader
        fetched = reader.fetched
        room = max(FETCHED_MAX, FETCHED_EACH * reader.awaited)
        reader.awaited -= 1
        fetched.pop(self._cold.span, None)  # it counts as the latest again
        while len(fetched) >= room:
            del fetched[next(iter(fetched))]
        fetched[self._cold.span] = None
        self._done()
