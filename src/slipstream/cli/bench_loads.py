"""What the workers of `slipstream bench` do; each gives the seconds it took."""

import asyncio
from time import perf_counter
from typing import Any

from slipstream.cli.session import connection, jetstream
from slipstream.client.jetstream.context import JetStream
from slipstream.client.message import Message

TIMEOUT = 600.0


async def publish(worker: int, n: int, *, subject: str, size: int) -> float:
    """Publish without a stream."""
    body = b"x" * size
    async with connection() as nc:
        await nc.flush()
        began = perf_counter()
        for _ in range(n):
            await nc.publish(subject, body)
        await nc.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def subscribe(worker: int, n: int, *, subject: str, size: int) -> float:
    """Receive; the time runs from the first message."""
    async with connection() as nc:
        counter = _Counter(n)
        await nc.subscribe(subject, handler=counter.take)
        await nc.flush()
        await counter.done.wait()
        return perf_counter() - counter.began


class _Counter:
    """Counts messages up to `n`."""

    def __init__(self, n: int) -> None:
        self._left = n
        self.began = 0.0
        self.done = asyncio.Event()

    def take(self, message: Message) -> None:
        self.began = self.began or perf_counter()
        self._left -= 1
        if self._left == 0:
            self.done.set()


async def through(worker: int, n: int, *, subject: str, size: int) -> float:
    """Publish on one connection, receive on another."""
    body = b"x" * size
    subject = f"{subject}.{worker}"
    async with connection() as receiver, connection() as sender:
        counter = _Counter(n)
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
    await js.get_or_create_stream(name=stream, subjects=[subject], storage=storage)


async def publish_stream(
    worker: int, n: int, *, subject: str, size: int, stream: str, storage: str, batch: int
) -> float:
    """Publish into a stream with `batch` acknowledgements in flight."""
    body = b"x" * size
    async with jetstream(max_ack_pending=batch) as js:
        await _make_stream(js, stream, storage, subject)
        began = perf_counter()
        for _ in range(n):
            await js.publish_async(subject, body)
        await js.publish_async_complete(timeout=TIMEOUT)
        return perf_counter() - began


async def _filled(js: JetStream, stream: str, storage: str, total: int, size: int, run: str) -> Any:
    """The consumer that the workers share, with enough in its stream."""
    await _make_stream(js, stream, storage)
    info = await js.stream_info(stream)
    body = b"x" * size
    for _ in range(max(total - info.state.messages, 0)):
        await js.publish_async("bench.js", body)
    await js.publish_async_complete(timeout=TIMEOUT)
    return await js.get_or_create_consumer(
        stream, durable_name=f"bench-{run}", max_ack_pending=50_000, inactive_threshold=300
    )


async def fetch(
    worker: int,
    n: int,
    *,
    stream: str,
    batch: int,
    size: int,
    storage: str,
    total: int,
    run: str,
) -> float:
    """Fetch and acknowledge."""
    async with jetstream() as js:
        consumer = await _filled(js, stream, storage, total, size, run)
        began = perf_counter()
        left = n
        while left > 0:
            messages = await consumer.fetch(min(batch, left))
            for message in messages:
                message.ack()
            left -= len(messages)
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def consume(
    worker: int,
    n: int,
    *,
    stream: str,
    batch: int,
    size: int,
    storage: str,
    total: int,
    run: str,
) -> float:
    """Consume and acknowledge."""
    async with jetstream() as js:
        consumer = await _filled(js, stream, storage, total, size, run)
        began = perf_counter()
        left = n
        async with consumer.messages(max_messages=batch) as messages:
            async for message in messages:
                message.ack()
                left -= 1
                if left == 0:
                    break
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def kv_put(worker: int, n: int, *, bucket: str, size: int) -> float:
    """Put, one after the other."""
    body = b"x" * size
    async with jetstream() as js:
        kv = await js.create_or_update_key_value(bucket)
        began = perf_counter()
        for at in range(n):
            await kv.put(f"key-{worker}-{at % 1000}", body)
        return perf_counter() - began


async def kv_get(worker: int, n: int, *, bucket: str, size: int) -> float:
    """Get, one after the other."""
    async with jetstream() as js:
        kv = await js.create_or_update_key_value(bucket)
        await kv.put("key-0", b"x" * size)
        began = perf_counter()
        for _ in range(n):
            await kv.get("key-0")
        return perf_counter() - began


async def object_put(worker: int, n: int, *, bucket: str, size: int) -> float:
    """Put objects."""
    body = b"x" * size
    async with jetstream() as js:
        store = await js.create_or_update_object_store(bucket)
        began = perf_counter()
        for at in range(n):
            await store.put(f"object-{worker}-{at}", body)
        return perf_counter() - began


async def object_get(worker: int, n: int, *, bucket: str, size: int) -> float:
    """Get an object, again and again."""
    async with jetstream() as js:
        store = await js.create_or_update_object_store(bucket)
        await store.put(f"object-{worker}", b"x" * size)
        began = perf_counter()
        for _ in range(n):
            await store.get(f"object-{worker}")
        return perf_counter() - began
