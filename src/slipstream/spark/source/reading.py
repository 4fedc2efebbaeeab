"""How a task reads its part: a scan over a connection of its own, batch after batch.

A broken connection, a server that is killed and comes back, and messages lost on the way are the
scan's business; here progress is watched (`retryTimeout`), and losses are told from holes.
"""

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec
import uvloop

import slipstream.spark.earlier_markers as earlier_markers
import slipstream.spark.loss as loss
import slipstream.spark.workers as workers
from slipstream.client.errors import TimeoutError
from slipstream.spark.connections import connect, jetstream
from slipstream.spark.options import SourceOptions
from slipstream.spark.source.ranges import Part
from slipstream.spark.source.rows import RowMaker, scan_columns

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
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        batches = scan_part(part, columns, options)
        try:
            while True:
                try:
                    batch = runner.run(batches.__anext__())
                except StopAsyncIteration:
                    return
                yield rows.convert(batch, part.stream)
        finally:
            runner.run(batches.aclose())


async def scan_part(
    part: Part, columns: list[str], options: SourceOptions
) -> "AsyncGenerator[pyarrow.RecordBatch, None]":
    """The scanned batches of a part. Raises `DataLossError`."""
    connection = await connect(options, "spark-task", patient=True)
    async with connection:
        stream = await jetstream(connection, options).stream(part.stream)
        fail = options.fail_on_data_loss
        loss.tell(loss.find_loss(stream.cached_info, part.created, part.start, part.end), fail)
        if loss.is_another(stream.cached_info, part.created):
            await _report(connection, part, part.start, part.end - part.start)
            return
        has_markers = earlier_markers.may_have(stream.cached_info, filters=part.subjects)
        needed = ("sequence", "subject") if has_markers else ("sequence",)
        wanted = [*(name for name in needed if name not in columns), *columns]
        scan = stream.scan(
            start=part.start,
            end=part.end - 1,
            subjects=part.subjects or None,
            columns=wanted,
            batch_rows=options.fetch_messages,
            batch_bytes=options.fetch_bytes,
        )
        position = part.start
        async with scan:
            while True:
                batch = await _next(scan, options, part, position)
                if batch is None:
                    break
                sequences = batch.column("sequence")
                if sequences[0].as_py() > position:
                    lost = await _check(stream, part, position, sequences[0].as_py(), fail)
                    await _report(connection, part, position, lost)
                position = sequences[len(sequences) - 1].as_py() + 1
                if has_markers:
                    batch = _without_markers(batch, part.stream)
                if batch.num_rows:
                    yield batch
        lost = await _check(stream, part, position, part.end, fail)
        await _report(connection, part, position, lost)


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
