"""Leaving a consumer, however early, takes no time and leaves nothing on the server."""

import asyncio
import gc
from typing import Any

import msgspec
import pytest

import slipstream
from slipstream.client.jetstream import ConsumerInfo, JetStreamMessage, PullConsumer, PushConsumer
from slipstream.client.jetstream.errors import ConsumerDeletedError, StreamNotFoundError
from slipstream.client.jetstream.ordered import OrderedConsumerConfig
from slipstream.client.jetstream.watcher import Watcher
from tests.client.jetstream.test_malformed import ACK, CONSUMER
from tests.client.scripted_server import Asked, ScriptedServer, frame
from tests.client.waiting import LoopClock, until

KINDS = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])
MADE = msgspec.json.encode(CONSUMER)
GONE = b'{"success":true}'


def delivery(number: int, *, left: int = 0) -> str:
    """The reply subject of delivery `number`, behind which `left` messages wait."""
    return f"$JS.ACK.S.c.1.{number}.{number}.1790000000000000000.{left}"


def heartbeat(last: int, *, stalled: str = "") -> bytes:
    """The header block of a heartbeat after delivery `last`."""
    line = f"Nats-Consumer-Stalled: {stalled}\r\n" if stalled else ""
    return f"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {last}\r\n{line}\r\n".encode()


def make_and_delete(asked: Asked) -> bytes | None:
    """Consumers come and go as they are asked for."""
    if ".CONSUMER.CREATE." in asked.subject:
        return asked.answer(MADE)
    return asked.answer(GONE) if ".CONSUMER.DELETE." in asked.subject else None


def make_nothing(asked: Asked) -> bytes | None:
    """Who asks for a consumer is kept waiting."""
    return None if ".CONSUMER.CREATE." in asked.subject else make_and_delete(asked)


def creations(server: ScriptedServer) -> list[Asked]:
    return [asked for asked in server.asked if ".CONSUMER.CREATE." in asked.subject]


def created(server: ScriptedServer) -> list[str]:
    return [asked.subject.split(".")[-1] for asked in creations(server)]


def deleted(server: ScriptedServer) -> list[str]:
    return [a.subject.split(".")[-1] for a in server.asked if ".CONSUMER.DELETE." in a.subject]


@KINDS
async def test_draining_an_ordered_consumer_deletes_it(push: bool) -> None:
    async with (
        ScriptedServer(make_and_delete) as server,
        await slipstream.connect(server.url) as nc,
    ):
        async with nc.jetstream().ordered_consumer("S", push=push).messages() as messages:
            await messages.drain()
        await nc.flush()
        assert deleted(server) == ["c"]


@KINDS
async def test_stopping_an_ordered_consumer_does_not_wait_until_it_is_made(push: bool) -> None:
    async with ScriptedServer(make_nothing) as server, await slipstream.connect(server.url) as nc:
        consuming = nc.jetstream().ordered_consumer("S", push=push).consume(lambda _: None)
        await until(lambda: len(creations(server)) == 1)
        async with asyncio.timeout(5):
            await consuming.stop()
        assert consuming.is_closed
        await until(lambda: len(deleted(server)) == 1)
        assert deleted(server) == created(server)
        await until(lambda: nc.requests_pending == 0)


async def test_a_cancelled_start_is_cancelled_and_not_just_ended() -> None:
    async with ScriptedServer(make_nothing) as server, await slipstream.connect(server.url) as nc:
        messages = nc.jetstream().ordered_consumer("S").messages()
        taking = asyncio.create_task(messages.next())
        await until(lambda: len(creations(server)) == 1)
        await messages.stop()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking


