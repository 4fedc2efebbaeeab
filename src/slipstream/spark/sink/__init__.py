"""The sink: the rows of a DataFrame, of a batch or of a streaming query, become messages.

`writing` is what Spark calls, on the driver and in each task. A task makes messages of its rows
(`rows`, `bucket_rows`) and publishes them (`publishing`). `exactly_once` finds the rows that an
earlier attempt has stored, which are not published again; `claims` divides these among tasks, and
`presence` says whether that attempt has gone.
"""

from slipstream.spark.sink.options import SinkOptions, check_sink
from slipstream.spark.sink.publishing import ORIGIN_HEADER, REASON_HEADER
from slipstream.spark.sink.writing import BatchWriter, StreamWriter

__all__ = ["ORIGIN_HEADER", "REASON_HEADER"]
__all__ += ["BatchWriter", "SinkOptions", "StreamWriter", "check_sink"]
