"""The sink: rows of a DataFrame, batch or streaming, become messages of a stream.

    df.write.format("jetstream").mode("append").options(servers=url, stream="OUT", subject="out.x")
    df.writeStream.format("jetstream").options(servers=url, stream="OUT").start()

Writers are pickled and sent to the workers; each task has a connection of its own. When that
breaks, or a server goes away and comes back, the task goes on with what is not known to be stored,
until `retryTimeout` passes without progress.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
import uvloop
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import slipstream
from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError,
)
from slipstream.client.jetstream.errors import ApiError, PublishError
from slipstream.errors import ConfigError, Error
from slipstream.spark import exactly_once
from slipstream.spark.kv import KeyReader, key_columns
from slipstream.spark.publishing import Publisher
from slipstream.spark.sink_options import SinkOptions, check_sink
from slipstream.spark.sink_rows import Row, RowReader, sink_columns

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream

EXACTLY_ONCE, DEDUPLICATED, AT_LEAST_ONCE = "exactly-once", "deduplicated", "at-least-once"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RETRY_WAIT_SECONDS = 0.25
_PASSING = (
    PublishError,
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError,
)


@dataclass
class Written(WriterCommitMessage):
    """What a task did: rows taken, of these found to be stored before, and dead letters."""

    rows: int = 0
    found: int = 0
    dead: int = 0


class Task(msgspec.Struct, frozen=True):
    """Which attempt at which part of which write this is."""

    writer: str
    batch: int
    partition: int


class StreamSink:
    """What batch and streaming writers share. Raises `ConfigError` for what cannot work."""

    def __init__(self, schema: "StructType", options: SinkOptions, *, streaming: bool) -> None:
        check_sink(options)
        self._options = options
        bucket = options.bucket
        self._columns = key_columns(schema) if bucket else sink_columns(schema, options.subject)
        self._job = uuid.uuid4().hex
        if options.mode == EXACTLY_ONCE and not streaming and not options.writer_id:
            raise ConfigError(
                "jetstream: a batch write in mode exactly-once needs the option writerId: a name "
                "that is the same when the same rows are written again"
            )
        self.mode = asyncio.run(self._prepare(streaming))

    def run(self, batches: "Iterator[pyarrow.RecordBatch]", task: Task) -> Written:
        """Write the rows of one task."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._run(batches, task))

    def task(self) -> Task:
        """The task that runs here."""
        context = TaskContext.get()
        assert context is not None
        writer = self._options.writer_id or context.getLocalProperty(_QUERY_ID) or self._job
        batch = int(context.getLocalProperty(_BATCH_ID) or 0)
        return Task(writer, batch, context.partitionId())

    async def _prepare(self, streaming: bool) -> str:
        """The mode; and the stream's subjects have those of the markers."""
        options = self._options
        async with self._connected() as (_, js):
            if options.bucket:
                await js.key_value(options.bucket)
                return AT_LEAST_ONCE
            if not options.stream:
                return options.mode or DEDUPLICATED
            stream = await js.stream(options.stream)
            mode: str = options.mode
            if not mode:
                exact = streaming and not exactly_once.why_not(stream.config)
                mode = EXACTLY_ONCE if exact else DEDUPLICATED
            if mode == EXACTLY_ONCE:
                await exactly_once.prepare(stream, self._prefix)
            return mode

    @property
    def _prefix(self) -> str:
        return exactly_once.progress_prefix(self._options.stream, self._options.progress_prefix)

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[tuple[Connection, JetStream]]":
        options = self._options
        settings = options.connect_options("spark-sink")
        settings = msgspec.structs.replace(settings, wait_for_server=True)
        async with asyncio.timeout(options.retry_timeout):
            connection = await slipstream.connect(options.server_list, settings)
        async with connection:
            yield (
                connection,
                connection.jetstream(
                    domain=options.domain, max_ack_pending=options.max_ack_pending
                ),
            )

    async def _run(self, batches: "Iterator[pyarrow.RecordBatch]", task: Task) -> Written:
        options = self._options
        if options.bucket:
            rows: RowReader = KeyReader(self._columns, options.bucket)
        else:
            rows = RowReader(self._columns, options.subject)
        attempt = Attempt(self, task, rows)
        pending: list[Row] = []
        batch = next(batches, None)
        deadline = time.monotonic() + self._options.retry_timeout
        while True:
            reason: Exception | None = None
            try:
                async with self._connected() as (connection, js):
                    await attempt.begin(connection, js)
                    while True:
                        pending = await attempt.publish(pending)
                        if pending:
                            break
                        deadline = time.monotonic() + self._options.retry_timeout
                        if batch is None:
                            return await attempt.finish()
                        pending = list(rows.rows(batch))
                        batch = next(batches, None)
            except Error as error:
                if not _may_pass(error):
                    raise
                reason = error
            except OSError as error:
                reason = error
            if time.monotonic() > deadline:
                raise Error(
                    f"{task}: no progress for {self._options.retry_timeout:g} s"
                    f" ({reason or f'{len(pending)} rows not acknowledged'}): is the server there? "
                    "The option retryTimeout sets the wait"
                ) from reason
            await asyncio.sleep(_RETRY_WAIT_SECONDS)


