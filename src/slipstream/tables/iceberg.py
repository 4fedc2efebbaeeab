"""A stream's two Iceberg tables, and the commits that give each message a place exactly once.

`<table>` has the rows, `<table>_rejected` the messages that do not fit, with the reason. Iceberg
commits one table at a time, so a commit of both is two, and a writer may be killed in between:

1. rejected messages are appended to `<table>_rejected`, with the sequence N of the last message;
2. rows are appended to `<table>` with N. This is the commit that counts: the position is the
   sequence that `<table>` says.

A writer that goes on after a kill between 1 and 2 reads the same messages again. Those
that are already among the rejected ones (after the position; the table is asked once) are left out,
whether they would fit now or not. So no message is in both, and none is twice in one.

A writer that begins takes both tables over: it commits an empty snapshot to each, with a writer
name of its own, first to `<table>`. pyiceberg commits on condition that the table's snapshot is the
one that the writer knows. A commit that loses this race is made again only if the position is still
the writer's own (a compaction, or another stream's writer, was in between); otherwise the writer
ends with `OtherWriterError`. Only after both are taken over is the list of rejected messages read,
so that no earlier writer can add to it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from slipstream.client.jetstream.api import new_name
from slipstream.errors import Error
from slipstream.tables.catalogs import table_name_of
from slipstream.tables.errors import OtherWriterError, TableError
from slipstream.tables.options import MESSAGE_COLUMNS, MESSAGE_TIME, PARTITION, Column, TableOptions
from slipstream.tables.positions import Position, position_of, properties_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

JSON_TEXT = "JSON text"
_RACES_MAX = 100
# Refused, or nobody knows: the table, read again, shows it. One that is still on its way is refused
# once another commit is made.
_NOT_GRANTED = (CommitFailedException, CommitStateUnknownException)
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "32",
}
_TRANSFORMS: dict[str, Callable[[], Transform[Any, Any]]] = {
    "hour": HourTransform,
    "day": DayTransform,
    "month": MonthTransform,
}
_TYPES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(),
}
_ARROW = {kind: arrow for arrow, kind in _TYPES.items()}
_EQUAL: Any = EqualTo  # their declared types know no text
_GREATER: Any = GreaterThan
HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))


@contextmanager
def said(name: str, what: str) -> Iterator[None]:
    """Raise what others raise as `TableError`, with the table and what was being done."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(f"table {name}: {what} failed: {reason}") from error


def iceberg_type(kind: pa.DataType) -> IcebergType:
    """Iceberg's type for one of ours."""
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return ListType(1, iceberg_type(kind.value_type), element_required=False)
    if kind == HEADERS:
        values = ListType(4, StringType(), element_required=False)
        return MapType(2, StringType(), 3, values, value_required=False)
    return _TYPES[kind]


def column_in(field: NestedField) -> Column:
    """The column for a field of a table's schema."""
    kind = _ARROW.get(field.field_type)
    if kind is None:
        schema = Schema(NestedField(1, field.name, field.field_type, required=False))
        kind = schema_to_pyarrow(schema, include_field_ids=False).field(0).type
    return Column(kind, is_json=field.doc == JSON_TEXT)


def body_columns_of(table: "Table") -> dict[str, Column]:
    """The columns of a table that come from bodies."""
    fields = table.schema().fields
    return {f.name: column_in(f) for f in fields if f.name not in MESSAGE_COLUMNS}


def _message_fields(*more: NestedField) -> list[NestedField]:
    kinds = (StringType(), StringType(), LongType(), TimestamptzType())
    named = zip(MESSAGE_COLUMNS, kinds, strict=False)
    fields = [NestedField(at, name, kind) for at, (name, kind) in enumerate(named, 1)]
    return [*fields, *more]


def _rows_layout(options: TableOptions) -> tuple[Schema, PartitionSpec]:
    """Schema and partitions of a new table, before columns are added."""
    fields = _message_fields()
    if options.time != MESSAGE_TIME:
        fields.append(NestedField(len(fields) + 1, options.time, TimestamptzType()))
    (source,) = [field.field_id for field in fields if field.name == options.time]
    return Schema(*fields), _by_time(source, options.partition)


