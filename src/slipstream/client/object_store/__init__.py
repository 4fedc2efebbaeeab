"""Object stores: objects of any size as chunks in a stream, with digests, links and a watch."""

from slipstream.client.object_store.info import (
    ObjectInfo,
    ObjectLink,
    ObjectStoreConfig,
    ObjectStoreStatus,
)
from slipstream.client.object_store.reader import ObjectReader
from slipstream.client.object_store.store import ObjectStore, ObjectWatch

__all__ = ["ObjectInfo", "ObjectLink", "ObjectReader", "ObjectStore", "ObjectStoreConfig"]
__all__ += ["ObjectStoreStatus", "ObjectWatch"]
