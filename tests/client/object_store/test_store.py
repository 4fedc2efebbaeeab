"""Objects of any size come back as they were put, and whatever stands for them is right."""

import asyncio
import contextlib
import hashlib
import io
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.jetstream.errors import ApiError, PublishInterruptedError
from slipstream.client.object_store import ObjectStore, ObjectStoreConfig
from slipstream.client.object_store.errors import (
    BadObjectError,
    DigestMismatchError,
    IncompleteObjectError,
    InvalidStoreNameError,
    LinkError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreExistsError,
    StoreNotFoundError,
)
from slipstream.client.object_store.info import digest_text, same_digest
from slipstream.wire.nuid import DIGITS
from tests.client.proxy import Proxy

SIZES = [0, 1, 1000, 128 * 1024, 128 * 1024 + 1, 3_000_000]


@pytest.fixture
def js(nc: slipstream.Connection) -> JetStream:
    context: JetStream = nc.jetstream()
    return context


@pytest.fixture
def name(nc: slipstream.Connection) -> str:
    """A store's name that no other test uses."""
    return "obj_" + "".join(c for c in nc.new_inbox().rpartition(".")[2] if c in DIGITS)


@pytest.fixture
async def store(js: JetStream, name: str) -> AsyncIterator[ObjectStore]:
    """An empty store."""
    yield await js.create_object_store(name)
    await js.delete_object_store(name)


async def chunk_count(js: JetStream, store: ObjectStore) -> int:
    """Chunks that the store's stream holds, of any object."""
    info = await js.stream_info(store.stream_name, subjects_filter=f"$O.{store.bucket}.C.>")
    return sum(info.state.subjects.values())


