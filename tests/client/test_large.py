"""Large bodies go from where they are to where they are wanted, whole and in their turn."""

import asyncio
import os

import pytest

import slipstream
from slipstream.client import MaxPayloadError, OutboundBufferFullError
from tests.client.proxy import Proxy
from tests.client.test_weather import until_connected, until_disconnected

LARGE = os.urandom(200_000)


@pytest.mark.parametrize("size", [1, 1000, 4096, 65_536, 100_001])
async def test_a_large_body_comes_whole_however_it_is_cut(proxy: Proxy, size: int) -> None:
    def split(data: bytes) -> list[bytes]:
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        return pieces if len(pieces) < 1000 else [data]

    proxy.split = split
    async with await slipstream.connect(proxy.url) as nc:
        subscription = await nc.subscribe(nc.new_inbox())
        for body in (b"before", LARGE, b"between", LARGE[:20_000], LARGE[:40_000], b"behind"):
            await nc.publish(subscription.subject, body, headers={"Size": str(len(body))})
            received = await subscription.next(10)
            assert received.data == body
            assert received.header("Size") == str(len(body))


async def test_large_and_small_messages_keep_their_order(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    sizes = [10, 100_000, 0, 32_768, 32_767, 500_000, 5, 32_768, 70_000, 1] * 3
    for size in sizes:
        await nc.publish(subscription.subject, LARGE[:size] if size < 200_000 else b"x" * size)
    assert [len((await subscription.next(10)).data) for _ in sizes] == sizes
    assert nc.stats.pending_bytes == 0


async def test_large_messages_wait_for_a_connection_and_are_bounded(proxy: Proxy) -> None:
    async with await slipstream.connect(
        proxy.url, pending_bytes_max=500_000, reconnect_wait=0.001
    ) as nc:
        subscription = await nc.subscribe(nc.new_inbox())
        await nc.flush()
        proxy.hold()
        proxy.cut()
        await until_disconnected(nc)
        for i in range(3):
            nc.publish_nowait(subscription.subject, b"%d" % i + LARGE)
        assert nc.stats.pending_bytes > 600_000
        with pytest.raises(OutboundBufferFullError):
            nc.publish_nowait(subscription.subject, b"one too many")
        proxy.go_on()
        await until_connected(nc)
        async with asyncio.timeout(10):
            assert [(await subscription.next()).data[:1] for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_body_larger_than_the_server_takes_is_refused(nc: slipstream.Connection) -> None:
    with pytest.raises(MaxPayloadError):
        await nc.publish("large", bytes(nc.max_payload + 1))
    await nc.flush()
    assert nc.is_connected
