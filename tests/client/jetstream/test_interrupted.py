"""What is interrupted half way: nobody waits for what will not come, nothing that came is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

import slipstream
from slipstream.client.errors import MaxPayloadError
from slipstream.client.jetstream import ConsumerInfo, JetStream, PullConsumer
from tests.client.jetstream.conftest import MakeStream
from tests.client.jetstream.test_malformed import ACK, CONSUMER
from tests.client.proxy import Proxy
from tests.client.scripted_server import Asked, ScriptedServer, frame
from tests.client.test_weather import until_connected, until_disconnected
from tests.client.waiting import until


async def rounds(count: int) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_whoever_is_cancelled_while_taking_loses_no_message(
    js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    for number in range(300):
        await js.publish_async(f"{stream.name}.a", str(number))
    await js.publish_async_complete(5)
    seen: list[int] = []
    async with stream.ordered_consumer().messages() as messages:
        while len(seen) < 300:
            task = asyncio.ensure_future(messages.next(timeout=5))
            await rounds(1)
            task.cancel()
            try:
                message = await task
            except asyncio.CancelledError:
                await rounds(3)
                continue
            assert message is not None
            seen.append(message.sequence)
    assert seen == list(range(1, 301))


async def test_a_slot_that_is_not_used_goes_to_the_next() -> None:
    held: list[Asked] = []

    def script(asked: Asked) -> bytes | None:
        held.append(asked)
        return None if len(held) == 1 else asked.answer(b'{"stream":"S","seq":2}')

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        js = nc.jetstream(max_ack_pending=1)
        await js.publish_async("s.a", b"1")
        too_large = asyncio.create_task(js.publish_async("s.a", bytes(2_000_000)))
        patient = asyncio.create_task(js.publish_async("s.a", b"2"))
        while not held:
            await rounds(1)
        server.say(held[0].answer(b'{"stream":"S","seq":1}'))
        with pytest.raises(MaxPayloadError):
            await too_large
        async with asyncio.timeout(5):
            assert (await (await patient)).sequence == 2


async def test_a_publish_that_waits_to_be_tried_again_outlives_the_connection() -> None:
    def script(asked: Asked) -> bytes:
        if server.accepted == 1:
            return asked.answer(b"", b"NATS/1.0 503\r\n\r\n")
        return asked.answer(b'{"stream":"S","seq":1}')

    async with (
        ScriptedServer(script) as server,
        await slipstream.connect(server.url, reconnect_wait=0.01) as nc,
    ):
        before = nc.stats.in_messages
        publishing = asyncio.ensure_future(nc.jetstream(retry_wait=0.2).publish("s.a", b"x"))
        await until(lambda: nc.stats.in_messages > before)
        server.close_clients()
        assert (await publishing).sequence == 1
        assert server.accepted == 2


TAKE: dict[str, Callable[[PullConsumer], Coroutine[Any, Any, Any]]] = {
    "fetch": lambda consumer: consumer.fetch(10, timeout=30),
    "fetch_arrow": lambda consumer: consumer.fetch_arrow(10, timeout=30),
}


@pytest.mark.parametrize("name", TAKE)
async def test_messages_go_back_when_the_server_has_forgotten_where_they_went(name: str) -> None:
    def script(asked: Asked) -> bytes:
        return frame("s.a", asked.sid, b"1", reply=ACK)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        before = nc.stats.in_messages
        taking = asyncio.create_task(TAKE[name](consumer))
        await until(lambda: nc.stats.in_messages > before)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        await nc.flush()
        inbox, back = server.lines.index("UNSUB 1"), server.lines.index(f"PUB {ACK} 4")
        assert inbox < back


@pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
async def test_closing_ends_an_ordered_consumer_that_is_being_made_anew(push: bool) -> None:
    made = 0

    def script(asked: Asked) -> bytes | None:
        nonlocal made
        made += 1
        if made == 1:
            return asked.answer(msgspec.json.encode(CONSUMER))
        return asked.answer(b'{"error":{"code":503,"err_code":10008,"description":"not now"}}')

    def on_create(asked: Asked) -> bytes | None:
        return script(asked) if ".CONSUMER.CREATE." in asked.subject else None

    async with ScriptedServer(on_create) as server:
        nc = await slipstream.connect(server.url, reconnect_wait=0.001)
        ordered = nc.jetstream().ordered_consumer("S", push=push)
        async with ordered.messages() as messages:
            await nc.reconnect()
            await until(lambda: made >= 2)
            waiting = asyncio.create_task(anext(messages))
            await rounds(2)
            await nc.close()
            with pytest.raises(StopAsyncIteration):
                async with asyncio.timeout(5):
                    await waiting
        await rounds(3)
        assert asyncio.all_tasks() - {asyncio.current_task()} <= server_tasks()


def server_tasks() -> set["asyncio.Task[object]"]:
    """Those of the scripted server."""
    return {
        task
        for task in asyncio.all_tasks()
        if "ScriptedServer" in getattr(task.get_coro(), "__qualname__", "")
    }


async def test_what_is_new_is_not_missed_while_the_connection_is_down(
    proxy: Proxy, js: JetStream, make_stream: MakeStream
) -> None:
    stream = await make_stream()
    await js.publish(f"{stream.name}.a", b"old")
    async with await slipstream.connect(proxy.url, reconnect_wait=0.001) as nc:
        for push in (False, True):
            ordered = nc.jetstream().ordered_consumer(stream.name, deliver_policy="new", push=push)
            async with ordered.messages() as messages:
                proxy.refuse = True
                proxy.cut()
                await until_disconnected(nc)
                await js.publish(f"{stream.name}.a", b"new")
                proxy.refuse = False
                await until_connected(nc)
                message = await messages.next(timeout=5)
                assert message is not None
                assert message.data == b"new"


async def test_a_drain_under_a_cut_ends_and_leaves_no_task(proxy: Proxy) -> None:
    nc = await slipstream.connect(proxy.url, drain_timeout=5)
    kept = asyncio.all_tasks()
    taken = await nc.subscribe(nc.new_inbox())
    await nc.subscribe(nc.new_inbox(), handler=lambda _: None)
    await nc.publish(taken.subject, b"waits to be taken")
    await nc.flush()
    proxy.hold()
    draining = asyncio.create_task(nc.drain())
    await rounds(3)
    proxy.go_on()
    proxy.refuse = True
    proxy.cut()
    await until_disconnected(nc)
    assert (await taken.next(1)).data == b"waits to be taken"
    with pytest.raises(slipstream.Error):
        await draining
    assert nc.is_closed
    assert not asyncio.all_tasks() - kept - {draining}


async def test_a_half_closed_connection_with_much_to_send_is_given_up_at_once(
    proxy: Proxy,
) -> None:
    async with await slipstream.connect(
        proxy.url, reconnect_wait=0.001, pending_bytes_max=64_000_000
    ) as nc:
        proxy.hold()
        for _ in range(16):
            nc.publish_nowait("nobody.listens", bytes(1_000_000))
        await rounds(3)
        proxy.half_close()
        async with asyncio.timeout(20):  # pings would notice after minutes
            await until_disconnected(nc)
        proxy.go_on()
        await until_connected(nc)
        await nc.flush(30)


async def test_a_sink_that_raises_at_the_end_holds_up_nobody(nc: slipstream.Connection) -> None:
    class Raises:
        def deliver(self, message: slipstream.client.Message) -> None:
            raise RuntimeError("deliver")

        def failed(self, error: Exception) -> None:
            raise RuntimeError("failed")

    nc.open_sink("a.b", Raises())
    subscription = await nc.subscribe("a.b")
    await nc.publish("a.b", b"x")
    assert (await subscription.next(5)).data == b"x"
    await nc.close()
    assert nc.is_closed
    assert subscription.closed