def _rejected_layout(options: TableOptions) -> tuple[Schema, PartitionSpec]:
    fields = _message_fields(
        NestedField(5, "_created", StringType()),
        NestedField(6, "reason", StringType()),
        NestedField(7, "data", BinaryType()),
    )
    return Schema(*fields), _by_time(4, "none" if options.partition == "none" else "day")


def _by_time(source: int, partition: str) -> PartitionSpec:
    if partition == "none":
        return PartitionSpec()
    return PartitionSpec(PartitionField(source, 1000, _TRANSFORMS[partition](), PARTITION))


def rows_of(stream: str) -> BooleanExpression:
    """The filter for the rows of one stream."""
    wanted: BooleanExpression = _EQUAL("_stream", stream)
    return wanted


def rejected_after(table: "Table", stream: str, position: Position) -> frozenset[int]:
    """Sequences of messages after a position that were rejected, though no commit of rows came.

    They have their place: a writer that reads them again leaves them out. Raises `TableError`.
    """
    with said(".".join(table.name()), "reading it"):
        wanted = And(rows_of(stream), _EQUAL("_created", position.created))
        after = _GREATER("_sequence", position.sequence)
        scan = table.scan(And(wanted, after), selected_fields=("_sequence",))
        return frozenset(scan.to_arrow().column("_sequence").to_pylist())


def rejected_name(name: tuple[str, ...]) -> tuple[str, ...]:
    """The table of the messages that do not fit into the table `name`."""
    return (*name[:-1], f"{name[-1]}_rejected")


class _Fenced:
    """One of the two tables, and the position of which we have made the last commit there."""

    def __init__(self, table: "Table", stream: str) -> None:
        self.table = table
        self.name = ".".join(table.name())
        self._stream = stream
        self.position = Position()

    def take_over(self, writer: str) -> Position | None:
        """Have no earlier writer commit again; where the stream stood. Raises `TableError`."""
        for _ in range(_RACES_MAX):
            found = position_of(self.table, self._stream)
            mine = Position(writer=writer)
            if found is not None:
                mine = Position(found.created, found.sequence, writer, found.lost)
            if self._commit(None, mine):
                return found
        raise TableError(f"table {self.name}: other programs keep committing; try again")

    def append(self, rows: pa.Table | None, to: Position) -> None:
        """Commit rows (None: the position alone) once. Raises `OtherWriterError`, `TableError`."""
        for _ in range(_RACES_MAX):
            if position_of(self.table, self._stream) != self.position:
                self._refuse()
            if self._commit(rows, to):
                return
            if position_of(self.table, self._stream) == to:  # it was made, and the answer lost
                self.position = to
                return
        raise TableError(f"table {self.name}: other programs keep committing; try again")

    def _refuse(self) -> None:
        found = position_of(self.table, self._stream) or Position()
        raise OtherWriterError(
            f"table {self.name}: another writer has taken stream {self._stream} over at sequence "
            f"{self.position.sequence} and stands at {found.sequence}. One writer for a stream and "
            "table is enough; this one has written nothing twice, and ends"
        )

    def _commit(self, rows: pa.Table | None, to: Position) -> bool:
        """Append on condition that the table is as we know it; False if it is not, or unclear."""
        with said(self.name, "a commit"):
            table = self.table
            if rows is None:
                rows = table.schema().as_arrow().empty_table()
            properties = properties_of(table) | to.properties(self._stream)
            transaction = OneTransaction(table)
            transaction.append(rows, snapshot_properties=properties)
            try:
                commit_once(transaction)
            except _NOT_GRANTED:
                table.refresh()
                return False
            self.position = to
            return True

    def add_columns(self, columns: Mapping[str, Column]) -> None:
        """Give the table columns that it has not. Raises `TableError`."""
        for _ in range(_RACES_MAX):
            have = {field.name for field in self.table.schema().fields}
            missing = {name: column for name, column in columns.items() if name not in have}
            if not missing:
                return
            with said(self.name, f"adding the columns {', '.join(missing)}"):
                try:
                    with self.table.update_schema() as update:
                        for name, column in missing.items():
                            doc = JSON_TEXT if column.is_json else None
                            update.add_column((name,), iceberg_type(column.type), doc)
                except _NOT_GRANTED:
                    self.table.refresh()
        raise TableError(f"table {self.name}: other programs keep committing; try again")


