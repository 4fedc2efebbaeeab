"""The interest-stream story, told by nats-py to both servers: every field of every step agrees.

nats-server confirms an acknowledgement before the message has gone, so its story is told second,
and each step is looked at until it is as in the first one, or the patience is over.
"""

import asyncio
import time
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from slipstream.server import Server
from tests.fix_nats_server import NatsServer

PATIENCE_SECONDS = 30.0
FIELDS = ("messages", "bytes", "first_seq", "last_seq", "consumer_count")


async def tell_story(url: str, told: "list[dict[str, Any]] | None" = None) -> list[dict[str, Any]]:
    """Walk through the story; the stream's state after each step. `told` is what is waited for."""
    connection = await nats.connect(url)
    js = connection.jetstream()
    steps: list[dict[str, Any]] = []

    async def note() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            state = (await js.stream_info("EVENTS")).state
            step = {field: getattr(state, field) for field in FIELDS}
            if told is None or step == told[len(steps)] or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        steps.append(step)

    config = StreamConfig("EVENTS", subjects=["events.>"], retention=RetentionPolicy.INTEREST)
    await js.add_stream(config)
    for subject in ("events.page_loaded", "events.mouse_clicked", "events.input_focused"):
        await js.publish(subject, b"")
    await note()

    explicit = AckPolicy.EXPLICIT
    await js.add_consumer("EVENTS", ConsumerConfig(durable_name="one", ack_policy=explicit))
    one = await js.pull_subscribe_bind("one", "EVENTS")
    await js.publish("events.mouse_clicked", b"")
    await js.publish("events.input_focused", b"")
    await note()
    for message in await one.fetch(2):
        await message.ack_sync()
    await note()

    await js.add_consumer("EVENTS", ConsumerConfig(durable_name="two", ack_policy=explicit))
    two = await js.pull_subscribe_bind("two", "EVENTS")
    await js.publish("events.input_focused", b"")
    await js.publish("events.mouse_clicked", b"")
    await note()
    for message in await one.fetch(2):
        await message.ack_sync()
    await note()
    for message in await two.fetch(2):
        await message.ack_sync()
    await note()

    await js.add_consumer(
        "EVENTS",
        ConsumerConfig(
            durable_name="three", ack_policy=explicit, filter_subject="events.mouse_clicked"
        ),
    )
    three = await js.pull_subscribe_bind("three", "EVENTS")
    await js.publish("events.mouse_clicked", b"")
    for message in await one.fetch(1):
        await message.term()
    for message in await two.fetch(1):
        await message.ack_sync()
    await connection.flush()
    await note()
    for message in await three.fetch(1):
        await message.ack_sync()
    await note()
    await js.publish("events.input_focused", b"")
    await note()
    for consumer in (one, two):
        for message in await consumer.fetch(1):
            await message.ack_sync()
    await note()
    await connection.close()
    return steps


async def test_the_interest_story_reads_the_same_on_both_servers(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    ours = await tell_story(jetstream_server.url)
    theirs = await tell_story(nats_server.url, ours)
    assert ours == theirs
    held = [(s["messages"], s["first_seq"], s["last_seq"]) for s in ours]
    assert held[:7] == [
        (0, 4, 3),
        (2, 4, 5),
        (0, 6, 5),
        (2, 6, 7),
        (2, 6, 7),
        (0, 8, 7),
        (1, 8, 8),
    ]
    assert held[7:] == [(0, 9, 8), (1, 9, 9), (0, 10, 9)]
