"""A stream in an Apache Iceberg table that Spark itself writes, each message exactly once.

orders = table_source(spark, "lake.streams.orders", "ORDERS", servers=url)
write_table(decoded, "lake.streams.orders", stream="ORDERS", checkpoint="s3://...").awaitTermination()

The table says how far the stream is in it, as those of `slipstream.tables` do: the snapshot with
the rows has the sequence up to which all is there. A micro-batch leaves out what the table has
already, be it that it is run again after a kill, that its checkpoint was lost, or that another
query was faster. What a micro-batch covers is read from its checkpoint, where Spark has written it
down before it ran it. How a commit is made: `iceberg_commits`.

Needs Iceberg's runtime for Spark in the session (docs/tables.md).
"""

import json
import re
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as f

from slipstream.client.jetstream.api import new_name
from slipstream.errors import ConfigError
from slipstream.model.times import datetime_text, text_ns
from slipstream.spark.checkpoints import Reading, readings_in
from slipstream.spark.connections import connect, jetstream, patiently, wait_for
from slipstream.spark.options import ServerOptions, SourceOptions, parse
from slipstream.spark.parts.iceberg_commits import Head, IcebergTable, quoted, said
from slipstream.tables.errors import OtherWriterError, StreamReplacedError, TableError
from slipstream.tables.positions import PREFIX, Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from slipstream.client.jetstream import StreamInfo

_Option = bool | float | int | str | None
_TRIES_MAX = 50
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_COLUMNS = {
    "stream": "_stream",
    "subject": "_subject",
    "sequence": "_sequence",
    "timestamp": "_time",
    "headers": "_headers",
}
_NEEDED = ("stream", "subject", "sequence", "timestamp")
_LEFT_OUT = ("timestamp_ns",)  # Iceberg's times are in microseconds
_TRANSFORMS = {"hour": "hours(_time)", "day": "days(_time)", "month": "months(_time)", "none": ""}
# Each micro-batch writes metadata twice.
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def table_source(
    spark: "SparkSession", table: str, stream: str, *, begin_anew: bool = False, **source: _Option
) -> "DataFrame":
    """The streaming source of a stream that begins where the table ends.

    Where a query has a checkpoint, that says where it begins. `begin_anew`: if the stream was made
    anew since, it begins with its first message. `source` are options of the source. Raises
    `ConfigError`, `PositionLostError`, `StreamReplacedError`.
    """
    name = table_name(spark, table)
    position = (
        IcebergTable(spark, name).head().position_of(stream) if _exists(spark, name) else None
    )
    options: dict[str, _Option] = {"stream": stream, "startingOffsets": "earliest", **source}
    if position is not None:
        asked = parse(SourceOptions, {key: str(value) for key, value in options.items()})
        if not _is_anew(stream, position, asked, begin_anew):
            options["startingOffsets"] = json.dumps({stream: position.sequence + 1})
    return spark.readStream.format("jetstream").options(**options).load()


def _is_anew(stream: str, position: Position, options: ServerOptions, begin_anew: bool) -> bool:
    """Whether the stream was made anew since. Raises `StreamReplacedError` unless asked for."""

    async def ask() -> "StreamInfo":
        async with await connect(options, "spark-table", patient=True) as connection:
            return await jetstream(connection, options).stream_info(stream)

    info = wait_for(patiently(ask, options))
    now = datetime_text(info.created) if info.created is not None else ""
    if now == position.created and info.state.last_seq >= position.sequence:
        return False
    if now != position.created and begin_anew:
        return True
    raise StreamReplacedError(
        f"stream {stream} was made at {now} and ends at {info.state.last_seq}; the table was "
        f"written from the one of {position.created}, up to sequence {position.sequence}. To add "
        "a stream that was made anew, begin anew (begin_anew=True); or choose another table"
    )


def write_table(
    rows: "DataFrame",
    table: str,
    *,
    stream: str,
    checkpoint: str,
    partition: Literal["hour", "day", "month", "none"] = "day",
    begin_anew: bool = False,
    **trigger: str | bool,
) -> "StreamingQuery":
    """A query that writes the rows of a streaming source into an Iceberg table, exactly once.

    The rows have the source's columns `stream`, `subject`, `sequence` and `timestamp`, and any
    others. Table, and columns that it lacks, are made. `trigger` is as for
    `DataStreamWriter.trigger`; the default takes what is there and ends. Raises `ConfigError`,
    `TableError`; the query fails with `OtherWriterError` when another one has taken the stream
    over, and with `StreamReplacedError` if the stream is not the one that the table has: with
    `begin_anew`, one that was made anew is added from its first message.
    """
    spark = rows.sparkSession
    name = table_name(spark, table)
    schema = _columns_of(rows)
    _make(spark, name, schema, partition)
    batches = TableBatches(name, stream, checkpoint, begin_anew=begin_anew)
    writer = rows.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint)
    when: dict[str, str | bool] = trigger or {"availableNow": True}
    return writer.trigger(**when).start()  # type: ignore[arg-type]  # its keywords have types each


