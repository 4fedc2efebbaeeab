"""Streams as tables: a stream becomes an Apache Iceberg table, each message exactly once.

    catalog = open_catalog("warehouse")                       # a folder, nothing else to start
    table = StreamTable(catalog, "orders", "ORDERS")
    await TableWriter(js, "ORDERS", table).run()

Needs the extra `tables`: pip install 'slipstream[tables]'.
"""

from slipstream.tables.catalogs import open_catalog, require_iceberg

require_iceberg()  # before the modules that cannot be imported without

from slipstream.tables.errors import (  # noqa: E402
    OtherWriterError,
    PositionLostError,
    StreamReplacedError,
    TableError,
)
from slipstream.tables.iceberg import StreamTable  # noqa: E402
from slipstream.tables.maintenance import compact, delete_unused, expire  # noqa: E402
from slipstream.tables.options import TableOptions  # noqa: E402
from slipstream.tables.positions import Position, position_of  # noqa: E402
from slipstream.tables.reading import history_and_tail  # noqa: E402
from slipstream.tables.writer import Progress, TableWriter  # noqa: E402

__all__ = [
    "OtherWriterError",
    "Position",
    "PositionLostError",
    "Progress",
    "StreamReplacedError",
    "StreamTable",
    "TableError",
    "TableOptions",
    "TableWriter",
    "compact",
    "delete_unused",
    "expire",
    "history_and_tail",
    "open_catalog",
    "position_of",
]
