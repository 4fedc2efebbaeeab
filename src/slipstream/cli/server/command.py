"""`slipstream server`: what a server says of itself; its checks are in `check`."""

import msgspec

from slipstream.cli.output import print_json, properties
from slipstream.cli.server.check import app as check_app
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
from slipstream.errors import Error

app = new_app("Look after a server.")
app.add_typer(check_app, name="check")


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
