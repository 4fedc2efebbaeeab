"""Which path is written to on the thread beside the batches, so that its name is not given away.

What is deleted has its name taken again at once, and jobs that were asked for before may still be
on their way. Whoever writes or removes files of a stream there says so, and looks after that
whether the stream is still there. Whoever frees the name waits for a moment until nobody does.
"""

import threading
from typing import Protocol

from slipstream.errors import StorageError

FREE_SECONDS_MAX = 0.005  # for which a name that is to be free is waited for


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
        self._condition = threading.Condition()
        self._path = ""

    def begin(self, path: str) -> None:
        """What lies at `path` or below it is about to be written or removed. On the thread."""
        with self._condition:
            self._path = path

    def end(self) -> None:
        """It was."""
        with self._condition:
            self._path = ""
            self._condition.notify_all()

    def free(self, removal: Freeing) -> None:
        """Have the name of a directory be free while nothing in it is written. Raises OSError;
        `NameInUseError` if what is being written there takes too long."""

        def may_go() -> bool:
            return removal.is_free or not f"{self._path}/".startswith(f"{removal.path}/")

        with self._condition:  # which is never held while the disk works
            if not self._condition.wait_for(may_go, FREE_SECONDS_MAX):
                raise NameInUseError(
                    f"{removal.path} is being removed, and the disk is slow; ask again"
                )
            if not removal.is_free:
                removal.free()
