"""JetStream of another account: its API, its consumers, its buckets, mirrors and sources of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import ExternalStream, JetStream, StreamSource
from tests.leaf.servers import until
from tests.leaf.test_jetstream import fill, has_all, messages_of
from tests.sharing.servers import KINDS, accounts, connect, server

pytestmark = pytest.mark.parametrize("kind", KINDS)
MANY = 1_000

# What nats-server's documentation sets up: the API under a prefix, what consumers deliver, their
# acknowledgements and their flow control.
EXPORTS = """
    { service: "$JS.API.>", response_type: stream },
    { service: "$JS.ACK.>" }, { service: "$JS.FC.>" },
    { stream: "deliver.>" }, { service: "orders.>" }, { service: "$KV.>" }, { service: "$O.>" }
"""
IMPORTS = """
    { service: { account: EXPORTER, subject: "$JS.API.>" }, to: "other.API.>" },
    { service: { account: EXPORTER, subject: "$JS.ACK.>" }, to: "$JS.ACK.>" },
    { service: { account: EXPORTER, subject: "$JS.FC.>" } },
    { stream: { account: EXPORTER, subject: "deliver.>" } },
    { service: { account: EXPORTER, subject: "orders.>" }, to: "shop.>" },
    { service: { account: EXPORTER, subject: "$KV.>" }, to: "other.API.$KV.>" },
    { service: { account: EXPORTER, subject: "$O.>" } }
