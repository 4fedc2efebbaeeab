"""`slipstream consumer dead-letters`: what a consumer gave up, and sending it again."""

from typing import Annotated, Any

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.message.text import json_field
from slipstream.cli.output import note, print_json, say, table
from slipstream.cli.prompts import Force, confirm
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import show_stamp, show_time
from slipstream.client.jetstream import Consumer, DeadLetter, JetStream
from slipstream.errors import ConfigError

app = new_app("List the dead letters of a consumer and send them again.")

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]
Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")]
LISTED = 100


async def _consumer(js: JetStream, stream: str, name: str) -> Consumer:
    return Consumer(js, await js.consumer_info(stream, name))


@command(app, "ls")
async def ls(
    stream: StreamName = "",
    name: Name = "",
    count: Annotated[int, typer.Option("--count", help="So many, the oldest; 0: all")] = LISTED,
) -> None:
    """List messages that were terminated or used up their deliveries."""
    found: list[DeadLetter] = []
    has_more = False
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)
        async for letter in (await _consumer(js, stream, name)).dead_letters():
            has_more = 0 < count <= len(found)
            if has_more:
                break
            found.append(letter)
    if wants_json():
        print_json([_as_json(letter) for letter in found])
        return
    if not found:
        say("No Dead Letters found")
        return
    columns = ("Sequence", "Cause", "Reason", "Deliveries", "Subject", "Was", "Since")
    rows = [
        (
            str(one.sequence),
            one.cause,
            one.reason,
            f"{one.deliveries:,}",
            one.subject,
            str(one.from_sequence),
            show_time(one.stored),
        )
        for one in found
    ]
    table(f"Dead letters of {stream} > {name} in stream {found[0].stream}", columns, rows)
    if has_more:
        note(f"There are more than {count}; --count 0 lists all")


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "stream": letter.stream,
        "sequence": letter.sequence,
        "time": show_stamp(letter.stored),
        "cause": letter.cause,
        "reason": letter.reason,
        "deliveries": letter.deliveries,
        "id": letter.id,
        "from_stream": letter.from_stream,
        "from_consumer": letter.from_consumer,
        "from_sequence": letter.from_sequence,
        "published": letter.published,
        "subject": letter.subject,
        "headers": {key: letter.headers.get_all(key) for key in letter.headers},
        **json_field("data", letter.data),
    }


@command(app, "resend")
async def resend(
    stream: StreamName,
    name: Name,
    sequences: Annotated[
        list[int] | None,
        typer.Argument(metavar="[SEQUENCE]...", help="Of dead letters, as `ls` shows them"),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="All of the consumer")] = False,
    force: Force = False,
) -> None:
    """Publish messages to their subjects again, then remove the dead letters (at least once)."""
    if bool(sequences) == all_of_them:
        raise ConfigError("consumer dead-letters resend: say which, by SEQUENCE or with --all")
    sent = []
    async with jetstream() as js:
        consumer = await _consumer(js, stream, name)
        if all_of_them:
            found = [one async for one in consumer.dead_letters()]
        else:
            found = [await consumer.dead_letter(one) for one in dict.fromkeys(sequences or [])]
        if found:
            confirm(f"Really send {len(found):,} dead letters of {stream} > {name} again?", force)
        for letter in found:
            ack = await consumer.resend(letter)
            sent.append({"dead_letter": letter.sequence, "stream": ack.stream, "seq": ack.sequence})
            if not wants_json():
                say(f"Dead letter {letter.sequence} is message {ack.sequence} of {ack.stream}")
    if wants_json():
        print_json(sent)
    elif not sent:
        say("No Dead Letters found")
