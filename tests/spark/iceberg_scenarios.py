"""What Spark's writer of Iceberg tables promises, tried in one session with Iceberg's runtime.

Run as a program it tries all scenarios and prints what has become of each: Iceberg wants a session
of its own, and there is one session for a process.
"""

import asyncio
import json
import shutil
import sys
import traceback
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import functions as f

import slipstream
import slipstream.spark
import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark.parts import iceberg
from slipstream.spark.parts.iceberg_commits import IcebergTable
from slipstream.tables import TableWriter, history_and_tail, stream_table
from slipstream.tables.errors import PositionLostError, StreamReplacedError, TableError
from slipstream.tables.iceberg import position_of
from tests.spark.iceberg_catalog import rest_catalog, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_SECONDS = 240


class Place:
    """A stream of its own and a table for it."""

    def __init__(self, spark: "SparkSession", catalog: Catalog, url: str, folder: Path) -> None:
        self.spark, self.catalog, self.url = spark, catalog, url
        self.folder = folder
        self.stream = "S" + uuid.uuid4().hex[:12]
        self.name = self.stream.lower()
        self.table = f"lake.streams.{self.name}"
        self.make_stream()

    def make_stream(self) -> None:
        """Make the stream, anew if it is there."""
        with slipstream.sync.connect(self.url) as nc:
            js = nc.jetstream()
            if self.stream in [found.config.name for found in js.streams()]:
                js.delete_stream(self.stream)
            js.create_stream(name=self.stream, subjects=[f"{self.stream}.>"], allow_direct=True)

    def publish(self, numbers: Iterable[int]) -> None:
        """Messages with these numbers."""
        with slipstream.sync.connect(self.url) as nc:
            js = nc.jetstream()
            for number in numbers:
                js.publish_async(f"{self.stream}.x", json.dumps({"n": number}))
            js.publish_async_complete()

    def source(self, **options: Any) -> "DataFrame":
        """The rows that the table lacks, decoded."""
        rows = iceberg.table_source(
            self.spark, self.table, self.stream, servers=self.url, **options
        )
        return decoded(rows)

    def start(
        self, rows: "DataFrame | None" = None, checkpoint: str = "a", **more: Any
    ) -> "StreamingQuery":
        """Begin to write."""
        rows = self.source() if rows is None else rows
        path = str(self.folder / self.stream / checkpoint)
        return iceberg.write_table(rows, self.table, stream=self.stream, checkpoint=path, **more)

    def write(self, rows: "DataFrame | None" = None, **more: Any) -> None:
        """Write what is there. Raises what the query fails of."""
        query = self.start(rows, **more)
        assert query.awaitTermination(WAIT_SECONDS), query.status

    def forget(self, *checkpoint: str) -> None:
        """Remove a file of a checkpoint, or all of it."""
        path = self.folder.joinpath(self.stream, *(checkpoint or ("a",)))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def numbers(self, stream: str | None = None) -> list[int]:
        """Those in the table, of a stream, as pyiceberg reads it."""
        rows = self.catalog.load_table(f"streams.{self.name}").scan().to_arrow()
        wanted = stream or self.stream
        return sorted(row["n"] for row in rows.to_pylist() if row["_stream"] == wanted)

    def sequence(self) -> int:
        """How far the stream is in the table."""
        found = position_of(self.catalog.load_table(f"streams.{self.name}"), self.stream)
        assert found is not None
        return found.sequence

    def sql(self, text: str) -> list[Any]:
        """What a statement of Spark gives; TABLE stands for the table's name."""
        return self.spark.sql(text.replace("TABLE_", self.table)).collect()


def decoded(rows: "DataFrame") -> "DataFrame":
    """The number of each message as a column `n`."""
    number = f.from_json(f.col("data").cast("string"), "n long").n.alias("n")
    return rows.select("stream", "subject", "sequence", "timestamp", number)


