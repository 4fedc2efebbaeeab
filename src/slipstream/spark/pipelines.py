"""Streams as sources of Spark's declarative pipelines (`pyspark.pipelines`).

    from pyspark import pipelines as dp
    from slipstream.spark.pipelines import jetstream_source

    @dp.table
    def orders():
        return jetstream_source("ORDERS", servers="nats://127.0.0.1:4222")

``spark-pipelines run`` runs such a file; a sink is `dp.create_sink` with format "jetstream".
"""

from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def jetstream_source(
    stream: str, *, spark: "SparkSession | None" = None, follow: bool = True, **options: Any
) -> "DataFrame":
    """The messages of a stream, from the earliest on: all to come, or with `follow=False` a table.

    `options` are those of the source. `spark` is by default the session that runs the pipeline.
    Raises `ConfigError` if there is none.
    """
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("jetstream_source: no Spark session is active; give one as spark=")
    given = {"stream": stream, "startingOffsets": "earliest", **options}
    reader: Any = session.readStream if follow else session.read
    frame: DataFrame = reader.format("jetstream").options(**given).load()
    return frame
