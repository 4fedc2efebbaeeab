"""Protobuf: descriptors as Arrow types, messages as values, and values as messages.

What Protobuf itself never leaves out has no null: numbers, texts and enumerations without
`optional`, lists, maps. Messages, members of a oneof and `optional` fields are null if they are not
set. An enumeration is its name as text, an unsigned 64-bit number a decimal.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

from slipstream.extras import require
from slipstream.model.durations import SECOND
from slipstream.schemas.errors import SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.internal.containers import MessageMap, RepeatedCompositeFieldContainer
    from google.protobuf.message import Message

_MICROSECONDS = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN = re.compile(r"google/protobuf/([a-z_]+/)*[a-z_]+\.proto")
_FIELDS_MAX = 10_000  # messages that have others twice at each level would have millions
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"

Scalar = bool | int | float | str | bytes | Decimal
Convert = Callable[..., object]  # takes what Protobuf has for a field, or a message


class Files:
    """The messages of a `FileDescriptorSet`."""

    def __init__(self, pool: "DescriptorPool", names: list[str]) -> None:
        self._pool = pool
        self._names = names

    def message(self, name: str) -> "Descriptor":
        """A message by its full name, or by its last part if that is unambiguous.

        The last file's first one if the name is empty. Raises `SchemaError`.
        """
        if not name:
            return self.at([0])
        try:
            found: Descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            same = [d for d in self._all() if d.name == name]
            if len(same) != 1:
                told = ", ".join(sorted(d.full_name for d in self._all()))
                raise SchemaError(
                    f"the Protobuf schema has no one message {name}: {told}"
                ) from None
            return same[0]
        return found

    def at(self, indexes: list[int]) -> "Descriptor":
        """The message at a place of the last file. Raises `SchemaError`."""
        try:
            proto = list(self._pool.FindFileByName(self._names[-1]).message_types_by_name.values())
            found = proto[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
        except IndexError:
            raise SchemaError(f"its schema has no message at place {indexes}") from None
        if min(indexes) < 0:
            raise SchemaError(f"its schema has no message at place {indexes}")
        made: Descriptor = found
        return made

    def place_of(self, message: "Descriptor") -> list[int]:
        """The place of a message in its file."""
        outer = message.containing_type
        if outer is not None:
            return [*self.place_of(outer), list(outer.nested_types).index(message)]
        return [list(message.file.message_types_by_name.values()).index(message)]

    def _all(self) -> "list[Descriptor]":
        files = [self._pool.FindFileByName(name) for name in self._names]
        found = [d for file in files for d in file.message_types_by_name.values()]
        for descriptor in found:  # grows while it is read
            found.extend(descriptor.nested_types)
        return found


def files_of(descriptors: bytes) -> Files:
    """The messages of a serialized `FileDescriptorSet`. Raises `SchemaError`."""
    require("google.protobuf", extra="schemas")
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        _add_known(pool, files)
        for file in files:
            pool.Add(file)
        for file in files:
            pool.FindFileByName(file.name)
    except (DecodeError, TypeError, KeyError) as error:
        raise SchemaError(f"the Protobuf descriptors are not valid: {error}") from error
    if not files:
        raise SchemaError("the Protobuf descriptors have no file")
    return Files(pool, [file.name for file in files])


def is_known(name: str) -> bool:
    """Whether a file is one that comes with Protobuf, which registries may leave out."""
    if not _KNOWN.fullmatch(name):
        return False
    try:
        return find_spec(_module_of(name)) is not None
    except ModuleNotFoundError:  # of a folder in its name
        return False


def _add_known(pool: "DescriptorPool", files: "Iterable[FileDescriptorProto]") -> None:
    """Add what the files import of those that come with Protobuf, unless they are among them."""
    there = {file.name for file in files}
    wanted = [name for file in files for name in file.dependency]
    while wanted:
        name = wanted.pop()
        if name not in there and is_known(name):
            there.add(name)
            found = import_module(_module_of(name)).DESCRIPTOR
            wanted += [other.name for other in found.dependencies]
            pool.AddSerializedFile(found.serialized_pb)


def _module_of(name: str) -> str:
    return name.removesuffix(".proto").replace("/", ".") + "_pb2"


def arrow_type(message: "Descriptor") -> pa.DataType:
    """The type of a message's values. Raises `SchemaError`."""
    try:
        if _field_count(message, {}) > _FIELDS_MAX:
            raise SchemaError(f"Protobuf's {message.full_name} has more than {_FIELDS_MAX} fields")
        return _message_type(message, ())
    except RecursionError as error:
        raise SchemaError(f"Protobuf's {message.full_name} is nested too deep") from error


def _field_count(message: "Descriptor", known: dict[str, int]) -> int:
    """How many fields a message has, with those of messages in it."""
    name = message.full_name
    if name not in known:
        known[name] = 0  # for those within it; that it has itself within itself is found later
        inner = [field.message_type for field in message.fields if field.message_type is not None]
        known[name] = len(message.fields) + sum(_field_count(one, known) for one in inner)
    return known[name]


def _message_type(message: "Descriptor", within: tuple[str, ...]) -> pa.DataType:
    if message.full_name in within:
        raise SchemaError(
            f"Protobuf's {message.full_name} has itself within itself, which no column holds"
        )
    inside = (*within, message.full_name)
    return pa.struct([_field_type(field, inside) for field in message.fields])