async def test_a_consumer_that_is_slow_to_be_made_is_made_once_for_all_who_take(
    clock: LoopClock,
) -> None:
    def script(asked: Asked) -> bytes | None:
        if ".MSG.NEXT." in asked.subject:
            return frame("s.a", asked.sid, b"1", reply=ACK)
        return make_nothing(asked)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        messages = nc.jetstream().ordered_consumer("S").messages()
        first = asyncio.create_task(messages.next())
        second = asyncio.create_task(messages.next())
        # Its time is over, but the beginning goes on.
        assert await clock.time_out(messages.next(timeout=1), 2) is None
        first.cancel()
        await until(lambda: len(creations(server)) == 1)
        server.say(creations(server)[0].answer(MADE))
        async with asyncio.timeout(5):
            message = await second
        assert message is not None
        assert message.data == b"1"
        await messages.stop()
        await until(lambda: nc.requests_pending == 0)
        assert (len(creations(server)), deleted(server)) == (1, ["c"])


async def test_a_consumer_that_could_not_be_made_is_asked_for_again() -> None:
    def script(asked: Asked) -> bytes | None:
        if ".CONSUMER.CREATE." in asked.subject and len(created(server)) == 1:
            return asked.answer(b'{"error":{"code":404,"err_code":10059,"description":"none"}}')
        if ".MSG.NEXT." in asked.subject:
            return frame("s.a", asked.sid, b"1", reply=ACK)
        return make_and_delete(asked)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        messages = nc.jetstream().ordered_consumer("S").messages()
        with pytest.raises(StreamNotFoundError):
            await messages.next(5)
        assert await messages.next(5) is not None
        await messages.stop()


async def test_a_fetch_in_order_returns_in_time_where_no_server_makes_its_consumer(
    clock: LoopClock,
) -> None:
    async with ScriptedServer(lambda _: None) as server, await slipstream.connect(server.url) as nc:
        ordered = nc.jetstream(timeout=5).ordered_consumer("S")
        assert await clock.time_out(ordered.fetch(1, timeout=5), 6) == []


async def test_a_second_attempt_does_not_mix_with_what_the_first_one_still_sends() -> None:
    def script(asked: Asked) -> bytes | None:
        if ".CONSUMER.CREATE." not in asked.subject:
            return None
        inbox = msgspec.json.decode(asked.data)["config"]["deliver_subject"]
        inboxes.append(inbox)
        starts.append(msgspec.json.decode(asked.data)["config"].get("opt_start_seq", 0))
        if len(inboxes) == 1:  # it is made, and sends, but the answer is an error
            error = b'{"error":{"code":503,"err_code":10008,"description":"not now"}}'
            return frame("s.a", server.sid(inbox), b"1", reply=delivery(1)) + asked.answer(error)
        return asked.answer(MADE)

    inboxes: list[str] = []
    starts: list[int] = []
    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        ordered = nc.jetstream().ordered_consumer("S", push=True)
        async with ordered.messages() as messages:
            assert inboxes[0] != inboxes[1]
            assert server.sid(inboxes[0]) == 0
            assert starts == [0, 2]
            assert messages.pending == 1


async def test_nothing_is_asked_of_the_last_consumer_while_the_next_one_is_made() -> None:
    def script(asked: Asked) -> bytes | None:
        if ".CONSUMER.CREATE." in asked.subject:
            return asked.answer(MADE) if len(created(server)) == 1 else None
        if ".MSG.NEXT." in asked.subject:
            pulled.append(asked)
            first = 2 * len(pulled) - 1
            return b"".join(
                frame("s.a", asked.sid, b"", reply=delivery(n)) for n in (first, first + 1)
            )
        return None

    pulled: list[Asked] = []
    async with (
        ScriptedServer(script) as server,
        await slipstream.connect(server.url, reconnect_wait=0.01) as nc,
    ):
        ordered = nc.jetstream().ordered_consumer("S")
        async with ordered.messages(max_messages=2) as messages:
            await until(lambda: messages.pending == 2)
            server.close_clients()
            await until(lambda: len(created(server)) == 2)
            for number in (1, 2):
                message = await messages.next(5)
                assert message is not None
                assert message.sequence == number
            await nc.flush()
            assert len(pulled) == 1


