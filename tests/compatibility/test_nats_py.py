"""nats-py from PyPI, unchanged, against Slipstream: each part of its JetStream API."""

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, ObjectMeta, StreamConfig
from nats.js.errors import (
    APIError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)

from slipstream.server import Server


@pytest.fixture
async def connection(jetstream_server: Server) -> AsyncIterator[Client]:
    client = await nats.connect(jetstream_server.url)
    yield client
    await client.close()


@pytest.fixture
async def js(connection: Client) -> JetStreamContext:
    context: JetStreamContext = connection.jetstream()
    await context.add_stream(name="ORDERS", subjects=["orders.>"])
    return context


async def test_core_publish_subscribe_and_request(connection: Client) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"pong " + message.data)

    await connection.subscribe("ping", cb=answer)
    reply = await connection.request("ping", b"1", timeout=5)
    assert reply.data == b"pong 1"
    with pytest.raises(NoRespondersError):
        await connection.request("nobody", b"", timeout=5)


async def test_queue_groups_share_the_messages(connection: Client) -> None:
    workers = [await connection.subscribe("jobs", queue="workers") for _ in range(3)]
    last = await connection.subscribe("last")
    for _ in range(300):
        await connection.publish("jobs", b"")
    await connection.publish("last", b"")
    await last.next_msg(timeout=5)
    taken = [worker.pending_msgs for worker in workers]
    assert sum(taken) == 300
    assert all(taken)


async def test_publish_acknowledges_with_the_sequence(js: JetStreamContext) -> None:
    first = await js.publish("orders.new", b"1", headers={"Nats-Msg-Id": "a"})
    again = await js.publish("orders.new", b"1", headers={"Nats-Msg-Id": "a"})
    assert (first.stream, first.seq, first.duplicate) == ("ORDERS", 1, None)
    assert (again.seq, again.duplicate) == (1, True)


async def test_asynchronous_publishes_are_all_acknowledged(js: JetStreamContext) -> None:
    futures = [await js.publish_async("orders.new", b"%d" % i) for i in range(500)]
    acks = await asyncio.gather(*futures)
    assert sorted(ack.seq for ack in acks) == list(range(1, 501))


async def test_pull_subscribe_fetches_and_acknowledges(js: JetStreamContext) -> None:
    for i in range(10):
        await js.publish(f"orders.{i % 2}", b"%d" % i)
    subscription = await js.pull_subscribe("orders.>", "worker")
    messages = await subscription.fetch(10, timeout=5)
    assert [m.data for m in messages] == [b"%d" % i for i in range(10)]
    for message in messages[:9]:
        await message.ack_sync()
    await messages[9].nak()
    again = await subscription.fetch(1, timeout=5)
    assert again[0].metadata.num_delivered == 2
    await again[0].ack_sync()
    info = await js.consumer_info("ORDERS", "worker")
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 10)
    with pytest.raises(NatsTimeoutError):
        await subscription.fetch(1, timeout=0.2)


async def test_push_subscribe_delivers_to_a_callback(js: JetStreamContext) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: Msg) -> None:
        await message.ack()
        seen.put_nowait(message.data)

    await js.subscribe("orders.*", durable="pusher", cb=take)
    for i in range(50):
        await js.publish("orders.x", b"%d" % i)
    assert [await asyncio.wait_for(seen.get(), 5) for _ in range(50)] == [
        b"%d" % i for i in range(50)
    ]


async def test_a_push_queue_group_shares_the_work(js: JetStreamContext) -> None:
    seen: list[bytes] = []
    done = asyncio.Event()

    async def take(message: Msg) -> None:
        seen.append(message.data)
        await message.ack()
        if len(seen) == 40:
            done.set()

    for _ in range(2):
        await js.subscribe("orders.*", queue="team", durable="team", cb=take)
    for i in range(40):
        await js.publish("orders.x", b"%d" % i)
    await asyncio.wait_for(done.wait(), 5)
    assert sorted(seen) == sorted(b"%d" % i for i in range(40))


