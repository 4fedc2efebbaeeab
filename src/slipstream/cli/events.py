"""`slipstream events`: advisories and metrics as they happen."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.output import note, print_json, say
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.client.message import Message

app = new_app(group=False)

SUBJECTS = {
    "js-advisory": "$JS.EVENT.ADVISORY.>",
    "js-metric": "$JS.EVENT.METRIC.>",
    "connections": "$SYS.ACCOUNT.*.>",
    "server": "$SYS.SERVER.>",
}
# Fields that every event has; what is left says what happened.
COMMON = {"type", "id", "timestamp"}


@command(app, "events")
async def events(
    advisories: Annotated[bool, typer.Option("--js-advisory", help="JetStream advisories")] = False,
    metrics: Annotated[bool, typer.Option("--js-metric", help="JetStream metrics")] = False,
    connections: Annotated[bool, typer.Option("--connections", help="Of a system user")] = False,
    subjects: Annotated[list[str], typer.Option("--subjects", help="Only these subjects")] = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", help="All kinds")] = False,
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Show events, until Ctrl-C. Without a choice: advisories and metrics of JetStream."""
    chosen = list(subjects)
    wanted = {"js-advisory": advisories, "js-metric": metrics, "connections": connections}
    if not chosen and not any(wanted.values()):
        wanted["js-advisory"] = wanted["js-metric"] = True
    chosen += [SUBJECTS[name] for name, on in wanted.items() if on or everything]
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    shown = 0
    async with connection() as nc:
        for subject in chosen:
            await nc.subscribe(subject, handler=inbox.put_nowait)
        await nc.flush()
        if not wants_json():
            note(f"Listening for events on {', '.join(chosen)}")
        while not count or shown < count:
            _show(await inbox.get())
            shown += 1


def _show(message: Message) -> None:
    try:
        event: dict[str, Any] = msgspec.json.decode(message.data)
    except msgspec.DecodeError:
        say(f"{message.subject}: {message.data!r}")
        return
    if wants_json():
        print_json(event)
        return
    kind = str(event.get("type", message.subject)).removeprefix("io.nats.jetstream.")
    say(f"[{str(event.get('timestamp', ''))[:19].replace('T', ' ')}] {kind}")
    for field, value in event.items():
        if field not in COMMON:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            say(f"    {field}: {text}")
    say()
