"""Publishing: what the stream says, options, futures, bounds, errors that tell what happened."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import slipstream
from slipstream.client.errors import InvalidSubjectError, MaxPayloadError
from slipstream.client.jetstream import JetStream, JetStreamMessage, Schedule, Stream
from slipstream.client.jetstream.errors import (
    ApiError,
    NoStreamError,
    PublishInterruptedError,
    PublishTimeoutError,
    TooManyInFlightError,
    WrongLastMessageIdError,
    WrongLastSequenceError,
)
from tests.client.jetstream.conftest import MakeStream, or_skip
from tests.client.waiting import LoopClock, turns


async def test_an_acknowledgement_names_the_stream_and_the_sequence(
    js: JetStream, stream: Stream
) -> None:
    first = await js.publish(f"{stream.name}.a", b"one")
    second = await js.publish(f"{stream.name}.a", "two")
    assert (first.stream, first.sequence, first.duplicate) == (stream.name, 1, False)
    assert second.sequence == 2


async def test_a_message_id_is_stored_once(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"x", message_id="one")
    again = await js.publish(f"{stream.name}.a", b"x", message_id="one")
    assert again.duplicate
    assert again.sequence == 1


async def test_expectations_that_do_not_hold_are_refused(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, b"x", message_id="first", expected_last_sequence=0)
    await js.publish(subject, b"x", expected_stream=stream.name, expected_last_message_id="first")
    with pytest.raises(WrongLastSequenceError) as wrong:
        await js.publish(subject, b"x", expected_last_sequence=7)
    assert wrong.value.last_sequence == 2
    with pytest.raises(WrongLastSequenceError):
        await js.publish(subject, b"x", expected_last_sequence_per_subject=1)
    with pytest.raises(WrongLastMessageIdError):
        await js.publish(subject, b"x", expected_last_message_id="other")
    with pytest.raises(ApiError) as refused:
        await js.publish(subject, b"x", expected_stream="OTHER")
    assert refused.value.err_code == 10060
    other = f"{stream.name}.b"
    ack = await js.publish(
        other, b"x", expected_last_sequence_per_subject=2, expected_last_sequence_subject=subject
    )
    assert ack.sequence == 3


async def test_headers_and_options_travel_together(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    await js.publish(subject, b"x", headers={"Kind": "order"}, message_id="17")
    stored = await stream.get_message(1)
    assert dict(stored.headers.items()) == {"Kind": ["order"], "Nats-Msg-Id": ["17"]}


async def test_a_ttl_is_whole_seconds_or_never(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(allow_msg_ttl=True)
    assert stream.config.allow_msg_ttl
    await js.publish(f"{stream.name}.a", b"x", ttl=60)
    await js.publish(f"{stream.name}.a", b"x", ttl="never")
    assert (await stream.get_message(1)).headers["Nats-TTL"] == "60"
    with pytest.raises(ValueError, match="whole number of seconds"):
        await js.publish(f"{stream.name}.a", b"x", ttl=0.5)


async def test_an_unknown_option_is_a_mistake(js: JetStream, stream: Stream) -> None:
    with pytest.raises(TypeError, match="msg_id"):
        await js.publish(f"{stream.name}.a", b"x", msg_id="one")  # type: ignore[call-arg]


async def test_a_rollup_leaves_the_newest(js: JetStream, make_stream: MakeStream) -> None:
    stream = await make_stream(allow_rollup_hdrs=True)
    for number in range(3):
        await js.publish(f"{stream.name}.a", str(number))
    await js.publish(f"{stream.name}.a", "sum", rollup="sub")
    assert (await stream.info()).state.messages == 1


def test_a_schedule_says_when_exactly_once() -> None:
    every = Schedule(target="orders.tick", every=90).fields()
    assert ("Nats-Schedule", "@every 90s") in every
    with pytest.raises(ValueError, match="exactly one"):
        Schedule(target="orders.tick").fields()


class Order(msgspec.Struct):
    """What a shop sells."""

    number: int
    item: str


async def test_typed_values_are_encoded_by_their_type(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", Order(17, "tea"))
    stored = await stream.get_message(1)
    assert stored.data == b'{"number":17,"item":"tea"}'
    assert stored.decode(Order) == Order(17, "tea")


async def test_a_subject_that_no_stream_has_is_said_not_to_be_stored(js: JetStream) -> None:
    with pytest.raises(NoStreamError) as error:
        await js.publish("nobody.listens.here", b"x", retries=0)
    assert not error.value.may_be_stored


async def test_a_stream_that_comes_up_late_is_found_by_retrying(
    nc: "slipstream.Connection", make_stream: MakeStream
) -> None:
    js = nc.jetstream(retry_wait=0.05)
    publishing = asyncio.ensure_future(js.publish("LATE.a", b"x", retries=100))
    await asyncio.sleep(0)
    await make_stream(name="LATE")
    assert (await publishing).stream == "LATE"


async def test_time_that_runs_out_between_retries_says_that_no_stream_listens(
    nc: "slipstream.Connection", clock: LoopClock
) -> None:
    js = nc.jetstream(retry_wait=60)
    publishing = asyncio.ensure_future(
        js.publish("nobody.listens.here", b"x", retries=1, timeout=30)
    )
    await turns()
    await nc.flush()  # that nobody listens is known
    with pytest.raises(NoStreamError) as error:
        await clock.time_out(publishing, 31)
    assert not error.value.may_be_stored


async def test_too_large_a_message_is_not_sent(js: JetStream, stream: Stream) -> None:
    with pytest.raises(MaxPayloadError):
        await js.publish(f"{stream.name}.a", bytes(2 * 1024 * 1024))


async def test_futures_come_at_once_and_hold_the_acknowledgements(
    js: JetStream, stream: Stream
) -> None:
    futures = [await js.publish_async(f"{stream.name}.a", str(n)) for n in range(500)]
    assert js.publish_async_pending > 0
    await js.publish_async_complete()
    assert js.publish_async_pending == 0
    assert [future.result().sequence for future in futures] == list(range(1, 501))


async def test_the_bound_on_acknowledgements_in_flight_is_kept_by_waiting(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    js = nc.jetstream(max_ack_pending=10)
    for number in range(200):
        await js.publish_async(f"{stream.name}.a", str(number))
        assert js.publish_async_pending <= 10
    await js.publish_async_complete(timeout=5)
    assert (await stream.info()).state.messages == 200


async def test_the_bound_is_an_error_if_so_asked(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    js = nc.jetstream(max_ack_pending=2, wait_when_full=False)
    for _ in range(2):
        await js.publish_async(f"{stream.name}.a", b"x")
    with pytest.raises(TooManyInFlightError) as error:
        await js.publish_async(f"{stream.name}.a", b"x")
    assert not error.value.may_be_stored
    await js.publish_async_complete()


async def test_a_publisher_that_stalls_too_long_is_told(
    nc: "slipstream.Connection", make_stream: MakeStream, clock: LoopClock
) -> None:
    stream = await make_stream(no_ack=True)
    js = nc.jetstream(max_ack_pending=1, stall_timeout=30, publish_ack_timeout=0)
    await js.publish_async(f"{stream.name}.a", b"x")
    with pytest.raises(TooManyInFlightError):
        await clock.time_out(js.publish_async(f"{stream.name}.a", b"x"), 31)


async def test_a_cancelled_waiter_leaves_its_slot_to_others(
    nc: "slipstream.Connection", make_stream: MakeStream, clock: LoopClock
) -> None:
    silent = await make_stream(no_ack=True)
    js = nc.jetstream(max_ack_pending=1, publish_ack_timeout=30)
    first = await js.publish_async(f"{silent.name}.a", b"x")
    waiters = [asyncio.ensure_future(js.publish_async(f"{silent.name}.a", b"x")) for _ in range(2)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    with pytest.raises(PublishTimeoutError):
        await clock.time_out(first, 31)
    second = await waiters[1]
    with pytest.raises(PublishTimeoutError):
        await clock.time_out(second, 31)


async def test_an_acknowledgement_that_does_not_come_is_a_timeout(
    js: JetStream, make_stream: MakeStream, clock: LoopClock
) -> None:
    stream = await make_stream(no_ack=True)
    with pytest.raises(PublishTimeoutError) as error:
        await clock.time_out(js.publish(f"{stream.name}.a", b"x", timeout=30), 31)
    assert error.value.may_be_stored
    assert isinstance(error.value, TimeoutError)


async def test_outcomes_are_told_to_the_handlers(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    acks: list[int] = []
    failed: list[slipstream.Message] = []
    js = nc.jetstream(
        on_publish_ack=lambda message, ack: acks.append(ack.sequence),
        on_publish_error=lambda message, error: failed.append(message),
    )
    await js.publish_async(f"{stream.name}.a", b"x")
    await js.publish_async("nobody.listens.here", b"x", message_id="17", retries=0)
    await js.publish_async_complete()
    assert acks == [1]
    (message,) = failed
    assert (message.subject, message.data) == ("nobody.listens.here", b"x")
    assert message.headers["Nats-Msg-Id"] == "17"


async def test_draining_the_connection_waits_for_acknowledgements(
    server_url: str, stream: Stream
) -> None:
    async with await slipstream.connect(server_url) as nc:
        js = nc.jetstream()
        futures = [await js.publish_async(f"{stream.name}.a", b"x") for _ in range(50)]
        await nc.drain()
    assert [future.result().sequence for future in futures] == list(range(1, 51))


async def test_closing_the_connection_ends_what_is_in_flight_with_an_error(
    server_url: str, make_stream: MakeStream
) -> None:
    stream = await make_stream(no_ack=True)
    nc = await slipstream.connect(server_url)
    future = await nc.jetstream().publish_async(f"{stream.name}.a", b"x")
    await nc.flush()
    await nc.close()
    with pytest.raises(PublishInterruptedError) as error:
        await future
    assert error.value.may_be_stored


async def test_a_hundred_tasks_may_publish_at_once(js: JetStream, stream: Stream) -> None:
    acks = await asyncio.gather(
        *(js.publish(f"{stream.name}.{number}", b"x") for number in range(100))
    )
    assert sorted(ack.sequence for ack in acks) == list(range(1, 101))


async def test_spans_follow_a_message_through_the_stream(server_url: str, stream: Stream) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    subject = f"{stream.name}.traced"
    async with await slipstream.connect(server_url, tracer_provider=provider) as nc:
        js = nc.jetstream()
        await js.publish(subject, Order(1, "tea"), headers={"Kind": "web"}, message_id="one")
        await (await js.publish_async(subject, b"two"))
        consumer = await js.create_consumer(stream.name, durable_name="c")
        await consumer.consume(JetStreamMessage.ack, stop_after=2).closed()
    spans = exporter.get_finished_spans()
    published = {s.context.span_id for s in spans if s.name == f"{subject} publish" and s.context}
    parents = {s.parent.span_id for s in spans if s.name == f"{subject} process" and s.parent}
    assert len(published) == 2
    assert published == parents
    assert (await stream.get_message(1)).headers["Nats-Msg-Id"] == "one"


async def test_a_line_break_cannot_be_smuggled_into_a_header(js: JetStream, stream: Stream) -> None:
    with pytest.raises(ValueError, match="line break"):
        await js.publish(f"{stream.name}.a", b"x", message_id="a\r\nNats-Rollup: all")


async def test_a_context_that_is_forgotten_leaves_no_subscription(
    nc: "slipstream.Connection", stream: Stream
) -> None:
    before = nc.stats.subscriptions
    for _ in range(3):
        await nc.jetstream().publish(f"{stream.name}.a", b"x")
    last = await nc.jetstream().publish_async(f"{stream.name}.a", b"x")
    assert (await last).sequence == 4
    await asyncio.sleep(0)
    assert nc.stats.subscriptions <= before + 1
    await nc.flush()
    assert nc.stats.subscriptions == before


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a"])
async def test_a_subject_that_cannot_be_is_not_sent(js: JetStream, subject: str) -> None:
    with pytest.raises(InvalidSubjectError):
        await js.publish(subject, b"x")
    with pytest.raises(InvalidSubjectError):
        await js.publish_async(subject, b"x")


async def test_a_counter_adds_up(js: JetStream, make_stream: MakeStream) -> None:
    stream = await or_skip(make_stream(allow_msg_counter=True, allow_direct=True))
    assert (await js.publish(f"{stream.name}.a", increment=5)).value == "5"
    assert (await js.publish(f"{stream.name}.a", increment=-2)).value == "3"
    assert (await stream.get_last_message(f"{stream.name}.a")).data == b'{"val":"3"}'


async def test_a_schedule_publishes_later(js: JetStream, make_stream: MakeStream) -> None:
    stream = await or_skip(make_stream(allow_msg_schedules=True, allow_msg_ttl=True))
    target = f"{stream.name}.target"
    soon = Schedule(target=target, at=datetime.now(UTC), ttl=60)
    await js.publish(f"{stream.name}.plan", "now", schedule=soon)
    async with stream.ordered_consumer(filter_subjects=[target]).messages() as messages:
        message = await messages.next(timeout=5)
    assert message is not None
    assert (message.data, message.headers["Nats-TTL"]) == (b"now", "60")


async def test_nobody_is_asked_three_times(nc: "slipstream.Connection") -> None:
    js = nc.jetstream(retry_wait=0.01)
    before = nc.stats.out_messages
    with pytest.raises(NoStreamError):
        await js.publish("nobody.listens.here", b"x")
    assert nc.stats.out_messages == before + 3
    with pytest.raises(NoStreamError):
        await (await js.publish_async("nobody.listens.here", b"x"))
    assert nc.stats.out_messages == before + 6
