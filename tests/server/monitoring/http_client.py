"""A small HTTP client for the tests of monitoring."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Answer:
    """What a GET brought."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def get(base: str, path: str) -> Answer:
    """GET `path`; any status is an answer."""
    try:
        with urllib.request.urlopen(base + path, timeout=10) as found:
            return Answer(found.status, dict(found.headers), found.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read())


def shape(value: Any) -> Any:
    """The field names and types of JSON; whole and fractional numbers are the same type."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"


def fields(value: Any, path: str = "") -> set[str]:
    """The fields of an answer, each with its path and type; items of a list are alike."""
    if isinstance(value, dict):
        return {f for name, item in value.items() for f in fields(item, f"{path}.{name}")}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {f for item in value for f in fields(item, f"{path}[]")}
    return {f"{path}: {value}"}
