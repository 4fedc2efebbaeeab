"""Keys and values: what is written is read, and who comes second is told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import slipstream
from slipstream.client.codecs import CodecError
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.kv import (
    Base64Keys,
    KeyValue,
    KeyValueEntry,
    Operation,
    PathKeys,
)
from slipstream.client.kv.errors import (
    BucketNotFoundError,
    BucketOptionError,
    InvalidKeyError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    RevisionMismatchError,
)
from slipstream.wire.nuid import DIGITS


@pytest.fixture
def js(nc: slipstream.Connection) -> JetStream:
    context: JetStream = nc.jetstream()
    return context


@pytest.fixture
def name(nc: slipstream.Connection) -> str:
    """A bucket's name that no other test uses."""
    return "kv_" + "".join(c for c in nc.new_inbox().rpartition(".")[2] if c in DIGITS)


@pytest.fixture
async def kv(js: JetStream, name: str) -> AsyncIterator[KeyValue]:
    """An empty bucket that keeps five values of a key."""
    yield await js.create_key_value(name, history=5)
    await js.delete_key_value(name)


async def test_a_value_is_read_as_it_was_put(kv: KeyValue) -> None:
    before = datetime.now(UTC)
    revision = await kv.put("theme", b"dark")
    entry = await kv.get("theme")
    assert (entry.bucket, entry.key, entry.value) == (kv.bucket, "theme", b"dark")
    assert (entry.revision, entry.delta, entry.operation) == (revision, 0, Operation.PUT)
    assert abs(entry.created - before) < timedelta(minutes=1)
    assert "theme, PUT, b'dark'" in repr(entry)


async def test_text_and_empty_values_are_values(kv: KeyValue) -> None:
    await kv.put("a", "é")
    await kv.put("b", b"")
    assert (await kv.get("a")).value == "é".encode()
    assert (await kv.get("b")).value == b""


async def test_a_missing_key_is_named(kv: KeyValue) -> None:
    with pytest.raises(KeyNotFoundError, match="get key 'nothing' from bucket"):
        await kv.get("nothing")
    assert await kv.get_value("nothing", "else") == "else"


async def test_an_older_revision_can_be_read(kv: KeyValue) -> None:
    first = await kv.put("k", b"1")
    await kv.put("k", b"2")
    other = await kv.put("other", b"3")
    assert (await kv.get("k", revision=first)).value == b"1"
    with pytest.raises(KeyNotFoundError, match=f"of revision {other}"):
        await kv.get("k", revision=other)
    with pytest.raises(KeyNotFoundError):
        await kv.get("k", revision=999)


async def test_create_is_for_keys_without_a_value(kv: KeyValue) -> None:
    first = await kv.create("k", b"1")
    with pytest.raises(KeyExistsError, match=f"it has a value \\(revision {first}\\)"):
        await kv.create("k", b"2")
    await kv.delete("k")
    again = await kv.create("k", b"3")
    assert again > first
    await kv.purge("k")
    await kv.create("k", b"4")
    assert (await kv.get("k")).value == b"4"


async def test_update_wants_the_latest_revision(kv: KeyValue) -> None:
    first = await kv.update("k", b"1", 0)
    second = await kv.update("k", b"2", first)
    with pytest.raises(
        RevisionMismatchError, match=f"{first} was expected, the latest is {second}"
    ):
        await kv.update("k", b"3", first)
    assert (await kv.get("k")).revision == second


async def test_a_deleted_key_has_no_value_but_a_history(kv: KeyValue) -> None:
    first = await kv.put("k", b"1")
    with pytest.raises(RevisionMismatchError):
        await kv.delete("k", revision=first + 1)
    await kv.delete("k", revision=first)
    with pytest.raises(KeyDeletedError) as caught:
        await kv.get("k")
    assert caught.value.revision == first + 1
    assert await kv.get_value("k") is None
    history = await kv.history("k")
    assert [entry.operation for entry in history] == [Operation.PUT, Operation.DELETE]
    assert [entry.operation for entry in history] == ["PUT", "DEL"]
    assert [entry.delta for entry in history] == [1, 0]
    assert history[1].value is None


async def test_a_purged_key_has_no_history(kv: KeyValue) -> None:
    first = await kv.put("k", b"1")
    await kv.put("k", b"2")
    with pytest.raises(RevisionMismatchError):
        await kv.purge("k", revision=first)
    await kv.purge("k")
    assert [entry.operation for entry in await kv.history("k")] == [Operation.PURGE]
    with pytest.raises(KeyNotFoundError, match="history of key 'none'"):
        await kv.history("none")


async def test_history_keeps_as_many_values_as_were_asked_for(kv: KeyValue) -> None:
    for i in range(8):
        await kv.put("k", str(i))
    assert [entry.value for entry in await kv.history("k")] == [b"3", b"4", b"5", b"6", b"7"]


