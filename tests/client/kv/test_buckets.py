"""Buckets are made, found, changed and removed; what they become is what every client expects."""

import asyncio

import msgspec
import pytest

from slipstream.client.jetstream import JetStream, StreamConfig, StreamSource
from slipstream.client.kv import KeyValueConfig, Operation
from slipstream.client.kv.config import stream_config
from slipstream.client.kv.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    BucketOptionError,
    InvalidBucketNameError,
)
from tests.client.kv.test_bucket import js, name

__all__ = ["js", "name"]


async def test_a_bucket_is_a_stream_that_other_clients_know(js: JetStream, name: str) -> None:
    kv = await js.create_key_value(
        name, history=3, ttl=60, max_value_size=1000, max_bytes=10**6, compression=True
    )
    config = (await js.stream_info(kv.stream_name)).config
    assert config.name == f"KV_{name}"
    assert config.subjects == [f"$KV.{name}.>"]
    assert (config.max_msgs_per_subject, config.max_age, config.duplicate_window) == (3, 60, 60)
    assert (config.max_msg_size, config.max_bytes, config.compression) == (1000, 10**6, "s2")
    assert (config.discard, config.allow_rollup_hdrs, config.deny_delete) == ("new", True, True)
    assert config.allow_direct
    await js.delete_key_value(name)


async def test_making_a_bucket_twice_is_fine_unless_it_differs(js: JetStream, name: str) -> None:
    await js.create_key_value(name, history=2)
    await js.create_key_value(KeyValueConfig(bucket=name, history=2))
    with pytest.raises(BucketExistsError, match="another configuration"):
        await js.create_key_value(name, history=3)
    kv = await js.update_key_value(name, history=3)
    assert (await kv.status()).history == 3
    await js.create_or_update_key_value(name, history=4)
    await js.delete_key_value(name)
    await js.create_or_update_key_value(name, history=4)
    await js.delete_key_value(name)


async def test_a_bucket_of_an_old_client_is_brought_up_to_date(js: JetStream, name: str) -> None:
    old = stream_config(KeyValueConfig(bucket=name)).replace(discard="old", allow_direct=False)
    await js.create_stream(old)
    await js.create_key_value(name)
    assert (await js.stream_info(f"KV_{name}")).config.allow_direct
    await js.delete_key_value(name)


async def test_a_bucket_without_direct_gets_is_read_through_the_api(
    js: JetStream, name: str
) -> None:
    old = stream_config(KeyValueConfig(bucket=name, history=5)).replace(allow_direct=False)
    await js.create_stream(old)
    kv = await js.key_value(name)
    revision = await kv.put("k", b"1")
    await kv.put("k", b"2")
    assert (await kv.get("k")).value == b"2"
    assert (await kv.get("k", revision=revision)).value == b"1"
    await kv.delete("k")
    assert await kv.get_value("k") is None
    await js.delete_key_value(name)


async def test_what_is_no_bucket_is_not_opened(js: JetStream, name: str) -> None:
    with pytest.raises(BucketNotFoundError, match=r"there is none\. Make it"):
        await js.key_value(name)
    with pytest.raises(BucketNotFoundError):
        await js.delete_key_value(name)
    with pytest.raises(BucketNotFoundError):
        await js.update_key_value(name)
    await js.create_stream(StreamConfig(name=f"KV_{name}", subjects=[f"{name}.>"]))
    with pytest.raises(BadBucketError):
        await js.key_value(name)
    await js.delete_stream(f"KV_{name}")


@pytest.mark.parametrize("bucket", ["", "a b", "a.b", "a>", "é"])
async def test_what_cannot_name_a_bucket_is_refused(js: JetStream, bucket: str) -> None:
    with pytest.raises(InvalidBucketNameError):
        await js.create_key_value(bucket)


async def test_options_that_cannot_be_are_refused(js: JetStream, name: str) -> None:
    with pytest.raises(BucketOptionError, match="1 to 64"):
        await js.create_key_value(name, history=65)
    with pytest.raises(BucketOptionError, match="1 s or more"):
        await js.create_key_value(name, limit_marker_ttl=0.5)
    with pytest.raises(BucketOptionError, match="not both"):
        await js.create_key_value(KeyValueConfig(bucket=name), history=2)


async def test_the_status_gives_the_configuration_to_update_it_with(
    js: JetStream, name: str
) -> None:
    made = KeyValueConfig(
        bucket=name,
        description="d",
        history=3,
        ttl=60,
        max_value_size=1000,
        max_bytes=10**6,
        storage="memory",
        compression=True,
        metadata={"owner": "ada"},
    )
    kv = await js.create_key_value(made)
    config = (await kv.status()).config
    assert config == made
    await js.update_key_value(msgspec.structs.replace(config, history=4))
    changed = (await kv.status()).config
    assert (changed.history, changed.metadata, changed.ttl) == (4, {"owner": "ada"}, 60)
    await js.delete_key_value(name)


async def test_buckets_are_listed(js: JetStream, name: str) -> None:
    await js.create_key_value(name)
    assert name in [found async for found in js.key_value_names()]
    assert name in [status.bucket async for status in js.key_values()]
    await js.delete_key_value(name)
    assert name not in [found async for found in js.key_value_names()]


async def test_keys_with_a_ttl_expire_and_leave_a_marker(js: JetStream, name: str) -> None:
    kv = await js.create_key_value(name, limit_marker_ttl=60)
    assert (await kv.status()).limit_marker_ttl == 60
    async with await kv.watch(updates_only=True) as watch:
        await kv.create("k", b"1", ttl=1)
        first = await asyncio.wait_for(watch.next(), 10)
        second = await asyncio.wait_for(watch.next(), 10)
    assert first is not None
    assert second is not None
    assert (first.operation, second.operation) == (Operation.PUT, Operation.PURGE)
    assert await kv.get_value("k") is None
    await js.delete_key_value(name)


async def test_a_mirror_is_read_and_its_origin_written(js: JetStream, name: str) -> None:
    origin = await js.create_key_value(name)
    mirror = await js.create_key_value(f"{name}_m", mirror=StreamSource(name=name))
    await mirror.put("k", b"1")
    assert (await origin.get("k")).value == b"1"
    async with await mirror.watch("k") as watch:
        while (entry := await asyncio.wait_for(watch.next(), 10)) is None:
            pass
    assert entry.value == b"1"
    assert (await mirror.get("k")).value == b"1"
    assert await mirror.keys() == ["k"]
    await js.delete_key_value(f"{name}_m")
    await js.delete_key_value(name)


async def test_sources_of_a_bucket_become_keys_of_it(js: JetStream, name: str) -> None:
    origin = await js.create_key_value(name)
    await origin.put("k", b"1")
    both = await js.create_key_value(f"{name}_s", sources=[StreamSource(name=name)])
    async with await both.watch("k") as watch:
        while (entry := await asyncio.wait_for(watch.next(), 10)) is None:
            pass
    assert (entry.key, entry.value) == ("k", b"1")
    await js.delete_key_value(f"{name}_s")
    await js.delete_key_value(name)
