"""Header blocks: the status line, the fields, and `Headers`, the multi-map that users see (ADR-4).

A block is ``NATS/1.0[ code[ description]]``, then ``Name: value`` lines, then an empty line. Names
keep their case and are compared exactly as they stand, as nats-server does.
"""

from collections.abc import Iterable, Iterator, Mapping

import slipstream.wire.ascii as char
from slipstream.errors import ProtocolError

VERSION_LINE = b"NATS/1.0"
_LINE_END = b"\r\n"
_STATUS_DIGITS_MAX = 9


def next_field(data: bytes, at: int, end: int) -> int:
    """Where the line after the one at `at` begins; `end` or more if there is none."""
    view = data
    while at < end and view[at] != char.LF:
        at += 1
    return at + 1


def value_start(data: bytes, at: int, end: int) -> int:
    """Where a value begins after the colon before `at`: blanks are not part of it."""
    view = data
    while at < end and (view[at] == char.SPACE or view[at] == char.TAB):
        at += 1
    return at


def value_end(data: bytes, at: int, end: int) -> int:
    """Where the value at `at` ends, with its line or at `end`."""
    view = data
    while at < end and view[at] != char.CR and view[at] != char.LF:
        at += 1
    return at


def find(data: bytes, start: int, end: int, name: bytes) -> bytes | None:
    """The first value of the field `name` in the block ``data[start:end]``; None if absent."""
    view = data
    n = len(name)
    at = next_field(data, start, end)
    while at + n < end:
        if begins_with(data, at, name) and view[at + n] == char.COLON:
            begin = value_start(data, at + n + 1, end)
            return view[begin : value_end(data, begin, end)]
        at = next_field(data, at, end)
    return None


def find_last(data: bytes, start: int, end: int, name: bytes) -> bytes | None:
    """The last value of the field `name` in the block ``data[start:end]``; None if absent."""
    view = data
    n = len(name)
    begin = -1
    at = next_field(data, start, end)
    while at + n < end:
        if begins_with(data, at, name) and view[at + n] == char.COLON:
            begin = value_start(data, at + n + 1, end)
        at = next_field(data, at, end)
    return view[begin : value_end(data, begin, end)] if begin >= 0 else None


def begins_with(data: bytes, at: int, name: bytes) -> bool:
    """Whether `name` stands at `at`, where there are as many bytes."""
    view = data
    key = name
    k = 0
    n = len(name)
    while k < n and view[at + k] == key[k]:
        k += 1
    return k == n


def count_prefix(data: bytes, start: int, end: int, prefix: bytes) -> int:
    """How many fields in the block ``data[start:end]`` have a name that begins with `prefix`."""
    found = 0
    at = next_field(data, start, end)
    while at + len(prefix) < end:
        if begins_with(data, at, prefix):
            found += 1
        at = next_field(data, at, end)
    return found


def fields(block: bytes) -> list[tuple[bytes, bytes]]:
    """Name and value of each field in order, without the blanks around the value."""
    found = []
    end = len(block)
    at = next_field(block, 0, end)
    while at < end:
        stop = value_end(block, at, end)
        colon = block.find(b":", at, stop)
        if colon >= 0:
            value = block[value_start(block, colon + 1, stop) : stop].rstrip(b" \t")
            found.append((block[at:colon], value))
        at = next_field(block, stop, end)
    return found


def without_status(block: bytes) -> bytes:
    """The block with its status code and description taken out of the first line."""
    at = block.find(_LINE_END)
    return VERSION_LINE + block[at:] if at > len(VERSION_LINE) else block


def without(block: bytes, *names: bytes) -> bytes:
    """The block without the named fields; b"" when no field is left."""
    return without_prefixed(block, *(name + b":" for name in names))


def without_prefixed(block: bytes, *prefixes: bytes) -> bytes:
    """The block without the fields that begin with one of `prefixes`; b"" when no field is left."""
    lines = block.split(_LINE_END)
    kept = [line for line in lines if not line.startswith(prefixes)]
    if len(lines) > len(kept) and not any(b":" in line for line in kept):
        return b""
    return _LINE_END.join(kept)


def without_spelled(block: bytes, name: bytes) -> bytes:
    """The block without the fields that a lenient reader would take for `name`: in any case, with
    blanks around the name, and after a line that ends without all of CR and LF. A block that has
    such a field ends as it should; b"" when no field is left."""
    if name.lower() not in block.lower():
        return block
    kept = []
    end = len(block)
    at = 0
    while at < end:
        stop = value_end(block, at, end)
        if stop > at and block[at:stop].partition(b":")[0].strip().lower() != name.lower():
            kept.append(block[at:stop])
        at = stop + 1
    return _LINE_END.join([*kept, b"", b""]) if len(kept) > 1 else b""


def closed(block: bytes) -> bytes:
    """The block with the empty line at its end that it should have; b"" stays empty."""
    return block.rstrip(_LINE_END) + _LINE_END * 2 if block else b""


