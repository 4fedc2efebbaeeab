"""Keep a stream as Parquet, and put what was kept into a stream again.

archive(orders, "archive/orders", checkpoint="archive/checkpoint").awaitTermination()
replay(spark, "archive/orders", servers=url, stream="ORDERS-2")
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_KEPT = ("stream", "subject", "sequence", "timestamp", "timestamp_ns", "headers", "data")


def archive(
    messages: "DataFrame", path: str, *, checkpoint: str, kind: str = "parquet", **trigger: Any
) -> "StreamingQuery":
    """A query that appends the messages of a streaming source to files by date and subject.

    `kind` is "parquet" or, where the session has it, "delta". `trigger` is as for
    `DataStreamWriter.trigger`; the default takes what is there and ends.
    """
    dated = messages.withColumn("date", f.to_date("timestamp"))
    dated = dated.withColumn("by_subject", f.col("subject"))
    writer = dated.writeStream.format(kind).partitionBy("date", "by_subject")
    writer = writer.option("checkpointLocation", checkpoint).option("path", path)
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def compact(spark: "SparkSession", path: str, target: str, *, files: int = 1) -> None:
    """Copy an archive of many small files into one of `files` per date and subject, in order."""
    rows = spark.read.parquet(path)
    spread = rows.repartition(files, "date", "by_subject").sortWithinPartitions("sequence")
    spread.write.partitionBy("date", "by_subject").mode("errorifexists").parquet(target)


def replay(spark: "SparkSession", path: str, *, where: str = "true", **sink: Any) -> None:
    """Publish an archive's messages in their order; `sink` are the options of the sink.

    `where` is SQL over the archive's columns. The original time is in the header Timestamp.
    """
    rows = spark.read.parquet(path).where(where).coalesce(1).sortWithinPartitions("sequence")
    rows.select(*_KEPT).write.format("jetstream").mode("append").options(**sink).save()
