"""`slipstream server info|account|config|mappings`: one server, its accounts, its configuration."""

from typing import Annotated

import msgspec
import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import done, print_json, properties, say
from slipstream.cli.prompts import Force, ask, confirm, may_ask, require
from slipstream.cli.server.system import (
    SYSTEM_HELP,
    Answer,
    ask_servers,
    server_filter,
    server_of,
)
from slipstream.cli.session import (
    command,
    connection,
    context_of,
    new_app,
    round_trip,
    settings,
    wants_json,
)
from slipstream.cli.values import show_duration, show_size
from slipstream.client.connection import Connection
from slipstream.errors import ConfigError, Error
from slipstream.wire.transforms import Transform

app = new_app()


@command(app, "info")
async def info(
    server: Annotated[
        str, typer.Argument(metavar="SERVER", help="Its name or id (system account)")
    ] = "",
) -> None:
    """Show what the connected server says of itself, or another one."""
    if server:
        await _show_other(server)
        return
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


async def _variables(nc: Connection, server: str) -> Answer:
    """What a server says, by its name or id. Raises `ConfigError` where it does not answer."""
    found = await ask_servers(nc, f"$SYS.REQ.SERVER.{server}.VARZ", expect=1)
    if not found:
        by_name = server_filter(name=server)
        answers = await ask_servers(nc, "$SYS.REQ.SERVER.PING.VARZ", body=by_name)
        found = [one for one in answers if server_of(one) == server]
    if not found:
        raise ConfigError(f"server {server}: nobody answered; {SYSTEM_HELP}")
    answer: Answer = found[0]
    return answer


async def _show_other(server: str) -> None:
    async with connection() as nc:
        found = (await _variables(nc, server)).get("data", {})
    if wants_json():
        print_json(found)
        return
    jetstream = (found.get("jetstream") or {}).get("config") or {}
    sections = [
        ("Process", [
            ("Version", str(found.get("version", ""))),
            ("Started", str(found.get("start", ""))),
            ("Uptime", str(found.get("uptime", ""))),
        ]),
        ("Connections", [
            ("Authentication Required", str(bool(found.get("auth_required"))).lower()),
            ("TLS Required", str(bool(found.get("tls_required"))).lower()),
            ("Host", f"{found.get('host', '')}:{found.get('port', '')}"),
        ]),
        ("JetStream", [
            ("Domain", str(jetstream.get("domain", ""))),
            ("Store Directory", str(jetstream.get("store_dir", ""))),
            ("Maximum Memory", show_size(jetstream.get("max_memory", 0))),
            ("Maximum File", show_size(jetstream.get("max_storage", 0))),
        ] if jetstream else []),
        ("Limits", [
            ("Maximum Connections", f"{found.get('max_connections', 0):,}"),
            ("Maximum Payload", show_size(found.get("max_payload", 0))),
        ]),
        ("Statistics", [
            ("CPU", f"{found.get('cpu', 0):.1f}% of {found.get('cores', 0)} cores"),
            ("Memory", show_size(found.get("mem", 0))),
            ("Connections", f"{found.get('connections', 0):,}"),
            ("Subscriptions", f"{found.get('subscriptions', 0):,}"),
            ("Messages", f"{found.get('in_msgs', 0):,} in, {found.get('out_msgs', 0):,} out"),
            ("Slow Consumers", f"{found.get('slow_consumers', 0):,}"),
        ]),
    ]  # fmt: skip
    name = f"{found.get('server_name', '')} ({found.get('server_id', '')})"
    properties(f"Server Information for {name}", sections)


@command(app, "account")
async def account(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="info or purge")],
    name: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account")],
    host: Annotated[str, typer.Option("--host", help="info: ask the server of this name")] = "",
    force: Force = False,
) -> None:
    """Show what an account is, or remove all that it has stored (system account)."""
    if action not in ("info", "i", "purge"):
        raise UsageError(f'server account: there is no action "{action}": info or purge')
    async with connection() as nc:
        if action == "purge":
            confirm(f"Really remove every stream of account {name}?", force)
            await nc.jetstream().api.request(f"ACCOUNT.PURGE.{name}")
            done(f"The streams of account {name} are being removed", success=True)
            return
        body = {"account": name, **server_filter(name=host)}
        answers = await ask_servers(nc, "$SYS.REQ.SERVER.PING.ACCOUNTZ", body=body)
    found = next(
        (one["data"]["account_detail"] for one in answers
         if (one.get("data") or {}).get("account_detail")), None
    )  # fmt: skip
    if found is None:
        raise ConfigError(f"server account {name}: nobody knows it; or {SYSTEM_HELP}")
    if wants_json():
        print_json(found)
    else:
        pairs = [(field, _shown(value)) for field, value in found.items()]
        properties(f"Account information for account {name}", [("", pairs)])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@command(app, "config")
async def config(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="reload")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its id or name")],
    force: Force = False,
) -> None:
    """Have a server read its configuration file again (system account)."""
    if action != "reload":
        raise UsageError(f'server config: there is no action "{action}": reload')
    async with connection() as nc:
        found = (await _variables(nc, server))["server"]
        confirm(f"Really reload the configuration of {found['name']} ({found['id']})?", force)
        answers = await ask_servers(nc, f"$SYS.REQ.SERVER.{found['id']}.RELOAD", expect=1)
    if not answers:
        raise ConfigError(f"server config reload: {server} did not answer")
    error = answers[0].get("error")
    if error:
        raise ConfigError(f"server config reload: {error.get('description', error)}")
    done(f"{found['name']} has read its configuration again", success=True)


@app.command("mappings")
def mappings(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Which subjects, orders.*")] = "",
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="What they become: o.{{wildcard(1)}}")
    ] = "",
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="One to try")] = "",
) -> None:
    """Try a subject mapping; nothing is asked of a server, and nothing changed there."""
    source = require("Source subject pattern", source, "SOURCE")
    destination = require("Destination subject pattern", destination, "DESTINATION")
    change = Transform(source, destination)
    while True:
        tried = subject or ask("Subject (empty: end)", "")
        if not tried:
            if not may_ask():
                raise UsageError("server mappings: give a SUBJECT to try")
            return
        made = change.map(tried.encode()).decode()
        if wants_json():
            print_json({"subject": tried, "mapped": made})
        else:
            say(made)
        if subject:
            return
