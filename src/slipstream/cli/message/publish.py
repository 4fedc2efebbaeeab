"""`slipstream pub` and `slipstream request`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from slipstream.cli.config_options import header_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.templates import Template
from slipstream.cli.message.text import received_json, show_body, show_headers
from slipstream.cli.output import clock, note, print_json, say
from slipstream.cli.progress import count_bar
from slipstream.cli.prompts import interruptible, read_stdin
from slipstream.cli.session import command, connection, context_of, new_app, settings, wants_json
from slipstream.cli.values import duration, later, show_duration
from slipstream.client.connection import Connection
from slipstream.client.jetstream.publish import Schedule
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

    def subject(self, subject: str, count: int) -> str:
        """The subject of message number `count`."""
        return _text(Template(subject).render(count)) if self._templates else subject

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


def _drafts(
    body: str | None,
    headers: list[str],
    templates: bool,
    *,
    count: int,
    force_stdin: bool,
    send_on: str,
) -> list["Draft"]:
    """All that is to be sent. Raises `UsageError` for a `send_on` that is unknown."""
    if send_on not in ("eof", "newline"):
        raise UsageError(f'--send-on "{send_on}" is none of eof, newline')
    if send_on == "newline" and (body is None or force_stdin):
        with interruptible():
            lines = [Draft(_line(line), headers, templates) for line in sys.stdin.buffer]
        return [draft for draft in lines for _ in range(count)]
    return [Draft(body_of(body, force_stdin), headers, templates)] * count


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
    schedule_dest: Annotated[
        str, typer.Option("--schedule-dest", help="The stream publishes it later, to this subject")
    ] = "",
    schedule_at: Annotated[str, typer.Option("--schedule-at", help="At this time")] = "",
    schedule_after: Annotated[str, typer.Option("--schedule-after", help="After so long")] = "",
    schedule_every: Annotated[
        str, typer.Option("--schedule-every", help="Again and again, like 5m")
    ] = "",
    schedule_cron: Annotated[
        str, typer.Option("--schedule-cron", help="Six fields, seconds first, or @daily")
    ] = "",
    schedule_source: Annotated[
        str, typer.Option("--schedule-source", help="Not its body, but the last of this subject")
    ] = "",
    schedule_ttl: Annotated[
        str, typer.Option("--schedule-ttl", help="How long what it publishes stays")
    ] = "",
) -> None:
    """Publish messages."""
    pause = duration(sleep)
    schedule = _schedule(
        schedule_dest,
        [schedule_at, schedule_after, schedule_every, schedule_cron],
        schedule_source,
        schedule_ttl,
    )
    if schedule is not None and atomic:
        raise UsageError("pub: messages of an atomic batch cannot be scheduled")
    async with connection() as nc:
        drafts = _drafts(
            body, header, templates, count=count, force_stdin=force_stdin, send_on=send_on
        )
        if jetstream or atomic or schedule is not None:
            await _publish_acked(nc, subject, drafts, pause, atomic, quiet, schedule)
            return
        quiet = quiet or wants_json()
        size = 0
        with count_bar("Published", wanted=len(drafts) > 1) as bar:
            task = bar.add_task("", total=len(drafts))
            for n, draft in enumerate(drafts, 1):
                data, headers = draft.message(n)
                size += len(data)
                await nc.publish(draft.subject(subject, n), data, reply=reply, headers=headers)
                bar.advance(task)
                if pause and n < len(drafts):
                    await asyncio.sleep(pause)
        await nc.flush()
        if wants_json():
            print_json({"subject": subject, "messages": len(drafts), "bytes": size})
        elif not quiet:
            what = f"{len(drafts):,} messages" if len(drafts) > 1 else f"{size} bytes"
            note(f'{clock()} Published {what} to "{subject}"')


def _schedule(dest: str, when: list[str], source: str, ttl: str) -> Schedule | None:
    """What the options say; `when` are those of at, after, every and cron. Raises `UsageError`."""
    if not any((dest, *when, source, ttl)):
        return None
    at, after, every, cron = when
    if not dest or sum(map(bool, when)) != 1:
        raise UsageError(
            "pub: a schedule needs --schedule-dest SUBJECT and one of --schedule-at, "
            "--schedule-after, --schedule-every and --schedule-cron"
        )
    moments = later(at or after) if at or after else None
    schedule = Schedule(
        target=dest,
        at=moments,
        every=duration(every) if every else None,
        cron=cron,
        source=source,
        ttl=duration(ttl) or None,
    )
    try:
        schedule.fields()
    except ValueError as error:
        raise UsageError(f"pub: {error}") from error
    return schedule


async def _publish_acked(
    nc: Connection,
    subject: str,
    drafts: list[Draft],
    pause: float,
    atomic: bool,
    quiet: bool,
    schedule: Schedule | None,
) -> None:
    """Publish into a stream, and show its acknowledgements."""
    js = context_of(nc, settings())
    if atomic:
        async with js.atomic_batch() as batch:
            for n, draft in enumerate(drafts, 1):
                data, headers = draft.message(n)
                await batch.add(draft.subject(subject, n), data, headers=headers)
        if wants_json():
            print_json(batch.ack)
        elif not quiet:
            note(f'{clock()} Published {len(drafts):,} messages to "{subject}" as one batch')
        return
    for n, draft in enumerate(drafts, 1):
        data, headers = draft.message(n)
        options: dict[str, Any] = {"schedule": schedule} if schedule is not None else {}
        ack = await js.publish(draft.subject(subject, n), data, headers=headers, **options)
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
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", "-w", help="For answers, as is done anyway")
    ] = True,
    wait_for_empty: Annotated[
        bool, typer.Option("--wait-for-empty", help="All answers up to an empty one")
    ] = False,
    translate: Annotated[str, typer.Option("--translate", help="Pipe bodies to this")] = "",
    force_stdin: Annotated[bool, typer.Option("--force-stdin", help="Read stdin")] = False,
    send_on: Annotated[
        str, typer.Option("--send-on", help="eof: all of stdin; newline: each line")
    ] = "eof",
) -> None:
    """Send a request and show the answers."""
    if not wait:
        raise UsageError("request: without an answer it is `slipstream pub`")
    async with connection() as nc:
        drafts = _drafts(
            body, header, templates, count=count, force_stdin=force_stdin, send_on=send_on
        )
        for n, draft in enumerate(drafts, 1):
            to = draft.subject(subject, n)
            if not raw and not wants_json():
                note(f'{clock()} Sending request on "{to}"')
            data, headers = draft.message(n)
            began = perf_counter()
            gap = duration(reply_timeout)
            async for answer in _answers(nc, to, data, headers, replies, gap, wait_for_empty):
                if output is not None:
                    output.write_bytes(answer.data)
                elif wants_json():
                    rtt = perf_counter() - began
                    print_json({**received_json(answer), "rtt_ns": round(rtt * 1e9)})
                elif raw:
                    show_body(answer.data, translate)
                else:
                    note(f"{clock()} Received with rtt {show_duration(perf_counter() - began)}")
                    show_headers(answer.headers)
                    show_body(answer.data, translate)
                    say()


async def _answers(
    nc: Connection,
    subject: str,
    data: bytes,
    headers: dict[str, str] | None,
    replies: int,
    gap: float,
    until_empty: bool,
) -> AsyncIterator[Any]:
    if until_empty:
        async for answer in nc.request_many(
            subject, data, headers=headers, sentinel=lambda message: not message.data
        ):
            yield answer
        return
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
