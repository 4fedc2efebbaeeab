"""DataFrames of messages in a format, with registries, in a stream and back."""

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

import slipstream.sync
from slipstream.schemas import Avro, BucketRegistry, CloudEvents, Json, Protobuf, RestRegistry
from slipstream.spark.decode import dead_letters
from slipstream.spark.formats import decode_as, encode_as
from tests.schemas import shop
from tests.schemas.stub_registry import serve
from tests.spark.streams import WAIT_SECONDS, read
from tests.spark.test_sink import stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish(url: str, stream: str, *bodies: bytes, headers: Any = None) -> None:
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        for body in bodies:
            js.publish(f"{stream}.new", body, headers=headers)


def test_a_query_reads_every_version_into_the_newest_and_sorts_out_the_rest(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    orders, bad_ones = stream_of(either_url), stream_of(either_url)
    with serve() as stub:
        old = stub.add("orders", json.dumps(shop.FIRST))
        new = stub.add("orders", json.dumps(shop.SECOND))
        publish(
            either_url,
            orders,
            shop.framed(old, shop.avro_body(shop.FIRST, {"number": 1, "note": "x"})),
            shop.framed(new, shop.avro_body(shop.SECOND, {"number": 2, "amount": 2.5})),
            b"no avro",
        )
        source = spark.readStream.format("jetstream").options(servers=either_url, stream=orders)
        rows = source.option("startingOffsets", "earliest").load()
        form = Avro(registry=RestRegistry(stub.url), subject="orders")
        good, bad = decode_as(rows, form)
        assert good.schema["value"].dataType.simpleString() == "struct<number:bigint,amount:double>"
        queries = [
            good.select("sequence", "value.*")
            .writeStream.option("checkpointLocation", str(tmp_path / "good"))
            .trigger(availableNow=True)
            .format("parquet")
            .start(str(tmp_path / "table")),
            dead_letters(bad, f"{bad_ones}.bad")
            .writeStream.option("checkpointLocation", str(tmp_path / "bad"))
            .trigger(availableNow=True)
            .format("jetstream")
            .options(servers=either_url, stream=bad_ones)
            .start(),
        ]
        for query in queries:
            assert query.awaitTermination(WAIT_SECONDS)
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("sequence").collect()
    assert [tuple(row) for row in table] == [(1, 1, 1.5), (2, 2, 2.5)]
    (letter,) = read(spark, either_url, bad_ones).where("subject like '%.bad'").collect()
    assert bytes(letter.data) == b"no avro"
    assert letter.headers["Slipstream-Reason"] == [
        "it does not begin with 00 and a schema id of 4 bytes"
    ]


def test_rows_are_written_in_a_format_under_the_id_of_its_schema(
    spark: "SparkSession", jetstream_url: str
) -> None:
    bucket = "B" + uuid.uuid4().hex
    with slipstream.sync.connect(jetstream_url) as nc:
        nc.jetstream().create_key_value(bucket)
    registry = BucketRegistry(bucket, servers=jetstream_url)
    form = Avro(schema=json.dumps(shop.SECOND), registry=registry, subject="orders")
    rows = spark.range(3).select(
        f.when(
            f.col("id") < 2, f.struct(f.col("id").alias("number"), f.lit(0.5).alias("amount"))
        ).alias("value"),
    )
    written = encode_as(rows, form)
    bodies = [row.data for row in written.orderBy("value.number").collect()]
    assert bodies[0] is None
    assert bytes(bodies[1])[:5] == b"\0\0\0\0\x01"
    good, bad = decode_as(written.select("data"), Avro(registry=registry, subject="orders"))
    assert sorted(tuple(row.value) for row in good.collect()) == [(0, 0.5), (1, 0.5)]
    assert [row.reason for row in bad.collect()] == ["there is no payload"]


def test_protobuf_and_events_have_columns_of_their_own(
    spark: "SparkSession", jetstream_url: str
) -> None:
    form = Protobuf(message="Order", descriptors=shop.descriptors())
    rows = spark.sql(
        """SELECT named_struct('number', 7, 'at', TIMESTAMP '2026-01-02 12:00:00',
             'prices', map('pear', 1.5D), 'items',
             array(named_struct('name', 'pear', 'count', 2BD))) AS value"""
    )
    good, _ = decode_as(encode_as(rows, form).select("data"), form)
    (value,) = good.select("value.*").collect()
    assert (value.number, value.prices, value.state) == (7, {"pear": 1.5}, "OPEN")
    assert value["items"][0].name == "pear"
    assert value.at.isoformat() == "2026-01-02T12:00:00"
    stream = stream_of(jetstream_url)
    headers = {"ce-id": "1", "ce-source": "/shop", "ce-specversion": "1.0", "ce-type": "order"}
    publish(jetstream_url, stream, b'{"number": 1}', b"no", headers=headers)
    event = CloudEvents(Json(schema=shop.JSON_SCHEMA))
    good, bad = decode_as(read(spark, jetstream_url, stream), event)
    assert [tuple(row) for row in good.select("value.id", "value.data.number").collect()] == [
        ("1", 1)
    ]
    assert [row.reason.split(":")[0] for row in bad.collect()] == ["its data"]
