"""What commands print: tables and properties for people, JSON for programs.

Colours are used on a terminal only, and not where NO_COLOR is set.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from slipstream.client.jetstream.model import Document

FOLDED_MIN = 16  # a column of words is never made narrower than this


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Whoever reads has seen enough; `main` ends quietly."""
        raise BrokenPipeError


def console() -> Console:
    """Where results go; as wide as it takes when that is not a terminal."""
    piped = not sys.stdout.isatty()
    return _Output(width=1000 if piped else None, highlight=False, soft_wrap=piped)


def styled(text: str, code: str) -> str:
    """`text` in a colour or weight (an SGR code, like "31"), where that may be."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


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
    if isinstance(value, Document):
        return _whole(value)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def _whole(document: Document) -> dict[str, Any]:
    """Every field of a document, also those at their default, so that programs find each."""
    sent = document.to_wire()
    made: dict[str, Any] = dict(document.extra)
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if name == "extra" or value is None:
            continue
        if isinstance(value, Document):
            made[name] = _whole(value)
        elif isinstance(value, list) and value and isinstance(value[0], Document):
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
    out = console()
    cells = [list(row) for row in rows]
    shown = [_Column(name, [row[at] for row in cells]) for at, name in enumerate(columns)]
    room = out.width if sys.stdout.isatty() else sys.maxsize
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
    made = Table(
        title=Text(title, style="bold"), box=box.ROUNDED, title_justify="center",
        padding=(0, padding),
    )  # fmt: skip
    spare = room - _width(shown, padding)
    for column in shown:
        width = min(column.most, column.least + spare)
        spare -= width - column.least
        made.add_column(Text(column.name), justify=column.justify, width=width, overflow="fold")
    for row in zip(*(column.cells for column in shown), strict=True):
        made.add_row(*map(Text, row))
    out.print(made)


class _Column:
    """A column, how wide it has to be at least, and how wide it would be."""

    def __init__(self, name: str, cells: list[str]) -> None:
        self.name = name
        self.cells = cells
        numbers = bool(cells) and all(map(_is_number, cells))
        self.justify: JustifyMethod = "right" if numbers else "left"
        widest = max(map(cell_len, cells), default=0)
        self.least = max(min(widest, FOLDED_MIN), max(map(len, name.split())))
        self.most = max(widest, len(name))


def _width(columns: list[_Column], padding: int) -> int:
    return sum(column.least + 2 * padding + 1 for column in columns) + 1


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").strip().isdigit()


def properties(title: str, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Labels set right with their values, in sections."""
    width = max((len(label) for _, pairs in sections for label, _ in pairs), default=0) + 2
    say(styled(title, "1"))
    for name, pairs in sections:
        if not pairs:
            continue
        say()
        if name:
            say(f"{name}:")
            say()
        for label, value in pairs:
            first, *more = value.split("\n")
            say(f"{label:>{width}}: {first}")
            for line in more:
                say(f"{'':>{width}}  {line}")


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """What the server does in one go, with the time it takes; on a terminal's stderr only."""
    columns = (SpinnerColumn(), TextColumn(what), TimeElapsedColumn())
    with _progress(*columns) as bar:
        bar.add_task("", total=None)
        yield


def count_bar(what: str) -> Progress:
    """A progress bar of things; it draws on stderr, and only on a terminal."""
    return _progress(TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def bytes_bar(what: str) -> Progress:
    """A progress bar of bytes; it draws on stderr, and only on a terminal."""
    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return _progress(TextColumn(what), BarColumn(), *columns)


def _progress(*columns: ProgressColumn) -> Progress:
    drawn = sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), disable=not drawn, transient=True)
