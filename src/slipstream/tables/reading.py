"""Reading back: history from the table, and from the server what came after it; no row twice.

A snapshot of the table says with which sequence it ends. The tail is what the stream has after that
sequence, turned into rows as the writer does it. The snapshot is fixed first. While the tail is
read, a writer that archives may commit some of it and remove it from the stream; that shows in the
stream's first sequence, and all is read again with the newer snapshot.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyiceberg.table import Table

from slipstream.tables.catalogs import table_name_of
from slipstream.tables.errors import StreamReplacedError, TableError
from slipstream.tables.iceberg import (
    body_columns_of,
    column_in,
    rejected_after,
    rejected_name,
    rows_of,
    said,
)
from slipstream.tables.options import TableOptions
from slipstream.tables.positions import Position, position_of
from slipstream.tables.rows import RowMaker
from slipstream.tables.writer import identity_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from slipstream.client.jetstream import JetStream, StreamInfo

log = logging.getLogger(__name__)

_TRIES_MAX = 20


class Cut(msgspec.Struct, frozen=True):
    """A table as of one snapshot, and the rows that its stream has after that snapshot's sequence.

    `tail` is None if there are none.
    """

    table: Table
    snapshot: int
    tail: pa.Table | None


async def cut(
    js: "JetStream",
    stream: str,
    catalog: "Catalog",
    table: str,
    options: TableOptions | None = None,
) -> Cut:
    """Where history ends and the tail begins; see `history_and_tail`."""
    name = table_name_of(table)
    with said(table, "opening it"):
        found = await asyncio.to_thread(catalog.load_table, name)
        rejected = await asyncio.to_thread(catalog.load_table, rejected_name(name))
    for _ in range(_TRIES_MAX):
        position = position_of(found, stream)
        if position is None or not position.created:
            raise TableError(f"table {table}: nothing of stream {stream} was written to it yet")
        left_out = await asyncio.to_thread(rejected_after, rejected, stream, position)
        maker = RowMaker(stream, body_columns_of(found), options or TableOptions())
        tail = await _tail(js, stream, position, maker, left_out)
        first = (await js.stream_info(stream)).state.first_seq
        snapshot = found.metadata.current_snapshot_id
        assert snapshot is not None  # it says the position
        if first > position.sequence + 1:
            with said(table, "reading it"):
                found = await asyncio.to_thread(found.refresh)
                rejected = await asyncio.to_thread(rejected.refresh)
            if position_of(found, stream) != position:
                continue
            log.warning("stream %s: messages after %d are lost", stream, position.sequence)
        return Cut(found, snapshot, tail)
    raise TableError(f"table {table}: its writer archives faster than the tail is read; try again")


async def history_and_tail(
    js: "JetStream",
    stream: str,
    catalog: "Catalog",
    table: str,
    options: TableOptions | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatchReader:
    """All rows of a stream: those in the table, then those that the stream has after them.

    `options` are those of the writer; `columns` are the ones to read (all by default). The tail is
    in memory, the history is read from files as the reader is iterated. Messages of the tail that
    fit no row are left out, as the writer will do. Rows of other streams in the same table are not
    given. Raises `TableError`, `StreamReplacedError`.
    """
    found = await cut(js, stream, catalog, table, options)
    return _joined(found, stream, columns)


async def _tail(
    js: "JetStream", name: str, position: Position, maker: RowMaker, left_out: frozenset[int]
) -> pa.Table | None:
    """Rows of the messages after a position. Raises `StreamReplacedError`."""
    stream = await js.stream(name)
    _check(await js.stream_info(name), position)
    scan = stream.scan(position.sequence + 1, columns=maker.scanned_columns())
    made = [
        (await asyncio.to_thread(maker.make, [batch], position.created, left_out)).fitting
        async for batch in scan
    ]
    _check(await js.stream_info(name), position)
    return pa.concat_tables(made, promote_options="default") if made else None


def _check(info: "StreamInfo", position: Position) -> None:
    if identity_of(info) != position.created or info.state.last_seq < position.sequence:
        raise StreamReplacedError(
            f"stream {info.name} is not the one that the table was written from (of "
            f"{position.created}, up to sequence {position.sequence}): read the table by itself, "
            "or have its writer begin anew"
        )


def schema_of(found: Cut) -> pa.Schema:
    """All columns: those of the table, and what the tail has besides."""
    fields = {field.name: column_in(field).type for field in found.table.schema().fields}
    for field in found.tail.schema if found.tail is not None else ():
        fields.setdefault(field.name, field.type)
    return pa.schema(list(fields.items()))


def _joined(found: Cut, stream: str, wanted: Sequence[str] | None) -> pa.RecordBatchReader:
    """The table as of a snapshot and the tail as one reader."""
    schema = schema_of(found)
    if wanted is not None:
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            name = ".".join(found.table.name())
            raise TableError(f"table {name} has no column {', '.join(missing)}")
        schema = pa.schema([schema.field(name) for name in wanted])
    return pa.RecordBatchReader.from_batches(schema, _rows(found, stream, schema))


def _rows(found: Cut, stream: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    in_table = tuple(name for name in schema.names if name in found.table.schema().column_names)
    scan = found.table.scan(
        rows_of(stream),
        selected_fields=in_table or ("_sequence",),
        snapshot_id=found.snapshot,
    )
    for batch in scan.to_arrow_batch_reader():
        yield from shaped(pa.Table.from_batches([batch]), schema).to_batches()
    if found.tail is not None:
        yield from shaped(found.tail, schema).to_batches()


def shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly these columns; null where they have none."""
    made = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(made, schema=schema)
