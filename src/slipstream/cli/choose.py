"""Which stream, consumer or bucket is meant, where the line does not say: a terminal is asked."""

from slipstream.cli.global_options import UsageError
from slipstream.cli.prompts import may_ask, pick
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import ConfigError


async def choose_stream(js: JetStream, name: str, asking: bool | None = None) -> str:
    """`name`, or the stream that is picked on the terminal. Raises `UsageError` without one."""
    if name:
        return name
    if not (may_ask() if asking is None else asking):
        raise UsageError("STREAM is missing: `slipstream stream ls` lists the streams")
    found = sorted([one async for one in js.stream_names()])
    if not found:
        raise ConfigError("there are no streams; `slipstream stream add` makes one")
    return pick("Select a Stream", found)


async def choose_consumer(
    js: JetStream, stream: str, name: str, asking: bool | None = None
) -> tuple[str, str]:
    """Stream and consumer, picked on the terminal if need be. Raises `UsageError` without one."""
    stream = await choose_stream(js, stream, asking)
    if name:
        return stream, name
    if not (may_ask() if asking is None else asking):
        raise UsageError(
            f"CONSUMER is missing: `slipstream consumer ls {stream}` lists the consumers"
        )
    found = sorted([one async for one in js.consumer_names(stream)])
    if not found:
        raise ConfigError(
            f"stream {stream} has no consumers; `slipstream consumer add {stream}` makes one"
        )
    return stream, pick(f"Select a Consumer of {stream}", found)


async def choose_bucket(js: JetStream, name: str) -> str:
    """`name`, or the bucket that is picked on the terminal. Raises `UsageError` without one."""
    if name:
        return name
    if not may_ask():
        raise UsageError("BUCKET is missing: `slipstream kv ls` lists the buckets")
    found = sorted([one async for one in js.key_value_names()])
    if not found:
        raise ConfigError("there are no buckets; `slipstream kv add` makes one")
    return pick("Select a Bucket", found)


async def choose_store(js: JetStream, name: str) -> str:
    """`name`, or the store that is picked on the terminal. Raises `UsageError` without one."""
    if name:
        return name
    if not may_ask():
        raise UsageError("BUCKET is missing: `slipstream object ls` lists the stores")
    found = sorted([one async for one in js.object_store_names()])
    if not found:
        raise ConfigError("there are no stores; `slipstream object add` makes one")
    return pick("Select a Bucket", found)
