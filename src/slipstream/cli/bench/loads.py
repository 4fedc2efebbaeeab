"""What the workers of `slipstream bench` do; each gives the seconds it took."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import islice
from time import perf_counter
from typing import TypeVar

import msgspec

from slipstream.cli.bench.sending import Pace, Sending
from slipstream.cli.bench.worker_progress import WorkerProgress
from slipstream.cli.output import note
from slipstream.cli.session import connection, jetstream
from slipstream.cli.values import one_of
from slipstream.client.jetstream import JetStreamMessage, OrderedConsumerConfig
from slipstream.client.kv.config import KeyValueConfig
from slipstream.client.message import Message
from slipstream.client.services import ServiceRequest
from slipstream.model.configurations import StreamConfig
from slipstream.model.policies import STORAGES, AckPolicy

Item = TypeVar("Item")

TIMEOUT = 600.0
STEP = 500  # messages between two looks at the progress


def _counted(items: Iterable[Item], progress: WorkerProgress) -> Iterator[Item]:
    """Each of `items`, which are counted in steps."""
    at = 0
    for at, item in enumerate(items, 1):
        yield item
        if at % STEP == 0:
            progress.add(STEP)
    progress.add(at % STEP)


async def publish(worker: int, n: int, progress: WorkerProgress, *, sending: Sending) -> float:
    """Publish without a stream."""
    body = sending.body
    async with connection() as nc:
        await nc.flush()
        pace, began = sending.pace(), perf_counter()
        for subject, headers in _counted(sending.messages(worker, n), progress):
            await nc.publish(subject, body, headers=headers)
            if pace:
                await pace.wait()
        await nc.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def request(worker: int, n: int, progress: WorkerProgress, *, sending: Sending) -> float:
    """Ask, one request after the other."""
    body = sending.body
    async with connection() as nc:
        pace, began = sending.pace(), perf_counter()
        for subject, headers in sending.messages(worker, n):
            await nc.request(subject, body, headers=headers)
            progress.add(1)
            if pace:
                await pace.wait()
        return perf_counter() - began


async def serve(subject: str, answer: bytes, instances: int, pause: float) -> None:
    """Answer requests by instances of a service, each with a connection of its own, for ever."""

    async def reply(request: ServiceRequest[bytes]) -> None:
        if pause:
            await asyncio.sleep(pause)
        await request.respond(answer)

    async with AsyncExitStack() as stack:
        for _ in range(instances):
            nc = await stack.enter_async_context(connection())
            service = await nc.add_service("bench", "1.0.0", description="Answers bench request")
            await service.add_endpoint("bench", reply, subject=subject)
            await nc.flush()
        note(f'Listening on "{subject}"')
        await asyncio.Event().wait()


async def subscribe(worker: int, n: int, progress: WorkerProgress, *, subject: str) -> float:
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


async def make_stream(config: StreamConfig, update: bool, purge: bool) -> None:
    """Make a stream if need be; what is there becomes as `config` says only to `update` it."""
    async with jetstream() as js:
        if update:
            await js.create_or_update_stream(config)
        else:
            await js.get_or_create_stream(config)
        if purge:
            await js.purge_stream(config.name)


async def publish_stream(
    worker: int, n: int, progress: WorkerProgress, *, sending: Sending, batch: int
) -> float:
    """Publish into a stream with `batch` acknowledgements in flight. Raises the first error that
    one of them is."""
    body = sending.body
    errors: list[Exception] = []

    def note_error(message: Message, error: Exception) -> None:
        if not errors:  # one is enough to say
            errors.append(error)

    async with jetstream(max_ack_pending=batch, on_publish_error=note_error) as js:
        pace, began = sending.pace(), perf_counter()
        for subject, headers in _counted(sending.messages(worker, n), progress):
            await js.publish_async(subject, body, headers=headers)
            if errors:
                break
            if pace:
                await pace.wait()
        await js.publish_async_complete(timeout=TIMEOUT)
        if errors:
            raise errors[0]
        return perf_counter() - began


async def publish_batches(
    worker: int, n: int, progress: WorkerProgress, *, sending: Sending, batch: int, atomic: bool
) -> float:
    """Publish into a stream in batches of which each is committed."""
    body = sending.body
    async with jetstream() as js:
        pace, began = sending.pace(), perf_counter()
        messages = sending.messages(worker, n)
        while part := list(islice(messages, batch)):
            made = js.atomic_batch() if atomic else js.fast_batch()
            for subject, headers in part:
                await made.add(subject, body, headers=headers)
                if pace:
                    await pace.wait()
            await made.commit()
            progress.add(len(part))
        return perf_counter() - began


class Source(msgspec.Struct, kw_only=True):
    """A stream with enough in it, and the durable consumer that the workers share."""

    stream: str
    storage: str
    size: int
    messages: int
    consumer: str = ""  # "": an ordered consumer or gets
    acks: AckPolicy = "explicit"
    is_double: bool = False
    filters: list[str] = []
    pause: float = 0.0

    async def prepare(self, purge: bool) -> None:
        """Make the stream and the consumer, and see to it that there is enough to read."""
        async with jetstream() as js:
            kept = one_of(*STORAGES)(self.storage)
            found = await js.get_or_create_stream(
                name=self.stream, subjects=["bench.js"], storage=kept, allow_direct=True
            )
            if purge:
                await found.purge()
            reader = await js.get_or_create_consumer(
                self.stream,
                durable_name=self.consumer,
                filter_subjects=self.filters,
                ack_policy=self.acks,
                max_ack_pending=0 if self.acks == "none" else 50_000,
                inactive_threshold=300,
            )
            waiting = (await reader.info()).num_pending
            subject = (self.filters or found.config.subjects)[0]
            subject = subject.replace("*", "x").replace(">", "x")
            body = b"x" * self.size
            missing = self.messages - waiting
            if missing > 0:
                await js.publish(subject, body)  # says so if no stream listens
            for _ in range(missing - 1):
                await js.publish_async(subject, body)
            await js.publish_async_complete(timeout=TIMEOUT)
            if not self.consumer:
                await js.delete_consumer(self.stream, reader.name)


async def _acknowledge(source: Source, message: JetStreamMessage, is_last: bool) -> None:
    """As the consumer wants it; with the policy "all" the last of a batch speaks for all."""
    if source.acks == "none" or (source.acks == "all" and not is_last):
        return
    if source.is_double:
        await message.ack_sync(timeout=TIMEOUT)
    else:
        message.ack()


async def fetch(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int
) -> float:
    """Fetch and acknowledge."""
    async with jetstream() as js:
        consumer = await js.consumer(source.stream, source.consumer)
        pace, began = Pace(source.pause), perf_counter()
        left = n
        while left > 0:
            messages = await consumer.fetch(min(batch, left))
            for at, message in enumerate(messages, 1):
                if pace:
                    await pace.wait()
                await _acknowledge(source, message, at == len(messages))
            left -= len(messages)
            progress.add(len(messages))
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def consume(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int
) -> float:
    """Consume and acknowledge."""
    async with jetstream() as js:
        consumer = await js.consumer(source.stream, source.consumer)
        pace, began = Pace(source.pause), perf_counter()
        async with consumer.messages(max_messages=batch) as messages:
            for at in _counted(range(1, n + 1), progress):
                message = await messages.next()
                if pace:
                    await pace.wait()
                assert message is not None  # nobody stops the messages
                await _acknowledge(source, message, at == n or at % batch == 0)
        await js.connection.flush(timeout=TIMEOUT)
        return perf_counter() - began


async def ordered(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int
) -> float:
    """Read in order, acknowledging nothing; the workers read the same messages."""
    async with jetstream() as js:
        pace, began = Pace(source.pause), perf_counter()
        config = OrderedConsumerConfig(filter_subjects=source.filters)
        consumer = js.ordered_consumer(source.stream, config)
        async with consumer.messages(max_messages=batch) as messages:
            for _ in _counted(range(n), progress):
                await messages.next()
                if pace:
                    await pace.wait()
        return perf_counter() - began


async def get(
    worker: int, n: int, progress: WorkerProgress, *, source: Source, batch: int
) -> float:
    """Get stored messages, `batch` with a request; the workers read the same messages."""
    async with jetstream() as js:
        found = await js.stream(source.stream)
        pace, began = Pace(source.pause), perf_counter()
        if batch > 1:
            subject = source.filters[0] if source.filters else ""
            async for _ in found.get_batch(n, subject=subject):
                progress.add(1)
                if pace:
                    await pace.wait()
            return perf_counter() - began
        first = (await found.info()).state.first_seq
        for sequence in range(first, first + n):
            await found.get_message(sequence)
            progress.add(1)
            if pace:
                await pace.wait()
        return perf_counter() - began


class Bucket(msgspec.Struct, kw_only=True):
    """A bucket, and which keys the workers use."""

    config: KeyValueConfig
    size: int
    keys: int = 0  # so many, in any order; 0: one after the other
    pause: float = 0.0
    rate: float = 0.0  # of a worker

    async def prepare(self, is_get: bool, purge: bool) -> None:
        """Make the bucket; if it will be read, with values."""
        async with jetstream() as js:
            kv = await js.create_or_update_key_value(self.config)
            if purge:
                await js.purge_stream(f"KV_{self.config.bucket}")
            if is_get:
                for at in range(self.keys or 1):
                    await kv.put(f"key-{at}", b"x" * self.size)


async def kv_put(worker: int, n: int, progress: WorkerProgress, *, bucket: Bucket) -> float:
    """Put, one after the other."""
    body = b"x" * bucket.size
    async with jetstream() as js:
        kv = await js.key_value(bucket.config.bucket)
        pace, began = Pace(bucket.pause, bucket.rate), perf_counter()
        for at in range(n):
            number = random.randrange(bucket.keys) if bucket.keys else at % 1000
            await kv.put(f"key-{number}" if bucket.keys else f"key-{worker}-{number}", body)
            progress.add(1)
            if pace:
                await pace.wait()
        return perf_counter() - began


async def kv_get(worker: int, n: int, progress: WorkerProgress, *, bucket: Bucket) -> float:
    """Get, one after the other."""
    async with jetstream() as js:
        kv = await js.key_value(bucket.config.bucket)
        pace, began = Pace(bucket.pause, bucket.rate), perf_counter()
        for _ in range(n):
            await kv.get(f"key-{random.randrange(bucket.keys or 1)}")
            progress.add(1)
            if pace:
                await pace.wait()
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