async def test_closing_the_connection_ends_a_handler_at_work() -> None:
    started = asyncio.Event()

    async def handle(_: JetStreamMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    async with ScriptedServer(lambda a: frame("s.a", a.sid, b"1", reply=ACK)) as server:
        nc = await slipstream.connect(server.url)
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        consuming = consumer.consume(handle)
        await started.wait()
        await nc.close()
        assert consuming.is_closed
        await consuming.closed()


@pytest.mark.usefixtures("nothing_reaches_the_loop")
async def test_what_ends_a_handler_is_told_though_nobody_asks() -> None:
    def script(asked: Asked) -> bytes:
        return frame(asked.reply, asked.sid, b"", block=b"NATS/1.0 409 Consumer Deleted\r\n\r\n")

    told: list[Exception] = []
    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        consumer = PullConsumer(nc.jetstream(), ConsumerInfo.from_wire(CONSUMER))
        consuming = consumer.consume(lambda _: None, on_error=told.append)
        with pytest.raises(ConsumerDeletedError):
            await consuming.closed()
        del consuming
        gc.collect()
        await asyncio.sleep(0)
        assert [type(error) for error in told] == [ConsumerDeletedError]


def push_consumer(nc: slipstream.Connection) -> PushConsumer:
    config = CONSUMER["config"]
    assert isinstance(config, dict)
    more: dict[str, Any] = {"deliver_subject": "d", "flow_control": True}
    more["idle_heartbeat"] = 60_000_000_000
    told = {**CONSUMER, "config": {**config, **more}}
    return PushConsumer(nc.jetstream(), ConsumerInfo.from_wire(told))


async def test_a_server_that_waits_for_a_slow_taker_is_not_told_to_go_on() -> None:
    async with (
        ScriptedServer(lambda _: None) as server,
        await slipstream.connect(server.url) as nc,
        push_consumer(nc).messages() as messages,
    ):
        await nc.flush()
        sid = server.sid("d")
        question = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        server.say(
            frame("s.a", sid, b"1", reply=ACK)
            + frame("d", sid, b"", reply="go.on", block=question)
            + frame("d", sid, b"", block=heartbeat(1, stalled="go.on"))
        )
        await nc.flush()
        assert "PUB go.on 0" not in server.lines
        assert await messages.next(5) is not None
        assert await messages.next(0.001) is None
        await nc.flush()
        assert server.lines.count("PUB go.on 0") == 1


def watcher_of(nc: slipstream.Connection) -> Watcher:
    config = OrderedConsumerConfig(deliver_policy="last_per_subject", push=True)
    return Watcher(nc.jetstream(), "S", config)


async def test_a_watch_gives_its_mark_though_what_was_to_come_is_removed_meanwhile() -> None:
    def script(asked: Asked) -> bytes | None:
        if ".CONSUMER.CREATE." in asked.subject:
            inboxes.append(msgspec.json.decode(asked.data)["config"]["deliver_subject"])
            return asked.answer(msgspec.json.encode({**CONSUMER, "num_pending": 3}))
        return make_and_delete(asked)

    inboxes: list[str] = []
    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        watch = watcher_of(nc)
        await watch.start()
        sid = server.sid(inboxes[0])
        server.say(frame("s.a", sid, b"1", reply=delivery(1, left=2)))
        async with asyncio.timeout(5):
            assert (await watch.next()) is not None
            marked = asyncio.create_task(watch.next())
            server.say(frame(inboxes[0], sid, b"", block=heartbeat(1)))
            assert await marked is None
        watch.stop()


async def test_a_watch_that_is_dropped_ends() -> None:
    async with (
        ScriptedServer(make_and_delete) as server,
        await slipstream.connect(server.url) as nc,
    ):
        watch = watcher_of(nc)
        await watch.start()
        before = nc.stats.subscriptions
        del watch
        gc.collect()
        await until(lambda: len(deleted(server)) == 1)
        assert nc.stats.subscriptions == before - 1
