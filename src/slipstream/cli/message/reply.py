"""`slipstream reply`: answers with a text, the request itself, or what a command prints."""

import asyncio
import os
import random
import re
import shlex
import subprocess
from typing import Annotated

import typer

from slipstream.cli.config_options import header_of
from slipstream.cli.message.templates import Template
from slipstream.cli.message.text import say_bytes, show_headers
from slipstream.cli.output import clock, note
from slipstream.cli.session import command, connection, new_app
from slipstream.cli.values import duration
from slipstream.client.message import Message

app = new_app(group=False)

_TOKEN = re.compile(r"\{\{\s*(\d+)\s*\}\}")
VARIABLE_BYTES_MAX = 100_000  # Linux takes 128 KiB for a variable and its name


@command(app, "reply")
async def reply(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What to answer")],
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="The answer; without one, as --echo")
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="Share the requests with this group")
    ] = "NATS-RPLY-22",
    echo: Annotated[bool, typer.Option("--echo", help="Send the request back")] = False,
    run: Annotated[str, typer.Option("--command", help="Answer with what this prints")] = "",
    header: Annotated[list[str], typer.Option("--header", "-H", help="Name: value")] = [],  # noqa: B006
    sleep: Annotated[str, typer.Option("--sleep", help="Wait up to so long before")] = "",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Answer requests.

    A command gets the request by its input, and in NATS_REQUEST_BODY and NATS_REQUEST_SUBJECT. One
    with {{1}} (a token of the subject, from 0 on) or {{Request}} is run without a shell.
    """
    if sum((bool(body), echo, bool(run))) > 1:
        raise typer.BadParameter("give one of BODY, --echo and --command")
    pause = duration(sleep)
    answered = 0
    async with connection() as nc:
        subscription = await nc.subscribe(subject, queue=queue)
        if not (body or run or echo):
            note(f"{clock()} Requests are sent back: there is no BODY and no --command")
        note(f'{clock()} Listening on "{subject}" in group "{queue}"')
        await nc.flush()
        async for message in subscription:
            answered += 1
            note(f'{clock()} [#{answered}] Received on subject "{message.subject}":')
            show_headers(message.headers)
            say_bytes(message.data)
            if pause:
                await asyncio.sleep(random.uniform(0, pause))
            headers = dict(header_of(one) for one in header)
            if run:
                answer = await _run(run, message)
            elif body:
                found = {key: message.headers[key] for key in message.headers}
                answer = Template(body).render(answered, message.data, found)
            else:
                answer = message.data
                headers = {key: message.headers[key] for key in message.headers} | headers
            if message.reply:
                await nc.publish(message.reply, answer, headers=headers or None)
            if count and answered >= count:
                await nc.flush()
                return


async def _run(command_line: str, message: Message) -> bytes:
    """What a command prints, given the request."""
    said = {"NATS_REQUEST_SUBJECT": message.subject}
    if len(message.data) <= VARIABLE_BYTES_MAX and b"\0" not in message.data:
        said["NATS_REQUEST_BODY"] = message.data.decode("utf-8", "surrogateescape")
    filled = _filled(command_line, message)
    done = await asyncio.to_thread(
        subprocess.run,
        command_line if filled is None else filled,
        shell=filled is None,
        input=message.data,
        capture_output=True,
        check=False,
        env=os.environ | said,
    )
    return done.stdout


def _filled(command_line: str, message: Message) -> list[str] | None:
    """The words of a command with parts of the request in them; None for one that has no place.

    What was requested is data: it becomes part of a word, and no shell reads that word.
    """
    tokens = message.subject.split(".")

    def token(match: re.Match[str]) -> str:
        at = int(match[1])
        return tokens[at] if at < len(tokens) else match[0]

    # A placeholder with blanks is one word, too.
    compact = re.sub(r"\{\{\s*(.*?)\s*\}\}", r"{{\1}}", command_line)
    if not re.search(r"\{\{(\d+|\.?Request)\}\}", compact):
        return None
    words = shlex.split(compact)
    return [
        Template(_TOKEN.sub(token, word)).render(0, message.data).decode("utf-8", "surrogateescape")
        if "Request" in word
        else _TOKEN.sub(token, word)
        for word in words
    ]
