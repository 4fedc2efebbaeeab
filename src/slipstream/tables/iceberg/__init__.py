"""Streams as Apache Iceberg tables, through pyiceberg; and what keeps these tables quick.

    table = open_catalog("warehouse").load_table("streams.orders")
    position_of(table, "ORDERS")

Needs the extra `tables`: pip install 'slipstream[tables]'.
"""

from slipstream.tables.iceberg.catalogs import open_catalog, require_iceberg

require_iceberg()  # before the modules that cannot be imported without

from slipstream.tables.iceberg.maintenance import compact, delete_unused, expire  # noqa: E402
from slipstream.tables.iceberg.part import IcebergPart  # noqa: E402
from slipstream.tables.iceberg.snapshots import position_of  # noqa: E402

__all__ = [
    "IcebergPart",
    "compact",
    "delete_unused",
    "expire",
    "open_catalog",
    "position_of",
]
