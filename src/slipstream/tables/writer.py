"""`TableWriter`: reads a stream in Arrow batches and commits its rows to tables, exactly once.

    writer = TableWriter(js, stream_table("warehouse", "orders", "ORDERS"))
    await writer.write_all()      # what the stream holds now
    await writer.run()            # and what comes, until it is cancelled

While one chunk of rows is being committed, in a thread, the next one is gathered. A chunk ends
after `commit_seconds`, or earlier when it is large. Before each commit the stream is asked whether
it is still the one that was read.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from slipstream.client.arrow.scan import BATCH_ROWS
from slipstream.client.errors import (
    ConnectError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError,
)
from slipstream.client.jetstream.errors import ApiError, JetStreamNotEnabledError
from slipstream.errors import Error
from slipstream.model.times import datetime_text
from slipstream.schemas import RegistryError
from slipstream.tables.errors import StreamReplacedError
from slipstream.tables.positions import Position
from slipstream.tables.rows import RowMaker, Rows
from slipstream.tables.stream_table import StreamTable

if TYPE_CHECKING:
    import pyarrow as pa

    from slipstream.client.jetstream import JetStream, StreamInfo

T = TypeVar("T")

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_RETRY_WAIT_SECONDS = 0.25
_PASSING = (ConnectionLostError, NoRespondersError, TimeoutError)
_REGISTRY_AWAY = (*_PASSING, ConnectError, RegistryError)


class Progress(msgspec.Struct):
    """How far a writer has come.

    sequence: everything up to here is committed. stream_last: the stream's last sequence when it
    was last looked at. rows, rejected, commits: what this writer has added. lost: messages that
    were gone from the stream before anybody read them, at most, since the table was begun.
    archived: messages that were removed from the stream because the table has them.
    """

    sequence: int = 0
    stream_last: int = 0
    rows: int = 0
    rejected: int = 0
    commits: int = 0
    lost: int = 0
    archived: int = 0


class _Chunk:
    """Messages that are committed together."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.size = 0
        self.last = 0
        self.begun = 0.0

    def add(self, batch: "pa.RecordBatch", now: float) -> None:
        """Take in a batch."""
        self.begun = self.begun if self.batches else now
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes
        self.last = batch.column("sequence")[-1].as_py()


