"""What is killed, and just then: servers, workers, whole queries. No row is lost or doubled."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import slipstream.spark
from tests.fix_server_process import environment
from tests.spark.gates import Gate, GatedSource
from tests.spark.mortal_servers import MortalServer
from tests.spark.streams import WAIT_SECONDS, add, fill
from tests.spark.test_sink import messages, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def copy(
    spark: "SparkSession", url: str, source: str, target: str, checkpoint: Path, **options: Any
) -> "StreamingQuery":
    """Copy a stream into another one, exactly once; `gate_read` and `gate_write` stop it."""
    kinds = {}
    gates: dict[str, dict[str, Any]] = {"read": {}, "write": {}}
    for kind, given in gates.items():
        gate = options.pop(f"gate_{kind}", None)
        kinds[kind] = "gated" if gate else "jetstream"
        given.update({"gate": str(gate)} if gate else {})
    reader = spark.readStream.format(kinds["read"]).options(servers=url, stream=source)
    reader = reader.options(startingOffsets="earliest", minPartitions=1, fetchMessages=200)
    rows = reader.options(**gates["read"]).load()
    rows = rows.selectExpr(f"'{target}.x' AS subject", "data")
    writer = rows.writeStream.format(kinds["write"]).options(servers=url, stream=target)
    writer = writer.options(**gates["write"], **options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def numbers_in(url: str, stream: str) -> list[int]:
    """The numbers that a stream holds, sorted."""
    return sorted(int(message.data) for message in messages(url, stream))


def wait_for_rows(spark: "SparkSession", query: "StreamingQuery", table: str, count: int) -> None:
    """Poll until a query has put so many rows into its table; raises what it failed of."""
    deadline = time.monotonic() + WAIT_SECONDS
    while spark.table(table).count() < count:
        failure = query.exception()
        if failure is not None:
            raise failure
        assert time.monotonic() < deadline, query.status
        time.sleep(0.02)


def test_a_server_killed_under_its_readers_and_brought_back_costs_no_row(
    spark: "SparkSession", mortal_server: MortalServer, tmp_path: Path
) -> None:
    spark.dataSource.register(GatedSource)
    url, gate = mortal_server.url, Gate(tmp_path / "gate")
    large, small = fill(url, 3000), fill(url, 5)
    rows = spark.readStream.format("jetstream").options(servers=url, stream=small)
    rows = rows.options(startingOffsets="earliest", requestTimeout=1).load()
    waiting = rows.writeStream.format("memory").queryName(small).start()
    wait_for_rows(spark, waiting, small, 5)

    reader = spark.readStream.format("gated").options(
        servers=url, stream=large, gate=gate.directory
    )
    rows = reader.options(startingOffsets="earliest", minPartitions=1, fetchMessages=200).load()
    reading = rows.writeStream.format("memory").queryName(large).trigger(availableNow=True).start()
    gate.wait()
    mortal_server.kill()
    mortal_server.revive()
    gate.open()
    assert reading.awaitTermination(WAIT_SECONDS), reading.status
    assert sorted(r.sequence for r in spark.table(large).collect()) == list(range(1, 3001))

    add(url, small, range(5, 8))
    wait_for_rows(spark, waiting, small, 8)
    waiting.stop()
    assert sorted(int(r.data) for r in spark.table(small).collect()) == list(range(8))


def test_a_python_worker_killed_while_it_reads_or_writes_is_replaced(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    spark.dataSource.register(GatedSource)
    source, target = fill(jetstream_url, 1000), stream_of(jetstream_url)
    reading, writing = Gate(tmp_path / "reading"), Gate(tmp_path / "writing")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    query = copy(
        spark, jetstream_url, source, target, tmp_path / "checkpoint",
        gate_read=reading.directory, gate_write=writing.directory, writer="dying",
    )  # fmt: skip
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    os.kill(reading.wait(), signal.SIGKILL)
    assert query.awaitTermination(WAIT_SECONDS)
    assert not writing.is_first()
    assert numbers_in(jetstream_url, target) == list(range(1000))


def test_queries_killed_while_reading_and_between_write_and_commit_add_each_row_once(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    source = fill(jetstream_url, 1000)
    targets = [stream_of(jetstream_url), stream_of(jetstream_url)]
    words = [sys.executable, "-m", "tests.spark.test_killed", str(tmp_path), jetstream_url, source]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [*words, *targets], stdout=log, stderr=log, env=environment(), start_new_session=True
        )
    try:
        for kind in ("read", "write"):
            Gate(tmp_path / f"gate-{kind}").wait()
    except AssertionError:
        raise AssertionError((tmp_path / "log").read_text()) from None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert numbers_in(jetstream_url, targets[1]) == list(range(1000))  # written, and not committed
    add(jetstream_url, source, range(1000, 1010))
    for target in targets:
        query = copy(spark, jetstream_url, source, target, tmp_path / target)
        assert query.awaitTermination(WAIT_SECONDS)
        assert numbers_in(jetstream_url, target) == list(range(1010))


def main(directory: Path, url: str, source: str, *targets: str) -> None:
    """The driver that is killed: two queries, one that stops while it reads, one when it wrote."""
    config = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
    spark = slipstream.spark.session("local[2]", config=config)
    spark.dataSource.register(GatedSource)
    for kind, target in zip(("read", "write"), targets, strict=True):
        gate = {f"gate_{kind}": directory / f"gate-{kind}"}
        copy(spark, url, source, target, directory / target, **gate)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
