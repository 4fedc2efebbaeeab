"""What the two tables of a stream are made with, and in which partition a row belongs."""

from collections.abc import Mapping
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.tables.options import (
    MESSAGE_COLUMNS,
    MESSAGE_TIME,
    Column,
    TableOptions,
    column_of,
)

Partition = Literal["hour", "day", "month", "none"]

HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))
JSON_TEXT = "JSON text"
_JSON_TEXT = {b"comment": JSON_TEXT.encode()}
_MESSAGE_TYPES = ("string", "string", "long", "timestamp")
_REJECTED_TYPES = {"_created": "string", "reason": "string", "data": "binary"}
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows without a time
# How a partition is called where it is a column of its own, as in names of folders.
_NAMES = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


class Layout(msgspec.Struct, frozen=True):
    """The first columns of a table, and of which of them the time is that it is partitioned by."""

    columns: dict[str, Column]
    time: str
    partition: Partition


def rows_layout(options: TableOptions) -> Layout:
    """The table of the rows, before columns of bodies are added."""
    columns = _message_columns()
    if options.time != MESSAGE_TIME:
        columns[options.time] = column_of("timestamp")
    return Layout(columns, options.time, options.partition)


def rejected_layout(options: TableOptions) -> Layout:
    """The table of the messages that do not fit."""
    columns = _message_columns() | {n: column_of(kind) for n, kind in _REJECTED_TYPES.items()}
    return Layout(columns, MESSAGE_TIME, "none" if options.partition == "none" else "day")


def _message_columns() -> dict[str, Column]:
    named = zip(MESSAGE_COLUMNS, _MESSAGE_TYPES, strict=False)
    return {name: column_of(kind) for name, kind in named}


def partition_names(times: pa.ChunkedArray, partition: str) -> pa.ChunkedArray:
    """The partition of each time, such as 2026-11-26 of a day; null where there is no time."""
    return pc.strftime(times, format=_NAMES[partition])


def field_of(name: str, column: Column) -> pa.Field:
    """A column as Arrow has it, with what it keeps beside its type."""
    return pa.field(name, column.type, metadata=_JSON_TEXT if column.is_json else None)


def column_of_field(field: pa.Field) -> Column:
    """The column of an Arrow field."""
    return Column(plain(field.type), field.metadata == _JSON_TEXT)


def schema_of(columns: Mapping[str, Column]) -> pa.Schema:
    """Columns as a schema."""
    return pa.schema([field_of(name, column) for name, column in columns.items()])


def shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly these columns; null where they have none."""
    made = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(made, schema=schema)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without Arrow's large variants, in which libraries give small ones back.

    Nested values may be null: what a schema requires of them today, its next version may not.
    """
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    return kind