def _may_pass(error: Error) -> bool:
    """Whether it is worth another attempt: the server is away, or not ready."""
    if isinstance(error, ApiError):
        return error.code == HTTPStatus.SERVICE_UNAVAILABLE
    return isinstance(error, _PASSING)


class Attempt:
    """One connection's worth of work on a task; begun anew on each connection."""

    def __init__(self, sink: StreamSink, task: Task, rows: RowReader) -> None:
        self._sink = sink
        self._task = task
        self._rows = rows
        self._written = Written()
        self._progress: exactly_once.Progress | None = None
        self._publisher: Publisher | None = None
        self._is_done = False

    async def begin(self, connection: "Connection", js: "JetStream") -> None:
        """Start on a connection: in mode exactly-once, take over the batch."""
        sink, task = self._sink, self._task
        self._publisher = Publisher(connection, js, sink._options)
        if sink.mode == EXACTLY_ONCE:
            stream = await js.stream(sink._options.stream)
            subject = f"{sink._prefix}.{task.writer}.{task.partition}"
            self._progress = exactly_once.Progress(js, stream, subject, task.writer)
            self._is_done = not await self._progress.begin(task.batch)

    async def publish(self, rows: list[Row]) -> list[Row]:
        """Publish what is not stored yet; what is in doubt is returned."""
        assert self._publisher is not None
        progress = self._progress
        if progress is not None:
            if self._is_done:
                self._written.found += len(rows)
                return []
            left = [row for row in rows if not progress.is_stored(row)]
            self._written.found += len(rows) - len(left)
            return await self._publisher.publish(left, progress.headers)
        return await self._publisher.publish(rows, self._headers)

    async def finish(self) -> Written:
        """All rows were published and acknowledged."""
        if self._progress is not None:
            if self._is_done:
                self._progress.check_same(self._task.batch, self._rows)
            else:
                await self._progress.finish(self._rows)
        assert self._publisher is not None
        self._written.rows = self._rows.count
        self._written.dead += self._publisher.dead
        return self._written

    def _headers(self, row: Row) -> "dict[str, str] | None":
        made = {}
        if row.message_id:
            made["Nats-Msg-Id"] = row.message_id
        elif self._sink.mode == DEDUPLICATED:
            task = self._task
            made["Nats-Msg-Id"] = f"{task.writer}.{task.batch}.{task.partition}.{row.identity}"
        if self._sink._options.stream:
            made["Nats-Expected-Stream"] = self._sink._options.stream
        return made or None


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream")`."""

    def __init__(self, schema: "StructType", options: SinkOptions) -> None:
        self.sink = StreamSink(schema, options, streaming=False)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one task."""
        return self.sink.run(iterator, self.sink.task())


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("jetstream")`."""

    def __init__(self, schema: "StructType", options: SinkOptions) -> None:
        self.sink = StreamSink(schema, options, streaming=True)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one task of a micro-batch."""
        return self.sink.run(iterator, self.sink.task())
