"""Act one: a year of flights through a stream, at the speed of the disk.

Every flight is a JSON event on ``flights.<origin>.<carrier>`` in the file stream FLIGHTS. Two
durable consumers read it back: `everything`, and `kennedy`, which sees the flights from JFK only.
In the end the counts by origin have to equal those of the source table.
"""

import json
from collections import Counter

import pandas as pd
from examples.flights.data import CLOCK_SUBJECT, FLIGHTS_SUBJECT, Event
from examples.flights.screen import Progress

from slipstream.client import Connection
from slipstream.client.jetstream import JetStream, Stream

IN_FLIGHT = 2000  # publishes whose acknowledgement has not come yet
FETCH = 500
Rates = dict[str, float]


async def replay(nc: Connection, table: pd.DataFrame, told: list[Event]) -> tuple[bool, Rates]:
    """Publish the events and read them back; whether all counts agree, and messages a second."""
    js = nc.jetstream(max_ack_pending=IN_FLIGHT)
    source = Counter(table["origin"])
    stream = await js.create_stream(
        name="FLIGHTS", subjects=[FLIGHTS_SUBJECT, CLOCK_SUBJECT], allow_direct=True
    )
    rates = {"published and on disk": await publish(js, "published and on disk", told)}
    everything, rate = await consume(stream, "everything", "", len(told))
    rates["consumed, all"] = rate
    kennedy, rate = await consume(stream, "kennedy", "flights.JFK.*", source["JFK"])
    rates["consumed, filtered"] = rate
    await nc.flush()  # the last acknowledgements are with the server now
    agree = compare(source, everything, kennedy)
    await describe(stream)
    return agree, rates


async def load_weather(js: JetStream, entries: list[tuple[str, str]]) -> None:
    """The weather as a key-value bucket."""
    await js.create_key_value("WEATHER")
    puts = [(f"$KV.WEATHER.{key}", value.encode()) for key, value in entries]
    await publish(js, "weather put into a bucket", puts)


async def publish(js: JetStream, label: str, told: list[Event]) -> float:
    """Publish every event; returns once each is on the server's disk: how many a second."""
    progress = Progress(label, len(told))
    for done, (subject, body) in enumerate(told):
        await js.publish_async(subject, body)  # waits while too many are not acknowledged yet
        progress.show(done)
    await js.publish_async_complete()
    return progress.show(len(told))


async def consume(
    stream: Stream, durable: str, subject: str, expected: int
) -> tuple[Counter[str], float]:
    """Read what a new durable consumer is given, acknowledge all of it, and count by origin."""
    consumer = await stream.create_consumer(
        durable_name=durable, filter_subject=subject, max_ack_pending=10 * FETCH
    )
    progress = Progress(f"consumed by {durable!r}", expected)
    origins: Counter[str] = Counter()
    read, rate = 0, 0.0
    while read < expected:
        for message in await consumer.fetch(min(FETCH, expected - read), timeout=10):
            if message.subject != CLOCK_SUBJECT:
                origins[json.loads(message.data)["origin"]] += 1
            message.ack()
            read += 1
        rate = progress.show(read)
    return origins, rate


async def describe(stream: Stream) -> None:
    """Show a stream and its consumers as the server sees them."""
    info = await stream.info()
    config, state = info.config, info.state
    print(f"\n  stream {info.name} ({config.storage}, {config.retention} retention)")
    print(
        f"    messages {state.messages:,}   bytes {state.bytes:,}   "
        f"subjects {state.num_subjects}   sequences {state.first_seq:,} .. {state.last_seq:,}"
    )
    print(f"\n    {'consumer':<12} {'filter':<14} {'delivered':>10} {'ack floor':>10} {'lag':>8}")
    async for one in stream.consumers():
        print(
            f"    {one.name:<12} {one.config.filter_subject or '>':<14} "
            f"{one.delivered.consumer_seq:>10,} {one.ack_floor.consumer_seq:>10,} "
            f"{one.num_pending:>8,}"
        )


def compare(source: Counter[str], everything: Counter[str], kennedy: Counter[str]) -> bool:
    """Print the counts side by side; whether they agree."""
    print(f"\n    {'origin':<8} {'source table':>12} {'everything':>12} {'kennedy':>12}")
    for origin in sorted(source):
        counts = source[origin], everything[origin], kennedy[origin]
        print(f"    {origin:<8}" + "".join(f" {count:>12,}" for count in counts))
    agree = everything == source and kennedy == Counter({"JFK": source["JFK"]})
    print("\n    all counts equal the source table" if agree else "\n    COUNTS DIFFER")
    return agree