def a_stream_becomes_a_table_that_others_read(place: Place) -> None:
    place.publish(range(50))
    place.write()
    place.publish(range(50, 60))
    place.write()
    table = place.catalog.load_table(f"streams.{place.name}")
    assert [str(field.transform) for field in table.spec().fields] == ["day"]
    rows = table.scan().to_arrow().sort_by("_sequence")
    assert rows.column_names == ["_stream", "_subject", "_sequence", "_time", "n"]
    assert str(rows.schema.field("_time").type) == "timestamp[us, tz=UTC]"
    assert rows["_sequence"].to_pylist() == list(range(1, 61))
    assert set(rows["_subject"].to_pylist()) == {f"{place.stream}.x"}
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    found = duckdb.execute("SELECT n, _sequence FROM read_parquet(?) ORDER BY n", [files])
    assert found.fetchall() == [(n, n + 1) for n in range(60)]
    assert place.sequence() == 60


def history_and_tail_have_each_row_once(place: Place) -> None:
    place.publish(range(20))
    place.write()
    place.publish(range(20, 25))

    async def read() -> list[int]:
        async with await slipstream.connect(place.url) as nc:
            table = stream_table(place.catalog, place.name, place.stream)
            rows = await history_and_tail(nc.jetstream(), table, columns=["n"])
            return sorted(rows.read_all()["n"].to_pylist())

    assert asyncio.run(read()) == list(range(25))


def a_new_checkpoint_goes_on_where_the_table_ends(place: Place) -> None:
    place.publish(range(10))
    place.write()
    place.forget()
    place.publish(range(10, 20))
    place.write(place.source(startingOffsets="earliest"))
    assert place.numbers() == list(range(20))
    place.forget()
    place.publish(range(20, 30))
    place.write()
    assert place.numbers() == list(range(30))


def a_batch_that_is_run_again_adds_nothing(place: Place) -> None:
    place.publish(range(10))
    place.write()
    place.forget("a", "commits", "0")
    place.publish(range(10, 20))
    place.write()
    place.write()  # on Spark 4.1 the first one did no more than repeat the batch
    assert place.numbers() == list(range(20))


def a_column_that_comes_later_is_added(place: Place) -> None:
    place.publish(range(3))
    place.write(partition="none")
    assert not place.catalog.load_table(f"streams.{place.name}").spec().fields
    place.publish(range(3, 5))
    place.write(place.source().withColumn("Twice `it`", f.col("n") * 2))
    rows = place.catalog.load_table(f"streams.{place.name}").scan().to_arrow()
    assert sorted(rows["Twice `it`"].to_pylist(), key=str) == [6, 8, None, None, None]


def headers_and_bodies_are_columns_if_they_are_kept(place: Place) -> None:
    place.publish([7])
    source = place.spark.readStream.format("jetstream").option("startingOffsets", "earliest")
    place.write(source.options(servers=place.url, stream=place.stream).load())
    (row,) = place.catalog.load_table(f"streams.{place.name}").scan().to_arrow().to_pylist()
    assert row["data"] == b'{"n": 7}'
    assert list(row) == ["_stream", "_subject", "_sequence", "_time", "_headers", "data"]


class _Between:
    """Has something happen between a look at the table and the commit that goes by it."""

    def __init__(self, happens: Callable[[], None], times: int = 1) -> None:
        self._happens, self._left = happens, times
        self._commit = IcebergTable.commit

    def __enter__(self) -> None:
        def commit(table: IcebergTable, *words: Any) -> Any:
            if self._left:
                self._left -= 1
                self._happens()
            return self._commit(table, *words)

        IcebergTable.commit = commit  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        IcebergTable.commit = self._commit  # type: ignore[method-assign]


def of_two_queries_at_once_the_later_one_goes_on(place: Place) -> None:
    place.publish(range(10))
    rows = place.source()
    with _Between(lambda: place.write(place.source(), checkpoint="b")):
        place.write(rows)
    assert place.numbers() == list(range(10))

    query = place.start(rows, processingTime="0 seconds")
    place.publish(range(10, 15))
    query.processAllAvailable()
    with _Between(lambda: place.write(place.source(), checkpoint="c")):
        place.publish(range(15, 20))
        with pytest.raises(Exception, match=r"OtherWriterError.* another writer has taken"):
            query.processAllAvailable()
    assert place.numbers() == list(range(20))
    place.publish(range(20, 25))
    place.write(rows)
    place.write(rows)
    assert place.numbers() == list(range(25))


