"""`slipstream sub` and `slipstream reply`."""

import asyncio
import base64
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from slipstream.cli.config_options import header_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.templates import Template
from slipstream.cli.message.text import received_json, say_bytes, show_body, show_headers
from slipstream.cli.output import clock, note, print_json, say, table
from slipstream.cli.prompts import Pager
from slipstream.cli.session import command, connection, context_of, new_app, settings, wants_json
from slipstream.cli.values import duration, moment, show_size
from slipstream.client.connection import Connection
from slipstream.client.jetstream import OrderedConsumerConfig
from slipstream.client.message import Message

sub_app = new_app(group=False)
reply_app = new_app(group=False)

Queue = Annotated[str, typer.Option("--queue", help="Share the messages with this group")]


@command(sub_app, "sub")
async def sub(
    subjects: Annotated[
        list[str], typer.Argument(metavar="SUBJECT...", help="What to show; a stream's without one")
    ] = [],  # noqa: B006 - Typer copies it
    queue: Queue = "",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
    wait: Annotated[str, typer.Option("--wait", help="Stop when nothing came for so long")] = "",
    raw: Annotated[bool, typer.Option("--raw", "-r", help="Only the bodies")] = False,
    headers_only: Annotated[bool, typer.Option("--headers-only", help="No bodies")] = False,
    subjects_only: Annotated[bool, typer.Option("--subjects-only", help="No bodies")] = False,
    translate: Annotated[str, typer.Option("--translate", help="Pipe bodies to this")] = "",
    dump: Annotated[
        str, typer.Option("--dump", help="A file for each in this directory; -: stdout, NUL after")
    ] = "",
    match_replies: Annotated[
        bool, typer.Option("--match-replies", help="Show requests with their answer")
    ] = False,
    report_subjects: Annotated[
        bool, typer.Option("--report-subjects", help="Count messages by subject")
    ] = False,
    report_top: Annotated[int, typer.Option("--report-top", help="So many subjects")] = 10,
    stream: Annotated[str, typer.Option("--stream", help="Read this stream")] = "",
    all_messages: Annotated[bool, typer.Option("--all", help="Stream: from its begin")] = False,
    new: Annotated[bool, typer.Option("--new", help="Stream: only what is new")] = False,
    last: Annotated[bool, typer.Option("--last", help="Stream: from the last on")] = False,
    last_per_subject: Annotated[
        bool, typer.Option("--last-per-subject", help="Stream: last of each, then new")
    ] = False,
    start_sequence: Annotated[int, typer.Option("--start-sequence", help="Stream")] = 0,
    since: Annotated[str, typer.Option("--since", help="Stream: stored since, like 1h")] = "",
    page: Annotated[int, typer.Option("--page", help="On a terminal, stop after so many")] = 0,
) -> None:
    """Show the messages of subjects, or of a stream, as they come."""
    shower = Shower(
        raw=raw,
        headers_only=headers_only,
        subjects_only=subjects_only,
        translate=translate,
        count=count,
        pager=Pager(page),
        dump=dump,
        tally=SubjectTally(report_top) if report_subjects else None,
    )
    begin = {
        "last_per_subject": last_per_subject,
        "last": last,
        "new": new,
        "by_start_sequence": start_sequence > 0,
        "by_start_time": bool(since),
        "all": all_messages or bool(stream),
    }
    policy = next((name for name, wanted in begin.items() if wanted), "")
    if not subjects and not stream:
        raise UsageError("sub: give a SUBJECT, or --stream STREAM for all of a stream's")
    if match_replies and (policy or queue):
        raise UsageError("sub: --match-replies goes with subjects alone, without a stream or group")
    async with connection() as nc:
        try:
            if policy:
                await _from_stream(
                    nc, subjects, stream, policy, start_sequence, since, shower, wait
                )
            else:
                await _from_subjects(nc, subjects, queue, shower, wait, match_replies)
        finally:
            shower.end()


