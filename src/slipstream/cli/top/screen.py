"""The terminal view of `slipstream top`, drawn with textual."""

from collections.abc import Iterable

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

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


def _cell(text: str) -> Text:
    """Numbers are set right."""
    number = text.replace(",", "").replace(" ", "")[:1].isdigit()
    return Text(text, justify="right" if number else "left")


class Reasons(ModalScreen[None]):
    """Why a consumer does or does not get messages."""

    BINDINGS = [("escape,q,w,enter", "dismiss", "Back")]
    CSS = """
    Reasons { align: center middle; }
    #reasons { width: 90%; height: auto; max-height: 80%; border: round $primary; padding: 1; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """A box with the text."""
        with VerticalScroll(id="reasons"):
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
        Binding("w", "why", "Why (consumer)"),
        Binding("p", "pause", "Pause"),
        Binding("tab", "focus_next", "Next table", show=True),
    ]
    CSS = """
    #headline { height: 2; padding: 0 1; text-style: bold; }
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

    def compose(self) -> ComposeResult:
        """The widgets."""
        yield Static(id="headline", markup=False)
        for name in TABLES:
            table: DataTable[Text] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
            table.border_title = name.title()
            yield table
        yield Footer()

    def on_mount(self) -> None:
        """Draw what is known, and ask again from time to time."""
        for name, columns in TABLES.items():
            self._table(name).add_columns(*columns)
        self._draw()
        self._table("consumers").focus()
        self.set_interval(self._interval, self._again)

    async def _again(self) -> None:
        if not self._paused:
            await self._look.refresh()
            self._draw()

    def _draw(self) -> None:
        self.screen_stack[0].query_one("#headline", Static).update(self._look.headline)
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
        for cells in rows:
            table.add_row(*(_cell(cell) for cell in cells))
        table.move_cursor(row=row, column=column, scroll=False)
        table.scroll_to(*offset, animate=False)

    def action_interrupt(self) -> None:
        """End as every command does that Ctrl-C stops."""
        self.exit(return_code=INTERRUPTED)

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._paused = not self._paused
        self.notify("Paused; p goes on" if self._paused else "Going on")

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
        self.push_screen(Reasons(f"{stream} > {name}\n\n" + "\n".join(lines)))
