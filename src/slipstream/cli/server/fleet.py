"""`slipstream server ls|ping|watch|passwd`: all servers at once.

Servers answer these under `$SYS.REQ` (docs/protocol/monitoring.md#requests-to-the-system-account);
most need a user of the system account, and say so.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.prompts import require
from slipstream.cli.server.system import (
    STALL_SECONDS,
    SYSTEM_HELP,
    Answer,
    ask_all,
    server_of,
    shortened,
)
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.cli.values import duration, show_duration, show_size
from slipstream.client.connection import Connection
from slipstream.client.errors import NoRespondersError, PermissionsError
from slipstream.errors import ConfigError
from slipstream.model.times import Timestamp

app = new_app()

PING_PARTS = 8
PASSWORD_LENGTH_MIN = 22  # as nats-server advises for passwords that are not made by a machine
COST = 11

SORTS: dict[str, Callable[[Answer], Any]] = {
    "name": lambda one: server_of(one),
    "cluster": lambda one: str(one.get("server", {}).get("cluster", "")),
    "conns": lambda one: one.get("statsz", {}).get("connections", 0),
    "conn": lambda one: one.get("statsz", {}).get("connections", 0),
    "subs": lambda one: one.get("statsz", {}).get("subscriptions", 0),
    "sub": lambda one: one.get("statsz", {}).get("subscriptions", 0),
    "routes": lambda one: len(one.get("statsz", {}).get("routes") or []),
    "gws": lambda one: len(one.get("statsz", {}).get("gateways") or []),
    "mem": lambda one: one.get("statsz", {}).get("mem", 0),
    "cpu": lambda one: one.get("statsz", {}).get("cpu", 0),
    "slow": lambda one: one.get("statsz", {}).get("slow_consumers", 0),
    "uptime": lambda one: str(one.get("statsz", {}).get("start", "")),
}

# What `watch` sorts by, as the nats tool calls it -> where the figure is.
WATCH_SORTS: dict[str, dict[str, tuple[str, ...]]] = {
    "STATSZ": {
        "conns": ("connections",),
        "subs": ("subscriptions",),
        "sentb": ("sent", "bytes"),
        "sentm": ("sent", "msgs"),
        "recvb": ("received", "bytes"),
        "recvm": ("received", "msgs"),
        "slow": ("slow_consumers",),
        "mem": ("mem",),
        "cpu": ("cpu",),
    },
    "JSZ": {
        "messages": ("messages",),
        "bytes": ("bytes",),
        "streams": ("streams",),
        "consumers": ("consumers",),
        "api": ("api", "total"),
        "err": ("api", "errors"),
        "mem": ("memory",),
        "file": ("storage",),
    },
}
Expect = Annotated[
    int, typer.Argument(metavar="EXPECT", help="How many servers have to answer; 0: any", min=0)
]


@command(app, "ls")
async def ls(
    expect: Expect = 0,
    sort: Annotated[str, typer.Option("--sort", help=", ".join(SORTS))] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="The other way round")] = False,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Names without their domain")
    ] = False,
) -> None:
    """List the servers of the cluster (system account)."""
    if sort not in SORTS:
        raise UsageError(f'server ls: --sort "{sort}" is none of {", ".join(SORTS)}')
    async with connection() as nc:
        await list_servers(nc, expect=expect, sort=sort, reverse=reverse, compact=compact)


async def list_servers(
    nc: Connection,
    what: str = "server ls",
    *,
    expect: int = 0,
    sort: str = "name",
    reverse: bool = False,
    compact: bool = False,
) -> None:
    """The table of `server ls`. Raises `ConfigError` where no server answers, about `what`."""
    answers = await ask_all(nc, "STATSZ", what=what, expect=expect)
    most_first = sort not in ("name", "cluster", "uptime")  # up the longest has begun first
    answers.sort(key=SORTS[sort], reverse=most_first != reverse)
    if wants_json():
        print_json(answers)
        return
    rows = []
    names = [server_of(answer) for answer in answers]
    for name, answer in zip(shortened(names) if compact else names, answers, strict=True):
        server, found = answer.get("server", {}), answer.get("statsz", {})
        rows.append(
            (
                name,
                str(server.get("cluster", "")),
                str(server.get("host", "")),
                str(server.get("ver", "")),
                "yes" if server.get("jetstream") else "no",
                f"{found.get('connections', 0):,}",
                f"{found.get('subscriptions', 0):,}",
                show_size(found.get("mem", 0)),
                f"{found.get('cpu', 0):.0f}",
                str(found.get("cores", "")),
                f"{found.get('slow_consumers', 0):,}",
                _uptime(str(found.get("start", ""))),
            )
        )
    columns = ("Name", "Cluster", "Host", "Version", "JS", "Conns", "Subs", "Mem", "CPU %", "Cores",
               "Slow", "Uptime")  # fmt: skip
    table("Server Overview", columns, rows)


def _uptime(start: str) -> str:
    began = Timestamp.parse(start) if start else None
    if began is None:
        return ""
    return show_duration(max((datetime.now(UTC) - began).total_seconds(), 0.0))


@command(app, "ping")
async def ping(
    expect: Expect = 0,
    show_id: Annotated[bool, typer.Option("--id", help="With the servers' ids")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Draw how many answer when")] = False,
) -> None:
    """Measure the round trip to every server of the cluster (system account)."""
    found: list[tuple[Answer, float]] = []
    async with connection() as nc:
        began = perf_counter()
        subject = "$SYS.REQ.SERVER.PING"
        try:
            async for message in nc.request_many(
                subject, stall=None if expect else STALL_SECONDS, max_messages=expect or None
            ):
                found.append((msgspec.json.decode(message.data), perf_counter() - began))
        except (NoRespondersError, PermissionsError):
            pass
    if not found:
        raise ConfigError(f"server ping: nobody answered; {SYSTEM_HELP}")
    if wants_json():
        print_json([answer for answer, _ in found])
    else:
        for answer, took in found:
            name = f"{server_of(answer) or '?':<60} rtt={show_duration(took)}"
            say(f"{answer.get('server', {}).get('id', '')} {name}" if show_id else name)
        if graph:
            _draw([took for _, took in found])
    if len(found) < expect:
        raise ConfigError(f"server ping: {len(found)} servers answered, not {expect}")


def _draw(times: Sequence[float]) -> None:
    """How many answers came in each part of the time."""
    say("\nAnswers:")
    step = max(max(times) / PING_PARTS, 1e-6)
    counts = [0] * PING_PARTS
    for took in times:
        counts[min(int(took / step), PING_PARTS - 1)] += 1
    for part, count in enumerate(counts, 1):
        say(f"{show_duration(part * step):>12}  {'█' * count}{' ' if count else ''}{count}")


@command(app, "watch")
async def watch(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="servers or jetstream")] = "servers",
    interval: Annotated[str, typer.Option("--interval", help="Between two looks")] = "2s",
    number: Annotated[int, typer.Option("--number", "-n", help="So many rows; 0: all")] = 0,
    sort: Annotated[str, typer.Option("--sort", help="By what, most first")] = "",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Show the servers' figures again and again, until Ctrl-C (system account)."""
    kinds = {"servers": "STATSZ", "server": "STATSZ", "srv": "STATSZ", "jetstream": "JSZ",
             "js": "JSZ", "jsz": "JSZ"}  # fmt: skip
    if what in ("accounts", "account", "acct"):
        raise UsageError("server watch: `slipstream server report accounts --watch 2` does that")
    if what not in kinds:
        raise UsageError(f'server watch: there is no "{what}"; there are servers and jetstream')
    if sort not in ("", *WATCH_SORTS[kinds[what]]):
        known = ", ".join(WATCH_SORTS[kinds[what]])
        raise UsageError(f'server watch: --sort "{sort}" is none of {known}')
    looks = 0
    async with connection() as nc:
        while True:
            answers = await ask_all(nc, kinds[what])
            if sys.stdout.isatty() and not wants_json():
                say("\x1b[2J\x1b[H")
            if wants_json():
                say(msgspec.json.encode(answers).decode())
            else:
                if sort:
                    path = WATCH_SORTS[kinds[what]][sort]
                    answers.sort(key=lambda answer: _figure(answer, path), reverse=True)
                _show_look(kinds[what], answers[: number or None])
            looks += 1
            if count and looks >= count:
                return
            await asyncio.sleep(duration(interval))


