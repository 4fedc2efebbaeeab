"""Sessions with Spark's own defaults: what `slipstream.spark.session()` sets may not be needed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.fix_server_process import environment
from tests.lasting_ports import lasting_port
from tests.spark.streams import fill
from tests.spark.test_sink import messages

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = """
import sys
from pyspark.sql import SparkSession

url, name, *remote = sys.argv[1:]
builder = SparkSession.builder
spark = (builder.remote(remote[0]) if remote else builder).getOrCreate()
assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
rows = spark.read.format("jetstream").options(servers=url, stream=name).load()
some = rows.where(f"sequence > 2 and subject = '{name}.new' and timestamp > date'2000-01-01'")
assert sorted(row.sequence for row in some.collect()) == [3, 4, 5]
again = some.selectExpr("subject", "concat('again ', cast(data AS string)) AS data")
again.write.format("jetstream").mode("append").options(servers=url, stream=name).save()
follow = spark.readStream.format("jetstream").options(servers=url, stream=name)
follow = follow.option("startingOffsets", "earliest").load()
query = follow.writeStream.format("memory").queryName("followed").trigger(availableNow=True).start()
query.awaitTermination()
assert spark.table("followed").count() == 8
pushing = spark.read.format("jetstream").options(servers=url, stream=name, pushFilters=True)
try:
    pushing.load().where("sequence = 1").count()
except Exception as error:
    assert "filterPushdown.enabled" in str(error), error
else:
    raise AssertionError("Spark's default has no pushdown")
spark.stop()
"""


def stock_environment() -> dict[str, str]:
    """What Spark's own scripts need, and nothing that Slipstream's session would set."""
    made = dict(environment())
    made["SPARK_HOME"] = str(SPARK_HOME)
    made["SPARK_LOCAL_IP"] = "127.0.0.1"
    made["PYSPARK_PYTHON"] = sys.executable
    return made


def run_program(url: str, words: list[str]) -> None:
    """Run the program on a stream of five messages, and look at what it has written."""
    name = fill(url, 5)
    words = [url if word == "URL" else name if word == "NAME" else word for word in words]
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=800, env=stock_environment()
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert [m.data for m in messages(url, name)][5:] == [b"again 2", b"again 3", b"again 4"]


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The path of the program, for scripts that run files."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_plain_session_reads_follows_and_writes(jetstream_url: str, program: str) -> None:
    run_program(jetstream_url, [sys.executable, program, "URL", "NAME"])


def test_a_cluster_reads_follows_and_writes_by_spark_submit(
    jetstream_url: str, program: str
) -> None:
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    cluster = ["--master", "local-cluster[1,2,1024]", "--driver-memory", "1g"]
    run_program(jetstream_url, [submit, *cluster, program, "URL", "NAME"])


@pytest.fixture
def stock_connect_server(tmp_path: Path) -> Iterator[str]:
    """The URL of a Connect server that Spark's own script has started."""
    port = lasting_port()
    made = stock_environment() | {
        "SPARK_LOG_DIR": str(tmp_path / "logs"),
        "SPARK_PID_DIR": str(tmp_path),
        "SPARK_NO_DAEMONIZE": "1",
    }
    script = str(SPARK_HOME / "sbin" / "start-connect-server.sh")
    words = [script, "--conf", f"spark.connect.grpc.binding.port={port}"]
    log = tmp_path / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            words, env=made, stdout=out, stderr=out, cwd=tmp_path, start_new_session=True
        )
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def test_a_connect_server_started_by_sparks_script_reads_follows_and_writes(
    jetstream_url: str, program: str, stock_connect_server: str
) -> None:
    run_program(jetstream_url, [sys.executable, program, "URL", "NAME", stock_connect_server])
