"""Iceberg's files on a local disk, on the disk before anything names them.

A commit makes a table point to new files. If those were still in the page cache when the power
fails, the table would point to empty files: not the last rows would be gone, but the whole table.
So every file is synced when it is closed, and every folder when a file was made in it. Object
stores do that by themselves; for them this is pyiceberg's own file access.
"""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream

LOCAL_SCHEMES = ("file", "")


class SyncedFileIO(PyArrowFileIO):
    """File access for `py-io-impl`: local files are synced when they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write; nothing happens before its `create`."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme not in LOCAL_SCHEMES:
            return super().new_output(location)
        return _SyncedFile(location=location, path=path, fs=self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> "OutputStream":
        """Open it. Raises FileExistsError."""
        path = Path(self._path)
        _make_folder(path.parent)
        return _SyncedStream(path, "wb" if overwrite else "xb")


class _SyncedStream(io.BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(open(path, mode, buffering=0))  # noqa: SIM115
        self._folder = path.parent

    def close(self) -> None:
        """Sync and close it; it is on the disk afterwards."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync_folder(self._folder)

    def __exit__(self, *error: Any) -> None:
        self.close()


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, and have their names on the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
