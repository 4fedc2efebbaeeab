"""A consumer's messages as one batch, and acknowledgements by the batch."""

import asyncio

import pyarrow.compute
import pytest

from slipstream.client.arrow.batches import COLUMNS
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import ConsumeError
from tests.client.arrow.test_scan import fill, js, stream
from tests.client.waiting import LoopClock

__all__ = ["js", "stream"]


async def test_a_fetch_gives_rows_that_can_be_acknowledged(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch_arrow(4, timeout=5)
    assert batch.schema.names == [*COLUMNS, "reply"]
    assert batch["sequence"].to_pylist() == [1, 2, 3, 4]
    assert batch["headers"].to_pylist()[0] == [("N", ["1"])]
    await consumer.ack_batch(batch)
    await js.connection.flush()
    rest = await consumer.fetch_arrow(6, timeout=5)
    assert rest["sequence"].to_pylist() == [5, 6, 7, 8, 9, 10]
    even = rest.filter(pyarrow.compute.equal(pyarrow.compute.bit_wise_and(rest["sequence"], 1), 0))
    await consumer.ack_batch(even)
    await js.connection.flush()
    async with asyncio.timeout(5):  # nats-server acts on acknowledgements behind its PONG
        while (info := await consumer.info()).num_ack_pending > 3:
            await js.connection.flush()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (3, 4)


async def test_one_acknowledgement_is_enough_where_the_last_acks_all(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c", ack_policy="all")
    sent = js.connection.stats.out_messages
    batch = await consumer.fetch_arrow(5, timeout=5)
    await consumer.ack_batch(batch)
    assert js.connection.stats.out_messages == sent + 2
    await js.connection.flush()
    assert (await consumer.info()).num_ack_pending == 0


async def test_nothing_within_the_time_is_an_empty_batch(stream: Stream, clock: LoopClock) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    batch = await clock.time_out(consumer.fetch_arrow(5, timeout=30), 31)
    assert batch.num_rows == 0
    assert (await consumer.fetch_arrow(5, no_wait=True)).num_rows == 0
    await consumer.ack_batch(batch)


async def test_bytes_bound_a_fetch(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10, size=1000)
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch_arrow(10, max_bytes=3500, timeout=5, columns=["size"])
    assert batch.to_pydict() == {"size": [1000] * batch.num_rows}
    assert 2 <= batch.num_rows <= 3


async def test_a_consumer_that_is_gone_is_an_error(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await stream.delete_consumer("c")
    with pytest.raises(ConsumeError):
        await consumer.fetch_arrow(5, timeout=2)
    with pytest.raises(ValueError, match="to be positive"):
        await consumer.fetch_arrow(0)
