"""Streams: the list, one of them, its subjects, and changing or removing it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import typer
from starlette.requests import Request
from starlette.responses import Response

from slipstream.cli.stream.tables import own_metadata
from slipstream.cli.values import duration, show_duration, show_limit, show_size, size
from slipstream.client.jetstream import StreamConfig, StreamInfo
from slipstream.client.jetstream.api import check_subject
from slipstream.console.render import plural, segment
from slipstream.console.sampler import History
from slipstream.console.visit import FormError, Visit, whole_number
from slipstream.model.durations import to_seconds

STREAMS_PER_PAGE = 50
SUBJECTS_SHOWN_MAX = 200
SORTS = ("name", "messages", "bytes", "rate", "consumers")


async def streams(request: Request) -> Response:
    """The list; buckets and stores have pages of their own, and are here when asked for."""
    visit = Visit(request)
    look = await visit.sampler.fresh()
    history = visit.sampler.history
    wanted, with_buckets = visit.asked("q"), visit.asked("buckets") == "1"
    plain = [one for one in look.streams if with_buckets or not is_bucket(one.name)]
    found = [one for one in plain if wanted.lower() in _words_of(one)] if wanted else plain
    sort = visit.asked("sort") if visit.asked("sort") in SORTS else "name"
    found = _sorted(found, sort, history)
    at = visit.asked_number("at")
    return visit.page(
        "streams.html",
        look=look,
        streams=found[at : at + STREAMS_PER_PAGE],
        at=at,
        total=len(found),
        all=len(plain),
        buckets=len(look.streams) - len(plain),
        per_page=STREAMS_PER_PAGE,
        history=history,
        sort=sort,
        wanted=wanted,
        with_buckets=with_buckets,
    )


def is_bucket(name: str) -> bool:
    """Whether a stream is the inside of a key-value bucket or object store."""
    return name.startswith(("KV_", "OBJ_"))


def _words_of(info: StreamInfo) -> str:
    config = info.config
    return " ".join([config.name, config.description, *config.subjects]).lower()


def _sorted(found: list[StreamInfo], sort: str, history: History) -> list[StreamInfo]:
    keys: dict[str, Callable[[StreamInfo], float]] = {
        "messages": lambda info: -info.state.messages,
        "bytes": lambda info: -info.state.bytes,
        "rate": lambda info: -history.latest(f"in {info.name}"),
        "consumers": lambda info: -info.state.consumer_count,
    }
    return sorted(found, key=keys[sort]) if sort in keys else found


async def stream(request: Request) -> Response:
    """One stream: what it holds, and its configuration."""
    visit = Visit(request)
    info = await visit.js.stream_info(visit.path("stream"))
    return visit.page(
        "stream.html",
        info=info,
        tab="",
        rate=visit.sampler.history.latest(f"in {info.name}"),
        sections=_sections(info.config),
        document=msgspec.json.format(msgspec.json.encode(info.config.to_wire()), indent=2).decode(),
    )


def _sections(config: StreamConfig) -> list[tuple[str, list[tuple[str, str]]]]:
    """The configuration in words, in groups."""
    return [
        ("Storage", [
            ("Subjects", ", ".join(config.subjects) or "none of its own"),
            ("Storage", config.storage),
            ("Retention", config.retention),
            ("When full", "refuse new messages" if config.discard == "new" else "drop the oldest"),
            ("Replicas", str(config.num_replicas)),
            ("Compression", config.compression),
        ]),
        ("Limits", [
            ("Messages", show_limit(config.max_msgs)),
            ("Messages per subject", show_limit(config.max_msgs_per_subject)),
            ("Bytes", _size_text(config.max_bytes)),
            ("Age", _duration_text(config.max_age)),
            ("Message size", _size_text(config.max_msg_size)),
            ("Consumers", show_limit(config.max_consumers)),
        ]),
        ("Features", [
            ("Duplicate window", _duration_text(config.duplicate_window)),
            *((label, "yes" if getattr(config, name) else "no") for name, label in FLAGS.items()),
        ]),
        *([("Copies", copies)] if (copies := _copies(config)) else []),
        *([("Metadata", own_metadata(config))] if own_metadata(config) else []),
    ]  # fmt: skip


FLAGS = {
    "allow_direct": "Direct get",
    "allow_rollup_hdrs": "Rollups",
    "allow_msg_ttl": "Per-message TTL",
    "allow_atomic": "Atomic batches",
    "allow_msg_counter": "Counters",
    "allow_msg_schedules": "Schedules",
    "deny_delete": "Deletes are denied",
    "deny_purge": "Purges are denied",
    "sealed": "Sealed",
}


def _copies(config: StreamConfig) -> list[tuple[str, str]]:
    found = []
    if config.mirror is not None:
        found.append(("Mirror of", config.mirror.name))
    if config.sources:
        found.append(("Sources", ", ".join(one.name for one in config.sources)))
    if config.republish is not None:
        text = f"{config.republish.src or '>'} to {config.republish.dest}"
        found.append(("Republish", text))
    if config.subject_transform is not None:
        change = config.subject_transform
        found.append(("Subject transform", f"{change.src or '>'} to {change.dest}"))
    return found


def _size_text(count: int) -> str:
    return show_size(count) if count > 0 else "unlimited"


def _duration_text(length: Any) -> str:
    return show_duration(length) if length else "unlimited"


# -- subjects ----------------------------------------------------------------------------------


class Branch(NamedTuple):
    """One step in the tree of subjects: `subjects` below it, with `messages` in them."""

    token: str
    prefix: str
    subjects: int
    messages: int
    is_subject: bool  # it is a subject itself, not only the beginning of others


async def subjects(request: Request) -> Response:
    """The tree of subjects, a level at a time; the server's first page of them is what is shown."""
    visit = Visit(request)
    return await visit.stream_page("stream_subjects.html", "subjects", under=visit.asked("under"))


