"""`slipstream account`: what the account uses and may use."""

from slipstream.cli.output import print_json, properties
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
from slipstream.client.jetstream import AccountInfo
from slipstream.client.jetstream.errors import JetStreamNotEnabledError

app = new_app("What the account uses and may use.")


def _bound(used: int, limit: int, size: bool) -> str:
    show = show_size if size else lambda count: f"{count:,}"
    return f"{show(used)} of {show(limit) if limit >= 0 else 'Unlimited'}"


def _usage(info: AccountInfo) -> list[tuple[str, str]]:
    limits = info.limits
    pairs = [
        ("Storage", _bound(info.storage, limits.max_storage, True)),
        ("Memory", _bound(info.memory, limits.max_memory, True)),
        ("Streams", _bound(info.streams, limits.max_streams, False)),
        ("Consumers", _bound(info.consumers, limits.max_consumers, False)),
        (
            "Max Ack Pending",
            "Unlimited" if limits.max_ack_pending < 0 else f"{limits.max_ack_pending:,}",
        ),
        ("API Requests", f"{info.api.total:,} ({info.api.errors:,} errors)"),
        ("API Level", str(info.api.level)),
    ]
    if info.domain:
        pairs.insert(0, ("Domain", info.domain))
    return pairs


@command(app, "info")
async def info() -> None:
    """Show the connection and what JetStream tells about the account."""
    async with connection() as nc:
        await nc.flush()
        server = nc.server_info
        try:
            found = await context_of(nc, settings()).account_info()
        except JetStreamNotEnabledError:
            found = None
        rtt = await round_trip(nc)
    if wants_json():
        print_json(found if found is not None else {"jetstream": False})
        return
    link = [
        ("Server", f"{nc.server_url} ({server.server_name})"),
        ("Server Version", server.version),
        ("Client ID", str(server.client_id)),
        ("Client IP", server.client_ip),
        ("RTT", show_duration(rtt)),
        ("Maximum Payload", show_size(server.max_payload)),
        ("Headers Supported", str(server.headers).lower()),
    ]
    jetstream = _usage(found) if found is not None else [("Enabled", "false")]
    sections = [("", link), ("JetStream Account Information", jetstream)]
    properties("Account Information", sections)
