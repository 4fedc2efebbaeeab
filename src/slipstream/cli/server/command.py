"""`slipstream server`: checks for monitoring, and what a server says of itself."""

from ipaddress import ip_address
from time import perf_counter
from typing import Annotated

import msgspec
import typer

from slipstream.cli.output import print_json, properties, say
from slipstream.cli.session import (
    command,
    connection,
    context_of,
    jetstream,
    new_app,
    round_trip,
    settings,
    wants_json,
)
from slipstream.cli.values import duration, show_duration, show_size
from slipstream.errors import Error

app = new_app("Look after a server.")
check_app = new_app("Checks for Nagios and the like: exit code 0 OK, 1 warning, 2 critical.")
app.add_typer(check_app, name="check")

OK, WARNING, CRITICAL = 0, 1, 2
WORDS = {OK: "OK", WARNING: "WARNING", CRITICAL: "CRITICAL"}


class Check:
    """What a check has found, printed as one line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = OK
        self._said: list[str] = []
        self._values: dict[str, float] = {}
        self._performance: list[str] = []

    def value(self, name: str, value: float, warn: float, critical: float, unit: str = "") -> None:
        """Take in a value that is too high above its bounds (0: none)."""
        self._values[name] = value
        digits = 4 if unit == "s" else 0
        bounds = [f"{bound:.{digits}f}" if bound else "" for bound in (warn, critical)]
        text = ";".join([f"{name}={value:.{digits}f}{unit}", *bounds])
        self._performance.append(text.rstrip(";"))
        for status, bound in ((CRITICAL, critical), (WARNING, warn)):
            if bound and value > bound:
                self.status = max(self.status, status)
                self._said.append(f"{name} {value:g}{unit} over {bound:g}{unit}")
                return

    def fail(self, text: str, status: int = CRITICAL) -> None:
        """Something is wrong."""
        self.status = max(self.status, status)
        self._said.append(text)

    def end(self) -> None:
        """Print the line and leave with the status."""
        if wants_json():
            found = {"status": WORDS[self.status], "check": self.name, "values": self._values}
            print_json({**found, "problems": self._said})
        else:
            text = "; ".join(self._said) or "all fine"
            values = " ".join(self._performance)  # as the plugins of Nagios write it
            say(f"{self.name} {WORDS[self.status]}: {text}" + (f" | {values}" if values else ""))
        raise typer.Exit(self.status)


@command(check_app, "connection")
async def check_connection(
    connect_warn: Annotated[str, typer.Option("--connect-warn")] = "500ms",
    connect_critical: Annotated[str, typer.Option("--connect-critical")] = "1s",
    rtt_warn: Annotated[str, typer.Option("--rtt-warn")] = "500ms",
    rtt_critical: Annotated[str, typer.Option("--rtt-critical")] = "1s",
) -> None:
    """Whether a server takes connections, and how fast."""
    check = Check("NATS Connection")
    began = perf_counter()
    try:
        async with connection() as nc:
            took = perf_counter() - began
            rtt = await round_trip(nc)
        check.value("connect_time", took, duration(connect_warn), duration(connect_critical), "s")
        check.value("rtt", rtt, duration(rtt_warn), duration(rtt_critical), "s")
    except Error as error:
        check.fail(str(error))
    check.end()


@command(check_app, "exposure")
async def check_exposure() -> None:
    """Whether strangers can use the server: it asks nobody who he is, and where it listens."""
    check = Check("NATS Exposure")
    try:
        async with connection() as nc:
            found = nc.server_info
        if not found.auth_required:
            where = found.host or "0.0.0.0"
            everywhere = where in ("0.0.0.0", "::")
            listens = "on all interfaces" if everywhere else f"on {where}"
            if not _is_loopback(where):
                check.fail(
                    f"the server listens {listens} and lets in everybody: configure users, "
                    "or let it listen on 127.0.0.1",
                    CRITICAL if everywhere else WARNING,
                )
    except Error as error:
        check.fail(str(error))
    check.end()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@command(check_app, "stream")
async def check_stream(
    stream: Annotated[str, typer.Option("--stream", help="The stream")],
    msgs_warn: Annotated[int, typer.Option("--msgs-warn", help="More messages than this")] = 0,
    msgs_critical: Annotated[int, typer.Option("--msgs-critical")] = 0,
    lag_critical: Annotated[int, typer.Option("--lag-critical", help="Of mirror, sources")] = 0,
) -> None:
    """A stream's health."""
    check = Check("JetStream Stream")
    try:
        async with jetstream() as js:
            info = await js.stream_info(stream)
        check.value("messages", info.state.messages, msgs_warn, msgs_critical)
        if info.state.lost is not None and info.state.lost.msgs:
            check.fail(f"{len(info.state.lost.msgs):,} messages are lost to damage")
        for source in [*info.sources, *([info.mirror] if info.mirror else [])]:
            check.value(f"lag_{source.name}", source.lag, 0, lag_critical)
    except Error as error:
        check.fail(str(error))
    check.end()


