"""One client, one load, one process: ``python -m bench.jetstream_loads CLIENT LOAD URL N``.

Prints a line of JSON: messages a second by the clock, and by the processor time of this process,
which other work on the machine does not disturb. A load does the same through each client's own
API, written the way its documentation does.
"""

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvloop

BODY = b"x" * 128
STREAM = "BENCH"
SUBJECT = "bench.js"
IN_FLIGHT = 1000
BATCH = 500


class Client(ABC):
    """What the loads need of a client; `open` leaves a new, empty stream behind."""

    nc: Any
    js: Any
    consumer: Any

    @abstractmethod
    async def open(self, url: str) -> None:
        """Connect, and make the stream."""

    async def publish(self, n: int) -> None:
        """`n` messages, each after the acknowledgement of the one before."""
        for _ in range(n):
            await self.js.publish(SUBJECT, BODY)

    async def publish_async(self, n: int) -> None:
        """`n` messages with 1,000 acknowledgements in flight."""
        for _ in range(n):
            await self.js.publish_async(SUBJECT, BODY)
        await self.js.publish_async_complete()

    @abstractmethod
    async def prepare(self, n: int) -> None:
        """Fill the stream with `n` messages and make a durable consumer."""

    async def fetch(self, n: int) -> None:
        """Fetch `n` messages, 500 at a time, and acknowledge each."""
        left = n
        while left:
            messages = await self.batch()
            for message in messages:
                await message.ack()
            left -= len(messages)
        await self.nc.flush()

    async def batch(self) -> Sequence[Any]:
        """The next messages, at most 500."""
        found: Sequence[Any] = await self.consumer.fetch(BATCH)
        return found

    async def consume(self, n: int) -> None:
        """Iterate over `n` messages and acknowledge each."""
        left = n
        async with self.iterator() as messages:
            async for message in messages:
                await message.ack()
                left -= 1
                if not left:
                    break
        await self.nc.flush()

    def iterator(self) -> AbstractAsyncContextManager[AsyncIterable[Any]]:
        """The consumer's messages, one after the other."""
        found: AbstractAsyncContextManager[AsyncIterable[Any]] = self.consumer.consume()
        return found

    async def close(self) -> None:
        """Disconnect."""
        await self.nc.close()


class Slipstream(Client):
    """This project's client."""

    async def open(self, url: str) -> None:
        import slipstream
        from slipstream.client.jetstream.errors import StreamNotFoundError

        self.nc = await slipstream.connect(url)
        self.js = self.nc.jetstream(max_ack_pending=IN_FLIGHT)
        try:
            await self.js.delete_stream(STREAM)
        except StreamNotFoundError:
            pass
        self.stream = await self.js.create_stream(name=STREAM, subjects=[SUBJECT])

    async def prepare(self, n: int) -> None:
        await self.publish_async(n)
        self.consumer = await self.stream.create_consumer(durable_name="c", max_ack_pending=n)

    def iterator(self) -> AbstractAsyncContextManager[AsyncIterable[Any]]:
        found: AbstractAsyncContextManager[AsyncIterable[Any]] = self.consumer.messages()
        return found


class NatsPy(Client):
    """nats-py, the official client."""

    async def open(self, url: str) -> None:
        import nats
        from nats.js.errors import NotFoundError

        self.nc = await nats.connect(url)
        self.js = self.nc.jetstream(publish_async_max_pending=IN_FLIGHT)
        try:
            await self.js.delete_stream(STREAM)
        except NotFoundError:
            pass
        await self.js.add_stream(name=STREAM, subjects=[SUBJECT])

    async def publish_async(self, n: int) -> None:
        for _ in range(n):
            await self.js.publish_async(SUBJECT, BODY)
        await self.js.publish_async_completed()

    async def prepare(self, n: int) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        await self.publish_async(n)
        await self.js.add_consumer(
            STREAM, ConsumerConfig("c", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=n)
        )
        self.sub = await self.js.pull_subscribe_bind("c", STREAM)

    async def batch(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.sub.fetch(BATCH)
        return found

    async def consume(self, n: int) -> None:
        await self.fetch(n)  # its newest releases have no iterator over a pull consumer


class Natsio(Client):
    """natsio, from 1.0 on, which needs Python 3.13."""

    async def open(self, url: str) -> None:
        import natsio
        from natsio.jetstream import StreamConfig, StreamNotFoundError

        self.nc = await natsio.connect(url)
        self.js = self.nc.jetstream(publish_async_max_pending=IN_FLIGHT)
        try:
            await self.js.delete_stream(STREAM)
        except StreamNotFoundError:
            pass
        self.stream = await self.js.create_stream(StreamConfig(name=STREAM, subjects=[SUBJECT]))

    async def prepare(self, n: int) -> None:
        from natsio.jetstream import ConsumerConfig

        await self.publish_async(n)
        config = ConsumerConfig(durable_name="c", max_ack_pending=n)
        self.consumer = await self.stream.create_consumer(config)


class Natsrpy(Client):
    """natsrpy, a binding of the Rust client."""

    async def open(self, url: str) -> None:
        from natsrpy import Nats
        from natsrpy.js import StreamConfig

        self.nc = Nats(addrs=[url])
        await self.nc.startup()
        self.js = await self.nc.jetstream(max_ack_inflight=IN_FLIGHT)
        try:
            await self.js.streams.delete(STREAM)
        except Exception:  # its errors do not tell that there is none
            pass
        self.stream = await self.js.streams.create(StreamConfig(STREAM, [SUBJECT]))

    async def publish(self, n: int) -> None:
        for _ in range(n):
            await self.js.publish(SUBJECT, BODY, wait=True)

    async def publish_async(self, n: int) -> None:
        for _ in range(n // IN_FLIGHT):
            pending = (self.js.publish(SUBJECT, BODY, wait=True) for _ in range(IN_FLIGHT))
            await asyncio.gather(*pending)

    async def prepare(self, n: int) -> None:
        from natsrpy.js import AckPolicy, PullConsumerConfig

        await self.publish_async(n)
        self.consumer = await self.stream.consumers.create(
            PullConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=n)
        )

    async def batch(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.consumer.fetch(max_messages=BATCH, expires=5)
        return found

    async def close(self) -> None:
        await self.nc.shutdown()


CLIENTS: dict[str, type[Client]] = {
    "slipstream": Slipstream,
    "nats-py": NatsPy,
    "natsio": Natsio,
    "natsrpy": Natsrpy,
}
LOADS = {
    "publish, one after the other": ("publish", 10_000),
    "publish, 1,000 in flight": ("publish_async", 100_000),
    "fetch 500 and ack each": ("fetch", 100_000),
    "iterate and ack each": ("consume", 100_000),
}


async def measure(client: Client, load: str, url: str, n: int) -> dict[str, float]:
    """Run one load and count."""
    name, messages = LOADS[load]
    messages = n or messages
    await client.open(url)
    if name in ("fetch", "consume"):
        await client.prepare(messages)
    run: Any = getattr(client, name)
    clock, processor = time.perf_counter(), time.process_time()
    await run(messages)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    await client.close()
    return {"per_second": messages / clock, "per_cpu_second": messages / processor}


def main() -> None:
    """Measure what the arguments name."""
    name, load, url, n = sys.argv[1:]
    print(json.dumps(uvloop.run(measure(CLIENTS[name](), load, url, int(n)))))


if __name__ == "__main__":
    main()
