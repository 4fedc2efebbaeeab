"""The terminal view of `slipstream top`, drawn with textual."""

import re
from collections.abc import Iterable

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from slipstream.cli.session import INTERRUPTED
from slipstream.cli.top.command import (
    CONNECTION_COLUMNS,
    CONSUMER_COLUMNS,
    STREAM_COLUMNS,
    Look,
    Row,
)
from slipstream.client.jetstream.why import explain_consumer
from slipstream.errors import Error

TABLES = {
    "streams": STREAM_COLUMNS,
    "consumers": CONSUMER_COLUMNS,
    "connections": CONNECTION_COLUMNS,
}


ROWS_MIN = 24  # of a terminal that shows all tables at once
HELP = """\
tab     the next table
s       sort the table by its next column, most first or from A to Z,
        and after the last column as at the start
r       the other way round
/       show only rows that have a text; escape shows all
w       why the consumer under the cursor gets messages, or gets none
p       stand still, and go on
q       end, as Ctrl-C does"""
UNITS = {"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40} | {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
    "d": 86400.0, "y": 31536000.0,
}  # fmt: skip
_PART = re.compile(r"([\d.]+) ?([A-Za-zµ]*)")


def magnitude(text: str) -> float | None:
    """What a number, a size or a length of time amounts to; None for another text."""
    plain = text.replace(",", "")
    parts = _PART.findall(plain)
    if not parts or _PART.sub("", plain):
        return None
    try:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    except (KeyError, ValueError):
        return None


def _rank(text: str) -> tuple[bool, float, str]:
    """For sorting: numbers first, most first."""
    number = magnitude(text)
    return (number is None, -(number or 0.0), text.lower())


def _cell(text: str) -> Text:
    """Numbers are set right."""
    number = text.replace(",", "").replace(" ", "")[:1].isdigit()
    return Text(text, justify="right" if number else "left")


