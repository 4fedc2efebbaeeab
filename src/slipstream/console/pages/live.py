"""Messages as they come: server-sent events of what a stream has stored."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from slipstream.client.jetstream import JetStreamMessage, OrderedConsumerConfig, Timestamp
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.console.pages.messages import shown
from slipstream.console.visit import FormError, Visit, event

BATCH_SECONDS = 0.25
SHOWN_PER_BATCH = 10  # of a stream that is faster, the newest of each quarter of a second
SILENT_SECONDS_MAX = 15.0  # a word now and then keeps a connection open
STILL_HERE = ": still here\n\n"


async def live(request: Request) -> Response:
    """The page to watch a stream on."""
    visit = Visit(request)
    return await visit.stream_page("live.html", "live", subject=visit.asked("subject"))


async def tail(request: Request) -> Response:
    """What is stored since the page was made. An ordered consumer reads it, and leaves nothing."""
    visit = Visit(request)
    name, subject, seen = visit.path("stream"), visit.asked("subject"), visit.seen()
    info = await visit.js.stream_info(name)  # what is wrong is said before the events begin
    if info.config.retention == "workqueue":
        raise FormError(f"Stream {name} is a work queue: watching would take its messages away.")
    config = OrderedConsumerConfig(
        filter_subjects=[subject] if subject else [],
        deliver_policy="new" if seen is None else "by_start_sequence",
        opt_start_seq=0 if seen is None else seen + 1,
        inactive_threshold=60.0,
    )

    async def events() -> AsyncIterator[str]:
        async with visit.js.ordered_consumer(name, config).messages() as arriving:
            newest = Newest(name)
            collector = asyncio.create_task(newest.collect(arriving), name="console tail")
            try:
                async for found, left_out in newest.batches(collector):
                    messages = [shown(one, visit.masks) for one in reversed(found)]
                    text = visit.text(
                        "_tail.html", stream=name, messages=messages, left_out=left_out
                    )
                    if found:
                        yield event("messages", text, found[-1].sequence)
                    else:
                        yield STILL_HERE
            finally:
                collector.cancel()

    return visit.stream(events())


class Newest:
    """The newest of what has arrived since the last look; a fast stream's others are counted."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._kept: deque[StoredMessage] = deque(maxlen=SHOWN_PER_BATCH)
        self._count = 0

    async def collect(self, arriving: AsyncIterator[JetStreamMessage]) -> None:
        """Take what arrives, for ever."""
        async for message in arriving:
            self._kept.append(_stored(self._stream, message))
            self._count += 1

    async def batches(
        self, collector: "asyncio.Task[None]"
    ) -> AsyncIterator[tuple[list[StoredMessage], int]]:
        """What has arrived, and how many are left out; nothing now and then while all is silent."""
        yield [], 0
        silent = 0.0
        while not collector.done():
            await asyncio.wait({collector}, timeout=BATCH_SECONDS)
            silent += BATCH_SECONDS
            if self._count or silent >= SILENT_SECONDS_MAX:
                found = list(self._kept)
                yield found, self._count - len(found)
                self._kept.clear()
                self._count, silent = 0, 0.0


def _stored(stream: str, message: JetStreamMessage) -> StoredMessage:
    found = message.metadata
    return StoredMessage(
        stream=stream,
        subject=message.subject,
        sequence=found.stream_sequence,
        data=message.data,
        headers=message.headers,
        time=Timestamp.from_ns(found.timestamp_ns),
    )


ROUTES = (("GET", "/streams/{stream}/live", live), ("GET", "/streams/{stream}/tail", tail))
