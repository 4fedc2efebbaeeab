"""Exactly once into a stream, without transactions: a fence and rows that can be found again.

For each partition of a query there is a marker subject in the stream. Its last message says which
batch was begun or done. An attempt to write a batch goes like this:

1. Read the last marker, from the stream's leader. Says it that this batch (or a later one) is done,
   then nothing is published; the rows are only compared with what was written.
2. Publish a marker "begun", on condition that the marker read is still the last one.
3. Every message is published on condition that "begun" is the last marker. So from here on no
   earlier attempt can add anything, however long its messages were on the way: this is the fence.
4. If the marker of step 1 was "begun" for this batch, then earlier attempts may have stored some of
   the rows. Read the stream between that attempt's beginning and the fence, and leave out the rows
   that are there: each message carries its row's identity in a header.
5. When all is acknowledged, publish the marker "done", on the same condition.

No time enters the argument: neither the duplicate window nor how late a batch is retried. What the
stream forgets it cannot know: a stream that drops messages while a batch is unfinished (by limits)
may drop the marker or rows that were found before, see docs/spark.md.
"""

from typing import TYPE_CHECKING

import msgspec

from slipstream.client.jetstream.errors import MessageNotFoundError, WrongLastSequenceError
from slipstream.errors import ConfigError, Error
from slipstream.spark.publishing import FencedError
from slipstream.spark.sink_rows import ROW_HEADER, Row, RowReader

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.client.jetstream.stream_config import StreamConfig

BEGUN, DONE = "begun", "done"
_RACES_MAX = 5


class ChangedRowsError(Error):
    """A batch that was written before comes again with other rows."""


class Marker(msgspec.Struct, frozen=True):
    """Progress of a partition: the batch, how far it is, and since which sequence it is written."""

    batch: int
    state: str
    since: int = 0
    rows: int = 0
    digest: str = ""


class Progress:
    """The progress of one partition within one stream."""

    def __init__(self, js: "JetStream", stream: "Stream", subject: str, writer: str) -> None:
        self._js = js
        self._stream = stream
        self._subject = subject
        self._writer = writer
        self._fence = 0
        self._marker: Marker | None = None
        self._stored: set[str] = set()
        self._row_prefix = ""

    async def begin(self, batch: int) -> bool:
        """Take over the batch; False if it is done already. Raises `FencedError`."""
        for _ in range(_RACES_MAX):
            last, sequence = await self._last()
            if last is not None and (last.batch > batch or last == _done(last, batch)):
                self._marker = last
                return False
            retried = last is not None and last.batch == batch
            since = (last.since or sequence) if last is not None and retried else 0
            marker = Marker(batch, BEGUN, since)
            try:
                self._fence = await self._put(marker, sequence)
            except WrongLastSequenceError:
                continue
            self._marker = marker
            partition = self._subject.rpartition(".")[2]
            self._row_prefix = f"{self._writer}.{batch}.{partition}."
            self._stored = await self._find(since) if since else set()
            return True
        raise FencedError(f"{self._subject}: other attempts keep taking over batch {batch}")

    def is_stored(self, row: Row) -> bool:
        """Whether an earlier attempt has stored the row."""
        return row.identity in self._stored

    def headers(self, row: Row) -> dict[str, str]:
        """The row's identity, and the condition on the fence."""
        made = {
            ROW_HEADER: self._row_prefix + row.identity,
            "Nats-Expected-Stream": self._stream.name,
            "Nats-Expected-Last-Subject-Sequence": str(self._fence),
            "Nats-Expected-Last-Subject-Sequence-Subject": self._subject,
        }
        if row.message_id:
            made["Nats-Msg-Id"] = row.message_id
        return made

    async def finish(self, rows: RowReader) -> None:
        """All rows are stored. Raises `ChangedRowsError`, `FencedError`."""
        assert self._marker is not None
        foreign = [identity for identity in self._stored if not rows.has(identity)]
        if foreign:
            raise ChangedRowsError(
                f"{self._subject}: {len(foreign)} rows that an earlier attempt of batch "
                f"{self._marker.batch} stored are not among the rows of this one. " + _WHAT_TO_DO
            )
        since = self._marker.since or self._fence
        digest = f"{rows.digest:024x}"
        done = Marker(self._marker.batch, DONE, since, rows.count, digest)
        try:
            await self._put(done, self._fence)
        except WrongLastSequenceError as error:
            last, _ = await self._last()
            if last != done:  # else it was this one, and its acknowledgement was lost
                raise FencedError(f"{self._subject}: another attempt has taken over") from error

    def check_same(self, batch: int, rows: RowReader) -> None:
        """The batch was done before: raise `ChangedRowsError` if it was done with other rows."""
        done = self._marker
        if done is None or done.batch != batch:
            return  # a later batch is there already; what this one said is forgotten
        if (done.rows, done.digest) != (rows.count, f"{rows.digest:024x}"):
            raise ChangedRowsError(
                f"{self._subject}: batch {batch} was written with {done.rows} rows, and comes "
                f"again with other ones ({rows.count}). " + _WHAT_TO_DO
            )

    async def _last(self) -> tuple[Marker | None, int]:
        try:
            found = await self._stream.get_last_message(self._subject, direct=False)
        except MessageNotFoundError:
            return None, 0
        return msgspec.json.decode(found.data, type=Marker), found.sequence

    async def _put(self, marker: Marker, expected: int) -> int:
        config = self._stream.config
        rollup = config.allow_rollup_hdrs and not config.deny_purge
        ack = await self._js.publish(
            self._subject,
            msgspec.json.encode(marker),
            headers={"Nats-Rollup": "sub"} if rollup else None,
            expected_stream=self._stream.name,
            expected_last_sequence_per_subject=expected,
        )
        return ack.sequence

    async def _find(self, since: int) -> set[str]:
        """The identities of the batch's rows that are in the stream before the fence."""
        import pyarrow.compute as pc

        found: set[str] = set()
        async for batch in self._stream.scan(since, self._fence, columns=["sequence", "headers"]):
            headers = batch.column("headers")
            rows = headers.items.filter(pc.equal(headers.keys, ROW_HEADER)).flatten()
            ours = rows.filter(pc.starts_with(rows, self._row_prefix))
            found.update(name[len(self._row_prefix) :] for name in ours.to_pylist())
        return found


_WHAT_TO_DO = (
    "Exactly once needs a query that gives the same rows for the same input: no rand(), no "
    "current_timestamp(), no external lookups that change; or take mode deduplicated with a "
    "column message_id"
)


def _done(last: Marker, batch: int) -> Marker:
    return Marker(batch, DONE, last.since, last.rows, last.digest)


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
