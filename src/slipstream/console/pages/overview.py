"""The first page: what there is, how much moves, and what needs attention."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from slipstream.cli.values import show_duration, show_size
from slipstream.client.jetstream import ConsumerInfo, StreamInfo
from slipstream.console.pages.connections import SLOW_BYTES_PENDING_MIN
from slipstream.console.render import plural, query, segment, show_count
from slipstream.console.sampler import Look, Sampler
from slipstream.console.standing import ACKS, NO_LISTENER, NO_REQUEST, PAUSED, standing
from slipstream.console.visit import Visit, event

FULL_SHARE = 0.9  # of a limit, from which on it is worth a word
FINDINGS_MAX = 50


class Finding(NamedTuple):
    """One thing to look at; `level` is "bad" or "warn"."""

    level: str
    text: str
    address: str


async def overview(request: Request) -> Response:
    """The page; its figures are replaced by those of each later look."""
    visit = Visit(request)
    look = await visit.sampler.fresh()
    return visit.page("overview.html", **_names(look, visit.sampler))


async def changes(request: Request) -> Response:
    """The figures, again with each look of the sampler."""
    visit = Visit(request)

    async def events() -> AsyncIterator[str]:
        while True:
            look = await visit.sampler.changed()
            names = _names(look, visit.sampler)
            for part in ("tiles", "lists"):
                yield event(part, visit.text(f"_overview_{part}.html", **names))

    return visit.stream(events())


def _names(look: Look, sampler: Sampler) -> dict[str, Any]:
    busiest = sorted(
        look.streams, key=lambda info: sampler.history.latest(f"in {info.name}"), reverse=True
    )
    findings = attention(look)
    return {
        "look": look,
        "history": sampler.history,
        "busiest": busiest[:5],
        "findings": findings[:FINDINGS_MAX],
        "more_findings": max(len(findings) - FINDINGS_MAX, 0),
    }


def attention(look: Look) -> list[Finding]:
    """What somebody should look at, the worst first."""
    found = [*_of_account(look), *_of_clusters(look)]
    for info in look.streams:
        found += _of_stream(info)
    for one in look.consumers:
        found += _of_consumer(one)
    found += _of_connections(look)
    return sorted(found, key=lambda finding: finding.level)


def _of_account(look: Look) -> list[Finding]:
    limits = look.account.limits
    kinds = (
        ("File storage", look.account.storage, limits.max_storage),
        ("Memory storage", look.account.memory, limits.max_memory),
    )
    return [
        Finding("bad", f"{kind}: {show_size(used)} of {show_size(most)} are used.", "/streams")
        for kind, used, most in kinds
        if 0 < most <= used / FULL_SHARE
    ]


def _of_clusters(look: Look) -> list[Finding]:
    """Servers of clusters that are away or behind, each once, however many streams they have."""
    found: dict[str, Finding] = {}
    for info in look.streams:
        others = info.cluster.replicas if info.cluster is not None else []
        for one in others:
            address = f"/streams/{segment(info.name)}"
            if one.offline and len(others) == 1:
                text = f"Server {one.name} is away; until it is back there is one copy of streams."
                found[one.name] = Finding("bad", text, address)
            elif one.offline:
                text = f"Server {one.name} is away; copies of streams are missing there."
                found[one.name] = Finding("bad", text, address)
            elif not one.current:
                how = f"behind by {plural(one.lag, 'operation')}" if one.lag else "coming back"
                found.setdefault(one.name, Finding("warn", f"Server {one.name} is {how}.", address))
    return list(found.values())


def _of_stream(info: StreamInfo) -> list[Finding]:
    found, config, state = [], info.config, info.state
    address = f"/streams/{segment(info.name)}"
    if state.lost is not None and state.lost.msgs:
        text = f"Stream {info.name} has lost {plural(len(state.lost.msgs), 'message')}."
        found.append(Finding("bad", text, address))
    if config.discard == "new":
        for used, most, text in (
            (state.messages, config.max_msgs, show_count(config.max_msgs)),
            (state.bytes, config.max_bytes, show_size(max(config.max_bytes, 0))),
        ):
            if 0 < most <= used / FULL_SHARE:
                found.append(
                    Finding(
                        "bad" if used >= most else "warn",
                        f"Stream {info.name} is {used / most:.0%} full (of {text}) and refuses "
                        "what does not fit.",
                        address,
                    )
                )
    upstreams = [*([info.mirror] if info.mirror else []), *info.sources]
    found += [
        Finding("warn", f"Stream {info.name} cannot copy from {one.name}: "
                f"{one.error.get('description', 'it has failed')}.", address)
        for one in upstreams
        if one.error
    ]  # fmt: skip
    return found


def _of_consumer(info: ConsumerInfo) -> list[Finding]:
    whose = f"{info.name} of {info.stream_name}"
    name = f"Consumer {whose}"
    address = f"/streams/{segment(info.stream_name)}/consumers/{segment(info.name)}"
    waits = "waits" if info.num_pending == 1 else "wait"
    waiting = f"{plural(info.num_pending, 'message')} {waits}"
    word, level = standing(info)
    left = show_duration(info.pause_remaining)
    texts = {
        PAUSED: f"{name} is paused for another {left}; {waiting}.",
        ACKS: f"{name} waits for acknowledgements: "
        f"all {info.config.max_ack_pending:,} that may be out are out.",
        NO_LISTENER: f"Nobody listens to consumer {whose}; {waiting}.",
        NO_REQUEST: f"Nobody asks consumer {whose} for messages; {waiting}.",
    }
    found = [Finding(level, texts[word], address)] if level in ("bad", "warn") else []
    if info.num_redelivered:
        text = f"{name} has delivered {plural(info.num_redelivered, 'message')} more than once."
        found.append(Finding("warn", text, address))
    return found


def _of_connections(look: Look) -> list[Finding]:
    return [
        Finding(
            "warn",
            f"Connection {one.get('name') or one.get('cid')} is slow: "
            f"{show_size(one.get('pending_bytes', 0))} wait to be sent to it.",
            "/connections" + query(sort="pending"),
        )
        for one in look.connections
        if int(one.get("pending_bytes", 0)) >= SLOW_BYTES_PENDING_MIN
    ]


ROUTES = (("GET", "/", overview), ("GET", "/live/overview", changes))
