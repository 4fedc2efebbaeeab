"""What a format has to offer: one table that can be read, and committed to on condition.

A stream is kept in two such tables (`stream_table`). All that decides what a message's place is,
and that it has one, is above this seam; a format only has to make a commit of rows and position
together, and only if nobody else has committed since the table was last read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from slipstream.tables.layout import Layout
from slipstream.tables.options import Column, TableOptions
from slipstream.tables.positions import Position


class Wanted(msgspec.Struct, frozen=True):
    """Which rows: those of a stream, of the one that was `created` then, after a sequence."""

    stream: str
    created: str | None = None
    after: int | None = None

    def expression(self) -> ds.Expression:
        """As Arrow filters rows."""
        found = ds.field("_stream") == self.stream
        if self.created is not None:
            found &= ds.field("_created") == self.created
        if self.after is not None:
            found &= ds.field("_sequence") > self.after
        return found


class Part(Protocol):
    """One table as it was when it was last read. Calls block, and raise `TableError`."""

    name: str

    def make(self, layout: Layout) -> None:
        """Read the table; make it if it is not there."""

    def load(self) -> None:
        """Read the table. Raises `NoTableError` if it is not there."""

    def refresh(self) -> None:
        """Read again what others have committed."""

    def position(self, stream: str) -> Position | None:
        """Where a stream stands; None if nothing of it was ever written."""

    def columns(self) -> dict[str, Column]:
        """The columns, in their order."""

    def add_columns(self, columns: Mapping[str, Column]) -> bool:
        """Add columns if nobody has committed since; else False, and the table is read again."""

    def append(self, rows: pa.Table | None, stream: str, to: Position) -> bool:
        """Commit rows (None: the position alone) if nobody has committed since.

        False if somebody has, or if it is not known; then the table is read again.
        """

    def batches(self, wanted: Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of rows, in no particular order."""

    def files(self, wanted: Wanted) -> list[str]:
        """The Parquet files in which the rows are, and other rows besides."""

    def tend(self, options: TableOptions, *, deletes_unused: bool) -> None:
        """Keep the table quick to read and to commit to."""
