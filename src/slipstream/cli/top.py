"""`slipstream top`: streams, consumers, lag, rates and connections, live in the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Any

import typer

from slipstream.cli.session import command, connection, context_of, new_app, settings
from slipstream.cli.values import show_duration, show_since, show_size
from slipstream.client.jetstream import ConsumerInfo, StreamInfo
from slipstream.client.jetstream.context import JetStream

app = new_app(group=False)

STREAM_COLUMNS = ("Stream", "Messages", "Bytes", "In msg/s", "Consumers", "Last Message")
CONSUMER_COLUMNS = (
    "Stream",
    "Consumer",
    "Lag",
    "Out msg/s",
    "Ack Pending",
    "Redelivered",
    "Waiting",
    "Last Delivery",
)


@dataclass
class Rates:
    """How fast counters grow, from one look to the next."""

    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def of(self, name: str, count: int, now: float) -> float:
        """Growth a second since the last look; 0 at the first."""
        before = self._seen.get(name)
        self._seen[name] = (now, count)
        if before is None or now <= before[0]:
            return 0.0
        return max(count - before[1], 0) / (now - before[0])


class Look:
    """What is shown: rows of both tables and a line about the account."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self._rates = Rates()
        self.streams: list[tuple[str, ...]] = []
        self.consumers: list[tuple[str, ...]] = []
        self.headline = ""

    async def refresh(self) -> None:
        """Ask the server."""
        now = monotonic()
        infos = [info async for info in self._js.streams()]
        infos.sort(key=lambda info: info.name)
        self.streams = [self._stream_row(info, now) for info in infos]
        self.consumers = []
        for info in infos:
            async for one in self._js.consumers(info.name):
                self.consumers.append(self._consumer_row(one, now))
        self.consumers.sort(key=lambda row: -int(row[2].replace(",", "")))
        account = await self._js.account_info()
        server = self._js.connection.server_info
        self.headline = (
            f"{server.server_name or server.server_id}  {self._js.connection.server_url}  "
            f"streams {account.streams:,}  consumers {account.consumers:,}  "
            f"file {show_size(account.storage)}  memory {show_size(account.memory)}  "
            f"API {account.api.total:,} calls, {account.api.errors:,} errors"
        )

    def _stream_row(self, info: StreamInfo, now: float) -> tuple[str, ...]:
        rate = self._rates.of(info.name, info.state.last_seq, now)
        return (
            info.name,
            f"{info.state.messages:,}",
            show_size(info.state.bytes),
            f"{rate:,.0f}",
            str(info.state.consumer_count),
            show_since(info.state.last_ts if info.state.last_seq else None),
        )

    def _consumer_row(self, info: ConsumerInfo, now: float) -> tuple[str, ...]:
        name = f"{info.stream_name} {info.name}"
        rate = self._rates.of(name, info.delivered.consumer_seq, now)
        paused = f" (paused {show_duration(info.pause_remaining)})" if info.paused else ""
        push = info.config.deliver_subject
        return (
            info.stream_name,
            info.name + paused,
            f"{info.num_pending:,}",
            f"{rate:,.0f}",
            f"{info.num_ack_pending:,}",
            f"{info.num_redelivered:,}",
            ("bound" if info.push_bound else "nobody") if push else f"{info.num_waiting:,}",
            show_since(info.delivered.last_active),
        )


@command(app, "top")
async def top(
    interval: Annotated[float, typer.Option("--interval", help="Seconds", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end")] = False,
) -> None:
    """Watch streams, consumers, lag and rates. q or Ctrl-C ends it."""
    async with connection() as nc:
        look = Look(context_of(nc, settings()))
        await look.refresh()
        if once:
            _print(look)
            return
        await _make_screen(look, interval).run_async()


def _print(look: Look) -> None:
    from slipstream.cli.output import say, table

    say(look.headline)
    table("Streams", STREAM_COLUMNS, look.streams)
    table("Consumers", CONSUMER_COLUMNS, look.consumers)


def _make_screen(look: Look, interval: float) -> Any:
    """The textual app; imported here, so that other commands do without."""
    from textual.app import App, ComposeResult
    from textual.widgets import DataTable, Footer, Static

    def fill(table: "DataTable[str]", rows: Iterable[tuple[str, ...]]) -> None:
        at = table.cursor_row
        table.clear()
        for row in rows:
            table.add_row(*row)
        table.move_cursor(row=at)

    class Top(App[None]):
        """Two tables and a headline."""

        TITLE = "slipstream top"
        BINDINGS = [("q", "quit", "Quit")]
        CSS = "#streams { height: 1fr; } #consumers { height: 2fr; } #headline { height: 1; }"

        def compose(self) -> ComposeResult:
            yield Static(look.headline, id="headline")
            yield DataTable(id="streams", cursor_type="row")
            yield DataTable(id="consumers", cursor_type="row")
            yield Footer()

        def on_mount(self) -> None:
            self.query_one("#streams", DataTable).add_columns(*STREAM_COLUMNS)
            self.query_one("#consumers", DataTable).add_columns(*CONSUMER_COLUMNS)
            self._draw()
            self.set_interval(interval, self._again)

        async def _again(self) -> None:
            await look.refresh()
            self._draw()

        def _draw(self) -> None:
            self.query_one("#headline", Static).update(look.headline)
            fill(self.query_one("#streams", DataTable), look.streams)
            fill(self.query_one("#consumers", DataTable), look.consumers)

    return Top()
