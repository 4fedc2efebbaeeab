"""Sessions: the one that is made, the one that is there, and those of Spark Connect."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import slipstream.spark
from slipstream.errors import ConfigError
from tests.fix_server_process import environment
from tests.spark.streams import fill
from tests.spark.test_sink import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENT = """
import sys
import slipstream.spark

connect, url, name = sys.argv[1:]
spark = slipstream.spark.session(remote=connect)
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
assert slipstream.spark.session() is spark
reader = spark.read.format("jetstream").options(servers=url, stream=name)
rows = reader.load().selectExpr("subject", "concat('again ', cast(data AS string)) AS data")
rows.write.format("jetstream").mode("append").options(servers=url, stream=name).save()
stream = spark.readStream.format("jetstream").options(servers=url, stream=name)
stream = stream.option("startingOffsets", "earliest").load()
query = stream.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
query.awaitTermination()
print(spark.table("rows").count())
try:
    reader.option("startingOffset", "earliest").load().count()
except Exception as error:
    print(str(error).replace(chr(10), " "))
"""


@pytest.fixture
def connect_url(spark: "SparkSession") -> Iterator[str]:
    """A Spark Connect server in the JVM of the session, which other processes reach by gRPC."""
    jvm: Any = spark._jvm
    service = jvm.org.apache.spark.sql.connect.service
    context = spark.sparkContext._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.port", "0")
    service.SparkConnectService.start(context)
    module: Any = getattr(service, "SparkConnectService$")
    yield f"sc://127.0.0.1:{module.__getattr__('MODULE$').localPort()}"
    none = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    service.SparkConnectService.stop(none, none)


def test_a_session_of_spark_connect_reads_follows_and_writes_streams(
    connect_url: str, jetstream_url: str
) -> None:
    name = fill(jetstream_url, 5)
    words = [sys.executable, "-c", CLIENT, connect_url, jetstream_url, name]
    told = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=280, env=environment()
    )
    assert told.returncode == 0, told.stderr
    count, error = told.stdout.strip().splitlines()
    assert count == "10"
    assert "did you mean 'startingOffsets'" in error
    assert sorted(m.data for m in messages(jetstream_url, name))[5:] == [
        f"again {n}".encode() for n in range(5)
    ]


def test_an_existing_session_is_taken_as_it_is(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert slipstream.spark.session(config={"spark.sql.shuffle.partitions": "99"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    with pytest.raises(ConfigError, match="has a Spark session of its own already"):
        slipstream.spark.session(remote="sc://127.0.0.1:1")


def test_a_plain_session_finds_the_format_by_itself(
    spark: "SparkSession", jetstream_url: str
) -> None:
    plain = spark.newSession()
    reader = plain.read.format("jetstream").options(servers=jetstream_url)
    assert reader.option("stream", fill(jetstream_url, 2)).load().count() == 2


def test_what_spark_connect_lacks_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = importlib.import_module("slipstream.spark.session")
    there = {"pandas", "pyarrow", "zstandard", "google.rpc"}
    monkeypatch.setattr(sessions, "_is_there", lambda module: module in there)
    with pytest.raises(ConfigError) as caught:
        sessions.check_connect()
    assert str(caught.value) == (
        "Spark Connect needs grpcio, grpcio-status, not installed here: "
        "pip install 'slipstream[spark]'"
    )
