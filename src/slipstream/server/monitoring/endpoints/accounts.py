"""`/accountz` and `/accstatz`: accounts, and what their connections did."""

from typing import Any

import msgspec

from slipstream.engine.session.account import Account
from slipstream.model.times import time_text
from slipstream.server.monitoring.endpoints.subsz import sublist_stats
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.values import BadRequest, Query
from slipstream.server.options import AccountOptions
from slipstream.server.sharing import SERVICE, STREAM, ImportOptions
from slipstream.wire.subject_pair import SubjectPair

_RESPONSE_TYPES = {"singleton": "Singleton", "stream": "Streamed", "chunked": "Chunked"}


class AccountzOptions(msgspec.Struct, kw_only=True):
    """Which account; "" lists the names of all."""

    account: str = ""


class AccstatzOptions(msgspec.Struct, kw_only=True):
    """Which accounts: those with connections, or those named, or all."""

    accounts: list[str] = msgspec.field(default_factory=list)
    include_unused: bool = False


def accountz_options(query: Query) -> AccountzOptions:
    """From an HTTP request."""
    return AccountzOptions(account=query.text("acc"))


def accstatz_options(query: Query) -> AccstatzOptions:
    """From an HTTP request. Raises `BadRequest`."""
    return AccstatzOptions(include_unused=query.boolean("unused"))


def accountz(monitor: Monitor, options: AccountzOptions) -> dict[str, Any]:
    """Names of accounts, or all about one. Raises `BadRequest` if there is no such account."""
    answer = monitor.head()
    if not monitor.options.no_system_account:
        answer["system_account"] = monitor.engine.system_account.name
    if options.account:
        answer["account_detail"] = account_detail(monitor, options.account)
    else:
        answer["accounts"] = sorted(monitor.engine.accounts)
    return answer


def account_detail(monitor: Monitor, name: str) -> dict[str, Any]:
    """All about one account. Raises `BadRequest` if there is none of that name."""
    account = monitor.engine.accounts.get(name)
    if account is None:
        raise BadRequest(f"Account {name} does not exist")
    detail: dict[str, Any] = {
        "account_name": name,
        "update_time": time_text(monitor.loaded_at),
    }
    if account is monitor.engine.system_account:
        detail["is_system"] = True
    detail |= {
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.jetstream is not None,
        "leafnode_connections": len(account.links),
        "client_connections": len(account.sessions),
        "subscriptions": len(account.trie),
    }
    configured = monitor.options.accounts.get(name, AccountOptions(name=name))
    exports = _exports_of(configured)
    if account is monitor.engine.system_account:
        exports = _exports(monitor) + exports
    if exports:
        detail["exports"] = exports
    imports = [_import_of(each) for each in configured.imports]
    streams = [each for each in imports if each["type"] == STREAM]
    services = [each for each in imports if each["type"] == SERVICE]
    detail["imports"] = [*streams, *_imports(monitor, name), *services]
    mappings = _mappings(monitor, name)
    if mappings:
        detail["mappings"] = mappings
    detail["name_tag"] = name
    detail["sublist_stats"] = sublist_stats([account])
    return detail


def _exports(monitor: Monitor) -> list[dict[str, Any]]:
    """The services of the system account that every other account reaches."""
    services = {
        "$SYS.REQ.ACCOUNT.*.CONNZ": "Streamed",
        "$SYS.REQ.ACCOUNT.*.STATZ": "Streamed",
        "$SYS.REQ.USER.*.INFO": "Singleton",
    }
    if monitor.options.jetstream.enabled:
        services["$JS.API.>"] = "Singleton"
    return [
        {"subject": subject, "type": "service", "response_type": kind}
        for subject, kind in services.items()
    ]


def _exports_of(configured: AccountOptions) -> list[dict[str, Any]]:
    """What the configuration lets others have: services first, as nats-server has it."""
    shown = []
    for export in sorted(configured.exports, key=lambda export: export.kind == STREAM):
        one: dict[str, Any] = {"subject": export.subject, "type": export.kind}
        if export.kind == SERVICE:
            one["response_type"] = _RESPONSE_TYPES[export.response_type]
        if export.accounts is not None:
            one["approved_accounts"] = sorted(export.accounts)
        shown.append(one)
    return shown


def _import_of(wanted: ImportOptions) -> dict[str, Any]:
    """An import of the configuration."""
    local = SubjectPair(wanted.subject, wanted.local).ours.decode()
    shown: dict[str, Any] = {"subject": wanted.subject, "account": wanted.account}
    if wanted.kind == SERVICE:
        shown["to"] = local
    return shown | {
        "local_subject": local,
        "type": wanted.kind,
        "invalid": False,
        "share": wanted.share and wanted.kind == SERVICE,
        "tracking": False,
    }


def _imports(monitor: Monitor, name: str) -> list[dict[str, Any]]:
    """Those services as an account sees them: what its clients ask, and what answers."""
    services = [(f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", True)]
    if name != monitor.engine.system_account.name:
        connections, statistics = (f"$SYS.REQ.ACCOUNT.{name}.{kind}" for kind in ("CONNZ", "STATZ"))
        services = [
            (connections, "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
            (connections, "$SYS.REQ.SERVER.PING.CONNZ", False),
            (statistics, "$SYS.REQ.ACCOUNT.PING.STATZ", False),
            *services,
        ]
        if monitor.options.jetstream.enabled:
            services.append(("$JS.API.>", "$JS.API.>", True))
    return [
        {
            "subject": subject,
            "account": monitor.engine.system_account.name,
            "to": local,
            "local_subject": local,
            "type": "service",
            "invalid": False,
            "share": share,
            "tracking": False,
        }
        for subject, local, share in services
    ]


def _mappings(monitor: Monitor, name: str) -> dict[str, Any]:
    options = monitor.options
    own = options.accounts.get(name, AccountOptions(name=name)).mappings
    if name == monitor.engine.default_account.name:
        own = options.mappings
    return {
        mapping.source: [
            {"subject": to.subject, "weight": to.weight}
            | ({"cluster": to.cluster} if to.cluster else {})
            for to in mapping.destinations
        ]
        for mapping in own
    }


def accstatz(monitor: Monitor, options: AccstatzOptions) -> dict[str, Any]:
    """What the connections of accounts sent and received."""
    accounts = monitor.engine.accounts
    names = [name for name in sorted(accounts) if name in (options.accounts or accounts)]
    found = [account_stat(monitor, accounts[name]) for name in names]
    shown = [
        stat for stat in found if stat["total_conns"] or options.include_unused or options.accounts
    ]
    return {**monitor.head(), "account_statz": shown}


def account_stat(monitor: Monitor, account: Account) -> dict[str, Any]:
    """What one account's connections sent and received, as advisories have it too."""
    traffic = monitor.traffic(account.name)
    connections = len(account.sessions)
    return {
        "acc": account.name,
        "name": account.name,
        "conns": connections,
        "leafnodes": len(account.links),
        "total_conns": connections + len(account.links),
        "num_subscriptions": len(account.trie),
        "sent": _data(traffic.out_msgs, traffic.out_bytes),
        "received": _data(traffic.in_msgs, traffic.in_bytes),
        "slow_consumers": traffic.slow,
    }


def _data(msgs: int, size: int) -> dict[str, Any]:
    none = {"msgs": 0, "bytes": 0}
    return {"msgs": msgs, "bytes": size, "gateways": none, "routes": none, "leafs": none}