@command(check_app, "consumer")
async def check_consumer(
    stream: Annotated[str, typer.Option("--stream", help="The stream")],
    consumer: Annotated[str, typer.Option("--consumer", help="The consumer")],
    outstanding: Annotated[int, typer.Option("--outstanding-ack-critical")] = 0,
    waiting: Annotated[int, typer.Option("--waiting-critical", help="Pulls waiting")] = 0,
    unprocessed: Annotated[int, typer.Option("--unprocessed-critical")] = 0,
    redelivery: Annotated[int, typer.Option("--redelivery-critical")] = 0,
) -> None:
    """A consumer's health."""
    check = Check("JetStream Consumer")
    try:
        async with jetstream() as js:
            info = await js.consumer_info(stream, consumer)
        check.value("outstanding", info.num_ack_pending, 0, outstanding)
        check.value("waiting", info.num_waiting, 0, waiting)
        check.value("unprocessed", info.num_pending, 0, unprocessed)
        check.value("redelivered", info.num_redelivered, 0, redelivery)
    except Error as error:
        check.fail(str(error))
    check.end()


@command(check_app, "jetstream")
async def check_jetstream(
    storage_warn: Annotated[int, typer.Option("--store-warn", help="Percent")] = 75,
    storage_critical: Annotated[int, typer.Option("--store-critical", help="Percent")] = 90,
    memory_warn: Annotated[int, typer.Option("--mem-warn", help="Percent")] = 75,
    memory_critical: Annotated[int, typer.Option("--mem-critical", help="Percent")] = 90,
) -> None:
    """How much of the account's limits is used."""
    check = Check("JetStream")
    try:
        async with jetstream() as js:
            info = await js.account_info()
        limits = info.limits
        if limits.max_storage > 0:
            used = 100 * info.storage / limits.max_storage
            check.value("storage", used, storage_warn, storage_critical, "%")
        if limits.max_memory > 0:
            used = 100 * info.memory / limits.max_memory
            check.value("memory", used, memory_warn, memory_critical, "%")
    except Error as error:
        check.fail(str(error))
    check.end()


@command(app, "info")
async def info() -> None:
    """Show what the connected server says of itself."""
    async with connection() as nc:
        found = nc.server_info
        rtt = await round_trip(nc)
        js = True
        try:
            await context_of(nc, settings()).account_info()
        except Error:
            js = False
        url = nc.server_url
    if wants_json():
        print_json(msgspec.to_builtins(found))
        return
    pairs = [
        ("URL", url),
        ("Name", found.server_name),
        ("ID", found.server_id),
        ("Version", found.version),
        ("Protocol", str(found.proto)),
        ("JetStream", "enabled for this account" if js else "not enabled for this account"),
        ("Maximum Payload", show_size(found.max_payload)),
        ("Authentication Required", str(found.auth_required).lower()),
        ("TLS Required", str(found.tls_required).lower()),
        ("RTT", show_duration(rtt)),
    ]
    properties("Server Information", [("", pairs)])
