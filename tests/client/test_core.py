"""Publish, subscribe, request: what every program does first."""

import asyncio

import pytest

import slipstream
from slipstream.client import (
    ConnectError,
    ConnectionClosedError,
    Headers,
    InvalidSubjectError,
    MaxPayloadError,
    Message,
    NoRespondersError,
    SubscriptionClosedError,
)
from tests.client.waiting import LoopClock, turns


async def test_connecting_is_awaited_or_entered(server_url: str) -> None:
    awaited = await slipstream.connect(server_url)
    async with slipstream.connect(server_url) as entered:
        await entered.flush()
    assert (awaited.is_closed, entered.is_closed) == (False, True)
    await asyncio.create_task(awaited.close())
    other = await asyncio.create_task(slipstream.connect(server_url))
    await other.close()


async def test_connecting_to_nobody_fails_where_it_is_awaited_or_entered() -> None:
    connecting = slipstream.connect("nats://127.0.0.1:1")
    with pytest.raises(ConnectError):
        async with connecting:
            pass
    with pytest.raises(ConnectError):
        await slipstream.connect("nats://127.0.0.1:1")


async def test_a_subscriber_gets_what_is_published(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    await nc.publish(subject, b"hello")
    message = await subscription.next(5)
    assert (message.subject, message.data, message.reply) == (subject, b"hello", "")
    assert message.status == 0
    assert len(message.headers) == 0


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"])
async def test_a_payload_is_bytes_or_text(
    nc: slipstream.Connection, data: bytes | bytearray | memoryview | str
) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    await nc.publish(subject, data)
    assert (await subscription.next(5)).data == b"abc"


async def test_headers_keep_their_case_and_every_value(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    headers = Headers({"Kind": "order"})
    headers.add("tag", "a")
    headers.add("tag", "b")
    await nc.publish(subject, b"x", headers=headers)
    message = await subscription.next(5)
    assert message.headers == headers
    assert message.header("Kind") == "order"
    assert message.header("kind") is None
    assert message.headers.get_all("tag") == ["a", "b"]


async def test_an_iterator_gives_messages_in_order(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    for i in range(1000):
        await nc.publish(subject, str(i))
    await subscription.unsubscribe(max_messages=1000)
    assert [int(m.data) async for m in subscription] == list(range(1000))


async def test_a_handler_gets_messages_in_order_whether_it_is_a_coroutine_or_not(
    nc: slipstream.Connection,
) -> None:
    subject = nc.new_inbox()
    first: list[bytes] = []
    second: list[bytes] = []

    async def slowly(message: Message) -> None:
        await asyncio.sleep(0)
        second.append(message.data)

    subscriptions = [
        await nc.subscribe(subject, handler=lambda m: first.append(m.data)),
        await nc.subscribe(subject, handler=slowly),
    ]
    for i in range(300):
        await nc.publish(subject, str(i))
    for subscription in subscriptions:
        await subscription.drain()
    assert first == second == [str(i).encode() for i in range(300)]


async def test_members_of_a_queue_group_share_the_messages(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    members = [await nc.subscribe(subject, queue="workers") for _ in range(3)]
    for _ in range(300):
        await nc.publish(subject)
    await nc.flush()
    counts = [member.pending for member in members]
    assert sum(counts) == 300
    assert all(counts)


async def test_a_request_gets_its_answer(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()

    async def double(message: Message) -> None:
        await message.respond(message.data * 2, headers={"Seen": "yes"})

    await nc.subscribe(subject, handler=double)
    answer = await nc.request(subject, b"ab")
    assert (answer.data, answer.header("Seen")) == (b"abab", "yes")
    answers = await asyncio.gather(*(nc.request(subject, str(i)) for i in range(100)))
    assert [a.data for a in answers] == [str(i).encode() * 2 for i in range(100)]


async def test_a_request_that_nobody_can_answer_says_so_at_once(nc: slipstream.Connection) -> None:
    with pytest.raises(NoRespondersError, match=r"nobody\.there"):
        await nc.request("nobody.there", timeout=30)


async def test_a_request_that_nobody_answers_ends_in_time(
    nc: slipstream.Connection, clock: LoopClock
) -> None:
    subject = nc.new_inbox()
    await nc.subscribe(subject)
    with pytest.raises(slipstream.TimeoutError, match="no answer") as caught:
        await clock.time_out(nc.request(subject, timeout=30), 31)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.sent


async def test_a_sink_is_called_inside_the_read(nc: slipstream.Connection) -> None:
    class Collector:
        def __init__(self) -> None:
            self.got: list[bytes] = []

        def deliver(self, message: Message) -> None:
            self.got.append(message.data)

    collector = Collector()
    subject = nc.new_inbox()
    subscription = nc.open_sink(subject, collector)
    nc.publish_nowait(subject, b"1")
    nc.publish_nowait(subject, b"2")
    await nc.flush()
    assert collector.got == [b"1", b"2"]
    await subscription.unsubscribe()
    await nc.publish(subject, b"3")
    await nc.flush()
    assert collector.got == [b"1", b"2"]


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a.", "a\r\nPUB b 0"])
async def test_a_subject_that_no_server_would_route_is_refused(
    nc: slipstream.Connection, subject: str
) -> None:
    with pytest.raises(InvalidSubjectError):
        await nc.publish(subject)
    with pytest.raises(InvalidSubjectError):
        await nc.subscribe(subject)


async def test_what_is_larger_than_the_server_takes_is_refused(nc: slipstream.Connection) -> None:
    with pytest.raises(MaxPayloadError, match="max_payload"):
        await nc.publish("big", b"x" * (nc.max_payload + 1))
    await nc.publish("big", b"x" * nc.max_payload)
    await nc.flush()


async def test_unsubscribing_ends_the_iteration_and_drops_what_waits(
    nc: slipstream.Connection,
) -> None:
    subject = nc.new_inbox()
    subscription = await nc.subscribe(subject)
    await nc.publish(subject)
    await nc.flush()
    await subscription.unsubscribe()
    assert [m async for m in subscription] == []
    with pytest.raises(SubscriptionClosedError):
        await subscription.next(1)
    assert nc.stats.subscriptions == 0


async def test_a_closed_connection_says_so(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.close()
    assert [m async for m in subscription] == []
    with pytest.raises(ConnectionClosedError):
        await nc.publish("a")
    with pytest.raises(ConnectionClosedError):
        await nc.request("a")
    with pytest.raises(ConnectionClosedError):
        await nc.subscribe("a")


async def test_draining_sends_and_handles_everything_first(server_url: str) -> None:
    handled: list[bytes] = []

    async def slowly(message: Message) -> None:
        await turns()
        handled.append(message.data)

    nc = await slipstream.connect(server_url)
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=slowly)
    for i in range(50):
        await nc.publish(subject, str(i))
    await nc.drain()
    assert handled == [str(i).encode() for i in range(50)]
    assert nc.is_closed


async def test_without_echo_a_connection_does_not_hear_itself(server_url: str) -> None:
    async with await slipstream.connect(server_url, echo=False) as nc:
        subscription = await nc.subscribe("echo.test")
        await nc.publish("echo.test")
        await nc.flush()
        assert subscription.pending == 0


async def test_statistics_count_messages_and_bytes(server_url: str) -> None:
    async with await slipstream.connect(server_url) as nc:
        subject = nc.new_inbox()
        await nc.subscribe(subject)
        for _ in range(10):
            await nc.publish(subject, b"12345")
        await nc.flush()
        stats = nc.stats
        assert (stats.out_messages, stats.out_bytes) == (10, 50)
        assert (stats.in_messages, stats.in_bytes) == (10, 50)
        assert (stats.subscriptions, stats.reconnects, stats.pending_bytes) == (1, 0, 0)


@pytest.mark.parametrize(
    "headers", [{"A": "b", "C": "ü"}, {"A": ["1", "2"]}, Headers({"A": "b"}), {"A": ""}]
)
async def test_headers_may_be_given_as_a_dict(
    nc: slipstream.Connection, headers: dict[str, str]
) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.publish(subscription.subject, headers=headers)
    assert (await subscription.next(5)).headers == Headers(headers)


@pytest.mark.parametrize("headers", [{" A": "c"}, {"A:": "c"}, {"": "c"}, {"A": "b\r\nC: d"}])
async def test_headers_that_would_break_the_block_are_refused(
    nc: slipstream.Connection, headers: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="header"):
        await nc.publish("a", headers=headers)
