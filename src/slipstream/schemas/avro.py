"""Avro: schemas as Arrow types, bodies as values, and which schema can read what another wrote.

Bodies are read by fastavro without logical types, and Arrow makes times out of the numbers, by the
unit that the reader's schema says. Decimals are read as such.
"""

import io
import json
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

import pyarrow as pa

from slipstream.extras import require
from slipstream.schemas.errors import IncompatibleSchemaError, SchemaError

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
}
# What Avro lets a reader take a value of another type for.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = ("record", "error", "enum", "fixed")
_DECIMAL_DIGITS_MAX = 38
_SCALE_MAX = 1000  # of what was written; Arrow ends the process for scales of many millions
_FIELDS_MAX = 10_000  # a schema that names others twice at each level would have millions


class Field(TypedDict):
    """A field of a record."""

    name: str
    type: "AvroSchema"
    aliases: NotRequired[list[str]]
    default: NotRequired[object]


class Complex(TypedDict):
    """A schema that is a JSON object; which keys it has depends on its type."""

    type: "AvroSchema"
    name: NotRequired[str]
    fields: NotRequired[list[Field]]
    symbols: NotRequired[list[str]]
    default: NotRequired[str]
    size: NotRequired[int]
    items: NotRequired["AvroSchema"]
    values: NotRequired["AvroSchema"]
    logicalType: NotRequired[str]
    precision: NotRequired[int]
    scale: NotRequired[int]
    # What fastavro adds to a schema that it has parsed.
    __fastavro_parsed__: NotRequired[bool]
    __named_schemas__: NotRequired[dict[str, "AvroSchema"]]


AvroSchema = str | list["AvroSchema"] | Complex
"""A schema as fastavro has parsed it: names are full ones."""


def parse(text: str, needs: Sequence[str] = ()) -> AvroSchema:
    """A schema as fastavro wants it; `needs` are what it refers to. Raises `SchemaError`."""
    fastavro = require("fastavro", extra="schemas")
    wrong = fastavro.schema.SchemaParseException
    named: dict[str, AvroSchema] = {}
    try:
        for other in needs:
            fastavro.parse_schema(json.loads(other), named)
        parsed: AvroSchema = fastavro.parse_schema(json.loads(text), named)
        if needs:
            parsed = fastavro.parse_schema(_whole(parsed, named, set()))
        return parsed
    except (ValueError, TypeError, KeyError, RecursionError, wrong) as error:
        raise SchemaError(f"the Avro schema is not valid: {error!r}") from error


def reader(writer: AvroSchema, wanted: AvroSchema) -> Callable[[bytes], object]:
    """What turns a body that was written with one schema into a value of the other."""
    traits = _Traits()
    traits.look_at(writer, ())
    # Compiled, fastavro recurses on the C stack without a bound, so a body of nested values could
    # end the process; as Python it raises RecursionError.
    package = "fastavro._read_py" if traits.is_recursive else "fastavro"
    read = require(package, extra="schemas").schemaless_reader
    parse_schema = require("fastavro", extra="schemas").parse_schema
    wrote = parse_schema(_without_logical(writer))
    asked = parse_schema(_without_logical(wanted))
    same = None if wrote == asked else asked

    def value_of(body: bytes) -> object:
        stream = io.BytesIO(body)
        value: object = read(stream, wrote, same)
        left = len(body) - stream.tell()
        if left:
            raise SchemaError(f"{left} bytes are left after its end")
        return value

    return value_of


