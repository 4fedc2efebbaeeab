"""Blocks of rows are published with a bound on what is in flight; nothing is left unsaid."""

import asyncio
import uuid

import slipstream
from slipstream.client.arrow.row_block import REFUSED, SENT, STORED, TO_SEND, RowBlock
from slipstream.client.arrow.row_publisher import NOBODY_LISTENS, RowPublisher
from slipstream.client.jetstream import JetStream, Stream
from tests.client.arrow.test_row_block import column


async def stream_of(js: JetStream) -> Stream:
    """A new stream."""
    name = "T" + uuid.uuid4().hex[:10]
    return await js.create_stream(name=name, subjects=[f"{name}.>"])


def publisher(nc: slipstream.Connection, **changes: float) -> RowPublisher:
    """One with few in flight."""
    return RowPublisher(
        nc, b"", b"", in_flight_max=int(changes.get("bound", 20)), quiet=changes.get("quiet", 5.0)
    )


async def test_every_row_is_stored_in_order_with_few_in_flight(jetstream_url: str) -> None:
    async with await slipstream.connect(jetstream_url) as nc:
        stream = await stream_of(nc.jetstream())
        rows = publisher(nc)
        blocks = [
            RowBlock(300, f"{stream.name}.x".encode(), column([b"%d" % n for n in numbers]))
            for numbers in (range(300), range(300, 600))
        ]
        for block in blocks:
            await rows.send(block)
        for block in blocks:
            assert await rows.settle(block) == []
            assert set(block.states) == {STORED}
        assert blocks[1].sequence == 600
        assert (await stream.get_message(600)).data == b"599"


async def test_what_is_refused_is_told_by_the_row(jetstream_url: str) -> None:
    async with await slipstream.connect(jetstream_url) as nc:
        stream = await stream_of(nc.jetstream())
        await stream.update(max_msg_size=10)
        name = stream.name.encode()
        block = RowBlock(
            4,
            column([name + b".a", name + b".b", b"nobody." + name, b"not sound"]),
            column([b"x", bytes(20), b"x", b"x"]),
        )
        rows = publisher(nc)
        await rows.send(block)
        problems = dict(await rows.settle(block))
        assert list(block.states) == [STORED, REFUSED, REFUSED, REFUSED]
        assert sorted(problems) == [1, 2]
        assert b'"err_code":10054' in problems[1].replace(b" ", b"")
        assert problems[2] == NOBODY_LISTENS


async def test_a_subject_that_finds_its_stream_late_is_tried_again(jetstream_url: str) -> None:
    async with await slipstream.connect(jetstream_url) as nc:
        js = nc.jetstream()
        name = "T" + uuid.uuid4().hex[:10]
        block = RowBlock(1, f"{name}.x".encode(), column([b"x"]))
        rows = publisher(nc)
        await rows.send(block)
        settled = asyncio.create_task(rows.settle(block))
        await nc.flush()  # that nobody listens is known
        assert block.states[0] == TO_SEND
        await js.create_stream(name=name, subjects=[f"{name}.>"])
        assert await settled == []
        assert list(block.states) == [STORED]


async def test_rows_without_an_answer_are_left_in_doubt(jetstream_url: str) -> None:
    async with await slipstream.connect(jetstream_url) as nc:
        await nc.subscribe("silent", handler=lambda message: None)
        block = RowBlock(2, b"silent", column([b"x", b"y"]))
        rows = publisher(nc, quiet=0.05)
        await rows.send(block)
        assert await rows.settle(block) == []
        assert isinstance(rows.error, TimeoutError)
        assert list(block.states) == [SENT, SENT]


async def test_a_broken_connection_ends_the_wait(jetstream_url: str) -> None:
    nc = await slipstream.connect(jetstream_url)
    await nc.subscribe("silent", handler=lambda message: None)
    block = RowBlock(1, b"silent", column([b"x"]))
    rows = publisher(nc)
    await rows.send(block)
    waiting = asyncio.create_task(rows.settle(block))
    await nc.flush()
    await nc.close()
    assert await waiting == []
    assert rows.error is not None
