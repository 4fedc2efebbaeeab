"""`slipstream sub`: the messages of subjects, of streams and of durable consumers."""

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from time import perf_counter
from typing import Annotated

import typer

from slipstream.cli.config_options import words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.graphs import Graphs
from slipstream.cli.message.reading import Reading
from slipstream.cli.message.shower import Shower, SubjectTally
from slipstream.cli.output import clock, note, say
from slipstream.cli.prompts import Pager
from slipstream.cli.session import command, connection, new_app, settings, wants_json
from slipstream.cli.values import duration, moment, show_duration
from slipstream.client.connection import Connection
from slipstream.client.message import Message

ACKS = "$JS.ACK."  # what an acknowledgement's subject begins with
GRAPH_SECONDS = 1.0  # between two looks of --graph

sub_app = new_app(group=False)

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
    inbox: Annotated[bool, typer.Option("--inbox", "-i", help="Of a new inbox")] = False,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Acknowledge messages of JetStream")
    ] = False,
    durable: Annotated[
        str, typer.Option("--durable", help="Stream: read by this durable consumer of it")
    ] = "",
    direct: Annotated[bool, typer.Option("--direct", help="Stream: by direct gets")] = False,
    at_end: Annotated[
        bool, typer.Option("--terminate-at-end", "-T", help="Stream: stop after what is there")
    ] = False,
    ignored: Annotated[
        list[str],
        typer.Option("--ignore-subject", "-I", "--exclude-subjects", help="Do not show these"),
    ] = [],  # noqa: B006 - Typer copies it
    report_subscriptions: Annotated[
        bool, typer.Option("--report-subscriptions", help="Count messages by what was asked for")
    ] = False,
    timestamp: Annotated[bool, typer.Option("--timestamp", "-t", help="With the time")] = False,
    delta_time: Annotated[
        bool, typer.Option("--delta-time", "-d", help="With the time since the start")
    ] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Draw rates, show no messages")] = False,
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
        tally=SubjectTally(report_top) if report_subjects or report_subscriptions else None,
        by_pattern=report_subscriptions,
        ignored=words_of(ignored),
        when=_clock(timestamp, delta_time),
    )
    begin = {
        "last_per_subject": last_per_subject,
        "last": last,
        "new": new,
        "by_start_sequence": start_sequence > 0,
        "by_start_time": bool(since),
        "all": all_messages or bool(stream) or direct,
    }
    policy = next((name for name, wanted in begin.items() if wanted), "")
    _check(subjects, stream, policy, durable, inbox, queue, match_replies, at_end, graph)
    reading = Reading(
        stream=stream,
        subjects=subjects,
        policy=policy,
        sequence=start_sequence,
        since=moment(since) if since else None,
        wait=duration(wait) or None,
        at_end=at_end,
    )
    async with connection() as nc:
        if inbox:
            subjects = [nc.new_inbox()]
        try:
            if durable:
                await reading.by_durable(nc, durable, ack, shower)
            elif direct:
                await reading.by_direct_gets(nc, shower)
            elif policy:
                await reading.in_order(nc, shower)
            elif graph:
                await _draw(nc, subjects, queue, count)
            else:
                await _from_subjects(nc, subjects, queue, shower, wait, match_replies, ack)
        finally:
            shower.end()


def _clock(timestamp: bool, delta_time: bool) -> Callable[[], str] | None:
    """How the line wants to know when a message came."""
    if timestamp and delta_time:
        raise UsageError("sub: --timestamp and --delta-time are two ways to say when: give one")
    if timestamp:
        return lambda: f"{datetime.now():%H:%M:%S.%f}"
    began = perf_counter()
    return (lambda: show_duration(perf_counter() - began)) if delta_time else None


def _check(
    subjects: list[str],
    stream: str,
    policy: str,
    durable: str,
    inbox: bool,
    queue: str,
    match_replies: bool,
    at_end: bool,
    graph: bool,
) -> None:
    """Raises `UsageError` for options that do not go together."""
    if not subjects and not stream and not inbox:
        raise UsageError("sub: give a SUBJECT, or --stream STREAM for all of a stream's")
    if inbox and (subjects or policy or durable):
        raise UsageError("sub: --inbox is the subject: give no other, and no stream")
    if match_replies and (policy or queue):
        raise UsageError("sub: --match-replies goes with subjects alone, without a stream or group")
    if queue and policy:
        raise UsageError("sub: a stream is read without --queue; consumers share by --durable")
    if durable and (subjects or not stream):
        raise UsageError("sub: --durable goes with --stream STREAM; it says itself which subjects")
    if at_end and not policy:
        raise UsageError("sub: --terminate-at-end is about what a stream has: give --stream STREAM")
    if graph and policy:
        raise UsageError("sub: --graph draws subjects; `slipstream stream graph` draws a stream")


async def _from_subjects(
    nc: Connection,
    subjects: list[str],
    queue: str,
    shower: Shower,
    wait: str,
    matching: bool,
    ack: bool,
) -> None:
    inbox: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()

    def put(subject: str) -> Callable[[Message], None]:
        return lambda message: inbox.put_nowait((subject, message))

    for subject in subjects:
        await nc.subscribe(subject, queue=queue, handler=put(subject))
    if matching:
        # Of the client that asks, with the prefix that is usual or that is said.
        answers = settings().inbox_prefix or "_INBOX"
        await nc.subscribe(f"{answers}.>", handler=put(""))
    if not wants_json():
        note(f"{clock()} Subscribing on {', '.join(subjects)}")
    await nc.flush()
    limit = duration(wait) or None
    asked: dict[str, Message] = {}
    while True:
        try:
            subject, message = await asyncio.wait_for(inbox.get(), limit)
        except TimeoutError:
            return
        if ack and message.reply.startswith(ACKS):
            await nc.publish(message.reply)
        if not matching:
            more = shower.show(message, pattern=subject)
        elif message.subject in asked:
            more = shower.show(asked.pop(message.subject), answer=message)
        else:
            if message.reply:
                asked[message.reply] = message
            continue
        if not more:
            return


async def _draw(nc: Connection, subjects: list[str], queue: str, count: int) -> None:
    """Draw how many messages come in a second, until there were `count` (0: for ever)."""
    counts = dict.fromkeys(subjects, 0)

    def counter(subject: str) -> Callable[[Message], None]:
        def add(_: Message) -> None:
            counts[subject] += 1

        return add

    for subject in subjects:
        await nc.subscribe(subject, queue=queue, handler=counter(subject))
    note(f"{clock()} Subscribing on {', '.join(subjects)}")
    await nc.flush()
    graphs, before = Graphs(), dict(counts)
    while not count or sum(before.values()) < count:
        await asyncio.sleep(GRAPH_SECONDS)
        now = dict(counts)
        for subject in subjects:
            graphs.add(f"{subject} a second", (now[subject] - before[subject]) / GRAPH_SECONDS)
        before = now
        if sys.stdout.isatty():
            say("\x1b[2J\x1b[H")
        graphs.show("Messages")
