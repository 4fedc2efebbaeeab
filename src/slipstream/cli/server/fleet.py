"""`slipstream server ls|ping|report|request|watch|passwd`: all servers at once.

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

from slipstream.cli.global_options import UsageError, did_you_mean
from slipstream.cli.output import print_json, say, table
from slipstream.cli.prompts import require
from slipstream.cli.server.system import SYSTEM_HELP, ask_connections, ask_servers
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.cli.values import duration, show_duration, show_size
from slipstream.client.connection import Connection
from slipstream.errors import ConfigError
from slipstream.model.times import Timestamp

app = new_app()

# What `request` calls things -> the endpoint.
REQUESTS = {
    "accounts": "ACCOUNTZ",
    "connections": "CONNZ",
    "gateways": "GATEWAYZ",
    "health": "HEALTHZ",
    "jetstream": "JSZ",
    "leafnodes": "LEAFZ",
    "routes": "ROUTEZ",
    "statistics": "STATSZ",
    "subscriptions": "SUBSZ",
    "variables": "VARZ",
}
REQUEST_ALIASES = {
    "acct": "accounts",
    "conns": "connections",
    "js": "jetstream",
    "leaf": "leafnodes",
    "subs": "subscriptions",
    "var": "variables",
    "vars": "variables",
}
PASSWORD_LENGTH_MIN = 22  # as nats-server advises for passwords that are not made by a machine
COST = 11

Answer = dict[str, Any]


async def _ask(
    nc: Connection, endpoint: str, body: Answer | None = None, what: str = ""
) -> list[Answer]:
    """Every server's answer. Raises `ConfigError` about `what` where none comes."""
    found = await ask_servers(nc, f"$SYS.REQ.SERVER.PING.{endpoint}", body=body)
    if not found:
        raise ConfigError(f"{what or f'server {endpoint.lower()}'}: nobody answered; {SYSTEM_HELP}")
    return sorted(found, key=lambda answer: str(answer.get("server", {}).get("name", "")))


def _server(answer: Answer) -> str:
    return str(answer.get("server", {}).get("name", ""))


@command(app, "ls")
async def ls() -> None:
    """List the servers of the cluster (system account)."""
    async with connection() as nc:
        await list_servers(nc)


async def list_servers(nc: Connection, what: str = "server ls") -> None:
    """The table of `server ls`. Raises `ConfigError` where no server answers, about `what`."""
    answers = await _ask(nc, "STATSZ", what=what)
    if wants_json():
        print_json(answers)
        return
    rows = []
    for answer in answers:
        server, found = answer.get("server", {}), answer.get("statsz", {})
        rows.append(
            (
                _server(answer),
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
async def ping() -> None:
    """Measure the round trip to every server of the cluster (system account)."""
    async with connection() as nc:
        began = perf_counter()
        answers = await _ask(nc, "STATSZ")
        took = perf_counter() - began
    if wants_json():
        print_json(answers)
        return
    for answer in answers:
        say(f"{_server(answer) or '?':<60} rtt={show_duration(took)}")


@command(app, "report")
async def report(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="jetstream, connections, accounts or health")
    ] = "jetstream",
) -> None:
    """Compare servers, accounts (system account), or the account's connections."""
    reports: dict[str, Callable[[Connection], Any]] = {
        "accounts": _report_accounts,
        "connections": _report_connections,
        "health": _report_health,
        "jetstream": _report_jetstream,
    }
    chosen = reports.get({"conn": "connections", "js": "jetstream"}.get(kind, kind))
    if chosen is None:
        raise UsageError(f'there is no report "{kind}": ask for {", ".join(reports)}')
    async with connection() as nc:
        await chosen(nc)


async def _report_jetstream(nc: Connection) -> None:
    answers = await _ask(nc, "JSZ")
    if wants_json():
        print_json(answers)
        return
    rows = []
    for answer in answers:
        data = answer.get("data", {})
        rows.append(
            (
                _server(answer),
                f"{data.get('streams', 0):,}",
                f"{data.get('consumers', 0):,}",
                f"{data.get('messages', 0):,}",
                show_size(data.get("bytes", 0)),
                show_size(data.get("memory", 0)),
                show_size(data.get("storage", 0)),
            )
        )
    columns = ("Server", "Streams", "Consumers", "Messages", "Bytes", "Memory", "File")
    table("JetStream Summary", columns, rows)


