"""Connections as servers list them: asked for, put in order, shown."""

from collections.abc import Sequence
from typing import Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, table
from slipstream.cli.server.system import Answer, ask_servers
from slipstream.cli.session import wants_json
from slipstream.cli.values import show_size
from slipstream.client.connection import Connection

SORTS = ("subs", "in-bytes", "out-bytes", "in-msgs", "out-msgs", "uptime", "cid")
STATES = {"open": 0, "closed": 1, "all": 2}

SubjectOption = Annotated[
    str, typer.Option("--subject", help="Only those that listen to a part of this")
]
UserOption = Annotated[str, typer.Option("--username", help="Only those of this user")]
StateOption = Annotated[str, typer.Option("--state", help="open, closed or all")]
ReasonOption = Annotated[
    str, typer.Option("--closed-reason", help="Only those that were closed for this")
]


async def ask_for(
    nc: Connection,
    *,
    account: str = "",
    subject: str = "",
    user: str = "",
    state: str = "open",
    reason: str = "",
    servers: Answer | None = None,
) -> list[Answer]:
    """Connections of the own account, or with `account` or `servers` as a system user may ask.

    Raises `UsageError` for a state that is none.
    """
    if state not in STATES:
        raise UsageError(f'--state "{state}" is none of {", ".join(STATES)}')
    filters = {"filter_subject": subject, "user": user, "acc": account}
    body: Answer = {key: value for key, value in filters.items() if value}
    body |= {"state": STATES["all"] if reason and state == "open" else STATES[state]}
    body |= {"auth": True, **(servers or {})}
    level = "SERVER" if account or servers else "ACCOUNT"
    answers = await ask_servers(nc, f"$SYS.REQ.{level}.PING.CONNZ", stall=0.1, body=body)
    found = [one for answer in answers for one in answer.get("data", {}).get("connections") or []]
    return [one for one in found if reason.lower() in str(one.get("reason", "")).lower()]


def ranked(found: list[Answer], sort: str, reverse: bool) -> list[Answer]:
    """Connections with those first that have most of `sort`, or least with `reverse`."""
    if sort not in SORTS:
        raise UsageError(f'--sort "{sort}" is none of {", ".join(SORTS)}')
    field = {"subs": "subscriptions", "uptime": "start"}.get(sort, sort.replace("-", "_"))
    # Who is connected longest has begun first; connections are numbered upwards.
    is_most_first = sort not in ("uptime", "cid")
    nothing: str | int = "" if sort == "uptime" else 0
    return sorted(found, key=lambda one: one.get(field, nothing), reverse=is_most_first != reverse)


def show_connections(found: Sequence[Answer]) -> None:
    """The table of connections."""
    if wants_json():
        print_json(found)
        return
    closed = any(one.get("reason") for one in found)
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
            *([str(one.get("reason", ""))] if closed else []),
        )
        for one in found
    ]
    columns = ("CID", "Name", "IP", "Uptime", "In Msgs", "Out Msgs", "In Bytes", "Out Bytes",
               "Subs", *(["Reason"] if closed else []))  # fmt: skip
    table(f"Top {len(rows)} Connections", columns, rows)
