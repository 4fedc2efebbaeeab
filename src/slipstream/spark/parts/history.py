"""One DataFrame over a stream's table and what the stream has after it.

rows = history_and_tail(spark, "warehouse", "orders", stream="ORDERS", servers=url)

Spark reads the files of one snapshot itself, so no Iceberg runtime is needed; the tail, which is
as long as the writer is behind, comes through the driver. Files with row-level deletes, or columns
that another program has renamed, want Iceberg's own runtime.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from slipstream.spark.connections import connect, jetstream, patiently, wait_for
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

    `where`, `table`, `options` and `properties` are those of `slipstream.tables.stream_table`, as
    the writer has them; `source` are the options of the connection. Raises `TableError`,
    `StreamReplacedError`.
    """
    from slipstream.tables import stream_table
    from slipstream.tables.layout import shaped
    from slipstream.tables.reading import cut

    asked = parse(ServerOptions, {name: str(value) for name, value in source.items()})
    tables = stream_table(where, table, stream, options, properties)

    async def read() -> "Cut":
        async with await connect(asked, "spark-history", patient=True) as connection:
            return await cut(jetstream(connection, asked), tables)

    found = wait_for(patiently(read, asked))
    files = found.rows.files(found.wanted)
    schema = found.schema
    rows = found.tail if found.tail is not None else schema.empty_table()
    tail = spark.createDataFrame(shaped(rows, schema))
    if not files:
        return tail
    reader = spark.read.schema(from_arrow_schema(schema))
    history = reader.parquet(*files).select(*tail.columns)
    return history.where(f.col("_stream") == stream).unionByName(tail)
