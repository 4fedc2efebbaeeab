"""What commands print: tables and properties for people, JSON for programs.

Colours are used on a terminal only, and not where NO_COLOR is set.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from slipstream.client.jetstream.document import Document


def console() -> Console:
    """Where results go; as wide as it takes when that is not a terminal."""
    plain = not sys.stdout.isatty()
    return Console(width=200 if plain else None, highlight=False, soft_wrap=plain)


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
    """A table as the `nats` tool draws it; columns whose cells are numbers are set right."""
    made = Table(title=Text(title), box=box.ROUNDED, title_justify="center")
    cells = [list(row) for row in rows]
    for at, column in enumerate(columns):
        numbers = bool(cells) and all(_is_number(row[at]) for row in cells)
        made.add_column(Text(column), justify="right" if numbers else "left", no_wrap=True)
    for row in cells:
        made.add_row(*[Text(cell) for cell in row])
    console().print(made)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").strip().isdigit()


def properties(title: str, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Labels set right with their values, in sections."""
    width = max((len(label) for _, pairs in sections for label, _ in pairs), default=0) + 2
    say(title)
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


def count_bar(what: str) -> Progress:
    """A progress bar of things; it draws on stderr, and only on a terminal."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def bytes_bar(what: str) -> Progress:
    """A progress bar of bytes; it draws on stderr, and only on a terminal."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
