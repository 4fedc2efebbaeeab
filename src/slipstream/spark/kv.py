"""Key-value buckets: rows with a key are upserted; a bucket is read as a table.

    df.select("key", "value").write.format("jetstream").mode("append").option("bucket", "prices")
    prices = slipstream.spark.kv.table(spark, "prices", servers=url)

A row whose value is null deletes its key. A put that is repeated changes nothing but the key's
revision, so a batch that was not finished is written again as a whole. What is late changes
nothing: an attempt writes only when those before it have gone (`slipstream.spark.exactly_once`),
and a batch that is done is not written over a newer one. Rows of one key that must win over others
have to be in one partition, in their order (``repartition("key").sortWithinPartitions(...)``).
"""

from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError
from slipstream.model.header_names import NATS_MARKER_REASON
from slipstream.spark.sink_rows import Identity, RowReader, buffers_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TYPES = {"key": ("string",), "value": ("binary", "string")}
OPERATION_HEADER = "KV-Operation"


def key_columns(schema: "StructType") -> dict[str, int]:
    """Where key and value stand in a row. Raises `ConfigError` if one is missing or is no text."""
    found = {field.name: at for at, field in enumerate(schema.fields)}
    for name, kinds in _TYPES.items():
        kind = schema[name].dataType.simpleString() if name in found else "missing"
        if kind not in kinds:
            raise ConfigError(
                f"jetstream: a bucket is written from columns key (string) and value (binary or "
                f"string); {name} is {kind}"
            )
    extra = sorted(set(found) - set(_TYPES))
    if extra:
        raise ConfigError(
            f"jetstream: a bucket has no column {', '.join(extra)}; put what is kept under a key "
            "into value, for example with to_json(struct(...))"
        )
    return {"key": found["key"], "data": found["value"]}


class KeyReader(RowReader):
    """Takes keys and values out of Arrow batches; a null value is a deletion."""

    def __init__(self, columns: dict[str, int], bucket: str) -> None:
        super().__init__(columns, "", identity=Identity.NONE)
        self._prefix = f"$KV.{bucket}."

    def subjects_of(self, batch: "pyarrow.RecordBatch") -> Any:
        """The keys' subjects; of a key that cannot be one, a subject that cannot be one either."""
        import pyarrow.compute as pc

        keys = pc.fill_null(batch.column(self._columns["key"]), "")
        return buffers_of(pc.binary_join_element_wise(self._prefix, keys, ""))

    def _extras(self, batch: "pyarrow.RecordBatch", first: int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = batch.column(self._columns["data"])
        if not values.null_count:
            return None
        deletion = f"{OPERATION_HEADER}: DEL\r\n".encode()
        lines = pc.if_else(pc.is_null(values), pa.scalar(deletion), pa.scalar(b""))
        return buffers_of(lines)


def table(spark: "SparkSession", bucket: str, **options: Any) -> "DataFrame":
    """The bucket as it is now: columns key, value, revision, timestamp; deleted keys are left out.

    `options` are those of the source (servers, user ...). With a history the last value of each
    key is taken.
    """
    from pyspark.sql import functions as f

    reader = spark.read.format("jetstream").option("stream", f"KV_{bucket}").options(**options)
    rows = latest(reader.load(), bucket)
    return rows.where("operation = 'PUT'").select("key", "value", "revision", f.col("timestamp"))


def latest(rows: "DataFrame", bucket: str) -> "DataFrame":
    """The last entry of each key, deletions included, of rows of the bucket's stream."""
    from pyspark.sql import functions as f

    changes = changed(rows, bucket)
    newest = f.max_by(f.struct("value", "revision", "timestamp", "operation"), "revision")
    return changes.groupBy("key").agg(newest.alias("entry")).select("key", "entry.*")


def changed(rows: "DataFrame", bucket: str) -> "DataFrame":
    """Rows of a bucket's stream as changes: key, value, revision, timestamp, operation."""
    from pyspark.sql import functions as f

    headers = f.col("headers")
    said = f.coalesce(headers[OPERATION_HEADER][0], f.lit("PUT"))
    gone = headers[NATS_MARKER_REASON].isNotNull()  # a TTL ended, or a limit removed it
    return rows.select(
        f.substring(f.col("subject"), len(f"$KV.{bucket}.") + 1, 1 << 20).alias("key"),
        f.col("data").alias("value"),
        f.col("sequence").alias("revision"),
        f.col("timestamp"),
        f.when(gone, f.lit("DEL")).otherwise(said).alias("operation"),
    )