class _Traits:
    """What makes the bodies of a schema a danger to who reads them."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._named: dict[str, Complex] = {}
        self._known: dict[str, bool] = {}

    def look_at(self, schema: AvroSchema, within: tuple[str, ...]) -> bool:
        """Whether values take bytes. Raises `SchemaError` for an array of those that take none."""
        if isinstance(schema, list):
            for one in schema:
                self.look_at(one, within)
            return True
        if isinstance(schema, str):
            if schema in within:
                self.is_recursive = True
            elif schema in self._named and schema not in self._known:
                return self.look_at(self._named[schema], within)
            return self._known.get(schema, schema != "null")
        kind = schema["type"]
        if schema.get("logicalType") == "decimal" and int(schema.get("scale", 0)) > _SCALE_MAX:
            raise SchemaError(f"the Avro schema has a decimal with more than {_SCALE_MAX} places")
        if kind in ("record", "error"):
            name = schema["name"]
            self._named[name] = schema
            inside = [self.look_at(one["type"], (*within, name)) for one in schema["fields"]]
            self._known[name] = any(inside)
            return self._known[name]
        if kind == "fixed":
            self._known[schema["name"]] = schema["size"] != 0
            return self._known[schema["name"]]
        if kind == "array" and not self.look_at(schema["items"], within):
            raise SchemaError(
                "the Avro schema has an array of items without bytes, so a body of a few bytes may "
                "have any number of them"
            )
        if kind == "map":
            self.look_at(schema["values"], within)
        return kind != "null"


def writer(schema: AvroSchema) -> Callable[[object], bytes]:
    """What turns a value into a body."""
    write = require("fastavro", extra="schemas").schemaless_writer

    def body_of(value: object) -> bytes:
        stream = io.BytesIO()
        write(stream, schema, value)
        return stream.getvalue()

    return body_of


def arrow_type(schema: AvroSchema) -> pa.DataType:
    """The type of a schema's values, times in the unit of the schema. Raises `SchemaError`."""
    try:
        return _Types({}).of(schema, ())
    except (ValueError, TypeError, KeyError, RecursionError, pa.ArrowException) as error:
        raise SchemaError(f"the Avro schema is not valid: {error!r}") from error


class _Types:
    """Arrow types of the schemas in a schema; knows the named ones."""

    def __init__(self, named: dict[str, AvroSchema]) -> None:
        self._named = named
        self._fields = 0

    def of(self, schema: AvroSchema, within: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, within)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            return self._reference(schema, within)
        kind = schema["type"]
        if kind in _NAMED:
            self._named[schema["name"]] = schema
        if schema.get("logicalType") in _LOGICAL:
            return _LOGICAL[schema["logicalType"]]
        if schema.get("logicalType") == "decimal":
            return _decimal(schema)
        if kind in ("record", "error"):
            inside = (*within, schema["name"])
            fields = schema["fields"]
            return pa.struct([self._field(one["name"], one["type"], inside) for one in fields])
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary()
        if kind == "array":
            return pa.list_(self._field("element", schema["items"], within))
        if kind == "map":
            return pa.map_(pa.string(), self._field("value", schema["values"], within))
        return self.of(kind, within)

    def _field(self, name: str, schema: AvroSchema, within: tuple[str, ...]) -> pa.Field:
        self._fields += 1
        if self._fields > _FIELDS_MAX:
            raise SchemaError(f"the Avro schema has more than {_FIELDS_MAX} fields")
        is_nullable = isinstance(schema, list) and "null" in schema
        return pa.field(name, self.of(schema, within), nullable=is_nullable)

    def _reference(self, name: str, within: tuple[str, ...]) -> pa.DataType:
        if name in within:
            raise SchemaError(f"Avro's {name} has itself within itself, which no column holds")
        if name not in self._named:
            raise SchemaError(f"the Avro schema names {name}, which it does not define")
        return self.of(self._named[name], within)

    def _union(self, schema: list[AvroSchema], within: tuple[str, ...]) -> pa.DataType:
        members = [self.of(one, within) for one in schema if one != "null"]
        distinct = list(dict.fromkeys(members))
        if not distinct:
            return pa.null()
        if len(distinct) == 1:
            return distinct[0]
        for together in (pa.int64(), pa.float64()):
            narrower = (together, pa.int32() if together == pa.int64() else pa.float32())
            if all(one in narrower for one in distinct):
                return together
        told = ", ".join(map(str, distinct))
        raise SchemaError(
            f"the Avro schema has a union of {told}, which no column holds; give a reader's schema "
            "without that field"
        )


def _decimal(schema: Complex) -> pa.DataType:
    digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if digits > _DECIMAL_DIGITS_MAX:
        raise SchemaError(f"the Avro schema has a decimal of {digits} digits; 38 fit into a column")
    return pa.decimal128(digits, scale)


