"""A client with the addresses of three servers publishes and consumes on while leaders change."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import slipstream
from tests.server.group.waiting import until
from tests.server.replica.serving import ServedGroup

COUNT = 3000
CHANGE_EVERY = 700


@pytest.mark.parametrize("how", ["killed", "asked to step down"])
async def test_each_message_with_an_id_is_stored_once_and_consumed(
    tmp_path: Path, how: str
) -> None:
    async with ServedGroup(tmp_path) as group, slipstream.connect(group.urls) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"], num_replicas=3)
        consumer = await js.create_consumer("S", durable_name="C", ack_wait=5)
        stored: dict[int, int] = {}  # sequences by numbers
        consumed: Counter[int] = Counter()

        async def publish() -> None:
            for number in range(COUNT):
                while number not in stored:
                    try:
                        done = await js.publish("s", b"%d" % number, message_id=str(number))
                        stored[number] = done.sequence
                    except slipstream.Error:
                        pass  # it may be stored: its id tells

        async def consume() -> None:
            async with consumer.messages() as messages:
                async for message in messages:
                    await message.ack()
                    consumed[int(message.data)] += 1

        publishing, consuming = asyncio.create_task(publish()), asyncio.create_task(consume())
        for wanted in range(CHANGE_EVERY, COUNT, CHANGE_EVERY):
            await until(lambda wanted=wanted: len(stored) >= wanted, f"{wanted} are stored")
            leader = await group.leader()
            if how == "killed":
                await leader.end()
                await group.leader()
                await leader.start()
            else:
                async with group.client() as other:
                    await other.jetstream().api.request("STREAM.LEADER.STEPDOWN.S")
        await publishing
        await until(lambda: len(consumed) == COUNT, "all are consumed")
        consuming.cancel()
        assert sorted(stored) == list(range(COUNT))
        assert sorted(stored.values()) == list(range(1, COUNT + 1))
        assert (await js.stream_info("S")).state.messages == COUNT
