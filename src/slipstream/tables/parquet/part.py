"""One folder of Parquet files. A commit is a new `state.json` (see `state`).

Files are not merged: nothing could tell a reader at which moment one file stands for several. How
large they are is what `commit_seconds` and `commit_rows` say.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from slipstream.client.jetstream.api import new_name
from slipstream.errors import ConfigError
from slipstream.tables.disk import PARQUET_STATE, SyncedStream, check_free, make_folder
from slipstream.tables.errors import NoTableError
from slipstream.tables.layout import NO_PARTITION, Layout, partition_names, schema_of, shaped
from slipstream.tables.options import BY_TIME, Column, TableOptions
from slipstream.tables.parquet.state import State, StateFolder, written
from slipstream.tables.parts import Wanted
from slipstream.tables.positions import Position

_NAME = re.compile(r"(\d{12})-\d+\.parquet")


def folder_at(where: str, properties: Mapping[str, str]) -> Path:
    """The folder of the tables. Raises `ConfigError`."""
    if "://" in where or where.startswith("catalog:") or not where:
        raise ConfigError(
            f"Parquet files at {where!r}: they are in a folder. In an object store nothing could "
            "make the files of a commit appear at once: take the format delta or iceberg there"
        )
    if properties:
        raise ConfigError(f"Parquet files take no properties: {', '.join(properties)}")
    return Path(where).expanduser().absolute()


class ParquetPart:
    """A folder of files, as a `Part`."""

    def __init__(self, folder: Path, name: tuple[str, ...]) -> None:
        self.name = ".".join(name)
        self._folder = folder.joinpath(*name)
        self._kept = StateFolder(self._folder)
        self.state: State

    def make(self, layout: Layout) -> None:
        """Read the table; make it if it is not there, and end what a killed writer has begun."""
        make_folder(self._folder)
        check_free(self._folder, PARQUET_STATE)
        self._kept.make()
        with self._kept.locked():
            if not self._kept.exists():
                arrow = written(layout.columns)
                self._kept.replace(State(0, layout.time, layout.partition, arrow))
            self.load()
            self._kept.move(self.state)

    def load(self) -> None:
        """Read the table, which has to be there."""
        if not self._kept.exists():
            raise NoTableError(self.name)
        self.state = self._kept.read()

    def refresh(self) -> None:
        """Read again what others have committed."""
        self.load()

    def position(self, stream: str) -> Position | None:
        """Where a stream stands; None if nothing of it was ever written."""
        return self.state.positions.get(stream)

    def columns(self) -> dict[str, Column]:
        """The columns, in their order, without the partition."""
        return self.state.columns

    def add_columns(self, columns: Mapping[str, Column]) -> bool:
        """Add columns, on condition that the table is as we know it."""
        arrow = written(self.columns() | dict(columns))
        return self._commit(msgspec.structs.replace(self.state, arrow=arrow, moves={}))

    def append(self, rows: pa.Table | None, stream: str, to: Position) -> bool:
        """Append on condition that the table is as we know it."""
        moves = self._stage(rows) if rows is not None and rows.num_rows else {}
        positions = self.state.positions | {stream: to}
        state = msgspec.structs.replace(self.state, positions=positions, moves=moves)
        is_made = self._commit(state)
        if not is_made:
            for name in moves:
                (self._kept.staged / name).unlink(missing_ok=True)
        return is_made

    def _commit(self, state: State) -> bool:
        state = msgspec.structs.replace(state, commit=self.state.commit + 1)
        with self._kept.locked():
            found = self._kept.read()
            if found != self.state:
                self._kept.move(found)
                self.state = found
                return False
            self._kept.move(found)
            self._kept.check_staged(state)
            self._kept.replace(state)
            self.state = state
            self._kept.move(state)
        return True

    def _stage(self, rows: pa.Table) -> dict[str, str]:
        """Write rows where they are not part of the table yet; the places where they go."""
        rows = shaped(rows, schema_of(self.columns()))
        commit = self.state.commit + 1
        moves = {}
        for number, (folder, here) in enumerate(self._by_partition(rows)):
            name = new_name()
            with SyncedStream(self._kept.staged / name, "xb") as stream:
                pq.write_table(here, stream, compression="zstd")
            moves[name] = f"{folder}{commit:012d}-{number}.parquet"
        return moves

    def _by_partition(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self.state.partition == "none":
            yield "", rows
            return
        names = partition_names(rows[self.state.time], self.state.partition)
        names = pc.fill_null(names, NO_PARTITION)
        for name in pc.unique(names).to_pylist():
            yield f"{BY_TIME}={name}/", rows.filter(pc.equal(names, name))

    def batches(self, wanted: Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of rows. Those that are not in place yet, which are few, are read at once:
        as soon as the lock is free a writer may move them."""
        schema, found = schema_of(self.columns()), wanted.expression()
        with self._kept.locked(shared=True):
            placed = self._placed()
            staged = [pq.ParquetFile(path).read() for path in self._not_moved()]
        dataset = ds.dataset(placed, schema=schema, format="parquet")
        yield from dataset.to_batches(columns=list(columns), filter=found)
        for rows in staged:
            yield from shaped(rows, schema).filter(found).select(list(columns)).to_batches()

    def files(self, wanted: Wanted) -> list[str]:
        """The files of the commits up to the one that was read."""
        with self._kept.locked(shared=True):
            return self._placed() + self._not_moved()

    def _placed(self) -> list[str]:
        return [
            str(path)
            for path in self._folder.glob("**/*.parquet")
            if (named := _NAME.fullmatch(path.name)) and int(named[1]) <= self.state.commit
        ]

    def _not_moved(self) -> list[str]:
        """What a killed writer has left; the next one puts it where it belongs."""
        staged = [self._kept.staged / name for name in self.state.moves]
        return [str(path) for path in staged if path.exists()]

    def tend(self, options: TableOptions, *, deletes_unused: bool) -> None:
        """Delete what killed writers have staged, and have not committed."""
        if not deletes_unused:
            return
        oldest = time.time() - options.unused_seconds
        with self._kept.locked():
            self._kept.move(self._kept.read())
            for path in self._kept.staged.iterdir():
                if path.stat().st_mtime < oldest:
                    path.unlink()
