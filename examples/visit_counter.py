"""The story of a counter: two regions count visits, and a third stream has both together.

Run ``slipstream serve``, then ``python examples/visit_counter.py [url]``.
"""

import asyncio
import json
import sys

import slipstream
from slipstream.client.jetstream import JetStream, Stream, StreamSource, SubjectTransform
from slipstream.client.jetstream.errors import MessageNotFoundError

REGIONS = ("eu", "us")


async def visit(js: JetStream, region: str, page: str, times: int) -> None:
    """Count visits; the server adds up, so that any number of writers may do this at once."""
    await js.publish(f"visits.{region}.{page}", headers={"Nats-Incr": f"{times:+d}"})


async def total(stream: Stream, subject: str) -> int:
    """What a counter stands at: the last message of its subject says it."""
    try:
        found = await stream.get_last_message(subject)
    except MessageNotFoundError:
        return 0
    return int(json.loads(found.data)["val"])


async def main(url: str) -> None:
    """Count in two regions from many tasks, take some back, and add the regions up."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        for region in REGIONS:
            await js.create_stream(
                name=f"VISITS-{region}", subjects=[f"visits.{region}.*"],
                allow_msg_counter=True, allow_direct=True,
            )  # fmt: skip
        sources = [
            StreamSource(
                name=f"VISITS-{region}",
                subject_transforms=[SubjectTransform(src=f"visits.{region}.*", dest="all.$1")],
            )
            for region in REGIONS
        ]
        everywhere = await js.create_stream(
            name="VISITS", sources=sources, allow_msg_counter=True, allow_direct=True
        )
        await asyncio.gather(*(visit(js, "eu", "home", 1) for _ in range(100)))
        await asyncio.gather(*(visit(js, "us", "home", 2) for _ in range(50)))
        await visit(js, "us", "home", -3)  # robots
        for region in REGIONS:
            counted = await total(await js.stream(f"VISITS-{region}"), f"visits.{region}.home")
            print(f"{region}: {counted} visits")
        for _ in range(1000):
            counted = await total(everywhere, "all.home")
            if counted == 197:  # all that the regions have has come
                break
            await asyncio.sleep(0.05)
        print(f"everywhere: {counted} visits")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
