"""Objects on the wire: nats-py reads what is put here, and the other way round."""

import asyncio
import json
import os
from typing import Any

import pytest
from nats.js import api as nats_api
from nats.js.client import JetStreamContext
from nats.js.errors import DigestMismatchError as NatsDigestMismatchError
from nats.js.errors import ObjectNotFoundError as NatsObjectNotFoundError
from nats.js.object_store import ObjectStore as NatsObjectStore

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.object_store import ObjectStore
from slipstream.client.object_store.errors import (
    BadObjectInfoError,
    DigestMismatchError,
    ObjectNotFoundError,
)
from slipstream.client.object_store.info import meta_subject
from tests.client.object_store.test_store import chunk_count, js, name, store
from tests.client.other_client import other

__all__ = ["js", "name", "other", "store"]

CHUNK = 128 * 1024
SIZES = [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK]


@pytest.fixture
async def theirs(other: JetStreamContext, store: ObjectStore) -> NatsObjectStore:
    """The same store, opened by nats-py."""
    return await other.object_store(store.bucket)


@pytest.mark.parametrize("size", SIZES)
async def test_what_nats_py_puts_is_got(
    store: ObjectStore, theirs: NatsObjectStore, size: int
) -> None:
    data = os.urandom(size)
    meta = nats_api.ObjectMeta(description="theirs", headers={"Kind": "text"})
    await theirs.put("dir/é", data, meta=meta)
    assert await store.get("dir/é") == data
    info = await store.info("dir/é")
    assert (info.size, info.chunks) == (size, -(-size // CHUNK))
    assert (info.description, info.headers) == ("theirs", {"Kind": ["text"]})
    assert [found.name for found in await store.list()] == ["dir/é"]


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_put_nats_py_gets(
    store: ObjectStore, theirs: NatsObjectStore, size: int
) -> None:
    data = os.urandom(size)
    ours = await store.put("dir/é", data, description="ours", headers={"Kind": "text"})
    result = await theirs.get("dir/é")
    assert (result.data, result.info.size, result.info.chunks) == (data, size, ours.chunks)
    assert (result.info.digest, result.info.nuid) == (ours.digest, ours.nuid)
    assert (result.info.description, result.info.headers) == ("ours", {"Kind": ["text"]})
    assert [found.name for found in await theirs.list()] == ["dir/é"]


async def test_nats_py_follows_a_link_made_here(
    store: ObjectStore, theirs: NatsObjectStore
) -> None:
    await store.add_link("link", await store.put("x", b"1"))
    assert (await theirs.get("link")).data == b"1"
    info = await theirs.get_info("link")
    assert info.is_link()


async def test_what_one_deletes_is_deleted_for_the_other(
    js: JetStream, store: ObjectStore, theirs: NatsObjectStore
) -> None:
    await theirs.put("a", b"1")
    await store.put("b", b"2")
    await theirs.delete("b")
    await store.delete("a")
    with pytest.raises(NatsObjectNotFoundError):
        await theirs.get("a")
    with pytest.raises(ObjectNotFoundError, match="it is deleted"):
        await store.get("b")
    assert (await theirs.get_info("a", show_deleted=True)).deleted
    assert (await store.info("b", show_deleted=True)).deleted
    assert await store.get("b", show_deleted=True) == b""
    assert await chunk_count(js, store) == 0
    assert {found.name for found in await theirs.list()} == {"a", "b"}


async def test_what_one_replaces_is_new_for_the_other(
    js: JetStream, store: ObjectStore, theirs: NatsObjectStore
) -> None:
    await theirs.put("x", b"1" * 300_000)
    await store.put("x", b"2" * 300_000)
    assert (await theirs.get("x")).data == b"2" * 300_000
    await theirs.put("x", b"3")
    assert await store.get("x") == b"3"
    assert await chunk_count(js, store) == 1


async def test_a_store_that_one_seals_is_sealed_for_the_other(
    store: ObjectStore, theirs: NatsObjectStore
) -> None:
    await store.put("x", b"1")
    await theirs.seal()
    assert (await store.status()).is_sealed
    with pytest.raises(slipstream.Error, match="sealed"):
        await store.put("y", b"2")
    assert (await theirs.get("x")).data == b"1"


async def test_a_store_of_nats_py_is_made_again_here_without_a_quarrel(
    js: JetStream, other: JetStreamContext, name: str
) -> None:
    theirs = await other.create_object_store(name)
    await theirs.put("x", b"1")
    store = await js.object_store(name)
    assert await store.get("x") == b"1"
    assert name in [found async for found in js.object_store_names()]
    await js.delete_object_store(name)


async def test_a_watch_sees_what_the_other_does(
    store: ObjectStore, theirs: NatsObjectStore
) -> None:
    async with asyncio.timeout(10), await store.watch() as watch:
        assert await watch.next() is None
        await theirs.put("x", b"1")
        await theirs.delete("x")
        seen = [await watch.next(), await watch.next()]
    assert [(info.name, info.deleted) for info in seen if info] == [("x", False), ("x", True)]


GO: dict[str, Any] = {
    "name": "go",
    "description": "",
    "headers": {"Kind": ["a", "b"]},
    "metadata": {"owner": "ada"},
    "options": {"max_chunk_size": 131072},
    "bucket": "",
    "nuid": "nuidnuidnuidnuidnuid12",
    "size": 0,
    "mtime": "0001-01-01T00:00:00Z",
    "chunks": 0,
    "digest": "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=",
}
RUST: dict[str, Any] = GO | {
    "name": "rust",
    "headers": None,
    "options": {"link": None, "max_chunk_size": 131072},
    "mtime": None,
    "deleted": False,
}
DOTNET: dict[str, Any] = GO | {"name": "dotnet", "options": None, "metadata": None}


@pytest.mark.parametrize("document", [GO, RUST, DOTNET], ids=["go", "rust", "dotnet"])
async def test_infos_as_other_clients_write_them_are_read(
    js: JetStream, store: ObjectStore, document: dict[str, Any]
) -> None:
    body = json.dumps(document | {"bucket": store.bucket, "later": "field"})
    await js.publish(meta_subject(store.bucket, document["name"]), body, rollup="sub")
    info = await store.info(document["name"])
    assert info.headers == (document["headers"] or {})
    assert info.metadata == (document["metadata"] or {})
    assert info.modified is not None
    assert info.modified.year > 2000
    assert not info.is_link
    assert await store.get(document["name"]) == b""


async def test_an_info_is_written_as_go_writes_it(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("x", b"", headers={"K": "v"}, metadata={"owner": "ada"})
    stream = await js.stream(store.stream_name)
    written = json.loads((await stream.get_last_message(meta_subject(store.bucket, "x"))).data)
    assert written == {
        "name": "x",
        "headers": {"K": ["v"]},
        "metadata": {"owner": "ada"},
        "options": {"max_chunk_size": 131072},
        "bucket": store.bucket,
        "nuid": info.nuid,
        "size": 0,
        "mtime": "0001-01-01T00:00:00Z",
        "chunks": 0,
        "digest": info.digest,
    }


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"not json", b'{"name": 7}', b'{"headers": 7}', b'{"name": "\xff"}']
)
async def test_what_is_no_info_is_said_to_be_none(
    js: JetStream, store: ObjectStore, body: bytes
) -> None:
    await js.publish(meta_subject(store.bucket, "x"), body)
    with pytest.raises(BadObjectInfoError, match="cannot be read"):
        await store.info("x")


async def test_bytes_that_were_changed_on_the_way_are_noticed_by_both(
    js: JetStream, store: ObjectStore, theirs: NatsObjectStore
) -> None:
    info = await theirs.put("x", b"1" * 10)
    stream = await js.stream(store.stream_name)
    await stream.purge(filter=f"$O.{store.bucket}.C.{info.nuid}")
    await js.publish(f"$O.{store.bucket}.C.{info.nuid}", b"2" * 10)
    with pytest.raises(DigestMismatchError):
        await store.get("x")
    with pytest.raises(NatsDigestMismatchError):
        await theirs.get("x")
