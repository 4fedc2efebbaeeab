"""Which path is written to on the thread beside the batches, so that its name is not given away.

What is deleted has its name taken again at once, and jobs that were asked for before may still be
on their way. A job that writes or removes files of a stream there says so, and looks after that
whether the stream is still there. While files below a name are written the name is not given
away, and the caller asks again.
"""

import threading
from typing import Protocol

from slipstream.errors import StorageError


class NameInUseError(StorageError):
    """A name is wanted in whose directory a job writes or removes files just now; it is free once
    the jobs that are under way have run."""


class Freeing(Protocol):
    """A directory on its way out, whose name is wanted."""

    path: str
    is_free: bool  # the name

    def free(self) -> None:
        """Have the name be free. Raises OSError."""


class Applying:
    """The path that is written to just now; see the module's text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # which is never held while a job works
        self._path = ""

    def begin(self, path: str) -> None:
        """What lies at `path` or below it is about to be written or removed. On the thread."""
        with self._lock:
            self._path = path

    def end(self) -> None:
        """It was."""
        with self._lock:
            self._path = ""

    def free(self, removal: Freeing) -> None:
        """Have the name of a directory be free. Raises OSError; `NameInUseError` while something in
        the directory is being written."""
        with self._lock:
            if removal.is_free:
                return
            if f"{self._path}/".startswith(f"{removal.path}/"):
                raise NameInUseError(
                    f"{removal.path} is being removed, and the disk is slow; ask again"
                )
            removal.free()
