"""The progress of writers, kept apart from the rows: markers in a stream of their own.

The stream ``SLIPSTREAM_PROGRESS`` has the markers of all writers of an account, on the subjects

    _SLIPSTREAM_PROGRESS.<stream>.<created>.<writer>               which batch, begun or done
    _SLIPSTREAM_PROGRESS.<stream>.<created>.<writer>.<partition>   attempts of a batch's tasks
    _SLIPSTREAM_PROGRESS.<stream>.<created>.<writer>.claims        see `spark/sink/claims.py`

`created` is the time when the stream that is written was created: a stream that is deleted and made
anew has no progress yet. Markers are pruned when a batch is done (`prune`).
"""

import logging
import re
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.jetstream.errors import MessageNotFoundError, StreamNotFoundError
from slipstream.errors import ConfigError, Error
from slipstream.model.times import datetime_text
from slipstream.spark.connections import may_pass
from slipstream.wire.subjects import overlaps

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.model.configurations import StreamConfig
    from slipstream.model.infos import StreamInfo

log = logging.getLogger("slipstream.spark")

STREAM = "SLIPSTREAM_PROGRESS"
ROOT = f"_{STREAM}"
BEGUN, DONE, FENCED = "begun", "done", "fenced"
BATCHES_KEPT = 128
"""How many batches of a writer are known to be done; below them a batch has no record."""


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a batch is.

    `floor`: rows of the batch have higher sequences. `since`: there was a run before, and its first
    marker's sequence. `is_inherited`: an earlier version has begun the batch, with markers among
    the rows (`slipstream.spark.earlier_markers`). `inbox`: where the attempt is asked to go.
    `claimed`: how many of its rows the task has found among those that earlier runs have stored.
    """

    batch: int
    state: str
    run: str = ""
    since: int = 0
    rows: int = 0
    digest: str = ""
    claimed: int = 0
    floor: int = 0
    inbox: str = ""
    is_inherited: bool = False


def subject_of(info: "StreamInfo") -> str:
    """The subject below which the progress of all writers of a stream is."""
    created = datetime_text(info.created) if info.created is not None else "0"
    return f"{ROOT}.{info.config.name}.{re.sub('[^0-9]', '', created)}"


async def last_of(stream: "Stream", subject: str) -> tuple[Marker | None, int]:
    """The last marker on a subject and its sequence, from the stream's leader."""
    try:
        found = await stream.get_last_message(subject, direct=False)
    except MessageNotFoundError:
        return None, 0
    return msgspec.json.decode(found.data, type=Marker), found.sequence


async def put(
    js: "JetStream", stream: str, subject: str, marker: Marker, of: str, expected: int
) -> int:
    """Put a marker if the last sequence of `of` is as expected; its sequence.

    Raises `WrongLastSequenceError`.
    """
    ack = await js.publish(
        subject,
        msgspec.json.encode(marker),
        expected_stream=stream,
        expected_last_sequence_per_subject=expected,
        expected_last_sequence_subject=of,
    )
    return ack.sequence


async def history(
    stream: "Stream", subjects: str, start: int, end: int | None = None
) -> list[tuple[str, int, Marker]]:
    """The markers on subjects from one sequence to another: subject, sequence and marker."""
    columns = ["subject", "sequence", "data"]
    found: list[tuple[str, int, Marker]] = []
    async for batch in stream.scan(start, end, subjects=subjects, columns=columns):
        parts = (batch.column(name).to_pylist() for name in columns)
        for subject, sequence, data in zip(*parts, strict=True):
            if not subject.endswith(".claims"):
                found.append((subject, sequence, msgspec.json.decode(data, type=Marker)))
    return found


async def prepare(js: "JetStream", stream: "Stream") -> None:
    """See to it that there is a stream for the markers, of as many replicas as `stream` has.

    Markers of a stream of the same name that is there no more are removed. Raises `ConfigError`.
    """
    try:
        progress = await js.stream(STREAM)
    except StreamNotFoundError:
        try:
            progress = await js.create_stream(
                name=STREAM,
                subjects=[f"{ROOT}.>"],
                description="how far the writers of slipstream.spark are",
                num_replicas=stream.config.num_replicas,
            )
        except Error as error:
            if may_pass(error):
                raise
            raise ConfigError(
                f"jetstream: progress is kept in a stream {STREAM}, which is not there and cannot "
                f"be made ({error}). Have it made, with the subject {ROOT}.>; mode deduplicated "
                "does without"
            ) from error
    if not any(overlaps(f"{ROOT}.x".encode(), s.encode()) for s in progress.config.subjects or ()):
        raise ConfigError(
            f"jetstream: progress is kept in the stream {STREAM} on {ROOT}.>, and that stream does "
            "not take this subject: add it to its subjects"
        )
    _check_keeps(progress.config)
    own = subject_of(stream.cached_info)
    others: set[str] = set()
    async for subject, _ in progress.subjects(f"{ROOT}.{stream.name}.>"):
        others.add(".".join(subject.split(".")[:3]))
    for other in others - {own}:
        await progress.purge(filter=f"{other}.>")


def _check_keeps(config: "StreamConfig") -> None:
    """Raise `ConfigError` if the stream of markers drops markers that are still asked for."""
    found: list[str] = []
    if config.retention != "limits":
        found.append(f"retention {config.retention}")
    if config.max_age:
        found.append(f"max_age {config.max_age}")
    if config.max_msgs_per_subject > 0:
        found.append(f"max_msgs_per_subject {config.max_msgs_per_subject}")
    if config.discard == "old":
        limits = {"max_msgs": config.max_msgs, "max_bytes": config.max_bytes}
        found += [f"{name} {value} with discard old" for name, value in limits.items() if value > 0]
    if found:
        raise ConfigError(
            f"jetstream: progress is kept in the stream {STREAM}, which drops messages by its "
            f"settings ({', '.join(found)}): a batch whose markers are gone is written twice. Give "
            "it retention limits and none of these limits; what is done is removed by itself"
        )


async def prune(progress: "Stream", writer: str, below: int, batch: int) -> None:
    """Remove what no attempt asks for any more, when a batch is done.

    Those are the markers of tasks below the sequence at which this batch was begun, and those of
    the writer itself but for the last batches.
    """
    try:
        await progress.purge(filter=f"{writer}.>", sequence=below)
        if batch % (BATCHES_KEPT // 2) == 0:
            await progress.purge(filter=writer, keep=BATCHES_KEPT * 2)
    except Error as error:  # what is left takes room and nothing else
        log.warning("markers of %s are not pruned: %s", writer, error)


async def forget(progress: "Stream", writer: str) -> None:
    """Remove all markers of a writer that will not write again."""
    try:
        await progress.purge(filter=f"{writer}.>")
        await progress.purge(filter=writer)
    except Error as error:
        log.warning("markers of %s are not pruned: %s", writer, error)


async def writers(js: "JetStream") -> dict[str, set[str]]:
    """The writers that have progress in each stream, by the stream's name."""
    found: dict[str, set[str]] = {}
    try:
        async for subject, _ in js.stream_subjects(STREAM, f"{ROOT}.>"):
            _, stream, _, writer, *_ = subject.split(".")
            found.setdefault(stream, set()).add(writer)
    except StreamNotFoundError:
        return {}
    return found
