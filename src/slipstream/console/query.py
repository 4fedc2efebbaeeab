"""Filters on stored messages: `header.Region = eu and json.order.total > 100`.

A filter is one or more conditions joined by `and`. A condition names a header or a path into a JSON
body, then one of `=`, `!=`, `~` (contains), `<`, `>` and a value, or nothing: then it is there at
all. Steps of a path are separated by dots; `items[0]` or `items.0` is the first of a list.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from slipstream.errors import ConfigError

_CONDITION = re.compile(r"(header|json)\.([^\s=!~<>]+)\s*(?:(!=|=|~|<|>)\s*(.*))?", re.DOTALL)
_AND = re.compile(r"\s+and\s+(?=header\.|json\.)")  # others are part of a value
_STEP = re.compile(r"[^.\[\]]+")
_MISSING = object()


class QueryError(ConfigError):
    """The filter cannot be read."""


class Condition(msgspec.Struct, frozen=True):
    """One condition; `operator` is "" for mere presence."""

    kind: str
    path: tuple[str, ...]
    operator: str
    value: str

    def holds(self, headers: dict[str, list[str]], body: Any) -> bool:
        """Whether a message with these headers and this decoded body meets it."""
        if self.kind == "header":
            name = ".".join(self.path).lower()
            found: list[Any] = [
                value for key, values in headers.items() if key.lower() == name for value in values
            ]
        else:
            value = _at(body, self.path)
            found = [] if value is _MISSING else [value]
        if self.operator == "!=":
            return not any(_compare("=", one, self.value) for one in found)
        return any(_compare(self.operator, one, self.value) for one in found)


def parse(text: str) -> list[Condition]:
    """The conditions of a filter. Raises `QueryError`."""
    conditions = []
    for part in _AND.split(text.strip()) if text.strip() else []:
        match = _CONDITION.fullmatch(part.strip())
        if match is None:
            raise QueryError(
                f"filter: {part!r} cannot be read; write header.NAME = value or "
                "json.path.to.field = value, with =, !=, ~, < or >, and join them with and"
            )
        kind, path, operator, value = match.groups()
        steps = (path,) if kind == "header" else tuple(_STEP.findall(path))
        conditions.append(Condition(kind, steps, operator or "", _unquoted(value or "")))
    return conditions


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _at(body: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if isinstance(body, dict) and step in body:
            body = body[step]
        elif isinstance(body, list) and step.isdigit() and int(step) < len(body):
            body = body[int(step)]
        else:
            return _MISSING
    return body


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


def _compare(operator: str, found: Any, wanted: str) -> bool:
    text = _text(found)
    if operator == "":
        return True
    if operator == "~":
        return wanted.lower() in text.lower()
    try:
        number, bound = float(text), float(wanted)
    except ValueError:
        return (
            text == wanted
            if operator == "="
            else _ORDER[operator]((text > wanted) - (text < wanted), 0)
        )
    return number == bound if operator == "=" else _ORDER[operator](number, bound)
