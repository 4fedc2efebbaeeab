"""The examples of docs/spark-queries.md run as they stand, with an address and folders given."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import functions as f

import slipstream.sync
from slipstream.server import Server
from slipstream.tables.iceberg import open_catalog
from tests.lasting_ports import lasting_port
from tests.pages import blocks, run
from tests.spark.streams import WAIT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


def served(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read())


async def test_the_example_of_watching_serves_metrics(
    spark: "SparkSession", own_server: Server
) -> None:
    port = lasting_port()
    names: dict[str, Any] = {"spark": spark, "url": own_server.url, "port": port}
    await run(blocks("spark-queries.md")[0], names)
    try:
        assert "slipstream_spark_running" in await asyncio.to_thread(served, port)
    finally:
        names["watching"].stop()


@pytest.fixture
def rocks(spark: "SparkSession") -> Iterator[None]:
    """The state store that `transformWithState` needs."""
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    yield
    spark.conf.set(name, before)


def fill(url: str, name: str, *bodies: Any) -> None:
    """Publish JSON to a stream of that name, which is made if need be."""
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name.lower()], allow_direct=True)
        for body in bodies:
            js.publish(name.lower(), json.dumps(body).encode())


def rows_of(spark: "SparkSession", url: str, stream: str, fields: str) -> "DataFrame":
    """The messages of a stream, with the fields of their bodies."""
    reader = spark.readStream.format("jetstream").options(servers=url, stream=stream)
    rows = reader.option("startingOffsets", "earliest").option("includeSize", "true").load()
    body = f.from_json(f.col("data").cast("string"), fields)
    return rows.withColumn("body", body).select("subject", "sequence", "size", "data", "body.*")


def collected(rows: "DataFrame", tmp_path: Path, mode: str = "append") -> "list[Row]":
    """What a query gives that reads what there is and ends."""
    found: list[Row] = []
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode(mode)
    assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS)
    return found


def test_the_page_says_what_real_time_mode_takes(spark: "SparkSession", own_server: Server) -> None:
    fill(own_server.url, "ORDERS")
    rows = rows_of(spark, own_server.url, "ORDERS", "id int")
    with TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.outputMode("update").trigger(realTime="5 minutes")
        writer = writer.option("checkpointLocation", checkpoint)
        with pytest.raises(StreamingQueryException, match="INPUT_STREAM_NOT_SUPPORTED"):
            writer.foreach(print).start().awaitTermination(WAIT_SECONDS)
        sink = writer.format("jetstream").options(servers=own_server.url, stream="ORDERS")
        with pytest.raises(IllegalArgumentException, match=r"SINK_NOT_IN_ALLOWLIST.*PythonTable"):
            sink.start()


async def test_the_example_of_several_writes_runs(
    spark: "SparkSession", own_server: Server, tmp_path: Path
) -> None:
    url = own_server.url
    fill(url, "LARGE")
    fill(url, "ORDERS", "x", "y" * 200)
    names: dict[str, Any] = {
        "url": url,
        "folder": str(tmp_path),
        "checkpoint": str(tmp_path / "checkpoint"),
        "orders": rows_of(spark, url, "ORDERS", "id int").drop("id", "sequence"),
    }
    await run(blocks("spark-queries.md")[1], names)
    assert names["query"].awaitTermination(WAIT_SECONDS)
    (counted,) = spark.read.parquet(str(tmp_path / "counts")).collect()
    assert tuple(counted) == ("orders", 2)
    with slipstream.sync.connect(url) as nc:
        (large,) = nc.jetstream().stream("LARGE").scan()
    assert large["data"].to_pylist() == [json.dumps("y" * 200).encode()]


@pytest.mark.usefixtures("rocks")
async def test_the_example_of_state_beside_a_bucket_runs(
    spark: "SparkSession", own_server: Server, tmp_path: Path
) -> None:
    url = own_server.url
    spent = [("ann", 60.0), ("bob", 60.0), ("ann", 60.0)]
    fill(url, "PAYMENTS", *({"customer": who, "amount": amount} for who, amount in spent))
    with slipstream.sync.connect(url) as nc:
        limits = nc.jetstream().create_key_value("limits")
        for who in ("ann", "bob"):
            limits.put(who, b"100")
    payments = rows_of(spark, url, "PAYMENTS", "customer string, amount double")
    names: dict[str, Any] = {"url": url, "payments": payments}
    for block in blocks("spark-queries.md")[2:5]:
        await run(block, names)
    found = collected(names["over"], tmp_path, "update")
    assert [tuple(row) for row in found] == [("ann", 120.0)]


async def test_the_example_of_two_streams_joined_runs(
    spark: "SparkSession", own_server: Server, tmp_path: Path
) -> None:
    url, noon = own_server.url, "2026-01-02T12:00:00Z"
    fill(url, "PAYMENTS", *({"id": n, "amount": n * 10, "time": noon} for n in range(3)))
    later = {"id": 1, "time": "2026-01-02T12:30:00Z"}
    too_late = {"id": 2, "time": "2026-01-02T14:00:00Z"}
    fill(url, "PARCELS", later, too_late)
    names: dict[str, Any] = {
        "payments": rows_of(spark, url, "PAYMENTS", "id int, amount int, time timestamp"),
        "parcels": rows_of(spark, url, "PARCELS", "id int, time timestamp"),
    }
    await run(blocks("spark-queries.md")[5], names)
    found = collected(names["joined"], tmp_path)
    assert [(row.id, row.amount, row.sent.minute) for row in found] == [(1, 10, 30)]


async def test_the_example_of_merged_rows_runs(
    spark: "SparkSession", own_server: Server, tmp_path: Path
) -> None:
    url, folder = own_server.url, str(tmp_path / "tables")
    catalog = open_catalog(folder)
    catalog.create_namespace("streams")
    schema = pa.schema([("id", pa.int32()), ("amount", pa.float64())])
    catalog.create_table("streams.accounts", schema).append(
        pa.table({"id": [1, 2], "amount": [1.0, 2.0]}, schema=schema)
    )
    bodies = [{"id": n, "amount": amount} for n, amount in ((2, 5.0), (3, 6.0), (2, 7.0))]
    fill(url, "ACCOUNTS", *bodies)
    names: dict[str, Any] = {
        "f": f,
        "folder": folder,
        "checkpoint": str(tmp_path / "checkpoint"),
        "accounts": rows_of(spark, url, "ACCOUNTS", "id int, amount double"),
    }
    await run(blocks("spark-queries.md")[6], names)
    assert names["query"].awaitTermination(WAIT_SECONDS)
    found = catalog.load_table("streams.accounts").scan().to_arrow().sort_by("id")
    assert found["amount"].to_pylist() == [1.0, 7.0, 6.0]
