"""Messages of a stream: browsing and searching, one in all its views, publishing, exporting."""

import shlex
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import typer
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slipstream.cli import values
from slipstream.client.jetstream import Stream
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.console import reading
from slipstream.console.bodies import Body, Masks, View, header_pairs, preview, views
from slipstream.console.query import parse
from slipstream.console.render import query, segment
from slipstream.console.visit import FormError, Visit, whole_number
from slipstream.model.times import datetime_text
from slipstream.wire.headers import Headers

EXPORTED_MAX = 10_000
SLIDER_STEPS = 1000


class Shown(NamedTuple):
    """A message as it may be shown."""

    sequence: int
    subject: str
    time: datetime | None
    size: int
    headers: list[tuple[str, str]]
    preview: str
    views: list[View]
    is_masked: bool


def shown(message: StoredMessage, masks: Masks, with_views: bool = False) -> Shown:
    """A message behind the masks; with or without the views of its body."""
    body = masks.body(message.data)
    headers = masks.headers(message.headers)
    return Shown(
        message.sequence,
        message.subject,
        message.time,
        len(message.data),
        header_pairs(headers),
        preview(body),
        views(body) if with_views else [],
        body.is_masked or headers != dict(message.headers.items()),
    )


class Wish(msgspec.Struct):
    """Which messages are asked for: where to begin, and what they must be like."""

    start: str = ""
    subject: str = ""
    where: str = ""
    direction: str = ""  # "back" for those before `start`

    @classmethod
    def of(cls, visit: Visit) -> "Wish":
        """As the address of the page has it."""
        return cls(
            visit.asked("start"), visit.asked("subject"), visit.asked("where"), visit.asked("go")
        )


async def messages(request: Request) -> Response:
    """A page of messages, the newest first unless a beginning or a filter was given."""
    visit = Visit(request)
    stream = await visit.js.stream(visit.path("stream"))
    wish = Wish.of(visit)
    error, page = "", reading.Page()
    try:
        page, is_newest = await _read(stream, wish, visit.masks)
    except FormError as wrong:
        error, is_newest = str(wrong), False
    found = [shown(message, visit.masks) for message in page.messages]
    state = stream.cached_info.state
    return visit.page(
        "messages.html",
        info=stream.cached_info,
        tab="messages",
        wish=wish,
        error=error,
        messages=list(reversed(found)) if is_newest else found,
        is_newest=is_newest,
        page=page,
        older=found[0].sequence if found and found[0].sequence > state.first_seq else 0,
        newer=found[-1].sequence + 1 if found and found[-1].sequence < state.last_seq else 0,
        export=query(start=wish.start, subject=wish.subject, where=wish.where),
        slider=_slider(stream, found[0].time if found and wish.start else None),
        steps=SLIDER_STEPS,
    )


async def _read(stream: Stream, wish: Wish, masks: Masks) -> tuple[reading.Page, bool]:
    """The messages, and whether they are read backwards. Raises `FormError`."""
    state = stream.cached_info.state
    try:
        where = parse(wish.where)
    except ValueError as error:
        raise FormError(str(error)) from error
    sequence = await _sequence_of(stream, wish.start)
    is_backwards = wish.direction == "back" or not wish.start
    if where:
        begin = sequence or state.first_seq
        return await reading.from_sequence(stream, begin, wish.subject, where, masks), False
    if is_backwards:
        end = sequence or state.last_seq + 1
        return await reading.before(stream, end, state.first_seq, wish.subject), True
    return await reading.from_sequence(stream, sequence, wish.subject), False


async def _sequence_of(stream: Stream, start: str) -> int:
    """The sequence that a beginning means: a sequence, or a time; 0 for none."""
    if not start:
        return 0
    if start.replace(",", "").isdecimal():
        return int(start.replace(",", ""))
    when = moment(start)
    return await reading.at_time(stream, when) or stream.cached_info.state.last_seq + 1


def moment(text: str) -> datetime:
    """A point in time as a form has it; without a zone it is local. Raises `FormError`."""
    try:
        return values.moment(text).astimezone(UTC)
    except (typer.BadParameter, OverflowError, OSError) as error:
        raise FormError(
            f"{text!r} is neither a sequence nor a time; write 1042, 2026-01-31 12:00, "
            "or how long ago: 1h30m."
        ) from error


def _slider(stream: Stream, now_at: datetime | None) -> dict[str, Any]:
    """The ends of the time that the stream covers, and the step for `now_at` (None: the end)."""
    state = stream.cached_info.state
    if not state.messages or state.first_ts is None or state.last_ts is None:
        return {}
    first, last = state.first_ts.timestamp(), state.last_ts.timestamp()
    if last <= first:
        return {}
    share = (now_at.timestamp() - first) / (last - first) if now_at is not None else 1.0
    step = round(min(max(share, 0.0), 1.0) * SLIDER_STEPS)
    return {"first": first, "last": last, "step": step}


