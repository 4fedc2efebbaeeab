"""`/subsz`: subscriptions and the cache of routes (docs/protocol/monitoring.md#endpoints).

Counts are of clients' subscriptions and of the server's own; the list has those of clients.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from slipstream.engine.session.account import Account
from slipstream.engine.session.facts import session_facts
from slipstream.server.monitoring.endpoints.connz import LIMIT_DEFAULT, subscription_detail
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import BadRequest, Query
from slipstream.wire.subjects import is_literal, matches

_ALL = 2**62


class SubszOptions(msgspec.Struct, kw_only=True):
    """What to list. The names are those of a request's body over `$SYS`."""

    offset: int = 0
    limit: int = 0  # 0 is 1024
    subscriptions: bool = False  # list them
    account: str = ""  # only of this account
    test: str = ""  # only those that a message on this subject would reach


def subsz_options(query: Query) -> SubszOptions:
    """From an HTTP request. Raises `BadRequest`."""
    return SubszOptions(
        offset=query.integer("offset"),
        limit=query.integer("limit"),
        subscriptions=query.boolean("subs"),
        account=query.text("acc"),
        test=query.text("test"),
    )


def subsz(monitor: Monitor, options: SubszOptions) -> dict[str, Any]:
    """The subscriptions. Raises `BadRequest`."""
    test = options.test.encode()
    if test and not is_literal(test):
        raise BadRequest(f"invalid test subject, must be valid publish subject: {options.test}")
    accounts = monitor.engine.accounts
    chosen = [a for name, a in accounts.items() if not options.account or name == options.account]
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else LIMIT_DEFAULT
    answer = {
        **monitor.head(),
        **sublist_stats(chosen),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if options.subscriptions:
        found = [
            subscription_detail(subscription, session.cid, account.name)
            for account in chosen
            for session in account.sessions.values()
            for subscription in session_facts(session, _ALL).subscriptions
            if not test or matches(subscription.subject.encode(), test)
        ]
        answer["total"] = len(found)
        page = found[offset : offset + limit]
        if page:
            answer["subscriptions_list"] = page
    return answer


def sublist_stats(accounts: Iterable[Account]) -> dict[str, Any]:
    """How many subscriptions there are, and how routes were found."""
    found = list(accounts)
    lookups = sum(account.lookups for account in found)
    misses = sum(account.misses for account in found)
    fans = [fan for account in found for fan in _fans(account)]
    return {
        "num_subscriptions": sum(len(account.trie) for account in found),
        "num_cache": len(fans),
        "num_inserts": sum(account.inserts for account in found),
        "num_removes": sum(account.removes for account in found),
        "num_matches": lookups,
        "cache_hit_rate": (lookups - misses) / lookups if lookups else 0,
        "max_fanout": max(fans, default=0),
        "avg_fanout": sum(fans) / len(fans) if fans else 0,
    }


def _fans(account: Account) -> list[int]:
    """How many each route that is kept reaches."""
    return [
        len(route.plain) + sum(len(group) for group in route.queues) + len(route.services)
        for route in account.kept_routes()
    ]