async def test_an_ordered_consumer_sees_everything_in_order(js: JetStreamContext) -> None:
    for i in range(200):
        await js.publish("orders.x", b"%d" % i)
    subscription = await js.subscribe("orders.x", ordered_consumer=True)
    seen = [(await subscription.next_msg(timeout=5)).data for _ in range(200)]
    assert seen == [b"%d" % i for i in range(200)]


async def test_flow_control_and_heartbeats_carry_a_large_backlog(js: JetStreamContext) -> None:
    for _ in range(20):
        futures = [await js.publish_async("orders.big", b"x" * 4096) for _ in range(100)]
        await asyncio.gather(*futures)
    subscription = await js.subscribe("orders.big", flow_control=True, idle_heartbeat=0.5)
    seen = []
    for _ in range(2000):
        message = await subscription.next_msg(timeout=5)
        seen.append(message.metadata.sequence.stream)
        await message.ack()
    assert seen == list(range(1, 2001))


async def test_stream_management(js: JetStreamContext) -> None:
    for i in range(5):
        await js.publish(f"orders.{i}", b"%d" % i)
    assert (await js.get_msg("ORDERS", 2)).data == b"1"
    assert (await js.get_last_msg("ORDERS", "orders.4")).data == b"4"
    assert await js.delete_msg("ORDERS", 2)
    info = await js.stream_info("ORDERS", subjects_filter=">")
    assert (info.state.messages, info.state.num_deleted) == (4, 1)
    assert await js.purge_stream("ORDERS", keep=1)
    assert (await js.stream_info("ORDERS")).state.messages == 1
    await js.update_stream(StreamConfig("ORDERS", subjects=["orders.>", "more"], max_msgs=10))
    assert await js.find_stream_name_by_subject("more") == "ORDERS"
    assert [s.config.name for s in await js.streams_info()] == ["ORDERS"]
    with pytest.raises(APIError) as refused:
        await js.add_stream(name="OTHER", subjects=["orders.1"])
    assert refused.value.err_code == 10065
    assert await js.delete_stream("ORDERS")
    with pytest.raises(NotFoundError):
        await js.stream_info("ORDERS")


async def test_key_value(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(KeyValueConfig("profiles", history=5))
    assert await bucket.put("sue.color", b"blue") == 1
    assert (await bucket.get("sue.color")).value == b"blue"
    assert await bucket.update("sue.color", b"green", last=1) == 2
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("sue.color", b"red", last=1)
    await bucket.create("bob.color", b"black")
    assert sorted(await bucket.keys()) == ["bob.color", "sue.color"]
    assert [e.value for e in await bucket.history("sue.color")] == [b"blue", b"green"]
    await bucket.delete("sue.color")
    with pytest.raises(KeyNotFoundError):
        await bucket.get("sue.color")
    with pytest.raises(KeyNotFoundError):
        await bucket.get("nobody")
    await bucket.purge("bob.color")
    assert (await bucket.status()).values >= 1
    assert await js.delete_key_value("profiles")


async def test_key_value_watch_follows_changes(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="watched")
    await bucket.put("a", b"1")
    watcher = await bucket.watchall()
    first = await watcher.updates(timeout=5)
    assert first is not None
    assert (first.key, first.value) == ("a", b"1")
    assert await watcher.updates(timeout=5) is None
    await bucket.put("b", b"2")
    second = await watcher.updates(timeout=5)
    assert second is not None
    assert (second.key, second.value, second.revision) == ("b", b"2", 2)
    await watcher.stop()


async def test_object_store(js: JetStreamContext) -> None:
    store = await js.create_object_store("files")
    body = bytes(range(256)) * 4096
    info = await store.put("report", body, meta=ObjectMeta(description="a megabyte"))
    assert info.size == len(body)
    assert info.chunks == 8
    got = await store.get("report")
    assert got.data == body
    assert [o.name for o in await store.list()] == ["report"]
    await store.delete("report")
    with pytest.raises(NotFoundError):
        await store.get("report")
