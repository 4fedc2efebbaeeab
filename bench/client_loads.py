"""One client, one load, one process: ``python -m bench.client_loads CLIENT LOAD URL N``.

Prints a line of JSON: messages a second by the clock, and by the processor time of this process,
which other work on the machine does not disturb. A load does the same through each client's own
API, written the way its documentation does.
"""

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

BODY = b"x" * 128
SUBJECT = "bench.core"


class Client(ABC):
    """What the core loads need of a client."""

    @abstractmethod
    def open(self, url: str) -> Any:
        """An async context manager that gives a connection."""

    @abstractmethod
    async def publish(self, nc: Any, n: int) -> None:
        """Publish `n` messages and see that the server has them."""

    @abstractmethod
    async def receive(self, nc: Any, n: int) -> None:
        """Subscribe, publish `n` messages on the same connection and iterate over them."""

    @abstractmethod
    async def answer(self, nc: Any) -> None:
        """Answer every request on SUBJECT."""

    @abstractmethod
    async def request(self, nc: Any) -> None:
        """One request."""


class Slipstream(Client):
    """This project's client."""

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[Any]:
        import slipstream

        async with await slipstream.connect(url) as nc:
            yield nc

    async def publish(self, nc: Any, n: int) -> None:
        for _ in range(n):
            await nc.publish(SUBJECT, BODY)
        await nc.flush(60)

    async def receive(self, nc: Any, n: int) -> None:
        async with await nc.subscribe(SUBJECT) as subscription:

            async def publish() -> None:
                for _ in range(n):
                    await nc.publish(SUBJECT, BODY)

            task = asyncio.create_task(publish())
            left = n
            async for _ in subscription:
                left -= 1
                if not left:
                    break
            await task

    async def answer(self, nc: Any) -> None:
        await nc.subscribe(SUBJECT, handler=lambda message: message.respond(b"ok"))

    async def request(self, nc: Any) -> None:
        await nc.request(SUBJECT, b"")


class NatsPy(Client):
    """nats-py, by the NATS authors."""

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[Any]:
        import nats

        nc = await nats.connect(url)
        yield nc
        await nc.close()

    async def publish(self, nc: Any, n: int) -> None:
        for _ in range(n):
            await nc.publish(SUBJECT, BODY)
        await nc.flush(60)

    async def receive(self, nc: Any, n: int) -> None:
        subscription = await nc.subscribe(SUBJECT)

        async def publish() -> None:
            for _ in range(n):
                await nc.publish(SUBJECT, BODY)

        task = asyncio.create_task(publish())
        left = n
        async for _ in subscription.messages:
            left -= 1
            if not left:
                break
        await task

    async def answer(self, nc: Any) -> None:
        async def respond(message: Any) -> None:
            await message.respond(b"ok")

        await nc.subscribe(SUBJECT, cb=respond)

    async def request(self, nc: Any) -> None:
        await nc.request(SUBJECT, b"", timeout=10)


class Natsio(Client):
    """natsio (PyPI), from 1.0 on, which needs Python 3.13."""

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[Any]:
        import natsio

        nc = await natsio.connect(url)
        yield nc
        await nc.close()

    async def publish(self, nc: Any, n: int) -> None:
        for _ in range(n):
            await nc.publish(SUBJECT, BODY)
        await nc.flush(60)

    async def receive(self, nc: Any, n: int) -> None:
        subscription = await nc.subscribe(
            SUBJECT, pending_msgs_limit=n, pending_bytes_limit=1 << 31
        )

        async def publish() -> None:
            for _ in range(n):
                await nc.publish(SUBJECT, BODY)

        task = asyncio.create_task(publish())
        left = n
        async for _ in subscription:
            left -= 1
            if not left:
                break
        await task

    async def answer(self, nc: Any) -> None:
        async def respond(message: Any) -> None:
            await message.respond(b"ok")

        await nc.subscribe(SUBJECT, cb=respond)

    async def request(self, nc: Any) -> None:
        await nc.request(SUBJECT, b"")


class Natsrpy(Client):
    """natsrpy (PyPI), a binding of the Rust client."""

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[Any]:
        from natsrpy import Nats

        nc = Nats(addrs=[url])
        await nc.startup()
        yield nc
        await nc.shutdown()

    async def publish(self, nc: Any, n: int) -> None:
        for _ in range(n):
            await nc.publish(SUBJECT, BODY)
        await nc.flush()

    async def receive(self, nc: Any, n: int) -> None:
        async with nc.subscribe(SUBJECT) as subscription:

            async def publish() -> None:
                for _ in range(n):
                    await nc.publish(SUBJECT, BODY)

            task = asyncio.create_task(publish())
            left = n
            async for _ in subscription:
                left -= 1
                if not left:
                    break
            await task

    async def answer(self, nc: Any) -> None:
        async def respond(message: Any) -> None:
            await nc.publish(message.reply, b"ok")

        await nc.subscribe(SUBJECT, callback=respond).detatch()

    async def request(self, nc: Any) -> None:
        await nc.request(SUBJECT, b"")


CLIENTS: dict[str, type[Client]] = {
    "slipstream": Slipstream,
    "nats-py": NatsPy,
    "natsio": Natsio,
    "natsrpy": Natsrpy,
}


async def load_publish(client: Client, nc: Any, n: int) -> None:
    """Core publish, one after the other, then a flush."""
    await client.publish(nc, n)


async def load_receive(client: Client, nc: Any, n: int) -> None:
    """Publish to an iterating subscriber on the same connection."""
    await client.receive(nc, n)


async def load_request(client: Client, nc: Any, n: int) -> None:
    """Requests one after the other, answered over the same connection."""
    await client.answer(nc)
    for _ in range(n):
        await client.request(nc)


async def load_requests(client: Client, nc: Any, n: int) -> None:
    """Requests, 100 at a time, answered over the same connection."""
    await client.answer(nc)
    for _ in range(n // 100):
        await asyncio.gather(*(client.request(nc) for _ in range(100)))


LOADS: dict[str, tuple[Callable[[Client, Any, int], Awaitable[None]], int]] = {
    "publish": (load_publish, 600_000),
    "publish to subscriber": (load_receive, 200_000),
    "request, one at a time": (load_request, 5_000),
    "request, 100 at a time": (load_requests, 20_000),
}


async def measure(client: str, load: str, url: str, n: int) -> dict[str, float]:
    """Warm up with a tenth, then measure."""
    run, default = LOADS[load]
    n = n or default
    made = CLIENTS[client]()
    async with made.open(url) as nc:
        await run(made, nc, max(n // 10, 100))
    async with made.open(url) as nc:
        wall, cpu = time.perf_counter(), time.process_time()
        await run(made, nc, n)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"per_second": n / wall, "per_cpu_second": n / cpu}


def main() -> None:
    """Measure what the command line says."""
    client, load, url, n = sys.argv[1:5]
    print(json.dumps(uvloop.run(measure(client, load, url, int(n)))))


if __name__ == "__main__":
    main()