"""
ACCOUNTS = accounts(EXPORTS, IMPORTS)


def upstream(name: str, **more: Any) -> StreamSource:
    """A stream of the other account, as a mirror or source has it."""
    external = ExternalStream(api="other.API", deliver="deliver.here")
    return StreamSource(name=name, external=external, **more)


async def test_a_stream_of_another_account_is_used_like_an_own_one(
    kind: str, tmp_path: Path
) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "i") as connection,
        await connect(node, "e") as owner,
    ):
        js = connection.jetstream(prefix="other.API")
        stream = await js.create_stream(name="S", subjects=["orders.>"])
        for number in range(50):
            ack = await js.publish("shop.a", b"%d" % number, timeout=10)
            assert (ack.stream, ack.sequence) == ("S", number + 1)
        consumer = await stream.create_consumer(durable_name="C")
        got = await consumer.fetch(50, timeout=10)
        assert [m.data for m in got] == [b"%d" % number for number in range(50)]
        assert {m.subject for m in got} == {"orders.a"}
        for message in got:
            await message.ack_sync()
        info = await consumer.info()
        assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 50)
        assert (await stream.get_message(7)).data == b"6"
        assert [name async for name in owner.jetstream().stream_names()] == ["S"]
        assert [name async for name in connection.jetstream().stream_names()] == []


async def test_a_push_consumer_delivers_into_another_account(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "i") as connection,
        await connect(node, "e") as owner,
    ):
        await owner.jetstream().create_stream(name="S", subjects=["orders.>"])
        await fill(owner.jetstream(), "orders", 0, 20)
        subscription = await connection.subscribe("deliver.mine")
        await connection.flush()
        js = connection.jetstream(prefix="other.API")
        await js.create_push_consumer("S", deliver_subject="deliver.mine", ack_policy="none")
        got = [await subscription.next(timeout=10) for _ in range(20)]
        assert [m.data for m in got] == [b"%d" % number for number in range(20)]
        assert got[0].subject == "orders.0"


async def test_a_bucket_of_another_account(kind: str, tmp_path: Path) -> None:
    async with server(kind, tmp_path, ACCOUNTS) as node, await connect(node, "i") as connection:
        js = connection.jetstream(prefix="other.API")
        bucket = await js.create_key_value("B")
        revision = await bucket.put("colour", b"red")
        await bucket.update("colour", b"blue", revision)
        assert (await bucket.get("colour")).value == b"blue"
        with pytest.raises(slipstream.KeyNotFoundError):
            await bucket.get("size")


async def test_an_object_store_of_another_account(kind: str, tmp_path: Path) -> None:
    async with server(kind, tmp_path, ACCOUNTS) as node, await connect(node, "i") as connection:
        js = connection.jetstream(prefix="other.API")
        store = await js.create_object_store("O")
        await store.put("picture", b"p" * 300_000)
        assert await store.get("picture") == b"p" * 300_000


async def test_a_mirror_follows_another_account_across_restarts(kind: str, tmp_path: Path) -> None:
    async with server(kind, tmp_path, ACCOUNTS) as node:
        for round_ in range(3):
            async with await connect(node, "e") as owner, await connect(node, "i") as follower:
                if not round_:
                    await owner.jetstream().create_stream(name="U", subjects=["orders.>"])
                    await follower.jetstream().create_stream(name="M", mirror=upstream("U"))
                await fill(owner.jetstream(), "orders", round_ * MANY, MANY)
                last = (round_ + 1) * MANY
                await until(has_all(follower.jetstream(), "M", last), "the mirror does not follow")
                theirs = await messages_of(owner.jetstream(), "U")
                assert theirs == await messages_of(follower.jetstream(), "M")
                assert len(theirs) == last
                info = (await follower.jetstream().stream_info("M")).mirror
                assert info is not None
                assert info.external == upstream("U").external
            await node.stop()
            await node.start()


async def test_sources_gather_what_another_account_has(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as follower,
    ):
        js = owner.jetstream()
        await js.create_stream(name="ONE", subjects=["one.>"])
        await js.create_stream(name="TWO", subjects=["two.>"])
        gathering = [upstream("ONE"), upstream("TWO", filter_subject="two.3")]
        await follower.jetstream().create_stream(name="G", sources=gathering)
        await fill(js, "one", 0, MANY)
        await fill(js, "two", 0, 70)
        await until(has_all(follower.jetstream(), "G", MANY + 10), "the sources do not flow")
        gathered = await messages_of(follower.jetstream(), "G")
        expected = [("one", b"%d" % number) for number in range(MANY)]
        expected += [("two", b"%d" % number) for number in range(3, 70, 7)]
        found = sorted((subject.split(".")[0], data) for _, subject, data in gathered)
        assert found == sorted(expected)


async def test_a_mirror_goes_on_after_its_upstream_was_purged(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as follower,
    ):
        js = owner.jetstream()
        stream = await js.create_stream(name="U", subjects=["orders.>"])
        await follower.jetstream().create_stream(name="M", mirror=upstream("U"))
        await fill(js, "orders", 0, 100)
        await until(has_all(follower.jetstream(), "M", 100))
        await stream.purge()
        await fill(js, "orders", 100, 100)
        await until(has_all(follower.jetstream(), "M", 200))
        found = await messages_of(follower.jetstream(), "M")
        assert [data for _, _, data in found] == [b"%d" % number for number in range(200)]


async def test_an_acknowledgement_comes_back_to_the_importing_account(
    kind: str, tmp_path: Path
) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "i") as connection,
        await connect(node, "e") as owner,
    ):
        await owner.jetstream().create_stream(name="S", subjects=["orders.>"])
        js: JetStream = connection.jetstream()
        acks = await asyncio.gather(*(js.publish("shop.x", b"%d" % n) for n in range(200)))
        assert sorted(ack.sequence for ack in acks) == list(range(1, 201))
        info = await owner.jetstream().stream_info("S")
        assert info.state.messages == 200
        stored = await (await owner.jetstream().stream("S")).get_message(1)
        assert not stored.headers


async def test_who_sees_the_jetstream_of_another_account_has_none_of_its_own(
    kind: str, tmp_path: Path
) -> None:
    told = '{ service: { account: EXPORTER, subject: "$JS.API.INFO" } }'
    one = '{ service: { account: EXPORTER, subject: "$JS.API.CONSUMER.INFO.S.c" } }'
    text = f"""
        accounts {{
          EXPORTER {{
            jetstream: enabled
            users: [ {{ user: e, password: p }} ]
            exports: [ {{ service: "$JS.API.>" }} ]
          }}
          SEES {{ users: [ {{ user: i, password: p }} ], imports: [ {told}, {one} ] }}
          BLIND {{ users: [ {{ user: b, password: p }} ] }}
        }}
    """
    async with (
        server(kind, tmp_path, text) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as connection,
        await connect(node, "b") as blind,
    ):
        stream = await owner.jetstream().create_stream(name="S", subjects=["s"])
        await stream.create_consumer(durable_name="c")
        found = await connection.jetstream().consumer_info("S", "c")
        assert found.name == "c"
        for subject in ("CONSUMER.INFO.S.other", "STREAM.NAMES", "STREAM.CREATE.X", "NOTHING"):
            with pytest.raises(slipstream.NoRespondersError):
                await connection.request(f"$JS.API.{subject}", b"", timeout=5)
        answer = await blind.request("$JS.API.STREAM.NAMES", b"", timeout=5)
        assert b"10039" in answer.data
