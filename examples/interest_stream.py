"""The story of an interest stream: a message stays while a consumer still has to see it.

Run ``slipstream serve``, then ``python examples/interest_stream.py [url]``.
"""

import asyncio
import sys

import slipstream
from slipstream.client.jetstream import Stream


async def show(stream: Stream, what: str) -> None:
    """Print what the stream holds."""
    state = (await stream.info()).state
    print(f"{what}: {state.messages} messages, last sequence {state.last_seq}")


async def main(url: str) -> None:
    """Publish without interest, then with one consumer, then with two that differ."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="EVENTS", subjects=["events.>"], retention="interest")
        await js.publish("events.page_loaded")
        await js.publish("events.mouse_clicked")
        await show(stream, "without consumers")

        first = await stream.create_consumer(durable_name="processor-1")
        for event in ("page_loaded", "mouse_clicked", "input_focused"):
            await js.publish(f"events.{event}")
        await show(stream, "with one consumer")
        for message in await first.fetch(2):
            await message.ack_sync()
        await show(stream, "two acknowledged")

        second = await stream.create_consumer(durable_name="processor-2")
        await js.publish("events.page_loaded")
        for message in await second.fetch(2, timeout=0.5):
            await message.ack_sync()
        await show(stream, "one of two has seen it all")
        for message in await first.fetch(2):
            await message.ack_sync()
        await show(stream, "both have")

        third = await stream.create_consumer(
            durable_name="processor-3", filter_subject="events.mouse_clicked"
        )
        await js.publish("events.input_focused")
        for consumer in (first, second):
            (message,) = await consumer.fetch(1)
            await message.term("of no interest")
            await nc.flush()
        print(f"processor-3 waits for {(await third.info()).num_pending}")
        await show(stream, "terminated counts as seen")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
