"""Removing the files of segments in which nothing lives: by a job, since that may take long."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.log.file_log import FileLog


class UnlinkJob:
    """Removes files of `log`, unless that has failed or was deleted: another stream may have the
    directory's name then."""

    def __init__(self, log: "FileLog", paths: list[str]) -> None:
        self._log = log
        self._paths = paths
        self._removed: list[str] = []

    def run(self) -> None:
        """Remove them. Never raises: the records say that nothing in them lives."""
        log = self._log
        for path in self._paths:
            try:
                if not log.failed:
                    log.disk.remove(path)
                    self._removed.append(path)
            except OSError:
                pass  # the next opening drops it

    def finish(self) -> None:
        """Take note of it, on the loop."""
        self._log.unlinked(self._removed)
