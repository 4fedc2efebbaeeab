"""The bytes in front of a body that say with which schema it was written.

    Confluent    00, then the id of the schema in 4 bytes
    Apicurio     00, then the id in 8 bytes, as older versions of its serializers write it

Numbers are big-endian. A body in Protobuf goes on with the place of its message in the schema: how
many indexes, then the indexes from the outermost message inwards, each as a zigzag varint. A single
00 stands for the first message of the schema, which is the usual one.
"""

from typing import Literal

from slipstream.schemas.errors import SchemaError

Framing = Literal["confluent", "apicurio"]

_MAGIC = 0
_ID_BYTES: dict[str, int] = {"confluent": 4, "apicurio": 8}
_VARINT_BITS_MAX = 63
_INDEXES_MAX = 100  # messages within messages


def id_bytes(framing: Framing) -> int:
    """How many bytes an id has. Raises `SchemaError` for a framing that there is not."""
    if framing not in _ID_BYTES:
        raise SchemaError(f"framing {framing!r} is unknown; there are {', '.join(_ID_BYTES)}")
    return _ID_BYTES[framing]


def schema_id(body: bytes, width: int) -> int:
    """The id in front of a body, with `width` bytes. Raises `SchemaError` if there is none."""
    if len(body) <= width or body[0] != _MAGIC:
        raise SchemaError(f"it does not begin with 00 and a schema id of {width} bytes")
    return int.from_bytes(body[1 : 1 + width], "big")


def prefix(identity: int, framing: Framing) -> bytes:
    """What stands in front of bodies that were written with the schema of this id."""
    width = id_bytes(framing)
    if not 0 <= identity < 1 << 8 * width:
        raise SchemaError(f"schema id {identity} does not fit into {width} bytes")
    return bytes([_MAGIC]) + identity.to_bytes(width, "big")


def message_indexes(body: bytes, at: int) -> tuple[list[int], int]:
    """The place of a Protobuf message in its schema, and where the message begins.

    Raises `SchemaError` if there is no place that could be one.
    """
    count, at = _zigzag(body, at)
    if not count:
        return [0], at
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError(f"it has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(body, at)
        indexes.append(index)
    return indexes, at


def message_place(indexes: list[int]) -> bytes:
    """The place of a message, by its indexes, as bytes."""
    if indexes == [0]:
        return b"\0"
    return b"".join(_varint(2 * number) for number in (len(indexes), *indexes))


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body) or shift > _VARINT_BITS_MAX:
            raise SchemaError("it ends within its message indexes")
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
