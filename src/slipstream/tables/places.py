"""Where the tables of a stream are, and in which format.

stream_table("warehouse", "orders", "ORDERS")                                     Iceberg
stream_table("s3://lake", "orders", "ORDERS", TableOptions(format="delta"))       Delta Lake
stream_table("warehouse", "orders", "ORDERS", TableOptions(format="parquet"))     plain files
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from slipstream.errors import ConfigError
from slipstream.tables.options import TableOptions
from slipstream.tables.parts import Part
from slipstream.tables.stream_table import StreamTable, TableName

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def stream_table(
    where: "str | Catalog",
    name: str,
    stream: str,
    options: TableOptions | None = None,
    properties: Mapping[str, str] | None = None,
) -> StreamTable:
    """The tables of a stream at a place; nothing is opened or made yet.

    Iceberg: `where` is what `open_catalog` takes, or a catalog that is open; `properties` go to
    pyiceberg. Delta: a folder or the URL of an object store; `properties` are the storage options
    of delta-rs. Parquet: a folder. `name` is like orders or sales.orders. Raises `ConfigError`.
    """
    options = options or TableOptions()
    parts = _parts_at(where, options, dict(properties or {}))
    return StreamTable(parts, _table_name(name), stream, options)


def _parts_at(
    where: "str | Catalog", options: TableOptions, properties: dict[str, str]
) -> Callable[[TableName], Part]:
    if options.format == "iceberg":
        from slipstream.tables.iceberg import IcebergPart, open_catalog

        catalog = open_catalog(where, properties) if isinstance(where, str) else where
        return lambda name: IcebergPart(catalog, name)
    if not isinstance(where, str):
        raise ConfigError(f"format {options.format}: its place is a folder, not a catalog")
    if options.format == "delta":
        from slipstream.tables.delta import DeltaPart

        return lambda name: DeltaPart(where, name, properties)
    from slipstream.tables.parquet import ParquetPart, folder_at

    folder = folder_at(where, properties)
    return lambda name: ParquetPart(folder, name)


def _table_name(name: str) -> TableName:
    """The parts of a table's name, `streams.` in front if it has one part. Raises `ConfigError`."""
    parts = tuple(name.split("."))
    if not all(parts) or "/" in name:
        raise ConfigError(f"table {name!r}: a name is like orders or sales.orders")
    return parts if len(parts) > 1 else ("streams", *parts)