def _without_logical(schema: AvroSchema) -> AvroSchema:
    """The schema with no logical types but decimals, so that times are read as numbers."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if isinstance(schema, str):
        return schema
    if schema.get("logicalType") != "decimal":
        schema = schema.copy()
        schema.pop("logicalType", None)
    made = _with_inner(schema, _without_logical)
    made["type"] = _without_logical(made["type"])
    return made


def _with_inner(schema: Complex, change: Callable[[AvroSchema], AvroSchema]) -> Complex:
    """A schema that fastavro has not parsed, with those within it changed."""
    made = schema.copy()
    made.pop("__fastavro_parsed__", None)
    made.pop("__named_schemas__", None)
    if "items" in made:
        made["items"] = change(made["items"])
    if "values" in made:
        made["values"] = change(made["values"])
    if "fields" in made:
        fields = [one.copy() for one in made["fields"]]
        for field in fields:
            field["type"] = change(field["type"])
        made["fields"] = fields
    return made


def _whole(schema: AvroSchema, named: dict[str, AvroSchema], defined: set[str]) -> AvroSchema:
    """The schema with the definition of each named type where it is named first."""
    if isinstance(schema, list):
        return [_whole(one, named, defined) for one in schema]
    if isinstance(schema, str):
        if schema not in named or schema in defined:
            return schema
        return _whole(named[schema], named, defined)
    if schema["type"] in _NAMED:
        defined.add(schema["name"])
    return _with_inner(schema, lambda inner: _whole(inner, named, defined))


def check_readable(subject: str, *, reader: str, writer: str) -> None:
    """Raise `IncompatibleSchemaError` if `reader` cannot read all that `writer` can write."""
    checked = _Resolution()
    why = checked.why_not(parse(reader), parse(writer), "")
    if why:
        raise IncompatibleSchemaError(
            f"schema for subject {subject} cannot read what the last version has written: {why}"
        )


class _Named:
    """The named schemas of one side."""

    def __init__(self) -> None:
        self.named: dict[str, Complex] = {}

    def whole(self, schema: AvroSchema) -> list[AvroSchema] | Complex:
        """A schema in place of its name; a primitive as a dictionary."""
        if isinstance(schema, str):
            return self.named.get(schema, {"type": schema})
        if isinstance(schema, dict):
            if schema["type"] in _NAMED:
                self.named[schema["name"]] = schema
            elif isinstance(schema["type"], (dict, list)):
                return self.whole(schema["type"])
        return schema


class _Resolution:
    """Avro's rules of resolution; the paths in its answers are like .items.price."""

    def __init__(self) -> None:
        self.reader, self.writer = _Named(), _Named()
        self._seen: set[tuple[str, str]] = set()

    def why_not(self, reader: AvroSchema, writer: AvroSchema, path: str) -> str:
        """Why values of the writer's schema are none of the reader's; nothing if they are."""
        mine, theirs = self.reader.whole(reader), self.writer.whole(writer)
        if isinstance(theirs, list):
            return next(filter(None, (self.why_not(mine, one, path) for one in theirs)), "")
        if isinstance(mine, list):
            if any(not self.why_not(one, theirs, path) for one in mine):
                return ""
            return f"{path or 'the whole'} may be {theirs['type']}, which none of the union takes"
        wants, has = mine["type"], theirs["type"]
        if wants != has:
            if isinstance(has, str) and wants in _PROMOTIONS.get(has, ()):
                return ""
            return f"{path or 'the whole'} is {wants} and was {has}"
        if has in ("record", "error"):
            return self._record(mine, theirs, path)
        if has == "enum":
            gone = sorted(set(theirs["symbols"]) - set(mine["symbols"]))
            if gone and "default" not in mine:
                return f"{path or 'the whole'} has no symbol {', '.join(gone)} any more"
        if has == "fixed" and mine["size"] != theirs["size"]:
            return f"{path or 'the whole'} has {mine['size']} bytes and had {theirs['size']}"
        if has == "array":
            return self.why_not(mine["items"], theirs["items"], f"{path}.items")
        if has == "map":
            return self.why_not(mine["values"], theirs["values"], f"{path}.values")
        return ""

    def _record(self, mine: Complex, theirs: Complex, path: str) -> str:
        pair = (mine["name"], theirs["name"])
        if pair in self._seen:
            return ""
        self._seen.add(pair)
        had = {field["name"]: field for field in theirs["fields"]}
        for field in mine["fields"]:
            name = field["name"]
            names = [name, *field.get("aliases", ())]
            before = next((had[one] for one in names if one in had), None)
            if before is None:
                if "default" not in field:
                    return f"{path}.{name} is new and has no default"
                continue
            why = self.why_not(field["type"], before["type"], f"{path}.{name}")
            if why:
                return why
        return ""
