"""One Iceberg table. A commit is a snapshot, whose properties have the position.

pyiceberg commits on condition that the table's snapshot is the one that it knows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan

from slipstream.tables.errors import NoTableError, TableError
from slipstream.tables.iceberg.maintenance import compact, delete_unused, expire
from slipstream.tables.iceberg.snapshots import position_of, properties_of
from slipstream.tables.iceberg.transactions import OneTransaction, commit_once
from slipstream.tables.iceberg.types import column_in, iceberg_type, schema_in
from slipstream.tables.layout import JSON_TEXT, Layout
from slipstream.tables.options import Column, TableOptions
from slipstream.tables.parts import Wanted
from slipstream.tables.positions import Position

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import DataScan, Table

# Refused, or nobody knows: the table, read again, shows it. One that is still on its way is refused
# once another commit is made.
_NOT_GRANTED = (CommitFailedException, CommitStateUnknownException)
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "32",
}
_EQUAL: Any = EqualTo  # their declared types know no text
_GREATER: Any = GreaterThan


class IcebergPart:
    """A table of a catalog, as a `Part`."""

    def __init__(self, catalog: "Catalog", name: tuple[str, ...]) -> None:
        self._catalog = catalog
        self._name = name
        self.name = ".".join(name)
        self.table: Table
        self._columns: tuple[Schema, dict[str, Column]] | None = None  # of the schema last seen

    def make(self, layout: Layout) -> None:
        """Read the table; make it, and its namespace, if it is not there."""
        self._make_namespace(self._name[:-1])
        try:
            self.load()
        except NoTableError:
            schema, spec = schema_in(layout)
            try:
                self.table = self._catalog.create_table(
                    self._name, schema=schema, partition_spec=spec, properties=_PROPERTIES
                )
            except TableAlreadyExistsError:
                self.load()

    def _make_namespace(self, name: tuple[str, ...]) -> None:
        try:
            self._catalog.create_namespace_if_not_exists(name)
        except Exception:  # of the catalog's own: somebody else may have made it meanwhile
            if not self._catalog.namespace_exists(name):
                raise

    def load(self) -> None:
        """Read the table, which has to be there."""
        try:
            self.table = self._catalog.load_table(self._name)
        except NoSuchTableError as error:
            raise NoTableError(self.name) from error

    def refresh(self) -> None:
        """Read again what others have committed."""
        self.table.refresh()

    def position(self, stream: str) -> Position | None:
        """Where a stream stands. Raises `PositionLostError`."""
        return position_of(self.table, stream)

    def columns(self) -> dict[str, Column]:
        """The columns, in their order. They are asked for with each commit, and seldom change."""
        schema = self.table.schema()
        if self._columns is None or self._columns[0] != schema:
            self._columns = (schema, {field.name: column_in(field) for field in schema.fields})
        return self._columns[1]

    def add_columns(self, columns: Mapping[str, Column]) -> bool:
        """Add columns, on condition that the table is as we know it."""
        try:
            with self.table.update_schema() as update:
                for name, column in columns.items():
                    doc = JSON_TEXT if column.is_json else None
                    update.add_column((name,), iceberg_type(column.type), doc)
        except _NOT_GRANTED:
            self.table.refresh()
            return False
        return True

    def append(self, rows: pa.Table | None, stream: str, to: Position) -> bool:
        """Append on condition that the table is as we know it; False if it is not, or unclear."""
        table = self.table
        if rows is None:
            rows = table.schema().as_arrow().empty_table()
        properties = properties_of(table) | to.properties(stream)
        transaction = OneTransaction(table)
        transaction.append(rows, snapshot_properties=properties)
        try:
            commit_once(transaction)
        except _NOT_GRANTED:
            table.refresh()
            return False
        return True

    def batches(self, wanted: Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of rows. Batches of files that are older lack newer columns' types."""
        yield from self._scan(wanted, tuple(columns)).to_arrow_batch_reader()

    def files(self, wanted: Wanted) -> list[str]:
        """The data files. Raises `TableError` if other programs have deleted rows in them."""
        tasks = list(self._scan(wanted, ("*",)).plan_files())
        if any(task.delete_files for task in tasks):
            raise TableError(
                f"table {self.name} has row-level deletes of other programs, which Spark reads "
                "through Iceberg's runtime alone; rewrite_data_files removes them"
            )
        return [task.file.file_path for task in tasks]

    def _scan(self, wanted: Wanted, columns: tuple[str, ...]) -> "DataScan":
        snapshot = self.table.metadata.current_snapshot_id
        filtered = _filter(wanted)
        return self.table.scan(filtered, selected_fields=columns, snapshot_id=snapshot)

    def tend(self, options: TableOptions, *, deletes_unused: bool) -> None:
        """Merge small files, forget old snapshots, delete what none names."""
        compact(self.table, options)
        expire(self.table, options.snapshots_kept)
        if deletes_unused:
            delete_unused(self.table, options.unused_seconds)


def _filter(wanted: Wanted) -> BooleanExpression:
    found: BooleanExpression = _EQUAL("_stream", wanted.stream)
    if wanted.created is not None:
        found = And(found, _EQUAL("_created", wanted.created))
    if wanted.after is not None:
        found = And(found, _GREATER("_sequence", wanted.after))
    return found
