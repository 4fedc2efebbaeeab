"""How a message is shown: its headers and body, in several views, with masks.

What a message carries is whatever its sender chose, so a view is always text that the templates
escape. `Masks` hide headers and JSON fields from every view, from filters and exports: a body with
a hidden field is shown as it would be without it.
"""

import json
from codecs import getincrementaldecoder
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from slipstream.console import avro
from slipstream.wire.headers import Headers

MASKED = "••••••"
SHOWN_BYTES_MAX = 64 * 1024
HEX_BYTES_MAX = 4 * 1024
DECODED_BYTES_MAX = 1024 * 1024
PREVIEW_LETTERS = 120
_PROTOBUF_DEPTH_MAX = 4


class View(msgspec.Struct, frozen=True):
    """One way to look at a body; `note` says what was left out."""

    name: str
    text: str
    note: str = ""


class Body(msgspec.Struct, frozen=True):
    """A body after masking. `document` is what it decodes to, `form` as what ("" for neither).

    The document of an Avro file is the list of its records. `note` says what is missing.
    """

    data: bytes
    form: str = ""
    document: Any = None
    is_masked: bool = False
    note: str = ""

    @property
    def documents(self) -> list[object]:
        """What filters look at: one of these must be as they say."""
        return (self.document or [None]) if self.form == "Avro" else [self.document]


class Masks:
    """Which headers and fields are hidden."""

    def __init__(self, headers: tuple[str, ...] = (), fields: tuple[str, ...] = ()) -> None:
        self._headers = tuple(pattern.lower() for pattern in headers)
        self._fields = tuple(tuple(path.split(".")) for path in fields)

    def headers(self, headers: Headers) -> dict[str, list[str]]:
        """Headers as they may be shown."""
        return {
            name: [MASKED] * len(values) if self._hides(name) else values
            for name, values in headers.items()
        }

    def _hides(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._headers)

    def body(self, data: bytes) -> Body:
        """A body as it may be shown."""
        read = _decoded(data)
        if not self._fields:
            return read
        form, document = read.form, read.document
        if read.note:  # what is missing may have a hidden field
            return Body(MASKED.encode(), "", None, True)
        if not form:
            if self._may_hold_hidden(data):
                return Body(MASKED.encode(), "", None, True)
            return read
        masked = self._masked(document, ())
        if masked == document:
            return read
        encode = msgspec.msgpack.encode if form == "MessagePack" else msgspec.json.encode
        return Body(encode(masked), form, masked, True)

    def _may_hold_hidden(self, data: bytes) -> bool:
        """Whether a body in which no field can be found may have a hidden one all the same."""
        if len(data) > DECODED_BYTES_MAX or data.lstrip()[:1] in (b"{", b"["):
            return True
        names = [path[-1] for path in self._fields]
        return any("*" in name or name.encode() in data for name in names)

    def _masked(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {
                key: MASKED
                if self._covers((*path, str(key)))
                else self._masked(inner, (*path, str(key)))
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self._masked(inner, path) for inner in value]
        return value

    def _covers(self, path: tuple[str, ...]) -> bool:
        for pattern in self._fields:
            if len(pattern) == 1 and fnmatchcase(path[-1], pattern[0]):
                return True
            if len(pattern) == len(path) and all(map(fnmatchcase, path, pattern)):
                return True
        return False


def _decoded(data: bytes) -> Body:
    """A body with what it says: objects and lists only."""
    if data.startswith(avro.MAGIC):
        return _avro(data)
    if not data or len(data) > DECODED_BYTES_MAX:
        return Body(data, note=avro.without_schema(data))
    try:
        if data.lstrip()[:1] in (b"{", b"["):
            return Body(data, "JSON", msgspec.json.decode(data))
        if 0x80 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD, 0xDE, 0xDF):
            return Body(data, "MessagePack", msgspec.msgpack.decode(data))
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
        pass
    return Body(data, note=avro.without_schema(data))


