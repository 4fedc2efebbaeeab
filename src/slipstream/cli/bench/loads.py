"""What the workers of `slipstream bench` do; each gives the seconds it took."""

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import msgspec

from slipstream.cli.bench.worker_progress import WorkerProgress
from slipstream.cli.session import connection, jetstream
from slipstream.cli.values import one_of
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.client.message import Message
from slipstream.model.policies import STORAGES

TIMEOUT = 600.0
STEP = 500  # messages between two looks at the progress


def _steps(n: int, progress: WorkerProgress) -> Iterator[int]:
    """`n` in parts; a part is told when the next is asked for."""
    for done in range(0, n, STEP):
        part = min(STEP, n - done)
        yield part
        progress.add(part)


async def publish(
    worker: int, n: int, progress: WorkerProgress, *, subject: str, size: int
) -> float:
    """Publish without a stream."""
    body = b"x" * size
    async with connection() as nc:
        await nc.flush()
        began = perf_counter()
        for part in _steps(n, progress):
            for _ in range(part):
                await nc.publish(subject, body)
        await nc.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def subscribe(
    worker: int, n: int, progress: WorkerProgress, *, subject: str, size: int
) -> float:
    """Receive; the time runs from the first message."""
    async with connection() as nc:
        counter = _Counter(n, progress)
        await nc.subscribe(subject, handler=counter.take)
        await nc.flush()
        await counter.done.wait()
        return perf_counter() - counter.began


class _Counter:
    """Counts messages up to `n`."""

    def __init__(self, n: int, progress: WorkerProgress) -> None:
        self._left = n
        self._tally = progress
        self.began = 0.0
        self.done = asyncio.Event()

    def take(self, message: Message) -> None:
        self.began = self.began or perf_counter()
        self._left -= 1
        if self._left % STEP == 0:
            self._tally.add(STEP)
        if self._left == 0:
            self.done.set()


async def through(
    worker: int, n: int, progress: WorkerProgress, *, subject: str, size: int
) -> float:
    """Publish on one connection, receive on another."""
    body = b"x" * size
    subject = f"{subject}.{worker}"
    async with connection() as receiver, connection() as sender:
        counter = _Counter(n, progress)
        await receiver.subscribe(subject, handler=counter.take, max_messages_pending=n)
        await receiver.flush()
        began = perf_counter()
        for at in range(n):
            await sender.publish(subject, body)
            if at % 1000 == 0:
                await asyncio.sleep(0)  # one loop serves both ends
        await asyncio.wait_for(counter.done.wait(), TIMEOUT)
        return perf_counter() - began


async def _make_stream(js: JetStream, stream: str, storage: str, subject: str = "bench.js") -> None:
    kept = one_of(*STORAGES)(storage)
    await js.get_or_create_stream(name=stream, subjects=[subject], storage=kept)


async def purge(stream: str) -> None:
    """Remove what an earlier run has stored, if there is anything."""
    async with jetstream() as js:
        try:
            await js.purge_stream(stream)
        except StreamNotFoundError:
            pass


async def publish_stream(
    worker: int,
    n: int,
    progress: WorkerProgress,
    *,
    subject: str,
    size: int,
    stream: str,
    storage: str,
    batch: int,
) -> float:
    """Publish into a stream with `batch` acknowledgements in flight."""
    body = b"x" * size
    async with jetstream(max_ack_pending=batch) as js:
        await _make_stream(js, stream, storage, subject)
        began = perf_counter()
        for part in _steps(n, progress):
            for _ in range(part):
                await js.publish_async(subject, body)
        await js.publish_async_complete(timeout=TIMEOUT)
        return perf_counter() - began


class Source(msgspec.Struct):
    """A stream with enough in it, and the durable consumer that the workers share."""

    stream: str
    storage: str
    size: int
    messages: int
    consumer: str

    async def fill(self, js: JetStream) -> None:
        """See to it that the stream has enough messages."""
        await _make_stream(js, self.stream, self.storage)
        info = await js.stream_info(self.stream)
        subject = info.config.subjects[0].replace("*", "x").replace(">", "x")
        body = b"x" * self.size
        for _ in range(max(self.messages - info.state.messages, 0)):
            await js.publish_async(subject, body)
        await js.publish_async_complete(timeout=TIMEOUT)

    async def prepare(self, js: JetStream) -> Any:
        """Make both; the consumer."""
        await self.fill(js)
        return await js.get_or_create_consumer(
            self.stream,
            durable_name=self.consumer,
            max_ack_pending=50_000,
            inactive_threshold=300,
        )


async def fetch(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int, size: int
) -> float:
    """Fetch and acknowledge."""
    async with jetstream() as js:
        consumer = await source.prepare(js)
        began = perf_counter()
        left = n
        while left > 0:
            messages = await consumer.fetch(min(batch, left))
            for message in messages:
                message.ack()
            left -= len(messages)
            progress.add(len(messages))
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def consume(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int, size: int
) -> float:
    """Consume and acknowledge."""
    async with jetstream() as js:
        consumer = await source.prepare(js)
        began = perf_counter()
        async with consumer.messages(max_messages=batch) as messages:
            for part in _steps(n, progress):
                for _ in range(part):
                    (await messages.next()).ack()
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def ordered(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int, size: int
) -> float:
    """Read in order, acknowledging nothing; the workers read the same messages."""
    async with jetstream() as js:
        await source.fill(js)
        began = perf_counter()
        async with js.ordered_consumer(source.stream).messages(max_messages=batch) as messages:
            for part in _steps(n, progress):
                for _ in range(part):
                    await messages.next()
        return perf_counter() - began


async def kv_put(worker: int, n: int, progress: WorkerProgress, *, bucket: str, size: int) -> float:
    """Put, one after the other."""
    body = b"x" * size
    async with jetstream() as js:
        kv = await js.create_or_update_key_value(bucket)
        began = perf_counter()
        for at in range(n):
            await kv.put(f"key-{worker}-{at % 1000}", body)
            progress.add(1)
        return perf_counter() - began


async def kv_get(worker: int, n: int, progress: WorkerProgress, *, bucket: str, size: int) -> float:
    """Get, one after the other."""
    async with jetstream() as js:
        kv = await js.create_or_update_key_value(bucket)
        await kv.put("key-0", b"x" * size)
        began = perf_counter()
        for _ in range(n):
            await kv.get("key-0")
            progress.add(1)
        return perf_counter() - began


async def object_put(
    worker: int, n: int, progress: WorkerProgress, *, bucket: str, size: int
) -> float:
    """Put objects."""
    body = b"x" * size
    async with jetstream() as js:
        store = await js.create_or_update_object_store(bucket)
        began = perf_counter()
        for at in range(n):
            await store.put(f"object-{worker}-{at}", body)
            progress.add(1)
        return perf_counter() - began


async def object_get(
    worker: int, n: int, progress: WorkerProgress, *, bucket: str, size: int
) -> float:
    """Get an object, again and again."""
    async with jetstream() as js:
        store = await js.create_or_update_object_store(bucket)
        await store.put(f"object-{worker}", b"x" * size)
        began = perf_counter()
        for _ in range(n):
            await store.get(f"object-{worker}")
            progress.add(1)
        return perf_counter() - began
