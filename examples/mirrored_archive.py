"""The story of an archive: a mirror keeps what the stream itself soon lets go.

Run ``slipstream serve``, then ``python examples/mirrored_archive.py [url]``.
"""

import asyncio
import sys

import slipstream
from slipstream.client.jetstream import Stream, StreamSource


async def reaches(stream: Stream, last_seq: int) -> None:
    """Wait until a mirror has come so far."""
    for _ in range(1000):
        if (await stream.info()).state.last_seq >= last_seq:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{stream.name} does not get message {last_seq}")


async def show(stream: Stream) -> None:
    """Print what a stream holds."""
    info = await stream.info()
    state = info.state
    print(f"{info.config.name}: {state.messages} messages, {state.first_seq} to {state.last_seq}")


async def main(url: str) -> None:
    """Fill a small stream with an archive behind it, lose it, and go on from the archive."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        orders = await js.create_stream(
            name="ORDERS", subjects=["orders.>"], max_msgs=3, allow_direct=True
        )
        archive = await js.create_stream(
            name="ARCHIVE", mirror=StreamSource(name="ORDERS"), compression="s2"
        )
        large = await js.create_stream(
            name="LARGE",
            sources=[StreamSource(name="ORDERS", filter_subject="orders.large")],
        )
        for number in range(1, 11):
            size = "large" if number % 5 == 0 else "small"
            stored = await js.publish(f"orders.{size}", f"order {number}")
            await reaches(archive, stored.sequence)  # the stream soon lets it go
            await reaches(large, number // 5)
        for stream in (orders, archive, large):
            await show(stream)

        second = await large.get_message(2)
        print(f"LARGE has order 10 from {second.headers['Nats-Stream-Source'].split()[0]}")
        first = await archive.get_message(1)
        print(f"ARCHIVE still has message 1: {first.data.decode()}")

        await js.delete_stream("ORDERS")
        await archive.update(mirror=None, subjects=["orders.>"])
        stored = await js.publish("orders.small", "order 11")
        print(f"ARCHIVE is now the stream itself: order 11 is message {stored.sequence}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
