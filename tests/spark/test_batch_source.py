"""The batch source: what `spark.read.format("jetstream")` gives."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import slipstream.sync
from slipstream.spark.source.pushdown import bounds_of
from tests.spark.streams import add, fill, read

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def test_a_stream_is_a_table_with_a_row_per_message(spark: "SparkSession", either_url: str) -> None:
    name = fill(either_url, 3)
    rows = read(spark, either_url, name).orderBy("sequence").collect()
    assert [(r.stream, r.subject, r.sequence, bytes(r.data)) for r in rows] == [
        (name, f"{name}.new", n + 1, str(n).encode()) for n in range(3)
    ]
    assert rows[1].headers == {"N": ["1"]}
    assert rows[0].timestamp_ns // 1_000_000_000 == int(rows[0].timestamp.timestamp())


def test_sequences_and_times_say_where_to_begin_and_end(
    spark: "SparkSession", jetstream_url: str
) -> None:
    name = fill(jetstream_url, 10)
    moment = datetime.now(UTC).isoformat()
    add(jetstream_url, name, range(10, 15))

    def found(**options: str) -> list[int]:
        return sorted(r.sequence for r in read(spark, jetstream_url, name, **options).collect())

    middle = found(startingOffsets=json.dumps({name: 3}), endingOffsets=json.dumps({name: 6}))
    assert middle == [3, 4, 5]
    assert found(startingTimestamp=moment) == [11, 12, 13, 14, 15]
    assert found(endingTimestamp=moment) == list(range(1, 11))
    assert found(startingOffsets="latest") == []


def test_several_streams_are_one_table(spark: "SparkSession", jetstream_url: str) -> None:
    first, second = fill(jetstream_url, 4), fill(jetstream_url, 6)
    table = read(spark, jetstream_url, f"{first},{second}")
    counts = {r.stream: r["count"] for r in table.groupBy("stream").count().collect()}
    assert counts == {first: 4, second: 6}


def test_subject_filters_choose_messages(spark: "SparkSession", either_url: str) -> None:
    name = fill(either_url, 4, subject="a.x")
    add(either_url, name, range(4, 7), subject="b.x")
    add(either_url, name, range(7, 9), subject="c.x")
    one = read(spark, either_url, name, subjects=f"{name}.b.*", minPartitions=2)
    assert sorted(r.sequence for r in one.collect()) == [5, 6, 7]
    two = read(spark, either_url, name, subjects=f"{name}.a.*,{name}.c.*", minPartitions=3)
    assert sorted(r.sequence for r in two.collect()) == [1, 2, 3, 4, 8, 9]


def test_columns_are_chosen_by_option_or_by_schema(
    spark: "SparkSession", jetstream_url: str
) -> None:
    name = fill(jetstream_url, 2, subject="eu.42")
    table = read(spark, jetstream_url, name, keyToken=-1, includeSize=True, includeHeaders=False)
    assert "headers" not in table.columns
    assert [(r.key, r.size) for r in table.collect()] == [("42", 1), ("42", 1)]
    reader = spark.read.format("jetstream").option("servers", jetstream_url)
    chosen = reader.option("stream", name).schema("data binary, sequence bigint").load()
    assert [(bytes(r.data), r.sequence) for r in chosen.collect()] == [(b"0", 1), (b"1", 2)]


def test_filters_on_sequence_subject_and_time_reach_the_server(
    spark: "SparkSession", jetstream_url: str
) -> None:
    name = fill(jetstream_url, 20)

    def where(condition: str) -> "list[Row]":
        table = read(spark, jetstream_url, name, pushFilters=True)
        return table.where(condition).orderBy("sequence").collect()

    few = where("sequence > 4 and sequence <= 7")
    assert [r.sequence for r in few] == [5, 6, 7]
    stamp = few[1].timestamp.isoformat()
    assert 6 in [r.sequence for r in where(f"timestamp = timestamp'{stamp}'")]
    assert not where(f"subject = '{name}.old'")
    assert len(where(f"subject = '{name}.new'")) == 20
    assert len(where(f"subject like '{name}.%' and timestamp >= timestamp'2000-01-01'")) == 20
    assert not where("timestamp >= timestamp'2100-01-01'")


def test_uses_of_one_table_with_filters_of_their_own_do_not_disturb_each_other(
    spark: "SparkSession", jetstream_url: str
) -> None:
    table = read(spark, jetstream_url, fill(jetstream_url, 8))
    low, high = table.where("sequence <= 2"), table.where("sequence >= 7")
    assert low.count() == 2
    assert table.count() == 8
    assert low.union(high).count() == 4


def test_a_filter_becomes_the_bounds_of_the_read() -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual

    bounds = bounds_of([GreaterThan(("sequence",), 4), LessThanOrEqual(("sequence",), 9)])
    assert (bounds.first, bounds.last) == (5, 9)
    assert bounds_of([In(("subject",), ("a", "b")), EqualTo(("subject",), "b")]).subjects == ["b"]


def test_ranges_are_cut_by_count_where_nine_of_ten_are_deleted(
    spark: "SparkSession", either_url: str
) -> None:
    name = fill(either_url, 400)
    with slipstream.sync.connect(either_url) as nc:
        stream = nc.jetstream().stream(name)
        for sequence in range(1, 361):
            stream.delete_message(sequence) if sequence != 7 else None
    table = read(spark, either_url, name, minPartitions=4)
    from pyspark.sql.functions import spark_partition_id

    parts = table.groupBy(spark_partition_id()).count().collect()
    assert sum(r["count"] for r in parts) == 41
    assert max(r["count"] for r in parts) <= 12


def test_messages_with_headers_named_like_those_of_an_answer_are_counted(
    spark: "SparkSession", either_url: str
) -> None:
    name = fill(either_url, 5)
    own = {"Nats-Sequence": "first", "Nats-Num-Pending": "few"}
    with slipstream.sync.connect(either_url) as nc:
        for _ in range(5):
            nc.jetstream().publish(f"{name}.new", b"x", headers=own)
    table = read(spark, either_url, name, subjects=f"{name}.*", minPartitions=3)
    assert sorted(r.sequence for r in table.collect()) == list(range(1, 11))
    assert table.rdd.getNumPartitions() == 3


def test_an_empty_stream_is_an_empty_table(spark: "SparkSession", either_url: str) -> None:
    assert read(spark, either_url, fill(either_url, 0)).count() == 0


def test_an_unknown_option_names_the_nearest_one(spark: "SparkSession", jetstream_url: str) -> None:
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        read(spark, jetstream_url, "S", startingOffset="earliest")
    with pytest.raises(Exception, match="minPartitions is 'many'"):
        read(spark, jetstream_url, "S", minPartitions="many")


def test_a_missing_stream_is_named(spark: "SparkSession", jetstream_url: str) -> None:
    with pytest.raises(Exception, match="NOWHERE"):
        read(spark, jetstream_url, "NOWHERE").count()