def _avro(data: bytes) -> Body:
    if len(data) > DECODED_BYTES_MAX:
        return Body(data, note=f"An Avro file of more than {DECODED_BYTES_MAX:,} bytes.")
    found = avro.read(data, DECODED_BYTES_MAX)
    if found.note and not found.records:
        return Body(data, note=found.note)
    return Body(data, "Avro", found.records, note=found.note)


def views(body: Body) -> list[View]:
    """What can be shown of a body, the most telling first; nothing of an empty one."""
    data = body.data
    if not data:
        return []
    found = []
    if body.form:
        pretty = json.dumps(body.document, indent=2, ensure_ascii=False, default=str)
        found.append(_cut(body.form, pretty, body.note))
    text = _as_text(data)
    if text is not None:
        found.append(_cut("Text", text))
    elif not body.form and (fields := protobuf_fields(data)):
        found.append(_cut("Protobuf", "\n".join(fields)))
    note = "" if body.form else body.note
    if len(data) > HEX_BYTES_MAX:
        note = f"The first {HEX_BYTES_MAX:,} bytes. {note}".rstrip()
    found.append(View("Hex", hex_dump(data[:HEX_BYTES_MAX]), note))
    return found


def _cut(name: str, text: str, note: str = "") -> View:
    if len(text) <= SHOWN_BYTES_MAX:
        return View(name, text, note)
    note = f"The first {SHOWN_BYTES_MAX:,} letters. {note}".rstrip()
    return View(name, text[:SHOWN_BYTES_MAX], note)


def _as_text(data: bytes, is_whole: bool = True) -> str | None:
    """What it says in UTF-8, None if it is no text; the end of what is not whole may be cut."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data, is_whole)
    except UnicodeDecodeError:
        return None
    return None if any(c < " " and c not in "\t\r\n" for c in text) else text


def preview(body: Body) -> str:
    """The beginning of a body in one line."""
    begin = body.data[: PREVIEW_LETTERS * 4]
    text = _as_text(begin, is_whole=len(begin) == len(body.data))
    if text is None and body.form:
        text = json.dumps(body.document, ensure_ascii=False, default=str)
    if text is None:
        text = body.data[:24].hex(" ")
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_LETTERS else line[: PREVIEW_LETTERS - 1] + "…"


def hex_dump(data: bytes) -> str:
    """Offset, sixteen bytes and their letters on each line."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {letters}")
    return "\n".join(lines)


def protobuf_fields(data: bytes, depth: int = 0) -> list[str]:
    """The fields of a Protocol Buffers message by their numbers; none if it is not one.

    Without its schema a message has neither names nor exact types: what may be text or a nested
    message is shown as that.
    """
    lines: list[str] = []
    at, pad = 0, "  " * depth
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if at < 0 or not number:
            return []
        if kind == 0:
            value, at = _varint(data, at)
            if at < 0:
                return []
            lines.append(f"{pad}{number}: {value}")
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            if at + width > len(data):
                return []
            lines.append(f"{pad}{number}: 0x{data[at : at + width][::-1].hex()}")
            at += width
        elif kind == 2:
            length, at = _varint(data, at)
            if at < 0 or at + length > len(data):
                return []
            lines += _protobuf_value(number, data[at : at + length], depth)
            at += length
        else:
            return []
    return lines


def _protobuf_value(number: int, data: bytes, depth: int) -> list[str]:
    pad = "  " * depth
    text = _as_text(data)
    if text is not None:
        return [f"{pad}{number}: {json.dumps(text, ensure_ascii=False)}"]
    inner = protobuf_fields(data, depth + 1) if depth < _PROTOBUF_DEPTH_MAX else []
    if inner:
        return [f"{pad}{number} {{", *inner, f"{pad}}}"]
    return [f"{pad}{number}: {data.hex(' ')}"]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 where it does not."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return 0, -1
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return 0, -1


def header_pairs(headers: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """One pair for each value."""
    return [(name, value) for name, values in headers.items() for value in values]
