"""The record batches that users get: their columns, and how buffers become one.

    subject     string
    sequence    int64
    timestamp   timestamp[ns, UTC]
    headers     map<string, list<string>>
    data        binary
    size        int64       bytes of data, for those who do not want the data; on demand
    reply       string      where an acknowledgement goes; of fetches alone

A batch is an ordinary `pyarrow.RecordBatch`: `batch.to_pandas()`, `polars.from_arrow(batch)`.
pyarrow is imported on first use; without it a `MissingPackageError` says what to install.
"""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slipstream.client.arrow.columns import (
    DATA,
    HEADERS,
    REPLY,
    SIZE,
    SUBJECT,
    TIMESTAMP,
    MessageColumns,
)
from slipstream.errors import Error

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("subject", "sequence", "timestamp", "headers", "data")
_FLAGS = {
    "subject": SUBJECT,
    "sequence": 0,
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
    "data": DATA,
    "size": SIZE,
    "reply": REPLY,
}


class MissingPackageError(Error, ImportError):
    """An optional package is needed for what was asked."""


def arrow() -> ModuleType:
    """The pyarrow module; raises `MissingPackageError`."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackageError(
            "Arrow batches need pyarrow, which is not installed: pip install 'slipstream[arrow]'"
        ) from error
    module: ModuleType = pyarrow
    return module


def require(package: str) -> ModuleType:
    """An optional package; raises `MissingPackageError`."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{package} is needed for this and is not installed: pip install {package}"
        ) from error


def flags_of(columns: Iterable[str]) -> int:
    """What `MessageColumns` is told to gather for these columns; raises ValueError for others."""
    wanted = 0
    for name in columns:
        if name not in _FLAGS:
            raise ValueError(f"no column {name!r}: there are {', '.join(_FLAGS)}")
        wanted |= _FLAGS[name]
    return wanted


def schema(columns: Iterable[str] = COLUMNS) -> "pyarrow.Schema":
    """The schema of batches with these columns, in this order."""
    pa = arrow()
    types = {
        "subject": pa.string(),
        "sequence": pa.int64(),
        "timestamp": pa.timestamp("ns", tz="UTC"),
        "headers": pa.map_(pa.string(), pa.list_(pa.string())),
        "data": pa.binary(),
        "size": pa.int64(),
        "reply": pa.string(),
    }
    return pa.schema([pa.field(name, types[name], nullable=False) for name in columns])


def take_batch(gathered: MessageColumns, of: "pyarrow.Schema") -> "pyarrow.RecordBatch":
    """What `gathered` holds as a batch of schema `of`; `gathered` is empty afterwards."""
    pa = arrow()
    rows = gathered.rows
    buffers = gathered.take()
    arrays = [_array(pa, field.type, rows, buffers[field.name]) for field in of]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def _array(pa: ModuleType, kind: Any, rows: int, buffers: tuple[bytes, ...]) -> Any:
    parts = [pa.py_buffer(data) for data in buffers]
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, rows, [None, *parts])
    entries, name_offsets, names, list_offsets, value_offsets, values = parts
    texts = pa.Array.from_buffers(
        pa.string(), value_offsets.size // 4 - 1, [None, value_offsets, values]
    )
    count = name_offsets.size // 4 - 1
    lists = pa.Array.from_buffers(kind.item_type, count, [None, list_offsets], children=[texts])
    keys = pa.Array.from_buffers(pa.string(), count, [None, name_offsets, names])
    pairs = pa.StructArray.from_arrays([keys, lists], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, rows, [None, entries], children=[pairs])
