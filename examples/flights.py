"""The demo: a year of flights through a stream, on a server inside this process.

Every flight becomes a JSON event on ``flights.<origin>.<carrier>`` in the file stream FLIGHTS. Two
durable consumers read it back: `everything`, and `kennedy`, which sees the flights from JFK only.
In the end the counts by origin have to equal those of the source table.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from time import perf_counter

import slipstream
from flights_data import flights
from slipstream.client.jetstream import JetStream, Stream

IN_FLIGHT = 2000  # publishes whose acknowledgement has not come yet
FETCH = 500
NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance")


class Progress:
    """One line on the terminal that says how far a step is; plain lines where there is none."""

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = total
        self.begun = perf_counter()
        self._next = 0

    def show(self, done: int) -> None:
        """Show `done`, every twentieth of the way."""
        if done < self._next and done < self.total:
            return
        self._next = done + self.total // 20
        rate = done / max(perf_counter() - self.begun, 1e-9)
        line = f"{self.label:<32} {done:>9,} of {self.total:,}  {rate:>9,.0f}/s"
        end = "\n" if done >= self.total else "\r"
        if sys.stdout.isatty() or done >= self.total:
            print(line, end=end, flush=True)


def event(row: dict[str, str]) -> tuple[str, bytes]:
    """A flight's subject and body."""
    body: dict[str, object] = dict(row)
    for name in NUMBERS:
        body[name] = float(row[name]) if row[name] not in ("", "NA") else None
    return f"flights.{row['origin']}.{row['carrier']}", json.dumps(body).encode()


async def replay(js: JetStream, events: list[tuple[str, bytes]]) -> None:
    """Publish every event; returns once each is on the server's disk."""
    progress = Progress("published and on disk", len(events))
    for done, (subject, body) in enumerate(events):
        await js.publish_async(subject, body)  # waits while too many are not acknowledged yet
        progress.show(done)
    await js.publish_async_complete()
    progress.show(len(events))


async def consume(stream: Stream, durable: str, subject: str, expected: int) -> Counter[str]:
    """Read what a new durable consumer is given, acknowledge all of it, and count by origin."""
    consumer = await stream.create_consumer(
        durable_name=durable, filter_subject=subject, max_ack_pending=10 * FETCH
    )
    progress = Progress(f"consumed by {durable!r}", expected)
    origins: Counter[str] = Counter()
    while origins.total() < expected:
        for message in await consumer.fetch(FETCH, timeout=10):
            origins[json.loads(message.data)["origin"]] += 1
            message.ack()
        progress.show(origins.total())
    return origins


async def describe(stream: Stream) -> None:
    """Show the stream and its consumers as the server sees them."""
    info = await stream.info()
    config, state = info.config, info.state
    print(f"\nstream {info.name} ({config.storage}, {config.retention} retention)")
    print(f"  messages {state.messages:,}   bytes {state.bytes:,}   subjects {state.num_subjects}")
    print(f"  sequences {state.first_seq:,} .. {state.last_seq:,}")
    print(f"\n  {'consumer':<12} {'filter':<14} {'delivered':>10} {'ack floor':>10} {'pending':>8}")
    async for one in stream.consumers():
        print(
            f"  {one.name:<12} {one.config.filter_subject or '>':<14} "
            f"{one.delivered.consumer_seq:>10,} {one.ack_floor.consumer_seq:>10,} "
            f"{one.num_pending:>8,}"
        )


def compare(source: Counter[str], everything: Counter[str], kennedy: Counter[str]) -> bool:
    """Print the counts side by side; whether they agree."""
    print(f"\n  {'origin':<8} {'source table':>12} {'everything':>12} {'kennedy':>12}")
    for origin in sorted(source):
        print(
            f"  {origin:<8} {source[origin]:>12,} {everything[origin]:>12,} {kennedy[origin]:>12,}"
        )
    return everything == source and kennedy == Counter({"JFK": source["JFK"]})


async def main() -> int:
    """Run the demo; the exit code."""
    print("reading the flights of 2013 ...", flush=True)
    rows = list(flights())
    source = Counter(row["origin"] for row in rows)
    events = [event(row) for row in rows]
    with tempfile.TemporaryDirectory() as store, slipstream.Server(store_dir=store) as server:
        print(f"slipstream {slipstream.__version__} listens on {server.url}\n", flush=True)
        async with await slipstream.connect(server.url) as nc:
            js = nc.jetstream(max_ack_pending=IN_FLIGHT)
            stream = await js.create_stream(name="FLIGHTS", subjects=["flights.*.*"])
            await replay(js, events)
            everything = await consume(stream, "everything", "", len(events))
            kennedy = await consume(stream, "kennedy", "flights.JFK.*", source["JFK"])
            await nc.flush()  # the last acknowledgements are with the server now
            agree = compare(source, everything, kennedy)
            await describe(stream)
    print("\nall counts equal the source table" if agree else "\nCOUNTS DIFFER")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
