"""What the client can do, one small operation each, for tests of what may happen to all of them.

Every operation works on a `World` of its own that was prepared beside it, ends by itself, cleans up
after itself as `docs/client.md` says, and asserts nothing but that what it got is not wrong.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable

import slipstream
from slipstream.client import Message
from slipstream.client.jetstream import JetStream, JetStreamMessage, Messages, Stream
from slipstream.model.policies import Storage
from tests.client.waiting import SOON

STORED = 5  # messages in the stream, keys in the bucket, chunks of the object
TIMEOUT = 5.0


class World:
    """Names of things on the server that only one test uses; `near` is a quiet connection."""

    def __init__(self, near: slipstream.Connection, storage: Storage = "memory") -> None:
        self.near = near
        self.storage = storage
        self.name = "W" + uuid.uuid4().hex[:10]
        self.stream: Stream

    async def prepare(self) -> None:
        """A stream with messages, its consumers, a bucket, a store, a responder."""
        js = self.near.jetstream()
        self.stream = await js.create_stream(
            name=self.name, subjects=[f"{self.name}.>"], storage=self.storage, allow_direct=True
        )
        for number in range(STORED):
            await js.publish(f"{self.name}.{number}", str(number))
        await self.stream.create_consumer(durable_name="pull", ack_wait=0.2)
        await self.stream.create_push_consumer(
            durable_name="push", deliver_subject=f"{self.name}-push", ack_wait=0.2,
            idle_heartbeat=0.1, flow_control=True,
        )  # fmt: skip
        kv = await js.create_key_value(bucket=self.name, history=5, storage=self.storage)
        for number in range(STORED):
            await kv.put(f"key.{number}", str(number))
        store = await js.create_object_store(bucket=self.name, storage=self.storage)
        await store.put("object", b"0123456789" * STORED, chunk_size=10)
        await self.near.subscribe(f"{self.name}-echo", handler=lambda m: m.respond(m.data))

    async def remove(self) -> None:
        """Nothing of it stays on the server."""
        js = self.near.jetstream()
        for name in (self.name, f"KV_{self.name}", f"OBJ_{self.name}"):
            await js.delete_stream(name)

    async def settled(self) -> bool:
        """Whether no pull request, and no consumer but the two, is left on the server."""
        waiting = (await self.stream.consumer_info("pull")).num_waiting
        return waiting == 0 and sorted([n async for n in self.stream.consumer_names()]) == [
            "pull",
            "push",
        ]


Operation = Callable[[slipstream.Connection, World], Awaitable[None]]


def numbers(messages: list[JetStreamMessage]) -> list[int]:
    """What the messages say; each is acknowledged."""
    for message in messages:
        message.ack()
    return [int(message.data) for message in messages]


def inside(found: list[int]) -> None:
    """What was found is of the stream."""
    assert set(found) <= set(range(STORED))


def js_of(nc: slipstream.Connection) -> JetStream:
    """A context that does not wait long."""
    return nc.jetstream(timeout=TIMEOUT, publish_ack_timeout=TIMEOUT)


async def publish(nc: slipstream.Connection, world: World) -> None:
    """Publish and flush."""
    await nc.publish(f"{world.name}-nobody", b"x", headers={"A": "b"})
    await nc.flush(TIMEOUT)


async def subscribe(nc: slipstream.Connection, world: World) -> None:
    """Receive what one publishes; what is lost with a connection is published again."""
    async with await nc.subscribe(f"{world.name}-mine") as subscription:
        for _ in range(50):
            await nc.publish(subscription.subject, b"x")
            try:
                message = await subscription.next(0.1)
            except slipstream.TimeoutError:
                continue
            assert message.data == b"x"
            return
        raise AssertionError("nothing was received")


async def handler(nc: slipstream.Connection, world: World) -> None:
    """A slow handler, and a drain that waits for it."""
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.data)

    subscription = await nc.subscribe(f"{world.name}-slow", handler=handle)
    try:
        for number in range(3):
            await nc.publish(subscription.subject, b"%d" % number)
        await nc.flush(TIMEOUT)
        await subscription.drain()
        assert seen == sorted(set(seen))
    finally:
        await subscription.unsubscribe()


async def request(nc: slipstream.Connection, world: World) -> None:
    """Ask, and be answered."""
    assert (await nc.request(f"{world.name}-echo", b"?", timeout=TIMEOUT)).data == b"?"


async def request_many(nc: slipstream.Connection, world: World) -> None:
    """Ask, and be answered by any subscriber."""
    answers = nc.request_many(f"{world.name}-echo", b"?", timeout=TIMEOUT, stall=0.01)
    async with contextlib.aclosing(answers):
        async for answer in answers:
            assert answer.data == b"?"


async def service(nc: slipstream.Connection, world: World) -> None:
    """Offer a service, and ask it."""
    async with await nc.add_service(world.name, "1.0.0") as offered:
        await offered.add_endpoint("echo", lambda r: r.data, subject=f"{world.name}-service")
        answer = await nc.request(f"{world.name}-service", b"?", timeout=TIMEOUT)
        assert answer.data == b"?"
        found = [p async for p in nc.services.ping(world.name, timeout=1, stall=0.01)]
        assert len(found) <= 1


async def js_publish(nc: slipstream.Connection, world: World) -> None:
    """Publish to a stream."""
    ack = await js_of(nc).publish(f"{world.name}.0", b"0", message_id="same")
    assert ack.stream == world.name


async def js_publish_async(nc: slipstream.Connection, world: World) -> None:
    """Publish to a stream, several at a time."""
    js = js_of(nc)
    futures = [
        await js.publish_async(f"{world.name}.{n}", str(n), message_id=f"n{n}") for n in range(3)
    ]
    await js.publish_async_complete(TIMEOUT)
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome.stream == world.name


async def fetch(nc: slipstream.Connection, world: World) -> None:
    """Fetch more than there is."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    inside(numbers(await consumer.fetch(STORED + 5, timeout=SOON)))


