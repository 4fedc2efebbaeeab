"""Exactly once into a stream, without transactions: one attempt at a time, and rows found again.

A writer (a query) has a marker in a stream of markers (`slipstream.spark.markers`), and one below
it for each partition. Its own says which batch is being written, by which *run*: a run is one job
of Spark, which has cut the batch into partitions in one way. That of a partition says that an
attempt has begun or is done. A task

1. reads the writer's marker, from the leader of the stream of markers. If the batch, or a later
   one, is done, nothing is published. If it names another batch or another run, the task puts one
   for its own run, on condition that the marker read is still the last: it takes the batch over.
   If there was another run of this batch before, it waits until the attempts of that run have gone
   (`slipstream.spark.sink.presence`).
2. puts *begun* on its partition's marker, on condition that the writer's is still the one of its
   run; so no run adds anything any more once another has taken over.
3. looks whether that is the first marker of its partition in this run. If it is not, it waits until
   the earlier attempts at the task have gone. These may have stored some of its rows: it reads the
   stream to its end, and leaves out the rows that are there. Each message carries its row's
   identity in a header, with the sequence of its attempt's *begun*.
4. If an earlier run may have stored rows, they are found in the same way. They need not be those of
   this partition, if the batch was cut in another way: `slipstream.spark.sink.claims` says which
   task leaves out which of them.
5. publishes its other rows, and puts *done*, on condition that its *begun* is the last marker of
   the partition.

When all tasks are done, the driver puts *done* on the writer's marker. docs/spark-sink.md has the
argument. No time enters it: neither the duplicate window nor how late a batch is retried.
"""

import asyncio
from base64 import urlsafe_b64decode
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

import slipstream.spark.earlier_markers as earlier_markers
import slipstream.spark.markers as markers
import slipstream.spark.sink.presence as presence
from slipstream.client.arrow.row_block import LEFT_OUT, STORED, TO_SEND, RowBlock
from slipstream.client.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from slipstream.errors import ConfigError, Error
from slipstream.spark.earlier_markers import EarlierMarkers
from slipstream.spark.markers import BEGUN, DONE, FENCED, Marker
from slipstream.spark.sink.claims import Claims
from slipstream.spark.sink.presence import Presence
from slipstream.spark.sink.publishing import FencedError
from slipstream.spark.sink.rows import ROW_HEADER, RowReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pyarrow

    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.model.configurations import StreamConfig

_RACES_MAX = 50
_RACE_WAIT_SECONDS = 0.02
_DIGEST_SIZE = 22  # of an identity, 16 bytes in base64
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class ChangedRowsError(Error):
    """A batch that was written before comes again with other rows."""


class ReusedWriterError(Error):
    """A batch comes under a writer id that another query or another checkpoint has written with."""


class Task(msgspec.Struct, frozen=True):
    """Which attempt at which part of which write this is; `run` names the job that has cut it."""

    writer: str
    batch: int
    partition: int
    run: str = ""


