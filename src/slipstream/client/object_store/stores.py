"""Making, finding and removing object stores; `JetStream` has a method for each function."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from slipstream.client.jetstream.errors import StreamExistsError, StreamNotFoundError
from slipstream.client.object_store.errors import (
    BadObjectError,
    StoreExistsError,
    StoreNotFoundError,
)
from slipstream.client.object_store.info import (
    STREAM_PREFIX,
    ObjectStoreConfig,
    ObjectStoreStatus,
    check_store,
    stream_config,
)
from slipstream.client.object_store.store import ObjectStore

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

_ALL_SUBJECTS = "$O.*.C.>"


def config_of(
    config: "ObjectStoreConfig | str | None", options: dict[str, Any]
) -> ObjectStoreConfig:
    """The configuration given as an object, or as a name and options."""
    if isinstance(config, ObjectStoreConfig):
        if options:
            raise BadObjectError("give an ObjectStoreConfig or options, not both")
        return config
    if config is not None:
        options = {"bucket": config, **options}
    return ObjectStoreConfig(**options)


async def open_store(js: "JetStream", bucket: str) -> ObjectStore:
    """A store that exists. Raises `StoreNotFoundError`."""
    try:
        stream = await js.stream(STREAM_PREFIX + check_store(bucket))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(
            f"object store {bucket!r}: there is none. Make it with `create_object_store`"
        ) from error
    return ObjectStore(js, stream.cached_info)


async def create_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """A new store, or the one that exists with this configuration. Raises `StoreExistsError`."""
    try:
        stream = await js.create_stream(stream_config(config))
    except StreamExistsError as error:
        raise StoreExistsError(
            f"create object store {config.bucket!r}: it exists with another configuration. Use "
            "`object_store` to open it, `update_object_store` to change it"
        ) from error
    return ObjectStore(js, stream.cached_info)


async def update_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """Change a store's configuration. Raises `StoreNotFoundError`."""
    try:
        stream = await js.update_stream(stream_config(config))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(f"update object store {config.bucket!r}: there is none") from error
    return ObjectStore(js, stream.cached_info)


async def create_or_update_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """A store with this configuration, whether there was one or not."""
    try:
        return await update_store(js, config)
    except StoreNotFoundError:
        return await create_store(js, config)


async def delete_store(js: "JetStream", bucket: str) -> None:
    """Remove a store and all its objects. Raises `StoreNotFoundError`."""
    try:
        await js.delete_stream(STREAM_PREFIX + check_store(bucket))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(f"delete object store {bucket!r}: there is none") from error


async def store_names(js: "JetStream") -> AsyncIterator[str]:
    """The names of all stores, page by page."""
    async for name in js.stream_names(subject=_ALL_SUBJECTS):
        if name.startswith(STREAM_PREFIX):
            yield name.removeprefix(STREAM_PREFIX)


async def store_statuses(js: "JetStream") -> AsyncIterator[ObjectStoreStatus]:
    """The status of every store, page by page."""
    async for info in js.streams(subject=_ALL_SUBJECTS):
        if info.config.name.startswith(STREAM_PREFIX):
            yield ObjectStoreStatus(info.config.name.removeprefix(STREAM_PREFIX), info)
