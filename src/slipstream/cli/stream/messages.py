"""`slipstream stream get|view|rmm`: look at single messages, and remove them."""

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from slipstream.cli.choose import choose_stream
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.text import json_message, show_body, show_stored
from slipstream.cli.output import done, print_json, say
from slipstream.cli.prompts import Force, Pager, confirm, require
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import moment, show_stamp
from slipstream.client.jetstream import StoredMessage, Stream
from slipstream.client.jetstream.errors import MessageNotFoundError

app = new_app()

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Sequence = Annotated[int, typer.Argument(metavar="SEQUENCE", help="Which message")]


@command(app, "get")
async def get(
    name: Name = "",
    sequence: Sequence = 0,
    last_for: Annotated[str, typer.Option("--last-for", "-S", help="Last of a subject")] = "",
    translate: Annotated[str, typer.Option("--translate", help="Command to pipe it to")] = "",
) -> None:
    """Show one message."""
    async with jetstream() as js:
        stream = await js.stream(await choose_stream(js, name))
        if not last_for:
            sequence = _wanted(sequence, "SEQUENCE, or --last-for SUBJECT")
        if last_for:
            message = await stream.get_last_message(last_for)
        else:
            message = await stream.get_message(sequence)
    if wants_json():
        print_json(json_message(message))
        return
    received = show_stamp(message.time)
    say(
        f"Item: {stream.name}#{message.sequence} received {received} on Subject {message.subject}\n"
    )
    if message.headers:
        say("Headers:")
        for key, value in message.headers.multi_items():
            say(f"  {key}: {value}")
        say()
    show_body(message.data, translate)


@command(app, "view")
async def view(
    name: Name = "",
    page_size: Annotated[int, typer.Argument(metavar="SIZE", help="Messages on a page")] = 10,
    sequence: Annotated[int, typer.Option("--id", help="Begin at this sequence")] = 1,
    since: Annotated[str, typer.Option("--since", help="Begin at this time, or so long ago")] = "",
    subject: Annotated[str, typer.Option("--subject", help="Only this subject")] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Only the bodies")] = False,
    translate: Annotated[str, typer.Option("--translate", help="Command to pipe them to")] = "",
) -> None:
    """Page through a stream; without a terminal, show all of it."""
    shown, pager = 0, Pager(page_size)
    async with jetstream() as js:
        stream = await js.stream(await choose_stream(js, name))
        async for message in _messages(stream, sequence, since, subject):
            if wants_json():
                print_json(json_message(message))
            else:
                show_stored(message, raw, translate)
            shown += 1
            if not pager.wants_more():
                break
    if not shown and not wants_json():
        say(f"No messages in {stream.name}")


async def _messages(
    stream: Stream, sequence: int, since: str, subject: str
) -> AsyncIterator[StoredMessage]:
    """From a sequence or time on; in batches where the stream allows that."""
    start_time = moment(since) if since else None
    if stream.config.allow_direct:
        found = stream.get_batch(sequence=sequence, subject=subject, start_time=start_time)
        try:
            async for message in found:
                yield message
        except MessageNotFoundError:
            return
        return
    while True:
        try:
            message = await stream.get_next(sequence, subject or ">")
        except MessageNotFoundError:
            return
        if start_time is None or (message.time is not None and message.time >= start_time):
            yield message
        sequence = message.sequence + 1


@command(app, "rmm")
async def rmm(
    name: Name = "",
    sequence: Sequence = 0,
    force: Force = False,
    keep_bytes: Annotated[bool, typer.Option("--no-erase", help="Leave its bytes on disk")] = False,
) -> None:
    """Remove one message; its bytes on disk are destroyed."""
    async with jetstream() as js:
        stream = await js.stream(await choose_stream(js, name))
        sequence = _wanted(sequence, "SEQUENCE")
        if not force:
            await stream.get_message(sequence)
            confirm(f"Really remove message {sequence} from Stream {stream.name}?", force)
        if keep_bytes:
            await stream.delete_message(sequence)
        else:
            await stream.secure_delete_message(sequence)
    done("", success=True)


def _wanted(sequence: int, option: str) -> int:
    """A sequence, asked for on a terminal. Raises `UsageError` for none."""
    text = require("Message Sequence", str(sequence or ""), option)
    if not text.isdigit():
        raise UsageError(f'"{text}" is no sequence of a message')
    return int(text)
