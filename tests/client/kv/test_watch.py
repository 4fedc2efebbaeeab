"""A watch shows what is, says once that this was all, and then what changes."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.kv import KeyValue, Operation, Watch
from slipstream.client.kv.errors import BucketOptionError, InvalidKeyError
from tests.client.kv.test_bucket import js, kv, name
from tests.client.own_server import OwnServer
from tests.client.proxy import Proxy

__all__ = ["js", "kv", "name"]


async def initial(watch: Watch) -> list[tuple[str, object]]:
    """Keys and values up to the mark."""
    found = []
    async with asyncio.timeout(10):
        async for entry in watch:
            if entry is None:
                return found
            found.append((entry.key, entry.value))
    raise AssertionError("the watch ended before its mark")


async def test_a_watch_begins_with_the_latest_values(kv: KeyValue) -> None:
    for value in ("1", "2"):
        await kv.put("a", value)
    await kv.put("b", "3")
    async with await kv.watch() as watch:
        assert await initial(watch) == [("a", b"2"), ("b", b"3")]
        await kv.put("c", "4")
        await kv.delete("a")
        changes = [await watch.next(), await watch.next()]
    assert [(e.key, e.operation) for e in changes if e] == [
        ("c", Operation.PUT),
        ("a", Operation.DELETE),
    ]


async def test_an_empty_bucket_gives_the_mark_at_once(kv: KeyValue) -> None:
    async with await kv.watch() as watch:
        assert await initial(watch) == []


async def test_a_watch_may_begin_with_the_history(kv: KeyValue) -> None:
    for value in ("1", "2"):
        await kv.put("a", value)
    async with await kv.watch(include_history=True) as watch:
        assert await initial(watch) == [("a", b"1"), ("a", b"2")]


async def test_a_watch_may_begin_with_nothing(kv: KeyValue) -> None:
    await kv.put("a", "1")
    async with await kv.watch(updates_only=True) as watch:
        await kv.put("b", "2")
        entry = await watch.next()
    assert entry is not None
    assert entry.key == "b"


async def test_a_watch_may_go_on_from_a_revision(kv: KeyValue) -> None:
    await kv.put("a", "1")
    second = await kv.put("b", "2")
    await kv.put("c", "3")
    async with await kv.watch(resume_from=second) as watch:
        assert await initial(watch) == [("b", b"2"), ("c", b"3")]


async def test_deletes_and_values_can_be_left_out(kv: KeyValue) -> None:
    await kv.put("a", "1")
    await kv.put("b", "2")
    await kv.delete("a")
    async with await kv.watch(ignore_deletes=True, meta_only=True) as watch:
        assert await initial(watch) == [("b", b"")]


async def test_several_patterns_are_watched_at_once(kv: KeyValue) -> None:
    for key in ("a.1", "b.1", "c.1"):
        await kv.put(key, key)
    async with await kv.watch(["a.*", "c.>"]) as watch:
        assert await initial(watch) == [("a.1", b"a.1"), ("c.1", b"c.1")]


async def test_the_mark_comes_once_and_after_everything(kv: KeyValue) -> None:
    for i in range(200):
        await kv.put(f"k{i}", str(i))
    async with await kv.watch() as watch:
        assert len(await initial(watch)) == 200
        await kv.put("k0", "new")
        entry = await watch.next()
    assert entry is not None
    assert entry.value == b"new"


async def test_stopping_lets_go_of_who_iterates(kv: KeyValue) -> None:
    watch = await kv.watch()
    await initial(watch)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    await watch.stop()
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await asyncio.wait_for(waiting, 10)
    await watch.stop()


async def test_a_watch_leaves_no_consumer_behind(js: JetStream, kv: KeyValue) -> None:
    async with await kv.watch():
        assert (await kv.status()).stream_info.state.consumer_count == 1
    async with asyncio.timeout(30):
        while (await kv.status()).stream_info.state.consumer_count:
            pass


async def test_contradictions_and_bad_patterns_are_refused(kv: KeyValue) -> None:
    with pytest.raises(BucketOptionError, match="give one of"):
        await kv.watch(include_history=True, updates_only=True)
    with pytest.raises(BucketOptionError, match="no keys"):
        await kv.watch([])
    for pattern in ("", ".a", "a..b", "a b"):
        with pytest.raises(InvalidKeyError):
            await kv.watch(pattern)


async def test_a_watch_goes_on_after_the_connection_broke(server_url: str, kv: KeyValue) -> None:
    await kv.put("a", "1")
    async with (
        asyncio.timeout(20),
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
        await (await far.jetstream().key_value(kv.bucket)).watch() as watch,
    ):
        assert await initial(watch) == [("a", b"1")]
        proxy.cut()
        await kv.put("b", "2")
        entry = await watch.next()
        assert entry is not None  # the mark does not come twice
        assert (entry.key, entry.value) == ("b", b"2")


async def test_what_changes_while_a_connection_is_down_is_an_update_too(
    server_url: str, kv: KeyValue
) -> None:
    await kv.put("a", "1")
    async with (
        asyncio.timeout(20),
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
        await (await far.jetstream().key_value(kv.bucket)).watch(updates_only=True) as watch,
    ):
        proxy.refuse = True
        proxy.cut()
        await kv.put("b", "2")
        proxy.refuse = False
        entry = await watch.next()
        assert entry is not None
        assert entry.key == "b"


async def test_the_heartbeat_of_a_watch_can_be_chosen(js: JetStream, kv: KeyValue) -> None:
    async with await kv.watch(heartbeat=1) as watch:
        assert await initial(watch) == []
        (info,) = [info async for info in (await js.stream(kv.stream_name)).consumers()]
    assert info.config.idle_heartbeat == 1


@pytest.mark.parametrize("updates_only", [False, True])
async def test_a_watch_goes_on_after_the_server_was_away(
    own_server: OwnServer, updates_only: bool
) -> None:
    async with asyncio.timeout(40), await slipstream.connect(own_server.url) as nc:
        kv = await nc.jetstream().create_key_value("b", history=5)
        await kv.put("a", "1")
        async with await kv.watch(updates_only=updates_only) as watch:
            if not updates_only:
                assert await initial(watch) == [("a", b"1")]
            await own_server.astop()
            await own_server.astart()
            while True:  # the first request may reach a server that is not ready for it
                try:
                    await kv.put("b", "2")
                    break
                except slipstream.Error:
                    await nc.flush()
            entry = await watch.next()
            assert entry is not None
            assert (entry.key, entry.value) == ("b", b"2")