def _figure(answer: Answer, path: tuple[str, ...]) -> float:
    found: Any = answer.get("statsz") or answer.get("data") or {}
    for name in path:
        found = found.get(name) or {}
    return float(found or 0)


def _show_look(endpoint: str, answers: Sequence[Answer]) -> None:
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = []
    numbers: tuple[int, ...]
    for answer in answers:
        found = answer.get("statsz") or answer.get("data") or {}
        if endpoint == "JSZ":
            columns = ("Server", "Messages", "Bytes", "Streams", "Consumers", "API", "API Errors")
            api = found.get("api", {})
            numbers = (found.get("streams", 0), found.get("consumers", 0), api.get("total", 0),
                       api.get("errors", 0))  # fmt: skip
            rows.append(
                (
                    server_of(answer),
                    f"{found.get('messages', 0):,}",
                    show_size(found.get("bytes", 0)),
                    *(f"{number:,}" for number in numbers),
                )
            )
        else:
            columns = ("Server", "Conns", "Subs", "Sent", "Received", "Slow", "Mem", "CPU %")
            sent, received = (found.get(way, {}).get("msgs", 0) for way in ("sent", "received"))
            numbers = (found.get("connections", 0), found.get("subscriptions", 0), sent, received,
                       found.get("slow_consumers", 0))  # fmt: skip
            rows.append(
                (
                    server_of(answer),
                    *(f"{number:,}" for number in numbers),
                    show_size(found.get("mem", 0)),
                    f"{found.get('cpu', 0):.0f}",
                )
            )
    table(f"{datetime.now():%H:%M:%S}", columns, rows)


@app.command("passwd")
def passwd(
    password: Annotated[str, typer.Option("--pass", "-p", help="The password")] = "",
    cost: Annotated[int, typer.Option("--cost", "-c", help="4 to 31", min=4, max=31)] = COST,
    generate: Annotated[bool, typer.Option("--generate", "-g", help="Make one up")] = False,
) -> None:
    """Print a password's bcrypt hash, as a configuration file takes it."""
    import secrets

    import bcrypt

    if generate:
        password = secrets.token_urlsafe(PASSWORD_LENGTH_MIN)
    password = require("Password", password, "--pass or --generate", hidden=True)
    if len(password) < PASSWORD_LENGTH_MIN:
        raise UsageError(f"server passwd: a password has {PASSWORD_LENGTH_MIN} letters or more")
    if len(password.encode()) > 72:
        raise UsageError("server passwd: bcrypt takes a password of 72 bytes at most")
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost, prefix=b"2a")).decode()
    if wants_json():
        print_json({"hash": hashed, **({"password": password} if generate else {})})
    elif generate:
        say(f"Generated password: {password}\n       bcrypt hash: {hashed}")
    else:
        say(hashed)