async def message(request: Request) -> Response:
    """One message in all its views, inside the list or on a page of its own."""
    visit = Visit(request)
    stream = await visit.js.stream(visit.path("stream"))
    sequence = whole_number(visit.path("sequence"), "A sequence")
    stored = await stream.get_message(sequence)
    found = shown(stored, visit.masks, with_views=True)
    names = {"message": found, "stream": stream.name, "code": code_of(stream.name, found)}
    if request.headers.get("hx-request"):
        return visit.fragment("_message.html", read_only=visit.options.read_only, **names)
    return visit.page("message.html", info=stream.cached_info, tab="messages", **names)


def code_of(stream: str, found: Shown) -> list[View]:
    """How to read the message from programs and shells."""
    return [
        View("Python", (
            "import slipstream.sync\n\n"
            "with slipstream.sync.connect() as nc:\n"
            f"    stream = nc.jetstream().stream({stream!r})\n"
            f"    message = stream.get_message({found.sequence})\n"
            "    print(message.subject, message.data)"
        )),
        View("CLI", f"slipstream stream get {shlex.quote(stream)} {found.sequence}"),
    ]  # fmt: skip


async def delete_message(request: Request) -> Response:
    """Remove one message, once its sequence was typed."""
    visit = Visit(request)
    name = visit.path("stream")
    sequence = whole_number(visit.path("sequence"), "A sequence")
    await visit.confirmed(str(sequence))
    await visit.js.delete_message(name, sequence)
    return visit.go(f"/streams/{segment(name)}/messages", f"Message {sequence:,} was deleted.")


async def compose(request: Request) -> Response:
    """A form to publish; with `again` it holds what a stored message has."""
    visit = Visit(request)
    stream = await visit.js.stream(visit.path("stream"))
    again = visit.asked_number("again")
    subject, headers, body = "", "", ""
    if again:
        stored = await stream.get_message(again)
        found = shown(stored, visit.masks)
        if found.is_masked:
            raise FormError(f"Message {again:,} has masked fields, so it cannot be sent again.")
        try:
            body = stored.data.decode()
        except UnicodeDecodeError as error:
            raise FormError(
                f"Message {again:,} is not text, so a form cannot hold it; "
                f"`slipstream stream get` and `slipstream pub` can."
            ) from error
        subject = stored.subject
        headers = "\n".join(f"{name}: {value}" for name, value in found.headers)
    return visit.page(
        "publish.html",
        info=stream.cached_info,
        tab="publish",
        again=again,
        subject=subject,
        headers=headers,
        body=body,
    )


async def publish(request: Request) -> Response:
    """Store a message."""
    visit = Visit(request)
    form = await visit.form()
    subject = form.get("subject", "").strip()
    if not subject:
        raise FormError("A message needs a subject.")
    body = form.get("body", "").replace("\r\n", "\n").encode()
    ack = await visit.js.publish(subject, body, headers=headers_of(form.get("headers", "")))
    stream = segment(ack.stream)
    notice = f"Stored on {subject} as message {ack.sequence:,} of {ack.stream}."
    return visit.go(f"/streams/{stream}/messages", notice)


def headers_of(text: str) -> Headers:
    """Headers, one a line. Raises `FormError`."""
    headers = Headers()
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise FormError(f"Headers are lines like Name: value; {line!r} has no colon.")
        headers.add(name.strip(), value.strip())
    return headers


async def export(request: Request) -> Response:
    """The messages that match as lines of JSON, to keep."""
    visit = Visit(request)
    stream = await visit.js.stream(visit.path("stream"))
    wish = Wish.of(visit)
    where = parse(wish.where)
    begin = await _sequence_of(stream, wish.start) or 1

    async def lines() -> AsyncIterator[bytes]:
        async for message in reading.forward(stream, begin, wish.subject, EXPORTED_MAX):
            if reading.matches(message, where, visit.masks):
                yield exported(message, visit.masks)

    name = f"{stream.name}.jsonl".encode("ascii", "replace").decode().replace('"', "_")
    disposition = f'attachment; filename="{name}"'
    return StreamingResponse(
        lines(),
        media_type="application/x-ndjson",
        headers={"content-disposition": disposition},
    )


def exported(message: StoredMessage, masks: Masks) -> bytes:
    """A message as one line of JSON; a body that is no text is in base64."""
    body: Body = masks.body(message.data)
    line: dict[str, Any] = {
        "stream": message.stream,
        "sequence": message.sequence,
        "subject": message.subject,
        "time": datetime_text(message.time) if message.time else None,
        "headers": masks.headers(message.headers),
    }
    try:
        line["data"] = body.data.decode()
    except UnicodeDecodeError:
        line |= {"data": body.data, "encoding": "base64"}
    return msgspec.json.encode(line) + b"\n"


ROUTES = (
    ("GET", "/streams/{stream}/messages", messages),
    ("GET", "/streams/{stream}/messages/{sequence}", message),
    ("POST", "/streams/{stream}/messages/{sequence}/delete", delete_message),
    ("GET", "/streams/{stream}/export", export),
    ("GET", "/streams/{stream}/publish", compose),
    ("POST", "/streams/{stream}/publish", publish),
)
