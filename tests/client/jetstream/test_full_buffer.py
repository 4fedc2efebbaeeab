"""Taking goes on while there is no room to send: no message is lost, what could not be asked is
asked later."""

import asyncio

import pytest

import slipstream
from slipstream.client import OutboundBufferFullError
from slipstream.client.jetstream import ConsumerInfo, PullConsumer
from slipstream.client.jetstream.api import delete_in_background
from tests.client.jetstream.test_leaving import delivery
from tests.client.jetstream.test_malformed import CONSUMER
from tests.client.scripted_server import Asked, ScriptedServer, frame
from tests.client.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_reaches_the_loop")
BOUND = 10_000


def fill(nc: slipstream.Connection) -> None:
    """Publish until there is no room."""
    nc.write_buffer.pause()  # as the socket does when the server takes nothing
    while nc.write_buffer.pending <= nc.write_buffer.bytes_max:
        nc.publish_nowait("nobody", bytes(1000))
    with pytest.raises(OutboundBufferFullError):
        nc.publish_nowait("nobody")


def two_at_a_time(asked: Asked) -> bytes:
    """Each request brings two messages."""
    bodies = [delivery(number) for number in (1, 2)]
    return b"".join(frame("s.a", asked.sid, reply.encode(), reply=reply) for reply in bodies)


async def test_a_message_that_is_taken_is_given_though_no_other_can_be_asked_for() -> None:
    async with (
        ScriptedServer(two_at_a_time) as server,
        await slipstream.connect(server.url, pending_bytes_max=BOUND) as nc,
    ):
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        async with consumer.messages(max_messages=2) as messages:
            await until(lambda: messages.pending == 2)
            fill(nc)
            for number in (1, 2):
                message = await messages.next(1)
                assert message is not None
                assert message.metadata.consumer_sequence == number
            nc.write_buffer.resume()
            assert await messages.next(5) is not None  # a retry has asked again


async def test_a_fetch_waits_for_room() -> None:
    async with (
        ScriptedServer(two_at_a_time) as server,
        await slipstream.connect(server.url, pending_bytes_max=BOUND) as nc,
    ):
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        fill(nc)
        fetching = asyncio.create_task(consumer.fetch(2, timeout=30))
        await asyncio.sleep(0)
        nc.write_buffer.resume()
        assert len(await fetching) == 2


async def test_a_consumer_is_deleted_once_there_is_room_to_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slipstream.client.jetstream.api.WAIT_FOR_ROOM_SECONDS", 0.01)
    async with (
        ScriptedServer(lambda asked: asked.answer(b'{"success":true}')) as server,
        await slipstream.connect(server.url, pending_bytes_max=BOUND) as nc,
    ):
        fill(nc)
        delete_in_background(nc.jetstream(), "S", "c")
        nc.write_buffer.resume()
        await until(lambda: len(server.asked) == 1)
        await until(lambda: nc.requests_pending == 0)


async def test_what_was_subscribed_but_never_sent_does_not_come_alive_later() -> None:
    async with (
        ScriptedServer(lambda _: None) as server,
        await slipstream.connect(server.url, reconnect_wait=0.01) as nc,
    ):
        nc.write_buffer.pause()
        subscription = await nc.subscribe("left.early")
        server.close_clients()
        await until(lambda: not nc.is_connected)
        await subscription.unsubscribe()
        await until(lambda: nc.is_connected)
        await nc.flush()
        assert server.sid("left.early") == 0
