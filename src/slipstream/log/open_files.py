"""How many files a disk keeps open at once.

A server may have tens of thousands of streams, and each wants a file to write to. Only those that
are busy keep descriptors; the least recently used one gives its own up for another, and opens them
again when it has something to do. Where other things, such as connections, have taken all that the
process may open, files give theirs up one by one for whatever has to be opened.
"""

import errno
import resource
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

OPEN_FILES_MAX = 4096
TRIED_AT_ONCE = 8  # files that are asked to rest when there are too many

Opened = TypeVar("Opened")


class Resting(Protocol):
    """A file that can do without its descriptors for a while."""

    def rest(self) -> bool:
        """Give them up; False if it is busy."""


class OpenFiles:
    """The files with descriptors, by how recently they were used. Any thread may call.

    `most` is how many may be open; 0 takes a quarter of what the process may open.
    """

    def __init__(self, most: int = 0) -> None:
        if not most:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = OPEN_FILES_MAX if soft < 0 else min(soft // 4, OPEN_FILES_MAX)
        self.most = max(most, 1)
        self._lock = threading.Lock()
        self._recent: dict[Resting, None] = {}  # the oldest first
        self._latest: Resting | None = None  # of these

    def __len__(self) -> int:
        return len(self._recent)

    def used(self, file: Resting) -> None:
        """`file` has descriptors and was just used."""
        if file is self._latest:
            return
        with self._lock:
            self._recent.pop(file, None)
            self._recent[file] = None
            self._latest = file
            if len(self._recent) <= self.most:
                return
            oldest = [other for other, _ in zip(self._recent, range(TRIED_AT_ONCE), strict=False)]
        for other in oldest:
            if other is not file and other.rest():
                self.forget(other)
                return

    def with_room(self, use: Callable[[], Opened]) -> Opened:
        """What `use` gives, which opens descriptors; where the process has none left, others give
        theirs up. Raises what it raises. Its caller keeps no file from resting."""
        for _ in range(TRIED_AT_ONCE):
            try:
                return use()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._make_room():
                    raise
        return use()

    def _make_room(self) -> bool:
        """Whether a file has given its descriptors up."""
        with self._lock:
            oldest = list(self._recent)
        for file in oldest:
            if file.rest():
                self.forget(file)
                return True
        return False

    def forget(self, file: Resting) -> None:
        """`file` has no descriptors any more."""
        with self._lock:
            self._recent.pop(file, None)
            if file is self._latest:
                self._latest = None
