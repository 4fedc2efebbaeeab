"""`slipstream consumer next|sub`: read messages and acknowledge them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.text import json_field, say_bytes, show_headers
from slipstream.cli.output import note, print_json, say
from slipstream.cli.prompts import Pager
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import duration
from slipstream.client.jetstream import ConsumerInfo, JetStreamMessage
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import ConfigError

app = new_app()

PULL_SECONDS = 30.0  # how long one pull request of `sub` waits

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")]
Ack = Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge what is shown")]
PageSize = Annotated[int, typer.Option("--page", help="On a terminal, stop after so many")]
Raw = Annotated[bool, typer.Option("--raw", "-r", help="Only the bodies")]


def _show(message: JetStreamMessage, raw: bool) -> None:
    if raw:
        say_bytes(message.data)
        return
    meta = message.metadata
    if wants_json():
        headers = {key: message.headers.get_all(key) for key in message.headers}
        print_json(
            {
                "subject": message.subject,
                "stream_seq": meta.stream_sequence,
                "consumer_seq": meta.consumer_sequence,
                "deliveries": meta.num_delivered,
                "pending": meta.num_pending,
                "headers": headers,
            }
            | json_field("data", message.data)
        )
        return
    say(
        f"[{datetime.now():%H:%M:%S}] subj: {message.subject} / tries: {meta.num_delivered} / "
        f"cons seq: {meta.consumer_sequence} / str seq: {meta.stream_sequence} / "
        f"pending: {meta.num_pending}\n"
    )
    show_headers(message.headers)
    say_bytes(message.data)
    say()


async def _settle(message: JetStreamMessage, ack: bool, nak: bool, term: bool, raw: bool) -> None:
    """Acknowledge for certain: this returns once the server has taken note."""
    quiet = raw or wants_json()
    if term:
        await message.term()
        text = "Terminated message"
    elif nak:
        await message.nak()
        text = "Negatively acknowledged message"
    elif ack:
        await message.ack_sync()
        text = "Acknowledged message"
    else:
        return
    if not quiet:
        note(text + "\n")


@command(app, "next")
async def next_(
    stream: StreamName = "",
    name: Name = "",
    count: Annotated[int, typer.Option("--count", help="How many messages", min=1)] = 1,
    ack: Ack = True,
    nak: Annotated[bool, typer.Option("--nak", help="Ask for it again")] = False,
    term: Annotated[bool, typer.Option("--term", help="Never deliver it again")] = False,
    raw: Raw = False,
    wait: Annotated[str, typer.Option("--wait", help="How long to wait for a message")] = "5s",
) -> None:
    """Take the next messages of a pull consumer."""
    shown = 0
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        consumer = await js.consumer(stream, name)
        while shown < count:
            message = await consumer.next(timeout=duration(wait))
            if message is None:
                break
            _show(message, raw)
            await _settle(message, ack and not (nak or term), nak, term, raw)
            shown += 1
    if not shown:
        raise ConfigError(
            f"consumer next: no message came within {wait}; "
            f"`slipstream why {stream} {name}` says why"
        )


@command(app, "sub")
async def sub(
    stream: StreamName = "",
    name: Name = "",
    ack: Ack = True,
    raw: Raw = False,
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
    deliver_group: Annotated[
        str, typer.Option("--deliver-group", "--queue", help="The consumer's deliver group")
    ] = "",
    page: PageSize = 0,
) -> None:
    """Show and acknowledge messages as they come, until Ctrl-C."""
    shown, pager = 0, Pager(page)
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        info = await js.consumer_info(stream, name)
        if deliver_group not in ("", info.config.deliver_group):
            raise UsageError(
                f"consumer sub: {stream} > {name} delivers to "
                f'the group "{info.config.deliver_group}"' + f', not to "{deliver_group}"'
            )
        async with aclosing(messages_of(js, info)) as messages:
            async for message in messages:
                _show(message, raw)
                await _settle(message, ack and info.config.ack_policy != "none", False, False, raw)
                shown += 1
                if (count and shown >= count) or not pager.wants_more():
                    return


async def messages_of(
    js: JetStream, info: ConsumerInfo, wait: float | None = None
) -> AsyncGenerator[JetStreamMessage, None]:
    """The messages of a consumer, until none comes for `wait` seconds (None: without an end)."""
    if info.config.deliver_subject:
        async with (await js.push_consumer(info.stream_name, info.name)).messages() as pushed:
            while (pushed_one := await pushed.next(wait)) is not None:
                yield pushed_one
        return
    consumer = await js.consumer(info.stream_name, info.name)
    while True:
        # One at a time, so that nothing is out and unacknowledged when somebody stops.
        taken = await consumer.next(timeout=wait or PULL_SECONDS)
        if taken is not None:
            yield taken
        elif wait is not None:
            return
