"""Codecs: between a payload on the wire and a Python value, chosen by type.

A payload is bytes. Wherever one is published a value may be given, and wherever one arrives a type
may be named; the codec in between follows from the type:

    bytes, bytearray, memoryview      as they are
    str                               UTF-8
    msgspec.Struct, dataclass, TypedDict, int, list[int], ...     JSON, read and checked by msgspec
    pydantic.BaseModel                JSON, by the model itself
    a `Codec`                         itself: two methods, `encode` and `decode`

A `CodecChain` tries several codecs in turn; `Utf8Codec` writes single values as text. A connection
may have a registry (its option `codecs`), which is asked for the codec of each type first; what it
does not know has the codec above. A codec that also has the methods of `MessageCodec` sees subject
and headers.

JSON is chosen since every other NATS client reads it. What msgspec cannot check (pydantic apart) is
refused when the codec is asked for, not when the first message comes in.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, overload, runtime_checkable

import msgspec

from slipstream.errors import Error
from slipstream.wire.headers import Headers

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["BytesCodec", "Codec", "CodecChain", "CodecError", "JsonCodec", "Kind", "MessageCodec"]
__all__ += ["MsgpackCodec", "Registry", "TextCodec", "Utf8Codec"]
__all__ += ["codec_for", "decode", "decode_message", "encode", "encode_message"]


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


class Readable(Protocol):
    """What a codec sees of a message."""

    @property
    def subject(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def data(self) -> bytes: ...


@runtime_checkable
class MessageCodec(Codec[T], Protocol[T]):
    """A codec that sees more than the payload: where it goes, and its headers."""

    def encode_message(self, value: T, subject: str, headers: Headers) -> bytes:
        """The payload of `value`; may add to `headers`, which are sent with it."""
        ...

    def decode_message(self, message: Readable) -> T:
        """The value in `message`."""
        ...


# Where type checkers know a value's type from: a class or a codec. Of anything else that is a type,
# such as `A | B`, a value is Any to them.
Kind: TypeAlias = type[T] | Codec[T]

# Gives the codec for a type; None if it does not know the type. Never asked for bytes or text.
Registry: TypeAlias = Callable[[Any], Codec[Any] | None]


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

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "JsonCodec[Any]", kind: object) -> None: ...
    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)


class MsgpackCodec(Generic[T]):
    """MessagePack of the same types as `JsonCodec`: smaller and faster, for programs alone."""

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "MsgpackCodec[Any]", kind: object) -> None: ...
    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> T:
        return self._decoder.decode(data)


class Utf8Codec(Generic[T]):
    """A single value as plain text: numbers, bool, Decimal, dates and times (ISO 8601), UUID, str.

    What other clients write with `strconv` or `NatsUtf8PrimitivesSerializer`, and people by hand.
    """

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self: "Utf8Codec[Any]", kind: object) -> None: ...
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def encode(self, value: T) -> bytes:
        plain = msgspec.to_builtins(value)
        if isinstance(plain, bool):
            plain = "true" if plain else "false"
        if not isinstance(plain, str | int | float):
            raise TypeError(f"a {type(value).__name__} is no single value")
        return str(plain).encode()

    def decode(self, data: bytes) -> T:
        decoded: T = msgspec.convert(data.decode(), self._kind, strict=False)
        return decoded


class CodecChain(Generic[T]):
    """Several codecs, each tried if those before it raised: to read old payloads beside new ones.

    The last one's error stands if none succeeds.
    """

    def __init__(self, first: Codec[T], *others: Codec[T]) -> None:
        self._codecs = (first, *others)

    def encode(self, value: T) -> bytes:
        return self._first(lambda codec: codec.encode(value))

    def decode(self, data: bytes) -> T:
        return self._first(lambda codec: codec.decode(data))

    def _first(self, attempt: "Callable[[Codec[T]], R]") -> "R":
        for codec in self._codecs[:-1]:
            try:
                return attempt(codec)
            except Exception:
                continue
        return attempt(self._codecs[-1])


class _PydanticCodec:
    """JSON of a pydantic model, by its own validation and serialisation."""

    def __init__(self, model: Any) -> None:
        self._validate: Callable[[bytes], Any] = model.model_validate_json

    def encode(self, value: Any) -> bytes:
        return cast("str", value.model_dump_json()).encode()

    def decode(self, data: bytes) -> Any:
        return self._validate(data)


_PLAIN = (bytes, bytearray, memoryview, str)


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def codec_for(kind: Any, registry: Registry | None = None) -> Codec[Any]:
    """The codec for a type, or `kind` itself if it is one already.

    `registry` is asked first. Raises `CodecError` for a type that cannot be read from JSON.
    """
    if not isinstance(kind, type) and isinstance(kind, Codec):
        return kind
    if registry is not None and kind not in _PLAIN:
        found = registry(kind)
        if found is not None:
            return found
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


def encode(value: Any, codec: Codec[Any] | None = None, registry: Registry | None = None) -> bytes:
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
        return (codec or codec_for(type(value), registry)).encode(value)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"a {type(value).__name__} could not be encoded: {error}") from error


def encode_message(
    value: Any, kind: Any, registry: Registry | None, subject: str, headers: Headers
) -> bytes:
    """As `encode`, by the codec of `kind` (None: of the value's type), which sees where it goes."""
    codec = codec_for(type(value) if kind is None else kind, registry)
    write = getattr(codec, "encode_message", None)
    if write is None:
        return encode(value, None if kind is None else codec, registry)
    try:
        return cast("bytes", write(value, subject, headers))
    except Exception as error:
        raise CodecError(f"a {type(value).__name__} could not be encoded: {error}") from error


@overload
def decode(data: bytes, kind: "Kind[T]", where: str = "the payload") -> T: ...
@overload
def decode(data: bytes, kind: object, where: str = "the payload") -> Any: ...
def decode(data: bytes, kind: object, where: str = "the payload") -> object:
    """The value in `data`: `kind` is a type or a `Codec`; `where` names the payload in errors.

    Raises `CodecError` with the codec's own error as its cause.
    """
    codec = codec_for(kind)
    try:
        return codec.decode(data)
    except Exception as error:
        raise _unreadable(data, kind, where, error) from error


def decode_message(message: Readable, kind: Any, registry: Registry | None = None) -> Any:
    """The value in `message`; as `decode`, by a codec that may see subject and headers."""
    codec = codec_for(kind, registry)
    read = getattr(codec, "decode_message", None)
    try:
        return codec.decode(message.data) if read is None else read(message)
    except Exception as error:
        raise _unreadable(message.data, kind, f"message {message.subject!r}", error) from error


def _unreadable(data: bytes, kind: Any, where: str, error: Exception) -> CodecError:
    named = getattr(kind, "__name__", None) or repr(kind)
    return CodecError(f"{where} ({len(data)} bytes) is not a {named}: {error}")
