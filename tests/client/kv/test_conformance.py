"""Keys on the wire: nats-py reads what is put here, and the other way round."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from nats.js import api as nats_api
from nats.js.client import JetStreamContext
from nats.js.errors import KeyNotFoundError as NatsKeyNotFoundError
from nats.js.errors import KeyWrongLastSequenceError, NoKeysError
from nats.js.kv import KeyValue as NatsKeyValue

from slipstream.client.jetstream import JetStream
from slipstream.client.kv import KeyValue, Operation
from slipstream.client.kv.errors import KeyDeletedError, KeyExistsError, RevisionMismatchError
from tests.client.kv.test_bucket import js, kv, name
from tests.client.kv.test_watch import initial
from tests.client.other_client import other

__all__ = ["js", "kv", "name", "other"]


@pytest.fixture
async def theirs(other: JetStreamContext, kv: KeyValue) -> NatsKeyValue:
    """The same bucket, opened by nats-py."""
    return await other.key_value(kv.bucket)


async def patiently(ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    """What nats-py finds. It takes a key, or a bucket, for empty if the server says that it has
    sent everything just before the first of it is read: then it is asked again."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(NoKeysError):
                return await ask()


async def test_values_and_revisions_are_the_same_for_both(
    kv: KeyValue, theirs: NatsKeyValue
) -> None:
    first = await theirs.put("a.b", b"1")
    assert ((await kv.get("a.b")).value, (await kv.get("a.b")).revision) == (b"1", first)
    second = await kv.update("a.b", b"2", first)
    entry = await theirs.get("a.b")
    assert (entry.value, entry.revision) == (b"2", second)
    assert await theirs.update("a.b", b"3", last=second) == second + 1
    assert (await theirs.get("a.b", revision=first)).value == b"1"
    with pytest.raises(RevisionMismatchError):
        await kv.update("a.b", b"4", second)
    with pytest.raises(KeyWrongLastSequenceError):
        await theirs.update("a.b", b"4", last=second)


async def test_an_empty_value_is_a_value_for_both(kv: KeyValue, theirs: NatsKeyValue) -> None:
    await kv.put("a", b"")
    await theirs.put("b", b"")
    assert not (await theirs.get("a")).value  # None, which is its word for it
    assert (await kv.get("b")).value == b""
    assert await kv.keys() == sorted(await patiently(theirs.keys)) == ["a", "b"]


async def test_what_one_deletes_or_purges_is_gone_for_the_other(
    kv: KeyValue, theirs: NatsKeyValue
) -> None:
    for key in ("a", "b", "c", "d"):
        await kv.put(key, b"1")
    await theirs.delete("a")
    await theirs.purge("b")
    await kv.delete("c")
    await kv.purge("d")
    for key in ("a", "b"):
        with pytest.raises(KeyDeletedError):
            await kv.get(key)
    for key in ("c", "d"):
        with pytest.raises(NatsKeyNotFoundError):
            await theirs.get(key)
    last = [(await kv.history(key))[-1].operation for key in ("a", "b", "c", "d")]
    assert last == [Operation.DELETE, Operation.PURGE] * 2
    assert [len(await kv.history(key)) for key in ("a", "b", "c", "d")] == [2, 1, 2, 1]
    histories = [await patiently(partial(theirs.history, key)) for key in ("a", "b", "c", "d")]
    assert [len(history) for history in histories] == [2, 1, 2, 1]


async def test_create_heeds_what_the_other_wrote(kv: KeyValue, theirs: NatsKeyValue) -> None:
    await theirs.create("a", b"1")
    with pytest.raises(KeyExistsError):
        await kv.create("a", b"2")
    await theirs.delete("a")
    await kv.create("a", b"3")
    with pytest.raises(KeyWrongLastSequenceError):
        await theirs.create("a", b"4")


async def test_watches_see_what_the_other_writes(kv: KeyValue, theirs: NatsKeyValue) -> None:
    await theirs.put("a", b"1")
    async with asyncio.timeout(10), await kv.watch() as watch:
        assert await initial(watch) == [("a", b"1")]
        watched = await theirs.watchall()
        await theirs.delete("a")
        entry = await watch.next()
        assert entry is not None
        assert entry.operation is Operation.DELETE
        await kv.put("b", b"2")
        seen = [await watched.updates() for _ in range(4)]
        await watched.stop()
    assert [found and (found.key, found.operation) for found in seen] == [
        ("a", None),
        None,
        ("a", "DEL"),
        ("b", None),
    ]


async def test_a_bucket_of_nats_py_is_made_again_here_without_a_quarrel(
    js: JetStream, other: JetStreamContext, name: str
) -> None:
    config = nats_api.KeyValueConfig(bucket=name, history=3, ttl=3600)
    await (await other.create_key_value(config)).put("a", b"1")
    kv = await js.create_key_value(name, history=3, ttl=3600)
    assert (await kv.get("a")).value == b"1"
    status = await kv.status()
    assert (status.history, status.ttl) == (3, 3600.0)
    await js.delete_key_value(name)
