"""Queries on a group of three servers go on when its leader is killed or steps down.

No row is lost or doubled, and no task fails.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from slipstream.spark.sink.options import SinkOptions
from slipstream.spark.sink.writing import StreamSink, Task
from tests.spark.gates import Gate, GatedSource
from tests.spark.mortal_groups import HOW, MortalGroup
from tests.spark.streams import WAIT_SECONDS, add, fill
from tests.spark.test_killed import numbers_in, wait_for_rows
from tests.spark.test_sink import stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 3000
REPLICAS = {"num_replicas": 3}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalGroup]:
    """Three servers, of which a test may kill one at a time."""
    made = MortalGroup(tmp_path_factory.mktemp("group"))
    yield made
    made.end()


def gated(spark: "SparkSession", url: str, stream: str, gate: Gate, **options: Any) -> "DataFrame":
    """The rows of a stream; the first task stops after 200 of them."""
    spark.dataSource.register(GatedSource)
    reader = spark.readStream if options.pop("follow", False) else spark.read
    given = {"servers": url, "stream": stream, "gate": str(gate.directory), **options}
    given |= {"startingOffsets": "earliest", "minPartitions": 1, "fetchMessages": 200}
    return reader.format("gated").options(**given).load()


def failed_tasks(spark: "SparkSession", job_group: str) -> int:
    """How many attempts at tasks of these jobs have failed."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_group)]
    stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("by", ["direct gets", "a consumer"])
def test_a_batch_read_goes_on_when_the_leader_changes(
    spark: "SparkSession", group: MortalGroup, tmp_path: Path, how: str, by: str
) -> None:
    source, gate = fill(group.urls, COUNT, **REPLICAS), Gate(tmp_path / "gate")
    # Several filters are what direct gets do not know.
    only = {} if by == "direct gets" else {"subjects": f"{source}.new,{source}.old"}
    rows = gated(spark, group.urls, source, gate, **only)
    found: list[int] = []

    def read() -> None:
        spark.sparkContext.setJobGroup(source, "a read")
        found.extend(row.sequence for row in rows.select("sequence").collect())

    reading = threading.Thread(target=read)
    reading.start()
    gate.wait()
    group.change_leader(how)
    gate.open()
    reading.join(WAIT_SECONDS)
    assert sorted(found) == list(range(1, COUNT + 1))


@pytest.mark.parametrize("how", HOW)
def test_a_query_copies_each_row_once_when_leaders_change_while_it_reads_and_writes(
    spark: "SparkSession", group: MortalGroup, tmp_path: Path, how: str
) -> None:
    source = fill(group.urls, COUNT, **REPLICAS)
    target = stream_of(group.urls, **REPLICAS)
    reading, writing = Gate(tmp_path / "reading"), Gate(tmp_path / "writing")
    rows = gated(spark, group.urls, source, reading, follow=True, maxMessagesPerTrigger=1000)
    copied = rows.selectExpr(f"'{target}.x' AS subject", "data")
    writer = copied.writeStream.format("gated").options(servers=group.urls, stream=target)
    writer = writer.options(gate=str(writing.directory), checkpointLocation=f"{tmp_path}/done")
    query = writer.trigger(availableNow=True).start()
    for gate in (reading, writing):
        gate.wait()
        group.change_leader(how)
        gate.open()
    assert query.awaitTermination(WAIT_SECONDS), query.status
    assert numbers_in(group.urls, target) == list(range(COUNT))
    assert failed_tasks(spark, query.runId) == 0


@pytest.mark.parametrize("how", HOW)
def test_micro_batches_go_on_when_the_leader_changes_between_them(
    spark: "SparkSession", group: MortalGroup, how: str
) -> None:
    source = fill(group.urls, 5, **REPLICAS)
    rows = spark.readStream.format("jetstream").options(servers=group.urls, stream=source)
    rows = rows.options(startingOffsets="earliest").load()
    query = rows.writeStream.format("memory").queryName(source).start()
    for end in (5, 10, 15):
        wait_for_rows(spark, query, source, end)
        group.change_leader(how)
        add(group.urls, source, range(end, end + 5))
    wait_for_rows(spark, query, source, 20)
    query.stop()
    assert sorted(int(row.data) for row in spark.table(source).collect()) == list(range(20))
    assert failed_tasks(spark, query.runId) == 0


# -- sinks -----------------------------------------------------------------------------------------

SCHEMA = StructType([StructField(name, StringType()) for name in ("subject", "data", "message_id")])


def numbered(stream: str, numbers: range) -> pa.RecordBatch:
    """A batch of rows with the numbers as data and as message ids."""
    texts = pa.array([str(number) for number in numbers])
    subjects = pa.array([f"{stream}.x"] * len(numbers))
    return pa.record_batch([subjects, texts, texts], names=["subject", "data", "message_id"])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mode", ["exactly-once", "deduplicated", "at-least-once"])
def test_a_task_that_writes_goes_on_when_leaders_change(
    group: MortalGroup, how: str, mode: str
) -> None:
    name = stream_of(group.urls, **REPLICAS)
    options = SinkOptions(servers=group.urls, stream=name, mode=mode)
    sink = StreamSink(SCHEMA, options, streaming=True)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if number in (7, 14):
                group.change_leader(how)
            yield numbered(name, range(number * 100, number * 100 + 100))

    sink.commit([sink.run(batches(), Task("q", 0, 0, "run"))])
    found = numbers_in(group.urls, name)
    if mode == "at-least-once":
        assert set(found) == set(range(2000))
    else:
        assert found == list(range(2000))
