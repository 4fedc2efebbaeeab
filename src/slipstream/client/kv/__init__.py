"""Key-value buckets: the last values of keys, watched, updated by revision, with a history."""

from slipstream.client.kv.bucket import KeyValue
from slipstream.client.kv.config import (
    Base64Keys,
    ChainedKeys,
    KeyCodec,
    KeyValueConfig,
    KeyValueStatus,
    PathKeys,
    PlainKeys,
)
from slipstream.client.kv.entries import KeyValueEntry, Operation, Watch

__all__ = ["Base64Keys", "ChainedKeys", "KeyCodec", "KeyValue", "KeyValueConfig"]
__all__ += ["KeyValueEntry", "KeyValueStatus", "Operation", "PathKeys", "PlainKeys", "Watch"]