class Writer:
    """The progress of a writer within one stream, over one connection.

    `rows` is the stream that is written, `stream` that of the markers. `prefix` says where an
    earlier version had its markers among the rows.
    """

    def __init__(self, js: "JetStream", rows: "Stream", prefix: str, writer: str) -> None:
        self.js = js
        self.rows = rows
        self.stream = js.stream_handle(markers.STREAM)
        self.subject = f"{markers.subject_of(rows.cached_info)}.{writer}"
        self._name = writer
        has_earlier = earlier_markers.may_have(rows.cached_info, prefix)
        where = earlier_markers.prefix_of(rows.name, prefix)
        self.earlier = EarlierMarkers(js, rows, where, writer) if has_earlier else None

    def of(self, partition: int) -> str:
        """The marker subject of a partition."""
        return f"{self.subject}.{partition}"

    async def last(self) -> tuple[Marker | None, int]:
        """The writer's last marker and its sequence; None and 0 before its first batch.

        Where progress comes from an earlier version, that one publishes nothing from then on.
        """
        while True:
            last, at = await markers.last_of(self.stream, self.subject)
            if self.earlier is None:
                return last, at
            if last is not None:
                if last.is_inherited:
                    await self.earlier.end(last.run)
                return last, at
            inherited = await self.earlier.last()
            if inherited is None:
                return None, 0
            try:
                at = await self.put(self.subject, inherited, self.subject, 0)
            except WrongLastSequenceError:
                continue
            await self.earlier.end(inherited.run)
            return inherited, at

    async def put(self, subject: str, marker: Marker, of: str, expected: int) -> int:
        """Put a marker if the last sequence of `of` is as expected: else WrongLastSequenceError."""
        return await markers.put(self.js, markers.STREAM, subject, marker, of, expected)

    async def finish(self, task: Task, rows: int, digest: str, *, is_checked: bool = True) -> None:
        """All tasks of a run are done.

        Raises `ChangedRowsError` and `ReusedWriterError` where the tasks have published nothing
        though the rows are not in the stream, and `FencedError`.
        """
        for _ in range(_RACES_MAX):
            last, at = await self.last()
            if last is None:
                return  # the stream was made anew: every row was acknowledged before
            if last.batch > task.batch or (last.batch == task.batch and last.state == DONE):
                if is_checked:
                    self._check_same(task, rows, digest, await self._done(task.batch, at), last)
                return
            if (last.batch, last.run) != (task.batch, task.run):
                break
            marker = Marker(task.batch, DONE, task.run, last.since, rows, digest)
            try:
                await self.put(self.subject, marker, self.subject, at)
            except WrongLastSequenceError:
                await asyncio.sleep(_RACE_WAIT_SECONDS)
                continue
            await markers.prune(self.stream, self.subject, last.since or at, task.batch)
            return
        raise FencedError(f"{self.subject}: another run has taken over batch {task.batch}")

    async def _done(self, number: int, at: int) -> Marker | None:
        """The marker that says that a batch is done, among those up to sequence `at`."""
        found = None
        for _, _, marker in await markers.history(self.stream, self.subject, 1, at):
            if (marker.batch, marker.state) == (number, DONE):
                found = marker
        if found is None and self.earlier is not None:
            return await self.earlier.done(number)
        return found

    def _check_same(
        self, task: Task, rows: int, digest: str, done: Marker | None, last: Marker
    ) -> None:
        """Nothing was published, because a batch with this number or a later one is done: that is
        right only if it was done with the same rows."""
        if done is None:
            raise ReusedWriterError(
                f"{self._name}: batch {task.batch} ({rows} rows) was not published: there "
                f"is no record of it, and a later one, batch {last.batch}, was written under this "
                f"writer id. {WHO_WRITES}"
            )
        if (done.rows, done.digest) != (rows, digest):
            raise ChangedRowsError(
                f"{self._name}: batch {task.batch} was written with {done.rows} rows, and comes "
                f"again with other ones ({rows}), of which none was published; the last batch of "
                f"this writer id is {last.batch}. {WHO_WRITES} Or the query has changed: "
                f"{WHAT_TO_DO}"
            )


