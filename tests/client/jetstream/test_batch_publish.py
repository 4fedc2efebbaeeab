"""Atomic and fast batches; where the server has none, its own words say so."""

import pytest

from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import (
    BatchError,
    JetStreamError,
    NoStreamError,
    WrongLastSequenceError,
)
from tests.client.jetstream.conftest import MakeStream, or_skip


@pytest.fixture
async def atomic(make_stream: MakeStream) -> Stream:
    """A stream that takes atomic batches."""
    return await or_skip(make_stream(allow_atomic=True))


@pytest.fixture
async def fast(make_stream: MakeStream) -> Stream:
    """A stream that takes fast batches."""
    return await or_skip(make_stream(allow_batched=True))


async def test_a_batch_is_stored_whole(js: JetStream, atomic: Stream) -> None:
    async with js.atomic_batch() as batch:
        for number in range(250):
            await batch.add(f"{atomic.name}.a", str(number))
            assert (await atomic.info()).state.messages == 0 if number % 100 == 0 else True
    assert batch.ack is not None
    assert (batch.ack.sequence, batch.ack.batch_size) == (250, 250)
    assert batch.ack.batch_id == batch.batch_id
    assert (await atomic.info()).state.messages == 250


async def test_the_last_message_may_come_with_the_commit(js: JetStream, atomic: Stream) -> None:
    batch = js.atomic_batch()
    await batch.add(f"{atomic.name}.a", "one")
    ack = await batch.commit(f"{atomic.name}.b", "two")
    assert ack.batch_size == 2
    with pytest.raises(BatchError):
        await batch.add(f"{atomic.name}.a", "three")


async def test_an_exception_stores_nothing(js: JetStream, atomic: Stream) -> None:
    async def interrupted() -> None:
        async with js.atomic_batch() as batch:
            await batch.add(f"{atomic.name}.a", "one")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await interrupted()
    assert (await atomic.info()).state.messages == 0


async def test_an_expectation_that_fails_stores_nothing(js: JetStream, atomic: Stream) -> None:
    batch = js.atomic_batch()
    await batch.add(f"{atomic.name}.a", "one", expected_last_sequence=7)
    with pytest.raises(WrongLastSequenceError):
        await batch.commit(f"{atomic.name}.a", "two")
    assert (await atomic.info()).state.messages == 0


async def test_a_stream_without_batches_says_so(js: JetStream, stream: Stream) -> None:
    with pytest.raises(JetStreamError):
        await js.atomic_batch().add(f"{stream.name}.a", "one")
    with pytest.raises(JetStreamError):
        await js.fast_batch().add(f"{stream.name}.a", "one")


async def test_a_batch_to_nobody_says_so(js: JetStream) -> None:
    with pytest.raises(NoStreamError):
        await js.atomic_batch().add("nobody.listens.here", "one")
    with pytest.raises(NoStreamError):
        await js.fast_batch().add("nobody.listens.here", "one")


async def test_a_fast_batch_is_acknowledged_together(js: JetStream, fast: Stream) -> None:
    async with js.fast_batch(flow=50) as batch:
        for number in range(1000):
            await batch.add(f"{fast.name}.a", str(number))
    assert batch.ack is not None
    assert (batch.ack.sequence, batch.ack.batch_size) == (1000, 1000)
    assert batch.acknowledged == 1000
    assert (await fast.info()).state.messages == 1000


async def test_a_refused_message_ends_a_fast_batch(js: JetStream, fast: Stream) -> None:
    async def send() -> None:
        async with js.fast_batch() as batch:
            await batch.add(f"{fast.name}.a", "one")
            for _ in range(1000):
                await batch.add(f"{fast.name}.a", "two", expected_last_sequence=99)

    with pytest.raises(JetStreamError):
        await send()
