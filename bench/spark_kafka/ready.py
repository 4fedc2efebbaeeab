"""A source and a sink in Python that do nothing: the limit of any other one in these sessions.

The source hands out one Arrow batch that is made once in each task, with the columns of a stream;
its streaming reads have so many rows for each of their offsets, or one row each 50 ms. The sink
takes the batches that Spark brings, and drops them.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BATCH_ROWS = 16_384
TASKS = 2
PACE_SECONDS = 0.05


class Rows(InputPartition):
    """So many rows; `begin` is the time of the first one, if each 50 ms brings one."""

    def __init__(self, count: int, begin: float = 0.0) -> None:
        self.count = count
        self.begin = begin


class Ready(DataSource):
    """``format("ready")``, with the options `columns`, `rows`, and `perTrigger` or `paced`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return self.options["columns"]

    def reader(self, schema: "StructType") -> DataSourceReader:
        return Reader(schema, int(self.options["rows"]))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        options = self.options  # whose keys may have any case, unlike those of a plain dict
        per_trigger = int(options.get("perTrigger", "0"))
        return StreamReader(schema, int(options["rows"]), per_trigger, "paced" in options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceArrowWriter:
        return Writer()


class Reader(DataSourceReader):
    """All rows, in two parts."""

    def __init__(self, schema: "StructType", rows: int) -> None:
        self._schema = schema
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [Rows(self._rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return batches(self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are rows: those that there are, or those whose time has come."""

    def __init__(self, schema: "StructType", rows: int, per_trigger: int, is_paced: bool) -> None:
        self._schema = schema
        self._rows = rows
        self._limit = per_trigger
        self._begin = time.time() if is_paced else 0.0

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        end = self._rows
        if self._begin:
            end = int((time.time() - self._begin) / PACE_SECONDS)
        if isinstance(limit, ReadMaxRows):
            begin = 0 if start is None else start["row"]  # Spark names none before the first batch
            end = min(end, begin + limit.max_rows)
        return {"row": end}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        rows = end["row"] - start["row"]
        if self._begin:
            return [Rows(rows, self._begin + (start["row"] + 1) * PACE_SECONDS)]
        return [Rows(rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return batches(self._schema, partition)


class Writer(DataSourceArrowWriter):
    """Drops what it is brought."""

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def batches(schema: "StructType", rows: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
    """The rows of a part."""
    assert isinstance(rows, Rows)
    bodies = [b"x" * 200] * min(rows.count, BATCH_ROWS)
    if rows.begin:
        bodies = [b"%r" % (rows.begin + n * PACE_SECONDS) for n in range(len(bodies))]
    batch = _batch(schema, bodies)
    left = rows.count
    while left > 0:
        yield batch.slice(0, left)
        left -= BATCH_ROWS


def _batch(schema: "StructType", bodies: list[bytes]) -> "pyarrow.RecordBatch":
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    n = len(bodies)
    made = {
        "stream": ["filled"] * n,
        "subject": [f"filled.k{row % 16}" for row in range(n)],
        "sequence": list(range(n)),
        "timestamp": list(range(n)),
        "timestamp_ns": list(range(n)),
        "headers": [{}] * n,
        "data": bodies,
    }
    wanted = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(made[field.name], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class ReadySide:
    """See `sides.Side`."""

    has_exactly_once = False

    def __init__(self, spark: "SparkSession", rows: int) -> None:
        self._spark = spark
        self._rows = rows
        self._written: dict[str, DataFrame] = {}
        spark.dataSource.register(Ready)

    def make(self, name: str) -> None:
        """Nothing is kept."""

    def drop(self, name: str) -> None:
        """Nothing is kept."""

    def write(self, frame: "DataFrame", name: str, *, exact: bool = False) -> None:
        """Have Spark bring the rows."""
        frame.write.format("ready").mode("append").save()
        self._written[name] = frame

    def table(self, name: str, *, few: bool = False) -> "DataFrame":
        """All rows; of what was written, which is gone, those that were."""
        if name in self._written:
            return self._written[name]
        columns = ["data", "sequence", "timestamp"] if few else []
        return self._spark.read.format("ready").options(**self._options(columns)).load()

    def follow(self, name: str, per_trigger: int = 0) -> "DataFrame":
        """All rows, so many at a time, or a row each 50 ms."""
        options = self._options([])
        options |= {"perTrigger": str(per_trigger)} if per_trigger else {"paced": "yes"}
        return self._spark.readStream.format("ready").options(**options).load()

    def _options(self, columns: list[str]) -> dict[str, str]:
        """Those of a read of some columns of a stream, by default all."""
        from slipstream.spark.source.rows import DEFAULT_COLUMNS, schema_text  # not in the workers

        return {
            "columns": schema_text(columns or list(DEFAULT_COLUMNS)),
            "rows": str(self._rows),
        }

    def publisher(self, name: str) -> "Callable[[bytes], object]":
        """The source makes its rows itself."""
        return lambda body: None

    def close(self) -> None:
        """There is nothing to end."""
