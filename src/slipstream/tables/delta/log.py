"""The log of a Delta table on a local disk, made durable.

delta-rs does not sync what it writes there. So we do, before a commit is taken for made. A power
failure in between may leave an entry without its text, and nobody could open the table: such an
entry is a commit that nobody was told of, and the next writer takes it away. An object store has
what it has answered.
"""

from pathlib import Path

import msgspec

from slipstream.tables.disk import sync_file, sync_folder

LOG_FOLDER = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"


def sync_entry(folder: Path | None, version: int) -> None:
    """Have an entry of the log on the disk; `folder` is the table's, None in an object store."""
    if folder is not None:
        sync_file(folder / LOG_FOLDER / f"{version:020d}.json")
        sync_folder(folder / LOG_FOLDER)


def sync_checkpoint(folder: Path | None, version: int) -> None:
    """Have the checkpoint of a version on the disk, before entries that it replaces are deleted."""
    if folder is None:
        return
    for path in (folder / LOG_FOLDER).glob(f"{version:020d}.checkpoint*"):
        sync_file(path)
    sync_file(folder / LOG_FOLDER / _LAST_CHECKPOINT)
    sync_folder(folder / LOG_FOLDER)


def cut_torn(folder: Path) -> None:
    """Take away the last entry if its text is not whole."""
    entries = sorted((folder / LOG_FOLDER).glob("[0-9]*.json"))
    if entries and not _is_whole(entries[-1]):
        entries[-1].unlink()
        sync_folder(folder / LOG_FOLDER)


def _is_whole(entry: Path) -> bool:
    lines = entry.read_bytes().splitlines()
    try:
        for line in lines:
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return bool(lines)
