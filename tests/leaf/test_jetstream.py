"""JetStream over a leaf node connection: another domain's streams, buckets, mirrors and sources."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, StreamSource
from slipstream.client.jetstream.errors import NoConsumerResponseError
from tests.leaf.servers import PAIRS, Node, Pair, linked, until

pytestmark = pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
MANY = 2_000


def both_ways(pair: Pair) -> list[tuple[Node, Node]]:
    """Who has the streams, and who asks for them."""
    return [(pair.hub, pair.leaf), (pair.leaf, pair.hub)]


async def messages_of(js: JetStream, stream: str) -> list[tuple[int, str, bytes]]:
    """Sequence, subject and body of each message."""
    handle = await js.stream(stream)
    wanted = (await handle.info()).state.messages
    consumer = await handle.create_consumer(ack_policy="none")
    found: list[tuple[int, str, bytes]] = []

    async def more() -> bool:
        with suppress(NoConsumerResponseError):  # a cluster may have no leader at the moment
            for m in await consumer.fetch(1_000, timeout=10):
                found.append((m.sequence, m.subject, m.data))
        return len(found) >= wanted

    await until(more, f"{wanted} messages of {stream}")
    return found


async def fill(js: JetStream, prefix: str, first: int, count: int) -> None:
    """Publish `count` numbered messages."""
    for number in range(first, first + count):
        await js.publish_async(f"{prefix}.{number % 7}", b"%d" % number)
    await js.publish_async_complete(timeout=60)


async def test_a_scan_of_the_other_domain_takes_no_more_than_a_payload_at_a_time(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with linked(kinds, tmp_path, leaf_more="max_payload: 100KB") as pair:
        for owner, asker in both_ways(pair):
            async with await slipstream.connect(asker.url) as connection:
                js = connection.jetstream(domain=owner.domain)
                name = f"S{owner.name}"
                stream = await js.create_stream(
                    name=name, subjects=[f"{name}.>"], allow_direct=True
                )
                for _ in range(400):
                    await js.publish_async(f"{name}.a", b"x" * 1000)
                await js.publish_async_complete(timeout=60)
                rows = [
                    row for batch in [b async for b in stream.scan()] for row in batch["sequence"]
                ]
                assert [row.as_py() for row in rows] == list(range(1, 401))


async def test_the_other_domain_is_used_like_the_own(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with linked(kinds, tmp_path) as pair:
        for owner, asker in both_ways(pair):
            async with await slipstream.connect(asker.url) as connection:
                js = connection.jetstream(domain=owner.domain)
                name = f"S{owner.name}"
                stream = await js.create_stream(name=name, subjects=[f"{name}.>"])
                for number in range(50):
                    await js.publish(f"{name}.a", b"%d" % number, timeout=10)
                consumer = await stream.create_consumer(durable_name="C")
                got = await consumer.fetch(50, timeout=10)
                assert [m.data for m in got] == [b"%d" % number for number in range(50)]
                assert {m.subject for m in got} == {f"{name}.a"}
                for message in got:
                    await message.ack_sync()
                info = await consumer.info()
                assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 50)
                assert (await stream.get_message(7)).data == b"6"
                own = connection.jetstream()
                assert name not in [stream async for stream in own.stream_names()]


async def test_a_bucket_of_the_other_domain(kinds: tuple[str, str], tmp_path: Path) -> None:
    async with linked(kinds, tmp_path) as pair:
        for owner, asker in both_ways(pair):
            async with await slipstream.connect(asker.url) as connection:
                js = connection.jetstream(domain=owner.domain)
                bucket = await js.create_key_value(f"B{owner.name}")
                revision = await bucket.put("colour", b"red")
                await bucket.update("colour", b"blue", revision)
                assert (await bucket.get("colour")).value == b"blue"
                assert await bucket.keys() == ["colour"]
                await bucket.delete("colour")
                with pytest.raises(slipstream.KeyNotFoundError):
                    await bucket.get("colour")


async def test_a_mirror_goes_on_after_the_link_was_away(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with linked(kinds, tmp_path) as pair:
        for owner, follower in both_ways(pair):
            name = f"U{owner.name}"
            async with await slipstream.connect(owner.url) as near:
                await near.jetstream().create_stream(name=name, subjects=[f"{name}.>"])
                await fill(near.jetstream(), name, 0, MANY)
            async with await slipstream.connect(follower.url) as far:
                js = far.jetstream()
                mirror = StreamSource.of_domain(name, owner.domain)
                await js.create_stream(name=f"M{name}", mirror=mirror)
                await until(has_all(js, f"M{name}", MANY), "the mirror does not follow")
        away = pair.leaf
        await away.stop()
        async with await slipstream.connect(pair.hub.url) as hub:
            await fill(hub.jetstream(), "UHUB", MANY, MANY)
        await away.start()
        async with (
            await slipstream.connect(pair.hub.url) as hub,
            await slipstream.connect(away.url) as leaf,
        ):
            await fill(leaf.jetstream(), "ULEAF", MANY, MANY)
            for one, other, name in ((hub, leaf, "UHUB"), (leaf, hub, "ULEAF")):
                await until(has_all(other.jetstream(), f"M{name}", 2 * MANY), name)
                theirs = await messages_of(one.jetstream(), name)
                assert theirs == await messages_of(other.jetstream(), f"M{name}")
                assert len(theirs) == 2 * MANY


def has_all(js: JetStream, stream: str, last: int) -> Any:
    """A condition: the stream has got so far."""

    async def condition() -> bool:
        return bool((await js.stream_info(stream)).state.last_seq >= last)

    return condition


async def test_sources_gather_what_the_other_domains_have(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with (
        linked(kinds, tmp_path) as pair,
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        for here, there, domain in ((hub, leaf, "leaf"), (leaf, hub, "hub")):
            name = f"O{domain}"
            await there.jetstream().create_stream(name=name, subjects=[f"{name}.>"])
            source = StreamSource.of_domain(name, domain)
            await here.jetstream().create_stream(name=f"G{domain}", sources=[source])
            await fill(there.jetstream(), name, 0, MANY)
            await until(has_all(here.jetstream(), f"G{domain}", MANY), name)
            theirs = await messages_of(there.jetstream(), name)
            assert theirs == await messages_of(here.jetstream(), f"G{domain}")
