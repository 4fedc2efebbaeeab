"""The log of a Delta table on a local disk, made durable.

delta-rs does not sync what it writes there. So we do, before a commit is taken for made, with the
entries of others before it: nobody could open the table if one of them were torn. A power failure
in between may leave an entry or a checkpoint without its text. Such an entry is a commit that
nobody was told of, and such a checkpoint has its entries beside it still: the next writer takes
them away. An object store has what it has answered.
"""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from slipstream.tables.disk import DELTA_LOG, sync_file, sync_folder

_LAST_CHECKPOINT = "_last_checkpoint"


def sync_entries(folder: Path | None, versions: range) -> None:
    """Have entries of the log on the disk; `folder` is the table's, None in an object store.

    Those that a checkpoint has replaced may be gone.
    """
    if folder is None or not versions:
        return
    for version in versions:
        path = folder / DELTA_LOG / f"{version:020d}.json"
        try:
            sync_file(path)
        except FileNotFoundError:
            continue
    sync_folder(folder / DELTA_LOG)


def first_entry(folder: Path | None) -> int:
    """The version of the oldest entry that is left; 0 if there is none."""
    entries = _entries(folder) if folder is not None else []
    return int(entries[0].stem) if entries else 0


def sync_checkpoint(folder: Path | None, version: int) -> None:
    """Have the checkpoint of a version on the disk, before entries that it replaces are deleted."""
    if folder is None:
        return
    for path in (folder / DELTA_LOG).glob(f"{version:020d}.checkpoint*"):
        sync_file(path)
    sync_file(folder / DELTA_LOG / _LAST_CHECKPOINT)
    sync_folder(folder / DELTA_LOG)


def cut_torn(folder: Path) -> None:
    """Take away the last entries if their text is not whole, and the last checkpoint."""
    torn = []
    for entry in reversed(_entries(folder)):
        if _is_whole(entry):
            break
        torn.append(entry)
    checkpoints = sorted((folder / DELTA_LOG).glob("[0-9]*.checkpoint*.parquet"))
    if checkpoints and _is_torn(checkpoints[-1]):
        torn += [folder / DELTA_LOG / _LAST_CHECKPOINT, checkpoints[-1]]
    for path in torn:
        path.unlink(missing_ok=True)
    if torn:
        sync_folder(folder / DELTA_LOG)


def _entries(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / DELTA_LOG).glob("[0-9]*.json") if p.stem.isdigit())


def _is_torn(checkpoint: Path) -> bool:
    try:
        pq.read_table(checkpoint)
    except pa.ArrowInvalid:
        return True
    except OSError as error:
        return error.errno is None  # Arrow's own, of what it has read
    return False


def _is_whole(entry: Path) -> bool:
    lines = entry.read_bytes().splitlines()
    try:
        for line in lines:
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return bool(lines)
