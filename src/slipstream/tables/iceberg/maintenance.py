"""Keeping tables quick to read and to commit to: fewer files, fewer snapshots, nothing unused.

Small files are merged. Old snapshots expire, because every commit writes the list of all of them
again. pyiceberg forgets expired snapshots but leaves their files; those, and what a killed writer
has left, are deleted when no snapshot names them and they are `unused_seconds` old.

Files with row-level deletes of other programs are not merged.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow.fs
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, _dataframe_to_data_files

from slipstream.tables.iceberg.snapshots import properties_of
from slipstream.tables.iceberg.transactions import OneTransaction, commit_once
from slipstream.tables.merging import ROW_ORDER, File, mergeable
from slipstream.tables.options import TableOptions

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

_DELETABLE = (".parquet", ".avro", ".metadata.json")


def compact(table: "Table", options: TableOptions) -> int:
    """Merge small files where there are enough of them; how many were merged.

    A commit of somebody else in between is left to win: 0 then.
    """
    groups = list(mergeable(_own_files(table), options))
    if not groups:
        return 0
    properties = properties_of(table)
    transaction = OneTransaction(table)
    producer = transaction.update_snapshot(snapshot_properties=properties).overwrite()
    for tasks in groups:
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = scan.to_table(tasks).sort_by(ROW_ORDER)
        for made in _dataframe_to_data_files(table.metadata, rows, table.io):
            producer.append_data_file(made)
        for task in tasks:
            producer.delete_data_file(task.file)
    try:
        producer.commit()
        commit_once(transaction)
    except (CommitFailedException, ValidationException):
        table.refresh()
        return 0
    return sum(map(len, groups))


def _own_files(table: "Table") -> "Iterator[File[FileScanTask]]":
    """The files that may be merged."""
    if table.current_snapshot() is None:
        return
    for task in table.scan().plan_files():
        if not task.delete_files and task.file.spec_id == table.spec().spec_id:
            yield File(str(task.file.partition), task.file.file_size_in_bytes, task)


def expire(table: "Table", kept: int) -> int:
    """Forget all but the newest `kept` snapshots, and those with a name; how many went."""
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    old = [s.snapshot_id for s in snapshots[:-kept] if s.snapshot_id not in named]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)


def delete_unused(table: "Table", seconds: float) -> int:
    """Delete files in the table's folder that no snapshot names and that are so old; how many.

    Works where pyiceberg reads files through pyarrow, as it does by default; 0 elsewhere.
    """
    files = table.io
    if not isinstance(files, PyArrowFileIO):
        return 0
    scheme, netloc, folder = files.parse_location(table.location(), files.properties)
    filesystem = files.fs_by_scheme(scheme, netloc)
    found = filesystem.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True))
    oldest = time.time() - seconds
    old = [
        info.path
        for info in found
        if info.is_file
        and info.path.endswith(_DELETABLE)
        and info.mtime_ns is not None
        and info.mtime_ns / 1e9 < oldest
    ]
    table.refresh()  # after the files were listed: what was committed since then is named
    named = {files.parse_location(path, files.properties)[2] for path in _named_files(table)}
    if not named & {info.path for info in found}:
        return 0  # paths are spelled in another way here: nothing is known to be unused
    unused = [path for path in old if path not in named]
    for path in unused:
        filesystem.delete_file(path)
    return len(unused)


def _named_files(table: "Table") -> Iterator[str]:
    """Every file that the table's metadata names."""
    metadata = table.metadata
    yield table.metadata_location
    for entry in metadata.metadata_log:
        yield entry.metadata_file
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        yield statistics.statistics_path
    read: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            yield manifest.manifest_path
            for file in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield file.data_file.file_path
