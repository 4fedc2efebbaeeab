"""Codecs: between a payload on the wire and a Python value, chosen by type.

A payload is bytes. Wherever one is published a value may be given, and wherever one arrives a type
may be named; the codec in between follows from the type:

    bytes, bytearray, memoryview      as they are
    str                               UTF-8
    msgspec.Struct, dataclass, TypedDict, int, list[int], ...     JSON, read and checked by msgspec
    pydantic.BaseModel                JSON, by the model itself
    a `Codec`                         itself: two methods, `encode` and `decode`

JSON is chosen since every other NATS client reads it. What msgspec cannot check (pydantic apart) is
refused when the codec is asked for, not when the first message comes in.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from slipstream.errors import Error

T = TypeVar("T")

__all__ = ["BytesCodec", "Codec", "CodecError", "JsonCodec", "MsgpackCodec", "TextCodec"]
__all__ += ["codec_for", "decode", "encode"]


class CodecError(Error, ValueError):
    """A value could not be encoded, or a payload is not what its type says."""


@runtime_checkable
class Codec(Protocol[T]):
    """What turns values of one type into payloads and back.

    `decode` raises whatever it likes for a payload that is not one of its own; callers of this
    package see it as the cause of a `CodecError`.
    """

    def encode(self, value: T) -> bytes:
        """The payload of `value`."""
        ...

    def decode(self, data: bytes) -> T:
        """The value in the payload `data`."""
        ...


class BytesCodec:
    """Payloads as they are; a memoryview or bytearray is copied."""

    def encode(self, value: "bytes | bytearray | memoryview") -> bytes:
        return value if type(value) is bytes else bytes(value)

    def decode(self, data: bytes) -> bytes:
        return data


class TextCodec:
    """UTF-8 text."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


class JsonCodec(Generic[T]):
    """JSON of any type that msgspec checks: Struct, dataclass, TypedDict, numbers, lists, dicts."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)


class MsgpackCodec(Generic[T]):
    """MessagePack of the same types as `JsonCodec`: smaller and faster, for programs alone."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)


class _PydanticCodec:
    """JSON of a pydantic model, by its own validation and serialisation."""

    def __init__(self, model: Any) -> None:
        self._validate: Callable[[bytes], Any] = model.model_validate_json

    def encode(self, value: Any) -> bytes:
        return cast("str", value.model_dump_json()).encode()

    def decode(self, data: bytes) -> Any:
        return self._validate(data)


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def codec_for(kind: Any) -> Codec[Any]:
    """The codec for a type, or `kind` itself if it is one already.

    Raises `CodecError` for a type that cannot be read from JSON.
    """
    if not isinstance(kind, type) and isinstance(kind, Codec):
        return kind
    try:
        return _codec_of_type(kind)
    except TypeError:  # a type that cannot be hashed, such as Annotated[..., []]
        return _new_codec(kind)


@lru_cache(maxsize=256)
def _codec_of_type(kind: Any) -> Codec[Any]:
    return _new_codec(kind)


def _new_codec(kind: Any) -> Codec[Any]:
    if kind in (bytes, bytearray, memoryview):
        return BytesCodec()
    if kind is str:
        return TextCodec()
    if _is_pydantic(kind):
        return _PydanticCodec(kind)
    try:
        return JsonCodec(kind)
    except TypeError as error:
        raise CodecError(
            f"no codec for {kind!r}: {error}. Give bytes, str, a msgspec.Struct, a dataclass, a "
            "pydantic model, or an object with `encode` and `decode`"
        ) from error


def encode(value: Any, codec: Codec[Any] | None = None) -> bytes:
    """The payload of `value`, by `codec` or by the value's own type; None is an empty payload.

    Raises `CodecError` if that fails.
    """
    if codec is None:
        if type(value) is bytes:
            return value
        if value is None:
            return b""
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
    try:
        return (codec or codec_for(type(value))).encode(value)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"a {type(value).__name__} could not be encoded: {error}") from error


def decode(data: bytes, kind: Any, where: str = "the payload") -> Any:
    """The value in `data`: `kind` is a type or a `Codec`; `where` names the payload in errors.

    Raises `CodecError` with the codec's own error as its cause.
    """
    codec = codec_for(kind)
    try:
        return codec.decode(data)
    except Exception as error:
        named = getattr(kind, "__name__", None) or repr(kind)
        raise CodecError(f"{where} ({len(data)} bytes) is not a {named}: {error}") from error
