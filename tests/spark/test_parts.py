"""Buckets as tables, payloads as columns, and the ready parts of pipelines."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as f

import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark import kv
from slipstream.spark.decode import (
    dead_letters,
    decode,
    decode_avro,
    decode_protobuf,
    schema_of,
)
from slipstream.spark.parts.archive import archive, compact, replay
from slipstream.spark.parts.tables import (
    changes,
    deduplicated,
    enriched,
    sessions,
    transformed,
    windowed,
)
from slipstream.spark.pipelines import jetstream_source
from tests.spark.streams import WAIT_SECONDS, add
from tests.spark.test_sink import messages, numbers, stream_of, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TIME = ("timestamp_seconds(6000000 + n) AS time", "'all' AS kind")


class Item(msgspec.Struct, rename="camel"):
    item_name: str
    prices: list[float] = []


@dataclass
class Order:
    number: int
    item: Item
    note: str | None = None


def bucket_of(url: str, **values: str) -> str:
    """A new bucket with a history, and these values."""
    name = "B" + uuid.uuid4().hex[:12]
    with slipstream.sync.connect(url) as nc:
        bucket = nc.jetstream().create_key_value(name, history=5)
        for key, value in values.items():
            bucket.put(key, value)
    return name


def test_keyed_rows_are_upserted_and_nulls_delete(spark: "SparkSession", either_url: str) -> None:
    bucket = bucket_of(either_url, a="old", b="old", c="kept")
    frame = spark.sql("SELECT 'a' AS key, 'new' AS value UNION ALL SELECT 'b', null")
    frame.coalesce(1).write.format("jetstream").mode("append").options(
        servers=either_url, bucket=bucket
    ).save()
    found = kv.table(spark, bucket, servers=either_url).collect()
    assert {row.key: bytes(row.value) for row in found} == {"a": b"new", "c": b"kept"}
    with slipstream.sync.connect(either_url) as nc:
        assert sorted(nc.jetstream().key_value(bucket).keys()) == ["a", "c"]


def test_a_schema_is_taken_from_a_type() -> None:
    schema = schema_of(Order)
    assert schema.simpleString() == (
        "struct<number:bigint,item:struct<itemName:string,prices:array<double>>,note:string>"
    )
    assert [field.nullable for field in schema.fields] == [False, False, True]
    with pytest.raises(ConfigError, match="neither"):
        schema_of(int)


def test_what_is_not_of_its_type_becomes_a_dead_letter(spark: "SparkSession") -> None:
    texts = ['{"number": 1, "item": {"itemName": "x"}}', '{"number": "x"}', "no", '{"number": 2}']
    rows = [(f"o.{n}", text.encode()) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "subject string, data binary")
    good, bad = decode(frame, Order)
    assert [(row.value.number, row.value.item.itemName) for row in good.collect()] == [(1, "x")]
    letters = dead_letters(bad, "bad").collect()
    assert [row.headers["Slipstream-Reason"] for row in letters] == [
        "it is no Order in JSON",
        "it is no Order in JSON",
        "Order.item is missing",
    ]


def test_a_session_without_the_avro_and_protobuf_jars_is_told_how_to_have_them(
    spark: "SparkSession",
) -> None:
    frame = spark.createDataFrame([(b"x",)], "data binary")
    with pytest.raises(ConfigError, match=r"spark\.jars\.packages.*spark-avro_2\.13:4"):
        decode_avro(frame, '{"type": "record", "name": "A", "fields": []}')
    with pytest.raises(ConfigError, match=r"spark\.jars\.packages.*spark-protobuf_2\.13:4"):
        decode_protobuf(frame, "Order", b"")


def test_an_archive_by_date_and_subject_is_compacted_and_replayed_in_order(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name, copy, paced = stream_of(either_url), stream_of(either_url), stream_of(either_url)
    source = spark.readStream.format("jetstream").options(servers=either_url, stream=name)
    source = source.option("startingOffsets", "earliest")
    for part in (range(10), range(10, 20)):  # two queries leave two files of each subject
        for subject in ("a", "b"):
            add(either_url, name, part, subject)
        archive(source.load(), str(tmp_path / "kept"), checkpoint=str(tmp_path / "c"))
        for query in spark.streams.active:
            query.awaitTermination(WAIT_SECONDS)
    compact(spark, str(tmp_path / "kept"), str(tmp_path / "small"))
    for directory, files in (("kept", 2), ("small", 1)):
        for subject in ("a", "b"):
            (folder,) = (tmp_path / directory).glob(f"date=*/by_subject={name}.{subject}")
            assert len(list(folder.glob("*.parquet"))) == files
    numbers_of_a = [int(m.data) for m in messages(either_url, name) if m.subject.endswith("a")]
    target = {"servers": either_url, "subject": f"{copy}.x", "stream": copy}
    replay(spark, str(tmp_path / "small"), where=f"subject = '{name}.a'", **target)
    assert [int(m.data) for m in messages(either_url, copy)] == numbers_of_a

    target = {"servers": either_url, "subject": f"{paced}.x", "stream": paced}
    begun = datetime.now(UTC)
    replay(spark, str(tmp_path / "small"), where=f"subject = '{name}.a'", pace=20, **target)
    old = [m.time for m in messages(either_url, name) if m.subject.endswith("a")]
    new = messages(either_url, paced)
    assert [int(m.data) for m in new] == numbers_of_a
    assert new[-1].time >= begun + (old[-1] - old[0]) / 20  # it took its time
    assert new[0].headers["Nats-Msg-Id"].startswith(f"{name}.")


def test_a_stream_is_enriched_with_what_a_bucket_has_at_each_micro_batch(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name, target = stream_of(either_url), stream_of(either_url)
    bucket = bucket_of(either_url, **{"1": "one", "2": "two"})
    source = spark.readStream.format("jetstream").options(servers=either_url, stream=name)
    rows = source.option("startingOffsets", "earliest").load()
    rows = rows.select(f.col("data").cast("string").alias("number"))
    joined = enriched(rows, spark, bucket, "number", "word", servers=either_url)
    said = f.concat_ws("=", "number", f.coalesce("word", f.lit("?")))
    query = transformed(
        joined,
        lambda df: df.select(f.lit(f"{target}.x").alias("subject"), said.alias("data")),
        checkpoint=str(tmp_path / "c"),
        servers=either_url,
        stream=target,
    )
    add(either_url, name, range(3))
    query.processAllAvailable()
    with slipstream.sync.connect(either_url) as nc:
        store = nc.jetstream().key_value(bucket)
        store.put("1", "eins")
        store.delete("2")
    with slipstream.sync.connect(either_url) as nc:
        for text in ("1", "2", "no key", "*"):
            nc.jetstream().publish(f"{name}.x", text)
    query.processAllAvailable()
    query.stop()
    found = [m.data.decode() for m in messages(either_url, target)]
    assert sorted(found[:3]) == ["0=?", "1=one", "2=two"]
    assert sorted(found[3:]) == ["*=?", "1=eins", "2=?", "no key=?"]


def test_a_table_is_enriched_by_a_join(spark: "SparkSession", jetstream_url: str) -> None:
    bucket = bucket_of(jetstream_url, **{"1": "one"})
    rows = spark.sql("SELECT cast(id AS string) AS number FROM range(2)")
    joined = enriched(rows, spark, bucket, "number", "word", servers=jetstream_url)
    assert {row.number: row.word for row in joined.collect()} == {"0": None, "1": "one"}


def test_a_bucket_has_a_change_feed(spark: "SparkSession", jetstream_url: str) -> None:
    bucket = bucket_of(jetstream_url, a="1")
    with slipstream.sync.connect(jetstream_url) as nc:
        nc.jetstream().key_value(bucket).delete("a")
    feed = changes(spark, bucket, servers=jetstream_url, startingOffsets="earliest")
    writer = feed.writeStream.format("memory").queryName("feed" + bucket)
    writer.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS)
    rows = spark.table("feed" + bucket).orderBy("revision").collect()
    assert [(row.key, row.operation) for row in rows] == [("a", "PUT"), ("a", "DEL")]


def test_windows_sessions_and_duplicates_of_a_stream_go_by_event_time(
    spark: "SparkSession", jetstream_url: str
) -> None:
    name = stream_of(jetstream_url)
    with slipstream.sync.connect(jetstream_url) as nc:
        for second in (0, 30, 60, 60, 200, 3600):  # the last one moves the watermark past the rest
            nc.jetstream().publish(f"{name}.x", str(second))
    source = spark.readStream.format("jetstream").options(servers=jetstream_url, stream=name)
    source = source.options(startingOffsets="earliest", maxMessagesPerTrigger=5)
    rows = source.load().selectExpr("int(string(data)) AS n").selectExpr("*", *_TIME)
    count = f.count("*").alias("count")
    made = {
        "w": windowed(rows, "time", "1 minute", "0 seconds", ["kind"], count),
        "s": sessions(rows, "time", "1 minute", "0 seconds", ["kind"], count),
        "d": deduplicated(rows, "time", "1 hour", ["n"]),
    }
    queries = [
        frame.writeStream.format("memory").queryName(f"{kind}{name}").trigger(availableNow=True)
        for kind, frame in made.items()
    ]
    for query in queries:
        assert query.start().awaitTermination(WAIT_SECONDS)
    windows = spark.table(f"w{name}").orderBy("start").collect()
    assert [row["count"] for row in windows] == [2, 2, 1]
    found = spark.table(f"s{name}").orderBy("start").collect()
    assert [row["count"] for row in found] == [4, 1]
    assert sorted(row.n for row in spark.table(f"d{name}").collect()) == [0, 30, 60, 200, 3600]


def test_a_pipeline_takes_a_stream_as_a_source(spark: "SparkSession", jetstream_url: str) -> None:
    name = stream_of(jetstream_url)
    write(numbers(spark, name, 3, 1), jetstream_url, name)
    assert jetstream_source(name, spark=spark, servers=jetstream_url).isStreaming
    table = jetstream_source(name, spark=spark, follow=False, servers=jetstream_url)
    assert table.count() == 3
