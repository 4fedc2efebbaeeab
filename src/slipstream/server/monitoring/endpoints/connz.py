"""`/connz`: connections, open and ended (docs/protocol/monitoring.md#endpoints)."""

from collections.abc import Callable
from typing import Any

import msgspec

from slipstream.engine.session.facts import SessionFacts, SubscriptionFacts, session_facts
from slipstream.model.durations import duration_text
from slipstream.model.times import time_text
from slipstream.server.monitoring.monitor import Monitor, uptime_text
from slipstream.server.monitoring.values import BadRequest, Query
from slipstream.wire.subjects import is_subset

LIMIT_DEFAULT = 1024
OPEN, CLOSED, ANY = 0, 1, 2
_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ANY, "all": ANY}
_ALL = 2**62

_Key = Callable[[SessionFacts], Any]
# How to sort, and whether the largest comes first.
_SORTS: dict[str, tuple[_Key, bool]] = {
    "cid": (lambda c: c.cid, False),
    "start": (lambda c: c.started, False),
    "subs": (lambda c: c.subscription_count, True),
    "pending": (lambda c: c.pending, True),
    "msgs_to": (lambda c: c.out_msgs, True),
    "msgs_from": (lambda c: c.in_msgs, True),
    "bytes_to": (lambda c: c.out_bytes, True),
    "bytes_from": (lambda c: c.in_bytes, True),
    "last": (lambda c: c.last_activity, True),
    "idle": (lambda c: -c.last_activity, True),
    "uptime": (lambda c: (c.stopped or _ALL) - c.started, True),
    "rtt": (lambda c: c.rtt, True),
    "stop": (lambda c: c.stopped, True),
    "reason": (lambda c: c.reason, False),
}


class ConnzOptions(msgspec.Struct, kw_only=True):
    """What to list. The names are those of a request's body over `$SYS`."""

    sort: str = ""
    auth: bool = False  # show who it is
    subscriptions: bool = False  # list subjects
    subscriptions_detail: bool = False  # ... and all about each
    offset: int = 0
    limit: int = 0  # 0 is 1024
    cid: int = 0  # only this one
    state: int = OPEN
    user: str = ""  # only his
    acc: str = ""  # only of this account
    mqtt_client: str = ""
    filter_subject: str = ""  # only with a subscription within it; needs acc


def connz_options(query: Query) -> ConnzOptions:
    """From an HTTP request. Raises `BadRequest`."""
    detail = query.text("subs").lower() == "detail"
    state = query.text("state")
    options = ConnzOptions(
        sort=query.text("sort"),
        auth=query.boolean("auth"),
        subscriptions=detail or query.boolean("subs"),
        subscriptions_detail=detail,
        offset=query.integer("offset"),
        limit=query.integer("limit"),
        cid=query.identifier("cid"),
        user=query.text("user"),
        acc=query.text("acc"),
        mqtt_client=query.text("mqtt_client"),
    )
    if state.lower() not in _STATES:
        raise BadRequest(f"Error decoding state for {state}")
    options.state = _STATES[state.lower()]
    return options


def connz(monitor: Monitor, options: ConnzOptions) -> dict[str, object]:
    """The connections. Raises `BadRequest`."""
    if options.acc and options.acc not in monitor.engine.accounts:
        _order(options)
        return {**_head(monitor, options), "server_id": ""}
    return connz_of(monitor, options, _known(monitor, options))


def connz_of(
    monitor: Monitor, options: ConnzOptions, known: list[SessionFacts]
) -> dict[str, object]:
    """The answer about the connections `known`. Raises `BadRequest`."""
    key, largest_first = _order(options)
    answer = _head(monitor, options)
    found = [facts for facts in known if _is_wanted(facts, options)]
    filtered_by_user = options.cid or options.user or options.filter_subject or options.mqtt_client
    answer["total"] = len(known) if filtered_by_user else len(found)
    found.sort(key=key, reverse=largest_first)
    offset = max(options.offset, 0)
    page = found if options.cid else found[offset : offset + _limit(options)]
    now = monitor.now
    answer["num_connections"] = len(page)
    answer["connections"] = [_shown(facts, options, now) for facts in page]
    return answer


def _head(monitor: Monitor, options: ConnzOptions) -> dict[str, object]:
    return {
        **monitor.head(),
        "num_connections": 0,
        "total": 0,
        "offset": max(options.offset, 0),
        "limit": 1 if options.cid else _limit(options),
        "connections": None,
    }


