"""`/leafz`: links to other servers (docs/protocol/monitoring.md#endpoints)."""

from typing import Any

import msgspec

from slipstream.engine.leaf.compression import OFF
from slipstream.engine.leaf.session import LeafSession
from slipstream.model.durations import duration_text
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import Query


class LeafzOptions(msgspec.Struct, kw_only=True):
    """What to list. The names are those of a request's body over `$SYS`."""

    subscriptions: bool = False
    account: str = ""  # only of this one


def leafz_options(query: Query) -> LeafzOptions:
    """From an HTTP request. Raises `BadRequest`."""
    return LeafzOptions(subscriptions=query.boolean("subs"), account=query.text("acc"))


def leafz(monitor: Monitor, options: LeafzOptions) -> dict[str, Any]:
    """The links that are up."""
    found = [
        _shown(session, options.subscriptions)
        for session in monitor.engine.leaves.sessions.values()
        if session.ready and options.account in ("", session.account.name)
    ]
    return {**monitor.head(), "leafnodes": len(found), "leafs": found}


def leaf_settings(monitor: Monitor) -> dict[str, Any]:
    """`leaf` in varz: the port, and the hubs."""
    options = monitor.options.leafnodes
    listener = monitor.engine.leaves.listener
    shown: dict[str, Any] = {}
    if listener.port:
        tls = options.tls
        shown = {
            "host": listener.host,
            "port": listener.port,
            "auth_timeout": listener.auth_timeout / 1e9,
            "tls_timeout": tls.timeout / 1e9 if tls is not None else 2,
        }
        if listener.tls_required:
            shown["tls_required"] = True
        if listener.tls_verify:
            shown["tls_verify"] = True
    if options.remotes:
        shown["remotes"] = [
            {
                "local_account": remote.account,
                "urls": [url.partition("://")[2].rpartition("@")[2] for url in remote.urls],
            }
            for remote in options.remotes
        ]
    return shown


def _shown(session: LeafSession, with_subscriptions: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": session.cid,
        "name": session.server,
        "is_spoke": session.is_spoke,
        "account": session.account.name,
        "ip": session.facts.get("ip", ""),
        "port": session.facts.get("port", 0),
    }
    if session.rtt:
        shown["rtt"] = duration_text(session.rtt // 1000 * 1000)
    shown |= {
        "in_msgs": session.in_msgs,
        "out_msgs": session.out_msgs,
        "in_bytes": session.in_bytes,
        "out_bytes": session.out_bytes,
        "subscriptions": len(session.subscriptions),
    }
    if with_subscriptions and session.subscriptions:
        shown["subscriptions_list"] = [
            subscription.subject.decode(errors="replace")
            for subscription in session.subscriptions.values()
        ]
    shown["compression"] = session.packing.level if session.packing else OFF
    return shown
