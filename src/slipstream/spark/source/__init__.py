"""The source: a DataFrame's rows are the messages of streams, in a batch or as a streaming query.

The driver turns options, or a checkpoint's offset, into ranges of sequences and cuts these
(`batch`, `streaming`, `offsets`, `ranges`); each task scans its range over a connection of its own
and makes Spark's columns of it (`reading`, `rows`).
"""

from slipstream.spark.source.batch import BatchReader, FilteringReader
from slipstream.spark.source.offsets import check_source
from slipstream.spark.source.rows import check_schema, column_names, schema_text
from slipstream.spark.source.streaming import StreamReader

__all__ = ["BatchReader", "FilteringReader", "StreamReader"]
__all__ += ["check_schema", "check_source", "column_names", "schema_text"]
