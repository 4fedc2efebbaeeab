"""Streams as tables: Apache Iceberg, Delta Lake or Parquet files, each message exactly once.

    table = stream_table("warehouse", "orders", "ORDERS")     # a folder, nothing else to start
    await TableWriter(js, table).run()

Needs the extra `tables`: pip install 'slipstream[tables]'; Delta Lake needs `delta` besides.
"""

from slipstream.extras import require

require("pyarrow", extra="tables")  # before the modules that cannot be imported without

from slipstream.tables.errors import (  # noqa: E402
    NoTableError,
    OtherWriterError,
    PositionLostError,
    StreamReplacedError,
    TableError,
)
from slipstream.tables.options import TableOptions  # noqa: E402
from slipstream.tables.places import stream_table  # noqa: E402
from slipstream.tables.positions import Position  # noqa: E402
from slipstream.tables.reading import history_and_tail  # noqa: E402
from slipstream.tables.stream_table import StreamTable  # noqa: E402
from slipstream.tables.writer import Progress, TableWriter  # noqa: E402

__all__ = [
    "NoTableError",
    "OtherWriterError",
    "Position",
    "PositionLostError",
    "Progress",
    "StreamReplacedError",
    "StreamTable",
    "TableError",
    "TableOptions",
    "TableWriter",
    "history_and_tail",
    "stream_table",
]
