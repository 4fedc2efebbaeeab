"""Streaming queries of Spark, as `BucketReporter` of `slipstream.spark.reporters` has left them."""

from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from slipstream.client.kv import KeyValueEntry
from slipstream.client.kv.errors import BucketNotFoundError
from slipstream.console.visit import Visit
from slipstream.spark.figures import DEFAULT_BUCKET, Standing

QUERIES_MAX = 200


async def queries(request: Request) -> Response:
    """Each query with its lag, rates and the time of its last batch."""
    visit = Visit(request)
    bucket = visit.asked("bucket") or DEFAULT_BUCKET
    found: list[tuple[KeyValueEntry, Standing]] = []
    others = total = 0
    with suppress(BucketNotFoundError):
        kv = await visit.js.key_value(bucket)
        keys = await kv.keys()
        total = len(keys)
        for key in keys[:QUERIES_MAX]:
            entry = await kv.entry(key)
            if entry is None or entry.is_deleted:
                continue
            try:
                body = visit.masks.body(entry.data).data
                found.append((entry, msgspec.json.decode(body, type=Standing)))
            except msgspec.MsgspecError:  # somebody else's value, or one with hidden fields
                others += 1
    return visit.page(
        "queries.html",
        bucket=bucket,
        queries=found,
        others=others,
        left_out=max(total - QUERIES_MAX, 0),
    )


ROUTES = (("GET", "/queries", queries),)