class OneTransaction(Transaction):
    """pyiceberg's, but the metadata with the changes is worked out once for each change.

    pyiceberg does so at every look, some twenty times a commit, and copies all snapshots each time.
    """

    _seen: "tuple[object, TableMetadata] | None" = None

    @property
    def table_metadata(self) -> "TableMetadata":
        """The table's metadata with the changes of this transaction."""
        if not self._updates:
            return self._table.metadata
        if self._seen is None or self._seen[0] is not self._updates:
            self._seen = (self._updates, super().table_metadata)
        return self._seen[1]


def commit_once(transaction: Transaction) -> None:
    """Commit, on condition that the table is as the transaction knows it.

    By itself pyiceberg makes a commit that failed again on top of whatever was in between: rows
    that another writer has committed, too, would be there twice. And it deletes the files of a
    commit that the catalog has refused, though a refusal may be the answer to a repeated request
    of which the first one was granted. Both concern the producers of snapshots that the
    transaction remembers, so it is made to forget them; unused files are deleted later.
    """
    transaction._snapshot_producers.clear()
    transaction.commit_transaction()


class StreamTable:
    """The tables of one stream, taken over by one writer. Its calls block; not thread-safe."""

    def __init__(
        self, catalog: "Catalog", name: str, stream: str, options: TableOptions | None = None
    ) -> None:
        self._catalog = catalog
        self._name = table_name_of(name)
        self._stream = stream
        self._options = options or TableOptions()
        self.name = ".".join(self._name)

    def open(self) -> Position | None:
        """Make the tables if they are not there, and take them over; where the stream stood.

        None if nothing of the stream was ever written. Raises `TableError`.
        """
        with said(self.name, "opening it"):
            self._make_namespace(self._name[:-1])
            self._rows = self._part(self._name, _rows_layout(self._options))
            layout = _rejected_layout(self._options)
            self._rejected = self._part(rejected_name(self._name), layout)
        if self._options.headers:
            for part in (self._rows, self._rejected):
                part.add_columns({"_headers": Column(HEADERS)})
        self._rows.add_columns(self._options.given_columns())
        writer = new_name()
        position = self._rows.take_over(writer)
        self._rejected.take_over(writer)
        return position if position is not None and position.created else None

    def _make_namespace(self, name: tuple[str, ...]) -> None:
        try:
            self._catalog.create_namespace_if_not_exists(name)
        except Exception:  # of the catalog's own: somebody else may have made it meanwhile
            if not self._catalog.namespace_exists(name):
                raise

    def _part(self, name: tuple[str, ...], layout: tuple[Schema, PartitionSpec]) -> _Fenced:
        schema, spec = layout
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            try:
                table = self._catalog.create_table(
                    name, schema=schema, partition_spec=spec, properties=_PROPERTIES
                )
            except TableAlreadyExistsError:
                table = self._catalog.load_table(name)
        missing = {f.name for f in schema.fields} - {f.name for f in table.schema().fields}
        if missing:
            raise TableError(
                f"table {'.'.join(name)} was not made from a stream: it has no column "
                f"{', '.join(sorted(missing))}. Choose another name"
            )
        return _Fenced(table, self._stream)

    def rejected_after(self, position: Position) -> frozenset[int]:
        """See the function `rejected_after`."""
        return rejected_after(self._rejected.table, self._stream, position)

    @property
    def table(self) -> "Table":
        """The table of the rows, as it is after the last commit of this writer."""
        return self._rows.table

    @property
    def rejected_table(self) -> "Table":
        """The table of the messages that do not fit."""
        return self._rejected.table

    def body_columns(self) -> dict[str, Column]:
        """The columns that come from bodies."""
        return body_columns_of(self._rows.table)

    def commit(
        self, columns: Mapping[str, Column], rows: pa.Table, rejected: pa.Table, to: Position
    ) -> None:
        """Commit rows and rejected messages, everything up to `to`, exactly once.

        `columns` are those of the bodies; what the table lacks of them is added. The writer's name
        of `to` is ours, whatever it says. Raises `OtherWriterError`, `TableError`.
        """
        self._rows.add_columns(columns)
        to = Position(to.created, to.sequence, self._rows.position.writer, to.lost)
        if rejected.num_rows:
            self._rejected.append(rejected, to)
        self._rows.append(rows, to)
