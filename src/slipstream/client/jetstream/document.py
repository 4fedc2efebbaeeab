"""JSON documents of the JetStream API as typed objects: configurations and infos.

A `Document` names every field of its page in the specification. Three things differ between the
object and its JSON, and they differ in one place, here:

* Times that JSON counts in nanoseconds are seconds (`Seconds`): floats when they come from a
  server, floats or `datetime.timedelta` when they come from you.
* Points in time are `datetime` in UTC; what a server sends is a `Timestamp`, which also keeps
  the nanoseconds. Go's zero time (year 1) is None.
* Fields that this version does not know are kept in `extra`, and are sent back with an update, so
  that an older client does not reset what a newer one has set.

A field at its default is left out of the JSON, which is how Go clients say the same thing.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from slipstream.client.jetstream.errors import InvalidAnswerError

_NANOSECONDS = "nanoseconds"
Seconds: TypeAlias = Annotated[float | timedelta, _NANOSECONDS]
"""A length of time: seconds as a number, or a `datetime.timedelta`."""


class Timestamp(datetime):
    """A `datetime` in UTC that also keeps the nanoseconds a server wrote (0 to 999)."""

    nanosecond: int = 0

    @classmethod
    def from_ns(cls, ns: int) -> "Timestamp":
        """The time `ns` nanoseconds after the epoch."""
        seconds, rest = divmod(ns, 1_000_000_000)
        made = cls.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
        made.nanosecond = rest % 1000
        return made

    @classmethod
    def parse(cls, text: str) -> "Timestamp | None":
        """Read RFC 3339 as Go writes it, to nine decimals; None for Go's zero time."""
        if text.startswith("0001-01-01T00:00:00"):
            return None
        whole, point, rest = text.partition(".")
        digits = ""
        if point:
            digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            text = whole + rest[len(digits) :]
        nanoseconds = int(digits[:9].ljust(9, "0")) if digits else 0
        parsed = cls.fromisoformat(text).astimezone(UTC)
        made = parsed.replace(microsecond=nanoseconds // 1000)
        made.nanosecond = nanoseconds % 1000
        return made

    @property
    def ns(self) -> int:
        """Nanoseconds since the epoch."""
        whole = int(self.replace(microsecond=0).timestamp())
        return whole * 1_000_000_000 + self.microsecond * 1000 + self.nanosecond


def time_to_wire(value: datetime) -> str:
    """RFC 3339 in UTC; a `datetime` without a zone is taken as local time, as Python does."""
    at = value.astimezone(UTC)
    text = at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    nanoseconds = at.microsecond * 1000 + getattr(value, "nanosecond", 0)
    return f"{text}.{nanoseconds:09d}".rstrip("0").rstrip(".") + "Z"


def to_nanoseconds(value: float | timedelta) -> int:
    """A length of time as JetStream's JSON has it."""
    if isinstance(value, timedelta):
        return (value.days * 86_400_000_000 + value.seconds * 1_000_000 + value.microseconds) * 1000
    return round(value * 1_000_000_000)


def to_seconds(value: float | timedelta) -> float:
    """A length of time as the event loop has it."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


class Document(msgspec.Struct, kw_only=True, repr_omit_defaults=True):
    """A JSON object of the API; `extra` keeps the fields that have no name here."""

    _always: ClassVar[frozenset[str]] = frozenset()  # sent even at their default

    extra: dict[str, Any] = {}

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> Self:
        """Read a decoded JSON object; what is null or absent gets its default.

        Raises `InvalidAnswerError` if it is none, or has fields of another kind.
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
    for field in msgspec.structs.fields(cls):
        if field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
        else:
            found[field.name] = field.default
    return found


@cache
def _codecs(cls: type[Document]) -> dict[str, _Codec]:
    """For each field how to read it and how to write it; None where JSON's value is the value."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _codec(hints[name]) for name in cls.__struct_fields__ if name != "extra"}


def _codec(hint: Any) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # Optional; or what you may give beside what a server sends.
        return next(
            (codec for a in arguments if a is not NoneType and (codec := _codec(a)) != _PLAIN),
            _PLAIN,
        )
    if origin is Annotated and _NANOSECONDS in arguments:
        return (lambda ns: ns / 1_000_000_000), to_nanoseconds
    if hint is datetime:
        return Timestamp.parse, time_to_wire
    if isinstance(hint, type) and issubclass(hint, Document):
        return hint.from_wire, lambda document: document.to_wire()
    if origin in (list, dict):
        read, write = _codec(arguments[-1])
        if read is None or write is None:
            return _PLAIN
        if origin is list:
            return (lambda items: [read(i) for i in items]), lambda items: [write(i) for i in items]
        return (
            lambda items: {k: read(v) for k, v in items.items()},
            lambda items: {k: write(v) for k, v in items.items()},
        )
    return _PLAIN


_PLAIN: _Codec = (None, None)
