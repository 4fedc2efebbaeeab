"""`slipstream top`: streams, consumers, lag, rates and connections, live in the terminal."""

from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from slipstream.cli.cluster.shown import led_by
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.prompts import may_ask
from slipstream.cli.server.system import ask_connections
from slipstream.cli.session import (
    command,
    connection,
    context_of,
    new_app,
    settings,
    wants_json,
)
from slipstream.cli.values import show_duration, show_since, show_size
from slipstream.client.jetstream import ConsumerInfo, StreamInfo
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import Error

app = new_app(group=False)

STREAM_COLUMNS = ("Stream", "Messages", "Bytes", "In/s", "Consumers", "Last Message")
CONSUMER_COLUMNS = (
    "Stream",
    "Consumer",
    "Lag",
    "Out/s",
    "Ack Pending",
    "Redelivered",
    "Waiting",
    "Last",
)
CONNECTION_COLUMNS = ("CID", "Name", "From", "In/s", "Out/s", "Pending", "Subs", "Uptime")
Row = tuple[str, ...]
# What connections are sorted by -> their field, and whether those with most of it come first.
SORTS = {
    "cid": ("cid", False),
    "start": ("start", False),
    "uptime": ("start", False),
    "subs": ("subscriptions", True),
    "pending": ("pending_bytes", True),
    "msgs_to": ("out_msgs", True),
    "msgs_from": ("in_msgs", True),
    "bytes_to": ("out_bytes", True),
    "bytes_from": ("in_bytes", True),
    "last": ("last_activity", True),
    "idle": ("last_activity", False),
}


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
    """What is shown: the rows of the tables and two lines about server and account."""

    def __init__(self, js: JetStream, connections_max: int = 1024, sort: str = "cid") -> None:
        self.js = js
        self._connections_max = connections_max
        self._sort = SORTS[sort]
        self._rates = Rates()
        self._data: dict[str, Any] = {}
        self.streams: list[Row] = []
        self.consumers: list[Row] = []
        self.connections: list[Row] = []
        self.headline = ""

    async def refresh(self) -> None:
        """Ask the server. What cannot be asked is said in the headline; the rows stay."""
        try:
            await self._refresh()
        except Error as error:
            self.headline = f"No answer: {error}"

    async def _refresh(self) -> None:
        now = monotonic()
        infos = [info async for info in self.js.streams()]
        infos.sort(key=lambda info: info.name)
        consumers = [one for info in infos async for one in self.js.consumers(info.name)]
        consumers.sort(key=lambda one: (-one.num_pending, one.stream_name, one.name))
        account = await self.js.account_info()
        connections = await ask_connections(self.js.connection)
        field, most_first = self._sort
        nothing: str | int = "" if field in ("start", "last_activity") else 0
        connections.sort(key=lambda one: one.get(field, nothing), reverse=most_first)
        del connections[self._connections_max :]
        self._data = {
            "account": account,
            "streams": infos,
            "consumers": consumers,
            "connections": connections,
        }
        self.streams = [self._stream_row(info, now) for info in infos]
        self.consumers = [self._consumer_row(one, now) for one in consumers]
        self.connections = [self._connection_row(one, now) for one in connections]
        server = self.js.connection.server_info
        clusters = [info.cluster for info in infos if info.cluster and info.cluster.replicas]
        self.headline = (
            f"{self.js.connection.server_url}  {server.version}  {server.server_name[:20]}  "
            f"connections {len(connections):,}{'  ' + led_by(clusters[0]) if clusters else ''}\n"
            f"streams {account.streams:,}  consumers {account.consumers:,}  "
            f"file {show_size(account.storage)}  memory {show_size(account.memory)}  "
            f"API {account.api.total:,} calls, {account.api.errors:,} errors"
        )

    def whole(self) -> dict[str, Any]:
        """For programs: what the server said."""
        return self._data

    def _stream_row(self, info: StreamInfo, now: float) -> Row:
        rate = self._rates.of(info.name, info.state.last_seq, now)
        return (
            info.name,
            f"{info.state.messages:,}",
            show_size(info.state.bytes),
            f"{rate:,.0f}",
            str(info.state.consumer_count),
            show_since(info.state.last_ts if info.state.last_seq else None),
        )

    def _consumer_row(self, info: ConsumerInfo, now: float) -> Row:
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

    def _connection_row(self, one: dict[str, Any], now: float) -> Row:
        cid = str(one.get("cid", ""))
        rate_in = self._rates.of(f"in {cid}", int(one.get("in_msgs", 0)), now)
        rate_out = self._rates.of(f"out {cid}", int(one.get("out_msgs", 0)), now)
        return (
            cid,
            str(one.get("name", "")),
            f"{one.get('ip', '')}:{one.get('port', '')}",
            f"{rate_in:,.0f}",
            f"{rate_out:,.0f}",
            show_size(int(one.get("pending_bytes", 0))),
            f"{one.get('subscriptions', 0):,}",
            str(one.get("uptime", "")),
        )


@command(app, "top")
async def top(
    name: Annotated[
        str, typer.Argument(metavar="SERVER", help="The connected server's name, to be sure")
    ] = "",
    interval: Annotated[float, typer.Option("--interval", "-d", help="Seconds", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end")] = False,
    conns: Annotated[int, typer.Option("--conns", "-n", help="So many connections", min=1)] = 1024,
    sort: Annotated[
        str, typer.Option("--sort", help=f"Connections, most first: {', '.join(SORTS)}")
    ] = "cid",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save one look here and end")
    ] = None,
) -> None:
    """Watch streams, consumers, lag and rates. q or Ctrl-C ends it."""
    if sort not in SORTS:
        raise UsageError(f'top: --sort "{sort}" is none of {", ".join(SORTS)}')
    async with connection() as nc:
        connected = (nc.server_info.server_name, nc.server_info.server_id)
        if name and name not in connected:
            raise UsageError(f"top: this is server {connected[0]}; connect to {name} with --server")
        look = Look(context_of(nc, settings()), conns, sort)
        await look.refresh()
        if output is not None:
            with output.open("w") as file, redirect_stdout(file):
                _print(look)
            return
        if once:
            _print(look)
            return
        if not may_ask():
            raise UsageError("top needs a terminal; --once prints one look")
        from slipstream.cli.top.screen import Top  # textual: other commands do without

        screen = Top(look, interval)
        await screen.run_async()
    if screen.return_code:
        raise typer.Exit(screen.return_code)


def _print(look: Look) -> None:
    if wants_json():
        print_json(look.whole())
        return
    say(look.headline)
    table("Streams", STREAM_COLUMNS, look.streams)
    table("Consumers", CONSUMER_COLUMNS, look.consumers)
    table("Connections", CONNECTION_COLUMNS, look.connections)
