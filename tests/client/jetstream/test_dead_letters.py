"""Dead letters as the client sees them: configured, listed, sent again, and refused by others."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.client import sync
from slipstream.client.jetstream import ConsumerConfig, DeadLetter, JetStream, PullConsumer
from slipstream.client.jetstream.errors import FeatureError
from slipstream.errors import ConfigError
from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A Slipstream server of the test's own."""
    with slipstream.Server(store_dir=str(tmp_path / "store")) as server:
        yield server.url


@pytest.fixture
async def own(url: str) -> AsyncIterator[JetStream]:
    """A context on it."""
    async with await slipstream.connect(url) as nc:
        yield nc.jetstream()


async def poisoned(js: JetStream) -> PullConsumer:
    """A consumer that has terminated two messages and given up one, beside another one's."""
    await js.create_stream(name="D", subjects=["dead.>"])
    stream = await js.create_stream(name="S", subjects=["s.>"], allow_rollup_hdrs=True)
    consumer = await stream.create_consumer(
        durable_name="c", dead_letter="dead.s", max_deliver=1, filter_subject="s.mine.*"
    )
    other = await stream.create_consumer(
        durable_name="other", dead_letter="dead.s", filter_subject="s.other"
    )
    for number in range(3):
        headers = {"Kind": "order", "Nats-Expected-Stream": "S"}
        await js.publish(
            f"s.mine.{number}", b"%d" % number, headers=headers, message_id=f"id-{number}"
        )
    await js.publish("s.other", b"")
    for message in await other.fetch(1):
        await message.term_sync()
    first, *others = await consumer.fetch(3)
    await first.nak()
    for message in others:
        await message.term_sync(f"bad {message.data.decode()}")
    return consumer


async def letters_of(consumer: PullConsumer) -> list[DeadLetter]:
    return sorted(
        [letter async for letter in consumer.dead_letters()], key=lambda one: one.from_sequence
    )


async def test_a_consumer_lists_its_own_dead_letters(own: JetStream) -> None:
    consumer = await poisoned(own)
    assert consumer.cached_info.config.dead_letter == "dead.s"
    found = await letters_of(consumer)
    assert [(one.subject, one.data) for one in found] == [
        ("s.mine.0", b"0"), ("s.mine.1", b"1"), ("s.mine.2", b"2"),
    ]  # fmt: skip
    assert [one.cause for one in found] == ["max_deliver", "terminated", "terminated"]
    assert found[1].reason == "bad 1"
    assert found[0].reason == "not acknowledged after 1 deliveries"
    assert found[0].headers["Kind"] == "order"
    assert (found[0].from_stream, found[0].from_consumer, found[0].stream) == ("S", "c", "D")


async def test_one_that_is_sent_again_is_as_it_was_and_gone(own: JetStream) -> None:
    consumer = await poisoned(own)
    letters = await letters_of(consumer)
    ack = await consumer.resend(letters[0])
    assert (ack.stream, ack.sequence, ack.duplicate) == ("S", 5, False)
    again = await consumer.resend(letters[0])
    assert again.duplicate, "as after an answer that was lost"
    (message,) = await consumer.fetch(1)
    assert (message.subject, message.data) == (letters[0].subject, letters[0].data)
    assert message.headers["Kind"] == "order"
    assert not [name for name in message.headers if name.startswith("Slipstream-")]
    assert [one.from_sequence for one in await letters_of(consumer)] == [2, 3]


async def test_a_dead_letter_of_a_dead_letter_goes_back_one_step(own: JetStream) -> None:
    consumer = await poisoned(own)
    await own.create_stream(name="E", subjects=["e"])
    second = await own.create_consumer("D", durable_name="d", dead_letter="e")
    (message,) = await second.fetch(1)
    await message.term_sync()
    (letter,) = await letters_of(second)
    assert (letter.subject, letter.from_stream) == ("dead.s", "D")
    assert letter.headers["Slipstream-Dead-Stream"] == "S"
    before = len(await letters_of(consumer))
    await second.resend(letter)
    assert await letters_of(second) == []
    assert len(await letters_of(consumer)) >= before


async def test_what_is_no_dead_letter_is_left_out(own: JetStream) -> None:
    consumer = await poisoned(own)
    for headers in ({}, {"Slipstream-Dead-Stream": "S", "Slipstream-Dead-Deliveries": "many"}):
        await own.publish("dead.s", b"", headers=headers)
    assert len(await letters_of(consumer)) == 3


async def test_without_the_field_there_is_nothing_to_list(own: JetStream) -> None:
    stream = await own.create_stream(name="S", subjects=["s.>"])
    consumer = await stream.create_consumer(durable_name="c")
    with pytest.raises(ConfigError, match="has no dead_letter"):
        await letters_of(consumer)


@pytest.mark.parametrize("pedantic", [False, True])
async def test_a_server_that_refuses_the_field_is_named(
    shared_nats_server: NatsServer, pedantic: bool
) -> None:
    """nats-server 2.15.1 refuses it as an unknown field, in pedantic mode or not."""
    async with await slipstream.connect(shared_nats_server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="REFUSES", subjects=["refuses"], storage="memory")
        config = ConsumerConfig(durable_name="c", dead_letter="dead")
        with pytest.raises(FeatureError, match="does not know 'dead_letter'"):
            await js.create_consumer_raw(stream.name, config, pedantic=pedantic)
        assert [name async for name in stream.consumer_names()] == []
        await stream.delete()


async def test_a_server_that_ignores_the_field_is_named(tmp_path: Path) -> None:
    """As nats-server does where requests are not looked at strictly."""
    path = tmp_path / "server.conf"
    path.write_text("jetstream { strict: false }")
    real = start_nats_server(tmp_path, "-c", str(path))
    try:
        async with await slipstream.connect(real.url) as nc:
            js = nc.jetstream()
            await js.create_stream(name="S", subjects=["s.>"])
            with pytest.raises(FeatureError, match="without 'dead_letter'"):
                await js.create_consumer("S", durable_name="c", dead_letter="s.dead")
            with pytest.raises(FeatureError, match="without 'dead_letter'"):
                await js.update_consumer("S", durable_name="c", dead_letter="s.dead")
    finally:
        stop_nats_server(real)


def test_the_api_without_await_lists_and_sends_again(url: str) -> None:
    with sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name="D", subjects=["dead.>"])
        js.create_stream(name="S", subjects=["s.>"])
        consumer = js.create_consumer("S", durable_name="c", dead_letter="dead.s")
        js.publish("s.a", b"1")
        consumer.next(timeout=5).term_sync()
        (letter,) = consumer.dead_letters()
        assert consumer.resend(letter).sequence == 2
        assert list(consumer.dead_letters()) == []
