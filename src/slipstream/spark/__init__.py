"""JetStream for Apache Spark: streams as DataFrames, batch and streaming (docs/spark.md).

import slipstream.spark
spark = slipstream.spark.session()
orders = spark.read.format("jetstream").option("stream", "ORDERS").load()
"""

from slipstream.spark.session import register, session

__all__ = ["register", "session"]
