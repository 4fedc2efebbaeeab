"""The columns of a DataFrame over streams, and how a scanned batch becomes one of Spark's.

    stream        string
    subject       string
    sequence      bigint
    timestamp     timestamp, microseconds as Spark has them
    timestamp_ns  bigint, nanoseconds since the epoch
    headers       map<string, array<string>>
    data          binary
    size          bigint, bytes of data; on demand
    key           string, a token of the subject; on demand

Whole columns are converted, never single values; what is not in the schema is not fetched into
columns at all.
"""

from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError
from slipstream.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

DEFAULT_COLUMNS = (
    "stream",
    "subject",
    "sequence",
    "timestamp",
    "timestamp_ns",
    "headers",
    "data",
)
_SQL_TYPES = {
    "stream": "string",
    "subject": "string",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "timestamp_ns": "bigint",
    "headers": "map<string,array<string>>",
    "data": "binary",
    "size": "bigint",
    "key": "string",
}
_SCANNED_FOR = {"timestamp_ns": "timestamp", "key": "subject", "stream": "sequence"}


def column_names(options: SourceOptions) -> list[str]:
    """The columns that the options ask for. Raises `ConfigError` for one that does not exist."""
    if options.columns:
        names = list(dict.fromkeys(part.strip() for part in options.columns.split(",")))
    else:
        names = [n for n in DEFAULT_COLUMNS if n != "headers" or options.include_headers]
        names += ["size"] if options.include_size else []
        names += ["key"] if options.key_token else []
    check_columns(names, options)
    return names


def check_columns(names: list[str], options: SourceOptions) -> None:
    """Raise `ConfigError` if a column does not exist, or lacks what it is made from."""
    for name in names:
        if name not in _SQL_TYPES:
            raise ConfigError(
                f"jetstream: there is no column {name!r}; there are {', '.join(_SQL_TYPES)}"
            )
    if "key" in names and not options.key_token:
        raise ConfigError(
            "jetstream: column key needs the option keyToken: 1 for the first token of the "
            "subject, -1 for the last"
        )


def schema_text(names: list[str]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{name} {_SQL_TYPES[name]}" for name in names)


def check_schema(schema: "StructType", options: SourceOptions) -> list[str]:
    """The columns of a schema that the user gave. Raises `ConfigError` for a wrong type."""
    names = schema.fieldNames()
    check_columns(names, options)
    for field in schema.fields:
        found = field.dataType.simpleString()
        if found != _SQL_TYPES[field.name]:
            raise ConfigError(
                f"jetstream: column {field.name} is {_SQL_TYPES[field.name]}, and the schema says "
                f"{found}; read it as it is and cast it"
            )
    return names


def scan_columns(names: list[str]) -> list[str]:
    """What a scan has to bring for these columns."""
    return list(dict.fromkeys(_SCANNED_FOR.get(name, name) for name in names)) or ["sequence"]


def _arrow_schema(schema: "StructType") -> "pyarrow.Schema":
    """The schema in Arrow, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.1, which needs no word for UTC
        return to_arrow_schema(schema)


class RowMaker:
    """Turns scanned batches of one stream into batches of the Spark schema."""

    def __init__(self, schema: "StructType", key_token: int) -> None:
        self._schema = _arrow_schema(schema)
        self._key = _key_pattern(key_token) if key_token else ""

    def convert(self, batch: "pyarrow.RecordBatch", stream: str) -> "pyarrow.RecordBatch":
        """The rows of `batch` with Spark's columns."""
        import pyarrow as pa

        arrays = [self._array(batch, field, stream) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, batch: "pyarrow.RecordBatch", field: "pyarrow.Field", stream: str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        name = field.name
        if name == "stream":
            return pa.repeat(pa.scalar(stream, field.type), batch.num_rows)
        if name == "key":
            found = pc.extract_regex(batch.column("subject"), self._key)
            return pc.struct_field(found, 0).cast(field.type)
        if name == "timestamp_ns":
            return batch.column("timestamp").view(pa.int64())
        column = batch.column(name)
        if column.type == field.type:
            return column
        return column.cast(field.type, safe=name != "timestamp")


def _key_pattern(token: int) -> str:
    """A pattern whose group is a token of a subject: 1 the first, -1 the last."""
    if token > 0:
        return rf"^(?:[^.]*\.){{{token - 1}}}(?P<key>[^.]*)(?:\.|$)"
    return rf"(?:^|\.)(?P<key>[^.]*)(?:\.[^.]*){{{-token - 1}}}$"
