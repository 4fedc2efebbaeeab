"""The NATS configuration grammar: JSON with relaxed keys, values and separators.

    server_name: "a"           # keys bare or quoted; `:`, `=` or white space before the value
    jetstream { max_mem: 1GB } # sizes: k, m, g... are thousands, kb, kib... 1024s
    include "users.conf"       # merged into the map it stands in
    pass: $SECRET              # an earlier key of this or an enclosing map, or the environment

A bare word becomes a boolean, number or time if it is spelled like one, else it is a string. The
parser is a plain recursive descent over the text; every key and value keeps its place, so that
a reader of the tree can say where something is wrong. See docs/configuration.md#the-format.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from slipstream.server.config.tree import Entry, ParseError, Place, UnresolvedError, Value

DEPTH_MAX = 64  # of maps and lists in one another
INCLUDES_MAX = 16  # of files in one another
FILE_BYTES_MAX = 64 * 1024 * 1024

_BLANK = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[^\s=:]+")
_BARE_WORD = re.compile(r"[^\s,;\]}]+")
_BLOCK_END = re.compile(r"\n\)[ \t]*(?=\r?\n|\Z)|\A\)[ \t]*(?=\r?\n|\Z)")
_INTEGER = re.compile(r"(-?[0-9]+)(?:([kmgtpe])(b|ib?)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_ADDRESS = re.compile(r"-?[0-9]+\.[0-9]+\.[0-9.:-]*")
_LIKE_A_NUMBER = re.compile(r"-|\.|[0-9]+[-.]")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[tnr\"\\])|\\")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INT64_MAX = 2**63 - 1


def parse_file(path: str, environment: Mapping[str, str] | None = None) -> Value:
    """The map that the file at `path` holds. `ParseError` says where it is wrong."""
    names = os.environ if environment is None else environment
    tree = Value({}, Place(path, 1, 1))
    _include(path, path, names, tree, 0, Place(path, 1, 1))
    return tree


def parse_text(
    text: str, file: str = "config", environment: Mapping[str, str] | None = None
) -> Value:
    """The map that `text` holds; errors call it `file`, and includes are looked for beside that."""
    names = os.environ if environment is None else environment
    return _Parser(text, file, names).parse()


def _include(
    path: str, name: str, environment: Mapping[str, str], into: Value, depth: int, place: Place
) -> None:
    if depth > INCLUDES_MAX:
        raise UnresolvedError(place, f'"{name}" is included more than {INCLUDES_MAX} files deep')
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnresolvedError(place, f'cannot read "{name}": {reason}') from error
    if len(content) > FILE_BYTES_MAX:
        raise UnresolvedError(place, f'"{name}" is larger than {FILE_BYTES_MAX} bytes')
    found = _Parser(text, path, environment, depth).parse()
    if isinstance(into.data, dict) and isinstance(found.data, dict):
        into.data.update(found.data)


class _Parser:
    """One text from start to end."""

    def __init__(
        self, text: str, file: str, environment: Mapping[str, str], depth: int = 0
    ) -> None:
        self._text = text
        self._file = file
        self._environment = environment
        self._include_depth = depth
        self._pos = 0
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self._scopes: list[dict[str, Entry]] = []
        self._depth = 0
        self._resolving: tuple[str, ...] = ()

    def parse(self) -> Value:
        """The whole text as a map."""
        place = self._place(0)
        entries: dict[str, Entry] = {}
        self._scopes.append(entries)
        self._skip_lines()
        if self._peek() == "{":  # a file may be one JSON object, and go on after it
            self._pos += 1
            self._map_entries(entries, "}")
            self._end_of_entry("")
        self._map_entries(entries, "")
        return Value(entries, place)

    # -- maps and lists ------------------------------------------------------------------------

    def _map_entries(self, entries: dict[str, Entry], closing: str) -> None:
        """Entries up to `closing` ("" is the end of the text), which is consumed."""
        while True:
            self._skip_lines()
            if self._pos >= len(self._text):
                if closing:
                    raise self._error("the text ends within a map: close it with }")
                return
            if self._peek() == "}":
                if not closing:
                    raise self._error("} closes nothing: no map is open here")
                self._pos += 1
                return
            self._entry(entries, closing)
            self._end_of_entry(closing)

    def _entry(self, entries: dict[str, Entry], closing: str) -> None:
        start = self._pos
        quoted = self._peek() in "\"'"
        key = self._key()
        after = self._pos
        if not quoted and key.lower() == "include" and self._blank() and self._peek() not in "=:":
            self._included(entries, start)
            return
        self._pos = after
        self._skip_blanks_and_lines()
        if self._peek() in ("=", ":"):
            self._pos += 1
            self._blank()
            if closing:
                self._skip_blanks_and_lines()
        if self._peek() in ("", "\n", "\r", "}", ",", ";"):
            raise self._error(f'"{key}" has no value: write it on the same line', start)
        value = self._value()
        entries[key] = Entry(key, value, self._place(start))

    def _key(self) -> str:
        first = self._peek()
        if first in "\"'":
            return self._quoted(first)
        if first in ",;=:":
            raise self._error(f"expected a key, found {first}")
        found = _BARE_KEY.match(self._text, self._pos)
        assert found is not None
        self._pos = found.end()
        return found.group()

    def _end_of_entry(self, closing: str) -> None:
        """An entry ends with its line, a comma, a semicolon, or the map."""
        self._blank()
        char = self._peek()
        if char in (",", ";"):
            self._pos += 1
        elif char not in ("", "\n", "\r", "#", "}") and not self._text.startswith("//", self._pos):
            raise self._error(
                f'expected the end of the entry, found "{char}": '
                "put a comma or a new line between entries, and quotes around text with blanks"
            )

    def _list(self) -> list[Value]:
        values: list[Value] = []
        while True:
            self._skip_lines()
            char = self._peek()
            if char == "]":
                self._pos += 1
                return values
            if char in ("", ",", ";", "}"):
                found = char or "the end of the text"
                raise self._error(f"expected a value or ] in the list, found {found}")
            values.append(self._value())
            self._blank()
            char = self._peek()
            if char == ",":
                self._pos += 1
            elif char not in ("\n", "\r", "]", "#") and not self._text.startswith("//", self._pos):
                found = f'"{char}"' if char else "the end of the text"
                raise self._error(f"expected , or ] after a value of the list, found {found}")

    def _included(self, entries: dict[str, Entry], start: int) -> None:
        place = self._place(start)
        char = self._peek()
        if char in ('"', "'") and char:
            name = self._quoted(char)
        else:
            found = _BARE_WORD.match(self._text, self._pos)
            if found is None:
                raise ParseError(place, 'include names no file: write include "path"')
            name = found.group()
            self._pos = found.end()
        path = str(Path(self._file).parent / name)
        into = Value(entries, place)
        _include(path, name, self._environment, into, self._include_depth + 1, place)

    # -- values --------------------------------------------------------------------------------

    def _value(self) -> Value:
        start = self._pos
        place = self._place(start)
        char = self._peek()
        if char in "{[":
            return self._nested(char, place)
        if char in "\"'":
            return Value(self._quoted(char), place)
        if char == "(":
            return Value(self._block(), place)
        found = _BARE_WORD.match(self._text, start)
        if found is None:
            raise self._error(f"expected a value, found {char or 'the end of the text'}")
        self._pos = found.end()
        return self._word(found.group(), place)

    def _nested(self, char: str, place: Place) -> Value:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ParseError(place, f"maps and lists are nested more than {DEPTH_MAX} deep")
        self._pos += 1
        if char == "[":
            value = Value(self._list(), place)
        else:
            entries: dict[str, Entry] = {}
            self._scopes.append(entries)
            self._map_entries(entries, "}")
            self._scopes.pop()
            value = Value(entries, place)
        self._depth -= 1
        return value

    def _word(self, word: str, place: Place) -> Value:
        """What a bare word means."""
        if word[0] == "$" and not word.startswith("$2a$"):
            return self._variable(word[1:], place)
        boolean = _BOOLEANS.get(word.lower())
        if boolean is not None:
            return Value(boolean, place, word)
        found = _INTEGER.fullmatch(word)
        if found is not None:
            return Value(_integer(found, place), place, word)
        if _FLOAT.fullmatch(word):
            return Value(float(word), place, word)
        if _TIME.fullmatch(word):
            try:
                when = datetime.strptime(word, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            except ValueError:
                raise ParseError(place, f"{word} is not a time that exists") from None
            return Value(when, place, word)
        if _LIKE_A_NUMBER.match(word) and not _ADDRESS.fullmatch(word):
            raise ParseError(place, f'{word} is neither a number nor a time: quote it: "{word}"')
        return Value(_unescape(word, place), place, word)

    def _variable(self, name: str, place: Place) -> Value:
        for scope in reversed(self._scopes):
            entry = scope.get(name)
            if entry is not None:
                entry.is_variable = True
                return Value(entry.value.data, place, entry.value.text)
        if name in self._resolving:
            raise UnresolvedError(place, f'the variable "{name}" refers to itself')
        text = self._environment.get(name)
        if text is None:
            raise UnresolvedError(
                place,
                f"variable reference for '{name}' on line {place.line} can not be found: define "
                "the key earlier in this file, or set it in the environment",
            )
        inner = _Parser(text, f"${name}", self._environment)
        inner._resolving = (*self._resolving, name)
        inner._scopes = self._scopes
        return inner._only_value(place)

    def _only_value(self, place: Place) -> Value:
        """The whole text as one value; an error names the `place` that wanted it."""
        try:
            self._skip_lines()
            if self._pos >= len(self._text):
                return Value("", place)
            value = self._value()
            self._end_of_entry("")
        except ParseError as error:
            raise UnresolvedError(place, f"in the environment: {error}") from None
        return Value(value.data, place, value.text)

    def _quoted(self, quote: str) -> str:
        start = self._pos
        pos = start + 1
        while True:
            end = self._text.find(quote, pos)
            if end < 0:
                raise self._error(f"a text in quotes has no closing {quote}", start)
            slash = self._text.find("\\", pos, end) if quote == '"' else -1
            if slash < 0:
                break
            pos = slash + 2
        self._pos = end + 1
        raw = self._text[start + 1 : end]
        return _unescape(raw, self._place(start)) if quote == '"' else raw

    def _block(self) -> str:
        """`( ... )`: raw lines up to a line that is nothing but the closing parenthesis."""
        start = self._pos
        found = _BLOCK_END.search(self._text, start + 1)
        if found is None:
            raise self._error("a block ( has no closing ) on a line of its own", start)
        self._pos = found.end()
        return self._text[start + 1 : found.start() + 1]

    # -- characters ----------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._pos : self._pos + 1]

    def _blank(self) -> bool:
        """Skip blanks; whether there were any."""
        start = self._pos
        found = _BLANK.match(self._text, start)
        self._pos = found.end() if found else start
        return self._pos > start

    def _skip_blanks_and_lines(self) -> None:
        while self._peek().isspace():  # what ends a bare key: any white space that there is
            self._pos += 1

    def _skip_lines(self) -> None:
        """Skip blanks, line ends and comments."""
        while True:
            self._skip_blanks_and_lines()
            if self._peek() != "#" and not self._text.startswith("//", self._pos):
                return
            end = self._text.find("\n", self._pos)
            self._pos = len(self._text) if end < 0 else end

    def _place(self, pos: int) -> Place:
        line = bisect_right(self._lines, pos)
        return Place(self._file, line, pos - self._lines[line - 1] + 1)

    def _error(self, text: str, pos: int | None = None) -> ParseError:
        return ParseError(self._place(self._pos if pos is None else pos), text)


def _integer(found: re.Match[str], place: Place) -> int:
    digits, unit, binary = found.groups()
    if len(digits) > 20:
        raise ParseError(place, f"the integer {digits[:20]}... is out of range")
    number = int(digits)
    if unit:
        number *= (1024 if binary else 1000) ** ("kmgtpe".index(unit.lower()) + 1)
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise ParseError(place, f"the integer {found.group()} is out of range")
    return number


def _unescape(raw: str, place: Place) -> str:
    if "\\" not in raw:
        return raw

    def replace(found: re.Match[str]) -> str:
        what = found.group(1)
        if what is None:
            raise ParseError(
                place,
                r"a \ in text begins one of \xHH \t \n \r \" \\ only; single quotes take it as is",
            )
        return chr(int(what[1:], 16)) if what[0] == "x" else _ESCAPES[what]

    return _ESCAPE.sub(replace, raw)
