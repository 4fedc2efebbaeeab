"""Reading back: history from the table, and from the server what came after it; no row twice.

A commit of the table says with which sequence it ends. The tail is what the stream has after that
sequence, turned into rows as the writer does it. The table is read first. While the tail is
read, a writer that archives may commit some of it and remove it from the stream; that shows in the
stream's first sequence, and all is read again with the newer commit.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from slipstream.tables.errors import StreamReplacedError, TableError, said
from slipstream.tables.layout import shaped
from slipstream.tables.parts import Part, Wanted
from slipstream.tables.positions import Position
from slipstream.tables.rows import RowMaker
from slipstream.tables.stream_table import StreamTable, body_columns, rejected_after
from slipstream.tables.writer import identity_of

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream, StreamInfo

log = logging.getLogger(__name__)

_TRIES_MAX = 20


class Cut(msgspec.Struct, frozen=True):
    """A table as of one commit, and the rows that its stream has after that commit's sequence.

    `tail` is None if there are none.
    """

    rows: Part
    wanted: Wanted
    tail: pa.Table | None

    @property
    def schema(self) -> pa.Schema:
        """All columns: those of the table, and what the tail has besides."""
        fields = {name: column.type for name, column in self.rows.columns().items()}
        for field in self.tail.schema if self.tail is not None else ():
            fields.setdefault(field.name, field.type)
        return pa.schema(list(fields.items()))


async def cut(js: "JetStream", table: StreamTable) -> Cut:
    """Where history ends and the tail begins; see `history_and_tail`."""
    rows, rejected = await asyncio.to_thread(table.read)
    stream = table.stream
    for _ in range(_TRIES_MAX):
        with said(table.name, "reading it"):
            position = rows.position(stream)
        if position is None or not position.created:
            raise TableError(
                f"table {table.name}: nothing of stream {stream} was written to it yet"
            )
        left_out = await asyncio.to_thread(rejected_after, rejected, stream, position)
        maker = await asyncio.to_thread(RowMaker, stream, body_columns(rows), table.options)
        try:
            tail = await _tail(js, table, position, maker, left_out)
        finally:
            await asyncio.to_thread(maker.close)
        first = (await js.stream_info(stream)).state.first_seq
        if first > position.sequence + 1:
            rows, rejected = await asyncio.to_thread(table.read)
            if rows.position(stream) != position:
                continue
            log.warning("stream %s: messages after %d are lost", stream, position.sequence)
        return Cut(rows, Wanted(stream), tail)
    raise TableError(
        f"table {table.name}: its writer archives faster than the tail is read; try again"
    )


async def history_and_tail(
    js: "JetStream", table: StreamTable, *, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """All rows of a stream: those in the table, then those that the stream has after them.

    The options of `table` are those of the writer; `columns` are the ones to read (all by default).
    The tail is in memory, the history is read from files as the reader is iterated. Messages of the
    tail that fit no row are left out, as the writer will do. Rows of other streams in the same
    table are not given. Raises `TableError`, `StreamReplacedError`.
    """
    found = await cut(js, table)
    schema = found.schema
    if columns is not None:
        missing = [name for name in columns if name not in schema.names]
        if missing:
            raise TableError(f"table {table.name} has no column {', '.join(missing)}")
        schema = pa.schema([schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, _rows(found, schema))


async def _tail(
    js: "JetStream",
    table: StreamTable,
    position: Position,
    maker: RowMaker,
    left_out: frozenset[int],
) -> pa.Table | None:
    """Rows of the messages after a position. Raises `StreamReplacedError`."""
    name, subjects = table.stream, list(table.options.subjects) or None
    stream = await js.stream(name)
    _check(await js.stream_info(name), position)
    columns = maker.scanned_columns()
    scan = stream.scan(position.sequence + 1, columns=columns, subjects=subjects)
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


def _rows(found: Cut, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    in_table = [name for name in schema.names if name in found.rows.columns()]
    for batch in found.rows.batches(found.wanted, in_table or ["_sequence"]):
        yield from shaped(pa.Table.from_batches([batch]), schema).to_batches()
    if found.tail is not None:
        yield from shaped(found.tail, schema).to_batches()
