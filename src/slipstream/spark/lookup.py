"""Looking keys up in a bucket while a query runs: each micro-batch sees the values of its time.

A join with `kv.table` cannot do that: Spark plans a loaded DataFrame once, and a streaming query
would see the bucket as it was when it began. So a task asks the server for the keys that its rows
have, many with one request (`multi_last` of a direct get), and remembers them until it ends.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import uvloop
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from slipstream.client.jetstream.errors import MessageNotFoundError
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.client.kv.config import check_key
from slipstream.client.kv.entries import OPERATION_HEADER
from slipstream.client.kv.errors import InvalidKeyError
from slipstream.model.header_names import NATS_MARKER_REASON
from slipstream.spark.connections import connect, jetstream, patiently
from slipstream.spark.options import ServerOptions

KEYS_PER_REQUEST = 500


def looked_up(key: Column, bucket: str, options: ServerOptions) -> Column:
    """The bucket's value of a key, as text; null for a key that it lacks, or that was deleted."""

    def find(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        known: dict[str, str | None] = {}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for keys in batches:
                texts = keys.to_pylist()
                unknown = {text for text in texts if text is not None and text not in known}
                if unknown:
                    values = partial(_values, bucket, sorted(unknown), options)
                    known |= runner.run(patiently(values, options))
                yield pa.array([known.get(text) for text in texts], pa.string())

    find.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    wrap: Any = arrow_udf  # which kind of function it is, it takes from the annotations
    column: Column = wrap(find, returnType="string").asNondeterministic()(key)
    return column


async def _values(bucket: str, keys: list[str], options: ServerOptions) -> dict[str, str | None]:
    """The value of each key, None for a key without one."""
    found: dict[str, str | None] = dict.fromkeys(keys)
    prefix = f"$KV.{bucket}."
    subjects = [prefix + key for key in keys if _is_key(key)]
    async with await connect(options, "spark-lookup", patient=True) as connection:
        stream = await jetstream(connection, options).stream(f"KV_{bucket}")
        if not stream.cached_info.config.allow_direct:
            for subject in subjects:
                try:
                    message = await stream.get_last_message(subject)
                except MessageNotFoundError:
                    continue
                found[subject.removeprefix(prefix)] = _text(message)
            return found
        for at in range(0, len(subjects), KEYS_PER_REQUEST):
            async for message in stream.last_for(subjects[at : at + KEYS_PER_REQUEST]):
                found[message.subject.removeprefix(prefix)] = _text(message)
    return found


def _text(message: StoredMessage) -> str | None:
    """The value that an entry holds; None if it says that the key is gone."""
    if message.headers.get(NATS_MARKER_REASON) or message.headers.get(OPERATION_HEADER):
        return None
    return message.data.decode(errors="replace")


def _is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKeyError:
        return False
    return True
