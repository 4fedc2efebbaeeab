"""`scan`: a stretch of a stream as Arrow record batches, as fast as the socket brings it.

    async for batch in stream.scan(start=1, subjects="orders.*"):
        frame = batch.to_pandas()

A scan is finite: it ends at `end`, or at what was the stream's last message when it began. It keeps
no position on the server. While a batch is being worked on the next one is under way; no more than
these two are held.

Where the stream allows direct gets, and one subject filter (or none) is asked for, batches are
batched direct gets, which any replica answers. Otherwise an ordered consumer is read. Both are read
the same way: every answer tells which message stands before it, so that one which was lost on the
way shows and is read again; a broken connection, a server that falls silent and a consumer that is
gone cost one more request, from behind the last row. Holes in the stream (deletes, limits, expiry)
are no loss: sequences rise, not always by one.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from slipstream.client.arrow.batches import COLUMNS, arrow, flags_of, require, schema, take_batch
from slipstream.client.arrow.columns import MessageColumns
from slipstream.client.arrow.gather import BEYOND, BROKEN, FULL, GAP, STATUS, WAITING
from slipstream.client.arrow.reads import ConsumerReader, DirectReader, Range, Reader
from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.model import time_to_wire

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from slipstream.client.jetstream import JetStream

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 65_536
"""Bounds of one batch, of which two are in memory at a time."""

_FAILURES_MAX = 5
_WAIT_SECONDS_MAX = 2.0


class Scan:
    """An iterator of `pyarrow.RecordBatch`; made by `Stream.scan`.

    Batches are never empty. Leave the iteration with ``async with`` or `close` if it may not be
    read to the end; `rows` and `sequence` tell how far it has come.
    """

    def __init__(
        self,
        js: "JetStream",
        stream: str,
        *,
        start: "int | datetime" = 1,
        end: "int | datetime | None" = None,
        subjects: "str | Iterable[str] | None" = None,
        columns: Iterable[str] = COLUMNS,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        if batch_rows < 1 or batch_bytes < 1:
            raise ValueError("scan: batch_rows and batch_bytes are 1 or more")
        wanted = tuple(columns)
        self._js = js
        self._stream = stream
        self._start = start
        self._end = end
        self._subjects = [subjects] if isinstance(subjects, str) else list(subjects or ())
        self._flags = flags_of(wanted)
        self._schema = schema(wanted)
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._reader: Reader | None = None
        self._is_done = False
        self._failures = 0
        self.rows = 0
        self.sequence = 0

    @property
    def schema(self) -> "pyarrow.Schema":
        """The schema of every batch."""
        return self._schema

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "pyarrow.RecordBatch":
        if self._reader is None and not self._is_done:
            await self._begin()
        while not self._is_done:
            columns = await self._next_columns()
            if columns is not None and columns.rows:
                self.rows += columns.rows
                return take_batch(columns, self._schema)
        self.close()
        raise StopAsyncIteration

    async def to_table(self) -> "pyarrow.Table":
        """All the rest as one table."""
        async with self:
            batches = [batch async for batch in self]
        return arrow().Table.from_batches(batches, schema=self._schema)

    async def to_pandas(self) -> "pandas.DataFrame":
        """All the rest as a pandas frame. Raises `MissingPackageError` without pandas."""
        require("pandas")
        return (await self.to_table()).to_pandas()

    async def to_polars(self) -> "polars.DataFrame":
        """All the rest as a polars frame. Raises `MissingPackageError` without polars."""
        made = require("polars").from_arrow(await self.to_table())
        return cast("polars.DataFrame", made)

    # -- beginning -----------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Fix the range, and ask for the first batch. Raises `StreamNotFoundError`."""
        info = await self._js.stream_info(self._stream)
        last = info.state.last_seq
        wanted = Range(last=last)
        if isinstance(self._end, int):
            wanted.last = min(last, self._end)
        elif self._end is not None:
            wanted.time_end = _nanoseconds(self._end)
        if isinstance(self._start, int):
            wanted.next = max(self._start, info.state.first_seq, 1)
        else:
            wanted.start_time = time_to_wire(self._start)
        if not info.state.messages or wanted.next > wanted.last:
            self._is_done = True
            return
        is_direct = info.config.allow_direct and len(self._subjects) <= 1
        kind = DirectReader if is_direct else ConsumerReader
        reader = kind(self._js, self._stream, self._subjects, wanted)
        reader.limit(self._batch_rows, self._batch_bytes)
        try:
            await reader.request(MessageColumns(self._flags))
        except BaseException:
            reader.close()
            raise
        self._reader = reader

    # -- batch after batch ---------------------------------------------------------------------

    async def _next_columns(self) -> MessageColumns | None:
        """What the request under way has brought; asks for what comes behind it."""
        reader = self._reader
        assert reader is not None
        gathered = reader.gathered
        assert gathered is not None
        await gathered.wait(self._js.timeout)
        while gathered.outcome == WAITING and not self._js.connection.is_connected:
            await gathered.wait(self._js.timeout)  # the request goes out with the next connection
        columns = gathered.columns
        reader.stop()
        if columns.rows:
            self.sequence = columns.sequence
            self._failures = 0
        if await self._is_over(reader):
            self._is_done = True
        else:
            await reader.request(MessageColumns(self._flags))
        return columns

    async def _is_over(self, reader: Reader) -> bool:
        """Whether the range has been read; if something went wrong, wait a moment."""
        gathered = reader.gathered
        assert gathered is not None
        reader.advance(gathered.columns)
        outcome = gathered.outcome
        if outcome == BEYOND or reader.is_behind_end:
            return True
        nothing_left: bool | None = None
        if outcome == STATUS:
            assert gathered.status is not None
            nothing_left = reader.meaning_of(gathered.status, gathered.columns)
        elif outcome == FULL:
            nothing_left = reader.has_nothing_left(gathered.columns)
        if nothing_left is False:
            return False
        if nothing_left and await reader.is_exhausted():
            return True
        if outcome == BROKEN and gathered.error is not None:
            raise gathered.error
        await self._after_failure(reader, outcome)
        return False

    async def _after_failure(self, reader: Reader, outcome: int) -> None:
        """Something was lost: ask again, at once the first time, later after a while."""
        reader.restart()
        if outcome == BROKEN:
            return
        self._failures += 1
        if self._failures > _FAILURES_MAX:
            names = {WAITING: "the server is silent", GAP: "messages are lost on the way"}
            raise TimeoutError(
                f"scan of stream {self._stream!r} behind sequence {self.sequence}: "
                f"{names.get(outcome, 'the server does not answer as asked')}, {_FAILURES_MAX} "
                "times in a row"
            )
        await asyncio.sleep(min(0.05 * (2**self._failures - 2), _WAIT_SECONDS_MAX))
        if outcome == STATUS:
            await self._js.stream_info(self._stream)  # raises if the stream is gone

    def close(self) -> None:
        """Read no more."""
        self._is_done = True
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __del__(self) -> None:
        # Whoever left an iteration without a word: nothing more is to be sent for it.
        reader: Reader | None = getattr(self, "_reader", None)
        if reader is not None and not self._js.connection.loop.is_closed():
            self._js.connection.loop.call_soon_threadsafe(reader.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _nanoseconds(moment: datetime) -> int:
    """Nanoseconds since the epoch; a time without a zone is local, as everywhere in Python."""
    seconds = int(moment.replace(microsecond=0).timestamp())
    nanosecond: int = getattr(moment, "nanosecond", 0)
    return seconds * 1_000_000_000 + moment.microsecond * 1000 + nanosecond
