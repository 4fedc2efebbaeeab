"""`slipstream counter`: totals that a stream keeps, one for each subject (ADR-49)."""

from typing import Annotated

import msgspec
import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, properties, say
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.client.jetstream import StoredMessage, Stream
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import ConfigError
from slipstream.model.header_names import NATS_COUNTER_SOURCES, NATS_INCR

app = new_app("Totals that a stream keeps, one for each subject.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The counter")]
StreamName = Annotated[
    str, typer.Option("--stream", help="The stream; without: the one that stores SUBJECT")
]


async def _stream_of(js: JetStream, subject: str, name: str) -> Stream:
    """The stream with the counters. Raises `ConfigError` for one that does not count."""
    found = await js.stream(name or await js.stream_name_by_subject(subject))
    if not found.config.allow_msg_counter:
        raise ConfigError(
            f"counter: stream {found.name} does not count; "
            "`slipstream stream add --allow-counter` makes one that does"
        )
    return found


def _total(message: StoredMessage) -> str:
    try:
        return str(msgspec.json.decode(message.data)["val"])
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise ConfigError(
            f"counter: message {message.sequence} of {message.subject} holds no total"
        ) from error


@command(app, "get")
async def get(subject: Subject, stream: StreamName = "") -> None:
    """Show a total."""
    async with jetstream() as js:
        found = await _stream_of(js, subject, stream)
        total = _total(await found.get_last_message(subject))
    if wants_json():
        print_json({"subject": subject, "val": total})
    else:
        say(total)


@command(app, "view")
async def view(subject: Subject, stream: StreamName = "") -> None:
    """Show a total with its last increment, and what other streams have added."""
    async with jetstream() as js:
        found = await _stream_of(js, subject, stream)
        message = await found.get_last_message(subject)
    sources: dict[str, dict[str, str]] = msgspec.json.decode(
        message.headers.get(NATS_COUNTER_SOURCES, "") or "{}"
    )
    step = message.headers.get(NATS_INCR, "") or ""
    if wants_json():
        facts = {"subject": subject, "val": _total(message), "incr": step, "sources": sources}
        print_json(facts)
        return
    pairs = [("Value", _total(message)), ("Increment", step), ("Subject", message.subject)]
    origins = [
        (f"{name} > {one}", str(total))
        for name, totals in sorted(sources.items())
        for one, total in sorted(totals.items())
    ]
    properties(f"Counter {subject}", [("", pairs), ("Sources", origins)])


@command(app, "increment")
async def increment(
    subject: Subject,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="A whole number; a negative one after --")
    ] = "1",
    stream: StreamName = "",
) -> None:
    """Add to a total, and show what it is then."""
    await _add("increment", subject, _whole("increment", value), stream)


@command(app, "decrement")
async def decrement(
    subject: Subject,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A whole number")] = "1",
    stream: StreamName = "",
) -> None:
    """Take away from a total, and show what it is then."""
    await _add("decrement", subject, -_whole("decrement", value), stream)


def _whole(verb: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise UsageError(f'counter {verb}: "{value}" is no whole number') from error


async def _add(verb: str, subject: str, step: int, stream: str) -> None:
    async with jetstream() as js:
        found = await _stream_of(js, subject, "")
        if stream not in ("", found.name):  # a publish cannot choose its stream
            raise ConfigError(f"counter {verb}: {subject} is stored by {found.name}, not {stream}")
        ack = await js.publish(subject, b"", increment=step)
    if wants_json():
        print_json(ack)
    else:
        say(ack.value)


@command(app, "ls")
async def ls(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Only these")] = "",
    stream: StreamName = "",
) -> None:
    """List the counters of a stream."""
    if not subject and not stream:
        raise UsageError("counter ls: give a SUBJECT, which may have wildcards, or --stream STREAM")
    async with jetstream() as js:
        found = await _stream_of(js, subject, stream)
        names = sorted([one async for one, _ in found.subjects(subject or ">")])
    if wants_json():
        print_json(names)
    else:
        say("\n".join(names) or f"No counters found in stream {found.name}")
