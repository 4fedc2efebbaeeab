"""What commands print: tables and properties for people, JSON for programs.

Colours are used on a terminal only, and not where NO_COLOR is set.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import msgspec
import typer

if TYPE_CHECKING:
    from slipstream.model.documents import Document

_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
FOLDED_MIN = 16  # a column of words is never made narrower than this


def styled(text: str, code: str) -> str:
    """`text` in a colour or weight (an SGR code, like "31"), where that may be."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def harmless(text: str) -> str:
    """`text` that somebody else may have written, without a sign that a terminal obeys: a name in a
    JWT or a description could set its title, or what is pasted next. Lines stay."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(line: str = "") -> None:
    """One line of the result."""
    typer.echo(line)


def clock() -> str:
    """The time of day, for notes."""
    return datetime.now().strftime("%H:%M:%S")


def note(line: str) -> None:
    """One line beside the result, on stderr."""
    typer.echo(line, err=True)


def print_json(value: Any) -> None:
    """A whole object, indented. Documents of the client are printed as the server sent them."""
    typer.echo(msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode())


def done(text: str, **found: Any) -> None:
    """How a change has ended: a line for people (none if empty), an object for programs."""
    from slipstream.cli.session import wants_json

    if wants_json():
        print_json(found)
    elif text:
        say(text)


def plain(value: Any) -> Any:
    """Documents as dictionaries with the names of the wire."""
    if hasattr(value, "to_wire"):
        return _whole(value)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def _whole(document: "Document") -> dict[str, Any]:
    """Every field of a document, also those at their default, so that programs find each."""
    sent = document.to_wire()
    made: dict[str, Any] = dict(document.extra)
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if name == "extra" or value is None:
            continue
        if hasattr(value, "to_wire"):
            made[name] = _whole(value)
        elif isinstance(value, list) and value and hasattr(value[0], "to_wire"):
            made[name] = [_whole(one) for one in value]
        elif name in sent:
            made[name] = sent[name]
        else:
            made[name] = int(value) if isinstance(value, float) else value
    return made


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table as the `nats` tool draws it; columns whose cells are numbers are set right.

    Nothing is ever cut off. On a narrow terminal long words are folded, empty columns and the
    space around cells go, and where that is not enough each row becomes a block of its own.
    """
    cells = [[harmless(cell) for cell in row] for row in rows]
    shown = [_Column(name, [row[at] for row in cells]) for at, name in enumerate(columns)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    padding = 1
    if _width(shown, padding) > room:
        shown = [column for column in shown if any(column.cells)] or shown
    if _width(shown, padding) > room:
        padding = 0
    if _width(shown, padding) > room:
        first, *more = shown
        blocks = [
            (name, [(column.name, column.cells[at]) for column in more])
            for at, name in enumerate(first.cells)
        ]
        properties(title, blocks)
        return
    spare = room - _width(shown, padding)
    for column in shown:
        column.width = min(column.most, column.least + spare)
        spare -= column.width - column.least
    _draw(title, shown, padding)


def _draw(title: str, columns: list["_Column"], padding: int) -> None:
    widths = [column.width + 2 * padding for column in columns]
    lines = ["─" * width for width in widths]
    say(styled(harmless(title).center(sum(widths) + len(widths) + 1).rstrip(), "1"))
    say("╭" + "┬".join(lines) + "╮")
    for row in _rows([[column.name] for column in columns], columns, padding):
        say("│" + "│".join(styled(cell, "1") for cell in row) + "│")
    say("├" + "┼".join(lines) + "┤")
    for row in _rows([column.cells for column in columns], columns, padding):
        say("│" + "│".join(row) + "│")
    say("╰" + "┴".join(lines) + "╯")


def _rows(
    found: list[list[str]], columns: list["_Column"], padding: int
) -> Iterator[tuple[str, ...]]:
    """The lines of a table: a row takes as many as its longest cell."""
    space = " " * padding
    for row in zip(*found, strict=True):
        cells = [_folded(cell, column.width) for cell, column in zip(row, columns, strict=True)]
        for at in range(max(map(len, cells))):
            yield tuple(
                space + column.set(cell[at] if at < len(cell) else "") + space
                for cell, column in zip(cells, columns, strict=True)
            )


def _folded(text: str, width: int) -> list[str]:
    """`text` in lines that are at most `width` cells wide, broken between words if possible."""
    lines = []
    for line in text.splitlines() or [""]:
        while cell_len(line) > width:
            end, taken = 0, 0
            while (taken := taken + cell_len(line[end])) <= width:
                end += 1
            end = max(end, 1)
            space = line.rfind(" ", 1, end + 1)
            lines.append(line[: space if space > 0 else end].rstrip())
            line = line[space + 1 if space > 0 else end :]
        lines.append(line)
    return lines


def cell_len(text: str) -> int:
    """How many cells of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(combining(letter) > 0 for letter in text)


class _Column:
    """A column, how wide it has to be at least, and how wide it would be."""

    def __init__(self, name: str, cells: list[str]) -> None:
        self.name = name
        self.cells = cells
        numbers = bool(cells) and all(map(_is_number, cells))
        self.is_number = numbers
        self.width = 0
        widest = max(map(cell_len, cells), default=0)
        self.least = max(min(widest, FOLDED_MIN), max(map(len, name.split())))
        self.most = max(widest, len(name))

    def set(self, text: str) -> str:
        """`text` in the width of the column: numbers right, the rest left."""
        space = " " * (self.width - cell_len(text))
        return space + text if self.is_number else text + space


def _width(columns: list[_Column], padding: int) -> int:
    return sum(column.least + 2 * padding + 1 for column in columns) + 1


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").strip().isdigit()


def properties(title: str, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Labels set right with their values, in sections."""
    width = max((len(label) for _, pairs in sections for label, _ in pairs), default=0) + 2
    say(styled(harmless(title), "1"))
    for name, pairs in sections:
        if not pairs:
            continue
        say()
        if name:
            say(f"{harmless(name)}:")
            say()
        for label, value in pairs:
            first, *more = harmless(value).split("\n")
            say(f"{harmless(label):>{width}}: {first}")
            for line in more:
                say(f"{'':>{width}}  {line}")