def keep_position(spark: "SparkSession", table: str) -> None:
    """Say once more how far streams are in a table, if its newest snapshot does not.

    For after rewrites, before snapshots expire: what says it may be one of those. Raises
    `PositionLostError`, `TableError`.
    """
    found = IcebergTable(spark, table_name(spark, table))
    branch = f"{PREFIX}.{new_name()}"  # no stream has no name
    try:
        for _ in range(_TRIES_MAX):
            head = found.head()
            if head.is_ours:
                return
            nothing = spark.table(found.quoted).where("false")
            if found.commit(head, nothing, head.ours, branch) is not None:
                return
    finally:
        found.drop_if_possible(branch)
    raise TableError(f"table {found.name}: other programs keep committing; try again")


class TableBatches:
    """Writes the micro-batches of a query; what `foreachBatch` is given.

    On Spark Connect it is sent to the server, and lives there with the query.
    """

    def __init__(
        self, name: tuple[str, ...], stream: str, checkpoint: str, *, begin_anew: bool
    ) -> None:
        self._name = name
        self._stream = stream
        self._checkpoint = checkpoint
        self._begin_anew = begin_anew
        self._writer = new_name()
        self._branch = f"{PREFIX}{stream}.{self._writer}"
        self._head: Head | None = None  # after our last commit, if we know it
        self._has_written = False

    def __call__(self, batch: "DataFrame", number: int) -> None:
        """Write a micro-batch, but for what the table has already."""
        table = IcebergTable(batch.sparkSession, self._name)
        reading = self._reading(batch.sparkSession, number)
        head, self._head = self._head, None
        for _ in range(_TRIES_MAX):
            if head is None:
                head = self._look(table)
                self._check_start(batch.sparkSession, number, head)
            position = self._begin(table, head, reading)
            if reading.next - 1 <= position.sequence:
                self._head = head
                return
            to = Position(reading.created, reading.next - 1, self._writer, position.lost)
            rows = _as_in_table(batch.where(f.col("sequence") > position.sequence))
            head = table.commit(head, rows, head.ours | to.properties(self._stream), self._branch)
            if head is not None:
                self._head = head
                self._has_written = True
                return
        raise TableError(
            f"table {table.name}: other programs commit to it faster than a micro-batch is "
            "written; have streams that are written often in tables of their own"
        )

    def _look(self, table: IcebergTable) -> Head:
        """The table as it is. Before our first commit, branches of earlier writers are removed."""
        head = table.head()
        if not self._has_written:
            for branch in head.branches:
                if branch.startswith(f"{PREFIX}{self._stream}.") and branch != self._branch:
                    table.drop_if_possible(branch)
        return head

    def _reading(self, spark: "SparkSession", number: int) -> Reading:
        """How far a micro-batch reads, as its checkpoint has it. Raises `ConfigError`."""
        path = f"{self._checkpoint.rstrip('/')}/offsets/{number}"
        escaped = re.sub(r"([\[\]{}*?\\])", r"\\\1", path)
        (row,) = spark.read.text(escaped, wholetext=True).collect()
        found = readings_in(row.value)
        if [reading.stream for reading in found] != [self._stream]:
            names = ", ".join(reading.stream for reading in found) or "none"
            raise ConfigError(
                f"write_table: the query reads the streams {names}, and stream is "
                f"{self._stream!r}; a query writes one stream into a table"
            )
        return found[0]

    def _begin(self, table: IcebergTable, head: Head, reading: Reading) -> Position:
        """The position after which rows are written. Raises `OtherWriterError` and
        `StreamReplacedError`."""
        found = head.position_of(self._stream)
        if found is None:
            return Position(reading.created)
        if self._has_written and found.writer != self._writer:
            raise OtherWriterError(
                f"table {table.name}: another writer has taken stream {self._stream} over and "
                f"stands at {found.sequence}. One writer for a stream and table is enough; this "
                "one has written nothing twice, and ends"
            )
        if found.created == reading.created:
            return found
        if self._begin_anew and text_ns(reading.created) > text_ns(found.created):
            return Position(reading.created, lost=found.lost)
        raise StreamReplacedError(
            f"table {table.name} was written from the stream {self._stream} of {found.created}, up "
            f"to sequence {found.sequence}; the query reads the one of {reading.created}. To add "
            "a stream that was made anew, begin anew (begin_anew=True, and another checkpoint); or "
            "choose another table"
        )

    def _check_start(self, spark: "SparkSession", number: int, head: Head) -> None:
        """Raise `TableError` if the query's checkpoint is ahead of the table."""
        if self._has_written or number == 0:
            return
        before = self._reading(spark, number - 1)
        found = head.position_of(self._stream)
        sequence = 0 if found is None or found.created != before.created else found.sequence
        if before.next - 1 > sequence and (found is None or found.created == before.created):
            raise TableError(
                f"the table has stream {self._stream} up to sequence {sequence}, and the query's "
                f"checkpoint goes on after {before.next - 1}: is it that of another table, or was "
                "the table rolled back? Take another checkpoint, and table_source for the rows"
            )


