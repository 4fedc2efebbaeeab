"""Avro bodies: the records of object container files, which bring their schema with them.

fastavro reads the schema and gives logical types their meaning. Its readers have no bound on what
a few bytes become, so the values are read here, as plain as JSON has them, within bounds on their
number, their depth and the bytes of unpacked blocks. What has no schema with it is only recognized.
"""

import zlib
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from struct import unpack
from typing import Required, TypedDict
from uuid import UUID

import msgspec

from slipstream.extras import MissingPackageError, require

MAGIC = b"Obj\x01"
VALUES_MAX = 16 * 1024  # on a line each, they have more letters than a view shows
DEPTH_MAX = 64
SCHEMA_BYTES_MAX = 64 * 1024
_SCHEMA_DEPTH_MAX = 3 * DEPTH_MAX  # of its JSON: a record, its fields, one of them
_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_END = 10
_CONFLUENT_END = 5
_SYNC_BYTES = 16
_NUMBER_BYTES_MAX = 64  # a decimal of more bytes is shown as these
_SCALE_MAX = 1000
_CODECS = ("null", "deflate")


class _Field(TypedDict):
    name: str
    type: "_Schema"


class _Type(TypedDict, total=False):
    """A type with its parts; which there are depends on its kind."""

    type: Required[str]
    fields: list[_Field]
    items: "_Schema"
    values: "_Schema"
    symbols: list[str]
    size: int
    logicalType: str
    scale: int


# What a schema may be once fastavro has parsed it: a name, a union or a type.
_Schema = str | list["_Schema"] | _Type


class Container(msgspec.Struct, frozen=True):
    """What a container file holds. `note` says why records are missing; "" if none are."""

    records: list[object]
    note: str = ""


class _Unread(Exception):
    """Why the rest is not read."""


def read(data: bytes, bytes_max: int) -> Container:
    """The records of a container file whose blocks have up to `bytes_max` bytes, unpacked."""
    records: list[object] = []
    try:
        _read_into(records, data, bytes_max)
    except (_Unread, MissingPackageError) as error:
        why = str(error)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, zlib.error):
        why = "the file is broken"
    else:
        return Container(records)
    if records:
        return Container(records, f"The first {len(records):,} of its records: {why}.")
    return Container(records, f"An Avro file whose records are not shown: {why}.")


def without_schema(data: bytes) -> str:
    """As what a body looks like whose Avro schema is elsewhere; "" if it does not."""
    if data[:2] == _SINGLE_OBJECT and len(data) >= _FINGERPRINT_END:
        schema = f"with the schema of fingerprint {data[2:_FINGERPRINT_END][::-1].hex()}"
        framing = "Avro's single-object encoding"
    elif data[:1] == b"\0" and len(data) > _CONFLUENT_END and any(data[1:_CONFLUENT_END]):
        schema = f"with schema {int.from_bytes(data[1:_CONFLUENT_END], 'big'):,} of a registry"
        framing = "Avro in Confluent's framing"
    else:
        return ""
    return f"It looks like {framing}, {schema}. The schema is not in the message."


def _read_into(records: list[object], data: bytes, bytes_max: int) -> None:
    file = _Bytes(data)
    file.take(len(MAGIC))
    metadata = _metadata(file)
    sync = file.take(_SYNC_BYTES)
    codec = metadata.get(b"avro.codec", b"null").decode()
    if codec not in _CODECS:
        raise _Unread(f"codec {codec[:40]!r} is not read here, {' and '.join(_CODECS)} are")
    schema, named = _parsed(metadata[b"avro.schema"])
    values = _Values(named)
    left = bytes_max
    while not file.is_at_end():
        count, block = file.long(), file.take(file.long())
        if codec == "deflate":
            block = zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, left + 1)
        left -= len(block)
        if left < 0:
            raise _Unread(f"unpacked, the file has more than {bytes_max:,} bytes")
        values.begin(block)
        for _ in range(count):
            records.append(values.value(schema))
        if not values.is_at_end() or file.take(_SYNC_BYTES) != sync:
            raise ValueError("a block does not end where it says")


def _metadata(file: "_Bytes") -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while count := file.items():
        if len(found) + count > VALUES_MAX:
            raise _Unread(f"its header has more than {VALUES_MAX:,} entries")
        for _ in range(count):
            key = file.take(file.long())
            found[key] = file.take(file.long())
    return found


