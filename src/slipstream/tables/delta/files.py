"""The data files of a Delta table: written by Arrow, on the disk or in the store before a commit
names them."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from slipstream.client.jetstream.api import new_name
from slipstream.tables.disk import SyncedStream, make_folder
from slipstream.tables.layout import NO_PARTITION, shaped
from slipstream.tables.options import BY_TIME, MESSAGE_COLUMNS
from slipstream.tables.parts import Wanted


class DataFiles:
    """The files of one table, on a local disk or in an object store."""

    def __init__(self, uri: str, folder: Path | None, properties: dict[str, str]) -> None:
        self._folder = folder
        self._store: pyarrow.fs.FileSystem | None = None
        if folder is None:
            handler = DeltaStorageHandler(uri, properties or None)
            self._store = pyarrow.fs.PyFileSystem(handler)

    def write(self, rows: pa.Table, *, is_change: bool = True) -> list[AddAction]:
        """Write rows that have a column `by_time`, if the table has; a file for each."""
        if not rows.num_rows:
            return []
        if BY_TIME not in rows.column_names:
            return [self._write(rows, None, "", is_change)]
        made = []
        for name in pc.unique(rows[BY_TIME]).to_pylist():
            is_here = pc.is_null(rows[BY_TIME]) if name is None else pc.equal(rows[BY_TIME], name)
            folder = f"{BY_TIME}={name or NO_PARTITION}/"
            here = rows.filter(pc.fill_null(is_here, False)).drop_columns([BY_TIME])
            made.append(self._write(here, {BY_TIME: name}, folder, is_change))
        return made

    def _write(
        self, rows: pa.Table, values: dict[str, str | None] | None, folder: str, is_change: bool
    ) -> AddAction:
        path = f"{folder}{new_name()}.parquet"
        with self._create(path) as stream:
            pq.write_table(rows, stream, compression="zstd")
            size = stream.tell()
        now = int(time.time() * 1000)
        return AddAction(path, size, values or {}, now, is_change, _statistics(rows))

    def _create(self, path: str) -> IO[bytes]:
        if self._store is not None:
            return cast(IO[bytes], self._store.open_output_stream(path))
        assert self._folder is not None
        target = self._folder / path
        make_folder(target.parent)
        return SyncedStream(target, "xb")

    def read(self, path: str) -> pa.Table:
        """All of a file that the log names."""
        return self._opened(path).read()

    def batches(
        self, paths: Sequence[str], schema: pa.Schema, wanted: Wanted, columns: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of rows, null where a file is older than the column.

        What is in a store is read by this thread alone: Arrow's threads are not done with delta-rs
        when the process ends, and it would end with SIGABRT.
        """
        if self._folder is not None:
            files = [str(self._folder / unquote(path)) for path in paths]
            found = ds.dataset(files, schema=schema, format="parquet")
            yield from found.to_batches(columns=columns, filter=wanted.expression())
            return
        needed = pa.schema(
            [f for f in schema if f.name in {*columns, *MESSAGE_COLUMNS, "_created"}]
        )
        for path in paths:
            for batch in self._opened(path).iter_batches(columns=needed.names):
                rows = shaped(pa.Table.from_batches([batch]), needed)
                yield from rows.filter(wanted.expression()).select(columns).to_batches()

    def _opened(self, path: str) -> pq.ParquetFile:
        path = unquote(path)
        if self._store is not None:
            return pq.ParquetFile(self._store.open_input_file(path))
        assert self._folder is not None
        return pq.ParquetFile(self._folder / path)


def _statistics(rows: pa.Table) -> str:
    """What a reader has to know of a file to leave it out."""
    return msgspec.json.encode({"numRecords": rows.num_rows}).decode()
