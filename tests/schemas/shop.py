"""Orders of a shop in every format; the descriptors of Protobuf are made without a compiler."""

import base64
import io
import json
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2

FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "amount", "type": "double", "default": 1.5},
    ],
}
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": {},
        },
        "required": ["number"],
    }
)

_FIELD = descriptor_pb2.FieldDescriptorProto


def avro_body(schema: Any, value: Any) -> bytes:
    """A value as Avro."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(identity: int, body: bytes, width: int = 4) -> bytes:
    """A body with the id of its schema."""
    return b"\0" + identity.to_bytes(width, "big") + body


def _field(name: str, number: int, kind: int, type_name: str = "", label: int = 1) -> Any:
    named = {"type_name": type_name} if type_name else {}
    return _FIELD(name=name, number=number, type=kind, label=label, **named)


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """shop.proto with the messages Shop, Order and Order.Item."""
    item = descriptor_pb2.DescriptorProto(name="Item")
    item.field.append(_field("name", 1, _FIELD.TYPE_STRING))
    item.field.append(_field("count", 2, _FIELD.TYPE_UINT64))
    entry = descriptor_pb2.DescriptorProto(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.append(_field("key", 1, _FIELD.TYPE_STRING))
    entry.field.append(_field("value", 2, _FIELD.TYPE_DOUBLE))
    order = descriptor_pb2.DescriptorProto(name="Order", nested_type=[item, entry])
    order.field.append(_field("number", 1, _FIELD.TYPE_INT32))
    order.field.append(_field("items", 2, _FIELD.TYPE_MESSAGE, ".shop.Order.Item", 3))
    order.field.append(_field("prices", 3, _FIELD.TYPE_MESSAGE, ".shop.Order.PricesEntry", 3))
    order.field.append(_field("at", 4, _FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp"))
    order.field.append(_field("state", 5, _FIELD.TYPE_ENUM, ".shop.State"))
    order.field.append(_field("gift", 6, _FIELD.TYPE_MESSAGE, ".shop.Order.Item"))
    shop = descriptor_pb2.DescriptorProto(name="Shop")
    shop.field.append(_field("name", 1, _FIELD.TYPE_STRING))
    state = descriptor_pb2.EnumDescriptorProto(name="State")
    for number, name in enumerate(("OPEN", "PAID")):
        state.value.add(name=name, number=number)
    return descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        message_type=[shop, order],
        enum_type=[state],
    )


def timestamp_file() -> descriptor_pb2.FileDescriptorProto:
    """What shop.proto imports."""
    from google.protobuf import timestamp_pb2

    found = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found)
    return found


def descriptors() -> bytes:
    """What protoc writes for shop.proto."""
    made = descriptor_pb2.FileDescriptorSet(file=[timestamp_file(), proto_file()])
    return bytes(made.SerializeToString())


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    """A file as a registry answers it with format=serialized."""
    return base64.b64encode(file.SerializeToString()).decode()
