"""`scan`: a stretch of a stream as Arrow record batches, as fast as the socket brings it.

    async for batch in stream.scan(start=1, subjects="orders.*"):
        frame = batch.to_pandas()

A scan is finite: it ends at `end`, or at what was the stream's last message when it began. It keeps
no position on the server. While a batch is being worked on the next one is under way; no more than
these two are held.

Where the stream allows direct gets, and one subject filter (or none) is asked for, batches are
batched direct gets, which any replica answers. Otherwise an ordered consumer is read. Both are read
the same way: every answer names the message before it, so that one which was lost on the
way shows and is read again; a broken connection, a server that does not answer and a consumer that
is gone cost one more request, from after the last row. Holes in the stream (deletes, limits,
expiry) are no loss: sequences rise, not always by one.

A `Reader` asks for one batch at a time into fresh columns, at an inbox of the request's own, so
that an answer that comes late cannot be taken for one of the next request.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import msgspec

from slipstream.client.arrow.batches import COLUMNS, arrow, flags_of, schema, take_batch
from slipstream.client.arrow.column_sink import (
    BEYOND,
    BROKEN,
    FULL,
    GAP,
    STATUS,
    WAITING,
    ColumnSink,
)
from slipstream.client.arrow.columns import MessageColumns
from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.api import delete_in_background, new_name
from slipstream.client.jetstream.errors import ApiError, BadPullRequestError, MaxBytesExceededError
from slipstream.client.jetstream.status import StatusMeaning, header_number, meaning_of
from slipstream.client.jetstream.stored import message_after
from slipstream.client.message import Message
from slipstream.extras import require
from slipstream.model.configurations import ConsumerConfig
from slipstream.model.durations import SECOND
from slipstream.model.header_names import NATS_LAST_SEQUENCE, NATS_NUM_PENDING
from slipstream.model.infos import StreamInfo
from slipstream.model.times import Timestamp, datetime_ns, datetime_text

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from slipstream.client.jetstream import JetStream
    from slipstream.client.subscriptions import SinkSubscription

PACKED_ROOM = 512 * 1024  # bytes that a message may have where packed answers are asked for
PULL_EXPIRES_SECONDS = 30
PULL_HEARTBEAT_SECONDS = 1
INACTIVE_SECONDS = 60.0


class Range(msgspec.Struct):
    """What is still to be read: sequences `next` to `last`, times before `time_end`.

    Until the first message has come the start may be a time (RFC 3339) instead.
    """

    last: int
    next: int = 1
    start_time: str = ""
    time_end: int = 2**63 - 1


class Reader:
    """Asks for batches of a range; what is common to both ways."""

    is_direct = False

    def __init__(self, js: "JetStream", stream: str, subjects: list[str], wanted: Range) -> None:
        self._js = js
        self._stream = stream
        self._subjects = subjects
        self._range = wanted
        self._rows = 0
        self._bytes = 0
        self._subscription: SinkSubscription | None = None
        self.sink: ColumnSink | None = None

    def limit(self, rows: int, size: int) -> None:
        """Bound batches to so many rows and bytes."""
        self._rows = rows
        self._bytes = size

    @property
    def is_at_end(self) -> bool:
        """Whether the last wanted message has come."""
        return self._range.next > self._range.last

    def advance(self, columns: MessageColumns) -> None:
        """Rows have come: go on after them."""
        if columns.rows:
            self._range.next = columns.sequence + 1
            self._range.start_time = ""

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch into `columns`."""
        raise NotImplementedError

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """What a status means: True, nothing is left; False, go on; None, something was lost.

        Raises `ApiError` for what asking again cannot help.
        """
        raise NotImplementedError

    def has_nothing_left(self, columns: MessageColumns) -> bool:
        """Whether the server said with the last row that nothing after it matches."""
        return columns.pending == 0

    async def is_exhausted(self) -> bool:
        """Nothing is left, it is said: whether that is so."""
        return True

    def restart(self) -> None:
        """Something was lost."""

    def stop(self) -> None:
        """Take no more answers of the request under way."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def close(self) -> None:
        """Read no more."""
        self.stop()

    async def _room(self) -> None:
        """Wait until a request can be sent. What came before it is kept: the wait may be
        cancelled."""
        if self._js.connection.write_buffer.crowded:
            await self._js.connection.write_buffer.room()

    def _send(self, subject: str, body: dict[str, object], inbox: str) -> None:
        """Send a request."""
        self._js.connection.publish_nowait(subject, msgspec.json.encode(body), reply=inbox)

    def _open(self, columns: MessageColumns, expected: int) -> str:
        """Let answers go to `columns`; the subject where they are to be sent."""
        columns.last_wanted = self._range.last
        columns.time_end = self._range.time_end
        columns.expected = expected
        columns.after = self._range.next - 1
        columns.ordered = not self.is_direct
        self.sink = ColumnSink(columns, self._rows, self._bytes, self.is_direct)
        inbox = self._js.connection.new_inbox()
        self._subscription = self._js.connection.open_sink(inbox, self.sink)
        return inbox


class DirectReader(Reader):
    """Reads by batched direct gets (docs/protocol/streams.md#direct-get)."""

    is_direct = True

    def __init__(self, js: "JetStream", stream: str, subjects: list[str], wanted: Range) -> None:
        super().__init__(js, stream, subjects, wanted)
        # Whether many messages may come in one answer. Servers on the way may take less than that
        # in one message, and the nearest is the one that says so.
        self._packs = js.connection.max_payload >= PACKED_ROOM

    def restart(self) -> None:
        """Something was lost, perhaps since a server on the way does not take answers so large."""
        if self.sink is not None and self.sink.outcome != BROKEN:
            self._packs = False

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch."""
        wanted = self._range
        rows = min(self._rows, wanted.last - wanted.next + 1)
        asked: dict[str, object] = {"batch": rows, "max_bytes": self._bytes}
        if self._packs:
            asked["packed"] = True
        if wanted.start_time:
            asked["start_time"] = wanted.start_time
        else:
            asked["seq"] = wanted.next
        if self._subjects:
            asked["next_by_subj"] = self._subjects[0]
        await self._room()
        inbox = self._open(columns, expected=0)
        self._send(f"{self._js.api.prefix}.DIRECT.GET.{self._stream}", asked, inbox)

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """204 ends a batch, 404 says that nothing is left."""
        code = status.status
        if code == 404:
            return True
        if code == 204:
            if header_number(status, NATS_LAST_SEQUENCE) != columns.expected:
                return None  # the last messages of the batch did not come
            if status.header(NATS_NUM_PENDING) == "0":
                return True
            return False if columns.rows else None  # nothing came though something is left
        if code == 503:
            return None  # between two leaders, or the stream is gone: the next try shows
        asked = f"scan of stream {self._stream!r}"
        raise ApiError(code, 0, status.description, asked)

    async def is_exhausted(self) -> bool:
        """A replica or mirror may lag behind: ask the leader whether something is left."""
        wanted = self._range
        if wanted.start_time or self.is_at_end:
            return True
        subject = self._subjects[0] if self._subjects else ">"
        found = await message_after(self._js, self._stream, subject, wanted.next - 1)
        return found is None or found.sequence > wanted.last


class ConsumerReader(Reader):
    """Reads by pulling from an ephemeral consumer without acknowledgements
    (docs/protocol/consumers.md#ordered-consumers)."""

    def __init__(self, js: "JetStream", stream: str, subjects: list[str], wanted: Range) -> None:
        super().__init__(js, stream, subjects, wanted)
        self._consumer = ""
        self._is_made = False  # the server has said so
        self._delivered = 0  # consumer sequence of the last message
        self._is_empty = False  # the consumer was made, and nothing matches

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch, of a new consumer if there is none."""
        if not self._consumer:
            await self._make_consumer()
        body: dict[str, object] = {
            "batch": self._rows,
            "max_bytes": self._bytes,
            "expires": PULL_EXPIRES_SECONDS * SECOND,
            "idle_heartbeat": PULL_HEARTBEAT_SECONDS * SECOND,
        }
        await self._room()
        inbox = self._open(columns, expected=self._delivered)
        if self._is_empty and self.sink is not None:
            self.sink.end(FULL)
            return
        subject = f"{self._js.api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._send(subject, body, inbox)

    async def _make_consumer(self) -> None:
        wanted = self._range
        config = ConsumerConfig(
            name=new_name(),
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=INACTIVE_SECONDS,
        )
        if wanted.start_time:
            config.deliver_policy = "by_start_time"
            config.opt_start_time = Timestamp.parse(wanted.start_time)
        else:
            config.deliver_policy = "by_start_sequence"
            config.opt_start_seq = wanted.next
        if len(self._subjects) == 1:
            config.filter_subject = self._subjects[0]
        else:
            config.filter_subjects = list(self._subjects)
        self._consumer = config.name
        self._is_made = False
        try:
            made = await self._js.create_consumer_raw(self._stream, config)
        except ApiError:
            self._consumer = ""
            raise
        except Exception:
            self.restart()
            raise
        self._is_made = True
        self._delivered = 0
        self._is_empty = made.num_pending == 0

    def advance(self, columns: MessageColumns) -> None:
        """Rows have come: the next one has the next number."""
        super().advance(columns)
        self._delivered = columns.expected

    def has_nothing_left(self, columns: MessageColumns) -> bool:
        """Whether the consumer had no message after the last row."""
        return self._is_empty or super().has_nothing_left(columns)

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """A request that ended early is followed by another; all else costs the consumer."""
        meaning, error = meaning_of(status, f"scan of stream {self._stream!r}")
        if meaning is StatusMeaning.DONE:
            return False if columns.rows else None
        if isinstance(error, MaxBytesExceededError):
            if not columns.rows:
                self._bytes *= 2  # a message alone is larger than that
            return False
        if isinstance(error, BadPullRequestError):
            raise error
        return None

    def restart(self) -> None:
        """Have another consumer made, which starts after the last row."""
        if self._consumer:
            delete_in_background(
                self._js, self._stream, self._consumer, is_being_made=not self._is_made
            )
        self._consumer = ""

    def close(self) -> None:
        """Read no more; the server forgets the consumer."""
        super().close()
        self.restart()


BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 65_536
"""Bounds of one batch, of which two are in memory at a time."""

_FAILURES_MAX = 5
_WAIT_SECONDS_MAX = 2.0


class Scan:
    """An iterator of `pyarrow.RecordBatch`; made by `Stream.scan`.

    Batches are never empty. Leave the iteration with ``async with`` or `close` if it may not be
    read to the end; `rows` and `sequence` say how far it has come.
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
        info: StreamInfo | None = None,
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
        self._info = info  # as it was just now; None: it is asked for
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
        info = self._info or await self._js.stream_info(self._stream)
        last = info.state.last_seq
        wanted = Range(last=last)
        if isinstance(self._end, int):
            wanted.last = min(last, self._end)
        elif self._end is not None:
            wanted.time_end = datetime_ns(self._end)
        if isinstance(self._start, int):
            wanted.next = max(self._start, info.state.first_seq, 1)
        else:
            wanted.start_time = datetime_text(self._start)
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
        """What the request under way has brought; asks for what comes after it."""
        reader = self._reader
        assert reader is not None
        sink = reader.sink
        assert sink is not None
        await sink.wait(self._js.timeout)
        while sink.outcome == WAITING and not self._js.connection.is_connected:
            await sink.wait(self._js.timeout)  # the request goes out with the next connection
        columns = sink.columns
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
        sink = reader.sink
        assert sink is not None
        reader.advance(sink.columns)
        outcome = sink.outcome
        if outcome == BEYOND or reader.is_at_end:
            return True
        nothing_left: bool | None = None
        if outcome == STATUS:
            assert sink.status is not None
            nothing_left = reader.meaning_of(sink.status, sink.columns)
        elif outcome == FULL:
            nothing_left = reader.has_nothing_left(sink.columns)
        if nothing_left is False:
            return False
        if nothing_left and await reader.is_exhausted():
            return True
        if outcome == BROKEN and sink.error is not None:
            raise sink.error
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
                f"scan of stream {self._stream!r} after sequence {self.sequence}: "
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
        # The iteration was dropped without `close`: nothing more is to be sent for it.
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
