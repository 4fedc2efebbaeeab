"""Committed offsets, told to ordinary tools; the checkpoint alone decides where a query resumes.

`commitDurable` names a consumer on each stream that is moved past the last sequence that the
query is done with: its pending count is the query's lag, in any tool. `commitBucket` names a
key-value bucket, which gets an entry per stream with the offset as JSON.
"""

import json
from typing import TYPE_CHECKING

from slipstream.client.jetstream.errors import ConsumerNotFoundError
from slipstream.errors import ConfigError
from slipstream.model.configurations import ConsumerConfig
from slipstream.spark.options import SourceOptions
from slipstream.spark.source.offsets import Offset

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

MARK = "slipstream.spark"


async def publish(js: "JetStream", options: SourceOptions, end: Offset) -> None:
    """Tell the offset where the options say. Raises `ConfigError` for a consumer of others."""
    for stream, reached in end.items():
        if options.commit_durable:
            await _move(js, stream, options, int(reached["next"]))
        if options.commit_bucket:
            bucket = await js.key_value(options.commit_bucket)
            key = f"{options.query_name}.{stream}" if options.query_name else stream
            await bucket.put(key, json.dumps(reached))


async def _move(js: "JetStream", stream: str, options: SourceOptions, sequence: int) -> None:
    """Make the durable stand before `sequence`."""
    name = options.commit_durable
    try:
        info = await js.consumer_info(stream, name)
    except ConsumerNotFoundError:
        pass
    else:
        if MARK not in info.config.metadata:
            raise ConfigError(
                f"jetstream: option commitDurable is {name!r}, and stream {stream} has a consumer "
                "of that name which is not a query's; give another name"
            )
        await js.delete_consumer(stream, name)
    config = ConsumerConfig(
        name=name,
        durable_name=name,
        description="the offset of a Spark query",
        deliver_policy="by_start_sequence",
        opt_start_seq=max(sequence, 1),
        metadata={MARK: options.query_name or "offset"},
    )
    if options.subject_list:
        config.filter_subjects = options.subject_list
    await js.create_consumer_raw(stream, config)
