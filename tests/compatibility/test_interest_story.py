"""The interest-stream story, told by nats-py to both servers: every field of every step agrees."""

import asyncio
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from slipstream.server import Server
from tests.fix_nats_server import NatsServer

FIELDS = ("messages", "bytes", "first_seq", "last_seq", "consumer_count")


async def tell_story(url: str) -> list[dict[str, Any]]:
    """Walk through the story; the stream's state after each step."""
    connection = await nats.connect(url)
    js = connection.jetstream()
    steps: list[dict[str, Any]] = []

    async def note() -> None:
        state = (await js.stream_info("EVENTS")).state
        steps.append({field: getattr(state, field) for field in FIELDS})

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
    ours, theirs = await asyncio.gather(
        tell_story(jetstream_server.url), tell_story(nats_server.url)
    )
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