class Note(ModalScreen[None]):
    """A text before the tables: what the keys do, or why a consumer gets nothing."""

    BINDINGS = [("escape,q,w,enter,question_mark", "dismiss", "Back")]
    CSS = """
    Note { align: center middle; }
    #note { width: 90%; height: auto; max-height: 80%; border: round $primary; padding: 1; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """A box with the text."""
        with VerticalScroll(id="note"):
            yield Static(self._text, markup=False)
        yield Footer()


class Top(App[None]):
    """Two lines about the server, and tables of streams, consumers and connections."""

    TITLE = "slipstream top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        ("q", "quit", "Quit"),
        # The terminal gives Ctrl-C as a key here, and textual would only name the key that quits.
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("w", "why", "Why (consumer)"),
        Binding("p", "pause", "Pause"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "show_all", show=False),
        Binding("tab", "next_table", "Next table", priority=True),
    ]
    CSS = """
    #headline { height: 2; padding: 0 1; text-style: bold; }
    #headline.paused { background: $warning; color: $text; }
    #filter { height: 3; display: none; }
    .small DataTable { display: none; }
    .small DataTable.current { display: block; height: 1fr; }
    DataTable { border: round $surface-lighten-2; border-title-color: $text; }
    DataTable:focus { border: round $primary; }
    #streams { height: 1fr; }
    #consumers { height: 2fr; }
    #connections { height: 1fr; }
    """

    def __init__(self, look: Look, interval: float) -> None:
        super().__init__()
        self._look = look
        self._interval = interval
        self._paused = False
        self._filter = ""
        # Of each table: the column by which it is sorted, None as it comes, and if the other way.
        self._order: dict[str, tuple[int | None, bool]] = dict.fromkeys(TABLES, (None, False))
        self._current = "consumers"

    def compose(self) -> ComposeResult:
        """The widgets."""
        yield Static(id="headline", markup=False)
        for name in TABLES:
            table: DataTable[Text] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
            yield table
        yield Input(id="filter", placeholder="only rows with this text; escape shows all")
        yield Footer()

    def on_mount(self) -> None:
        """Draw what is known, and ask again from time to time."""
        for name, columns in TABLES.items():
            self._table(name).add_columns(*columns)
        self._draw()
        self._go_to(self._current)
        self.set_interval(self._interval, self._again)

    def on_resize(self, event: events.Resize) -> None:
        """One table at a time where there is no room for three."""
        self.screen_stack[0].set_class(event.size.height < ROWS_MIN, "small")

    async def _again(self) -> None:
        if not self._paused:
            await self._look.refresh()
            self._draw()

    def _draw(self) -> None:
        headline = self.screen_stack[0].query_one("#headline", Static)
        headline.set_class(self._paused, "paused")
        headline.update(("PAUSED, p goes on  " if self._paused else "") + self._look.headline)
        self._fill("streams", self._look.streams)
        self._fill("consumers", self._look.consumers)
        self._fill("connections", self._look.connections)

    def _table(self, name: str) -> "DataTable[Text]":
        return self.screen_stack[0].query_one(f"#{name}", DataTable)

    def _fill(self, name: str, rows: Iterable[Row]) -> None:
        table = self._table(name)
        row, column = table.cursor_coordinate
        offset = table.scroll_offset
        table.clear()
        column_sorted, other_way = self._order[name]
        rows = list(rows)
        shown = [row for row in rows if any(self._filter in cell.lower() for cell in row)]
        if column_sorted is not None:
            shown.sort(key=lambda row: _rank(row[column_sorted]))
        if other_way:
            shown.reverse()
        for cells in shown:
            table.add_row(*(_cell(cell) for cell in cells))
        said = [name.title()]
        if column_sorted is not None or other_way:
            by = "" if column_sorted is None else f" by {TABLES[name][column_sorted]}"
            said.append(f"sorted{by}{', the other way round' if other_way else ''}")
        if self._filter:
            said.append(f'{len(shown)} of {len(rows)} with "{self._filter}"')
        table.border_title = Text(": ".join(said[:1] + [", ".join(said[1:])] * (len(said) > 1)))
        table.move_cursor(row=row, column=column, scroll=False)
        table.scroll_to(*offset, animate=False)

    def action_interrupt(self) -> None:
        """End as every command does that Ctrl-C stops."""
        self.exit(return_code=INTERRUPTED)

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._paused = not self._paused
        self._draw()

    def action_help(self) -> None:
        """Say what the keys do."""
        self.push_screen(Note(HELP))

    def action_next_table(self) -> None:
        """The cursor goes to the next table, which is the one that a small terminal shows."""
        names = list(TABLES)
        self._go_to(names[(names.index(self._current) + 1) % len(names)])

    def _go_to(self, name: str) -> None:
        self._current = name
        for each in TABLES:
            self._table(each).set_class(each == name, "current")
        self.screen_stack[0].set_focus(self._table(name))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click chooses a table, too."""
        if isinstance(event.widget, DataTable) and event.widget.id:
            self._current = event.widget.id

    def action_sort(self) -> None:
        """Sort by the next column."""
        column, _ = self._order[self._current]
        following = 0 if column is None else column + 1
        last = following == len(TABLES[self._current])
        self._order[self._current] = (None if last else following, False)
        self._draw()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        column, other_way = self._order[self._current]
        self._order[self._current] = (column, not other_way)
        self._draw()

    def _filter_line(self) -> Input:
        return self.screen_stack[0].query_one("#filter", Input)

    def action_filter(self) -> None:
        """Ask for the text that rows must have."""
        line = self._filter_line()
        line.display = True
        self.screen_stack[0].set_focus(line)  # at once: what is typed next belongs to it

    def action_show_all(self) -> None:
        """No filter."""
        self._filter_line().value = ""
        self._filter_line().display = False
        self._go_to(self._current)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody types."""
        self._filter = event.value.strip().lower()
        self._draw()

    def on_input_submitted(self) -> None:
        """Back to the rows that are left."""
        self._go_to(self._current)

    async def action_why(self) -> None:
        """Say why the consumer under the cursor does or does not get messages."""
        table = self._table("consumers")
        if not table.row_count:
            return
        stream, name = (cell.plain for cell in table.get_row_at(table.cursor_row)[:2])
        name = name.partition(" ")[0]  # without what follows the name of a paused one
        js = self._look.js
        try:
            info = await js.consumer_info(stream, name)
            reasons = (await explain_consumer(js, info)).reasons
        except Error as error:
            self.notify(str(error), severity="error")
            return
        lines = [f"{'✗' if one.blocks else '·'} {one}" for one in reasons]
        self.push_screen(Note(f"{stream} > {name}\n\n" + "\n".join(lines)))
