"""What a configuration file says, before anybody knows what it means: values with places."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slipstream.errors import ConfigError


@dataclass(slots=True, frozen=True)
class Place:
    """Where something stands; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Value:
    """A value. Lists hold values, maps hold entries; `text` is how a bare scalar was spelled."""

    data: "bool | int | float | str | datetime | list[Value] | dict[str, Entry]"
    place: Place
    text: str = ""

    def describe(self) -> str:
        """The value in words, for errors: `the string "x"`."""
        data = self.data
        if isinstance(data, bool):
            return "true" if data else "false"
        if isinstance(data, str):
            shown = data if len(data) <= 40 else data[:37] + "..."
            return f'the string "{shown}"'
        if isinstance(data, int | float):
            return f"the number {self.text or data}"
        if isinstance(data, datetime):
            return f"the time {self.text}"
        return "a list" if isinstance(data, list) else "a map"

    def plain(self) -> Any:
        """The value as JSON would have it."""
        data = self.data
        if isinstance(data, list):
            return [value.plain() for value in data]
        if isinstance(data, dict):
            return {key: entry.value.plain() for key, entry in data.items()}
        return self.text if isinstance(data, datetime) else data


@dataclass(slots=True)
class Entry:
    """A key and its value. Keys that were used as variables may be unknown to the server."""

    key: str
    value: Value
    place: Place
    is_variable: bool = False


class ParseError(ConfigError):
    """The text breaks the grammar; carries where. The message begins as nats-server's does, because
    programs that start a server look for that."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(f"{self._beginning(place)}{place}: {text}")
        self.place = place

    def _beginning(self, place: Place) -> str:
        return f"Parse error on line {place.line}: "


class UnresolvedError(ParseError):
    """A variable or an included file cannot be found or read; nats-server has other words here."""

    def _beginning(self, place: Place) -> str:
        return ""


def digest(tree: Value) -> str:
    """`sha256:` of the canonical JSON of what was parsed: the same for any formatting of a file."""
    text = json.dumps(tree.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":  # which Go's encoder writes so
        text = text.replace(char, f"\\u{ord(char):04x}")
    data = (text + "\n").encode("utf-8", "surrogatepass")
    return "sha256:" + hashlib.sha256(data).hexdigest()
