"""The kinds of values that directives take, and how each is read
(docs/configuration.md#the-format).

A reader gets a `Value` and the `Notes` of the file; it returns what the option struct stores, or
raises `Wrong`, to which the file, line and column are added. A name with a capital is a `Kind`.
"""

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slipstream.model.durations import MINUTE, SECOND, parse_duration
from slipstream.server.config.tree import Place, Value

_BARE_MINUTES = re.compile(r"[0-9]+m", re.IGNORECASE)
_QUOTED_SIZE = re.compile(r"([0-9]+)([KMGT])")
_INT64_MAX = 2**63 - 1
TIMEOUT_HIGH = MINUTE


class Wrong(Exception):
    """A value cannot be what it should; `place` where it is not the value's own."""

    def __init__(self, text: str, place: Place | None = None) -> None:
        super().__init__(text)
        self.place = place


@dataclass(slots=True)
class Notes:
    """Errors and warnings about a file, each with its place."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    users: dict[str, Place] = field(default_factory=dict)  # of all accounts, by name
    store_dir: Place | None = None

    def wrong(self, place: Place, text: str) -> None:
        """Note an error at `place`."""
        self.errors.append(f"{place}: {text}")

    def odd(self, place: Place, text: str) -> None:
        """Note a warning at `place`."""
        self.warnings.append(f"{place}: {text}")


Reader = Callable[[Value, Notes], Any]


@dataclass(slots=True, frozen=True)
class Kind:
    """A type of value: its name in the documentation, and its reader."""

    name: str
    read: Reader


def read_boolean(value: Value, notes: Notes) -> bool:
    """true, yes, on and their opposites, not in quotes."""
    if not isinstance(value.data, bool):
        raise Wrong(f"expected true or false (not in quotes), found {value.describe()}")
    return value.data


def read_integer(value: Value, notes: Notes) -> int:
    """A whole number, not in quotes."""
    if isinstance(value.data, bool) or not isinstance(value.data, int):
        raise Wrong(f"expected a whole number (not in quotes), found {value.describe()}")
    return value.data


def read_count(value: Value, notes: Notes) -> int:
    """A whole number that is not negative."""
    number = read_integer(value, notes)
    if number < 0:
        raise Wrong(f"expected a number that is not negative, found {value.describe()}")
    return number


def read_share(value: Value, notes: Notes) -> float:
    """A number from 0 to 1."""
    data = value.data
    if isinstance(data, bool) or not isinstance(data, int | float) or not 0 <= data <= 1:
        raise Wrong(f"expected a number from 0 to 1, found {value.describe()}")
    return float(data)


def read_size(value: Value, notes: Notes) -> int:
    """Bytes: a whole number with or without a unit, not in quotes."""
    if isinstance(value.data, str):
        raise Wrong(f"expected a size such as 1MB, not in quotes, found {value.describe()}")
    return read_integer(value, notes)


def read_small_size(value: Value, notes: Notes) -> int:
    """Bytes that must fit 31 bits, as one message's do."""
    size = read_size(value, notes)
    if size >= 2**31:
        raise Wrong(f"value is too big: at most 2147483647 bytes, found {value.describe()}")
    return size


def read_store_size(value: Value, notes: Notes) -> int:
    """Bytes, also as a text that ends in K, M, G or T, which are powers of 1024 there."""
    data = value.data
    if isinstance(data, str):
        found = _QUOTED_SIZE.fullmatch(data)
        if found is None:
            raise Wrong(
                f"a size in quotes is a number and one of K, M, G, T, found {value.describe()}"
            )
        size: int = int(found[1]) * 1024 ** ("KMGT".index(found[2]) + 1)
        if size > _INT64_MAX:
            raise Wrong(f"the size is out of range: {value.describe()}")
        return size
    if isinstance(data, bool) or not isinstance(data, int):
        raise Wrong(f"expected a size such as 1GB, found {value.describe()}")
    return data


def read_string(value: Value, notes: Notes) -> str:
    """Text; a word that looks like a number or a boolean needs quotes."""
    if not isinstance(value.data, str):
        raise Wrong(f"expected a text, found {value.describe()}: put it in quotes")
    return value.data


def read_file_name(value: Value, notes: Notes) -> str:
    """The path of a file that is there."""
    path = read_string(value, notes)
    if not os.path.isfile(path):
        raise Wrong(f'"{path}" is not a file that can be read')
    return path


def duration(text: str) -> int:
    """Nanoseconds of a duration such as 1h30m, 1.5s or 100ms; raises `Wrong`."""
    found = parse_duration(text)
    if found is None or abs(found) > _INT64_MAX:
        raise Wrong(f'"{text}" is not a duration: write one such as "2m", "1h30m" or "500ms"')
    return found


def read_duration(value: Value, notes: Notes) -> int:
    """ns: a text such as "2m"; a bare number is seconds and gets a warning."""
    data = value.data
    if isinstance(data, str):
        return duration(data)
    seconds = read_integer(value, notes)
    if _BARE_MINUTES.fullmatch(value.text):
        notes.odd(value.place, f'{value.text} is read as minutes: quote it, "{value.text}"')
        return duration(value.text.lower())
    text = f'{value.text} should be converted to a duration: quote it, "{value.text}s"'
    notes.odd(value.place, text)
    if abs(seconds) > _INT64_MAX // SECOND:
        raise Wrong(f"{value.text} seconds are out of range")
    return seconds * SECOND


