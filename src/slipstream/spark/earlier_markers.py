"""Markers among the rows, as an earlier version of the sink has left them in streams.

It kept a writer's markers in the stream that is written, below ``_slipstream.progress.<stream>``,
and each row had the header ``Slipstream-Row: <writer>.<batch>.<run>.<partition>.<digest in hex>``.
Readers leave such markers out. A query that goes on from a checkpoint of that version finds its
progress here once; from then on it is in the stream of `slipstream.spark.markers`.

A batch that was begun may still have tasks of the earlier version, whose rows come on condition
that their marker is the last of its partition. So one more marker is put after each of these, and
the writer's own says that its progress is kept elsewhere: tasks of the earlier version then publish
nothing.
"""

from typing import TYPE_CHECKING

import slipstream.spark.markers as markers
from slipstream.client.jetstream.errors import WrongLastSequenceError
from slipstream.errors import Error
from slipstream.spark.markers import BEGUN, FENCED, Marker
from slipstream.wire.subjects import overlaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slipstream.client.jetstream import JetStream, Stream
    from slipstream.model.infos import StreamInfo

ROW_HEADER = "Slipstream-Row"
MOVED = 2**53 - 1
"""The batch that a writer's marker names when its progress is kept elsewhere."""


def prefix_of(stream: str, wanted: str = "") -> str:
    """The subject below which a stream has such markers; `wanted` is the option progressPrefix."""
    return wanted or f"_slipstream.progress.{stream}"


def may_have(info: "StreamInfo", wanted: str = "", filters: "Iterable[str]" = ()) -> bool:
    """Whether a stream may have such markers among the messages that match the filters."""
    subject = f"{prefix_of(info.config.name, wanted)}.>".encode()
    takes = any(overlaps(own.encode(), subject) for own in info.config.subjects or ())
    read = list(filters)
    return takes and (not read or any(overlaps(one.encode(), subject) for one in read))


class EarlierMarkers:
    """The markers of one writer among the rows of a stream."""

    def __init__(self, js: "JetStream", stream: "Stream", prefix: str, writer: str) -> None:
        self._js = js
        self._stream = stream
        self._subject = f"{prefix}.{writer}"

    async def last(self) -> Marker | None:
        """The writer's progress, as a marker for the stream of markers; None if there is none."""
        found, at = await markers.last_of(self._stream, self._subject)
        if found is None:
            return None
        if found.batch == MOVED:
            raise Error(
                f"{self._subject}: the progress of this writer is in the stream {markers.STREAM}, "
                "which has none of it any more: restore that stream, or start with another "
                "writerId and another checkpoint"
            )
        return Marker(
            found.batch,
            found.state,
            found.run,
            rows=found.rows,
            digest=found.digest,
            floor=(found.since or at) - 1,
            is_inherited=True,
        )

    async def done(self, batch: int) -> Marker | None:
        """The marker that says that a batch is done."""
        found = None
        for _, _, marker in await markers.history(self._stream, self._subject, 1):
            if (marker.batch, marker.state) == (batch, markers.DONE):
                found = marker
        return found

    async def end(self, run: str) -> None:
        """See to it that no task of the earlier version publishes any more."""
        while True:
            last, at = await markers.last_of(self._stream, self._subject)
            if last is not None and last.batch == MOVED:
                break
            since = at if last is None else last.since or at  # the stream may have dropped it
            moved = Marker(MOVED, BEGUN, run, since=since)
            try:
                await self._put(self._subject, moved, at)
            except WrongLastSequenceError:
                continue
            break
        tasks: dict[str, tuple[int, Marker]] = {}
        for subject, at, marker in await markers.history(self._stream, f"{self._subject}.*", 1):
            tasks[subject] = at, marker
        for subject, (at, marker) in tasks.items():
            if marker.state != BEGUN:
                continue
            try:
                await self._put(subject, Marker(marker.batch, FENCED, run), at)
            except WrongLastSequenceError:
                continue  # there is a later one, which serves as well

    async def _put(self, subject: str, marker: Marker, expected: int) -> None:
        await markers.put(self._js, self._stream.name, subject, marker, subject, expected)
