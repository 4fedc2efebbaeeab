"""Publishing an archive's rows at the intervals at which they were published, or a part of these.

The clock starts at the first row: a row is due when as much time has passed since then as lay
between the two, divided by the pace. What is due is published together. A connection that breaks is
repaired by the client; what was in doubt is published again under the same message id.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import uvloop

from slipstream.client.jetstream.errors import NoStreamError, PublishError
from slipstream.errors import Error
from slipstream.model.times import utc_text
from slipstream.spark.connections import connect, jetstream
from slipstream.spark.sink.options import SinkOptions
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

_ATTEMPTS_MAX = 10
TIMESTAMP_HEADER = "Timestamp"


def publish_paced(batches: Iterator[pa.RecordBatch], pace: float, options: SinkOptions) -> int:
    """Publish an archive's rows; how many there were. Raises what a publish raises."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_publish(batches, pace, options))


async def _publish(batches: Iterator[pa.RecordBatch], pace: float, options: SinkOptions) -> int:
    now = asyncio.get_running_loop().time
    begun, first, count = now(), None, 0
    async with await connect(options, "spark-replay", patient=True) as connection:
        js = jetstream(connection, options)
        for batch in batches:
            times = batch.column("timestamp_ns").to_pylist()
            rows = batch.to_pylist()
            at = 0
            while at < len(rows):
                first = times[at] if first is None else first
                await asyncio.sleep(max(begun + (times[at] - first) / 1e9 / pace - now(), 0.0))
                passed = first + int((now() - begun) * pace * 1e9)
                end = max(bisect_right(times, passed, at), at + 1)
                await _send(js, rows[at:end], options)
                at = end
            count += len(rows)
    return count


async def _send(js: "JetStream", rows: list[dict[str, Any]], options: SinkOptions) -> None:
    """Publish rows that are due, until all are acknowledged."""
    more: dict[str, Any] = {"expected_stream": options.stream} if options.stream else {}
    for _ in range(_ATTEMPTS_MAX):
        acks = [
            await js.publish_async(
                options.subject or row["subject"],
                row["data"] or b"",
                headers=_headers(row),
                message_id=f"{row['stream']}.{row['sequence']}",
                **more,
            )
            for row in rows
        ]
        results = await asyncio.gather(*acks, return_exceptions=True)
        for result in results:
            if isinstance(result, NoStreamError) or (
                isinstance(result, BaseException) and not isinstance(result, PublishError)
            ):
                raise result
        rows = [row for row, done in zip(rows, results, strict=True) if isinstance(done, Error)]
        if not rows:
            return
    last = rows[0]
    raise Error(
        f"replay: sequence {last['sequence']} of {last['stream']} and {len(rows) - 1} more are not "
        f"acknowledged after {_ATTEMPTS_MAX} attempts: is the server there?"
    )


def _headers(row: dict[str, Any]) -> Headers:
    """The headers of the message, but for the server's own, and its time."""
    pairs = [
        (name, value or "")
        for name, values in row["headers"] or ()
        if not name.lower().startswith("nats-")
        for value in values
    ]
    return Headers([*pairs, (TIMESTAMP_HEADER, utc_text(row["timestamp_ns"]))])
