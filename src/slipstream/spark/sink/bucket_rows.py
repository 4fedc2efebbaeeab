"""What a row becomes in a key-value bucket: the last value of its key.

    df.select("key", "value").write.format("jetstream").mode("append").option("bucket", "prices")

A row whose value is null deletes its key. A put that is repeated changes nothing but the key's
revision, so a batch that was not finished is written again as a whole. What is late changes
nothing: an attempt writes only when those before it have gone
(`slipstream.spark.sink.exactly_once`), and a batch that is done is not written over a newer one.
Rows of one key that must win over others have to be in one partition, in their order
(``repartition("key").sortWithinPartitions(...)``).
"""

from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError
from slipstream.spark.sink.rows import Identity, RowReader, buffers_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_TYPES = {"key": ("string",), "value": ("binary", "string")}
_DELETION = b"KV-Operation: DEL\r\n"


def key_columns(schema: "StructType") -> dict[str, int]:
    """Where key and value stand in a row. Raises `ConfigError` if one is missing or is no text."""
    found = {field.name: at for at, field in enumerate(schema.fields)}
    for name, kinds in _TYPES.items():
        kind = schema[name].dataType.simpleString() if name in found else "missing"
        if kind not in kinds:
            raise ConfigError(
                f"jetstream: a bucket is written from columns key (string) and value (binary or "
                f"string); {name} is {kind}"
            )
    extra = sorted(set(found) - set(_TYPES))
    if extra:
        raise ConfigError(
            f"jetstream: a bucket has no column {', '.join(extra)}; put what is kept under a key "
            "into value, for example with to_json(struct(...))"
        )
    return {"key": found["key"], "data": found["value"]}


class KeyReader(RowReader):
    """Takes keys and values out of Arrow batches; a null value is a deletion."""

    def __init__(self, columns: dict[str, int], bucket: str) -> None:
        super().__init__(columns, "", identity=Identity.NONE)
        self._prefix = f"$KV.{bucket}."

    def subjects_of(self, batch: "pyarrow.RecordBatch") -> Any:
        """The keys' subjects; of a key that cannot be one, a subject that cannot be one either."""
        import pyarrow.compute as pc

        keys = pc.fill_null(batch.column(self._columns["key"]), "")
        return buffers_of(pc.binary_join_element_wise(self._prefix, keys, ""))

    def _extras(self, batch: "pyarrow.RecordBatch", first: int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = batch.column(self._columns["data"])
        if not values.null_count:
            return None
        lines = pc.if_else(pc.is_null(values), pa.scalar(_DELETION), pa.scalar(b""))
        return buffers_of(lines)