async def branches(request: Request) -> Response:
    """One level of the tree below a prefix."""
    visit = Visit(request)
    name, under = visit.path("stream"), visit.asked("under")
    pattern = f"{under}.>" if under else ">"
    check_subject(pattern)
    answer = await visit.js.api.request(f"STREAM.INFO.{name}", {"subjects_filter": pattern})
    info = StreamInfo.from_wire(answer)
    found = branches_of(info.state.subjects, under)
    return visit.fragment(
        "_subjects.html",
        stream=name,
        under=under,
        steps=_steps(under),
        branches=found[:SUBJECTS_SHOWN_MAX],
        more=max(len(found) - SUBJECTS_SHOWN_MAX, 0),
        counted=len(info.state.subjects),
        total=max(info.total, len(info.state.subjects)),
    )


def branches_of(counts: dict[str, int], under: str) -> list[Branch]:
    """The subjects below a prefix by their next token, those with the most messages first."""
    depth = under.count(".") + 1 if under else 0
    found: dict[str, list[int]] = {}
    ends = set()
    for subject, count in counts.items():
        tokens = subject.split(".", depth + 1)
        token = tokens[depth]
        sums = found.setdefault(token, [0, 0])
        sums[0] += 1
        sums[1] += count
        if len(tokens) == depth + 1:
            ends.add(token)
    prefix = f"{under}." if under else ""
    made = [
        Branch(token, prefix + token, subjects, messages, token in ends)
        for token, (subjects, messages) in found.items()
    ]
    return sorted(made, key=lambda branch: (-branch.messages, branch.token))


def _steps(under: str) -> list[tuple[str, str]]:
    """The way back up: each token with the prefix that ends in it."""
    tokens = under.split(".") if under else []
    return [(token, ".".join(tokens[: at + 1])) for at, token in enumerate(tokens)]


# -- changing ----------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of the form: how its value is written, and read again."""

    name: str
    label: str
    hint: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _count(text: str) -> int:
    return whole_number(text, "A limit") or -1


def _show_bound(value: int) -> str:
    return str(value) if value > 0 else ""


def _show_length(value: Any) -> str:
    return show_duration(value) if value else ""


def _exact_size(value: int) -> str:
    """A size that is read again as the same number of bytes."""
    if value <= 0:
        return ""
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{unit}"
    return str(value)


FIELDS = (
    Field("description", "Description", "", str, str.strip),
    Field("subjects", "Subjects", "one a line; * and > are wildcards", "\n".join, str.split),
    Field("max_msgs", "Messages at most", "empty: unlimited", _show_bound, _count),
    Field("max_msgs_per_subject", "Messages per subject", "empty: unlimited", _show_bound, _count),
    Field("max_bytes", "Bytes at most", "like 10GiB; empty: unlimited", _exact_size, size),
    Field("max_age", "Age at most", "like 7d or 1h30m; empty: unlimited", _show_length, duration),
    Field("max_msg_size", "Message size", "like 1MiB; empty: unlimited", _exact_size, size),
    Field("duplicate_window", "Duplicate window", "like 2m", _show_length, duration),
)  # fmt: skip
EDITABLE_FLAGS = ("allow_direct", "allow_rollup_hdrs", "deny_delete", "deny_purge")


class Change(NamedTuple):
    """What an update does to one field."""

    label: str
    before: str
    after: str


async def edit(request: Request) -> Response:
    """The configuration as a form."""
    visit = Visit(request)
    info = await visit.js.stream_info(visit.path("stream"))
    values = {field.name: field.write(getattr(info.config, field.name)) for field in FIELDS}
    return visit.page(
        "stream_edit.html",
        info=info,
        tab="edit",
        fields=FIELDS,
        values=values,
        flags=[(name, FLAGS[name], getattr(info.config, name)) for name in EDITABLE_FLAGS],
    )


