"""Reading the JSON of requests as nats-server does (spec jetstream-api.md 1.1).

``null`` says nothing, values one after the other are read into the same object, numbers have the
width of their fields. Unknown fields are errors unless the server was told not to be strict.
"""

import re
from functools import cache
from json import JSONDecoder
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec

from slipstream.engine.errors import bad_json

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
DIGITS_MAX = 18  # of a number that surely fits into 64 bits
FIRST_SEQ_MAX = 2**62  # of a stream's first sequence, so that those behind it fit into 64 bits
SEVERAL_MAX = 1000  # objects in one body
_UNSIGNED = {"seq", "first_seq", "opt_start_seq", "up_to_seq", "keep", "rate_limit_bps"}
_HIGHEST = {"max_msg_size": INT32_MAX, "first_seq": FIRST_SEQ_MAX}
_BLANKS = re.compile(r"[ \t\r\n]*")
_FIRST = JSONDecoder()  # tells where a value ends


def parse(data: bytes, into: Any = Any) -> Any:
    """The value that `data` holds, of the type `into`.

    Raises `msgspec.MsgspecError`, also for what is nested too deeply or is not UTF-8.
    """
    try:
        return msgspec.json.decode(data, type=into)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error


def read_number(text: bytes, digits_max: int = DIGITS_MAX) -> int:
    """The number that `text` is, of so many digits at most; -1 for anything else."""
    return int(text) if text.isdigit() and len(text) <= digits_max else -1


def decode(body: bytes) -> dict[str, Any]:
    """The object that `body` holds. Raises `ApiError` 10025."""
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
    raw: dict[str, Any], into: type[Any], enums: dict[str, tuple[str, ...]], strict: bool = True
) -> Any:
    """The struct `into` from an object; `enums` are the values that its fields may have.

    Raises `ApiError` 10025.
    """
    for name, allowed in enums.items():
        if name not in raw:
            continue
        value = raw[name]
        if name == "discard" and isinstance(value, str):
            value = value.lower()
            raw[name] = value
        if not isinstance(value, str) or value not in allowed:
            shown = "null" if value is None else value
            quoted = shown if value is None else f'\\"{shown}\\"'
            if name == "compression":
                raise bad_json("unknown compression algorithm")
            raise bad_json(f'can not unmarshal "{quoted}"')
    try:
        return msgspec.convert(_named(raw, into, strict), into)
    except msgspec.ValidationError as error:
        raise bad_json(_go_words(str(error))) from error


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

    What has no place in the struct stays, and is an error, if `strict`; otherwise it goes.
    """
    fields = _fields(cast(Any, into))
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = key if key in fields else key.lower()
        if name not in fields:
            if strict:
                found[key] = value
            continue
        inner = fields[name]
        if inner is not None and isinstance(value, dict):
            found[name] = _named(value, inner, strict)
        elif value is not None:
            found[name] = value
    return found


@cache
def _fields(into: Any) -> "dict[str, type[msgspec.Struct] | None]":
    """The names of a struct's fields, each with the struct that it may hold."""
    return {field.encode_name: _struct_in(field.type) for field in msgspec.structs.fields(into)}


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct type that a field is of, or may be of."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


def _go_words(text: str) -> str:
    """The messages that clients look at, in nats-server's words."""
    if text == "Input data was truncated":
        return "unexpected EOF"
    marker = "Object contains unknown field `"
    if text.startswith(marker):
        return f'json: unknown field "{text[len(marker) :].split("`", 1)[0]}"'
    return text
