"""The streaming source: micro-batches, offsets, limits, progress."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import slipstream.sync
from tests.spark.streams import add, fill, finish, follow, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_goes_on_where_its_checkpoint_ends(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name = fill(either_url, 10)
    finish(follow(spark, either_url, name, tmp_path))
    add(either_url, name, range(10, 25))
    finish(follow(spark, either_url, name, tmp_path))
    assert stored(spark, tmp_path) == list(range(25))


def test_available_now_in_micro_batches_of_a_bounded_count(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 25)
    progress = finish(follow(spark, jetstream_url, name, tmp_path, maxMessagesPerTrigger=10))
    assert [p["numInputRows"] for p in progress] == [10, 10, 5]
    assert stored(spark, tmp_path) == list(range(25))


def test_progress_tells_offset_and_backlog(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 25)
    progress = finish(follow(spark, jetstream_url, name, tmp_path, maxMessagesPerTrigger=10))
    source = progress[0]["sources"][0]
    end, latest = source["endOffset"], source["latestOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    latest = json.loads(latest) if isinstance(latest, str) else latest
    assert end[name]["next"] == 11
    assert end[name]["created"].startswith("20")
    assert latest[name]["next"] == 26
    assert latest[name]["backlogMessages"] == 15
    assert latest[name]["backlogBytes"] > 0


def test_a_limit_in_bytes_is_counted_by_the_streams_average(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 20)
    with slipstream.sync.connect(jetstream_url) as nc:
        size = nc.jetstream().stream_info(name).state.bytes
    progress = finish(follow(spark, jetstream_url, name, tmp_path, maxBytesPerTrigger=size // 2))
    assert [p["numInputRows"] for p in progress] == [10, 10]


def test_the_offset_shows_as_a_durable_and_in_a_bucket(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name = fill(either_url, 12)
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        bucket = js.create_key_value(f"B{name}")
        options = {"commitDurable": "query", "commitBucket": f"B{name}"}
        finish(follow(spark, either_url, name, tmp_path, maxMessagesPerTrigger=5, **options))
        assert js.consumer_info(name, "query").num_pending <= 7
        assert json.loads(bucket.get(name).value)["next"] >= 6