def _limit(options: ConnzOptions) -> int:
    return options.limit if options.limit > 0 else LIMIT_DEFAULT


def _order(options: ConnzOptions) -> tuple[_Key, bool]:
    name = options.sort or "cid"
    if name not in _SORTS:
        raise BadRequest(f"invalid sorting option: {name}")
    if name in ("stop", "reason") and options.state != CLOSED:
        raise BadRequest(f"sort by {name} only valid on closed connections")
    return _SORTS[name]


def _known(monitor: Monitor, options: ConnzOptions) -> list[SessionFacts]:
    """The connections of the state and account that were asked for."""
    engine = monitor.engine
    found: list[SessionFacts] = []
    if options.state != CLOSED:
        links = [s for s in engine.leaves.sessions.values() if s.ready]
        sessions = [*engine.sessions.values(), *links]
        if options.acc:
            sessions = [s for s in sessions if s.account.name == options.acc]
        wanted = options.subscriptions or options.subscriptions_detail or options.filter_subject
        listed = _ALL if wanted else 0
        found += [session_facts(session, listed) for session in sessions]
    if options.state != OPEN:
        acc = options.acc
        found += [facts for facts in engine.closed_sessions if not acc or facts.account == acc]
    return found


def _is_wanted(facts: SessionFacts, options: ConnzOptions) -> bool:
    if options.cid and facts.cid != options.cid:
        return False
    if options.user and facts.user != options.user:
        return False
    if options.mqtt_client and facts.facts.get("mqtt_client") != options.mqtt_client:
        return False
    wanted = options.filter_subject.encode()
    return not wanted or any(is_subset(s.subject.encode(), wanted) for s in facts.subscriptions)


def _shown(facts: SessionFacts, options: ConnzOptions, now: int) -> dict[str, Any]:
    until = facts.stopped or now
    shown: dict[str, Any] = {
        "cid": facts.cid,
        **_kind(facts),
        "ip": facts.facts.get("ip", ""),
        "port": facts.facts.get("port", 0),
        "start": time_text(facts.started),
        "last_activity": time_text(facts.last_activity),
    }
    if facts.stopped:
        shown |= {"stop": time_text(facts.stopped), "reason": facts.reason}
    if facts.rtt:
        shown["rtt"] = duration_text(facts.rtt // 1000 * 1000)
    shown |= {
        "uptime": uptime_text(until - facts.started),
        "idle": uptime_text(until - facts.last_activity),
        "pending_bytes": facts.pending,
        "in_msgs": facts.in_msgs,
        "out_msgs": facts.out_msgs,
        "in_bytes": facts.in_bytes,
        "out_bytes": facts.out_bytes,
    }
    if facts.facts.get("stalls"):
        shown["stalls"] = facts.facts["stalls"]
    shown["subscriptions"] = facts.subscription_count
    for name in ("name", "lang", "version"):
        if getattr(facts, name):
            shown[name] = getattr(facts, name)
    for name in ("tls_version", "tls_cipher_suite", "tls_peer_certs", "tls_first"):
        if facts.facts.get(name):
            shown[name] = facts.facts[name]
    with_auth = options.auth and facts.is_admitted
    if with_auth:
        shown |= {"authorized_user": facts.user} if facts.user else {}
        shown["account"] = facts.account
    if options.subscriptions_detail and facts.subscriptions:
        shown["subscriptions_list_detail"] = [
            subscription_detail(s, facts.cid) for s in facts.subscriptions
        ]
    elif options.subscriptions and facts.subscriptions:
        shown["subscriptions_list"] = [s.subject for s in facts.subscriptions]
    if with_auth:
        shown["name_tag"] = facts.account
    return shown


def _kind(facts: SessionFacts) -> dict[str, str]:
    kind = facts.facts.get("kind", "Client")
    return {"kind": kind} | ({"type": "nats"} if kind == "Client" else {})


def subscription_detail(facts: SubscriptionFacts, cid: int, account: str = "") -> dict[str, Any]:
    """One subscription; with its `account` where the list mixes them."""
    shown: dict[str, Any] = {"account": account, "account_tag": account} if account else {}
    shown["subject"] = facts.subject
    if facts.queue:
        shown["qgroup"] = facts.queue
    shown |= {"sid": facts.sid, "msgs": facts.delivered}
    if facts.max_messages:
        shown["max"] = facts.max_messages
    shown["cid"] = cid
    return shown