def table_name(spark: "SparkSession", table: str) -> tuple[str, ...]:
    """Catalog, namespace and name of a table. Raises `ConfigError` if the session lacks Iceberg."""
    parts = tuple(table.split("."))
    if not all(parts) or len(parts) < 2:
        raise ConfigError(f"table {table!r}: a name is like lake.sales.orders, catalog first")
    conf = spark.conf
    if conf.get(f"spark.sql.catalog.{parts[0]}", None) is None:
        current = str(spark.catalog.currentCatalog())
        if conf.get(f"spark.sql.catalog.{current}", None) is None:
            raise _no_runtime(spark, f"the session has no catalog {parts[0]}", parts[0])
        parts = (current, *parts)
    if _EXTENSIONS not in (conf.get("spark.sql.extensions", None) or ""):
        raise _no_runtime(spark, "the session lacks Iceberg's SQL extensions", parts[0])
    if len(parts) < 3:
        raise ConfigError(f"table {table!r}: a name is like lake.sales.orders, catalog first")
    return parts


def _no_runtime(spark: "SparkSession", what: str, catalog: str) -> ConfigError:
    minor = ".".join(str(spark.version).split(".")[:2])
    return ConfigError(
        f"{what}. Writing Iceberg tables by Spark needs the package "
        f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:<version of Iceberg> "
        "(spark.jars.packages; if there is none for this version of Spark, take a Spark that has "
        f"one), spark.sql.extensions={_EXTENSIONS} and the settings of a catalog: "
        f"spark.sql.catalog.{catalog}=org.apache.iceberg.spark.SparkCatalog, "
        f"spark.sql.catalog.{catalog}.type (rest, hive, jdbc, hadoop ...) and "
        f"spark.sql.catalog.{catalog}.uri or .warehouse"
    )


def _exists(spark: "SparkSession", name: tuple[str, ...]) -> bool:
    """Whether a table is there. Raises `ConfigError` if Iceberg is not, or does not fit."""
    try:
        return bool(spark.catalog.tableExists(".".join(quoted(part) for part in name)))
    except Exception as error:
        raise _no_runtime(
            spark, f"catalog {name[0]} does not work: {said(error)}", name[0]
        ) from error


def _columns_of(rows: "DataFrame") -> "StructType":
    """The columns that the table has for these rows. Raises `ConfigError`."""
    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing or not rows.isStreaming:
        raise ConfigError(
            "write_table: rows are those of a streaming source of jetstream, with its columns "
            f"{', '.join(_NEEDED)}; missing: {', '.join(missing) or 'readStream'}"
        )
    return _as_in_table(rows).schema


def _as_in_table(rows: "DataFrame") -> "DataFrame":
    """The rows with the table's names of columns."""
    return rows.select(
        *(
            f.col(quoted(name)).alias(_COLUMNS.get(name, name))
            for name in rows.columns
            if name not in _LEFT_OUT
        )
    )


def _make(
    spark: "SparkSession", name: tuple[str, ...], schema: "StructType", partition: str
) -> None:
    """Make the table, or the columns that it lacks. Raises `ConfigError`, `TableError`."""
    if partition not in _TRANSFORMS:
        raise ConfigError(
            f"write_table: partition is {partition!r}; there are {', '.join(_TRANSFORMS)}"
        )
    table = IcebergTable(spark, name)
    columns = {
        field.name: f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema
    }
    try:
        if not _exists(spark, name):
            namespace = ".".join(quoted(part) for part in name[:-1])
            table.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            by = f"PARTITIONED BY ({_TRANSFORMS[partition]})" if _TRANSFORMS[partition] else ""
            properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
            table.sql(
                f"CREATE TABLE IF NOT EXISTS {table.quoted} ({', '.join(columns.values())}) "
                f"USING iceberg {by} TBLPROPERTIES ({properties})"
            )
        have = {column.casefold() for column in spark.table(table.quoted).columns}
        lacking = [_COLUMNS[name] for name in _NEEDED if _COLUMNS[name] not in have]
        if lacking:
            raise TableError(
                f"table {table.name} was not made from a stream: it has no column "
                f"{', '.join(lacking)}. Choose another name"
            )
        added = [text for column, text in columns.items() if column.casefold() not in have]
        if added:
            table.sql(f"ALTER TABLE {table.quoted} ADD COLUMNS ({', '.join(added)})")
    except (ConfigError, TableError):
        raise
    except Exception as error:
        raise TableError(f"table {table.name}: making it failed: {said(error)}") from error
