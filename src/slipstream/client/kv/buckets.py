"""Making, finding and removing key-value buckets; `JetStream` has a method for each function."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from slipstream.client.jetstream.errors import StreamExistsError, StreamNotFoundError
from slipstream.client.kv.bucket import KeyValue
from slipstream.client.kv.config import (
    STREAM_PREFIX,
    KeyValueConfig,
    KeyValueStatus,
    check_bucket,
    stream_config,
)
from slipstream.client.kv.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    BucketOptionError,
)
from slipstream.client.kv.key_codecs import KeyCodec

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.jetstream.model import StreamConfig, StreamInfo

_ALL_SUBJECTS = "$KV.*.>"
MARKER_API_LEVEL = 1
"""The level of the server's API from which on it knows markers and TTLs (nats-server 2.11)."""


def config_of(config: "KeyValueConfig | str | None", options: dict[str, Any]) -> KeyValueConfig:
    """The configuration given as an object, or as a name and options."""
    if isinstance(config, KeyValueConfig):
        if options:
            raise BucketOptionError("give a KeyValueConfig or options, not both")
        return config
    if config is not None:
        options = {"bucket": config, **options}
    return KeyValueConfig(**options)


async def open_bucket(
    js: "JetStream", bucket: str, *, type: Any = None, key_codec: KeyCodec | None = None
) -> KeyValue:
    """A bucket that exists. Raises `BucketNotFoundError`, `BadBucketError`."""
    name = STREAM_PREFIX + check_bucket(bucket)
    try:
        stream = await js.stream(name)
    except StreamNotFoundError as error:
        raise BucketNotFoundError(
            f"bucket {bucket!r}: there is none. Make it with `create_key_value`"
        ) from error
    info = stream.cached_info
    if info.config.max_msgs_per_subject < 1:
        raise BadBucketError(
            f"bucket {bucket!r}: stream {name!r} has no bound on messages per subject, so it is "
            "not a key-value bucket"
        )
    return KeyValue(js, info, type=type, key_codec=key_codec)


async def create_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """A new bucket, or the one that exists with this configuration.

    Raises `BucketExistsError`, `BucketOptionError`, `InvalidBucketNameError`.
    """
    wanted = await _checked(js, config)
    try:
        stream = await js.create_stream(wanted)
        return KeyValue(js, stream.cached_info, type=type, key_codec=key_codec)
    except StreamExistsError as error:
        info = await _modernised(js, wanted)
        if info is None:
            raise BucketExistsError(
                f"create bucket {config.bucket!r}: it exists with another configuration. Use "
                "`key_value` to open it, `update_key_value` to change it"
            ) from error
    return KeyValue(js, info, type=type, key_codec=key_codec)


async def _checked(js: "JetStream", config: KeyValueConfig) -> "StreamConfig":
    wanted = stream_config(config)
    if config.limit_marker_ttl:
        account = await js.account_info()
        if account.api.level < MARKER_API_LEVEL:
            raise BucketOptionError(
                f"bucket {config.bucket!r}: this server knows no limit_marker_ttl; it needs "
                "nats-server 2.11 or newer"
            )
    return wanted


async def _modernised(js: "JetStream", wanted: "StreamConfig") -> "StreamInfo | None":
    """The bucket of that name, if only what other clients set otherwise differs; brought up to
    date: old ones knew no direct gets, nats-py always allows TTLs (which is for good)."""
    stream = await js.stream(wanted.name)
    there = stream.cached_info.config
    changed = there.replace(discard=wanted.discard, allow_direct=wanted.allow_direct)
    accepted = wanted.replace(allow_msg_ttl=wanted.allow_msg_ttl or there.allow_msg_ttl)
    if changed == there and accepted == wanted:
        return None
    if changed != there:
        await js.update_stream(changed)
    try:
        return (await js.create_stream(accepted)).cached_info
    except StreamExistsError:
        if changed != there:
            await js.update_stream(there)  # something else differs too: leave it as it was
        return None


async def update_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """Change a bucket's configuration. Raises `BucketNotFoundError`, `BucketOptionError`."""
    wanted = await _checked(js, config)
    try:
        stream = await js.update_stream(wanted)
    except StreamNotFoundError as error:
        raise BucketNotFoundError(
            f"update bucket {config.bucket!r}: there is none. Make it with `create_key_value`"
        ) from error
    return KeyValue(js, stream.cached_info, type=type, key_codec=key_codec)


async def create_or_update_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """A bucket with this configuration, whether there was one or not."""
    try:
        return await update_bucket(js, config, type=type, key_codec=key_codec)
    except BucketNotFoundError:
        return await create_bucket(js, config, type=type, key_codec=key_codec)


async def delete_bucket(js: "JetStream", bucket: str) -> None:
    """Remove a bucket and all its values. Raises `BucketNotFoundError`."""
    try:
        await js.delete_stream(STREAM_PREFIX + check_bucket(bucket))
    except StreamNotFoundError as error:
        raise BucketNotFoundError(f"delete bucket {bucket!r}: there is none") from error


async def bucket_names(js: "JetStream") -> AsyncIterator[str]:
    """The names of all buckets, page by page."""
    async for name in js.stream_names(subject=_ALL_SUBJECTS):
        if name.startswith(STREAM_PREFIX):
            yield name.removeprefix(STREAM_PREFIX)


async def bucket_statuses(js: "JetStream") -> AsyncIterator[KeyValueStatus]:
    """The status of every bucket, page by page."""
    async for info in js.streams(subject=_ALL_SUBJECTS):
        if info.config.name.startswith(STREAM_PREFIX):
            yield KeyValueStatus(info.config.name.removeprefix(STREAM_PREFIX), info)
