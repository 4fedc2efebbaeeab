"""The streaming source: offsets are sequences, a micro-batch is a fixed range, nothing waits on the
server.

Spark asks for the offset to go to, writes it down, then has the range before it read. A range that
is written down is read the same way after any failure. How far a micro-batch goes is decided here:

* `maxMessagesPerTrigger` and `maxBytesPerTrigger` end it early, counted over all streams in
  proportion to what waits in each;
* `minMessagesPerTrigger` holds it back until so many wait or `maxTriggerDelay` has passed;
* `Trigger.AvailableNow` freezes the ends as they are at the start.

What waits after it shows in the query's progress: `latestOffset` of the source has, per stream, the
last offset there is, the backlog in messages and bytes, and what was lost in messages.
"""

import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import slipstream.spark.loss as loss
import slipstream.spark.source.offsets as offsets
from slipstream.spark.options import SourceOptions
from slipstream.spark.planning import Planner, StreamView
from slipstream.spark.source.committed_offsets import publish
from slipstream.spark.source.limits import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from slipstream.spark.source.offsets import Offset
from slipstream.spark.source.ranges import Part, cut
from slipstream.spark.source.reading import read_part

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams micro-batch by micro-batch. Lives with the query, in the driver's worker."""

    def __init__(self, schema: "StructType", options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._planner: Planner | None = None
        self._target: dict[str, int] | None = None  # frozen ends of Trigger.AvailableNow
        self._reached: Offset = {}
        self._lost: dict[str, int] = {}
        self._losing: dict[str, int] = {}  # seen, and not yet behind the query
        self._gone: dict[str, int] = {}  # sequences below are counted in `_lost` or `_losing`
        self._moved_at = time.monotonic()

    # -- what Spark asks ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins."""
        found = self._call(self._initial)
        if not HAS_LIMITS:
            self._reached = found
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options set, for Spark to give back to `latestOffset`."""
        if self._options.max_messages_per_trigger:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_messages_per_trigger:
            return ReadMinRows(self._options.min_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Where the next micro-batch ends; `start` itself if there is to be none.

        Spark 4.1 says neither `start` nor `limit`. Then what is there is taken, and what was lost
        before a query that starts again is told when the micro-batch is cut.
        """
        begin = self._reached if start is None else start
        allowed = ReadAllAvailable() if limit is None else limit
        found = self._call(lambda: self._latest(begin, allowed))
        if found != begin:
            self._moved_at = time.monotonic()
            self._count_losses()
        self._reached = found
        return found

    def reportLatestOffset(self) -> Offset | None:
        """The last offset there is, and what waits before it."""
        return self._call(self._report)

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the ends."""
        self._target = self._call(self._ends)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of a micro-batch, one per task."""
        return list(self._call(lambda: self._cut(start, end)))

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of a part; runs in a task."""
        assert isinstance(partition, Part)
        return read_part(partition, self._schema, self._options)

    def commit(self, end: Offset) -> None:
        """Spark is done with all before `end`: tell those who watch."""
        if self._options.commit_durable or self._options.commit_bucket:
            self._call(lambda: self._commit(end))

    def stop(self) -> None:
        """The query has ended."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    # -- how it is found ---------------------------------------------------------------------------

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner.call(work)

    async def _views(self) -> list[StreamView]:
        assert self._planner is not None
        return await self._planner.views(self._options, self._options.subject_list)

    async def _initial(self) -> Offset:
        begun: Offset = {}
        for view in await self._views():
            start = await offsets.starting(self._options, view, offsets.LATEST)
            begun[view.name] = offsets.entry(view, start)
        return begun

    async def _ends(self) -> dict[str, int]:
        return {view.name: view.next for view in await self._views()}

    async def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        views = await self._views()
        reached = self._without_deleted(start, views)
        waiting: list[tuple[StreamView, int, int, int]] = []
        for view in views:
            begin = self._begin(view, start)
            end = view.next
            if self._target is not None:
                end = min(end, max(self._target.get(view.name, begin), begin))
            reached[view.name] = offsets.entry(view, max(begin, end))
            count = await view.count(begin, end) if end > begin else 0
            waiting.append((view, begin, end, count))
        total = sum(count for _, _, _, count in waiting)
        if self._is_held_back(total, limit):
            return start
        wanted = self._allowed(limit, waiting)
        if wanted is None or wanted >= total:
            return reached
        for view, begin, end, count in waiting:
            share = max(wanted * count // total, 1) if count else 0
            if share < count:
                edge = await view.end_of(begin, end, share)
                reached[view.name] = offsets.entry(view, edge)
        return reached

    def _without_deleted(self, start: Offset, views: list[StreamView]) -> Offset:
        """The offset without streams that matched the pattern and are there no more."""
        there = {view.name for view in views}
        left: Offset = {}
        for name, known in start.items():
            if name in there:
                left[name] = known
                continue
            begin = int(known["next"])
            lost = int(known.get("end", begin)) - begin
            text = f"stream {name} was deleted: what was not read of it, from {begin} on, is gone"
            loss.tell(loss.Loss(text, lost), self._options.fail_on_data_loss)
            self._losing[name] = lost
        return left

    def _count_losses(self) -> None:
        """The query has moved on, past what was lost."""
        for stream, messages in self._losing.items():
            self._lost[stream] = self._lost.get(stream, 0) + messages
        self._losing.clear()

    def _begin(self, view: StreamView, start: Offset) -> int:
        """Where the next micro-batch of a stream begins; losses are told here first."""
        known = start.get(view.name)
        if known is None:
            return max(view.first, 1)  # a stream that was added to the query
        begin = int(known["next"])
        created = str(known.get("created", ""))
        is_another = loss.is_another(view.info, created)
        end = int(known.get("end", begin)) if is_another else view.next
        lost = loss.find_loss(view.info, created, begin, end)
        loss.tell(lost, self._options.fail_on_data_loss)
        if lost is None:
            return begin
        self._losing[view.name] = lost.messages
        if is_another or begin > view.next:
            return max(view.first, 1)
        self._gone[view.name] = begin + lost.messages
        return begin

    def _is_held_back(self, total: int, limit: ReadLimit) -> bool:
        least = self._options.min_messages_per_trigger
        if isinstance(limit, ReadAllAvailable) or self._target is not None or total >= least:
            return False
        return time.monotonic() - self._moved_at < self._options.max_trigger_delay_seconds

    def _allowed(
        self, limit: ReadLimit, waiting: list[tuple[StreamView, int, int, int]]
    ) -> int | None:
        """How many messages the limits let through; None for all."""
        if isinstance(limit, ReadAllAvailable):
            return None
        allowed = []
        if isinstance(limit, ReadMaxRows):
            allowed.append(limit.max_rows)
        bytes_max = self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        if bytes_max:
            count = sum(count for _, _, _, count in waiting)
            size = sum(count * view.message_bytes for view, _, _, count in waiting)
            if size:
                allowed.append(max(int(bytes_max * count / size), 1))
        return min(allowed) if allowed else None

    async def _cut(self, start: Offset, end: Offset) -> list[Part]:
        assert self._planner is not None
        parts: list[Part] = []
        for view in await self._views():
            if view.name not in end:
                continue
            stop = int(end[view.name]["next"])
            created = str(end[view.name].get("created", ""))
            known = start.get(view.name)
            begin = max(view.first, 1) if known is None else int(known["next"])
            if known is not None and known.get("created", "") != created:
                begin = 1  # the stream was made anew in between, and failOnDataLoss is false
            if begin >= stop:
                continue
            lost = loss.find_loss(view.info, created, begin, stop)
            loss.tell(lost, self._options.fail_on_data_loss)
            self._count_newly_lost(view.name, begin, 0 if lost is None else lost.messages)
            if loss.is_another(view.info, created):
                continue  # the rows of this range were in the stream before
            for part in await cut(view, max(begin, view.first), stop, self._options):
                part.created = created
                part.report_to = await self._planner.report_to()
                parts.append(part)
        return parts

    def _count_newly_lost(self, stream: str, begin: int, messages: int) -> None:
        """Count what went after the end of the micro-batch was chosen, `messages` from `begin`."""
        gone = begin + messages
        newly = gone - max(begin, self._gone.get(stream, begin))
        if newly > 0:
            self._lost[stream] = self._lost.get(stream, 0) + newly
            self._gone[stream] = gone

    async def _report(self) -> Offset:
        assert self._planner is not None
        report: Offset = {}
        for view in await self._views():
            reached = self._reached.get(view.name)
            begin = int(reached["next"]) if reached else view.next
            backlog = await view.count(begin, view.next) if begin < view.next else 0
            size = int(backlog * view.message_bytes)
            last = offsets.entry(view, view.next)
            lost = self._lost.get(view.name, 0) + self._planner.losses.total(view.name)
            report[view.name] = {
                **last,
                "backlogMessages": backlog,
                "backlogBytes": size,
                "lostMessages": lost,
            }
        return report

    async def _commit(self, end: Offset) -> None:
        assert self._planner is not None
        await publish(await self._planner.jetstream(), self._options, end)
