"""One DataFrame over a stream's Iceberg table and what the stream has after it.

rows = history_and_tail(spark, "warehouse", "orders", stream="ORDERS", servers=url)

Spark reads the files of one snapshot itself, so no Iceberg runtime is needed; the tail, which is
as long as the writer is behind, comes through the driver. Files with row-level deletes, or columns
that another program has renamed, want Iceberg's own runtime.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from slipstream.spark.connections import connect, jetstream, patiently
from slipstream.spark.options import ServerOptions, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from slipstream.tables import TableOptions
    from slipstream.tables.reading import Cut


def history_and_tail(
    spark: "SparkSession",
    where: str,
    table: str,
    *,
    stream: str,
    properties: Mapping[str, str] | None = None,
    options: "TableOptions | None" = None,
    **source: Any,
) -> "DataFrame":
    """All rows of a stream, each once: those of its table, and those that came after them.

    `where`, `properties` and `table` are those of `slipstream.tables.open_catalog` and
    `StreamTable`, `options` those of the writer, `source` the options of the connection. Raises
    `TableError`, `StreamReplacedError`.
    """
    from slipstream.tables import TableError, open_catalog
    from slipstream.tables.iceberg import rows_of
    from slipstream.tables.reading import cut, schema_of, shaped

    asked = parse(ServerOptions, {name: str(value) for name, value in source.items()})

    async def read() -> "Cut":
        async with await connect(asked, "spark-history", patient=True) as connection:
            catalog = open_catalog(where, properties)
            return await cut(jetstream(connection, asked), stream, catalog, table, options)

    with ThreadPoolExecutor(1) as thread:  # the caller's may have a running loop
        found = thread.submit(asyncio.run, patiently(read, asked)).result()
    scan = found.table.scan(rows_of(stream), snapshot_id=found.snapshot)
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):
        raise TableError(
            f"table {table} has row-level deletes of other programs, which Spark reads through "
            "Iceberg's runtime alone; rewrite_data_files removes them"
        )
    schema = schema_of(found)
    rows = found.tail if found.tail is not None else schema.empty_table()
    tail = spark.createDataFrame(shaped(rows, schema))
    if not tasks:
        return tail
    reader = spark.read.schema(from_arrow_schema(schema))
    history = reader.parquet(*(task.file.file_path for task in tasks)).select(*tail.columns)
    return history.where(f.col("_stream") == stream).unionByName(tail)
