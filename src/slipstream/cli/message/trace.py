"""`slipstream trace`: where a message goes, or would go (ADR-41).

Each server and account on the way sends an event; what one has begun, the others go on with, named
by the `hop` that it gave them.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.message.publish import Draft, HeaderOption, body_of
from slipstream.cli.output import note, print_json, say
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.client.connection import Connection
from slipstream.client.errors import TimeoutError
from slipstream.errors import ConfigError
from slipstream.model.header_names import NATS_TRACE_DEST, NATS_TRACE_ONLY

app = new_app(group=False)

Event = dict[str, Any]

STALL_SECONDS = 1.0  # after so long a silence every server on the way has said where it went
KINDS = {0: "Client", 1: "Router", 2: "Gateway", 3: "System", 4: "Leafnode", 5: "JetStream"}
NO_INTEREST = "nobody listens, and no stream stores it"


@command(app, "trace")
async def trace(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Where to")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="The body")] = "",
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Deliver and store it, too; without: only say")
    ] = False,
    timestamp: Annotated[
        bool, typer.Option("--timestamp", "-T", help="With the time of each step")
    ] = False,
    header: HeaderOption = [],  # noqa: B006 - Typer copies it
) -> None:
    """Show which subscriptions, streams and services a message would reach, and which not and why.

    Nothing is delivered without --deliver."""
    data, headers = Draft(body_of(body), header, False).message(1)
    async with connection() as nc:
        found = await _events(nc, subject, data, headers or {}, deliver)
    if wants_json():
        print_json(found)
        return
    note(f"Tracing {subject}" + (", which is delivered" if deliver else "; it is not delivered"))
    for line in _lines(found, timestamp):
        say(line)


async def _events(
    nc: Connection, subject: str, body: bytes, headers: dict[str, str], deliver: bool
) -> list[Event]:
    """What the servers send, in the order in which it came. Raises `ConfigError` without any."""
    inbox = nc.new_inbox()
    asked = {NATS_TRACE_DEST: inbox}
    if not deliver:
        asked[NATS_TRACE_ONLY] = "true"
    found: list[Event] = []
    async with await nc.subscribe(inbox) as events:
        await nc.publish(subject, body, headers=headers | asked)
        try:
            while True:
                found.append(msgspec.json.decode((await events.next(STALL_SECONDS)).data))
        except TimeoutError:
            pass
    if not found:
        raise ConfigError("trace: no server sent an event; nats-server does from 2.11 on")
    return found


def _lines(found: list[Event], timestamp: bool) -> Iterator[str]:
    """The steps: those of the first event, and after each that went on to a server its steps."""
    by_hop = {_hop(event): event for event in found}
    first = next((event for event in found if not _hop(event)), found[0])
    yield from _steps(first, by_hop, "", timestamp)


def _hop(event: Event) -> str:
    """Which part of the way an event tells of; "" for the first."""
    header = event.get("request", {}).get("header") or {}
    return str((header.get("Nats-Trace-Hop") or [""])[0])


def _steps(event: Event, by_hop: dict[str, Event], above: str, timestamp: bool) -> Iterator[str]:
    server = event.get("server", {})
    went = False
    for step in event.get("events") or []:
        text, is_out = _said(step, server)
        went = went or is_out
        when = f"{step.get('ts', '')} " if timestamp else ""
        yield f"{above}{when}{text}"
        onward = by_hop.get(str(step.get("hop") or ""))
        if step.get("hop") and onward is not None:
            yield from _steps(onward, by_hop, above + "    ", timestamp)
    if not went:
        yield f"{above}  ✗ {NO_INTEREST}"


def _said(step: Event, server: Event) -> tuple[str, bool]:
    """A step in words, and whether the message went somewhere with it."""
    kind = step.get("type", "")
    error = f": {step['error']}" if step.get("error") else ""
    mark = "✗" if error else "→"
    if kind == "in":
        who = f"{KINDS.get(step.get('kind', 0), 'Connection')} {_name(step)}".rstrip()
        where = f"server {server.get('name', '')} ({server.get('ver', '')})"
        return f'{who} published "{step.get("subj", "")}" to {where}{error}', False
    if kind == "sm":
        return f'  · the subject is mapped to "{step.get("to", "")}"', False
    if kind in ("si", "se"):
        word = "service import" if kind == "si" else "stream export"
        here = f' from "{step["from"]}"' if step.get("from") else ""
        where = f'account {step.get("acc", "")}{here} to "{step.get("to", "")}"'
        return f"  → {word}: {where}", True
    if kind == "js":
        stored = f' as "{step["subject"]}"' if step.get("subject") else ""
        stored += ", where nobody is interested" if step.get("nointerest") else ""
        return f"  {mark} stream {step.get('stream', '')}{stored}{error}", True
    if kind == "eg":
        group = f' in queue group "{step["queue"]}"' if step.get("queue") else ""
        listens = f', which listens to "{step["sub"]}"{group}' if step.get("sub") else ""
        account = f" of account {step['acc']}" if step.get("acc") else ""
        who = KINDS.get(step.get("kind", 0), "Connection")
        return f"  {mark} {who} {_name(step)}{account}{listens}{error}", True
    return f"  · {msgspec.json.encode(step).decode()}", False


def _name(step: Event) -> str:
    """Who somebody is: the name, or else the number of the connection."""
    name = step.get("name")
    return f"'{name}' (cid {step.get('cid', '')})" if name else f"cid {step.get('cid', '')}"
