"""`slipstream events`: advisories and metrics as they happen, or as a stream has kept them."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import note, print_json, say
from slipstream.cli.session import command, connection, context_of, new_app, settings, wants_json
from slipstream.cli.values import moment
from slipstream.client.connection import Connection
from slipstream.client.jetstream import OrderedConsumerConfig
from slipstream.client.message import Message

app = new_app(group=False)

EVENTS = "$JS.EVENT"
SUBJECTS = {
    "js-advisory": f"{EVENTS}.ADVISORY.>",
    "js-metric": f"{EVENTS}.METRIC.>",
    "connections": "$SYS.ACCOUNT.*.>",
    "server": "$SYS.SERVER.>",
}
# Fields that every event has; what is left says what happened.
COMMON = {"type", "id", "timestamp"}


@command(app, "events")
async def events(
    advisories: Annotated[bool, typer.Option("--js-advisory", help="JetStream advisories")] = False,
    metrics: Annotated[bool, typer.Option("--js-metric", help="JetStream metrics")] = False,
    connections: Annotated[
        bool,
        typer.Option("--srv-advisory/--no-srv-advisory", "--connections", help="Of a system user"),
    ] = False,
    subjects: Annotated[list[str], typer.Option("--subjects", help="Only these subjects")] = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", "-a", help="All kinds")] = False,
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
    filter_: Annotated[
        str, typer.Option("--filter", help="Only events with this; a regular expression")
    ] = "",
    short: Annotated[bool, typer.Option("--short", help="A line for each")] = False,
    cloudevent: Annotated[bool, typer.Option("--cloudevent", help="As CloudEvents, JSON")] = False,
    stream: Annotated[str, typer.Option("--stream", help="Those that this stream has")] = "",
    since: Annotated[str, typer.Option("--since", help="Stream: stored since, like 1h")] = "",
) -> None:
    """Show events, until Ctrl-C. Without a choice: advisories and metrics of JetStream."""
    try:
        pattern = re.compile(filter_.encode(), re.IGNORECASE)
    except re.error as error:
        raise UsageError(f'events: "{filter_}" is no regular expression: {error}') from error
    if since and not stream:
        raise UsageError("events: --since goes with --stream STREAM, which has kept them")
    chosen = list(subjects)
    wanted = {"js-advisory": advisories, "js-metric": metrics, "connections": connections}
    if not chosen and not any(wanted.values()):
        wanted["js-advisory"] = wanted["js-metric"] = True
    prefix = settings().js_event_prefix or EVENTS
    chosen += [
        SUBJECTS[name].replace(EVENTS, prefix, 1) for name, on in wanted.items() if on or everything
    ]
    shown = 0
    async with connection() as nc:
        found = _stored(nc, stream, since) if stream else _as_they_come(nc, chosen)
        async for subject, data in found:
            if not pattern.search(data):
                continue
            _show(subject, data, short, cloudevent)
            shown += 1
            if count and shown >= count:
                return


async def _as_they_come(nc: Connection, subjects: list[str]) -> AsyncIterator[tuple[str, bytes]]:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    for subject in subjects:
        await nc.subscribe(subject, handler=inbox.put_nowait)
    await nc.flush()
    if not wants_json():
        note(f"Listening for events on {', '.join(subjects)}")
    while True:
        message = await inbox.get()
        yield message.subject, message.data


async def _stored(nc: Connection, stream: str, since: str) -> AsyncIterator[tuple[str, bytes]]:
    config = OrderedConsumerConfig(
        deliver_policy="by_start_time" if since else "all",
        opt_start_time=moment(since) if since else None,
    )
    consumer = context_of(nc, settings()).ordered_consumer(stream, config)
    async with consumer.messages() as messages:
        while True:
            message = await messages.next()
            if message is not None:
                yield message.subject, message.data


def _show(subject: str, data: bytes, short: bool, cloudevent: bool) -> None:
    try:
        event: dict[str, object] = msgspec.json.decode(data, type=dict[str, object])
    except msgspec.MsgspecError:
        say(f"{subject}: {data!r}")
        return
    if cloudevent:
        print_json(_as_cloudevent(subject, event))
        return
    if wants_json():
        print_json(event)
        return
    kind = str(event.get("type", subject)).removeprefix("io.nats.jetstream.")
    head = f"[{str(event.get('timestamp', ''))[:19].replace('T', ' ')}] {kind}"
    fields = {
        field: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for field, value in event.items()
        if field not in COMMON
    }
    if short:
        say(" ".join([head, *(f"{field}={text}" for field, text in fields.items())]))
        return
    say(head)
    for field, text in fields.items():
        say(f"    {field}: {text}")
    say()


def _as_cloudevent(subject: str, event: dict[str, object]) -> dict[str, object]:
    """An event in the envelope of CloudEvents 1.0."""
    return {
        "specversion": "1.0",
        "type": event.get("type", "io.nats.unknown"),
        "source": "urn:nats",
        "subject": subject,
        "id": event.get("id", ""),
        "time": event.get("timestamp", ""),
        "datacontenttype": "application/json",
        "data": event,
    }
