"""`/healthz`: whether all is well, or one stream or consumer is
(docs/protocol/monitoring.md#endpoints)."""

import os.path
import re
from collections.abc import Iterator

import msgspec

from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.protocol.group import online_of, quorum_of
from slipstream.engine.stream.stream import Stream
from slipstream.server.monitoring.monitor import Monitor, uptime_text
from slipstream.server.monitoring.values import Query

# The directories of an absolute path: what follows them is the last part.
_DIRECTORIES = re.compile(r"(?<![^\s'\"(=:,])/(?:[^/\s'\",;:]+/)+")
OK, BAD_REQUEST, NOT_FOUND, ERROR, UNAVAILABLE = 200, 400, 404, 500, 503


class HealthzOptions(msgspec.Struct, kw_only=True, rename="kebab"):
    """What to look at. The names are those of a request's body over `$SYS`."""

    js_enabled: bool = False
    js_enabled_only: bool = False  # the listener, and JetStream where it is configured
    js_server_only: bool = False  # the listener
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""  # of the account
    consumer: str = ""  # of the stream
    details: bool = False


class Problem(msgspec.Struct, omit_defaults=True):
    """One thing that is wrong; `type` says with what."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str = ""


def healthz_options(query: Query) -> HealthzOptions:
    """From an HTTP request. Raises `BadRequest`."""
    return HealthzOptions(
        js_enabled=query.boolean("js-enabled"),
        js_enabled_only=query.boolean("js-enabled-only"),
        js_server_only=query.boolean("js-server-only"),
        js_meta_only=query.boolean("js-meta-only"),
        account=query.text("account"),
        stream=query.text("stream"),
        consumer=query.text("consumer"),
        details=query.boolean("details"),
    )


def healthz(monitor: Monitor, options: HealthzOptions) -> tuple[int, dict[str, object]]:
    """The HTTP status, and the answer."""
    return healthz_answer(monitor, options, *problems_of(monitor, options))


def healthz_answer(
    monitor: Monitor, options: HealthzOptions, status: int, problems: list[Problem]
) -> tuple[int, dict[str, object]]:
    """The HTTP status, and the answer about these `problems`."""
    if status == OK:
        return OK, {"status": "ok"}
    for problem in problems:
        problem.error = without_paths(problem.error, monitor.options.jetstream.store_dir)
    if options.details:
        return status, {"status": "error", "errors": problems}
    word = "unavailable" if status in (UNAVAILABLE, NOT_FOUND) else "error"
    return status, {"status": word, "error": problems[0].error}


def without_paths(text: str, store_dir: str) -> str:
    """`text` for whom the server's directories do not concern: the store's files are named from
    there on, others by their last part. The server's log has all of it."""
    for directory in (store_dir, os.path.abspath(store_dir)):
        if directory:
            root = directory.rstrip("/")
            text = text.replace(root + "/jetstream/", "").replace(root + "/", "")
            text = text.replace(root, "the store")
    return _DIRECTORIES.sub("", text)


def problems_of(monitor: Monitor, options: HealthzOptions) -> tuple[int, list[Problem]]:
    """The HTTP status, and all that is wrong, paths included."""
    account, stream, consumer = options.account, options.stream, options.consumer
    if stream and not account:
        what = '"account" must not be empty when checking stream health'
        return BAD_REQUEST, [Problem("BAD_REQUEST", error=what)]
    if consumer and not stream:
        what = '"stream" must not be empty when checking consumer health'
        return BAD_REQUEST, [Problem("BAD_REQUEST", error=what)]
    if not monitor.is_listening:
        return ERROR, [Problem("CONNECTION", error="not listening")]
    if options.js_server_only or not monitor.options.jetstream.enabled:
        return OK, []
    if options.js_enabled or options.js_enabled_only:
        return OK, []
    lonely = _without_majority(monitor)
    if options.js_meta_only or lonely is not None:
        return (UNAVAILABLE, [lonely]) if lonely is not None else (OK, [])
    if account:
        return _look_at_one(monitor, account, stream, consumer)
    problems = [
        problem
        for found in monitor.engine.accounts.values()
        if found.jetstream is not None
        for problem in _problems(found.jetstream)
    ]
    return (UNAVAILABLE, problems) if problems else (OK, [])


def _without_majority(monitor: Monitor) -> Problem | None:
    """What is wrong where a group has too few servers to go on."""
    group = monitor.engine.group
    if group is None or online_of(group) >= quorum_of(group):
        return None
    gone = [
        f"{member.name} for {uptime_text(member.active)}"
        for member in group.followers
        if member.is_offline
    ]
    what = f"JetStream has no majority of the group {group.name}: nothing was heard of "
    return Problem("JETSTREAM", error=what + ", ".join(gone))


def _look_at_one(
    monitor: Monitor, account: str, stream: str, consumer: str
) -> tuple[int, list[Problem]]:
    found = monitor.engine.accounts.get(account)
    if found is None or found.jetstream is None:
        what = f'JetStream account "{account}" not found'
        return NOT_FOUND, [Problem("ACCOUNT", account, error=what)]
    if not stream:
        problems = list(_problems(found.jetstream))
        return (UNAVAILABLE, problems) if problems else (OK, [])
    one = found.jetstream.streams.get(stream)
    if one is None:
        what = f'JetStream stream "{stream}" not found on account "{account}"'
        return NOT_FOUND, [Problem("STREAM", account, stream, error=what)]
    if consumer and consumer not in one.consumers and consumer not in one.doubtful:
        what = (
            f'JetStream consumer "{consumer}" not found for stream "{stream}" '
            f'on account "{account}"'
        )
        return NOT_FOUND, [Problem("CONSUMER", account, stream, consumer, what)]
    problem = problem_of(one, consumer)
    return (UNAVAILABLE, [problem]) if problem is not None else (OK, [])


def _problems(js: JetStream) -> Iterator[Problem]:
    """What recovery found wrong, and streams that the disk has failed."""
    for text in js.problems:
        yield Problem("STREAM", js.account.name, error=text)
    for stream in js.streams.values():
        problem = _problem(stream)
        if problem is not None:
            yield problem


def problem_of(stream: Stream, consumer: str) -> Problem | None:
    """What is wrong with one stream, or with its consumer of this name."""
    account = stream.js.account.name
    doubts = stream.js.doubts
    if consumer and doubts.of(stream.name, consumer):
        return Problem("CONSUMER", account, stream.name, consumer, doubts.of(stream.name, consumer))
    if doubts.of(stream.name):
        return Problem("STREAM", account, stream.name, error=doubts.of(stream.name))
    return _problem(stream)


def _problem(stream: Stream) -> Problem | None:
    if not stream.failed:
        return None
    account = stream.js.account.name
    what = f"JetStream stream '{account} > {stream.name}' does not store any more: {stream.failed}"
    return Problem("STREAM", account, stream.name, error=what)