def reader(message: "Descriptor") -> Callable[[bytes], object]:
    """What turns a body into a value."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    parse = GetMessageClass(message).FromString
    convert = _message_reader(message)

    def value_of(body: bytes) -> object:
        try:
            return convert(parse(body))
        except (DecodeError, UnicodeDecodeError) as error:
            raise SchemaError(f"it is no message {message.full_name}: {error}") from error

    return value_of


def writer(message: "Descriptor") -> Callable[[object], bytes]:
    """What turns a value into a body."""
    from google.protobuf.message_factory import GetMessageClass

    made = GetMessageClass(message)

    def body_of(value: object) -> bytes:
        filled = made()
        _fill(filled, value)
        body: bytes = filled.SerializeToString()
        return body

    return body_of


# -- types -----------------------------------------------------------------------------------------


def _field_type(field: "FieldDescriptor", within: tuple[str, ...]) -> pa.Field:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        value = pa.field("value", _value_type(entry["value"], within), nullable=False)
        return pa.field(field.name, pa.map_(_value_type(entry["key"], within), value), False)
    kind = _value_type(field, within)
    if field.is_repeated:
        return pa.field(field.name, pa.list_(pa.field("element", kind, nullable=False)), False)
    return pa.field(field.name, kind, nullable=field.has_presence)


def _value_type(field: "FieldDescriptor", within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _scalar_type(field)
    if message.full_name == _TIMESTAMP:
        return _MICROSECONDS
    if message.full_name == _DURATION:
        return pa.duration("us")
    if message.full_name in _WRAPPERS:
        return _scalar_type(message.fields_by_name["value"])
    return _message_type(message, within)


def _scalar_type(field: "FieldDescriptor") -> pa.DataType:
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return kinds[field.cpp_type]


def _is_map(field: "FieldDescriptor") -> bool:
    message = field.message_type
    return message is not None and message.GetOptions().map_entry


# -- messages to values ----------------------------------------------------------------------------


def _message_reader(message: "Descriptor") -> Convert:
    fields = [(field.name, *_field_reader(field)) for field in message.fields]

    def convert(found: "Message") -> dict[str, object]:
        return {
            name: read(getattr(found, name)) if not is_optional or found.HasField(name) else None
            for name, is_optional, read in fields
        }

    return convert


def _field_reader(field: "FieldDescriptor") -> tuple[bool, Convert]:
    if _is_map(field):
        value = _value_reader(field.message_type.fields_by_name["value"])
        return False, lambda found: [(key, value(found[key])) for key in found]
    read = _value_reader(field)
    if field.is_repeated:
        return False, lambda found: [read(one) for one in found]
    return field.has_presence, read


def _value_reader(field: "FieldDescriptor") -> Convert:
    message = field.message_type
    if message is None:
        if field.enum_type is None:
            return _as_it_is
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if message.full_name in (_TIMESTAMP, _DURATION):
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1000
    if message.full_name in _WRAPPERS:
        return lambda found: found.value
    return _message_reader(message)


def _as_it_is(value: object) -> object:
    return value


# -- values to messages ----------------------------------------------------------------------------


def _fill(message: "Message", value: object) -> None:
    """Set what a value has; raises `SchemaError` for a field that the message has not."""
    if not isinstance(value, Mapping):
        raise _misfit(message.DESCRIPTOR.full_name, value)
    fields = message.DESCRIPTOR.fields_by_name
    for name, inner in value.items():
        if name not in fields:
            raise SchemaError(f"message {message.DESCRIPTOR.full_name} has no field {name}")
        if inner is None:
            continue
        field, kept = fields[name], getattr(message, name)
        if _is_map(field):
            _fill_map(kept, field, inner)
        elif field.is_repeated:
            _fill_list(kept, field, inner)
        elif field.message_type is not None:
            kept.SetInParent()
            _set(kept, inner)
        else:
            setattr(message, name, _plain(field, inner))


def _fill_map(kept: "MessageMap", field: "FieldDescriptor", value: object) -> None:
    inner = field.message_type.fields_by_name["value"]
    if isinstance(value, list):
        value = dict(value)
    if not isinstance(value, Mapping):
        raise _misfit(field.full_name, value)
    for key, one in value.items():
        if inner.message_type is not None:
            _set(kept[key], one)
        else:
            kept[key] = _plain(inner, one)


def _fill_list(
    kept: "RepeatedCompositeFieldContainer", field: "FieldDescriptor", value: object
) -> None:
    if not isinstance(value, list):
        raise _misfit(field.full_name, value)
    if field.message_type is None:
        kept.extend(_plain(field, one) for one in value)
        return
    for one in value:
        _set(kept.add(), one)


def _misfit(name: str, value: object) -> SchemaError:
    return SchemaError(f"{name} of Protobuf does not take a {type(value).__name__}")


def _set(message: "Message", value: object) -> None:
    name = message.DESCRIPTOR.full_name
    if name in (_TIMESTAMP, _DURATION):
        span = _aware(value) - _EPOCH if isinstance(value, datetime) else value
        if not isinstance(span, timedelta):
            raise _misfit(name, value)
        total_ns = span // timedelta(microseconds=1) * 1000
        sign = -1 if total_ns < 0 and name == _DURATION else 1
        seconds, nanos = divmod(sign * total_ns, SECOND)
        message.seconds, message.nanos = sign * seconds, sign * nanos
    elif name in _WRAPPERS:
        message.value = _plain(message.DESCRIPTOR.fields_by_name["value"], value)
    else:
        _fill(message, value)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _plain(field: "FieldDescriptor", value: object) -> Scalar:
    if not isinstance(value, Scalar):
        raise _misfit(field.full_name, value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        return int(value) if known is None else known.number
    return int(value) if field.cpp_type == field.CPPTYPE_UINT64 else value
