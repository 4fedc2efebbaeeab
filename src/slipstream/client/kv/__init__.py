"""Key-value buckets: the last values of keys, watched, updated by revision, with a history."""

from slipstream.client.kv.bucket import KeyValue
from slipstream.client.kv.config import KeyValueConfig, KeyValueStatus
from slipstream.client.kv.entry import KeyValueEntry, Operation
from slipstream.client.kv.key_codecs import (
    Base64Keys,
    ChainedKeys,
    KeyCodec,
    PathKeys,
    PlainKeys,
)
from slipstream.client.kv.watch import Watch

__all__ = ["Base64Keys", "ChainedKeys", "KeyCodec", "KeyValue", "KeyValueConfig"]
__all__ += ["KeyValueEntry", "KeyValueStatus", "Operation", "PathKeys", "PlainKeys", "Watch"]
