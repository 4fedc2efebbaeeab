"""Key-value buckets as tables: the last entry of each key, or all entries as changes.

    prices = slipstream.spark.kv.table(spark, "prices", servers=url)

The sink writes a bucket; `slipstream.spark.sink.bucket_rows` says how.
"""

from typing import TYPE_CHECKING, Any

from slipstream.client.kv.entries import OPERATION_HEADER
from slipstream.model.header_names import NATS_MARKER_REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