async def test_keys_are_filtered_by_the_server_and_sorted(kv: KeyValue) -> None:
    for key in ("b.two", "a.one", "a.two", "gone"):
        await kv.put(key, b"x")
    await kv.put("a.one", b"again")
    await kv.delete("gone")
    assert await kv.keys() == ["a.one", "a.two", "b.two"]
    assert await kv.keys("a.*") == ["a.one", "a.two"]
    assert await kv.keys(["a.one", "b.>"]) == ["a.one", "b.two"]
    assert await kv.keys("z.>") == []


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", ">", "é"])
async def test_what_cannot_be_a_key_is_refused(kv: KeyValue, key: str) -> None:
    with pytest.raises(InvalidKeyError):
        await kv.put(key, b"")
    with pytest.raises(InvalidKeyError):
        await kv.get(key)


@dataclass
class Preferences:
    theme: str
    size: int = 12


async def test_a_bucket_of_a_type_gives_values_of_it(
    js: JetStream, kv: KeyValue, name: str
) -> None:
    typed = await js.key_value(name, type=Preferences)
    await typed.put("ada", Preferences("dark"))
    entry: KeyValueEntry = await typed.get("ada")
    assert entry.value == Preferences("dark", 12)
    await kv.put("bob", b"[]")
    with pytest.raises(CodecError, match=f"key 'bob' of bucket '{name}'"):
        _ = (await typed.get("bob")).value


async def test_key_codecs_let_keys_be_any_text(js: JetStream, kv: KeyValue, name: str) -> None:
    people = await js.key_value(name, key_codec=Base64Keys())
    await people.put("Åsa Öberg.home", b"1")
    assert (await people.get("Åsa Öberg.home")).value == b"1"
    assert await people.keys("Åsa Öberg.*") == ["Åsa Öberg.home"]
    assert await kv.keys() == ["w4VzYSDDlmJlcmc.aG9tZQ"]
    paths = await js.key_value(name, key_codec=PathKeys())
    await paths.put("/etc/port", b"2")
    assert await paths.keys("/etc/*") == ["/etc/port"]


async def test_markers_of_deletes_are_removed_for_good(kv: KeyValue) -> None:
    for key in ("a", "b"):
        await kv.put(key, b"1")
    await kv.delete("a")
    assert await kv.purge_deletes() == 1  # the marker is young: it stays, the value goes
    assert [entry.operation for entry in await kv.history("a")] == [Operation.DELETE]
    assert await kv.purge_deletes(-1) == 1
    with pytest.raises(KeyNotFoundError):
        await kv.history("a")
    assert await kv.keys() == ["b"]


async def test_the_status_counts_and_names_the_limits(kv: KeyValue) -> None:
    await kv.put("k", b"1")
    status = await kv.status()
    assert (status.values, status.history, status.ttl) == (1, 5, 0.0)
    assert status.bytes > 0
    assert status.backing_store == "JetStream"
    assert not status.is_compressed
    assert kv.bucket in repr(status)


async def test_a_bucket_that_is_gone_says_so(js: JetStream, name: str) -> None:
    kv = await js.create_key_value(name)
    await js.delete_key_value(name)
    with pytest.raises(BucketNotFoundError, match="does not exist"):
        await kv.get("k")
    with pytest.raises(BucketNotFoundError):
        await kv.status()
    with pytest.raises(BucketNotFoundError):
        await kv.watch()


async def test_a_delete_is_an_entry_for_who_wants_to_see_it(kv: KeyValue) -> None:
    assert await kv.entry("k") is None
    first = await kv.put("k", b"1")
    await kv.delete("k")
    entry = await kv.entry("k")
    assert entry is not None
    assert (entry.operation, entry.value, entry.is_deleted) == (Operation.DELETE, None, True)
    older = await kv.entry("k", revision=first)
    assert older is not None
    assert older.value == b"1"


async def test_what_is_put_while_deletes_are_purged_stays(
    kv: KeyValue, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kv.put("k", b"1")
    await kv.delete("k")
    stream_of = js.stream

    async def stream(name: str) -> Stream:
        await kv.put("k", b"2")  # somebody else, after the deletes were listed
        return await stream_of(name)

    monkeypatch.setattr(js, "stream", stream)
    assert await kv.purge_deletes(-1) == 1
    assert [entry.value for entry in await kv.history("k")] == [b"2"]


async def test_a_ttl_needs_a_bucket_that_knows_markers(kv: KeyValue) -> None:
    with pytest.raises(BucketOptionError, match="has no limit_marker_ttl"):
        await kv.create("k", b"1", ttl=5)
    with pytest.raises(BucketOptionError, match="has no limit_marker_ttl"):
        await kv.purge("k", ttl=5)
