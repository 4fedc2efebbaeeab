"""A reader that stops reading: the server is held up, and memory stays bounded.

What has come over the socket and was not taken is what the client holds; so the bytes received
while nobody reads are measured, until they grow no more.
"""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.object_store.reader import BATCH_BYTES
from slipstream.client.object_store.store import IN_FLIGHT_BYTES_MAX
from slipstream.wire.nuid import DIGITS
from tests.client.proxy import Proxy
from tests.client.waiting import turns

MEBI = 1024 * 1024
TOTAL = 32 * MEBI
BODY = 256 * 1024
SLACK = 2 * MEBI


@pytest.fixture
def js(nc: slipstream.Connection) -> JetStream:
    context: JetStream = nc.jetstream()
    return context


@pytest.fixture
async def reading(server_url: str) -> AsyncIterator[slipstream.Connection]:
    """A connection that only reads."""
    async with await slipstream.connect(server_url) as connection:
        yield connection


@pytest.fixture
def name(nc: slipstream.Connection) -> str:
    """A name that no other test uses."""
    return "mem_" + "".join(c for c in nc.new_inbox().rpartition(".")[2] if c in DIGITS)


async def received(reading: slipstream.Connection) -> int:
    """Bytes that have come when no more do, though nobody reads."""
    before, quiet = -1, 0
    async with asyncio.timeout(40):
        while quiet < 5:
            await asyncio.sleep(0.05)
            now = reading.stats.in_bytes
            before, quiet = now, quiet + 1 if now == before else 0
    return before


async def fill(js: JetStream, subject: str) -> None:
    """Messages of 32 MiB together."""
    body = os.urandom(BODY)
    for number in range(TOTAL // BODY):
        await js.publish_async(f"{subject}.{number}", body)
    await js.publish_async_complete()


async def test_an_object_that_is_not_read_waits_on_the_server(
    js: JetStream, reading: slipstream.Connection, name: str
) -> None:
    store = await js.create_object_store(name, storage="memory")
    data = os.urandom(TOTAL)
    await store.put("x", data)
    far = await reading.jetstream().object_store(name)
    async with await far.open("x") as reader:
        parts = [await reader.read(1000)]
        assert await received(reading) < 2 * BATCH_BYTES + SLACK
        parts.append(await reader.read())
    assert b"".join(parts) == data
    await js.delete_object_store(name)


async def test_a_put_takes_no_more_than_is_on_its_way_to_the_server(
    js: JetStream, server_url: str, name: str
) -> None:
    await js.create_object_store(name, storage="memory")
    taken, is_held = 0, True

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal taken
        while is_held and taken < TOTAL:
            taken += BODY
            yield bytes(BODY)

    async with (
        asyncio.timeout(40),
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url) as far,
    ):
        store = await far.jetstream().object_store(name)
        before = await store.put("x", b"1")
        proxy.hold()
        task = asyncio.ensure_future(store.put("y", pieces()))
        await turns(1000)
        assert taken < IN_FLIGHT_BYTES_MAX + SLACK
        is_held = False
        proxy.go_on()
        info = await task
    assert (before.size, info.size) == (1, taken)
    await js.delete_object_store(name)


async def test_a_watch_that_is_not_read_holds_the_server_up(
    js: JetStream, reading: slipstream.Connection, name: str
) -> None:
    kv = await js.create_key_value(name, storage="memory")
    await fill(js, f"$KV.{name}")
    far = await reading.jetstream().key_value(name)
    async with asyncio.timeout(40), await far.watch() as watch:
        assert await watch.next() is not None
        assert await received(reading) < TOTAL / 2
        count = 1
        while await watch.next() is not None:
            count += 1
    assert count == TOTAL // BODY == (await kv.status()).values
    await js.delete_key_value(name)


@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_scan_that_is_not_read_has_two_batches_at_most(
    js: JetStream, reading: slipstream.Connection, name: str, is_direct: bool
) -> None:
    await js.create_stream(
        name=name, subjects=[f"{name}.>"], storage="memory", allow_direct=is_direct
    )
    await fill(js, name)
    stream = await reading.jetstream().stream(name)
    async with stream.scan(batch_bytes=2 * MEBI) as scan:
        rows = (await anext(scan)).num_rows
        assert await received(reading) < 2 * 2 * MEBI + SLACK
        async for batch in scan:
            rows += batch.num_rows
    assert rows == TOTAL // BODY
    await js.delete_stream(name)


async def test_an_iterator_that_is_not_read_holds_what_it_asked_for(
    js: JetStream, reading: slipstream.Connection, name: str
) -> None:
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    await stream.create_consumer(durable_name="c")
    await fill(js, name)
    consumer = await reading.jetstream().consumer(name, "c")
    for limits in ({"max_messages": 16}, {"max_bytes": 4 * MEBI}):
        before = reading.stats.in_bytes
        async with consumer.messages(**limits) as messages:
            assert await messages.next(timeout=5) is not None
            assert await received(reading) - before < 16 * BODY + SLACK
    await js.delete_stream(name)
