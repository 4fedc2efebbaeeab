"""What goes into an endpoint and comes out: parameters, read and refused as nats-server does, and
answers as JSON the way Go writes it, for machines and for people, or as a text made in steps."""

import re
from collections.abc import Generator
from typing import Any
from urllib.parse import parse_qs

import msgspec

from slipstream.errors import Error

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
FIELDS_MAX = 64
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


# Makes an answer in steps, between which others have their turn, and returns it.
Steps = Generator[None, None, bytes]


class BadRequest(Error):
    """A parameter does not make sense; the text is the answer's body."""


class Query:
    """The part of a URL after `?`; the first of several equal names counts."""

    def __init__(self, text: str) -> None:
        try:
            self._values = parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise BadRequest(f"too many parameters, at most {FIELDS_MAX}") from error

    def text(self, name: str) -> str:
        """A text; "" if it is not there."""
        return self._values.get(name, [""])[0]

    def boolean(self, name: str) -> bool:
        """A boolean as Go's ParseBool reads it; False if it is not there."""
        value = self.text(name)
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise BadRequest(
            f"Error decoding boolean for '{name}': "
            f'strconv.ParseBool: parsing "{value}": invalid syntax'
        )

    def integer(self, name: str, parser: str = "strconv.Atoi") -> int:
        """An integer; 0 if it is not there."""
        value = self.text(name)
        if not value:
            return 0
        what = "invalid syntax"
        if _INTEGER.fullmatch(value):
            number = int(value) if len(value) <= 20 else 2**63
            if number in _INT64:
                return number
            what = "value out of range"
        raise BadRequest(f"Error decoding int for '{name}': {parser}: parsing \"{value}\": {what}")

    def identifier(self, name: str) -> int:
        """An integer that is not negative; 0 if it is not there."""
        value = self.text(name)
        if not value or (value.isascii() and value.isdigit() and len(value) <= 19):
            return int(value or "0")
        raise BadRequest(
            f"Error decoding uint64 for '{name}': "
            f'strconv.ParseUint: parsing "{value}": invalid syntax'
        )


def to_json(answer: Any, indent: int = 2) -> bytes:
    """`answer` as JSON, safe inside HTML; an `indent` of 0 is one line."""
    data = msgspec.json.encode(answer)
    for plain, escaped in _ESCAPES:  # which occur only inside strings
        if plain in data:
            data = data.replace(plain, escaped)
    return msgspec.json.format(data, indent=indent) if indent else data