def read_duration_text(value: Value, notes: Notes) -> int:
    """ns: a text such as "2m", and nothing else."""
    if not isinstance(value.data, str):
        raise Wrong(f'expected a duration in quotes such as "2m", found {value.describe()}')
    return duration(value.data)


def read_timeout(value: Value, notes: Notes) -> int:
    """ns: a number of seconds, with or without a fraction, or a text such as "2s"."""
    data = value.data
    if isinstance(data, str):
        return duration(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise Wrong(f'expected seconds or a duration such as "2s", found {value.describe()}')
    if not -1e9 < data < 1e9:
        raise Wrong(f"{value.text} seconds are out of range")
    if data * SECOND > TIMEOUT_HIGH:
        notes.odd(
            value.place,
            f"{value.text} is {data} seconds, which is high: quote a duration, "
            'and consider keeping it under "60s"',
        )
    return int(data * SECOND)


def read_address(value: Value, notes: Notes) -> tuple[str, int]:
    """A port, or "host:port"; the host is "" where it is not given."""
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        return "", value.data
    text = read_string(value, notes)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon:
        raise Wrong(f'"{text}" is not an address: write host:port, "[::1]:port" or just the port')
    try:
        return host, int(port)
    except ValueError:
        raise Wrong(f'"{port}" in "{text}" is not a port') from None


def read_strings(value: Value, notes: Notes) -> list[str]:
    """One text, or a list of them."""
    if isinstance(value.data, list):
        return [read_string(item, notes) for item in value.data]
    if not isinstance(value.data, str):
        raise Wrong(f"expected a text or a list of texts, found {value.describe()}")
    return [value.data]


def read_string_map(value: Value, notes: Notes) -> dict[str, str]:
    """A map of texts."""
    if not isinstance(value.data, dict):
        raise Wrong(f"expected a map of texts, found {value.describe()}")
    texts = {}
    for key, entry in value.data.items():
        if not isinstance(entry.value.data, str):
            text = f'"{key}": expected a text, found {entry.value.describe()}: put it in quotes'
            raise Wrong(text, entry.place)
        texts[key] = entry.value.data
    return texts


def read_anything(value: Value, notes: Notes) -> None:
    """A value without effect."""


def one_of(*words: str) -> Kind:
    """A text that is one of `words`, in any case."""

    def read(value: Value, notes: Notes) -> str:
        text = read_string(value, notes)
        if text.lower() not in words:
            raise Wrong(f'"{text}" is not one of {", ".join(words)}')
        return text.lower()

    return Kind(" or ".join(words), read)


def integer_between(low: int, high: int) -> Kind:
    """A whole number from `low` to `high`."""

    def read(value: Value, notes: Notes) -> int:
        number = read_integer(value, notes)
        if not low <= number <= high:
            raise Wrong(f"expected a number from {low} to {high}, found {value.describe()}")
        return number

    return Kind(f"{low} to {high}", read)


def port_kind(usual: int) -> Kind:
    """A port to listen on; 0 stands for the usual one."""

    def read(value: Value, notes: Notes) -> int:
        return read_integer(value, notes) or usual

    return Kind("port", read)


def name_kind(what: str) -> Kind:
    """A name without spaces; `what` says whose, as errors have it."""

    def read(value: Value, notes: Notes) -> str:
        name = read_string(value, notes)
        if " " in name:
            raise Wrong(f"the {what} name cannot contain spaces")
        return name

    return Kind("string", read)


Boolean = Kind("boolean", read_boolean)
Integer = Kind("integer", read_integer)
Count = Kind("integer", read_count)
Share = Kind("0 to 1", read_share)
Size = Kind("size", read_size)
SmallSize = Kind("size", read_small_size)
StoreSize = Kind("size or quoted size", read_store_size)
String = Kind("string", read_string)
Path = Kind("path", read_string)
File = Kind("file", read_file_name)
Duration = Kind("duration", read_duration)
DurationText = Kind("duration in quotes", read_duration_text)
Timeout = Kind("seconds or duration", read_timeout)
Address = Kind("port or host:port", read_address)
Strings = Kind("string or list", read_strings)
StringMap = Kind("map of strings", read_string_map)
Anything = Kind("any", read_anything)


def entries_kind(name: str, kind: Kind) -> Kind:
    """A map with any keys, whose values are all of one kind."""

    def read(value: Value, notes: Notes) -> dict[str, Any]:
        if not isinstance(value.data, dict):
            raise Wrong(f"expected a {name}, found {value.describe()}")
        found = {}
        for key, entry in value.data.items():
            try:
                found[key] = kind.read(entry.value, notes)
            except Wrong as error:
                raise Wrong(f'"{key}": {error}', entry.place) from None
        return found

    return Kind(name, read)