class Progress:
    """The progress of a task; outlives its connections.

    With `finds` false rows are not looked for: writing one twice changes nothing.
    """

    def __init__(self, task: Task, retry_timeout: float, *, finds: bool = True) -> None:
        self._task = task
        self._retry_timeout = retry_timeout
        self._finds = finds
        self._writer: Writer | None = None
        self._presence: Presence | None = None
        self._subjects: list[str] = []
        self._fence = 0
        self._taken_at = 0
        self._run = Marker(task.batch, BEGUN)  # what the writer's marker says of this run
        self._done: Marker | None = None
        self._gone: set[int] = set()  # attempts that can add nothing any more, by *begun*
        self._own_tokens: set[str] = set()
        self._earlier_tokens: set[str] = set()
        self._own: Counter[bytes] = Counter()  # stored by earlier attempts, not met yet
        self._claims: Claims | None = None
        self._has_begun = False
        self.is_recalled = False  # all that was stored before is known
        self.floor = 0  # rows that this attempt stores have higher sequences

    @property
    def earlier(self) -> int:
        """How many rows of the batch earlier runs have stored."""
        return self._claims.total if self._claims is not None else 0

    @property
    def claimed(self) -> int:
        """How many of these are among this task's rows."""
        if self._done is not None:
            return self._done.claimed
        return self._claims.met if self._claims is not None else 0

    @property
    def label(self) -> bytes:
        """What begins the header line with a row's identity."""
        return f"{ROW_HEADER}: {token_of(self._fence)}".encode()

    async def begin(self, writer: Writer, presence: Presence, subjects: list[str]) -> bool:
        """Take the partition; False if nothing is to be published. Raises `FencedError`.

        One of `subjects` may be published to.
        """
        self._writer, self._presence, self._subjects = writer, presence, subjects
        task = self._task
        for _ in range(_RACES_MAX):
            last, at = await writer.last()
            if last is not None:
                if last.batch > task.batch or (last.batch == task.batch and last.state == DONE):
                    return False
                if self._has_begun and (last.batch, last.run) != (task.batch, task.run):
                    break
            try:
                run, at = await self._take_over(last, at)
                if run.since and not self.is_recalled:
                    await self._outlive_others(run)
                begun = Marker(task.batch, BEGUN, task.run, inbox=presence.inbox)
                self._fence = await writer.put(writer.of(task.partition), begun, writer.subject, at)
            except WrongLastSequenceError:
                await asyncio.sleep(_RACE_WAIT_SECONDS)
                continue
            self._run, self._taken_at = run, at
            self._has_begun = True
            history = await self._history()
            if self.is_recalled:
                await self._outlive_own(history)
                return True
            is_wanted = await self._recall(history)
            self.is_recalled = True
            return is_wanted
        raise FencedError(f"{writer.subject}: other attempts keep taking over batch {task.batch}")

    async def _take_over(self, last: Marker | None, at: int) -> tuple[Marker, int]:
        """What the writer's marker says of this run, and its sequence."""
        assert self._writer is not None
        task, writer = self._task, self._writer
        if last is not None and (last.batch, last.run) == (task.batch, task.run):
            return last, at
        if last is not None and last.batch == task.batch:
            marker = msgspec.structs.replace(last, run=task.run, since=last.since or at)
        else:
            floor = writer.rows.cached_info.state.last_seq
            marker = Marker(task.batch, BEGUN, task.run, floor=floor)
        return marker, await writer.put(writer.subject, marker, writer.subject, at)

    async def _outlive_others(self, run: Marker) -> None:
        """Wait until no attempt of an earlier run of this batch can add anything."""
        writer, task, presence = self._writer, self._task, self._presence
        assert writer is not None
        assert presence is not None
        left: dict[str, dict[int, Marker]] = {}
        last: dict[str, int] = {}
        for subject, at, marker in await markers.history(
            writer.stream, f"{writer.subject}.*", run.since
        ):
            if marker.batch != task.batch or (marker.run == task.run and marker.state != FENCED):
                continue
            last[subject] = at
            if marker.state == BEGUN:
                self._earlier_tokens.add(token_of(at))
                left.setdefault(subject, {})[at] = marker
            else:
                left[subject] = {}  # the attempt that put this has outlived those before
        await presence.outlive(
            (marker.inbox for begun in left.values() for marker in begun.values()),
            self._retry_timeout,
        )
        fence = Marker(task.batch, FENCED, task.run)
        for subject in (subject for subject, begun in left.items() if begun):
            try:
                await writer.put(subject, fence, subject, last[subject])
            except WrongLastSequenceError:
                continue  # another task of this run was quicker

    async def _history(self) -> list[tuple[int, Marker]]:
        """The markers of this partition in this run before *begun*. Raises `FencedError`."""
        writer, task = self._writer, self._task
        assert writer is not None
        subject = writer.of(task.partition)
        try:
            first = await writer.stream.get_next(self._taken_at + 1, subject, direct=False)
            while first.sequence < self._fence:
                found = await markers.history(
                    writer.stream, subject, self._taken_at + 1, self._fence
                )
                if found and found[-1][1] == self._fence:
                    return [(at, marker) for _, at, marker in found[:-1]]
                # A replica that is not up to date, or all was pruned: then it is not there at all.
                await writer.stream.get_message(self._fence, direct=False)
                await asyncio.sleep(_RACE_WAIT_SECONDS)
        except MessageNotFoundError:
            first = None
        if first is None or first.sequence != self._fence:
            raise FencedError(f"{subject}: batch {task.batch} was finished without this attempt")
        return []

    async def _outlive_own(self, history: list[tuple[int, Marker]]) -> None:
        """Wait until no earlier attempt at this task can add anything."""
        assert self._presence is not None
        begun = {at: marker for at, marker in history if marker.state == BEGUN}
        self._own_tokens |= {token_of(at) for at in (*begun, self._fence)}
        left = [marker.inbox for at, marker in begun.items() if at not in self._gone]
        await self._presence.outlive(left, self._retry_timeout)
        self._gone |= set(begun)

    async def _recall(self, history: list[tuple[int, Marker]]) -> bool:
        """Find what earlier attempts have stored; False if one of this run is done."""
        writer, task = self._writer, self._task
        assert writer is not None
        self.floor = self._run.floor
        for _, marker in history:
            if marker.state == DONE:
                self._done = marker
        if self._done is not None:
            return False
        await self._outlive_own(history)
        has_earlier = self._run.since > 0
        if not self._finds or (not has_earlier and len(self._own_tokens) == 1):
            return True
        earlier, own = await self._find(self._run.floor + 1, with_earlier=has_earlier)
        self._own = Counter(own)
        if earlier:
            self._claims = Claims(writer.subject, task.partition, task.run, self._taken_at, earlier)
            await self._claims.connect(writer.js, writer.stream)
        return True

    async def resume(self, floor: int, blocks: list[RowBlock]) -> None:
        """After `begin` on a new connection: find which rows in doubt are stored above `floor`."""
        if not self._finds:
            return
        writer = self._writer
        assert writer is not None
        _, own = await self._find(floor + 1, with_earlier=False)
        found = Counter(own)
        for block in blocks:
            block.send_again()
            for row, state in enumerate(block.states):
                if state == STORED:
                    found[block.digests[row * 16 : row * 16 + 16]] -= 1
                    block.states[row] = LEFT_OUT  # it is below the next floor
        self._own.update(+found)
        if self._claims is not None:
            await self._claims.connect(writer.js, writer.stream)
        for block in blocks:
            await self.leave_out(block)

    async def leave_out(self, block: RowBlock) -> int:
        """Mark the rows that are stored; how many these are."""
        before = block.left
        if self._own:
            for row, state in enumerate(block.states):
                digest = block.digests[row * 16 : row * 16 + 16]
                if state == TO_SEND and self._own.get(digest, 0) > 0:
                    self._own[digest] -= 1
                    block.leave_out(row)
        if self._claims is not None:
            await self._claims.leave_out(block)
        return before - block.left

    async def finish(self, rows: RowReader) -> None:
        """All rows are stored. Raises `ChangedRowsError`, `FencedError`."""
        writer, task = self._writer, self._task
        assert writer is not None
        subject = writer.of(task.partition)
        foreign = sum((+self._own).values())
        if foreign:
            raise ChangedRowsError(
                f"{subject}: {foreign} rows that an earlier attempt of batch {task.batch} stored "
                f"are not among the rows of this one. {WHAT_TO_DO}"
            )
        done = Marker(task.batch, DONE, task.run, 0, rows.count, rows.digest, self.claimed)
        try:
            await writer.put(subject, done, subject, self._fence)
        except WrongLastSequenceError as error:
            last, _ = await markers.last_of(writer.stream, subject)
            if last != done:  # else it was this one, and its acknowledgement was lost
                raise FencedError(f"{subject}: another attempt has taken over") from error

    def check_same(self, rows: RowReader) -> None:
        """The task was done before: raise `ChangedRowsError` if it was done with other rows."""
        done = self._done if self._finds else None
        if done is not None and (done.rows, done.digest) != (rows.count, rows.digest):
            raise ChangedRowsError(
                f"{self._task}: the task was done with {done.rows} rows, and comes again with "
                f"other ones ({rows.count}). {WHAT_TO_DO}"
            )

    async def _find(self, since: int, *, with_earlier: bool) -> tuple[list[bytes], list[bytes]]:
        """Identities of the batch's rows from `since` on: of earlier runs, in an order that is the
        same for all tasks, and those that this run has stored for this partition."""
        writer, task = self._writer, self._task
        assert writer is not None
        end = await presence.settled(writer.js, writer.rows, self._subjects, self._retry_timeout)
        self.floor = end
        inherited: list[bytes] = []
        earlier: list[bytes] = []
        own: list[bytes] = []
        wanted = f"{task.writer}.{task.batch}."
        async for batch in _scan(writer.rows, since, end):
            headers = batch.column("headers")
            for text in _values(headers, ROW_HEADER):
                token, digest = text[:-_DIGEST_SIZE], text[-_DIGEST_SIZE:]
                if token in self._own_tokens:
                    own.append(urlsafe_b64decode(digest + "=="))
                elif with_earlier and token in self._earlier_tokens:
                    earlier.append(urlsafe_b64decode(digest + "=="))
            if with_earlier and self._run.is_inherited:
                for text in _values(headers, earlier_markers.ROW_HEADER):
                    if text.startswith(wanted):
                        inherited.append(bytes.fromhex(text.rpartition(".")[2]))
        return inherited + earlier, own