def with_field(block: bytes, name: bytes, value: bytes) -> bytes:
    """The block with a field that takes the place of the first of that name, if there is one."""
    lines = block.split(_LINE_END)
    for at, line in enumerate(lines):
        if line.startswith(name + b":"):
            lines[at] = name + b": " + value
            return _LINE_END.join(lines)
    return with_fields(block, [(name, value)])


def with_fields(block: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The block (or a new one, if it is empty) with `fields` added at its end."""
    head = block[: -len(_LINE_END)] if block else VERSION_LINE + _LINE_END
    return head + b"".join(b"%b: %b\r\n" % field for field in fields) + _LINE_END


def status(block: bytes) -> tuple[int, str]:
    """Code and description of the first line; ``(0, "")`` when it has none."""
    line = block[: value_end(block, 0, len(block))]
    words = line[len(VERSION_LINE) :].strip().split(b" ", 1)
    if not words[0].isdigit() or len(words[0]) > _STATUS_DIGITS_MAX:
        return 0, ""
    return int(words[0]), words[1].strip().decode("utf-8", "replace") if len(words) > 1 else ""


class Headers:
    """Fields of a message: a multi-map from names to values that keeps case and order.

    ``headers["Name"]`` is the first value; `get_all` gives every one, `add` appends another and
    assignment replaces them all. `status` and `description` are set on messages that the server
    made up itself (no responders, end of a batch and the like).

    >>> headers = Headers({"Kind": "order"})
    >>> headers.add("Tag", "a"); headers.add("Tag", "b")
    >>> headers["Tag"], headers.get_all("Tag")
    ('a', ['a', 'b'])
    """

    __slots__ = ("_fields", "description", "status")

    def __init__(
        self,
        fields: "Headers | Mapping[str, str] | Mapping[str, str | Iterable[str]] | "
        "Iterable[tuple[str, str]] | None" = None,
    ) -> None:
        self._fields: dict[str, list[str]] = {}
        self.status = 0
        self.description = ""
        pairs = fields.items() if isinstance(fields, Mapping | Headers) else fields or ()
        for name, value in pairs:
            for one in [value] if isinstance(value, str) else value:
                self.add(name, one)

    @classmethod
    def parse(cls, block: bytes) -> "Headers":
        """Read a header block; raises `ProtocolError` if it is not one."""
        if not block.startswith(VERSION_LINE):
            raise ProtocolError(f"a header block begins with NATS/1.0, not with {block[:20]!r}")
        headers = cls()
        headers.status, headers.description = status(block)
        for name, value in fields(block):
            values = headers._fields.setdefault(name.decode("utf-8", "surrogateescape"), [])
            values.append(value.decode("utf-8", "surrogateescape"))
        return headers

    def encode(self) -> bytes:
        """The header block on the wire."""
        first = f"NATS/1.0 {self.status} {self.description}".rstrip() if self.status else "NATS/1.0"
        lines = [first, *(f"{name}: {value}" for name, value in self.multi_items()), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def add(self, name: str, value: str) -> None:
        """Append a value; raises ValueError for what would break the block."""
        if not name or any(c in name for c in ":\r\n") or name != name.strip():
            raise ValueError(f"{name!r} cannot name a header: no colon, blank or line break in it")
        if "\r" in value or "\n" in value:
            raise ValueError(f"the value of header {name!r} has a line break in it: {value!r}")
        self._fields.setdefault(name, []).append(value)

    def get_all(self, name: str) -> list[str]:
        """Every value of `name`, in order; empty when there is none."""
        return list(self._fields.get(name, ()))

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of `name`, or `default`."""
        values = self._fields.get(name)
        return values[0] if values else default

    def multi_items(self) -> Iterator[tuple[str, str]]:
        """(name, value) for each value."""
        for name, values in self._fields.items():
            for value in values:
                yield name, value

    def items(self) -> Iterator[tuple[str, list[str]]]:
        """(name, values) for each name."""
        for name, values in self._fields.items():
            yield name, list(values)

    def keys(self) -> Iterator[str]:
        """The names, in order of first appearance."""
        return iter(self._fields)

    def update(self, other: "Mapping[str, str] | Headers") -> None:
        """Replace the values of each name in `other`."""
        for name in other.keys():  # noqa: SIM118 - Headers iterates names too, Mapping as well
            self._fields.pop(name, None)
            values = other.get_all(name) if isinstance(other, Headers) else [other[name]]
            for value in values:
                self.add(name, value)

    def copy(self) -> "Headers":
        """An independent copy."""
        return Headers(self)

    def __getitem__(self, name: str) -> str:
        return self._fields[name][0]

    def __setitem__(self, name: str, value: str) -> None:
        self._fields.pop(name, None)
        self.add(name, value)

    def __delitem__(self, name: str) -> None:
        del self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._fields == other._fields and self.status == other.status
        if isinstance(other, Mapping):
            return self._fields == Headers(other)._fields
        return NotImplemented

    def __repr__(self) -> str:
        return f"Headers({dict(self.items())!r})"

    __hash__ = None  # type: ignore[assignment]
