"""Readers that are slow, tasks that are cancelled, answers that are many."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import slipstream
from slipstream.client import Message, NoRespondersError, SlowConsumerError
from slipstream.client.events import ErrorEvent, Event, SlowConsumer
from slipstream.client.subscriptions import Sink
from tests.client.waiting import LoopClock, turns


async def test_a_slow_reader_loses_the_newest_is_told_once_and_harms_nobody(
    nc: slipstream.Connection,
) -> None:
    told: list[SlowConsumer] = []
    nc.on(SlowConsumer, told.append)
    subject = nc.new_inbox()
    slow = await nc.subscribe(subject, max_messages_pending=10)
    fast = await nc.subscribe(subject)
    for i in range(100):
        await nc.publish(subject, str(i))
    await nc.flush()
    assert (slow.pending, slow.dropped, fast.pending) == (10, 90, 100)
    assert [event.subscription for event in told] == [slow]
    assert isinstance(told[0].error, SlowConsumerError)
    assert [int((await slow.next(1)).data) for _ in range(10)] == list(range(10))
    for _ in range(11):
        await nc.publish(subject)
    await nc.flush()
    assert len(told) == 2


async def test_what_waits_in_a_subscription_is_bounded_in_bytes_too(
    nc: slipstream.Connection,
) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject, max_bytes_pending=1000)
    for _ in range(10):
        await nc.publish(subject, b"x" * 300)
    await nc.flush()
    assert (subscription.pending, subscription.pending_bytes) == (3, 900)
    assert subscription.dropped == 7


async def test_a_handler_that_raises_is_reported_and_goes_on(nc: slipstream.Connection) -> None:
    errors: list[Exception] = []
    nc.on(ErrorEvent, lambda event: errors.append(event.error))
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        handled.append(message.data)
        raise ValueError("no")

    subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
    for i in range(3):
        await nc.publish(subscription.subject, str(i))
    await subscription.drain()
    assert handled == [b"0", b"1", b"2"]
    assert [str(error) for error in errors] == ["no"] * 3


async def test_a_sink_that_raises_is_reported_and_harms_no_other(
    nc: slipstream.Connection,
) -> None:
    errors: list[Exception] = []
    nc.on("error", lambda event: errors.append(event.error))

    class Bad(Sink):
        def deliver(self, message: Message) -> None:
            raise ValueError("bad")

    subject = nc.new_inbox()
    nc.open_sink(subject, Bad())
    good = await nc.subscribe(subject)
    await nc.publish(subject)
    await good.next(5)
    assert [str(error) for error in errors] == ["bad"]


async def test_two_tasks_may_wait_for_the_same_subscription(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    tasks = [asyncio.create_task(subscription.next(5)) for _ in range(2)]
    await asyncio.sleep(0)
    await nc.publish(subscription.subject, b"1")
    await nc.publish(subscription.subject, b"2")
    assert {(await task).data for task in tasks} == {b"1", b"2"}


async def test_a_handler_may_end_its_own_subscription(nc: slipstream.Connection) -> None:
    handled: list[bytes] = []
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message.data)
        await subscription.unsubscribe()
        done.set()

    subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
    for i in range(5):
        await nc.publish(subscription.subject, str(i))
    await asyncio.wait_for(done.wait(), 5)
    await nc.flush()
    assert handled == [b"0"]


async def test_a_drained_subscription_gives_what_has_come_and_ends(
    nc: slipstream.Connection,
) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    for i in range(5):
        await nc.publish(subscription.subject, str(i))
    task = asyncio.create_task(subscription.drain())
    assert [m.data async for m in subscription] == [b"0", b"1", b"2", b"3", b"4"]
    await task
    await nc.publish(subscription.subject, b"late")
    await nc.flush()
    assert subscription.pending == 0


async def test_a_drain_that_takes_too_long_closes_and_says_so(
    server_url: str, clock: LoopClock
) -> None:
    nc = await slipstream.connect(server_url, drain_timeout=30)
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.publish(subscription.subject)
    await nc.flush()
    with pytest.raises(slipstream.TimeoutError, match="1 messages were not handled"):
        await clock.time_out(nc.drain(), 31)
    assert nc.is_closed


# -- cancelling --------------------------------------------------------------------------------


async def subscribe_and_iterate(nc: slipstream.Connection) -> None:
    async with await nc.subscribe(nc.new_inbox()) as subscription:
        await nc.publish(subscription.subject)
        async for _ in subscription:
            break


async def request_once(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    async with await nc.subscribe(subject, handler=lambda m: m.respond(b"x")):
        await nc.request(subject)


async def request_often(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    async with await nc.subscribe(subject, handler=lambda m: m.respond(b"x")):
        answers = nc.request_many(subject, max_messages=1)
        try:
            async for _ in answers:
                pass
        finally:
            await answers.aclose()


async def drain_one(nc: slipstream.Connection) -> None:
    async with await nc.subscribe(nc.new_inbox()) as subscription:
        await nc.publish(subscription.subject)
        await nc.flush()
        task = asyncio.create_task(subscription.next())
        try:
            await subscription.drain()
        finally:
            task.cancel()


Scenario = Callable[[slipstream.Connection], Awaitable[None]]


@pytest.mark.parametrize(
    "scenario", [subscribe_and_iterate, request_once, request_often, drain_one]
)
async def test_a_task_may_be_cancelled_at_every_await(
    nc: slipstream.Connection, scenario: Scenario
) -> None:
    with pytest.raises(NoRespondersError):  # opens the inbox, which stays
        await nc.request("nobody")
    before = asyncio.all_tasks()
    for steps in range(1000):
        task = asyncio.ensure_future(scenario(nc))
        for _ in range(steps):
            if task.done():
                break
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert nc.stats.subscriptions == 1  # the inbox
        assert not nc.requests_pending
        assert asyncio.all_tasks() == before
        if finished:
            assert task.exception() is None
            break
    await nc.flush()


async def test_connecting_may_be_cancelled_at_every_await(server_url: str) -> None:
    before = asyncio.all_tasks()
    for steps in range(1000):
        task = asyncio.create_task(slipstream.connect(server_url))
        for _ in range(steps):
            if task.done():
                break
            await asyncio.sleep(0)
        if task.done():
            await (await task).close()
            break
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("end", ["close", "drain", "flush"])
async def test_ending_a_connection_may_be_cancelled_at_every_await(
    server_url: str, end: str
) -> None:
    async def handle(message: Message) -> None:
        await turns()

    before = asyncio.all_tasks()
    for steps in range(1000):
        nc = await slipstream.connect(server_url)
        service = await nc.add_service("ends", "1.0.0")
        await service.add_endpoint("e", lambda r: b"", subject=nc.new_inbox())
        subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
        await nc.publish(subscription.subject)
        task = asyncio.create_task(getattr(nc, end)())
        for _ in range(steps):
            if task.done():
                break
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.wait([task])
        await nc.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        if finished:
            break


# -- many answers ------------------------------------------------------------------------------


async def answer_thrice(message: Message) -> None:
    for i in range(3):
        await message.respond(str(i))


async def test_one_request_gets_as_many_answers_as_it_asks_for(
    nc: slipstream.Connection, clock: LoopClock
) -> None:
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=answer_thrice)
    answers = [m.data async for m in nc.request_many(subject, max_messages=2)]
    assert answers == [b"0", b"1"]
    for limit in ({"timeout": 30.0}, {"stall": 30.0, "timeout": 300.0}):
        coming = nc.request_many(subject, **limit)
        assert [(await anext(coming)).data for _ in range(3)] == [b"0", b"1", b"2"]
        assert await clock.time_out(anext(coming, None), 31) is None
    answers = [m.data async for m in nc.request_many(subject, sentinel=lambda m: m.data == b"2")]
    assert answers == [b"0", b"1"]
    assert not nc.requests_pending


async def test_many_answers_of_nobody_are_an_error_and_of_the_silent_are_none(
    nc: slipstream.Connection, clock: LoopClock
) -> None:
    with pytest.raises(NoRespondersError):
        _ = [m async for m in nc.request_many("nobody.there")]
    subscription = await nc.subscribe(nc.new_inbox())
    answers = nc.request_many(subscription.subject, timeout=30)
    assert await clock.time_out(anext(answers, None), 31) is None


# -- events ------------------------------------------------------------------------------------


async def test_events_can_be_iterated_to_the_end(server_url: str) -> None:
    nc = await slipstream.connect(server_url)
    events = nc.events()
    await nc.close()
    assert [type(event).__name__ async for event in events] == ["Closed"]


async def test_a_callback_that_raises_does_no_harm(server_url: str) -> None:
    def fail(event: Event) -> None:
        raise ValueError("callback")

    async with await slipstream.connect(server_url, on_event=fail) as nc:
        await nc.flush()


async def test_an_unknown_event_is_refused(nc: slipstream.Connection) -> None:
    with pytest.raises(slipstream.Error, match="reconnected"):
        nc.on("reconected", print)


async def test_closing_cancels_handlers_and_draining_lets_them_finish(server_url: str) -> None:
    ended: list[str] = []
    for end in ("close", "drain"):
        nc = await slipstream.connect(server_url)
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def handle(
            message: Message,
            begun: asyncio.Event = begun,
            may_end: asyncio.Event = may_end,
            end: str = end,
        ) -> None:
            begun.set()
            await may_end.wait()
            ended.append(end)

        subscription = await nc.subscribe(nc.new_inbox(), handler=handle)
        await nc.publish(subscription.subject)
        await begun.wait()
        ending = asyncio.create_task(nc.drain() if end == "drain" else nc.close())
        await turns()
        may_end.set()
        await ending
    assert ended == ["drain"]


async def test_while_draining_handlers_may_still_publish_but_nobody_may_subscribe(
    server_url: str,
) -> None:
    refused: list[Exception] = []
    async with await slipstream.connect(server_url) as other:
        nc = await slipstream.connect(server_url)
        subject = nc.new_inbox()
        answers = await other.subscribe(subject + ".answer")
        await other.flush()

        async def handle(message: Message) -> None:
            await draining.wait()
            try:
                await nc.subscribe("more")
            except slipstream.Error as error:
                refused.append(error)
            await nc.publish(subject + ".answer")

        draining = asyncio.Event()
        await nc.subscribe(subject, handler=handle)
        await nc.publish(subject)
        await nc.flush()
        ending = asyncio.create_task(nc.drain())
        await turns()
        draining.set()
        await ending
        await answers.next(5)
    assert ["draining" in str(error) for error in refused] == [True]


async def test_what_was_published_is_sent_before_the_context_is_left(server_url: str) -> None:
    async with await slipstream.connect(server_url) as other:
        subscription = await other.subscribe(other.new_inbox())
        await other.flush()
        async with await slipstream.connect(server_url) as nc:
            for _ in range(100):
                await nc.publish(subscription.subject, b"x" * 100_000)
        async with asyncio.timeout(10):
            for _ in range(100):
                await subscription.next()


async def test_the_oldest_may_give_way_in_place_of_the_newest(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(
        nc.new_inbox(), max_messages_pending=3, when_full="drop_oldest"
    )
    for number in range(10):
        await nc.publish(subscription.subject, str(number))
    await nc.flush()
    assert (subscription.pending, subscription.dropped) == (3, 7)
    assert [(await subscription.next(5)).data for _ in range(3)] == [b"7", b"8", b"9"]
    assert subscription.pending_bytes == 0
    large = await nc.subscribe(nc.new_inbox(), max_bytes_pending=100, when_full="drop_oldest")
    for size in (40, 40, 90, 500):
        await nc.publish(large.subject, bytes(size))
    await nc.flush()
    assert len((await large.next(5)).data) == 500
    assert large.pending_bytes == 0
