"""Key-value buckets: keys, values, their history with what changed, and editing."""

import difflib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from slipstream.client.jetstream import StreamInfo
from slipstream.client.kv import KeyValueEntry
from slipstream.client.kv.entries import operation_of
from slipstream.console.bodies import Masks, View, preview, views
from slipstream.console.render import query, segment
from slipstream.console.visit import FormError, Visit, event, whole_number

KEYS_PER_PAGE = 50
HISTORY_MAX = 64  # as many as a bucket can keep
DIFF_LINES_MAX = 200


class Key(NamedTuple):
    """A key with its latest entry."""

    name: str
    revision: int
    created: datetime | None
    size: int
    preview: str
    operation: str


class Revision(NamedTuple):
    """An entry of a key's history; `changes` are the lines of a diff with the one before."""

    revision: int
    created: datetime
    operation: str
    size: int
    preview: str
    changes: list[tuple[str, str]]


async def buckets(request: Request) -> Response:
    """The list."""
    visit = Visit(request)
    look = await visit.sampler.fresh()
    found = [info for info in look.streams if info.name.startswith("KV_")]
    return visit.page("buckets.html", look=look, buckets=found)


async def keys(request: Request) -> Response:
    """A page of a bucket's keys, with their latest values."""
    visit = Visit(request)
    bucket, wanted, at = visit.path("bucket"), visit.asked("q"), visit.asked_number("at")
    name = f"KV_{bucket}"
    prefix = f"$KV.{bucket}."
    if any(c.isspace() for c in wanted):
        raise FormError("A filter of keys has no blanks; orders.> or *.eu are filters.")
    is_pattern = "*" in wanted or ">" in wanted
    body = {"subjects_filter": f"{prefix}{wanted if is_pattern else '>'}"}
    info = StreamInfo.from_wire(await visit.js.api.request(f"STREAM.INFO.{name}", body))
    names = sorted(subject.removeprefix(prefix) for subject in info.state.subjects)
    if wanted and not is_pattern:
        names = [key for key in names if wanted in key]
    page = names[at : at + KEYS_PER_PAGE]
    return visit.page(
        "keys.html",
        info=info,
        bucket=bucket,
        keys=await _latest(visit, bucket, page),
        at=at,
        total=len(names),
        is_partial=info.total > len(info.state.subjects),
        counted=len(info.state.subjects),
        per_page=KEYS_PER_PAGE,
        wanted=wanted,
    )


async def _latest(visit: Visit, bucket: str, names: list[str]) -> list[Key]:
    """The latest entry of each key, in one request."""
    if not names:
        return []
    prefix = f"$KV.{bucket}."
    stream = await visit.js.stream(f"KV_{bucket}")
    found = {}
    async for message in stream.last_for([prefix + name for name in names]):
        body = visit.masks.body(message.data)
        key = message.subject.removeprefix(prefix)
        operation = operation_of(message.headers.get).value
        found[key] = Key(
            key, message.sequence, message.time, len(message.data), preview(body), operation
        )
    return [found[name] for name in names if name in found]


async def key(request: Request) -> Response:
    """One key: its value and its history."""
    visit = Visit(request)
    bucket, name = visit.path("bucket"), visit.asked("key")
    kv = await visit.js.key_value(bucket)
    history = (await kv.history(name))[-HISTORY_MAX:]
    latest = history[-1]
    body = visit.masks.body(latest.data)
    text = _text_of(latest)
    return visit.page(
        "key.html",
        bucket=bucket,
        key=name,
        latest=latest,
        operation=latest.operation.value,
        views=views(body),
        text=text,
        can_edit=text is not None and not body.is_masked,
        is_masked=body.is_masked,
        history=list(reversed(_history(history, visit.masks))),
    )


def _text_of(entry: KeyValueEntry) -> str | None:
    """A value as a form can hold it; None if it is no text."""
    try:
        return entry.data.decode()
    except UnicodeDecodeError:
        return None


def _history(entries: list[KeyValueEntry], masks: Masks) -> list[Revision]:
    found, before = [], ""
    for entry in entries:
        body = masks.body(entry.data)
        shown: list[View] = views(body)
        text = shown[0].text if shown else ""
        found.append(
            Revision(
                entry.revision,
                entry.created,
                entry.operation.value,
                len(entry.data),
                preview(body),
                changes_between(before, text) if entry is not entries[0] else [],
            )
        )
        before = text
    return found


def changes_between(before: str, after: str) -> list[tuple[str, str]]:
    """The lines of a diff: each with "add", "del" or "" for one that stays."""
    kinds = {"+": "add", "-": "del", " ": ""}
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))
    return [(kinds[line[0]], line[1:]) for line in lines[2:] if line[0] in kinds][:DIFF_LINES_MAX]


async def watch(request: Request) -> Response:
    """Changes of a bucket since the page was made, as they happen."""
    visit = Visit(request)
    bucket, seen = visit.path("bucket"), visit.seen()
    kv = await visit.js.key_value(bucket)
    if seen is None:
        watching = await kv.watch(updates_only=True)
    else:
        watching = await kv.watch(resume_from=seen + 1)

    async def events() -> AsyncIterator[str]:
        async with watching:
            async for entry in watching:
                if entry is None:
                    continue
                body = visit.masks.body(entry.data)
                found = Key(
                    entry.key, entry.revision, entry.created, len(entry.data), preview(body),
                    entry.operation.value,
                )  # fmt: skip
                text = visit.text("_key_change.html", bucket=bucket, key=found)
                yield event("change", text, entry.revision)

    return visit.stream(events())


# -- changing ----------------------------------------------------------------------------------


def _address(bucket: str, name: str) -> str:
    return f"/kv/{segment(bucket)}/key{query(key=name)}"


async def put(request: Request) -> Response:
    """Store a value; only if the key is still at the revision that the form was made from."""
    visit = Visit(request)
    bucket, form = visit.path("bucket"), await visit.form()
    name = form.get("key", "").strip()
    if not name:
        raise FormError("A value needs a key.")
    kv = await visit.js.key_value(bucket)
    value = form.get("value", "").replace("\r\n", "\n").encode()
    if "revision" in form:
        before = whole_number(form["revision"], "The revision")
        revision = await kv.update(name, value, before)
    else:
        revision = await kv.create(name, value)
    return visit.go(_address(bucket, name), f"Key {name} is at revision {revision:,} now.")


async def delete(request: Request) -> Response:
    """Delete a key, once it was typed; its history stays."""
    visit = Visit(request)
    bucket, name = visit.path("bucket"), visit.asked("key")
    form = await visit.confirmed(name)
    kv = await visit.js.key_value(bucket)
    await kv.delete(name, revision=whole_number(form.get("revision", ""), "The revision") or None)
    return visit.go(f"/kv/{segment(bucket)}", f"Key {name} was deleted.")


ROUTES = (
    ("GET", "/kv", buckets),
    ("GET", "/kv/{bucket}", keys),
    ("GET", "/kv/{bucket}/key", key),
    ("GET", "/kv/{bucket}/watch", watch),
    ("POST", "/kv/{bucket}/put", put),
    ("POST", "/kv/{bucket}/delete", delete),
)
