"""Iceberg tables that Spark writes by Iceberg's own runtime: alone, on a cluster, over Connect.

The runtime comes from Maven, and there is one for each version of Spark, when Iceberg has made it.
Where it cannot be had the tests are skipped, and say so.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from slipstream import Server
from slipstream.tables.errors import PositionLostError
from slipstream.tables.iceberg import position_of
from tests.lasting_ports import lasting_port
from tests.spark.iceberg_catalog import rest_catalog, settings
from tests.spark.iceberg_scenarios import SCENARIOS
from tests.spark.streams import WAIT_SECONDS, add, fill
from tests.spark.test_stock_sessions import SPARK_HOME, stock_environment

ICEBERG = "1.12.0"
SPARKS = ("4.1",)  # those that this version of Iceberg has a runtime for
MINOR = ".".join(pyspark.__version__.split(".")[:2])
PACKAGE = f"org.apache.iceberg:iceberg-spark-runtime-{MINOR}_2.13:{ICEBERG}"
KILLS = 3
PROGRAM = """
import sys
from pyspark.sql import SparkSession, functions as f
from slipstream.spark import register
from slipstream.spark.parts.iceberg import table_source, write_table

url, stream, table, checkpoint, trigger, *remote = sys.argv[1:]
builder = SparkSession.builder
spark = (builder.remote(remote[0]) if remote else builder).getOrCreate()
register(spark)
rows = table_source(spark, table, stream, servers=url)
number = f.col("data").cast("string").cast("long").alias("n")
rows = rows.select("stream", "subject", "sequence", "timestamp", number)
now = {"availableNow": True} if trigger == "now" else {"processingTime": trigger}
write_table(rows, table, stream=stream, checkpoint=checkpoint, **now).awaitTermination()
spark.stop()
"""
RESOLVE = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.config("spark.jars.packages", sys.argv[1]).getOrCreate().stop()
"""


@pytest.fixture(scope="session")
def package() -> str:
    """The coordinates of Iceberg's runtime, when it was fetched; else the test is skipped."""
    if MINOR not in SPARKS:
        pytest.skip(f"Iceberg {ICEBERG} has no runtime for Spark {MINOR}, only {SPARKS}")
    words = [sys.executable, "-c", RESOLVE, PACKAGE]
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=600, env=stock_environment()
    )
    if ended.returncode != 0:
        pytest.skip(f"{PACKAGE} cannot be fetched from Maven: {ended.stderr[-300:]}")
    return PACKAGE