def token_of(sequence: int) -> str:
    """The sequence of an attempt's *begun*, as the header of its rows has it."""
    text = ""
    while sequence:
        sequence, digit = divmod(sequence, 64)
        text = _DIGITS[digit] + text
    return text


async def _scan(stream: "Stream", start: int, end: int) -> "AsyncIterator[pyarrow.RecordBatch]":
    """The messages of a range, all that the stream's leader has: a replica may be behind."""
    while start <= end:
        async for batch in stream.scan(start, end, columns=["sequence", "headers"]):
            start = batch.column("sequence")[-1].as_py() + 1
            yield batch
        try:
            start = (await stream.get_next(start, direct=False)).sequence
        except MessageNotFoundError:
            return
        if start <= end:
            await asyncio.sleep(_RACE_WAIT_SECONDS)


def _values(headers: "pyarrow.MapArray", name: str) -> list[str]:
    """The values of a header, of the messages that have it."""
    import pyarrow.compute as pc

    found: list[str] = headers.items.filter(pc.equal(headers.keys, name)).flatten().to_pylist()
    return found


WHO_WRITES = (
    "If the query has a new checkpoint, or another query or batch write has used this writer id, "
    "give it a writerId of its own; if its checkpoint was set back, rows of earlier batches may be "
    "in the stream already."
)
WHAT_TO_DO = (
    "Exactly once needs a query that gives the same rows for the same input: no rand(), no "
    "current_timestamp(), no external lookups that change; or take mode deduplicated with a "
    "column message_id"
)


def why_not(config: "StreamConfig") -> str:
    """Why a stream cannot be written to exactly once; empty if it can."""
    if config.retention in ("workqueue", "interest"):
        return f"its retention is {config.retention}: what is acknowledged cannot be found again"
    if config.max_msgs_per_subject > 0:
        return "max_msgs_per_subject drops rows that a retry would have to find again"
    if config.mirror is not None:
        return "it is a mirror, which cannot be published to"
    return ""


def check(config: "StreamConfig") -> None:
    """Raise `ConfigError` for a stream that cannot be written to exactly once."""
    reason = why_not(config)
    if reason:
        raise ConfigError(
            f"jetstream: stream {config.name} cannot be written to exactly once: {reason}. Take "
            "mode deduplicated"
        )
