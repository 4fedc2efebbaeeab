"""Iceberg's types and ours: columns as fields of a schema, and a table's layout as Iceberg's."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform
from pyiceberg.types import IcebergType, NestedField

from slipstream.tables.layout import JSON_TEXT, Layout, plain
from slipstream.tables.options import PARTITION, Column

_FIRST_PARTITION_ID = 1000  # as Iceberg numbers them
_TRANSFORMS: dict[str, Callable[[], Transform[Any, Any]]] = {
    "hour": HourTransform,
    "day": DayTransform,
    "month": MonthTransform,
}


def iceberg_type(kind: pa.DataType) -> IcebergType:
    """Iceberg's type for one of ours. Nested fields get numbers when a column is added."""
    (field,) = _pyarrow_to_schema_without_ids(pa.schema([pa.field("_", kind)])).fields
    return field.field_type


def column_in(field: NestedField) -> Column:
    """The column for a field of a table's schema."""
    schema = Schema(NestedField(1, field.name, field.field_type, required=False))
    kind = schema_to_pyarrow(schema, include_field_ids=False).field(0).type
    return Column(plain(kind), is_json=field.doc == JSON_TEXT)


def schema_in(layout: Layout) -> tuple[Schema, PartitionSpec]:
    """Schema and partitions of a new table."""
    fields = [
        NestedField(at, name, iceberg_type(column.type))
        for at, (name, column) in enumerate(layout.columns.items(), 1)
    ]
    if layout.partition == "none":
        return Schema(*fields), PartitionSpec()
    (source,) = [field.field_id for field in fields if field.name == layout.time]
    transform = _TRANSFORMS[layout.partition]()
    return Schema(*fields), PartitionSpec(
        PartitionField(source, _FIRST_PARTITION_ID, transform, PARTITION)
    )
