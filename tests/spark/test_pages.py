"""The examples of the pages about Spark run as they stand, with addresses and folders replaced."""

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import slipstream
import slipstream.sync
from slipstream.cli.pipeline.template import write_project
from slipstream.server import Server
from tests.pages import blocks, run
from tests.spark.test_pipelines import Cli, cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cli"]

WAIT_SECONDS = 120
DEFAULT_SERVER = "nats://127.0.0.1:4222"


class Order(msgspec.Struct):
    number: int


def make_stream(url: str, name: str, *subjects: str) -> None:
    """A stream with two messages on each subject."""
    with slipstream.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name.lower()}.>"], allow_direct=True)
        for subject in subjects:
            for number in range(2):
                js.publish(subject, Order(number))


def messages(url: str, stream: str, subject: str) -> int:
    """How many a stream has on a subject: a stream that is written exactly once has others too."""
    with slipstream.sync.connect(url) as nc:
        info = nc.jetstream().stream_info(stream, subjects_filter=subject)
        return sum(info.state.subjects.values())


async def test_the_examples_of_the_source_run(
    spark: "SparkSession", own_server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_stream(own_server.url, "ORDERS", "orders.eu.new", "orders.us.new")
    names: dict[str, Any] = {}
    first, second = blocks("spark.md")
    await run(first.replace(DEFAULT_SERVER, own_server.url), names)
    assert "|orders.eu.new|    2|" in capfd.readouterr().out
    second = second.replace(
        'options(stream="ORDERS"', f'options(servers="{own_server.url}", stream="ORDERS"'
    )
    for folder in ("checkpoints/orders", "tables/orders"):
        second = second.replace(folder, str(tmp_path / folder))
    await run(second, names)
    assert names["query"].awaitTermination(WAIT_SECONDS)
    assert spark.read.parquet(str(tmp_path / "tables/orders")).count() == 4


async def test_the_examples_of_the_sink_run(
    spark: "SparkSession", own_server: Server, tmp_path: Path
) -> None:
    url = own_server.url
    make_stream(url, "OUT")
    make_stream(url, "IN", "in.a")
    first, second = blocks("spark-sink.md")
    once, always = ast.parse(first).body
    row = "SELECT 'out.x' AS subject, CAST('y' AS BINARY) AS data"
    await run(ast.unparse(once), {"rows": spark.sql(row).coalesce(1), "url": url})
    assert messages(url, "OUT", "out.x") == 1
    source = spark.readStream.format("jetstream").option("startingOffsets", "earliest")
    followed = source.options(servers=url, stream="IN").load()
    checkpoint = str(tmp_path / "out.checkpoint")
    names: dict[str, Any] = {
        "rows": followed.selectExpr("'out.z' AS subject", "data"),
        "url": url,
    }
    await run("query = " + ast.unparse(always).replace("out.checkpoint", checkpoint), names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert messages(url, "OUT", "out.z") == 2

    with slipstream.sync.connect(url) as nc:
        nc.jetstream().create_key_value("prices").put("pear", b"1")
    prices = spark.sql("SELECT 'apple' AS key, '2' AS value UNION ALL SELECT 'pear', null")
    bodies = spark.sql("""SELECT 'o' AS subject, CAST(d AS BINARY) AS data
                          FROM VALUES ('{"number": 1}'), ('no') AS t(d)""")
    names = {"prices": prices.coalesce(1), "orders": bodies, "spark": spark, "url": url}
    names["Order"] = Order
    await run(second, names)
    assert {row.key: bytes(row.value) for row in names["now"].collect()} == {"apple": b"2"}
    assert [row.value.number for row in names["good"].collect()] == [1]
    assert [row.subject for row in names["letters"].collect()] == ["orders.bad"]


async def test_the_examples_of_schemas_run(spark: "SparkSession", own_server: Server) -> None:
    url = own_server.url
    text = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
    )
    on_spark, in_python = blocks("schemas.md")
    body = b"\0\0\0\0\1\x0a"  # with schema 1, the number 5
    bodies = [(body,), (b"no",)]
    async with await slipstream.connect(url) as nc:
        names: dict[str, Any] = {"js": nc.jetstream(), "text": text}
        await run(in_python, names)
        assert names["identity"] == 1
    names = {"url": url, "orders": spark.createDataFrame(bodies, "data binary")}
    await run(on_spark, names)
    assert [row.value.number for row in names["good"].collect()] == [5]
    assert [row.subject for row in names["letters"].collect()] == ["orders.bad"]
    assert [bytes(row.data) for row in names["again"].collect()] == [body]


@pytest.mark.timeout(300)  # Java and Spark start, on a machine that may be busy
def test_the_example_of_a_pipeline_runs(cli: Cli, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    write_project(shop)
    (code,) = blocks("spark-pipelines.md")
    (shop / "transformations" / "orders.py").write_text(code)
    done = cli("run", "--master", "local[2]", folder=shop)
    assert done.returncode == 0, done.stderr
    with Server(store_dir=str(shop / ".slipstream" / "store")) as server:
        assert messages(server.url, "LARGE_ORDERS", "large.orders") == 3
