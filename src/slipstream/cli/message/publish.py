"""`slipstream pub` and `slipstream request`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from slipstream.cli.config_options import header_of
from slipstream.cli.message.templates import Template
from slipstream.cli.message.text import received_json, say_bytes, show_headers
from slipstream.cli.output import clock, note, print_json, say
from slipstream.cli.progress import count_bar
from slipstream.cli.prompts import interruptible, read_stdin
from slipstream.cli.session import command, connection, context_of, new_app, settings, wants_json
from slipstream.cli.values import duration, show_duration
from slipstream.client.connection import Connection
from slipstream.errors import ConfigError

pub_app = new_app(group=False)
request_app = new_app(group=False)

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Where to")]
Body = Annotated[
    str | None, typer.Argument(metavar="BODY", help="The body; from stdin if there is none")
]
HeaderOption = Annotated[list[str], typer.Option("--header", "-H", help="Name: value")]
Count = Annotated[int, typer.Option("--count", help="How many messages", min=1)]
Sleep = Annotated[str, typer.Option("--sleep", help="Wait between messages, like 500ms")]
Templates = Annotated[bool, typer.Option("--templates/--no-templates", help="Fill in {{Count}} ..")]


class Draft:
    """What is to be sent, message for message."""

    def __init__(self, body: str, headers: list[str], templates: bool) -> None:
        self._body = body
        self._headers = dict(header_of(header) for header in headers)
        self._templates = templates

    def message(self, count: int) -> tuple[bytes, dict[str, str] | None]:
        """Body and headers of message number `count`."""
        if not self._templates:
            return self._body.encode("utf-8", "surrogateescape"), self._headers or None
        headers = {
            _text(Template(key).render(count)): _text(Template(value).render(count))
            for key, value in self._headers.items()
        }
        return Template(self._body).render(count), headers or None


def body_of(body: str | None, force_stdin: bool = False) -> str:
    """The body that the line has, or standard input."""
    if body is not None and not force_stdin:
        return body
    return _text(read_stdin())


def _text(data: bytes) -> str:
    """`data` as text which gives the same bytes again, also where it is not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def _line(line: bytes) -> str:
    """A line without its end."""
    return _text(line.removesuffix(b"\n").removesuffix(b"\r"))


@command(pub_app, "pub")
async def pub(
    subject: Subject,
    body: Body = None,
    header: HeaderOption = [],  # noqa: B006 - Typer copies it
    count: Count = 1,
    sleep: Sleep = "",
    reply: Annotated[str, typer.Option("--reply", help="Where answers go")] = "",
    jetstream: Annotated[bool, typer.Option("--jetstream", "-J", help="Await the ack")] = False,
    atomic: Annotated[bool, typer.Option("--atomic", help="All or nothing, as a batch")] = False,
    force_stdin: Annotated[bool, typer.Option("--force-stdin", help="Read stdin")] = False,
    send_on: Annotated[
        str, typer.Option("--send-on", help="eof: all of stdin; newline: each line")
    ] = "eof",
    templates: Templates = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing")] = False,
) -> None:
    """Publish messages."""
    pause = duration(sleep)
    async with connection() as nc:
        if send_on == "newline" and body is None:
            with interruptible():
                drafts = [Draft(_line(line), header, templates) for line in sys.stdin.buffer]
        else:
            drafts = [Draft(body_of(body, force_stdin), header, templates)] * count
        if jetstream or atomic:
            await _publish_acked(nc, subject, drafts, pause, atomic, quiet)
            return
        quiet = quiet or wants_json()
        size = 0
        with count_bar("Published", wanted=len(drafts) > 1) as bar:
            task = bar.add_task("", total=len(drafts))
            for n, draft in enumerate(drafts, 1):
                data, headers = draft.message(n)
                size += len(data)
                await nc.publish(subject, data, reply=reply, headers=headers)
                bar.advance(task)
                if pause and n < len(drafts):
                    await asyncio.sleep(pause)
        await nc.flush()
        if wants_json():
            print_json({"subject": subject, "messages": len(drafts), "bytes": size})
        elif not quiet:
            what = f"{len(drafts):,} messages" if len(drafts) > 1 else f"{size} bytes"
            note(f'{clock()} Published {what} to "{subject}"')


async def _publish_acked(
    nc: Connection, subject: str, drafts: list[Draft], pause: float, atomic: bool, quiet: bool
) -> None:
    """Publish into a stream, and show its acknowledgements."""
    js = context_of(nc, settings())
    if atomic:
        async with js.atomic_batch() as batch:
            for n, draft in enumerate(drafts, 1):
                data, headers = draft.message(n)
                await batch.add(subject, data, headers=headers)
        if wants_json():
            print_json(batch.ack)
        elif not quiet:
            note(f'{clock()} Published {len(drafts):,} messages to "{subject}" as one batch')
        return
    for n, draft in enumerate(drafts, 1):
        data, headers = draft.message(n)
        ack = await js.publish(subject, data, headers=headers)
        if wants_json():
            print_json(ack)
        elif not quiet:
            again = " (duplicate)" if ack.duplicate else ""
            note(f"{clock()} Stored in Stream: {ack.stream} Sequence: {ack.sequence}{again}")
        if pause and n < len(drafts):
            await asyncio.sleep(pause)


@command(request_app, "request")
async def request(
    subject: Subject,
    body: Body = None,
    header: HeaderOption = [],  # noqa: B006 - Typer copies it
    count: Count = 1,
    replies: Annotated[int, typer.Option("--replies", help="Answers to wait for; 0: all")] = 1,
    reply_timeout: Annotated[
        str, typer.Option("--reply-timeout", help="Longest gap between answers")
    ] = "300ms",
    raw: Annotated[bool, typer.Option("--raw", "-r", help="Only the bodies")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write the body here")] = None,
    templates: Templates = True,
) -> None:
    """Send a request and show the answers."""
    draft = Draft(body_of(body), header, templates)
    async with connection() as nc:
        for n in range(1, count + 1):
            if not raw and not wants_json():
                note(f'{clock()} Sending request on "{subject}"')
            data, headers = draft.message(n)
            began = perf_counter()
            async for answer in _answers(
                nc, subject, data, headers, replies, duration(reply_timeout)
            ):
                if output is not None:
                    output.write_bytes(answer.data)
                elif wants_json():
                    rtt = perf_counter() - began
                    print_json({**received_json(answer), "rtt_ns": round(rtt * 1e9)})
                elif raw:
                    say_bytes(answer.data)
                else:
                    note(f"{clock()} Received with rtt {show_duration(perf_counter() - began)}")
                    show_headers(answer.headers)
                    say_bytes(answer.data)
                    say()


async def _answers(
    nc: Connection,
    subject: str,
    data: bytes,
    headers: dict[str, str] | None,
    replies: int,
    gap: float,
) -> AsyncIterator[Any]:
    if replies == 1:
        yield await nc.request(subject, data, headers=headers)
        return
    found = 0
    async for answer in nc.request_many(
        subject, data, headers=headers, max_messages=replies, stall=gap
    ):
        found += 1
        yield answer
    if not found:
        raise ConfigError(f'request: nobody answered on "{subject}"')
