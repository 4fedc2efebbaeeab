"""Keep a stream as Parquet, and put what was kept into a stream again.

archive(orders, "archive/orders", checkpoint="archive/checkpoint").awaitTermination()
replay(spark, "archive/orders", servers=url, stream="ORDERS-2", pace=10)
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from slipstream.errors import ConfigError
from slipstream.spark.options import parse
from slipstream.spark.parts.pacing import publish_paced
from slipstream.spark.sink.options import SinkOptions

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


def replay(
    spark: "SparkSession", path: str, *, where: str = "true", pace: float = 0.0, **sink: Any
) -> None:
    """Publish an archive's messages in their order; `sink` are the options of the sink.

    `where` is SQL over the archive's columns. The original time is in the header Timestamp.
    `pace` is how fast time passes: 1 leaves the original intervals between messages, 10 a tenth of
    them, 0 none. With a pace each message has an id made of its stream and sequence, so that a task
    that is tried again within the duplicate window adds nothing. Raises `ConfigError`.
    """
    kept = spark.read.parquet(path).where(where).select(*_KEPT)
    rows = kept.coalesce(1).sortWithinPartitions("sequence")
    if not pace:
        rows.write.format("jetstream").mode("append").options(**sink).save()
        return
    if pace < 0:
        raise ConfigError(f"replay: pace is {pace}; 1 is the original one, 10 ten times as fast")
    options = parse(SinkOptions, {name: str(value) for name, value in sink.items()})

    def publish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = publish_paced(batches, pace, options)
        yield pa.record_batch([pa.array([count])], names=["published"])

    rows.mapInArrow(publish, "published long").collect()
