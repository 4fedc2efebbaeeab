"""Exactly once into a stream, without transactions: fences, and rows that can be found again.

A writer (a query) has a marker subject in the stream, and one below it for each partition. Its own
says which batch is being written, by which *run*: a run is one job of Spark, which has cut the
batch into partitions in one way. That of a partition says that an attempt has begun or is done.
A task

1. reads the writer's marker, from the stream's leader. If the batch, or a later one, is done,
   nothing is published. If it names another batch or another run, the task puts one for its own
   run, on condition that the marker read is still the last: it takes the batch over. If there was
   another run of this batch before, the attempts of that run are fenced: each partition's marker
   that it has begun gets one of this run behind it.
2. puts *begun* on its partition's marker, on condition that the writer's is still the one of its
   run; so no run adds anything any more once another has taken over.
3. looks whether that is the first marker of its partition in this run. If it is not, an earlier
   attempt of the task may have stored some of its rows: it reads the stream up to *begun*, and
   leaves out the rows that are there. Each message carries its row's identity in a header.
4. If an earlier run may have stored rows, they are found in the same way. They need not be those of
   this partition, if the batch was cut in another way: `slipstream.spark.claims` says which task
   leaves out which of them.
5. publishes its other rows, each on condition that *begun* is the last marker of the partition,
   and *done* behind them, on the same condition.

When all tasks are done, the driver puts *done* on the writer's marker. docs/spark-sink.md has the
argument. No time enters it: neither the duplicate window nor how late a batch is retried.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.arrow.row_block import STORED, TO_SEND, RowBlock
from slipstream.client.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from slipstream.errors import ConfigError, Error
from slipstream.spark.claims import Claims
from slipstream.spark.publishing import FencedError
from slipstream.spark.sink_rows import ROW_HEADER, RowReader

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.client.jetstream.model import StreamConfig

BEGUN, DONE, FENCED = "begun", "done", "fenced"
_RACES_MAX = 50
_RACE_WAIT_SECONDS = 0.02


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


class Marker(msgspec.Struct, frozen=True):
    """How far a batch is.

    `since`: there was a run before, and its first marker's sequence. `claimed`: how many of its
    rows the task has found among those that earlier runs have stored.
    """

    batch: int
    state: str
    run: str = ""
    since: int = 0
    rows: int = 0
    digest: str = ""
    claimed: int = 0


class Writer:
    """The progress of a writer within one stream, over one connection."""

    def __init__(self, js: "JetStream", stream: "Stream", prefix: str, writer: str) -> None:
        self.js = js
        self.stream = stream
        self.subject = f"{prefix}.{writer}"

    def of(self, partition: int) -> str:
        """The marker subject of a partition."""
        return f"{self.subject}.{partition}"

    async def last(self, subject: str) -> tuple[Marker | None, int]:
        """The last marker on a subject and its sequence."""
        try:
            found = await self.stream.get_last_message(subject, direct=False)
        except MessageNotFoundError:
            return None, 0
        return msgspec.json.decode(found.data, type=Marker), found.sequence

    async def put(self, subject: str, marker: Marker, of: str, expected: int) -> int:
        """Put a marker if the last sequence of `of` is as expected: else WrongLastSequenceError."""
        ack = await self.js.publish(
            subject,
            msgspec.json.encode(marker),
            expected_stream=self.stream.name,
            expected_last_sequence_per_subject=expected,
            expected_last_sequence_subject=of,
        )
        return ack.sequence

    async def finish(self, task: Task, rows: int, digest: str) -> None:
        """All tasks of a run are done.

        Raises `ChangedRowsError` and `ReusedWriterError` where the tasks have published nothing
        though the rows are not in the stream, and `FencedError`.
        """
        for _ in range(_RACES_MAX):
            last, at = await self.last(self.subject)
            if last is None:
                return  # the stream was purged: every row was acknowledged before
            if last.batch > task.batch or (last.batch == task.batch and last.state == DONE):
                done = await self._done(task.batch, at)
                self._check_same(task, rows, digest, done, last)
                return
            if (last.batch, last.run) != (task.batch, task.run):
                break
            marker = Marker(task.batch, DONE, task.run, last.since, rows, digest)
            try:
                await self.put(self.subject, marker, self.subject, at)
            except WrongLastSequenceError:
                await asyncio.sleep(_RACE_WAIT_SECONDS)
                continue
            return
        raise FencedError(f"{self.subject}: another run has taken over batch {task.batch}")

    async def _done(self, number: int, at: int) -> Marker | None:
        """The marker that says that a batch is done, among those up to sequence `at`."""
        scan = self.stream.scan(1, at, subjects=self.subject, columns=["data"])
        found = None
        async for batch in scan:
            for data in batch.column("data").to_pylist():
                marker = msgspec.json.decode(data, type=Marker)
                if (marker.batch, marker.state) == (number, DONE):
                    found = marker
        return found

    def _check_same(
        self, task: Task, rows: int, digest: str, done: Marker | None, last: Marker
    ) -> None:
        """Nothing was published, because a batch with this number or a later one is done: that is
        right only if it was done with the same rows."""
        if done is None:
            raise ReusedWriterError(
                f"{self.subject}: batch {task.batch} ({rows} rows) was not published: the stream "
                f"has no record of it, and a later one, batch {last.batch}, was written under this "
                f"writer id. {WHO_WRITES}"
            )
        if (done.rows, done.digest) != (rows, digest):
            raise ChangedRowsError(
                f"{self.subject}: batch {task.batch} was written with {done.rows} rows, and comes "
                f"again with other ones ({rows}), of which none was published; the last batch of "
                f"this writer id is {last.batch}. {WHO_WRITES} Or the query has changed: "
                f"{WHAT_TO_DO}"
            )


class Progress:
    """The progress of a task; outlives its connections."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._writer: Writer | None = None
        self._fence = 0
        self._taken_at = 0
        self._done: Marker | None = None
        self._own: Counter[bytes] = Counter()  # stored by earlier attempts, not met yet
        self._claims: Claims | None = None
        self._has_begun = False

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

    async def begin(self, writer: Writer) -> bool:
        """Take the partition; False if nothing is to be published. Raises `FencedError`."""
        self._writer = writer
        task = self._task
        for _ in range(_RACES_MAX):
            last, at = await writer.last(writer.subject)
            if last is not None:
                if last.batch > task.batch or (last.batch == task.batch and last.state == DONE):
                    return False
                if self._has_begun and (last.batch, last.run) != (task.batch, task.run):
                    break
            try:
                since, at = await self._take_over(last, at)
                if since and not self._has_begun:
                    await self._fence_others(since, at)
                begun = Marker(task.batch, BEGUN, task.run)
                self._fence = await writer.put(writer.of(task.partition), begun, writer.subject, at)
            except WrongLastSequenceError:
                await asyncio.sleep(_RACE_WAIT_SECONDS)
                continue
            if self._has_begun:
                return True
            self._taken_at = at
            self._has_begun = True
            return await self._recall(since)
        raise FencedError(f"{writer.subject}: other attempts keep taking over batch {task.batch}")

    async def _take_over(self, last: Marker | None, at: int) -> tuple[int, int]:
        """The first marker's sequence of runs before this one (0: none), and this run's."""
        assert self._writer is not None
        task = self._task
        if last is not None and (last.batch, last.run) == (task.batch, task.run):
            return last.since, at
        since = (last.since or at) if last is not None and last.batch == task.batch else 0
        marker = Marker(task.batch, BEGUN, task.run, since)
        subject = self._writer.subject
        return since, await self._writer.put(subject, marker, subject, at)

    async def _fence_others(self, since: int, at: int) -> None:
        """Put a marker behind each that earlier runs have begun: their messages are refused."""
        writer, task = self._writer, self._task
        assert writer is not None
        begun: dict[str, tuple[int, Marker]] = {}
        scan = writer.stream.scan(
            since, at, subjects=f"{writer.subject}.*", columns=["subject", "sequence", "data"]
        )
        async for batch in scan:
            columns = (batch.column(name).to_pylist() for name in ("subject", "sequence", "data"))
            for subject, sequence, data in zip(*columns, strict=True):
                if subject.rpartition(".")[2].isdigit():
                    begun[subject] = (sequence, msgspec.json.decode(data, type=Marker))
        fence = Marker(task.batch, FENCED, task.run)
        for subject, (sequence, marker) in begun.items():
            if (marker.batch, marker.state) != (task.batch, BEGUN) or marker.run == task.run:
                continue
            try:
                await writer.put(subject, fence, subject, sequence)
            except WrongLastSequenceError:
                continue  # there is a later one, which serves as well

    async def _recall(self, since: int) -> bool:
        """Find what earlier attempts have stored; False if one of this run is done."""
        writer, task = self._writer, self._task
        assert writer is not None
        subject = writer.of(task.partition)
        first = await writer.stream.get_next(self._taken_at + 1, subject, direct=False)
        has_begun = False
        if first.sequence != self._fence:
            scan = writer.stream.scan(
                self._taken_at + 1, self._fence - 1, subjects=subject, columns=["data"]
            )
            async for batch in scan:
                for data in batch.column("data").to_pylist():
                    marker = msgspec.json.decode(data, type=Marker)
                    has_begun |= marker.state == BEGUN
                    if marker.state == DONE:
                        self._done = marker
        if self._done is not None:
            return False
        if not since and not has_begun:
            return True
        earlier, own = await self._find(since or self._taken_at, with_earlier=bool(since))
        self._own.update(own)
        if earlier:
            self._claims = Claims(writer.subject, task.partition, task.run, self._taken_at, earlier)
            await self._claims.connect(writer.js, writer.stream)
        return True

    async def resume(self, floor: int, blocks: list[RowBlock]) -> None:
        """After `begin` on a new connection: find which rows in doubt are stored above `floor`."""
        writer = self._writer
        assert writer is not None
        _, own = await self._find(floor + 1, with_earlier=False)
        found = Counter(own)
        for block in blocks:
            block.send_again()
            for row, state in enumerate(block.states):
                if state == STORED:
                    found[block.digests[row * 16 : row * 16 + 16]] -= 1
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

    @property
    def label(self) -> bytes:
        """What begins the header line with a row's identity."""
        task = self._task
        prefix = f"{task.writer}.{task.batch}.{task.run}.{task.partition}."
        return f"{ROW_HEADER}: {prefix}".encode()

    @property
    def lines(self) -> bytes:
        """The condition on the fence."""
        assert self._writer is not None
        subject = self._writer.of(self._task.partition)
        return (
            f"Nats-Expected-Stream: {self._writer.stream.name}\r\n"
            f"Nats-Expected-Last-Subject-Sequence: {self._fence}\r\n"
            f"Nats-Expected-Last-Subject-Sequence-Subject: {subject}\r\n"
        ).encode()

    @property
    def fence(self) -> int:
        """The sequence of *begun*."""
        return self._fence

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
            last, _ = await writer.last(subject)
            if last != done:  # else it was this one, and its acknowledgement was lost
                raise FencedError(f"{subject}: another attempt has taken over") from error

    def check_same(self, rows: RowReader) -> None:
        """The task was done before: raise `ChangedRowsError` if it was done with other rows."""
        done = self._done
        if done is not None and (done.rows, done.digest) != (rows.count, rows.digest):
            raise ChangedRowsError(
                f"{self._task}: the task was done with {done.rows} rows, and comes again with "
                f"other ones ({rows.count}). {WHAT_TO_DO}"
            )

    async def _find(self, since: int, *, with_earlier: bool) -> tuple[list[bytes], list[bytes]]:
        """Identities of the batch's rows between `since` and the fence: of earlier runs, in the
        stream's order, and those that this run has stored for this partition."""
        import pyarrow.compute as pc

        writer, task = self._writer, self._task
        assert writer is not None
        batch_prefix = f"{task.writer}.{task.batch}."
        run_prefix = f"{batch_prefix}{task.run}."
        own_prefix = f"{run_prefix}{task.partition}."
        earlier: list[bytes] = []
        own: list[bytes] = []
        async for batch in writer.stream.scan(since, self._fence, columns=["sequence", "headers"]):
            headers = batch.column("headers")
            names = headers.items.filter(pc.equal(headers.keys, ROW_HEADER)).flatten()
            wanted = batch_prefix if with_earlier else own_prefix
            for name in names.filter(pc.starts_with(names, wanted)).to_pylist():
                digest = bytes.fromhex(name.rpartition(".")[2])
                if name.startswith(own_prefix):
                    own.append(digest)
                elif not name.startswith(run_prefix):
                    earlier.append(digest)
        return earlier, own


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


