"""The JSON objects of JetStream's API as typed objects.

A `Document` names every field of its page in the specification. Three things differ between the
object and its JSON:

* Times that JSON counts in nanoseconds are seconds (`Seconds`): floats when they come from a
  server, floats or `datetime.timedelta` when they come from you.
* Points in time are `datetime` in UTC; what a server sends is a `Timestamp`, which also keeps
  the nanoseconds. Go's zero time (year 1) is None.
* Fields that this version does not know are kept in `extra`, and are sent back with an update, so
  that an older client does not reset what a newer one has set.

A field at its default is left out of the JSON, which is how Go clients say the same thing.

A declaration says all that is known of a field: its name and default, and in its type the words or
the numbers that it may have, its unit (`Seconds`), and whether servers always show it (`Shown`).
What the engine holds of these documents is made of the declarations by tools/generate_documents.py.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from slipstream.model.durations import SECOND, to_nanoseconds
from slipstream.model.errors import InvalidAnswerError
from slipstream.model.times import Timestamp, datetime_text

T = TypeVar("T")
NANOSECONDS = "nanoseconds"
SHOWN = "shown"
UNSIGNED = "unsigned"
INT32 = "int32"

Seconds: TypeAlias = Annotated[float | timedelta, NANOSECONDS]
"""A length of time: seconds as a number, or a `datetime.timedelta`."""
Unsigned: TypeAlias = Annotated[int, UNSIGNED]
"""A number of 64 bits that is not negative, such as a sequence."""
Int32: TypeAlias = Annotated[int, INT32]
"""A number of 32 bits."""
Shown: TypeAlias = Annotated[T, SHOWN]
"""What a server's answers have even where it says nothing."""


class _NewerWord(str):
    """A word that a server said where this version knows others; it is sent back as it came."""

    __slots__ = ()


def _read_word(words: tuple[str, ...], value: Any) -> Any:
    return value if value in words or not isinstance(value, str) else _NewerWord(value)


def _written_word(words: tuple[str, ...], name: str, value: Any) -> str:
    if value not in words and not isinstance(value, _NewerWord):
        raise ValueError(f"{name} is one of {', '.join(words)}, not {value!r}")
    return str(value)


def _written_time(name: str, value: datetime) -> str:
    given: object = value  # whatever its type says
    if not isinstance(given, datetime):
        raise TypeError(f"{name} is a datetime, not {given!r}")
    return datetime_text(value)


def _written_document(kind: "type[Document]", name: str, value: "Document") -> dict[str, Any]:
    if not isinstance(value, kind):
        raise TypeError(f"{name} takes a {kind.__name__}, not {value!r}")
    return value.to_wire()


def _listed(name: str, value: T) -> T:
    if isinstance(value, str):
        raise TypeError(f"{name} is a list, not {value!r}; is it [{value!r}]?")
    return value


class Document(msgspec.Struct, kw_only=True, repr_omit_defaults=True):
    """A JSON object of the API; `extra` keeps the fields that have no name here."""

    _always: ClassVar[frozenset[str]] = frozenset()  # sent even at their default

    extra: dict[str, Any] = {}

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> Self:
        """Read a decoded JSON object; what is null or absent gets its default.

        Raises `InvalidAnswerError` if it is not one, or has fields of another kind.
        """
        try:
            return cls._read(raw)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidAnswerError(
                f"the server's {cls.__name__} is not of the shape that JetStream's has: {error}"
            ) from error

    @classmethod
    def _read(cls, raw: Mapping[str, Any]) -> Self:
        readers = _codecs(cls)
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in raw.items():
            codec = readers.get(name)
            if codec is None:
                extra[name] = value
            elif value is not None:
                known[name] = codec[0](value) if codec[0] is not None else value
        return cls(extra=extra, **known)

    def to_wire(self) -> dict[str, Any]:
        """The JSON object, ready to be encoded."""
        made = dict(self.extra)
        defaults = _defaults(type(self))
        for name, (_, write) in _codecs(type(self)).items():
            value = getattr(self, name)
            if value is None or (value == defaults[name] and name not in self._always):
                continue
            made[name] = write(value) if write is not None else value
        return made

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


_Codec: TypeAlias = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


@cache
def _defaults(cls: type[Document]) -> dict[str, Any]:
    found = {}
    for one in msgspec.structs.fields(cls):
        if one.default_factory is not msgspec.NODEFAULT:
            found[one.name] = one.default_factory()
        else:
            found[one.name] = one.default
    return found


@cache
def _codecs(cls: type[Document]) -> dict[str, _Codec]:
    """For each field how to read it and how to write it; None where JSON's value is the value."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _codec(hints[name], name) for name in cls.__struct_fields__ if name != "extra"}


def _codec(hint: Any, name: str) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # Optional; or what you may give beside what a server sends.
        return next(
            (
                codec
                for a in arguments
                if a is not NoneType and (codec := _codec(a, name)) != _PLAIN
            ),
            _PLAIN,
        )
    if origin is Annotated:
        if NANOSECONDS in arguments:
            return (lambda ns: ns / SECOND), partial(to_nanoseconds, name=name)
        return _codec(arguments[0], name)
    if origin is Literal:
        return partial(_read_word, arguments), partial(_written_word, arguments, name)
    if hint is datetime:
        return Timestamp.parse, partial(_written_time, name)
    if isinstance(hint, type) and issubclass(hint, Document):
        return hint.from_wire, partial(_written_document, hint, name)
    if origin in (list, dict):
        read, write = _codec(arguments[-1], name)
        if read is None or write is None:
            return (None, partial(_listed, name)) if origin is list else _PLAIN
        if origin is list:
            return (
                lambda items: [read(i) for i in items],
                lambda items: [write(i) for i in _listed(name, items)],
            )
        return (
            lambda items: {k: read(v) for k, v in items.items()},
            lambda items: {k: write(v) for k, v in items.items()},
        )
    return _PLAIN


_PLAIN: _Codec = (None, None)
