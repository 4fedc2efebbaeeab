"""Objects that nobody reads to the end, and readers for whose requests there is no room."""

import asyncio
import gc

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.object_store import ObjectStore
from slipstream.client.object_store.reader import Chunks
from tests.client.jetstream.test_malformed import direct
from tests.client.object_store.test_store import js, name, store
from tests.client.scripted_server import Asked, ScriptedServer
from tests.client.waiting import turns, until

__all__ = ["js", "name", "store"]
END = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\n"
LARGE = bytes(20 * 1024 * 1024)  # more than two batches


async def test_a_reader_that_is_dropped_listens_no_more(js: JetStream, store: ObjectStore) -> None:
    await store.put("x", LARGE)
    before = js.connection.stats.subscriptions
    reader = await store.open("x")
    await anext(reader)
    assert js.connection.stats.subscriptions > before
    del reader
    gc.collect()
    await until(lambda: js.connection.stats.subscriptions == before)


async def test_an_object_is_read_whole_though_there_is_no_room_to_ask_for_it(
    js: JetStream, store: ObjectStore, server_url: str
) -> None:
    await store.put("x", LARGE)

    async def fill(nc: slipstream.Connection) -> None:
        while True:
            nc.write_buffer.pause()
            while nc.write_buffer.pending <= nc.write_buffer.bytes_max:
                nc.publish_nowait("nobody", bytes(1000))
            await turns()
            nc.write_buffer.resume()
            await turns(1)

    async with await slipstream.connect(server_url, pending_bytes_max=10_000) as nc:
        far = await nc.jetstream().object_store(store.bucket)
        async with await far.open("x") as reader:
            filling = asyncio.create_task(fill(nc))
            sizes = [len(chunk) async for chunk in reader]
            filling.cancel()
        nc.write_buffer.resume()
        assert sum(sizes) == len(LARGE)


async def test_an_object_is_read_though_its_server_is_not_quite_back() -> None:
    def script(asked: Asked) -> bytes:
        if len(server.asked) < 3:
            return asked.answer(b"", b"NATS/1.0 503\r\n\r\n")
        return asked.answer(b"chunk", direct()) + asked.answer(b"", END)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        chunks = Chunks(nc.jetstream(), "S", "s.a", is_direct=True)
        chunk = await chunks.next()
        assert chunk is not None
        assert bytes(chunk) == b"chunk"
        assert await chunks.next() is None