def progress_prefix(stream: str, wanted: str) -> str:
    """The subject below which a stream's progress markers are."""
    return wanted or f"_slipstream.progress.{stream}"


async def prepare(stream: "Stream", prefix: str) -> None:
    """See to it that the stream takes the markers. Raises `ConfigError`."""
    config = stream.config
    reason = why_not(config)
    if reason:
        raise ConfigError(
            f"jetstream: stream {stream.name} cannot be written to exactly once: {reason}. Take "
            "mode deduplicated"
        )
    if any(_covers(subject, f"{prefix}.>") for subject in config.subjects or ()):
        return
    try:
        await stream.update(subjects=[*(config.subjects or ()), f"{prefix}.>"])
    except Error as error:
        raise ConfigError(
            f"jetstream: exactly once keeps its progress on {prefix}.>, and stream {stream.name} "
            f"does not take that subject and cannot be changed ({error}). Add it to the stream's "
            "subjects, set progressPrefix to one it takes, or take mode deduplicated"
        ) from error


def _covers(filter_: str, wanted: str) -> bool:
    """Whether all subjects of `wanted` (with a last token >) are among those of `filter_`."""
    left, right = filter_.split("."), wanted.split(".")
    for position, token in enumerate(left):
        if token == ">":
            return position < len(right)
        if position >= len(right) or right[position] == ">" or token not in ("*", right[position]):
            return False
    return len(left) == len(right)