@pytest.fixture(scope="session")
def outcomes(package: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What has become of each scenario; empty if all was as it should be."""
    folder = tmp_path_factory.mktemp("scenarios")
    made = stock_environment()
    del made["PYSPARK_PYTHON"]
    with Server(store_dir=str(tmp_path_factory.mktemp("jetstream"))) as server:
        words = [sys.executable, "-m", "tests.spark.iceberg_scenarios", server.url, str(folder)]
        ended = subprocess.run(
            [*words, package], capture_output=True, text=True, check=False, timeout=1700, env=made
        )
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"name"')]
    assert len(lines) == len(SCENARIOS), ended.stderr[-4000:]
    return {found["name"]: found["said"] for found in map(json.loads, lines)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_in_a_local_session(name: str, outcomes: dict[str, str]) -> None:
    assert not outcomes[name], outcomes[name]


class Shop:
    """A stream, a catalog, and programs that write the one into a table of the other."""

    def __init__(self, package: str, url: str, catalog_url: str, catalog: Catalog, folder: Path):
        self.url, self.catalog, self.folder = url, catalog, folder
        self.stream = fill(url, 200)
        self.options = ["--packages", package]
        for name, value in settings(catalog_url).items():
            self.options += ["--conf", f"{name}={value}"]
        self.checkpoint = folder / "checkpoint"
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)

    def words(self, trigger: str, checkpoint: Path | None = None) -> list[str]:
        """What the program is given."""
        path = str(checkpoint or self.checkpoint)
        return [str(self.program), self.url, self.stream, "lake.streams.orders", path, trigger]

    def submit(self, master: str, words: list[str]) -> "subprocess.Popen[bytes]":
        """Run the program by spark-submit."""
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
        submit += ["--driver-memory", "1g", *self.options, *words]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                submit, stdout=log, stderr=log, env=stock_environment(), start_new_session=True
            )

    def wait(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the program's end."""
        assert process.wait(800) == 0, (self.folder / "log").read_text()[-4000:]

    def sequence(self) -> int:
        """How far the stream is in the table."""
        try:
            found = position_of(self.catalog.load_table("streams.orders"), self.stream)
        except (NoSuchTableError, PositionLostError):
            return 0  # the table, or its first snapshot, which is empty, was made just now
        return 0 if found is None else found.sequence

    def numbers(self) -> list[int]:
        """Those in the table, sorted."""
        try:
            rows = self.catalog.load_table("streams.orders").scan().to_arrow()
        except NoSuchTableError:
            return []
        return sorted(rows["n"].to_pylist())


@pytest.fixture
def shop(package: str, jetstream_url: str, tmp_path: Path) -> Iterator[Shop]:
    """A stream of 200 messages, and no table yet."""
    with rest_catalog(tmp_path / "kept") as (catalog_url, catalog):
        yield Shop(package, jetstream_url, catalog_url, catalog, tmp_path)


def test_drivers_killed_at_random_moments_write_each_row_once(shop: Shop) -> None:
    chance = random.Random(7)
    published = 200
    for kill in range(KILLS):
        process = shop.submit("local[2]", shop.words("0 seconds"))
        try:
            published = publish_until_written(shop, published, chance.uniform(0, 3))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert len(set(shop.numbers())) == len(shop.numbers())
        if kill % 2:
            shutil.rmtree(shop.checkpoint)
    for _ in range(2):  # on Spark 4.1 the first one may do no more than repeat a batch
        shop.wait(shop.submit("local[2]", shop.words("now")))
    assert shop.numbers() == list(range(published))


def publish_until_written(shop: Shop, published: int, seconds: float) -> int:
    """Publish until a query has committed, and for some seconds more; how many there are."""
    before, deadline = shop.sequence(), time.monotonic() + WAIT_SECONDS
    end = deadline
    while time.monotonic() < end:
        add(shop.url, shop.stream, range(published, published + 20))
        published += 20
        if end == deadline and shop.sequence() > before:
            end = time.monotonic() + seconds
    assert end < deadline, (shop.folder / "log").read_text()[-4000:]
    return published


def test_two_queries_at_once_write_each_row_once(shop: Shop) -> None:
    both = [
        shop.submit("local[1]", shop.words("0 seconds", shop.folder / f"checkpoint{number}"))
        for number in range(2)
    ]
    published, deadline = 200, time.monotonic() + WAIT_SECONDS
    try:
        while all(process.poll() is None for process in both):  # one ends with OtherWriterError
            add(shop.url, shop.stream, range(published, published + 20))
            published += 20
            assert time.monotonic() < deadline, (shop.folder / "log").read_text()[-4000:]
    finally:
        for process in both:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert "OtherWriterError" in (shop.folder / "log").read_text()
    shop.wait(shop.submit("local[2]", shop.words("now")))
    assert shop.numbers() == list(range(published))


def test_a_cluster_writes_by_spark_submit(shop: Shop) -> None:
    for end in (200, 300):
        shop.wait(shop.submit("local-cluster[2,1,1024]", shop.words("now")))
        assert shop.numbers() == list(range(end))
        add(shop.url, shop.stream, range(end, 300))


@contextmanager
def connect_server(shop: Shop) -> Iterator[str]:
    """The URL of a Connect server with Iceberg's runtime, as Spark's own script starts it."""
    port = lasting_port()
    made = stock_environment()
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server += ["--conf", f"spark.connect.grpc.binding.port={port}", "--driver-memory", "1g"]
    words = [str(SPARK_HOME / "bin" / "spark-submit"), *server, *shop.options, "spark-internal"]
    with (shop.folder / "log").open("ab") as log:
        process = subprocess.Popen(
            words, env=made, stdout=log, stderr=log, cwd=shop.folder, start_new_session=True
        )
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_a_session_of_spark_connect_writes(shop: Shop) -> None:
    with connect_server(shop) as url:
        for end in (200, 300):
            words = [sys.executable, *shop.words("now"), url]
            ended = subprocess.run(
                words, capture_output=True, text=True, check=False, timeout=800,
                env=stock_environment(),
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr[-4000:]
            assert shop.numbers() == list(range(end))
            add(shop.url, shop.stream, range(end, 300))