def changed_config(config: StreamConfig, form: dict[str, str]) -> StreamConfig:
    """The configuration that a form asks for. Raises `FormError`."""
    changes: dict[str, Any] = {}
    for field in FIELDS:
        text = form.get(field.name, "").replace("\r", "")
        if text == field.write(getattr(config, field.name)):
            continue  # also what is shown rounded stays as it is
        try:
            changes[field.name] = field.read(text)
        except typer.BadParameter as error:
            raise FormError(f"{field.label}: {error.message}") from error
    for name in EDITABLE_FLAGS:
        changes[name] = name in form
    if form.get("discard") in ("old", "new"):
        changes["discard"] = form["discard"]
    return config.replace(**changes)


def changes_of(before: StreamConfig, after: StreamConfig) -> list[Change]:
    """What differs between two configurations, in words."""
    found = []
    for field in FIELDS:
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            found.append(Change(field.label, field.write(old), field.write(new)))
    for name in EDITABLE_FLAGS:
        was, is_now = getattr(before, name), getattr(after, name)
        if was != is_now:
            found.append(Change(FLAGS[name], "yes" if was else "no", "yes" if is_now else "no"))
    if before.discard != after.discard:
        found.append(Change("When full", before.discard, after.discard))
    return found


def warnings_of(info: StreamInfo, after: StreamConfig) -> list[str]:
    """What an update would remove."""
    state, found = info.state, []
    if 0 < after.max_msgs < state.messages:
        surplus = state.messages - after.max_msgs
        found.append(f"{plural(surplus, 'message')} too many for the new limit will go.")
    if 0 < after.max_bytes < state.bytes:
        surplus = state.bytes - after.max_bytes
        found.append(f"{show_size(surplus)} too many for the new limit will go.")
    age = to_seconds(after.max_age, "max_age")
    shorter = 0 < age < (to_seconds(info.config.max_age, "max_age") or float("inf"))
    if shorter:
        found.append(f"Messages older than {show_duration(age)} are removed.")
    if after.max_msgs_per_subject > 0 and after.max_msgs_per_subject != (
        info.config.max_msgs_per_subject
    ):
        found.append(f"Each subject keeps its last {after.max_msgs_per_subject:,} messages.")
    gone = set(info.config.subjects) - set(after.subjects)
    if gone:
        found.append(f"What is published on {', '.join(sorted(gone))} is no longer stored.")
    return found


async def review(request: Request) -> Response:
    """What an update would change; nothing is done yet."""
    visit = Visit(request)
    info = await visit.js.stream_info(visit.path("stream"))
    form = await visit.form()
    after = changed_config(info.config, form)
    return visit.fragment(
        "_changes.html",
        stream=info.name,
        changes=changes_of(info.config, after),
        warnings=warnings_of(info, after),
        form=form,
    )


async def update(request: Request) -> Response:
    """Do what was reviewed."""
    visit = Visit(request)
    name = visit.path("stream")
    info = await visit.js.stream_info(name)
    after = changed_config(info.config, await visit.form())
    await visit.js.update_stream(after)
    count = len(changes_of(info.config, after))
    text = f"Stream {name} was updated: {count} {'field' if count == 1 else 'fields'}."
    return visit.go(f"/streams/{segment(name)}", text)


async def danger(request: Request) -> Response:
    """Purging and deleting."""
    visit = Visit(request)
    return await visit.stream_page("stream_danger.html", "danger", subject=visit.asked("subject"))


async def purge(request: Request) -> Response:
    """Remove messages, once the stream's name was typed."""
    visit = Visit(request)
    name = visit.path("stream")
    form = await visit.confirmed(name)
    keep = whole_number(form.get("keep", ""), "How many to keep")
    below = whole_number(form.get("sequence", ""), "The sequence")
    if keep and below:
        raise FormError("Purge up to a sequence, or all but the newest; not both.")
    subject = form.get("subject", "").strip()
    gone = await visit.js.purge_stream(name, filter=subject, sequence=below, keep=keep)
    return visit.go(f"/streams/{segment(name)}", f"{_messages(gone, name)} purged.")


def _messages(count: int, stream: str) -> str:
    return f"{plural(count, 'message')} of {stream} {'was' if count == 1 else 'were'}"


async def delete(request: Request) -> Response:
    """Remove the stream, once its name was typed."""
    visit = Visit(request)
    name = visit.path("stream")
    await visit.confirmed(name)
    await visit.js.delete_stream(name)
    return visit.go("/streams", f"Stream {name} was deleted.")


ROUTES = (
    ("GET", "/streams", streams),
    ("GET", "/streams/{stream}", stream),
    ("GET", "/streams/{stream}/subjects", subjects),
    ("GET", "/streams/{stream}/branches", branches),
    ("GET", "/streams/{stream}/edit", edit),
    ("POST", "/streams/{stream}/review", review),
    ("POST", "/streams/{stream}/update", update),
    ("GET", "/streams/{stream}/danger", danger),
    ("POST", "/streams/{stream}/purge", purge),
    ("POST", "/streams/{stream}/delete", delete),
)