async def fetch_bytes(nc: slipstream.Connection, world: World) -> None:
    """Fetch by size."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    inside(numbers(await consumer.fetch_bytes(300, timeout=SOON)))


async def fetch_no_wait(nc: slipstream.Connection, world: World) -> None:
    """Fetch what is there."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    inside(numbers(await consumer.fetch_no_wait(STORED + 5)))


async def next_message(nc: slipstream.Connection, world: World) -> None:
    """One message, acknowledged for sure."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    message = await consumer.next(timeout=SOON)
    if message is not None:
        await message.ack_sync(TIMEOUT)


async def take(messages: Messages, count: int, quiet: float = SOON) -> list[JetStreamMessage]:
    """Up to `count` messages, as they come; fewer when none comes within `quiet` seconds."""
    found = []
    async with messages:
        while len(found) < count:
            message = await messages.next(timeout=quiet)
            if message is None:
                break
            found.append(message)
    return found


async def messages(nc: slipstream.Connection, world: World) -> None:
    """An endless iterator."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    inside(numbers(await take(consumer.messages(expires=2.0, heartbeat=0.1), 3)))


async def consume(nc: slipstream.Connection, world: World) -> None:
    """A handler at work."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    enough = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        await message.ack()
        enough.set()

    async with consumer.consume(handle, expires=2.0, heartbeat=0.1):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await enough.wait()


async def batch(nc: slipstream.Connection, world: World) -> None:
    """One request as an iterator."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    async with consumer.batch(STORED, expires=SOON) as found:
        inside(numbers([message async for message in found]))