def an_append_that_others_have_overtaken_is_not_published(place: Place) -> None:
    place.publish(range(10))
    place.write()
    table = IcebergTable(place.spark, ("lake", "streams", place.name))
    head = table.head()
    rows = place.spark.table(table.quoted)
    place.publish([10])
    place.write()
    assert table.commit(head, rows, head.ours, "slipstream.late.1") is None
    assert place.numbers() == list(range(11))
    # also where its branch is removed, and Iceberg makes it anew, from main
    table.drop_if_possible("slipstream.late.1")
    made = IcebergTable.sql
    head = table.head()

    def sql(self: IcebergTable, text: str) -> Any:
        found = made(self, text)
        if "CREATE OR REPLACE BRANCH" in text:
            made(self, f"ALTER TABLE {self.quoted} DROP BRANCH `slipstream.late.2`")
            place.publish([11])
            IcebergTable.sql = made  # type: ignore[method-assign]
            place.write()
        return found

    IcebergTable.sql = sql  # type: ignore[method-assign]
    assert table.commit(head, rows, head.ours, "slipstream.late.2") is None
    assert place.numbers() == list(range(12))


def compactions_and_other_streams_in_between_are_no_conflict(place: Place) -> None:
    other = Place(place.spark, place.catalog, place.url, place.folder)
    other.table, other.name = place.table, place.name
    place.publish(range(5))
    place.write()
    place.publish(range(5, 10))
    place.write()

    def between() -> None:
        other.publish(range(100, 105))
        other.write()
        place.sql(
            f"CALL lake.system.rewrite_data_files(table => 'streams.{place.name}', "
            "options => map('rewrite-all', 'true'))"
        )

    place.publish(range(10, 20))
    rows = place.source()
    with _Between(between):
        place.write(rows)
    assert place.numbers() == list(range(20))
    assert other.numbers() == list(range(100, 105))
    assert (place.sequence(), other.sequence()) == (20, 5)
    other.forget()
    other.publish([105])
    other.write(other.source(startingOffsets="earliest"))
    assert other.numbers() == list(range(100, 106))


def a_writer_without_spark_and_this_one_take_turns(place: Place) -> None:
    async def write_without_spark() -> None:
        async with await slipstream.connect(place.url) as nc:
            table = stream_table(place.catalog, place.name, place.stream)
            await TableWriter(nc.jetstream(), table).write_all()

    place.publish(range(10))
    asyncio.run(write_without_spark())
    place.publish(range(10, 20))
    place.write()
    place.publish(range(20, 30))
    asyncio.run(write_without_spark())
    place.publish(range(30, 40))
    place.write()  # with the checkpoint of before
    assert place.numbers() == list(range(40))
    place.publish(range(40, 45))
    with _Between(lambda: asyncio.run(write_without_spark())):
        place.write()
    assert place.numbers() == list(range(45))


def a_stream_that_was_made_anew_is_refused_or_added(place: Place) -> None:
    place.publish(range(10))
    place.write()
    place.make_stream()
    place.publish(range(100, 105))
    with pytest.raises(StreamReplacedError, match="begin anew"):
        place.source()
    source = place.spark.readStream.format("jetstream").option("startingOffsets", "earliest")
    rows = decoded(source.options(servers=place.url, stream=place.stream).load())
    with pytest.raises(Exception, match=r"StreamReplacedError.* was written from the stream"):
        place.write(rows, checkpoint="b")
    place.write(place.source(begin_anew=True), checkpoint="c", begin_anew=True)
    # sequences 6 to 10 of the stream before are in the table: they stay, and are no hindrance
    place.publish(range(105, 120))
    place.write(place.source(begin_anew=True), checkpoint="c", begin_anew=True)
    place.forget("c")
    place.write(place.source(begin_anew=True), checkpoint="c", begin_anew=True)
    assert place.numbers() == [*range(10), *range(100, 120)]
    assert place.sequence() == 20


def a_position_outlasts_rewrites_and_if_it_is_kept_expiry(place: Place) -> None:
    for start in (0, 5):
        place.publish(range(start, start + 5))
        place.write()
    name = f"table => 'streams.{place.name}'"
    rewrite = f"CALL lake.system.rewrite_data_files({name}, options => map('rewrite-all', 'true'))"
    expire = f"CALL lake.system.expire_snapshots({name}, older_than => now(), retain_last => 1)"
    place.sql(rewrite)
    assert place.sequence() == 10
    iceberg.keep_position(place.spark, place.table)
    place.sql(expire)
    assert place.sequence() == 10
    place.publish(range(10, 12))
    place.write()
    assert place.numbers() == list(range(12))
    place.sql(rewrite)
    place.sql(rewrite)
    for branch in IcebergTable(place.spark, ("lake", "streams", place.name)).head().branches:
        if branch != "main":
            place.sql(f"ALTER TABLE TABLE_ DROP BRANCH `{branch}`")
    place.sql(expire)
    with pytest.raises(PositionLostError):
        place.source()


