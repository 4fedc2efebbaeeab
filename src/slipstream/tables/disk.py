"""Files on a local disk that are on the disk before anything names them."""

import io
import os
from pathlib import Path
from typing import Any

from slipstream.tables.errors import TableError

# What makes a folder a table. Readers of Parquet leave out what begins with an underscore.
DELTA_LOG, PARQUET_STATE = "_delta_log", "_slipstream"


class SyncedStream(io.BufferedWriter):
    """A new file; synced with the name it has when it is closed."""

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


def sync_file(path: Path) -> None:
    """Have what others have written to a file on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and have their names on the disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_free(folder: Path, own: str) -> None:
    """Raise `TableError` if a folder has files, and not the entry that makes it a table of ours.

    And if it is inside another table: that one's readers would read its files, and its vacuum
    delete them.
    """
    for above in folder.parents:
        if any((above / entry).is_dir() for entry in (DELTA_LOG, PARQUET_STATE)):
            raise TableError(
                f"folder {folder} is inside of the table in {above}: choose another name"
            )
    found = {path.name for path in folder.iterdir()}
    if found and own not in found:
        raise TableError(
            f"folder {folder} has files and is no table of this format: choose another name"
        )