async def sequence(nc: slipstream.Connection, world: World) -> None:
    """One batch after the other."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    batches = consumer.sequence(2)
    async with contextlib.aclosing(batches):  # type: ignore[type-var]
        async for found in batches:
            message = await found.next(timeout=SOON)
            inside(numbers([] if message is None else [message]))
            break


async def push(nc: slipstream.Connection, world: World) -> None:
    """A push consumer."""
    consumer = await js_of(nc).push_consumer(world.name, "push")
    inside(numbers(await take(consumer.messages(), 2)))


def in_order(found: list[int]) -> None:
    """An ordered reader got the beginning, and nothing twice or out of order."""
    assert found[:STORED] == list(range(1, STORED + 1))[: len(found)]


async def ordered_pull(nc: slipstream.Connection, world: World) -> None:
    """Read in order, by pulling."""
    ordered = js_of(nc).ordered_consumer(world.name, inactive_threshold=0.3)
    found = await take(ordered.messages(expires=2.0, heartbeat=0.1), STORED, 3.0)
    in_order([message.sequence for message in found])
    assert len(found) == STORED


async def ordered_push(nc: slipstream.Connection, world: World) -> None:
    """Read in order, being sent."""
    ordered = js_of(nc).ordered_consumer(
        world.name, push=True, idle_heartbeat=0.1, inactive_threshold=0.3
    )
    found = await take(ordered.messages(), STORED, 3.0)
    in_order([message.sequence for message in found])
    assert len(found) == STORED


async def ordered_fetch(nc: slipstream.Connection, world: World) -> None:
    """Read in order, in batches."""
    ordered = js_of(nc).ordered_consumer(world.name, inactive_threshold=0.3)
    try:
        found = await ordered.fetch(3, timeout=1.0)
        found += await ordered.fetch(2, timeout=1.0)
        in_order([message.sequence for message in found])
    finally:
        await ordered.close()


async def stream_infos(nc: slipstream.Connection, world: World) -> None:
    """Infos and lists."""
    stream = await js_of(nc).stream(world.name)
    assert (await stream.info()).state.first_seq == 1
    assert world.name in [name async for name in js_of(nc).stream_names(f"{world.name}.0")]


async def stored_messages(nc: slipstream.Connection, world: World) -> None:
    """Messages without a consumer."""
    stream = await js_of(nc).stream(world.name)
    assert (await stream.get_message(1)).data == b"0"
    found = [message.sequence async for message in stream.get_batch(STORED)]
    in_order(found)
    assert [m.subject async for m in stream.last_for([f"{world.name}.1"])] == [f"{world.name}.1"]


async def kv_write(nc: slipstream.Connection, world: World) -> None:
    """Put, and get what was put."""
    kv = await js_of(nc).key_value(world.name)
    revision = await kv.put("mine", b"x")
    assert (await kv.get("mine")).revision >= revision


async def kv_watch(nc: slipstream.Connection, world: World) -> None:
    """Everything that there is, up to the mark."""
    kv = await js_of(nc).key_value(world.name)
    seen: set[str] = set()
    async with await kv.watch("key.*") as watch:
        async for entry in watch:
            if entry is None:
                break
            seen.add(entry.key)
    assert seen == {f"key.{number}" for number in range(STORED)}


async def kv_keys(nc: slipstream.Connection, world: World) -> None:
    """Keys, and the history of one."""
    kv = await js_of(nc).key_value(world.name)
    assert len(await kv.keys("key.*")) == STORED
    assert [entry.data for entry in await kv.history("key.1")] == [b"1"]


async def object_put(nc: slipstream.Connection, world: World) -> None:
    """Put an object; what was there before stays if that fails."""
    objects = await js_of(nc).object_store(world.name)
    await objects.put("mine", b"x" * 45, chunk_size=10)
    assert await objects.get("mine") == b"x" * 45


async def object_get(nc: slipstream.Connection, world: World) -> None:
    """Get an object, whole or not at all."""
    objects = await js_of(nc).object_store(world.name)
    assert await objects.get("object") == b"0123456789" * STORED


async def object_watch(nc: slipstream.Connection, world: World) -> None:
    """What describes all objects."""
    objects = await js_of(nc).object_store(world.name)
    assert "object" in [info.name for info in await objects.list()]


async def scan(nc: slipstream.Connection, world: World) -> None:
    """A stretch of the stream as Arrow batches, by direct gets."""
    stream = await js_of(nc).stream(world.name)
    async with stream.scan(end=STORED, batch_rows=2) as found:
        rows = [s async for part in found for s in part.column("sequence").to_pylist()]
    assert rows == list(range(1, STORED + 1))


async def scan_by_consumer(nc: slipstream.Connection, world: World) -> None:
    """The same through an ordered consumer."""
    stream = await js_of(nc).stream(world.name)
    subjects = [f"{world.name}.{number}" for number in range(STORED)]
    async with stream.scan(end=STORED, subjects=subjects, batch_rows=2) as found:
        rows = [s async for part in found for s in part.column("sequence").to_pylist()]
    assert rows == list(range(1, STORED + 1))


async def fetch_arrow(nc: slipstream.Connection, world: World) -> None:
    """Messages as one record batch, acknowledged."""
    consumer = await js_of(nc).consumer(world.name, "pull")
    found = await consumer.fetch_arrow(STORED, timeout=SOON)
    await consumer.ack_batch(found)


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (
        publish, subscribe, handler, request, request_many, service, js_publish, js_publish_async,
        fetch, fetch_bytes, fetch_no_wait, next_message, messages, consume, batch, sequence, push,
        ordered_pull, ordered_push, ordered_fetch, stream_infos, stored_messages, kv_write,
        kv_watch, kv_keys, object_put, object_get, object_watch, scan, scan_by_consumer,
        fetch_arrow,
    )
}  # fmt: skip
