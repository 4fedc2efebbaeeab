"""What PySpark finds by itself: it asks every package named `pyspark_*` for a `DefaultSource`.

So `spark.read.format("jetstream")` works in any session of an environment that has Slipstream.
"""

from slipstream.spark.datasource import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