@lru_cache(maxsize=64)
def _parsed(text: bytes) -> tuple[_Schema, dict[str, _Type]]:
    """A schema, and those that it names. Messages of a stream often have the same."""
    fastavro = require("fastavro", extra="console")
    if len(text) > SCHEMA_BYTES_MAX:
        raise _Unread(f"its schema has more than {SCHEMA_BYTES_MAX:,} bytes")
    named: dict[str, _Type] = {}
    try:
        plain = msgspec.json.decode(text)
        _check(plain, 0)
        schema: _Schema = fastavro.schema.parse_schema(plain, named)
    except _Unread:
        raise
    except Exception as error:  # fastavro's own are no others' children
        raise _Unread(f"its schema is not valid: {str(error)[:200]}") from error
    return schema, named


def _check(plain: object, depth: int) -> None:
    """Refuse a schema that is deeper than any, or that says it needs no check."""
    if depth > _SCHEMA_DEPTH_MAX:
        raise _Unread(f"its schema is more than {_SCHEMA_DEPTH_MAX} levels deep")
    if isinstance(plain, dict):
        if any(key.startswith("__fastavro") for key in plain):
            raise ValueError("a key is reserved for fastavro")
        plain = list(plain.values())
    if isinstance(plain, list):
        for one in plain:
            _check(one, depth + 1)


class _Bytes:
    """Bytes that are read from their beginning to their end."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self._at = 0

    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def long(self) -> int:
        """A number of up to 64 bits: zigzag, seven bits in a byte."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number has more than 64 bits")

    def items(self) -> int:
        """How many items of an array or a map come next; 0 at its end."""
        count = self.long()
        if count < 0:
            self.long()  # their bytes
        return abs(count)


class _Values(_Bytes):
    """Reads values, block after block, until there are too many of them."""

    def __init__(self, named: dict[str, _Type]) -> None:
        super().__init__()
        self._named = named
        self._left = VALUES_MAX
        self._logical: dict[str, Callable[[object, _Type], object]] = require(
            "fastavro", extra="console"
        ).read.LOGICAL_READERS

    def begin(self, block: bytes) -> None:
        """Go on with a block, which counts as a value because it may be empty."""
        self._data, self._at = block, 0
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Unread(f"there are more than {VALUES_MAX:,} values")

    def value(self, schema: _Schema, depth: int = 0) -> object:
        """The next value, of this schema."""
        self._count()
        if depth > DEPTH_MAX:
            raise _Unread(f"a value is more than {DEPTH_MAX} levels deep")
        if isinstance(schema, list):
            return self.value(schema[self._index(len(schema))], depth + 1)
        if isinstance(schema, str):
            if schema in self._named:
                return self._made(self._named[schema], depth)
            return _plain(self._primitive(schema))
        return self._made(schema, depth)

    def _made(self, schema: _Type, depth: int) -> object:
        kind = schema["type"]
        if kind in ("record", "error"):
            return {one["name"]: self.value(one["type"], depth + 1) for one in schema["fields"]}
        if kind == "array":
            return [
                self.value(schema["items"], depth + 1)
                for count in iter(self.items, 0)
                for _ in range(count)
            ]
        if kind == "map":
            return {
                self._text(): self.value(schema["values"], depth + 1)
                for count in iter(self.items, 0)
                for _ in range(count)
            }
        if kind == "enum":
            return schema["symbols"][self._index(len(schema["symbols"]))]
        value = self.take(schema["size"]) if kind == "fixed" else self._primitive(kind)
        return _plain(self._meaning(value, kind, schema))

    def _primitive(self, kind: str) -> object:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"
            case "int" | "long":
                return self.long()
            case "float":
                return float(unpack("<f", self.take(4))[0])
            case "double":
                return float(unpack("<d", self.take(8))[0])
            case "bytes":
                return self.take(self.long())
            case "string":
                return self._text()
        raise ValueError(f"there is no type {kind}")

    def _text(self) -> str:
        return self.take(self.long()).decode()

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise ValueError("an index is outside")
        return index

    def _meaning(self, value: object, kind: str, schema: _Type) -> object:
        """A value of a logical type; as it is if it is none."""
        logical = schema.get("logicalType")
        meaning = self._logical.get(f"{kind}-{logical}")
        if meaning is None:
            return value
        if isinstance(value, bytes) and len(value) > _NUMBER_BYTES_MAX:
            return value
        if schema.get("scale", 0) > _SCALE_MAX:
            return value
        try:
            return meaning(value, schema)
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return value


def _plain(value: object) -> object:
    """A value as JSON has it: bytes in hex, times as ISO 8601, decimals by their digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value