class SubjectTally:
    """Counts messages by subject."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, message: Message) -> None:
        """Count a message under its subject."""
        count, size = self._found.get(message.subject, (0, 0))
        self._found[message.subject] = (count + 1, size + len(message.data))

    def show(self) -> None:
        """The table, the busiest first."""
        found = sorted(self._found.items(), key=lambda one: (-one[1][0], one[0]))[: self._top]
        if wants_json():
            print_json({subject: {"messages": n, "bytes": size} for subject, (n, size) in found})
            return
        rows = [(subject, f"{n:,}", show_size(size)) for subject, (n, size) in found]
        title = f"Top {len(rows)} of {len(self._found)} active subjects"
        table(title, ("Subject", "Message Count", "Bytes"), rows)


class Shower:
    """Shows messages as the line asks, and counts them."""

    def __init__(
        self,
        *,
        raw: bool,
        headers_only: bool,
        subjects_only: bool,
        translate: str,
        count: int,
        pager: Pager,
        dump: str,
        tally: SubjectTally | None,
    ) -> None:
        self._pager = pager
        self._raw = raw
        self._headers_only = headers_only
        self._subjects_only = subjects_only
        self._translate = translate
        self._count = count
        self._dump = dump
        self._tally = tally
        self.shown = 0
        if dump and dump != "-":
            Path(dump).mkdir(parents=True, exist_ok=True)

    def show(self, message: Message, origin: str = "", answer: Message | None = None) -> bool:
        """Show one, and the answer to it if there is one; False when that was the last."""
        self.shown += 1
        if self._tally is not None:
            self._tally.add(message)
        elif self._dump:
            self._write(message, "")
            if answer is not None:
                self._write(answer, "_reply")
        elif wants_json():
            print_json(received_json(message))
            if answer is not None:
                print_json(received_json(answer))
        else:
            reply = f' with reply "{message.reply}"' if message.reply and not origin else ""
            self._print(f'Received {origin}on "{message.subject}"{reply}', message)
            if answer is not None:
                self._print(f'Matched reply on "{answer.subject}"', answer)
        return (not self._count or self.shown < self._count) and self._pager.wants_more()

    def end(self) -> None:
        """After the last: what was counted."""
        if self._tally is not None:
            self._tally.show()

    def _print(self, what: str, message: Message) -> None:
        if self._raw:
            show_body(message.data, self._translate)
            return
        say(f"[#{self.shown}] {what}")
        if not self._subjects_only:
            show_headers(message.headers)
            if not self._headers_only:
                show_body(message.data, self._translate)
            say()

    def _write(self, message: Message, mark: str) -> None:
        """In the format of the nats tool: `Subject`, `Reply`, `Header`, and `Data` in base64."""
        headers = {key: message.headers.get_all(key) for key in message.headers}
        found = {
            "Subject": message.subject,
            "Reply": message.reply or "",
            "Header": headers or None,
            "Data": base64.b64encode(message.data).decode(),
        }
        text = msgspec.json.encode(found)
        if self._dump == "-":
            sys.stdout.buffer.write(text + b"\0")
            sys.stdout.buffer.flush()
        else:
            Path(self._dump, f"{self.shown}{mark}.json").write_bytes(text)


async def _from_subjects(
    nc: Connection, subjects: list[str], queue: str, shower: Shower, wait: str, matching: bool
) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    for subject in subjects:
        await nc.subscribe(subject, queue=queue, handler=inbox.put_nowait)
    if matching:
        # Of the client that asks, with the prefix that is usual or that is said.
        answers = settings().inbox_prefix or "_INBOX"
        await nc.subscribe(f"{answers}.>", handler=inbox.put_nowait)
    if not wants_json():
        note(f"{clock()} Subscribing on {', '.join(subjects)}")
    await nc.flush()
    limit = duration(wait) or None
    asked: dict[str, Message] = {}
    while True:
        try:
            message = await asyncio.wait_for(inbox.get(), limit)
        except TimeoutError:
            return
        if not matching:
            more = shower.show(message)
        elif message.subject in asked:
            more = shower.show(asked.pop(message.subject), answer=message)
        else:
            if message.reply:
                asked[message.reply] = message
            continue
        if not more:
            return


async def _from_stream(
    nc: Connection,
    subjects: list[str],
    stream: str,
    policy: str,
    sequence: int,
    since: str,
    shower: Shower,
    wait: str,
) -> None:
    js = context_of(nc, settings())
    name = stream or await js.stream_name_by_subject(subjects[0])
    config = OrderedConsumerConfig(
        filter_subjects=subjects,
        deliver_policy=policy,  # type: ignore[arg-type]
        opt_start_seq=sequence,
        opt_start_time=moment(since) if since else None,
    )
    note(f"{clock()} Subscribing to Stream {name} on {', '.join(subjects) or 'all its subjects'}")
    consumer = js.ordered_consumer(name, config)
    limit = duration(wait) or None
    async with consumer.messages() as messages:
        while True:
            message = await messages.next(limit)
            if message is None:
                return
            origin = f"JetStream message: stream: {name} seq {message.sequence} "
            if not shower.show(message, origin):
                return


@command(reply_app, "reply")
async def reply(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What to answer")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="The answer")] = "",
    queue: Queue = "NATS-RPLY-22",
    echo: Annotated[bool, typer.Option("--echo", help="Send the request back")] = False,
    run: Annotated[str, typer.Option("--command", help="Answer with what this prints")] = "",
    header: Annotated[list[str], typer.Option("--header", "-H", help="Name: value")] = [],  # noqa: B006
    sleep: Annotated[str, typer.Option("--sleep", help="Wait up to so long before")] = "",
    count: Annotated[int, typer.Option("--count", help="Stop after so many; 0: never")] = 0,
) -> None:
    """Answer requests."""
    if sum((bool(body), echo, bool(run))) != 1:
        raise typer.BadParameter("give one of BODY, --echo and --command")
    pause = duration(sleep)
    answered = 0
    async with connection() as nc:
        subscription = await nc.subscribe(subject, queue=queue)
        note(f'{clock()} Listening on "{subject}" in group "{queue}"')
        await nc.flush()
        async for message in subscription:
            answered += 1
            note(f'{clock()} [#{answered}] Received on subject "{message.subject}":')
            show_headers(message.headers)
            say_bytes(message.data)
            if pause:
                await asyncio.sleep(random.uniform(0, pause))
            headers = dict(header_of(one) for one in header) or None
            answer = await _answer(message, body, echo, run, answered)
            if message.reply:
                await nc.publish(message.reply, answer, headers=headers)
            if count and answered >= count:
                await nc.flush()
                return


async def _answer(message: Message, body: str, echo: bool, run: str, count: int) -> bytes:
    if echo:
        return message.data
    if run:
        # The request is data: it goes in by stdin and environment, never into the command line.
        said = {"NATS_REQUEST_SUBJECT": message.subject}
        done = await asyncio.to_thread(
            subprocess.run,
            run,
            shell=True,
            input=message.data,
            capture_output=True,
            check=False,
            env=os.environ | said,
        )
        return done.stdout
    headers = {key: message.headers[key] for key in message.headers}
    return Template(body).render(count, message.data, headers)