class TableWriter:
    """Writes the stream of a `StreamTable` into its tables, as the options of the tables say.

    `on_commit` is called after each commit, in the event loop. Raises `StreamReplacedError` when
    the stream is another one than was written, `OtherWriterError` when another writer has taken
    over, `TableError` when a table cannot be written, and what the client raises when the server
    has been away for `retry_seconds`. After any of these, and after any crash, another writer goes
    on where the table ends.
    """

    def __init__(
        self,
        js: "JetStream",
        table: StreamTable,
        on_commit: Callable[[Progress], None] | None = None,
    ) -> None:
        self._js = js
        self._name = table.stream
        self._table = table
        self._options = table.options
        self._on_commit = on_commit
        self._read_to = 0
        self._position = Position()
        self._left_out: frozenset[int] = frozenset()
        self.progress = Progress()

    async def write_all(self) -> Progress:
        """Write what the stream holds now, and return."""
        await self._write(forever=False)
        return self.progress

    async def run(self) -> None:
        """Write what the stream holds and what comes, until cancelled; a begun commit is ended."""
        await self._write(forever=True)

    # -- beginning -----------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Take the tables over, and find where to go on."""
        info = await self._patient_info(is_first=True)
        found = await asyncio.to_thread(self._table.open)
        created = identity_of(info)
        if found is None:
            found = Position(created=created)
            begins = True
        else:
            begins = self._begins_anew(info, found)
            if begins:
                found = Position(created=created, lost=found.lost)
        self._position = found
        self._read_to = found.sequence
        if begins and info.state.first_seq > 0:
            self._read_to = info.state.first_seq - 1  # what was never here is not lost
        self.progress.sequence = found.sequence
        self.progress.lost = found.lost
        self._left_out = await asyncio.to_thread(self._table.rejected_after, found)
        self._maker = await asyncio.to_thread(
            RowMaker, self._name, self._table.body_columns(), self._options
        )

    def _begins_anew(self, info: "StreamInfo", found: Position) -> bool:
        """Whether to begin with the first message. Raises `StreamReplacedError`."""
        now = identity_of(info)
        if now != found.created:
            what = f"was made anew at {now}; the table was written from the one of {found.created}"
        elif info.state.last_seq < found.sequence:
            what = (
                f"ends at {info.state.last_seq}, and the table has it up to {found.sequence}: an "
                "older state has replaced it"
            )
        else:
            return False
        if self._options.begin_anew and now != found.created:
            log.warning("stream %s %s; beginning anew", self._name, what)
            return True
        raise StreamReplacedError(
            f"stream {self._name} {what}. To add a stream that was made anew to the same table, "
            "begin anew (begin_anew, --begin-anew); or choose another table"
        )

    async def _info(self) -> "StreamInfo":
        info = await self._js.stream_info(self._name)
        self.progress.stream_last = info.state.last_seq
        return info

    # -- reading -------------------------------------------------------------------------------

    async def _batches(self) -> "AsyncGenerator[pa.RecordBatch | None, None]":
        """Batches from where reading stands; None when there is nothing more at the moment.

        While the server is away it is asked again, for up to `retry_seconds`.
        """
        now = asyncio.get_running_loop().time
        heard = now()
        wanted: dict[str, Any] = {
            "columns": self._maker.scanned_columns(),
            "subjects": list(self._options.subjects) or None,
            "batch_rows": min(BATCH_ROWS, self._options.commit_rows),
        }
        while True:
            try:
                info = await self._info_for_reading()
                self._check(info)
                stream = await self._js.stream(self._name)
                async with stream.scan(self._read_to + 1, **wanted) as scan:
                    async for batch in scan:
                        self._read_to = scan.sequence
                        yield batch
                        heard = now()  # a commit may have taken its time
                self._read_to = max(self._read_to, info.state.last_seq)
                heard = now()
            except Error as error:
                if not _may_pass(error) or now() - heard > self._options.retry_seconds:
                    raise
                await asyncio.sleep(_RETRY_WAIT_SECONDS)
            yield None

    async def _info_for_reading(self) -> "StreamInfo":
        """The stream's info; messages that are gone before they were read are counted."""
        info = await self._info()
        gone = info.state.first_seq - 1 - self._read_to
        if gone > 0:
            self.progress.lost += gone
            self._read_to = info.state.first_seq - 1
            log.warning(
                "stream %s: up to %d messages before sequence %d are lost: they were removed "
                "before they were read",
                self._name,
                gone,
                info.state.first_seq,
            )
        return info

    def _check(self, info: "StreamInfo") -> None:
        """Raise `StreamReplacedError` if this is not the stream that we read."""
        if identity_of(info) != self._position.created or info.state.last_seq < self._read_to:
            raise StreamReplacedError(
                f"stream {self._name} was made anew, or an older state has replaced it, while it "
                f"was read; the table has the old one up to sequence {self._position.sequence}"
            )

    async def _gather(
        self,
        batches: "AsyncGenerator[pa.RecordBatch | None, None]",
        forever: bool,
        commit: "asyncio.Task[None] | None",
    ) -> _Chunk:
        """What is committed next; without rows if the stream has ended and that is enough.

        Raises what the `commit` under way raises.
        """
        options = self._options
        now = asyncio.get_running_loop().time
        chunk = _Chunk()
        while True:
            if commit is not None and commit.done():
                commit.result()
            batch = await anext(batches)
            if batch is not None:
                chunk.add(batch, now())
                if chunk.rows >= options.commit_rows or chunk.size >= options.commit_bytes:
                    return chunk
            elif not forever and (chunk.rows or self._read_to >= self._until):
                return chunk
            else:
                await asyncio.sleep(min(_POLL_SECONDS, options.commit_seconds / 4))
            if chunk.rows and now() - chunk.begun >= options.commit_seconds:
                return chunk

    # -- writing -------------------------------------------------------------------------------

    async def _write(self, *, forever: bool) -> None:
        await self._begin()
        self._until = self.progress.stream_last
        commit: asyncio.Task[None] | None = None
        chunk = _Chunk()
        try:
            async with aclosing(self._batches()) as batches:
                while True:
                    chunk = await self._gather(batches, forever, commit)
                    if commit is not None:
                        await asyncio.shield(commit)
                    commit = None
                    if not chunk.rows:
                        break
                    commit = asyncio.create_task(self._commit(chunk))
        finally:
            try:
                if commit is not None:
                    await commit
            finally:
                await asyncio.to_thread(self._maker.close)

    async def _commit(self, chunk: _Chunk) -> None:
        """Commit a chunk; then remove from the stream what may go, and look after the files."""
        lost = self.progress.lost
        made = await self._make(chunk)
        if identity_of(await self._patient_info()) != self._position.created:
            raise StreamReplacedError(
                f"stream {self._name} was made anew while it was read; the table has the old one "
                f"up to sequence {self._position.sequence}"
            )
        to = Position(self._position.created, chunk.last, lost=lost)
        await asyncio.to_thread(
            self._table.commit, self._maker.columns, made.fitting, made.rejected, to
        )
        self._position = to
        progress = self.progress
        progress.sequence = chunk.last
        progress.rows += made.fitting.num_rows
        progress.rejected += made.rejected.num_rows
        progress.commits += 1
        if self._on_commit is not None:
            self._on_commit(progress)
        if self._options.archive:
            await self._archive(chunk.last)
        await asyncio.to_thread(self._table.tend)

    async def _make(self, chunk: _Chunk) -> Rows:
        """The rows of a chunk; a registry of schemas may be away for `retry_seconds`."""
        made = partial(self._maker.make, chunk.batches, self._position.created, self._left_out)
        return await self._patiently(
            lambda: asyncio.to_thread(made), lambda error: isinstance(error, _REGISTRY_AWAY)
        )

    async def _archive(self, sequence: int) -> None:
        """Remove from the stream what the table has."""
        try:
            self.progress.archived += await self._js.purge_stream(self._name, sequence=sequence + 1)
        except Error as error:
            if not _may_pass(error):
                raise  # what was not removed now goes with the next commit

    async def _patient_info(self, *, is_first: bool = False) -> "StreamInfo":
        """The stream's info; the server may be away for `retry_seconds`.

        A server that has no JetStream is told from one that comes back by what it says `is_first`.
        """

        def may_pass(error: Error) -> bool:
            is_without = is_first and isinstance(error, JetStreamNotEnabledError)
            return not is_without and _may_pass(error)

        return await self._patiently(self._info, may_pass)

    async def _patiently(
        self, ask: Callable[[], Awaitable[T]], may_pass: Callable[[Error], bool]
    ) -> T:
        """What comes of asking, again for up to `retry_seconds` after errors that may pass."""
        now = asyncio.get_running_loop().time
        began = now()
        while True:
            try:
                return await ask()
            except Error as error:
                if not may_pass(error) or now() - began > self._options.retry_seconds:
                    raise
            await asyncio.sleep(_RETRY_WAIT_SECONDS)


def identity_of(info: "StreamInfo") -> str:
    """When the stream was made, in the words of the wire."""
    return datetime_text(info.created) if info.created is not None else ""


def _may_pass(error: Error) -> bool:
    """Whether it is worth another attempt: the server is away, or not ready."""
    if isinstance(error, ApiError):
        return error.code == HTTPStatus.SERVICE_UNAVAILABLE
    return isinstance(error, _PASSING)