@pytest.mark.parametrize("size", SIZES)
async def test_an_object_comes_back_as_it_was_put(store: ObjectStore, size: int) -> None:
    data = os.urandom(size)
    info = await store.put("some name/é", data, description="what", metadata={"a": "b"})
    assert (info.name, info.size, info.bucket) == ("some name/é", size, store.bucket)
    assert info.chunks == -(-size // (128 * 1024))
    assert info.digest == digest_text(hashlib.sha256(data).digest())
    assert info.modified is not None
    assert await store.get("some name/é") == data
    assert await store.info("some name/é") == info
    assert (info.description, info.metadata) == ("what", {"a": "b"})


def pieces(data: bytes) -> Iterator[bytes]:
    """`data` in uneven pieces."""
    at, size = 0, 1
    while at < len(data):
        yield data[at : at + size]
        at, size = at + size, size * 2


async def later(data: bytes) -> AsyncIterator[bytes]:
    """The same, asynchronously."""
    for piece in pieces(data):
        await asyncio.sleep(0)
        yield piece


@pytest.mark.parametrize("source", ["file", "path", "iterable", "async", "view", "text"])
async def test_bytes_may_come_from_anywhere(
    store: ObjectStore, tmp_path: Path, source: str
) -> None:
    data = bytes(range(128)) * 1500
    path = tmp_path / "file"
    path.write_bytes(data)
    given: dict[str, Any] = {
        "file": io.BytesIO(data),
        "path": path,
        "iterable": pieces(data),
        "async": later(data),
        "view": memoryview(bytearray(data)),
        "text": data.decode(),
    }
    info = await store.put("x", given[source], chunk_size=1000)
    assert (info.size, info.chunks) == (192_000, 192)
    assert info.options is not None
    assert info.options.max_chunk_size == 1000
    assert await store.get("x") == data


async def test_a_buffer_that_is_filled_anew_is_taken_as_it_was(store: ObjectStore) -> None:
    def refilled() -> Iterator[Any]:
        buffer = bytearray(256 * 1024)
        for i in range(20):
            buffer[:] = bytes([i]) * len(buffer)
            yield buffer

    await store.put("x", refilled())
    data = await store.get("x")
    assert data == b"".join(bytes([i]) * 256 * 1024 for i in range(20))


async def test_an_object_is_streamed_in_pieces_with_progress(store: ObjectStore) -> None:
    data = os.urandom(2_000_000)
    sent: list[tuple[int, int]] = []
    await store.put("x", data, progress=lambda done, total: sent.append((done, total)))
    assert sent[0] == (128 * 1024, 2_000_000)
    assert sent[-1] == (2_000_000, 2_000_000)
    seen: list[int] = []
    async with await store.open("x", progress=lambda done, _: seen.append(done)) as reader:
        assert reader.info.size == 2_000_000
        first = await reader.read(100)
        rest = [chunk async for chunk in reader]
    assert seen[-1] == 2_000_000
    assert first + b"".join(rest) == data


async def test_reading_goes_on_after_the_connection_broke(
    server_url: str, store: ObjectStore
) -> None:
    data = os.urandom(20_000_000)
    await store.put("x", data)
    async with (
        asyncio.timeout(20),
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
        await (await far.jetstream().object_store(store.bucket)).open("x") as reader,
    ):
        found = await reader.read(1000)
        proxy.cut()
        assert found + await reader.read() == data


async def test_read_gives_as_much_as_is_asked_for(store: ObjectStore) -> None:
    data = os.urandom(300_000)
    await store.put("x", data)
    async with await store.open("x") as reader:
        parts = []
        while part := await reader.read(1000):
            parts.append(part)
    assert b"".join(parts) == data
    assert max(map(len, parts)) <= 1000


async def test_files_go_both_ways(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(500_000))
    await store.put_file(source, "x")
    await store.get_file("x", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]
    with pytest.raises(ObjectNotFoundError):
        await store.get_file("none", tmp_path / "target")


async def test_putting_again_replaces_the_object_and_its_chunks(
    js: JetStream, store: ObjectStore
) -> None:
    await store.put("x", b"a" * 300_000)
    await store.put("x", b"b")
    assert await store.get("x") == b"b"
    assert await chunk_count(js, store) == 1


async def test_a_put_that_fails_leaves_nothing_and_the_former_object(
    js: JetStream, store: ObjectStore
) -> None:
    await store.put("x", b"old")

    async def broken() -> AsyncIterator[bytes]:
        yield b"n" * 300_000
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        await store.put("x", broken())
    assert await store.get("x") == b"old"
    assert await chunk_count(js, store) == 1


async def test_a_put_that_is_cancelled_leaves_nothing(js: JetStream, store: ObjectStore) -> None:
    waiting = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"n" * 300_000
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(store.put("x", endless()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await chunk_count(js, store) == 0
    with pytest.raises(ObjectNotFoundError):
        await store.get("x")


async def test_a_put_whose_connection_breaks_leaves_nothing(
    server_url: str, js: JetStream, store: ObjectStore
) -> None:
    async with (
        asyncio.timeout(20),
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
    ):
        distant = await far.jetstream().object_store(store.bucket)
        await distant.put("x", b"old")

        async def breaking() -> AsyncIterator[bytes]:
            for number in range(30):
                if number == 20:
                    proxy.cut()
                yield os.urandom(500_000)

        with pytest.raises(PublishInterruptedError):
            await distant.put("x", breaking())
        assert await distant.get("x") == b"old"
        assert await chunk_count(js, store) == 1


async def cancelled(work: Coroutine[Any, Any, Any], turns: int) -> None:
    """Start `work`, and cancel it after so many turns of the loop."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_put_that_is_cancelled_anywhere_leaves_the_old_or_the_new_object(
    js: JetStream, store: ObjectStore
) -> None:
    old, new = b"old", os.urandom(1_000_000)
    await store.put("x", old)
    for turns in range(0, 90, 3):
        await cancelled(store.put("x", new), turns)
        assert await store.get("x") in (old, new)
    info = await js.stream_info(store.stream_name, subjects_filter=f"$O.{store.bucket}.C.>")
    assert len(info.state.subjects) == 1


async def test_a_change_that_is_cancelled_is_made_whole_or_not_at_all(
    js: JetStream, store: ObjectStore
) -> None:
    for turns in range(12):
        await store.put("x", b"1")
        await cancelled(store.update_meta("x", new_name="y"), turns)
        (there,) = await store.list()
        assert await store.get(there.name) == b"1"
        await cancelled(store.delete(there.name), turns)
        gone = await store.info(there.name, show_deleted=True)
        assert await chunk_count(js, store) == (not gone.deleted)
        if not gone.deleted:
            await store.delete(there.name)


async def test_a_file_that_is_not_fetched_to_the_end_is_not_there(
    store: ObjectStore, tmp_path: Path
) -> None:
    await store.put("x", os.urandom(1_000_000))
    for turns in range(0, 30, 2):
        await cancelled(store.get_file("x", tmp_path / "x"), turns)
    assert set(os.listdir(tmp_path)) <= {"x"}


async def test_a_store_that_is_full_keeps_nothing_of_what_did_not_fit(
    js: JetStream, name: str
) -> None:
    small = await js.create_object_store(name, max_bytes=1_000_000)
    await small.put("x", b"1")
    with pytest.raises(ApiError, match="maximum bytes exceeded"):
        await small.put("x", os.urandom(3_000_000))
    assert await chunk_count(js, small) == 1
    assert await small.get("x") == b"1"
    await js.delete_object_store(name)


async def test_a_deleted_object_leaves_its_mark_alone(js: JetStream, store: ObjectStore) -> None:
    await store.put("x", b"1" * 1000)
    await store.delete("x")
    with pytest.raises(ObjectNotFoundError, match="it is deleted"):
        await store.get("x")
    info = await store.info("x", show_deleted=True)
    assert (info.deleted, info.size, info.chunks) == (True, 0, 0)
    assert await chunk_count(js, store) == 0
    with pytest.raises(ObjectNotFoundError, match="there is none"):
        await store.delete("none")
    await store.put("x", b"2")
    assert await store.get("x") == b"2"


async def test_damaged_bytes_are_not_given_out(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("x", b"1" * 10)
    stream = await js.stream(store.stream_name)
    await stream.purge(filter=f"$O.{store.bucket}.C.{info.nuid}")
    with pytest.raises(IncompleteObjectError, match="1 chunks are missing"):
        await store.get("x")
    await js.publish(f"$O.{store.bucket}.C.{info.nuid}", b"2" * 10)
    with pytest.raises(DigestMismatchError, match="do not have the digest"):
        await store.get("x")
    await stream.purge(filter=f"$O.{store.bucket}.C.{info.nuid}")
    await js.publish(f"$O.{store.bucket}.C.{info.nuid}", b"1" * 11)
    with pytest.raises(IncompleteObjectError, match="11 bytes, not 10"):
        await store.get("x")


async def test_what_describes_an_object_can_be_changed(store: ObjectStore) -> None:
    await store.put("x", b"1", metadata={"a": "b"})
    await store.put("taken", b"2")
    changed = await store.update_meta("x", description="new", headers={"H": ["1", "2"]})
    assert (changed.description, changed.headers) == ("new", {"H": ["1", "2"]})
    assert changed.metadata == {"a": "b"}
    renamed = await store.update_meta("x", new_name="y")
    assert renamed.name == "y"
    assert await store.get("y") == b"1"
    with pytest.raises(ObjectNotFoundError):
        await store.info("x")
    with pytest.raises(ObjectExistsError):
        await store.update_meta("y", new_name="taken")
    with pytest.raises(ObjectNotFoundError):
        await store.update_meta("none", description="")


async def test_links_lead_to_objects_of_any_store(
    js: JetStream, store: ObjectStore, name: str
) -> None:
    info = await store.put("x", b"1")
    link = await store.add_link("to x", info)
    assert link.is_link
    assert await store.get("to x") == b"1"
    other = await js.create_object_store(f"{name}_other")
    await other.add_link("far", info)
    assert await other.get("far") == b"1"
    with pytest.raises(LinkError, match="a link itself"):
        await store.add_link("again", link)
    with pytest.raises(ObjectExistsError):
        await store.add_link("x", info)
    await js.delete_object_store(f"{name}_other")
    await store.delete("x")
    with pytest.raises(LinkError, match="deleted"):
        await store.add_link("late", await store.info("x", show_deleted=True))
    with pytest.raises(ObjectNotFoundError):
        await store.get("to x")


async def test_a_link_to_a_store_is_not_an_object(store: ObjectStore) -> None:
    await store.add_bucket_link("all", "elsewhere")
    info = await store.info("all")
    assert info.link is not None
    assert (info.link.bucket, info.link.name) == ("elsewhere", "")
    with pytest.raises(LinkError, match="whole store 'elsewhere'"):
        await store.get("all")


async def test_objects_are_listed_and_watched(store: ObjectStore) -> None:
    assert await store.list() == []
    for name in ("b", "a", "c"):
        await store.put(name, name)
    await store.delete("c")
    assert [info.name for info in await store.list()] == ["a", "b"]
    assert [info.name for info in await store.list(show_deleted=True)] == ["a", "b", "c"]
    async with asyncio.timeout(10), await store.watch() as watch:
        names = []
        async for info in watch:
            if info is None:
                break
            names.append(info.name)
        await store.put("d", b"")
        added = await watch.next()
    assert sorted(names) == ["a", "b", "c"]
    assert added is not None
    assert added.name == "d"


async def test_a_sealed_store_takes_nothing_more(store: ObjectStore) -> None:
    await store.put("x", b"1")
    await store.seal()
    status = await store.status()
    assert status.is_sealed
    assert status.size > 0
    with pytest.raises(slipstream.Error):
        await store.put("y", b"2")
    assert await store.get("x") == b"1"


async def test_stores_are_made_found_and_removed(js: JetStream, name: str) -> None:
    await js.create_object_store(name, description="d")
    await js.create_object_store(ObjectStoreConfig(bucket=name, description="d"))
    with pytest.raises(StoreExistsError):
        await js.create_object_store(name, description="e")
    await js.update_object_store(name, description="e")
    store = await js.object_store(name)
    assert (await store.status()).description == "e"
    assert name in [found async for found in js.object_store_names()]
    assert name in [status.bucket async for status in js.object_stores()]
    await js.delete_object_store(name)
    with pytest.raises(StoreNotFoundError):
        await js.object_store(name)
    with pytest.raises(StoreNotFoundError):
        await store.get("x")
    with pytest.raises(InvalidStoreNameError):
        await js.create_object_store("a b")


async def test_an_object_needs_a_name_and_chunks_a_size(store: ObjectStore) -> None:
    with pytest.raises(BadObjectError, match="needs a name"):
        await store.put("", b"")
    with pytest.raises(BadObjectError, match="chunk_size=0"):
        await store.put("x", b"", chunk_size=0)
    with pytest.raises(TypeError, match="not int"):
        await store.put("x", 7)  # type: ignore[arg-type]


async def test_a_store_without_direct_gets_is_read_through_the_api(
    js: JetStream, store: ObjectStore, name: str
) -> None:
    data = os.urandom(300_000)
    await store.put("x", data)
    stream = await js.stream(store.stream_name)
    await js.update_stream(stream.cached_info.config.replace(allow_direct=False))
    old = await js.object_store(name)
    assert await old.get("x") == data


class Slowly:
    """What reads like an asyncio stream."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    async def read(self, size: int = -1) -> bytes:
        await asyncio.sleep(0)
        return self._file.read(min(size, 100_000))


async def test_an_object_that_is_read_may_be_put_elsewhere(js: JetStream, name: str) -> None:
    one = await js.create_object_store(name)
    other = await js.create_object_store(f"{name}_other")
    data = os.urandom(300_000)
    info = await one.put("x", Slowly(data))
    async with await one.open("x") as reader:
        copy = await other.put("x", reader)
    assert (copy.digest, copy.size, copy.chunks) == (info.digest, 300_000, 3)
    assert await other.get("x") == data
    for bucket in (name, f"{name}_other"):
        await js.delete_object_store(bucket)


async def test_the_status_gives_the_configuration_to_update_it_with(
    js: JetStream, name: str
) -> None:
    made = ObjectStoreConfig(
        bucket=name,
        description="d",
        ttl=60,
        max_bytes=10**6,
        storage="memory",
        compression=True,
        metadata={"owner": "ada"},
    )
    store = await js.create_object_store(made)
    config = (await store.status()).config
    assert config == made
    await js.update_object_store(msgspec.structs.replace(config, description="e"))
    changed = (await store.status()).config
    assert (changed.description, changed.metadata, changed.ttl) == ("e", {"owner": "ada"}, 60)
    await js.create_or_update_object_store(msgspec.structs.replace(config, description="f"))
    await js.delete_object_store(name)
    again = await js.create_or_update_object_store(made)
    assert (await again.status()).description == "d"
    await js.delete_object_store(name)


def test_digests_of_other_clients_are_understood() -> None:
    raw = hashlib.sha256(b"x").digest()
    text = digest_text(raw)
    assert same_digest(text, raw)
    assert same_digest(text.rstrip("=").replace("SHA-256", "sha-256"), raw)
    assert not same_digest("MD5=abc", raw)
