"""JSON and MessagePack: bodies as values of an Arrow type, checked by msgspec.

A field that may not be null has to be there; what the type does not have is left out.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, NotRequired, Protocol, TypedDict

import msgspec
import pyarrow as pa

from slipstream.schemas.errors import SchemaError
from slipstream.schemas.json_schema import JSON_TEXT

_SIMPLE: list[tuple[Callable[[pa.DataType], bool], type]] = [
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_date, date),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_null, type(None)),
]

_DECIMAL_DIGITS_MAX = 1000  # of what is given to Arrow, which decides what fits

Change = Callable[[object], object]


class Decoder(Protocol):
    """A decoder of msgspec."""

    def decode(self, body: bytes, /) -> object:
        """The value in a body."""


def json_reader(kind: pa.DataType) -> Callable[[bytes], object]:
    """What turns JSON into a value of the type; it raises `SchemaError` for what is not one."""
    return _reader(msgspec.json.Decoder(decoded_type(kind)), kind)


def msgpack_reader(kind: pa.DataType) -> Callable[[bytes], object]:
    """What turns MessagePack into a value of the type, likewise."""
    return _reader(msgspec.msgpack.Decoder(decoded_type(kind)), kind)


def _reader(decoder: Decoder, kind: pa.DataType) -> Callable[[bytes], object]:
    change = _change(kind)
    decode = decoder.decode

    def value_of(body: bytes) -> object:
        try:
            value = decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SchemaError(reason_of(error)) from error
        return value if change is None else change(value)

    return value_of


def decoded_type(kind: pa.DataType) -> object:
    """The type that msgspec decodes to, for values of an Arrow type."""
    types = pa.types
    if types.is_struct(kind):
        fields: dict[str, object] = {}
        for field in kind:
            inner = _nullable(field)
            fields[field.name] = NotRequired[inner] if field.nullable else inner
        return TypedDict("Body", fields)  # type: ignore[operator]
    if types.is_map(kind):
        return dict[str, _nullable(kind.item_field)]  # type: ignore[misc]
    if types.is_list(kind) or types.is_large_list(kind):
        return list[_nullable(kind.value_field)]  # type: ignore[misc]
    if types.is_integer(kind):
        bits = kind.bit_width - 1
        return Annotated[int, msgspec.Meta(ge=-(2**bits), le=2**bits - 1)]
    if types.is_timestamp(kind):
        return Annotated[datetime, msgspec.Meta(tz=kind.tz is not None)]
    for is_kind, decoded in _SIMPLE:
        if is_kind(kind):
            return decoded
    return object


def or_null(decoded: object) -> object:
    """A type that msgspec decodes to, or null."""
    return decoded | None  # type: ignore[operator]


def _nullable(field: pa.Field) -> object:
    inner = object if field.metadata == JSON_TEXT else decoded_type(field.type)
    return or_null(inner) if field.nullable else inner


def reason_of(error: BaseException) -> str:
    """Why a body is none, in one line."""
    text = str(error).replace(" | null", "")
    return text.splitlines()[0] if text else type(error).__name__


def _change(kind: pa.DataType) -> Change | None:
    """What puts text in place of values that stay JSON, in place; None where there are none.

    It checks decimals, too: Arrow ends the process for an exponent of many millions.
    """
    if pa.types.is_decimal(kind):
        return _checked_decimal
    if pa.types.is_struct(kind):
        inner = {field.name: _field_change(field) for field in kind}
        changes = {name: change for name, change in inner.items() if change is not None}

        def change_fields(value: object) -> object:
            assert isinstance(value, dict)
            for name, change in changes.items():
                if value.get(name) is not None:
                    value[name] = change(value[name])
            return value

        return change_fields if changes else None
    if pa.types.is_map(kind):
        of_item = _field_change(kind.item_field)
        if of_item is not None:

            def change_items(value: object) -> object:
                assert isinstance(value, dict)
                return {key: _unless_null(of_item, one) for key, one in value.items()}

            return change_items
    if pa.types.is_list(kind):
        of_element = _field_change(kind.value_field)
        if of_element is not None:

            def change_elements(value: object) -> object:
                assert isinstance(value, list)
                return [_unless_null(of_element, one) for one in value]

            return change_elements
    return None


def _field_change(field: pa.Field) -> Change | None:
    if field.metadata == JSON_TEXT:
        return lambda value: msgspec.json.encode(value).decode()
    return _change(field.type)


def _checked_decimal(value: object) -> object:
    assert isinstance(value, Decimal)
    _, digits, exponent = value.as_tuple()
    if len(digits) + abs(exponent if isinstance(exponent, int) else 0) > _DECIMAL_DIGITS_MAX:
        raise SchemaError(f"it has a decimal of more than {_DECIMAL_DIGITS_MAX} digits")
    return value


def _unless_null(change: Change, value: object) -> object:
    return None if value is None else change(value)
