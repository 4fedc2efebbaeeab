"""A walk through JetStream: a stream, a hundred orders, and three ways to read them.

Run ``slipstream serve``, then ``python examples/orders_walk.py [url]``.
"""

import asyncio
import sys

import slipstream


async def main(url: str) -> None:
    """Create, publish, fetch, consume, iterate."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["ORDERS.*"])
        for number in range(100):
            await js.publish("ORDERS.new", f"hello message {number}")
        print(f"published {(await stream.info()).state.messages} messages")

        consumer = await stream.create_consumer(durable_name="CONS")
        for message in await consumer.fetch(10):
            await message.ack()
            print(f"fetched   {message.data.decode()}")

        handled: list[str] = []
        enough = asyncio.Event()

        async def handle(message: slipstream.JetStreamMessage) -> None:
            await message.ack()
            handled.append(message.data.decode())
            if len(handled) == 10:
                enough.set()

        async with consumer.consume(handle, max_messages=10, stop_after=10):
            await enough.wait()
        print(f"handled   {handled[0]} to {handled[-1]}")

        async with consumer.messages(stop_after=80) as messages:
            rest = [message async for message in messages]
            for message in rest:
                await message.ack()
        print(f"iterated  {rest[0].data.decode()} to {rest[-1].data.decode()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
