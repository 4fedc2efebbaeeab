"""From payloads to columns: a schema taken from a type, and the dead-letter rule.

    good, bad = decode(orders, Order)                # JSON in the column data
    dead_letters(bad, "orders.bad").write.format("jetstream")...

`decode_avro` and `decode_protobuf` do the same by Spark's own functions, whose jars are not among
those that PySpark brings: a session has to load them (docs/spark-sink.md says how).
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from pyspark.sql import functions as f
from pyspark.sql import types as t

from slipstream.errors import ConfigError
from slipstream.spark.sink import ORIGIN_HEADER, REASON_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt"
_SIMPLE: dict[Any, type[t.DataType]] = {
    str: t.StringType,
    UUID: t.StringType,
    int: t.LongType,
    float: t.DoubleType,
    bool: t.BooleanType,
    bytes: t.BinaryType,
    datetime: t.TimestampType,
    date: t.DateType,
}


def schema_of(kind: type) -> t.StructType:
    """The Spark schema of a `msgspec.Struct` or dataclass, under the names its JSON has.

    Lists become arrays, dicts with text keys maps, `X | None` a nullable X, nested types structs.
    Raises `ConfigError` for a field that has no type in Spark.
    """
    made = _spark_type(kind, kind.__name__)
    if not isinstance(made, t.StructType):
        raise ConfigError(f"{kind.__name__} is neither a msgspec.Struct nor a dataclass")
    return made


def decode(frame: "DataFrame", kind: type, column: str = "data") -> "tuple[DataFrame, DataFrame]":
    """The rows whose JSON is of the type, with its fields as a column `value`; and the others.

    Fields without a default that are missing, or null, make a row a bad one. Both keep the columns
    of `frame`; the bad ones have a column `reason`.
    """
    schema = schema_of(kind)
    corrupt = t.StructField(_CORRUPT, t.StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = t.StructType([*schema.fields, corrupt])
    text = f.col(column).cast("string")
    parsed = frame.withColumn("value", f.from_json(text, read, options))
    reason = f.when(f.col("value").isNull(), f.lit("there is no payload"))
    name = kind.__name__
    reason = reason.when(f.col(f"value.{_CORRUPT}").isNotNull(), f.lit(f"it is no {name} in JSON"))
    for field in schema.fields:
        if not field.nullable:
            missing = f.col("value")[field.name].isNull()
            reason = reason.when(missing, f.lit(f"{name}.{field.name} is missing"))
    judged = parsed.withColumn("reason", reason)
    good = judged.where("reason IS NULL").drop("reason")
    good = good.withColumn("value", f.col("value").dropFields(_CORRUPT))
    return good, judged.where("reason IS NOT NULL").drop("value")


def decode_avro(
    frame: "DataFrame", schema: str, column: str = "data", **options: str
) -> "tuple[DataFrame, DataFrame]":
    """The rows whose payload is Avro of the schema (JSON), as a column `value`; and the others.

    `options` are those of `from_avro`. Raises `ConfigError` if the session lacks spark-avro.
    """
    from pyspark.sql.avro.functions import from_avro

    def parse() -> "Column":
        return from_avro(f.col(column), schema, {"mode": "PERMISSIVE", **options})

    return _decode_binary(frame, column, parse, "spark-avro", "Avro of the schema")


def decode_protobuf(
    frame: "DataFrame", message: str, descriptors: bytes, column: str = "data", **options: str
) -> "tuple[DataFrame, DataFrame]":
    """The rows whose payload is a Protobuf message, as a column `value`; and the others.

    `descriptors` is what ``protoc --descriptor_set_out --include_imports`` has written, `options`
    are those of `from_protobuf`. Raises `ConfigError` if the session lacks spark-protobuf.
    """
    from pyspark.sql.protobuf.functions import from_protobuf

    def parse() -> "Column":
        given = {"mode": "PERMISSIVE", **options}
        return from_protobuf(column, message, options=given, binaryDescriptorSet=descriptors)

    return _decode_binary(frame, column, parse, "spark-protobuf", f"message {message}")


def _decode_binary(
    frame: "DataFrame", column: str, parse: "Callable[[], Column]", package: str, what: str
) -> "tuple[DataFrame, DataFrame]":
    from pyspark import __version__
    from pyspark.errors import AnalysisException

    try:
        parsed = frame.withColumn("value", parse())
        fields = parsed.schema["value"].dataType
    except (AnalysisException, TypeError) as error:
        told = str(error)
        if "NOT_LOADED" not in told and "JavaPackage" not in told:
            raise
        raise ConfigError(
            f"decoding needs Spark's package {package}, which this session has not loaded: make it "
            f'with slipstream.spark.session(config={{"spark.jars.packages": '
            f'"org.apache.spark:{package}_2.13:{__version__}"}}), or give its jar in spark.jars'
        ) from None
    names = fields.fieldNames() if isinstance(fields, t.StructType) else []
    value = f.coalesce(*(f.col("value")[name].cast("string") for name in names)) if names else None
    is_bad = f.col("value").isNull() if value is None else value.isNull()
    reason = f.when(f.col(column).isNull(), f.lit("there is no payload"))
    judged = parsed.withColumn("reason", reason.when(is_bad, f.lit(f"it is no {what}")))
    good = judged.where("reason IS NULL").drop("reason")
    return good, judged.where("reason IS NOT NULL").drop("value")


def dead_letters(bad: "DataFrame", subject: str) -> "DataFrame":
    """Bad rows of `decode` as rows for the sink: the payload, with reason and origin as headers."""
    origin = f.lit("")
    if {"stream", "sequence"} <= set(bad.columns):
        origin = f.concat_ws(" ", "stream", "sequence", "subject")
    headers = f.create_map(f.lit(REASON_HEADER), f.col("reason"), f.lit(ORIGIN_HEADER), origin)
    return bad.select(f.lit(subject).alias("subject"), "data", headers.alias("headers"))


def _spark_type(kind: Any, where: str) -> t.DataType:
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    if kind is Decimal:
        return t.DecimalType(38, 18)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _spark_type(arguments[0], where)
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return _spark_type(others[0], where)
    if origin in (list, set, tuple, frozenset):
        return t.ArrayType(_spark_type(arguments[0], where))
    if origin is dict and arguments[0] is str:
        return t.MapType(t.StringType(), _spark_type(arguments[1], where))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return t.StructType(
            [
                _field(one.encode_name, one.type, one.required, where)
                for one in msgspec.structs.fields(kind)
            ]
        )
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        none = dataclasses.MISSING
        return t.StructType(
            [
                _field(x.name, hints[x.name], x.default is x.default_factory is none, where)
                for x in dataclasses.fields(kind)
            ]
        )
    raise ConfigError(f"{where}: {kind!r} has no type in Spark; read it as str and convert it")


def _field(name: str, kind: Any, required: bool, where: str) -> t.StructField:
    optional = type(None) in typing.get_args(kind)
    made = _spark_type(kind, f"{where}.{name}")
    return t.StructField(name, made, nullable=optional or not required)
