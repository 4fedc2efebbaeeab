"""The examples of docs/spark-queries.md run as they stand, with an address and folders given."""

import asyncio
import urllib.request
from typing import TYPE_CHECKING, Any

from slipstream.server import Server
from tests.lasting_ports import lasting_port
from tests.pages import blocks, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