async def _report_accounts(nc: Connection) -> None:
    unused = {"include_unused": True}
    answers = await ask_servers(nc, "$SYS.REQ.ACCOUNT.PING.STATZ", body=unused)
    found: dict[str, Answer] = {}
    for answer in answers:
        for one in answer.get("data", {}).get("account_statz") or []:
            _add(found.setdefault(str(one.get("acc", "")), {}), one)
    if not found:
        raise ConfigError(f"server report accounts: nobody answered; {SYSTEM_HELP}")
    if wants_json():
        print_json(found)
        return
    rows = [
        (
            name,
            f"{one.get('conns', 0):,}",
            f"{one.get('num_subscriptions', 0):,}",
            *(f"{one.get(way, {}).get('msgs', 0):,}" for way in ("received", "sent")),
            *(show_size(one.get(way, {}).get("bytes", 0)) for way in ("received", "sent")),
            f"{one.get('slow_consumers', 0):,}",
        )
        for name, one in sorted(found.items())
    ]
    columns = ("Account", "Connections", "Subscriptions", "In Msgs", "Out Msgs", "In Bytes",
               "Out Bytes", "Slow")  # fmt: skip
    table(f"{len(rows)} Accounts Overview", columns, rows)


def _add(total: Answer, one: Answer) -> None:
    """Add the numbers of one server to those of the others."""
    for name, value in one.items():
        if isinstance(value, dict):
            _add(total.setdefault(name, {}), value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            total[name] = total.get(name, 0) + value


async def _report_health(nc: Connection) -> None:
    answers = await _ask(nc, "HEALTHZ")
    if wants_json():
        print_json(answers)
    else:
        rows = []
        for answer in answers:
            data = answer.get("data", {})
            error = data.get("error") or "; ".join(
                str(one.get("error", "")) for one in data.get("errors") or []
            )
            code = data.get("status_code", "")
            rows.append((_server(answer), str(data.get("status", "")), str(code), str(error)))
        table("Health Report", ("Server", "Status", "Code", "Error"), rows)
    if any(answer.get("data", {}).get("status") != "ok" for answer in answers):
        raise typer.Exit(1)


async def _report_connections(nc: Connection) -> None:
    show_connections(await ask_connections(nc))


def show_connections(found: Sequence[Answer]) -> None:
    """The table of connections."""
    if wants_json():
        print_json(found)
        return
    rows = [
        (
            str(one.get("cid", "")),
            str(one.get("name", "")),
            f"{one.get('ip', '')}:{one.get('port', '')}",
            str(one.get("uptime", "")),
            f"{one.get('in_msgs', 0):,}",
            f"{one.get('out_msgs', 0):,}",
            show_size(one.get("in_bytes", 0)),
            show_size(one.get("out_bytes", 0)),
            f"{one.get('subscriptions', 0):,}",
        )
        for one in found
    ]
    columns = ("CID", "Name", "IP", "Uptime", "In Msgs", "Out Msgs", "In Bytes", "Out Bytes",
               "Subs")  # fmt: skip
    table(f"Top {len(rows)} Connections", columns, rows)


@command(app, "request")
async def request(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=", ".join(REQUESTS))],
    name: Annotated[str, typer.Option("--name", help="Only of the server of this name")] = "",
    host: Annotated[str, typer.Option("--host", help="Only of servers on this host")] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Only of servers in this one")] = "",
    tag: Annotated[list[str], typer.Option("--tag", help="Only of servers with it")] = [],  # noqa: B006
    account: Annotated[str, typer.Option("--account", help="About this account")] = "",
) -> None:
    """Print what each server says of itself, as JSON (system account)."""
    endpoint = REQUESTS.get(REQUEST_ALIASES.get(what, what))
    if endpoint is None:
        close = [one for one in REQUESTS if one.startswith(what[:3])]
        raise UsageError(
            f'server request: there is no "{what}"{did_you_mean(close) or ";"} '
            f"there are {', '.join(REQUESTS)}"
        )
    filters = {"server_name": name, "host": host, "cluster": cluster, "tags": tag}
    body: Answer = {key: value for key, value in filters.items() if value}
    if account:
        body["acc" if endpoint == "CONNZ" else "account"] = account
    async with connection() as nc:
        for answer in await _ask(nc, endpoint, body):
            print_json(answer)


@command(app, "watch")
async def watch(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="servers or jetstream")] = "servers",
    interval: Annotated[str, typer.Option("--interval", help="Between two looks")] = "2s",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Show the servers' figures again and again, until Ctrl-C (system account)."""
    kinds = {"servers": "STATSZ", "srv": "STATSZ", "jetstream": "JSZ", "js": "JSZ"}
    if what not in kinds:
        raise UsageError(f'server watch: there is no "{what}"; there are servers and jetstream')
    looks = 0
    async with connection() as nc:
        while True:
            answers = await _ask(nc, kinds[what])
            if sys.stdout.isatty() and not wants_json():
                say("\x1b[2J\x1b[H")
            if wants_json():
                say(msgspec.json.encode(answers).decode())
            else:
                _show_look(kinds[what], answers)
            looks += 1
            if count and looks >= count:
                return
            await asyncio.sleep(duration(interval))


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
                    _server(answer),
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
                    _server(answer),
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