def a_checkpoint_that_is_ahead_of_the_table_is_refused(place: Place) -> None:
    place.publish(range(5))
    place.write()
    kept = IcebergTable(place.spark, ("lake", "streams", place.name)).head().snapshot
    place.publish(range(5, 10))
    place.write()
    place.sql(f"CALL lake.system.rollback_to_snapshot('streams.{place.name}', {kept})")
    place.publish(range(10, 15))
    with pytest.raises(Exception, match=r"checkpoint goes on after 10"):
        place.write()
    place.forget()
    place.write()
    assert place.numbers() == list(range(15))


def what_is_wrong_is_said_before_anything_is_read(place: Place) -> None:
    rows = place.source()
    conf = place.spark.conf
    package = r"org.apache.iceberg:iceberg-spark-runtime-\d\.\d_2.13:.*spark.sql.catalog.nope="
    with pytest.raises(ConfigError, match=package):
        iceberg.write_table(rows, "nope.a.b", stream=place.stream, checkpoint="c")
    conf.set("spark.sql.catalog.nope", "org.apache.iceberg.spark.NoSuchCatalog")
    with pytest.raises(ConfigError, match=r"does not work: .*NoSuchCatalog.*iceberg-spark-runtime"):
        iceberg.write_table(rows, "nope.a.b", stream=place.stream, checkpoint="c")
    with pytest.raises(ConfigError, match="missing: subject"):
        place.start(rows.drop("subject"))
    with pytest.raises(ConfigError, match="there are hour, day, month, none"):
        place.start(rows, partition="week")
    place.sql("CREATE TABLE lake.streams.plain (x long) USING iceberg")
    with pytest.raises(TableError, match="was not made from a stream: it has no column _stream"):
        iceberg.write_table(rows, "lake.streams.plain", stream=place.stream, checkpoint="c")
    place.publish([1])
    with pytest.raises(Exception, match=f"reads the streams {place.stream}, and stream is 'X'"):
        iceberg.write_table(
            rows, place.table, stream="X", checkpoint=str(place.folder / "x")
        ).awaitTermination()


SCENARIOS: dict[str, Callable[[Place], None]] = {
    scenario.__name__: scenario
    for scenario in (
        a_stream_becomes_a_table_that_others_read,
        history_and_tail_have_each_row_once,
        a_new_checkpoint_goes_on_where_the_table_ends,
        a_batch_that_is_run_again_adds_nothing,
        a_column_that_comes_later_is_added,
        headers_and_bodies_are_columns_if_they_are_kept,
        of_two_queries_at_once_the_later_one_goes_on,
        an_append_that_others_have_overtaken_is_not_published,
        compactions_and_other_streams_in_between_are_no_conflict,
        a_writer_without_spark_and_this_one_take_turns,
        a_stream_that_was_made_anew_is_refused_or_added,
        a_position_outlasts_rewrites_and_if_it_is_kept_expiry,
        a_checkpoint_that_is_ahead_of_the_table_is_refused,
        what_is_wrong_is_said_before_anything_is_read,
    )
}


def main() -> None:
    """Try the scenarios that are named, or all."""
    url, folder, package, *names = sys.argv[1:]
    with rest_catalog(Path(folder) / "kept") as (catalog_url, catalog):
        config = {
            "spark.jars.packages": package,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.catalog.lake.cache-enabled": "true",
            **settings(catalog_url),
        }
        spark = slipstream.spark.session("local[2]", config=config)
        spark.sparkContext.setLogLevel("OFF")
        for name in names or SCENARIOS:
            said = ""
            try:
                SCENARIOS[name](Place(spark, catalog, url, Path(folder)))
            except BaseException:
                said = traceback.format_exc()
            print(json.dumps({"name": name, "said": said}), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
