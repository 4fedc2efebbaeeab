"""A connection for planning, and what planning asks of a stream: counts, sequences, times.

How many messages come after a sequence, holes not counted, one request tells: the first answer of a
batched direct get carries `Nats-Num-Pending` (docs/protocol/streams.md#direct-get), and where
direct gets are not allowed, or for several filters, so does the answer to creating a consumer. So a
range is cut by count with a few requests, whatever was deleted within it.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

import slipstream.spark.markers as markers
from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.errors import (
    ApiError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
)
from slipstream.errors import ConfigError, Error
from slipstream.model.configurations import ConsumerConfig
from slipstream.model.header_fields import NATS_NUM_PENDING, NATS_SEQUENCE
from slipstream.model.infos import StreamInfo
from slipstream.model.times import datetime_text
from slipstream.spark.connections import RETRY_WAIT_SECONDS, connect, jetstream, may_pass
from slipstream.spark.loss import LossReports
from slipstream.spark.options import ServerOptions, SourceOptions
from slipstream.wire.headers import find_last
from slipstream.wire.subjects import overlaps

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream
    from slipstream.client.message import Message

T = TypeVar("T")

_NEAR = 0.95  # a cut this near to the wanted count needs no more requests
_STEPS_MAX = 64


class Planner:
    """A connection in a thread of its own, so that it answers pings between two triggers."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: Connection | None = None
        self._was_answered = False
        self._report_to = ""
        self.losses = LossReports()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises.

        It is begun anew while the server is away, for up to `retryTimeout`; then `TimeoutError` is
        raised. A server that has no JetStream is told from one that comes back: it is not waited
        for if it has never answered.
        """
        deadline = time.monotonic() + self._options.retry_timeout
        while True:
            try:
                done = asyncio.run_coroutine_threadsafe(work(), self._loop).result()
            except Error as error:
                is_without = isinstance(error, JetStreamNotEnabledError) and not self._was_answered
                if is_without or not may_pass(error):
                    raise
                if time.monotonic() > deadline:
                    if self._connection is None:
                        raise  # it says that no server is there
                    raise TimeoutError(
                        f"the server has not answered for {self._options.retry_timeout:g} s "
                        f"({error}): is it there? The option retryTimeout sets the wait"
                    ) from error
            else:
                self._was_answered = True
                return done
            time.sleep(RETRY_WAIT_SECONDS)

    async def jetstream(self) -> "JetStream":
        """The context, connected on first use."""
        if self._connection is None:
            self._connection = await connect(self._options, "spark-planner", patient=True)
        return jetstream(self._connection, self._options)

    async def report_to(self) -> str:
        """The subject on which tasks report losses, which `losses` then has."""
        if not self._report_to:
            await self.jetstream()
            assert self._connection is not None
            inbox = self._connection.new_inbox()
            await self._connection.subscribe(
                inbox, handler=lambda message: self.losses.note(message.data)
            )
            await self._connection.flush()
            self._report_to = inbox
        return self._report_to

    async def view(self, stream: str, subjects: list[str]) -> "StreamView":
        """A stream as it is now. Raises `StreamNotFoundError`."""
        js = await self.jetstream()
        return StreamView(js, await js.stream_info(stream), subjects)

    async def views(self, options: SourceOptions, subjects: list[str]) -> "list[StreamView]":
        """The streams of a read as they are now: those named, or those that the pattern matches."""
        names = options.streams
        if options.subscribe_pattern:
            js = await self.jetstream()
            found = [name async for name in js.stream_names()]
            pattern = options.subscribe_pattern
            names = sorted(n for n in found if re.fullmatch(pattern, n) and n != markers.STREAM)
        views = [await self.view(name, subjects) for name in names]
        check_subjects([view.info for view in views], options.subject_list)
        return views

    def close(self) -> None:
        """End the connection and its thread."""
        if self._connection is not None:
            closing = asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop)
            closing.result()
            self._connection = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


def check_subjects(infos: list[StreamInfo], filters: list[str]) -> None:
    """Raise `ConfigError` for a subject filter that can match nothing in any of the streams.

    What is in a mirror, or in a stream with sources or a transform, its subjects do not say.
    """
    known: list[str] = []
    for config in (info.config for info in infos):
        if config.mirror or config.sources or config.subject_transform or not config.subjects:
            return
        known += config.subjects
    for wanted in filters if infos else ():
        if not any(overlaps(wanted.encode(), own.encode()) for own in known):
            raise ConfigError(
                f"jetstream: the subject {wanted!r} is none of "
                f"{', '.join(info.config.name for info in infos)}, which has {', '.join(known)}"
            )


class StreamView:
    """A stream at one moment, under the subject filters of the read."""

    def __init__(self, js: "JetStream", info: StreamInfo, subjects: list[str]) -> None:
        self._js = js
        self.info = info
        self.name = info.config.name
        self.subjects = subjects
        self.created = datetime_text(info.created) if info.created is not None else ""
        self.first = info.state.first_seq
        self.next = info.state.last_seq + 1
        self._counts: dict[int, int] = {}  # by sequence: what was asked is not asked again

    @property
    def is_dense(self) -> bool:
        """Whether every sequence from first to last has a message that is wanted."""
        return not self.subjects and not self.info.state.num_deleted

    @property
    def message_bytes(self) -> float:
        """Bytes of a message on the average, as the server counts them."""
        state = self.info.state
        return state.bytes / state.messages if state.messages else 0.0

    @property
    def has_direct_get(self) -> bool:
        """Whether one direct get finds the next message that is wanted."""
        return bool(self.info.config.allow_direct) and len(self.subjects) <= 1

    async def count_from(self, sequence: int) -> int:
        """Wanted messages at or after a sequence."""
        start = max(sequence, self.first, 1)
        if start >= self.next or not self.info.state.messages:
            return 0
        if self.is_dense:
            return self.next - start
        if start not in self._counts:
            ask = self._count_by_direct_get if self.has_direct_get else self._count_by_consumer
            self._counts[start] = await ask(start)
        return self._counts[start]

    async def count(self, start: int, end: int) -> int:
        """Wanted messages from `start` to before `end`."""
        return await self.count_from(start) - await self.count_from(end)

    async def end_of(self, start: int, end: int, wanted: int) -> int:
        """Where a range from `start` has to end, at most at `end`, to hold `wanted` messages.

        It holds that many or a little less, and one at least.
        """
        total_left = await self.count_from(start)
        end_left = await self.count_from(end)
        if total_left - end_left <= wanted:
            return end
        low, high = max(start, self.first), end
        if self.is_dense:
            return low + wanted
        low_taken, high_taken = 0, total_left - end_left
        # Where holes are few, so many sequences have enough messages, and never too many.
        has_few_holes = high_taken >= (high - low) * _NEAR
        for step in range(_STEPS_MAX):
            if high - low <= 1 or low_taken >= wanted * _NEAR:
                break
            if step == 0 and has_few_holes:
                middle = low + wanted
            elif step % 2:
                middle = (low + high) // 2
            else:
                share = (wanted - low_taken) / (high_taken - low_taken)
                middle = low + int((high - low) * share)
            middle = min(max(middle, low + 1), high - 1)
            taken = total_left - await self.count_from(middle)
            if taken <= wanted:
                low, low_taken = middle, taken
            else:
                high, high_taken = middle, taken
        return low

    async def sequence_at(self, moment: datetime) -> int:
        """The first sequence stored at or after a time; the one after the last if there is none."""
        try:
            found = await (await self._js.stream(self.name)).get_at(moment)
        except MessageNotFoundError:
            return self.next
        return found.sequence

    async def size_at(self, start: int, end: int) -> int | None:
        """Bytes of the first wanted message from `start` to before `end`; None without one."""
        answer = await self._ask({"seq": start})
        sequence = _said(answer, NATS_SEQUENCE)
        if answer.status or sequence is None or sequence >= end:
            return None
        return len(answer.data) + len(answer.header_block or b"")

    async def _ask(self, asked: dict[str, object]) -> "Message":
        """The first wanted message that a direct get finds."""
        wanted = asked | {"next_by_subj": self.subjects[0] if self.subjects else ">"}
        subject = f"{self._js.api.prefix}.DIRECT.GET.{self.name}"
        return await self._js.connection.request(subject, msgspec.json.encode(wanted))

    async def _count_by_direct_get(self, start: int) -> int:
        # A batch of one also says how many follow it, which takes the server longer.
        answer = await self._ask({"seq": start, "batch": 1})
        pending = _said(answer, NATS_NUM_PENDING)
        if answer.status == 404:
            return 0
        if answer.status or pending is None:
            return await self._count_by_consumer(start)
        return pending + 1

    async def _count_by_consumer(self, start: int) -> int:
        config = ConsumerConfig(
            name=f"spark-{self._js.connection.new_inbox().rpartition('.')[2]}",
            ack_policy="none",
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=5.0,
            deliver_policy="by_start_sequence",
            opt_start_seq=start,
        )
        if self.subjects:
            config.filter_subjects = list(self.subjects)
        made = await self._js.create_consumer_raw(self.name, config)
        try:
            await self._js.delete_consumer(self.name, made.name)
        except ApiError:
            pass  # it ends by itself
        return made.num_pending


def _said(answer: "Message", name: bytes) -> int | None:
    """The number that the server has added to a message; None if it has none. The message may have
    headers of that name itself: the server's come last."""
    block = answer.header_block
    value = find_last(block, 0, len(block), name)
    return int(value) if value is not None and value.isdigit() else None
