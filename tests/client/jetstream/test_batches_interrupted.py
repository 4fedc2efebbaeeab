"""Batches that are cancelled, broken off or filled by several tasks at once."""

import asyncio

import msgspec
import pytest

import slipstream
from slipstream.client.errors import MaxPayloadError
from slipstream.client.jetstream.errors import BatchError, PublishInterruptedError
from tests.client.scripted_server import Asked, ScriptedServer
from tests.client.waiting import until


def flow(sequence: int, window: int) -> bytes:
    return msgspec.json.encode({"type": "ack", "seq": sequence, "msgs": window})


def operation(asked: Asked) -> str:
    """What a message of a fast batch is: "0" begins it, "1" adds to it, "3" ends it."""
    return asked.reply.split(".")[-2]


def begins(asked: Asked) -> bytes | None:
    """Only the first message is answered: two may be in flight."""
    return asked.answer(flow(1, 1)) if operation(asked) == "0" else None


async def test_several_tasks_may_add_to_a_fast_batch() -> None:
    async with ScriptedServer(begins) as server, await slipstream.connect(server.url) as nc:
        batch = nc.jetstream(timeout=5).fast_batch(flow=1)
        await batch.add("s.a", b"1")
        adding = [asyncio.create_task(batch.add("s.a", b"x")) for _ in range(3)]
        await until(lambda: len(server.asked) == 4)
        adding[2].cancel()
        server.say(server.asked[0].answer(flow(4, 1)))
        async with asyncio.timeout(2):
            await asyncio.gather(*adding[:2])
        assert batch.acknowledged == 4


async def test_a_fast_batch_that_is_cancelled_at_its_end_listens_no_more() -> None:
    async with ScriptedServer(begins) as server, await slipstream.connect(server.url) as nc:
        before = nc.stats.subscriptions

        async def send() -> None:
            async with nc.jetstream().fast_batch() as batch:
                await batch.add("s.a", b"1")

        sending = asyncio.create_task(send())
        await until(lambda: len(server.asked) == 2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert nc.stats.subscriptions == before


async def test_what_a_fast_batch_could_not_send_does_not_count() -> None:
    async with ScriptedServer(begins) as server, await slipstream.connect(server.url) as nc:
        batch = nc.jetstream().fast_batch()
        await batch.add("s.a", b"1")
        with pytest.raises(MaxPayloadError):
            await batch.add("s.a", bytes(2_000_000))
        assert batch.size == 1


async def test_what_an_atomic_batch_could_not_send_does_not_count() -> None:
    async with (
        ScriptedServer(lambda asked: asked.answer(b"")) as server,
        await slipstream.connect(server.url) as nc,
    ):
        batch = nc.jetstream().atomic_batch()
        await batch.add("s.a", b"1")
        with pytest.raises(MaxPayloadError):
            await batch.add("s.a", bytes(2_000_000))
        assert batch.size == 1
        await batch.add("s.a", b"2")
        assert batch.size == 2


@pytest.mark.parametrize("commits", [False, True])
async def test_a_batch_whose_connection_broke_says_whether_it_may_be_stored(commits: bool) -> None:
    def script(asked: Asked) -> bytes | None:
        if commits and len(server.asked) == 1:
            return asked.answer(b"")
        server.close_clients()
        return None

    async with (
        ScriptedServer(script) as server,
        await slipstream.connect(server.url, reconnect_wait=0.01) as nc,
    ):
        batch = nc.jetstream().atomic_batch()
        if commits:
            await batch.add("s.a", b"1")
        with pytest.raises(PublishInterruptedError) as raised:
            await (batch.commit() if commits else batch.add("s.a", b"1"))
        assert raised.value.may_be_stored is commits
        with pytest.raises(BatchError):
            await batch.add("s.a", b"2")
