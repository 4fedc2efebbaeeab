"""The source in bad weather: servers that die, messages that go, streams that are replaced."""

import contextlib
import io
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import slipstream.sync
from tests.fix_server_process import start_process
from tests.spark.gates import Gate, GatedSource
from tests.spark.streams import add, fill, finish, follow, read, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _lose_by_age(js: Any, name: str) -> None:
    js.stream(name).update(max_age=0.2, duplicate_window=0.1)
    while js.stream_info(name).state.messages:
        time.sleep(0.02)


def _lose_by_limit(js: Any, name: str) -> None:
    js.stream(name).update(max_msgs=2)


def _lose_by_purge(js: Any, name: str) -> None:
    js.stream(name).purge()


@pytest.mark.parametrize("lose", [_lose_by_age, _lose_by_limit, _lose_by_purge])
def test_messages_that_go_before_they_are_read_are_a_loss_with_its_range(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path, lose: Any
) -> None:
    name = fill(jetstream_url, 5)
    finish(follow(spark, jetstream_url, name, tmp_path))
    add(jetstream_url, name, range(5, 10))
    with slipstream.sync.connect(jetstream_url) as nc:
        lose(nc.jetstream(), name)
    with pytest.raises(Exception, match=r"sequences 6 to (10|8) \([53]\) expired.*failOnDataLoss"):
        finish(follow(spark, jetstream_url, name, tmp_path))
    finish(follow(spark, jetstream_url, name, tmp_path, failOnDataLoss=False))
    left = [8, 9] if lose is _lose_by_limit else []
    assert stored(spark, tmp_path) == [0, 1, 2, 3, 4, *left]


