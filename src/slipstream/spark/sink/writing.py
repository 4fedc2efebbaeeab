"""The sink: rows of a DataFrame, batch or streaming, become messages of a stream.

    df.write.format("jetstream").mode("append").options(servers=url, stream="OUT", subject="out.x")
    df.writeStream.format("jetstream").options(servers=url, stream="OUT").start()

Writers are pickled and sent to the workers; each task has a connection of its own. When that
breaks, or a server goes away and comes back, the task goes on with what is not known to be stored,
until `retryTimeout` passes without progress.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import uvloop
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import slipstream.spark.markers as markers
import slipstream.spark.sink.exactly_once as exactly_once
import slipstream.spark.workers as workers
from slipstream.client.arrow.row_block import RowBlock
from slipstream.errors import ConfigError, Error
from slipstream.model.header_names import NATS_EXPECTED_STREAM, NATS_MSG_ID
from slipstream.spark.connections import (
    RETRY_WAIT_SECONDS,
    connect,
    is_worth_a_retry,
    patiently,
)
from slipstream.spark.planning import check_subjects
from slipstream.spark.sink.bucket_rows import KeyReader, key_columns
from slipstream.spark.sink.exactly_once import Task
from slipstream.spark.sink.options import SinkOptions, check_sink
from slipstream.spark.sink.presence import Presence, check_inboxes, some_subject
from slipstream.spark.sink.publishing import FencedError, Publisher
from slipstream.spark.sink.retried_rows import send_all_after_a_missing_one
from slipstream.spark.sink.rows import (
    Identity,
    RowReader,
    digest_of,
    place_columns,
    sink_columns,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream, Stream

log = logging.getLogger("slipstream.spark")

EXACTLY_ONCE, DEDUPLICATED, AT_LEAST_ONCE = "exactly-once", "deduplicated", "at-least-once"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
BLOCKS_BEHIND = 1


@dataclass
class Written(WriterCommitMessage):
    """What a task did: rows taken, of these found to be stored before, and dead letters.

    `low` and `high` are sums of the rows' digests; `earlier` is how many rows of the batch runs
    before this one have stored, `claimed` how many of them are among this task's.
    """

    rows: int = 0
    found: int = 0
    dead: int = 0
    task: Task | None = None
    low: int = 0
    high: int = 0
    earlier: int = 0
    claimed: int = 0


class StreamSink:
    """What batch and streaming writers share. Raises `ConfigError` for what cannot work."""

    def __init__(self, schema: "StructType", options: SinkOptions, *, streaming: bool) -> None:
        check_sink(options)
        self.options = options
        bucket = options.bucket
        self._columns = key_columns(schema) if bucket else sink_columns(schema, options.subject)
        self._place = None if bucket else place_columns(schema)
        self._job = uuid.uuid4().hex
        self._is_streaming = streaming
        if options.mode == EXACTLY_ONCE and not streaming and not options.writer_id:
            raise ConfigError(
                "jetstream: a batch write in mode exactly-once needs the option writerId: a name "
                "that is the same when the same rows are written again"
            )
        self.mode = ""
        self.subjects: list[str] = []  # of the stream, when the write begins
        self.mode = asyncio.run(patiently(lambda: self._prepare(streaming), options))
        self.identity = self._identity(streaming)
        if self.mode == DEDUPLICATED and self.identity == Identity.NONE:
            raise ConfigError(
                "jetstream: in mode deduplicated each row needs an identity that does not change "
                "when the batch is cut in another way: give the rows a column message_id, or the "
                "columns stream and sequence of the source they are read from; or take mode "
                "exactly-once or at-least-once"
            )
        is_weak = self.mode == AT_LEAST_ONCE and not (options.mode or bucket)
        log.log(
            logging.WARNING if is_weak else logging.INFO,
            "%s is written %s%s",
            bucket or options.stream or "what listens on the subjects",
            self.mode,
            ": a batch that is written again is there twice (option mode)" if is_weak else "",
        )

    def run(self, batches: "Iterator[pyarrow.RecordBatch]", task: Task) -> Written:
        """Write the rows of one task."""
        workers.spare()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._run(batches, task))

    def task(self) -> Task:
        """The task that runs here.

        A batch write within `foreachBatch` sees the query's properties too. Without a `writerId` it
        takes neither: a second write of that micro-batch would count as the first one again. With
        one, the number of the micro-batch tells the writes under that name apart.
        """
        context = TaskContext.get()
        assert context is not None
        # A bucket's rows need no name that outlives the query: an upsert may be repeated.
        name = "" if self.options.bucket else self.options.writer_id
        query = context.getLocalProperty(_QUERY_ID) if self._is_streaming else ""
        writer = name or query or self._job
        number = context.getLocalProperty(_BATCH_ID) if self._is_streaming or name else None
        batch = int(number or 0)
        run = f"{self._job[:12]}-{context.stageId()}"
        return Task(writer, batch, context.partitionId(), run)

    def commit(self, messages: "Sequence[Written | None]") -> None:
        """All tasks of a run are done. Raises `ChangedRowsError`, `FencedError`."""
        written = [message for message in messages if message is not None]
        task = next((message.task for message in written if message.task is not None), None)
        if task is None or not self.has_progress:
            return
        rows = sum(message.rows for message in written)
        digest = digest_of(sum(m.low for m in written), sum(m.high for m in written))
        earlier = max(message.earlier for message in written)
        missing = earlier - sum(message.claimed for message in written)
        if missing:
            raise exactly_once.ChangedRowsError(
                f"batch {task.batch} of {task.writer}: {missing} of {earlier} rows that an earlier "
                f"attempt has stored are not among the rows of this one. {exactly_once.WHAT_TO_DO}"
            )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(patiently(lambda: self._commit(task, rows, digest), self.options))

    async def _commit(self, task: Task, rows: int, digest: str) -> None:
        async with self._connected() as (_, js):
            writer = self.writer(js, await js.stream(self.target), task.writer)
            await writer.finish(task, rows, digest, is_checked=self.mode == EXACTLY_ONCE)
        await self._forget(task.writer)

    def abort(self) -> None:
        """A write has failed, and will not be tried again."""
        if self.has_progress:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(patiently(lambda: self._forget(self._job), self.options))

    async def _forget(self, writer: str) -> None:
        """Remove the progress of a write that has no name under which it could come again."""
        if writer == self._job:
            async with self._connected() as (_, js):
                known = self.writer(js, await js.stream(self.target), writer)
                await markers.forget(known.stream, known.subject)

    @property
    def target(self) -> str:
        """The stream that is written."""
        return f"KV_{self.options.bucket}" if self.options.bucket else self.options.stream

    @property
    def has_progress(self) -> bool:
        """Whether attempts put markers, so that a late one can add nothing."""
        return self.mode == EXACTLY_ONCE or bool(self.options.bucket)

    def writer(self, js: "JetStream", stream: "Stream", name: str) -> exactly_once.Writer:
        """The progress of a writer in the stream that is written."""
        return exactly_once.Writer(js, stream, self.options.progress_prefix, name)

    async def _prepare(self, streaming: bool) -> str:
        """The mode; where it needs one, there is a stream of markers."""
        options = self.options
        async with self._connected() as (connection, js):
            if options.bucket:
                await js.key_value(options.bucket)
                stream = await js.stream(self.target)
                self.subjects = list(stream.config.subjects or ())
                await markers.prepare(js, stream)
                await check_inboxes(connection)
                return AT_LEAST_ONCE
            if not options.stream:
                return options.mode or self._weaker_mode(streaming)
            stream = await js.stream(options.stream)
            self.subjects = list(stream.config.subjects or ())
            if options.subject:
                check_subjects([stream.cached_info], [options.subject])
            mode: str = options.mode
            if not mode:
                lasts = streaming or bool(options.writer_id)
                exact = lasts and not exactly_once.why_not(stream.config)
                mode = EXACTLY_ONCE if exact else self._weaker_mode(streaming)
            if mode == EXACTLY_ONCE:
                exactly_once.check(stream.config)
                await markers.prepare(js, stream)
                await check_inboxes(connection)
            return mode

    def _weaker_mode(self, streaming: bool) -> str:
        """The mode where exactly-once is not possible and the options name none."""
        found = self._lasting_identity(streaming)
        # Rows made of one message are told apart by content alone, which users have to ask for.
        safe = found in (Identity.MESSAGE_ID, Identity.TASK)
        return DEDUPLICATED if safe else AT_LEAST_ONCE

    def _lasting_identity(self, streaming: bool) -> Identity:
        """What identifies a row when its batch is written again."""
        if "message_id" in self._columns:
            return Identity.MESSAGE_ID
        # A batch write that has no name is never repeated: only its tasks are, each with its rows.
        if not streaming and not self.options.writer_id:
            return Identity.TASK
        return Identity.NONE if self._place is None else Identity.PLACE

    def _identity(self, streaming: bool) -> Identity:
        if self.mode == EXACTLY_ONCE:
            return Identity.CONTENT
        return self._lasting_identity(streaming) if self.mode == DEDUPLICATED else Identity.NONE

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[tuple[Connection, JetStream]]":
        """A connection that ends when it breaks: the attempt goes on over another one."""
        options = self.options
        name = f"spark-sink {self.mode}".rstrip()  # the server's monitoring shows it
        found = await connect(options, name, patient=True, lasting=False)
        async with found as connection:
            yield (
                connection,
                connection.jetstream(
                    domain=options.domain, max_ack_pending=options.max_ack_pending
                ),
            )

    def reader(self, task: Task) -> RowReader:
        """What takes the rows of a task out of batches."""
        options = self.options
        if options.bucket:
            return KeyReader(self._columns, options.bucket)
        return RowReader(self._columns, options.subject, task.writer, self.identity, self._place)

    def scope(self, task: Task) -> str:
        """Within what the identities of rows are unique."""
        scope = f"{task.writer}.{task.batch}"
        return f"{scope}.{task.partition}" if self.identity == Identity.TASK else scope

    async def _run(self, batches: "Iterator[pyarrow.RecordBatch]", task: Task) -> Written:
        rows = self.reader(task)
        attempt = Attempt(self, task, rows)
        # Spark's batches are awaited in a thread, so that the attempt answers who asks for it.
        batch = await asyncio.to_thread(next, batches, None)
        has_ended = batch is None
        if batch is not None:
            attempt.subject = rows.first_subject(batch)
        deadline = time.monotonic() + self.options.retry_timeout
        while True:
            reason: Exception | None = None
            try:
                async with self._connected() as (connection, js):
                    await attempt.begin(connection, js)
                    while attempt.error is None:
                        deadline = time.monotonic() + self.options.retry_timeout
                        if batch is not None:
                            blocks, batch = list(rows.rows(batch)), None
                            await attempt.publish(blocks, behind=BLOCKS_BEHIND)
                        elif has_ended:
                            if await attempt.settle(0):
                                return await attempt.finish()
                        else:
                            batch = await asyncio.to_thread(next, batches, None)
                            has_ended = batch is None
                    reason = attempt.error
            except (Error, OSError) as error:
                if not is_worth_a_retry(error):
                    raise
                reason = error
            attempt.check_present()
            if time.monotonic() > deadline:
                raise Error(
                    f"{task}: no progress for {self.options.retry_timeout:g} s"
                    f" ({reason or 'rows are not acknowledged'}): is the server there? "
                    "The option retryTimeout sets the wait"
                ) from reason
            await asyncio.sleep(RETRY_WAIT_SECONDS)


class Attempt:
    """The work on a task. `begin` is called anew on each connection."""

    def __init__(self, sink: StreamSink, task: Task, rows: RowReader) -> None:
        self._sink = sink
        self._task = task
        self._rows = rows
        self._written = Written(task=task)
        self._progress: exactly_once.Progress | None = None
        if sink.has_progress:
            finds = sink.mode == EXACTLY_ONCE
            self._progress = exactly_once.Progress(task, sink.options.retry_timeout, finds=finds)
        self._presence = Presence()
        self.subject = ""  # of the first row
        self._publisher: Publisher | None = None
        self._is_done = False
        self._refused: dict[int, Exception | None] = {}
        # Blocks that wait for acknowledgements: the number of the first row, the block, and a
        # sequence that all its rows are stored above.
        self._pending: deque[tuple[int, RowBlock, int]] = deque()
        self._floor = 0

    @property
    def error(self) -> Exception | None:
        """Why the connection is no good any more."""
        return self._publisher.error if self._publisher is not None else None

    def check_present(self) -> None:
        """Raise `FencedError` if a later attempt has asked this one to go."""
        if self._presence.was_asked:
            raise FencedError(f"{self._task}: another attempt has taken over; this one ends")

    async def begin(self, connection: "Connection", js: "JetStream") -> None:
        """Start on a connection: where there is progress, take over the partition."""
        sink, task, progress = self._sink, self._task, self._progress
        options = sink.options
        lines = f"{NATS_EXPECTED_STREAM}: {options.stream}\r\n".encode() if options.stream else b""
        label = b""
        if sink.mode == DEDUPLICATED:
            label = f"{NATS_MSG_ID}: {sink.scope(task)}.".encode()
        if progress is not None:
            await self._presence.connect(connection)
            stream = await js.stream(sink.target)
            again = progress.is_recalled
            writer = sink.writer(js, stream, task.writer)
            subjects = [self.subject, some_subject(stream)]
            self._is_done = not await progress.begin(writer, self._presence, subjects)
            if again and not self._is_done:
                floor = self._pending[0][2] if self._pending else self._highest()
                await progress.resume(floor, [block for _, block, _ in self._pending])
                known = progress.floor  # up to here all is known, and what follows comes after it
                self._pending = deque((first, block, known) for first, block, _ in self._pending)
            label = progress.label if sink.mode == EXACTLY_ONCE else b""
            self._floor = max(self._floor, progress.floor)
        self._publisher = Publisher(
            connection, js, options, lines, label,
            subjects=sink.subjects,
            task=f"{task.writer}.{task.batch}.{task.partition}",
            refused=self._refused,
        )  # fmt: skip
        if self._is_done:
            self._pending.clear()
        for _, block, _ in self._pending:
            block.send_again()
        if options.bucket:
            send_all_after_a_missing_one(block for _, block, _ in self._pending)
        for _, block, _ in self._pending:
            await self._publisher.send(block)

    async def publish(self, blocks: "list[tuple[int, RowBlock]]", behind: int = 0) -> bool:
        """Publish what is not stored yet; False if the connection is no good any more.

        The last `behind` blocks are left to be acknowledged while others are sent.
        """
        assert self._publisher is not None
        self.check_present()
        for first, block in blocks:
            if self._is_done:
                self._written.found += block.count
                continue
            self._pending.append((first, block, self._highest()))
            if self._progress is not None:
                self._written.found += await self._progress.leave_out(block)
            await self._publisher.send(block)
        return await self.settle(behind if self._publisher.is_ordered else 0)

    async def settle(self, behind: int) -> bool:
        """Await acknowledgements of all but the last `behind` blocks.

        Where rows were sent again, a settled block may have higher sequences than one that is not:
        so such blocks are kept until all are settled, for a later connection to count them.
        """
        publisher = self._publisher
        assert publisher is not None
        kept = 0
        while len(self._pending) > (behind if publisher.is_ordered else kept):
            first, block, _ = self._pending[kept]
            if not await publisher.settle(first, block):
                return False
            self._floor = self._highest()
            if not publisher.is_ordered:
                kept += 1
                continue
            self._pending.popleft()
            if self._pending:
                first, later, floor = self._pending[0]
                self._pending[0] = first, later, max(floor, block.sequence)
        if kept:
            self._pending.clear()
        return True

    def _highest(self) -> int:
        """The highest sequence that was acknowledged."""
        return max(self._floor, *(block.sequence for _, block, _ in self._pending), 0)

    async def finish(self) -> Written:
        """All rows were published and acknowledged."""
        progress, written, rows = self._progress, self._written, self._rows
        if progress is not None:
            if self._is_done:
                progress.check_same(rows)
            else:
                await progress.finish(rows)
            written.earlier, written.claimed = progress.earlier, progress.claimed
        written.rows, written.low, written.high = rows.count, rows.low, rows.high
        written.dead = sum(reason is None for reason in self._refused.values())
        return written


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("jetstream")`."""

    def __init__(self, schema: "StructType", options: SinkOptions) -> None:
        self.sink = StreamSink(schema, options, streaming=False)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one task."""
        return self.sink.run(iterator, self.sink.task())

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """All tasks are done."""
        self.sink.commit(cast("list[Written | None]", messages))

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """The write has failed."""
        self.sink.abort()


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("jetstream")`."""

    def __init__(self, schema: "StructType", options: SinkOptions) -> None:
        self.sink = StreamSink(schema, options, streaming=True)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        """Write the rows of one task of a micro-batch."""
        return self.sink.run(iterator, self.sink.task())

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """All tasks of a micro-batch are done."""
        self.sink.commit(cast("list[Written | None]", messages))
