"""Reading the JSON of requests as nats-server does (docs/protocol/api.md#request-bodies).

``null`` means that a field is absent (inside a list or a map: the zero value), the names of fields
have no case, values one after the other are read into the same object, numbers have the width of
their fields. Unknown fields are errors unless the server was told not to be strict.
"""

import re
from collections.abc import Mapping
from functools import cache
from json import JSONDecoder, dumps
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

import msgspec

from slipstream.engine.protocol.configurations import INT32, TIMES, UNSIGNED
from slipstream.engine.protocol.engine_document import struct_in
from slipstream.engine.protocol.errors import bad_json
from slipstream.model.times import read_time

T = TypeVar("T")
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
DIGITS_MAX = 18  # of a number that surely fits into 64 bits
FIRST_SEQ_MAX = 2**62  # of a stream's first sequence, so that those after it fit into 64 bits
SEVERAL_MAX = 1000  # objects in one body
_UNSIGNED = UNSIGNED | {"seq", "up_to_seq", "keep"}
_HIGHEST = {**dict.fromkeys(INT32, INT32_MAX), "first_seq": FIRST_SEQ_MAX}
_KINDS = {"priority_policy": "priority policy", "action": "consumer action"}
_TIMES = TIMES | {"start_time", "up_to_time"}
_BLANKS = re.compile(r"[ \t\r\n]*")
_SURROGATES = re.compile(rb"(?P<whole>\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
_FIRST = JSONDecoder()  # tells where a value ends


class TooDeepError(msgspec.DecodeError):
    """JSON is nested more deeply than it can be read."""


def parse(data: bytes, into: Any = Any) -> Any:
    """The value that `data` holds, of the type `into`.

    Raises `msgspec.MsgspecError`, also for what is nested too deeply or is not UTF-8. Half of a
    surrogate pair stands for a character that is not known, as in Go.
    """
    try:
        return msgspec.json.decode(data, type=into)
    except RecursionError as error:
        raise TooDeepError("JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except msgspec.DecodeError:
        repaired = _SURROGATES.sub(_known, data)
        if repaired == data:
            raise
    return parse(repaired, into)


def _known(escape: "re.Match[bytes]") -> bytes:
    return escape[0] if escape["whole"] else b"\\ufffd"


def read_number(text: bytes, digits_max: int = DIGITS_MAX) -> int:
    """The number that `text` is, of so many digits at most; -1 for anything else."""
    return int(text) if text.isdigit() and len(text) <= digits_max else -1


def decode(body: bytes) -> dict[str, Any]:
    """The object that `body` holds. Raises `ApiError` INVALID_JSON."""
    body = body.decode("utf-8", "replace").encode()
    try:
        raw = parse(body)
    except msgspec.DecodeError as error:
        several = _several(body)
        if several is None:
            raise bad_json(_go_words(str(error))) from error
        raw = several
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise bad_json(f"an object was expected, not {type(raw).__name__}")
    _check_numbers(raw)
    return raw


def convert(
    raw: dict[str, Any],
    into: type[Any],
    enums: Mapping[str, tuple[str, ...]],
    strict: bool = True,
) -> Any:
    """The struct `into` from an object; `enums` are the values that its fields may have.

    Raises `ApiError` INVALID_JSON.
    """
    for key, value in raw.items():
        name = key.lower()
        if name in enums:
            raw[key] = _checked(name, value, enums[name])
    try:
        return msgspec.convert(_named(raw, into, strict), into)
    except msgspec.ValidationError as error:
        raise bad_json(_go_words(str(error))) from error


def read_lenient(body: bytes, into: type[T]) -> T:
    """The struct `into` from an object; unknown fields are ignored, as by Go's `json.Unmarshal`.

    If `into` forbids unknown fields, a body with none, no ``null`` and all names in lower case, as
    most are, is read in one step. Raises `msgspec.MsgspecError`.
    """
    struct = cast(type[msgspec.Struct], into)
    if struct.__struct_config__.forbid_unknown_fields:
        try:
            return cast(T, parse(body, into))
        except msgspec.ValidationError:
            pass
    raw = parse(body, dict[str, Any] | None) or {}
    return msgspec.convert(_named(raw, into, strict=False), into)


def go_words_lenient(error: msgspec.MsgspecError) -> str:
    """What `read_lenient` raised in the words of Go's `json.Unmarshal`, as far as clients know
    them."""
    cut = str(error) == "Input data was truncated"
    return "unexpected end of JSON input" if cut else str(error)


def _checked(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """The value of an enumeration as it is kept.

    Raises `ApiError` INVALID_JSON, also for ``null``.
    """
    found = value.lower() if name == "discard" and isinstance(value, str) else value
    if isinstance(found, str) and found in allowed:
        return found
    sent = dumps(value)
    if name == "compression":
        if isinstance(value, str) or value is None:
            raise bad_json("unknown compression algorithm")
        return value  # of the wrong type, which `convert` refuses
    if name in _KINDS:
        raise bad_json(f"unknown {_KINDS[name]}: {sent}")
    raise bad_json(f"can not unmarshal {dumps(sent)}")


def _several(body: bytes) -> dict[str, Any] | None:
    """Objects one after the other, as one in which the later ones win; None if it is not that."""
    found: dict[str, Any] = {}
    text = body.decode()
    at = _BLANKS.match(text).end()  # type: ignore[union-attr]
    for _ in range(SEVERAL_MAX):
        if at == len(text):
            return found
        try:
            _, end = _FIRST.raw_decode(text, at)
            found |= parse(text[at:end].encode(), dict[str, Any])
        except (ValueError, RecursionError):
            return None
        at = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    return None


def _check_numbers(value: Any, name: str = "") -> None:
    """Refuse numbers that do not fit into 64 bits, or into what their fields are."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, key)
    elif isinstance(value, list):
        for item in value:
            _check_numbers(item, name)
    elif isinstance(value, int):
        low = 0 if name in _UNSIGNED else -INT64_MAX - 1
        high = _HIGHEST.get(name, INT64_MAX)
        if not low <= value <= high:
            kind = "int32" if high == INT32_MAX else "uint64" if low == 0 else "int64"
            raise bad_json(f"json: cannot unmarshal number {value} into {name} of type {kind}")
    elif isinstance(value, float):
        raise bad_json(f"json: cannot unmarshal number {value} into {name} of type int64")


def _named(raw: dict[str, Any], into: type[Any], strict: bool) -> dict[str, Any]:
    """`raw` with the names that the struct `into` has, at any depth: names have no case.

    What has no place in the struct stays, and is an error, if `strict`; otherwise it goes. Times
    become what Go makes of them. Raises `msgspec.ValidationError` for an invalid time.
    """
    fields = _fields(cast(Any, into))
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = key if key in fields else key.lower()
        if name not in fields:
            if strict:
                found[key] = value
            continue
        inner, zero = fields[name]
        if inner is not None and isinstance(value, dict):
            found[name] = _named(value, inner, strict)
        elif inner is not None and isinstance(value, list):
            items = (inner() if item is None else item for item in value)
            found[name] = [_named(i, inner, strict) if isinstance(i, dict) else i for i in items]
        elif name in _TIMES and isinstance(value, str):
            found[name] = _time(value)
        elif value is not None:
            found[name] = _filled(value, zero)
    return found


def _time(text: str) -> str:
    try:
        return read_time(text).text
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error


def _filled(value: Any, zero: Any) -> Any:
    """A list or a map with `zero` where it has ``null``; any other value as it is."""
    if isinstance(value, list):
        return [zero if item is None else item for item in value]
    if isinstance(value, dict):
        return {key: zero if item is None else item for key, item in value.items()}
    return value


@cache
def _fields(into: Any) -> "dict[str, tuple[type[msgspec.Struct] | None, Any]]":
    """The names of a struct's fields, each with the struct that it may hold, and with what
    ``null`` is inside of its list or map."""
    return {
        field.encode_name: (struct_in(field.type), _zero_in(field.type))
        for field in msgspec.structs.fields(into)
    }


def _zero_in(kind: Any) -> Any:
    """The zero value of the items of a list or a map; None where they are not plain values."""
    items = get_args(kind)[-1:] if get_origin(kind) in (list, dict) else ()
    return items[0]() if items and items[0] in (str, int) else None


def _go_words(text: str) -> str:
    """The messages that clients look at, in nats-server's words."""
    if text == "Input data was truncated":
        return "unexpected EOF"
    marker = "Object contains unknown field `"
    if text.startswith(marker):
        return f'json: unknown field "{text[len(marker) :].split("`", 1)[0]}"'
    return text
