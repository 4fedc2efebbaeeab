"""What a folder of Parquet files says of itself: one small file, replaced with each commit.

    orders/
      _slipstream/state.json       the commits' number, columns, positions, and the last moves
      _slipstream/lock             held while a commit is made
      _slipstream/staged/          files that are not part of the table yet
      by_time=2026-11-26/000000000042-0.parquet       a file of commit 42

A commit writes its files to `staged`, syncs them, and replaces `state.json` by one that has the new
position and says where the files go: that is the moment when they are part of the table. Then they
are moved. Who finds moves that were not made, after a kill, makes them. So a reader that looks at
the folder alone never sees a row twice, nor one that will vanish; for a moment it may see some
files of a commit and not the others.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from slipstream.tables.disk import PARQUET_STATE, SyncedStream, make_folder, sync_folder
from slipstream.tables.errors import TableError
from slipstream.tables.layout import Partition, column_of_field, schema_of
from slipstream.tables.options import Column
from slipstream.tables.positions import Position


class State(msgspec.Struct, frozen=True):
    """A table after a commit. `arrow` is the schema as Arrow writes it; `moves` are the places of
    the commit's files, from `staged` to below the folder."""

    commit: int
    time: str
    partition: Partition
    arrow: bytes
    positions: dict[str, Position] = {}
    moves: dict[str, str] = {}

    @property
    def columns(self) -> dict[str, Column]:
        """The columns, in their order."""
        schema = pa.ipc.read_schema(pa.BufferReader(self.arrow))
        return {field.name: column_of_field(field) for field in schema}


def written(columns: Mapping[str, Column]) -> bytes:
    """Columns as `State.arrow` has them."""
    text: bytes = schema_of(columns).serialize().to_pybytes()
    return text


class StateFolder:
    """The folder beside the files. Raises OSError, `msgspec.DecodeError`."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._own = table / PARQUET_STATE
        self.staged = self._own / "staged"
        self._file = self._own / "state.json"

    def exists(self) -> bool:
        """Whether there is a table."""
        return self._file.exists()

    def make(self) -> None:
        """Make the folders."""
        make_folder(self.staged)

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Keep other processes, and threads, from committing; several may look at it `shared`.

        The system lets go of a lock whose process was killed.
        """
        flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        number = os.open(self._own / "lock", flags, 0o644)
        try:
            fcntl.flock(number, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def read(self) -> State:
        """The state after the last commit."""
        return msgspec.json.decode(self._file.read_bytes(), type=State)

    def replace(self, state: State) -> None:
        """Commit; under the lock."""
        new = self._file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with SyncedStream(new, "xb") as stream:
            stream.write(msgspec.json.encode(state))
        new.replace(self._file)
        sync_folder(self._own)

    def check_staged(self, state: State) -> None:
        """Raise `TableError` if a file of a commit is gone; under the lock.

        A writer may have slept for so long that another one took it for a killed one's.
        """
        gone = [name for name in state.moves if not (self.staged / name).exists()]
        if gone:
            raise TableError(f"{self.staged}: {gone[0]} was deleted before it was committed")

    def move(self, state: State) -> None:
        """Make the moves of a commit that are not made yet; under the lock."""
        changed: set[Path] = set()
        for name, place in state.moves.items():
            staged, target = self.staged / name, self._table / place
            if staged.exists():
                make_folder(target.parent)
                staged.replace(target)
            changed.add(target.parent)
        for folder in (*changed, self.staged):
            sync_folder(folder)
