"""The doors to key-value buckets and object stores; mixed into `JetStream`.

What is behind them is imported when they are first used.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.kv import KeyCodec, KeyValue, KeyValueConfig, KeyValueStatus
    from slipstream.client.object_store import (
        ObjectStore,
        ObjectStoreConfig,
        ObjectStoreStatus,
    )


class DataAdmin:
    """Buckets and object stores of the account."""

    # -- key-value buckets ---------------------------------------------------------------------

    async def create_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: Any = None,
        key_codec: "KeyCodec | None" = None,
        **options: Any,
    ) -> "KeyValue":
        """Make a bucket from a `KeyValueConfig`, or from its name and fields as `options`.

        Succeeds if it exists with the same configuration. Values come back as `type` (bytes if
        none is given); `key_codec` lets keys be any text. Raises `BucketExistsError`,
        `BucketOptionError`, `InvalidBucketNameError`.
        """
        from slipstream.client.kv import buckets

        made = buckets.config_of(config, options)
        return await buckets.create_bucket(self._js, made, type=type, key_codec=key_codec)

    async def update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: Any = None,
        key_codec: "KeyCodec | None" = None,
        **options: Any,
    ) -> "KeyValue":
        """Give a bucket another configuration, the whole of it. Raises `BucketNotFoundError`."""
        from slipstream.client.kv import buckets

        made = buckets.config_of(config, options)
        return await buckets.update_bucket(self._js, made, type=type, key_codec=key_codec)

    async def create_or_update_key_value(
        self,
        config: "KeyValueConfig | str | None" = None,
        *,
        type: Any = None,
        key_codec: "KeyCodec | None" = None,
        **options: Any,
    ) -> "KeyValue":
        """A bucket with this configuration, whether there was one or not."""
        from slipstream.client.kv import buckets

        made = buckets.config_of(config, options)
        return await buckets.create_or_update_bucket(self._js, made, type=type, key_codec=key_codec)

    async def key_value(
        self, bucket: str, *, type: Any = None, key_codec: "KeyCodec | None" = None
    ) -> "KeyValue":
        """A bucket that exists. Raises `BucketNotFoundError`, `BadBucketError`."""
        from slipstream.client.kv import buckets

        return await buckets.open_bucket(self._js, bucket, type=type, key_codec=key_codec)

    async def delete_key_value(self, bucket: str) -> None:
        """Remove a bucket with all its values. Raises `BucketNotFoundError`."""
        from slipstream.client.kv import buckets

        await buckets.delete_bucket(self._js, bucket)

    async def key_value_names(self) -> AsyncIterator[str]:
        """The names of all buckets, asked for page by page."""
        from slipstream.client.kv import buckets

        async for name in buckets.bucket_names(self._js):
            yield name

    async def key_values(self) -> AsyncIterator["KeyValueStatus"]:
        """The status of every bucket, asked for page by page."""
        from slipstream.client.kv import buckets

        async for status in buckets.bucket_statuses(self._js):
            yield status

    # -- object stores -------------------------------------------------------------------------

    async def create_object_store(
        self, config: "ObjectStoreConfig | str | None" = None, **options: Any
    ) -> "ObjectStore":
        """Make a store from an `ObjectStoreConfig`, or from its name and fields as `options`.

        Succeeds if it exists with the same configuration. Raises `StoreExistsError`,
        `InvalidStoreNameError`.
        """
        from slipstream.client.object_store import stores

        return await stores.create_store(self._js, stores.config_of(config, options))

    async def update_object_store(
        self, config: "ObjectStoreConfig | str | None" = None, **options: Any
    ) -> "ObjectStore":
        """Give a store another configuration, the whole of it. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store import stores

        return await stores.update_store(self._js, stores.config_of(config, options))

    async def create_or_update_object_store(
        self, config: "ObjectStoreConfig | str | None" = None, **options: Any
    ) -> "ObjectStore":
        """A store with this configuration, whether there was one or not."""
        from slipstream.client.object_store import stores

        return await stores.create_or_update_store(self._js, stores.config_of(config, options))

    async def object_store(self, bucket: str) -> "ObjectStore":
        """A store that exists. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store import stores

        return await stores.open_store(self._js, bucket)

    async def delete_object_store(self, bucket: str) -> None:
        """Remove a store with all its objects. Raises `StoreNotFoundError`."""
        from slipstream.client.object_store import stores

        await stores.delete_store(self._js, bucket)

    async def object_store_names(self) -> AsyncIterator[str]:
        """The names of all stores, asked for page by page."""
        from slipstream.client.object_store import stores

        async for name in stores.store_names(self._js):
            yield name

    async def object_stores(self) -> AsyncIterator["ObjectStoreStatus"]:
        """The status of every store, asked for page by page."""
        from slipstream.client.object_store import stores

        async for status in stores.store_statuses(self._js):
            yield status

    @property
    def _js(self) -> "JetStream":
        return cast("JetStream", self)
