"""The story of a counter: views of pages, counted in two places and added up in a third.

Run ``slipstream serve``, then ``python examples/page_counters.py [url]``. Needs a server of API
level 2 (nats-server 2.12).
"""

import asyncio
import json
import sys

import slipstream
from slipstream.client.jetstream import JetStream, Stream, StreamSource, SubjectTransform

PLACES = ("east", "west")


async def make_counter(js: JetStream, place: str) -> Stream:
    """Where the views of one place are counted; each page has a subject."""
    return await js.create_stream(
        name=f"VIEWS-{place}",
        subjects=[f"views.{place}.>"],
        allow_msg_counter=True,
        allow_direct=True,
    )


async def total(stream: Stream, subject: str) -> int:
    """What a counter has come to."""
    message = await stream.get_last_message(subject)
    return int(json.loads(message.data)["val"])


async def main(url: str) -> None:
    """Count, also downwards and beyond 64 bits, and have a stream add up what others count."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        counters = {place: await make_counter(js, place) for place in PLACES}
        world = await js.create_stream(
            name="VIEWS",
            allow_msg_counter=True,
            allow_direct=True,
            sources=[
                StreamSource(
                    name=f"VIEWS-{place}",
                    subject_transforms=[SubjectTransform(src=f"views.{place}.>", dest="views.>")],
                )
                for place in PLACES
            ],
        )
        for number in range(100):
            await js.publish(f"views.{PLACES[number % 2]}.home", increment=1)
        await js.publish("views.east.home", increment=-5)  # these were our own
        print(f"east: {await total(counters['east'], 'views.east.home')}")
        print(f"west: {await total(counters['west'], 'views.west.home')}")

        ack = await js.publish("views.west.home", increment=2**70)
        print(f"large enough: {ack.value == str(2**70 + 50)}")
        expected = 45 + 50 + 2**70
        for _ in range(1000):
            if (await world.info()).state.messages:
                if await total(world, "views.home") == expected:
                    break
            await asyncio.sleep(0.05)
        print(f"everywhere: {await total(world, 'views.home') - 2**70} and 2**70")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
