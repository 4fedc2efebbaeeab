"""Reads that are cancelled half way, or find no room to ask: nothing is left out, nothing is left
behind."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream import ConsumerInfo, JetStream, PullConsumer, Stream
from tests.client.arrow.test_scan import fill, js, sequences, stream
from tests.client.jetstream.test_malformed import ACK, CONSUMER
from tests.client.scripted_server import ScriptedServer, frame
from tests.client.waiting import until

__all__ = ["js", "stream"]


async def test_a_scan_may_be_cancelled_anywhere_and_goes_on_where_it_was(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 60)
    scan = stream.scan(batch_rows=10)
    found: list[int] = []
    for rounds in range(200):
        js.connection.write_buffer.crowded = True  # so that sending a request waits too
        task = asyncio.ensure_future(anext(scan))
        for _ in range(rounds % 20):
            await asyncio.sleep(0)
        task.cancel()
        try:
            found += (await task)["sequence"].to_pylist()
        except asyncio.CancelledError:
            continue
        except StopAsyncIteration:
            break
    found += await sequences(scan)
    assert found == list(range(1, 61))


async def test_a_cancelled_fetch_is_cancelled_though_nothing_can_be_handed_back() -> None:
    async with (
        ScriptedServer(lambda a: frame("s.a", a.sid, b"1", reply=ACK)) as server,
        await slipstream.connect(server.url, pending_bytes_max=10_000) as nc,
    ):
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        before = nc.stats.in_messages
        taking = asyncio.create_task(consumer.fetch_arrow(10, timeout=30))
        await until(lambda: nc.stats.in_messages > before)
        nc.write_buffer.pause()
        while nc.write_buffer.pending <= nc.write_buffer.bytes_max:
            nc.publish_nowait("nobody", bytes(1000))
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        nc.write_buffer.resume()