def test_a_stream_that_is_made_anew_is_noticed(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name = fill(either_url, 5)
    finish(follow(spark, either_url, name, tmp_path))
    with slipstream.sync.connect(either_url) as nc:
        js = nc.jetstream()
        js.delete_stream(name)
        js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    add(either_url, name, range(100, 110))
    with pytest.raises(Exception, match="deleted and made anew"):
        finish(follow(spark, either_url, name, tmp_path))
    finish(follow(spark, either_url, name, tmp_path, failOnDataLoss=False))
    assert stored(spark, tmp_path) == [*range(5), *range(100, 110)]


def test_deleted_messages_are_holes_and_no_loss(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 100)
    with slipstream.sync.connect(jetstream_url) as nc:
        stream = nc.jetstream().stream(name)
        for sequence in range(2, 101):
            if sequence % 10:
                stream.delete_message(sequence)
    progress = finish(follow(spark, jetstream_url, name, tmp_path, maxMessagesPerTrigger=4))
    assert [p["numInputRows"] for p in progress] == [4, 4, 3]
    assert stored(spark, tmp_path) == [0, *range(9, 100, 10)]


def test_acknowledged_work_is_no_loss(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 3, retention="workqueue")
    finish(follow(spark, jetstream_url, name, tmp_path))
    add(jetstream_url, name, range(3, 6))
    with slipstream.sync.connect(jetstream_url) as nc:
        consumer = nc.jetstream().stream(name).create_consumer(durable_name="worker")
        for message in consumer.fetch(5, timeout=2):
            message.ack_sync()
    finish(follow(spark, jetstream_url, name, tmp_path))
    assert stored(spark, tmp_path) == [0, 1, 2, 5]


def test_two_queries_on_one_stream_do_not_disturb_each_other(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 30)
    queries = [
        follow(spark, jetstream_url, name, tmp_path / kind, maxMessagesPerTrigger=15)
        for kind in ("one", "two")
    ]
    for query in queries:
        finish(query)
    assert stored(spark, tmp_path / "one") == list(range(30))
    assert stored(spark, tmp_path / "two") == list(range(30))


def test_a_query_that_ends_between_read_and_commit_reads_the_same_rows_again(
    spark: "SparkSession", jetstream_url: str, tmp_path: Path
) -> None:
    name = fill(jetstream_url, 10)
    seen: list[tuple[int, list[int]]] = []

    def take(rows: "DataFrame", batch: int) -> None:
        seen.append((batch, sorted(r.sequence for r in rows.collect())))
        if len(seen) == 1:
            raise RuntimeError("the power failed")

    def run() -> None:
        reader = spark.readStream.format("jetstream").option("servers", jetstream_url)
        rows = reader.option("stream", name).option("startingOffsets", "earliest").load()
        writer = rows.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(Exception, match="the power failed"):
        run()
    add(jetstream_url, name, range(10, 15))
    run()
    assert seen == [(0, list(range(1, 11))), (0, list(range(1, 11))), (1, list(range(11, 16)))]


def test_messages_that_expire_under_a_reader_are_a_loss_with_its_range(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    spark.dataSource.register(GatedSource)
    name = fill(either_url, 3000)
    found: dict[bool, Any] = {}

    def count(fail: bool) -> None:
        reader = spark.read.format("gated").options(servers=either_url, stream=name)
        reader = reader.options(minPartitions=1, fetchMessages=100, failOnDataLoss=fail)
        try:
            found[fail] = reader.option("gate", str(tmp_path / str(fail))).load().count()
        except Exception as error:
            found[fail] = str(error)

    readers = [threading.Thread(target=count, args=[fail]) for fail in (True, False)]
    for one in readers:
        one.start()
    for fail in (True, False):
        Gate(tmp_path / str(fail)).wait()
    with slipstream.sync.connect(either_url) as nc:
        _lose_by_age(nc.jetstream(), name)
    for fail in (True, False):
        Gate(tmp_path / str(fail)).open()
    for one in readers:
        one.join()
    lost = re.search(r"sequences (\d+) to 3000 \((\d+)\) expired", found[True])
    assert lost, found
    assert int(lost[1]) + int(lost[2]) == 3001
    assert 100 <= found[False] < 3000


def test_an_empty_stream_is_followed_from_its_first_message_on(
    spark: "SparkSession", either_url: str, tmp_path: Path
) -> None:
    name = fill(either_url, 0)
    assert finish(follow(spark, either_url, name, tmp_path, startingOffsets="latest")) == []
    add(either_url, name, range(3))
    finish(follow(spark, either_url, name, tmp_path))
    assert stored(spark, tmp_path) == [0, 1, 2]


def test_a_schema_that_does_not_fit_names_the_column_and_its_type(
    spark: "SparkSession", jetstream_url: str
) -> None:
    reader = spark.read.format("jetstream").options(servers=jetstream_url, stream="S")
    with pytest.raises(Exception, match="column sequence is bigint, and the schema says string"):
        reader.schema("sequence string").load().count()
    with pytest.raises(Exception, match="there is no column 'price'; there are stream, subject"):
        reader.schema("price double").load().count()


def test_secrets_are_in_no_plan_progress_checkpoint_or_error(
    spark: "SparkSession", tmp_path: Path
) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"), "--user", "ada", "--pass", "hunter2hunter2")
    server = start_process(tmp_path / "server", *flags)
    secrets = {"user": "ada", "password": "hunter2hunter2"}
    try:
        url = server.url.replace("//", "//ada:hunter2hunter2@")
        name = fill(url, 3)
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            read(spark, server.url, name, **secrets).explain(True)
            read(spark, url, name).explain("formatted")
            following = spark.readStream.format("jetstream").options(stream=name, **secrets)
            following = following.options(servers=url, nkeySeed="SUhunter2", token="hunter2")
            following.load().explain(True)
        query = follow(spark, server.url, name, tmp_path / "by-option", **secrets)
        finish(query)
        other = follow(spark, url, name, tmp_path / "by-url")
        finish(other)
        told.write(f"{query.lastProgress} {other.lastProgress} {server.log}")
        for path in [*(tmp_path / "by-option").rglob("*"), *(tmp_path / "by-url").rglob("*")]:
            told.write(path.read_bytes().decode(errors="replace") if path.is_file() else "")
        assert "BatchScan jetstream" in told.getvalue()
        assert "hunter2" not in told.getvalue()
    finally:
        server.kill()


def test_wrong_credentials_are_refused_and_never_shown(
    spark: "SparkSession", tmp_path: Path
) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"), "--user", "ada", "--pass", "right")
    server = start_process(tmp_path / "server", *flags)
    try:
        with pytest.raises(Exception, match=r"(?i)authori[sz]ation") as caught:
            read(spark, server.url, "S", user="ada", password="tr0ub4dor").count()
        assert "tr0ub4dor" not in str(caught.value)
    finally:
        server.kill()
