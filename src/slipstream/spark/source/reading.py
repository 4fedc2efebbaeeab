"""How a task reads its part: a scan over its worker's connection, batch after batch.

A connection that breaks while messages come, and messages lost on the way, are the scan's business.
Here progress is watched, and losses are told from holes. A request that a server has not answered,
because it was killed or leads its group no more, is made again after the last row, until
`retryTimeout` has passed without a row.
"""

import asyncio
import builtins
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

import slipstream.spark.earlier_markers as earlier_markers
import slipstream.spark.loss as loss
import slipstream.spark.workers as workers
from slipstream.client.errors import TimeoutError
from slipstream.errors import Error
from slipstream.spark.connections import RETRY_WAIT_SECONDS, jetstream, may_pass
from slipstream.spark.options import SourceOptions
from slipstream.spark.source.ranges import Part
from slipstream.spark.source.rows import RowMaker, scan_columns
from slipstream.spark.source.task_connection import TaskConnection, task_connection

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from slipstream.client import Connection
    from slipstream.client.jetstream import Stream


def read_part(
    part: Part, schema: "StructType", options: SourceOptions
) -> "Iterator[pyarrow.RecordBatch]":
    """The rows of a part. Two fetches are in memory at a time."""
    rows = RowMaker(schema, options.key_token)
    workers.spare()
    columns = scan_columns(schema.fieldNames())
    with task_connection(options) as worker:
        batches = scan_part(part, columns, options, worker)
        try:
            while True:
                try:
                    batch = worker.run(batches.__anext__())
                except StopAsyncIteration:
                    break
                yield rows.convert(batch, part.stream)
        finally:
            worker.run(batches.aclose())


async def scan_part(
    part: Part, columns: list[str], options: SourceOptions, worker: TaskConnection
) -> "AsyncGenerator[pyarrow.RecordBatch, None]":
    """The scanned batches of a part. Raises `DataLossError`."""
    reader = PartReader(part, columns, options)
    deadline = time.monotonic() + options.retry_timeout
    connection = await worker.opened()
    while True:
        try:
            async with aclosing(reader.batches(connection)) as batches:
                async for batch in batches:
                    yield batch
                    deadline = time.monotonic() + options.retry_timeout
            return
        except Error as error:
            if not may_pass(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_WAIT_SECONDS)


class PartReader:
    """Reads a part from where it stands: `batches` may be begun again after an error."""

    def __init__(self, part: Part, columns: list[str], options: SourceOptions) -> None:
        self._part = part
        self._columns = columns
        self._options = options
        self._position = part.start

    async def batches(
        self, connection: "Connection"
    ) -> "AsyncGenerator[pyarrow.RecordBatch, None]":
        """The batches that have not been given yet. Raises `DataLossError`."""
        from slipstream.client.arrow.scan import Scan  # not for who only plans

        part, options, columns = self._part, self._options, self._columns
        js = jetstream(connection, options)
        stream = await js.stream(part.stream)
        fail, info = options.fail_on_data_loss, stream.cached_info
        loss.tell(loss.find_loss(info, part.created, self._position, part.end), fail)
        if loss.is_another(info, part.created):
            await _report(connection, part, self._position, part.end - self._position)
            return
        has_markers = earlier_markers.may_have(info, filters=part.subjects)
        needed = ("sequence", "subject") if has_markers else ("sequence",)
        wanted = [*(name for name in needed if name not in columns), *columns]
        scan = Scan(
            js,
            part.stream,
            info=info,
            start=self._position,
            end=part.end - 1,
            subjects=part.subjects or None,
            columns=wanted,
            batch_rows=options.fetch_messages,
            batch_bytes=options.fetch_bytes,
        )
        async with scan:
            while True:
                batch = await _next(scan, options, part, self._position)
                if batch is None:
                    break
                sequences = batch.column("sequence")
                if sequences[0].as_py() > self._position:
                    await self._account_for(connection, stream, sequences[0].as_py())
                self._position = sequences[len(sequences) - 1].as_py() + 1
                if has_markers:
                    batch = _without_markers(batch, part.stream)
                if batch.num_rows:
                    yield batch
        await self._account_for(connection, stream, part.end)

    async def _account_for(self, connection: "Connection", stream: "Stream", end: int) -> None:
        """Tell what is lost of the messages from where it stands to before `end`."""
        fail = self._options.fail_on_data_loss
        lost = await _check(stream, self._part, self._position, end, fail)
        await _report(connection, self._part, self._position, lost)


def _without_markers(batch: "pyarrow.RecordBatch", stream: str) -> "pyarrow.RecordBatch":
    """The rows but for markers that an earlier version of the sink has put among them."""
    import pyarrow.compute as pc

    prefix = f"{earlier_markers.prefix_of(stream)}."
    return batch.filter(pc.invert(pc.starts_with(batch.column("subject"), prefix)))


async def _next(
    scan: "AsyncIterator[pyarrow.RecordBatch]", options: SourceOptions, part: Part, position: int
) -> "pyarrow.RecordBatch | None":
    try:
        async with asyncio.timeout(options.retry_timeout):
            return await anext(scan, None)
    except TimeoutError:
        raise  # the scan has given up, and says why
    except builtins.TimeoutError as error:
        raise TimeoutError(
            f"{part}: nothing came for {options.retry_timeout:g} s at sequence {position}: is the "
            "server there? The option retryTimeout sets the wait"
        ) from error


async def _check(stream: "Stream", part: Part, start: int, end: int, fail: bool) -> int:
    """How many messages of a hole from `start` to before `end` are lost: those that the stream's
    front has overtaken."""
    lost = loss.find_loss(await stream.info(), part.created, start, end)
    loss.tell(lost, fail)
    return 0 if lost is None else lost.messages


async def _report(connection: "Connection", part: Part, start: int, lost: int) -> None:
    """Let the query count what was lost; it hears of it before Spark hears of the task's end."""
    if not lost or not part.report_to:
        return
    report = loss.LossReport(part.stream, start, lost)
    await connection.publish(part.report_to, msgspec.json.encode(report))
    await connection.flush()
