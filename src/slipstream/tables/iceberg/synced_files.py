"""Iceberg's files on a local disk, on the disk before anything names them.

A commit makes a table point to new files. If those were still in the page cache when the power
fails, the table would point to empty files: not the last rows would be gone, but the whole table.
So every file is synced when it is closed, and every folder when a file was made in it. Object
stores do that by themselves; for them this is pyiceberg's own file access.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from slipstream.tables.disk import SyncedStream, make_folder

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
        make_folder(path.parent)
        return SyncedStream(path, "wb" if overwrite else "xb")
