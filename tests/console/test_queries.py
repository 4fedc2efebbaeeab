"""Spark's streaming queries in the console, as a bucket has them."""

from typing import Any

import msgspec

from slipstream.spark.figures import Progress, Query, Standing, StreamLag
from tests.console.conftest import Console, MakeConsole

HOSTILE = "<script>alert(1)</script>"
LAG = StreamLag("ORDERS", next=7, backlog_messages=12, backlog_bytes=120, lost_messages=3)
PROGRESS = Progress(
    query=Query("i", "r", "shop"),
    timestamp="2026-01-02T03:04:05Z",
    batch=41,
    input_rows=5,
    input_rows_per_second=2.0,
    processed_rows_per_second=8.0,
    duration_ms=617,
    durations_ms={},
    streams=(LAG,),
    output_rows=None,
)


def keep(js: Any, bucket: str) -> None:
    kv = js.create_key_value(bucket)
    kv.put("shop", msgspec.json.encode(Standing(PROGRESS.query, "running", "", PROGRESS)))
    failed = Standing(Query("j", "s", HOSTILE), "failed", "it broke: " + HOSTILE)
    kv.put("other", msgspec.json.encode(failed))
    kv.put("text", b"no query")


def test_queries_are_shown_with_lag_rates_and_errors(console: Console, js: Any, name: str) -> None:
    assert "No queries yet" in console.get(f"/queries?bucket={name}")
    keep(js, name)
    page = console.get(f"/queries?bucket={name}")
    assert f"2 in bucket {name}; 1 value cannot be read" in page
    for shown in ("shop", 'href="/streams/ORDERS"', "12", "3 lost", "41", "617 ms", "it broke"):
        assert shown in page
    assert "no batch yet" in page
    assert HOSTILE not in page


def test_a_hidden_field_of_a_query_is_not_shown(
    make_console: MakeConsole, js: Any, url: str, name: str
) -> None:
    keep(js, name)
    page = make_console(url, mask_fields=("error",)).get(f"/queries?bucket={name}")
    assert "it broke" not in page
