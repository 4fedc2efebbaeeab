"""`slipstream server report`: servers, accounts and connections compared (system account)."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.cluster.shown import show_members
from slipstream.cli.config_options import words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.server.connections import (
    ReasonOption,
    StateOption,
    SubjectOption,
    UserOption,
    ask_for,
    ranked,
    show_connections,
)
from slipstream.cli.server.system import (
    SYSTEM_HELP,
    Answer,
    ask_all,
    ask_servers,
    server_filter,
    server_of,
    shortened,
)
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.cli.values import show_size
from slipstream.client.connection import Connection
from slipstream.errors import ConfigError
from slipstream.model.infos import ClusterInfo

app = new_app()

Key = Callable[[Answer], Any]  # what answers are sorted by


class Wanted(msgspec.Struct, kw_only=True):
    """What the line asks of a report."""

    expect: int = 0
    servers: Answer
    account: str = ""
    subject: str = ""
    user: str = ""
    state: str = "open"
    reason: str = ""
    stream: str = ""
    consumer: str = ""
    js_enabled: bool = False
    server_only: bool = False
    level: int = 0
    everything: bool = False
    sort: str = ""
    top: int = 1000
    reverse: bool = False
    compact: bool = False

    def in_order(self, found: list[Answer], keys: Mapping[str, Key], usual: str) -> list[Answer]:
        """Most first, or least with --reverse; names from A to Z. Raises `UsageError`."""
        sort = self.sort or usual
        if sort not in keys:
            raise UsageError(f'server report: --sort "{sort}" is none of {", ".join(keys)}')
        most_first = not isinstance(keys[sort](found[0]), str) if found else True
        found = sorted(found, key=keys[sort], reverse=most_first != self.reverse)
        return found[: self.top]


@dataclass(frozen=True, slots=True)
class Report:
    """One kind of report: what makes it, and which options it has."""

    make: Callable[[Connection, Wanted], Awaitable[None]]
    options: tuple[str, ...] = ()


OTHER_KINDS = {
    "acct": "accounts",
    "conn": "connections",
    "conns": "connections",
    "connz": "connections",
    "js": "jetstream",
    "jsz": "jetstream",
    "leaf": "leafnodes",
    "leafz": "leafnodes",
}


@command(app, "report")
async def report(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="jetstream, connections, accounts, health, cpu, mem, leafnodes or downgrade",
        ),
    ] = "jetstream",
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[ACCOUNT|LEVEL] [LIMIT]",
            help="accounts: only this one; downgrade: the API's level; how many servers answer",
        ),
    ] = [],  # noqa: B006 - Typer copies it
    host: Annotated[str, typer.Option("--host", help="Only servers on this host")] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Only servers in this one")] = "",
    tags: Annotated[list[str], typer.Option("--tags", "--tag", help="Only with it")] = [],  # noqa: B006
    account: Annotated[str, typer.Option("--account", help="Only about this account")] = "",
    sort: Annotated[str, typer.Option("--sort", help="By this column")] = "",
    top: Annotated[int, typer.Option("--top", help="So many rows", min=1)] = 1000,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="Least first")] = False,
    subject: SubjectOption = "",
    username: UserOption = "",
    state: StateOption = "open",
    closed_reason: ReasonOption = "",
    js_enabled: Annotated[
        bool, typer.Option("--js-enabled", "-J", help="Health: JetStream where it is configured")
    ] = False,
    server_only: Annotated[
        bool, typer.Option("--server-only", "-S", help="Health: not of streams and consumers")
    ] = False,
    stream: Annotated[str, typer.Option("--stream", help="Health: only of this stream")] = "",
    consumer: Annotated[str, typer.Option("--consumer", help="Health: of this consumer")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Downgrade: with consumers of streams that are listed")
    ] = False,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="JetStream: names without domain")
    ] = False,
    watch: Annotated[int, typer.Option("--watch", help="Again after so many seconds")] = 0,
    count: Annotated[int, typer.Option("--count", help="--watch: so many times; 0: always")] = 0,
) -> None:
    """Compare servers, accounts (system account), or the account's connections."""
    kind = OTHER_KINDS.get(kind, kind)
    chosen = REPORTS.get(kind)
    if chosen is None:
        raise UsageError(f'there is no report "{kind}": ask for {", ".join(REPORTS)}')
    wanted = Wanted(
        servers=server_filter(host=host, cluster=cluster, tags=words_of(tags)),
        account=account,
        subject=subject,
        user=username,
        state=state,
        reason=closed_reason,
        stream=stream,
        consumer=consumer,
        js_enabled=js_enabled,
        server_only=server_only,
        everything=everything,
        sort=sort,
        top=top,
        reverse=reverse,
        compact=compact,
    )
    _check(kind, chosen, wanted)
    _take(kind, wanted, list(words))
    looks = 0
    async with connection() as nc:
        while True:
            if watch and sys.stdout.isatty() and not wants_json():
                say("\x1b[2J\x1b[H")
            await chosen.make(nc, wanted)
            looks += 1
            if not watch or (count and looks >= count):
                return
            await asyncio.sleep(watch)


def _check(kind: str, chosen: Report, wanted: Wanted) -> None:
    """Raises `UsageError` for an option that the report does not have."""
    plain = Wanted(servers={})
    for option in OPTIONS:
        field = {"username": "user", "closed-reason": "reason", "all": "everything"}.get(
            option, option.replace("-", "_")
        )
        if option not in chosen.options and getattr(wanted, field) != getattr(plain, field):
            having = [name for name, one in REPORTS.items() if option in one.options]
            raise UsageError(f"server report {kind}: --{option} is about {', '.join(having)}")


def _take(kind: str, wanted: Wanted, words: list[str]) -> None:
    """The arguments after the kind. Raises `UsageError`."""
    if kind == "accounts" and words and not words[0].isdigit():
        wanted.account = words.pop(0)
    if kind == "downgrade":
        if not words or not words[0].isdigit():
            raise UsageError("server report downgrade: give the LEVEL of the API to go back to")
        wanted.level = int(words.pop(0))
    if words[:1] and words[0].isdigit():
        wanted.expect = int(words.pop(0))
    if words:
        raise UsageError(f'server report {kind}: what is "{words[0]}"?')


async def _jetstream(nc: Connection, wanted: Wanted) -> None:
    body = wanted.servers | ({"account": wanted.account} if wanted.account else {})
    answers = await ask_all(nc, "JSZ", body, "server report jetstream", wanted.expect)
    if wants_json():
        print_json(answers)
        return

    def data(name: str) -> Callable[[Answer], int]:
        return lambda answer: int(answer.get("data", {}).get(name, 0) or 0)

    keys: dict[str, Key] = {
        "name": server_of,
        "cluster": lambda answer: str(answer.get("server", {}).get("cluster", "")),
        "streams": data("streams"),
        "consumers": data("consumers"),
        "msgs": data("messages"),
        "mbytes": data("bytes"),
        "bytes": data("bytes"),
        "mem": data("memory"),
        "file": data("storage"),
        "store": data("storage"),
        "api": lambda answer: _api(answer, "total"),
        "err": lambda answer: _api(answer, "errors"),
    }
    answers = wanted.in_order(answers, keys, "cluster")
    names = [server_of(answer) for answer in answers]
    rows = [
        (
            name,
            *(f"{data(field)(answer):,}" for field in ("streams", "consumers", "messages")),
            *(show_size(data(field)(answer)) for field in ("bytes", "memory", "storage")),
            *(f"{_api(answer, field):,}" for field in ("total", "errors")),
        )
        for name, answer in zip(shortened(names) if wanted.compact else names, answers, strict=True)
    ]
    columns = ("Server", "Streams", "Consumers", "Messages", "Bytes", "Memory", "File", "API Req",
               "API Err")  # fmt: skip
    table("JetStream Summary", columns, rows)
    for meta in _clusters(answers):
        say()
        show_members(ClusterInfo.from_wire(meta), str(meta.get("peer", "")))


def _clusters(answers: list[Answer]) -> list[Answer]:
    """What is said of each cluster, by its leader if that has answered."""
    found: dict[str, Answer] = {}
    for answer in answers:
        meta = answer.get("data", {}).get("meta_cluster") or {}
        name = str(meta.get("name", ""))
        if name and (name not in found or meta.get("leader") == answer["server"].get("name")):
            found[name] = meta
    return [found[name] for name in sorted(found)]


def _api(answer: Answer, name: str) -> int:
    return int((answer.get("data", {}).get("api") or {}).get(name, 0))


async def _accounts(nc: Connection, wanted: Wanted) -> None:
    body = {"include_unused": True, **wanted.servers}
    if wanted.account:
        body["accounts"] = [wanted.account]
    answers = await ask_servers(nc, "$SYS.REQ.ACCOUNT.PING.STATZ", body=body, expect=wanted.expect)
    found: dict[str, Answer] = {}
    for answer in answers:
        for one in answer.get("data", {}).get("account_statz") or []:
            _add(found.setdefault(str(one.get("acc", "")), {}), one)
    if wanted.account:
        found = {name: one for name, one in found.items() if name == wanted.account}
    if not found:
        raise ConfigError(f"server report accounts: nobody answered; {SYSTEM_HELP}")
    if wants_json():
        print_json(found)
        return

    def way(name: str, what: str) -> Callable[[Answer], int]:
        return lambda one: int(one["of"].get(name, {}).get(what, 0))

    keys: dict[str, Key] = {
        "name": lambda one: one["name"],
        "conns": lambda one: one["of"].get("conns", 0),
        "subs": lambda one: one["of"].get("num_subscriptions", 0),
        "in-bytes": way("received", "bytes"),
        "out-bytes": way("sent", "bytes"),
        "in-msgs": way("received", "msgs"),
        "out-msgs": way("sent", "msgs"),
    }
    named = [{"name": name, "of": one} for name, one in sorted(found.items())]
    rows = [
        (
            each["name"],
            f"{keys['conns'](each):,}",
            f"{keys['subs'](each):,}",
            *(f"{keys[name](each):,}" for name in ("in-msgs", "out-msgs")),
            *(show_size(keys[name](each)) for name in ("in-bytes", "out-bytes")),
            f"{each['of'].get('slow_consumers', 0):,}",
        )
        for each in wanted.in_order(named, keys, "name" if not wanted.reverse else "subs")
    ]
    columns = ("Account", "Connections", "Subscriptions", "In Msgs", "Out Msgs", "In Bytes",
               "Out Bytes", "Slow")  # fmt: skip
    table(f"{len(rows)} Accounts Overview", columns, rows)


def _add(total: Answer, one: Answer) -> None:
    """Add the numbers of one server to those of the others."""
    for name, value in one.items():
        if isinstance(value, dict):
            _add(total.setdefault(name, {}), value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            total[name] = total.get(name, 0) + value


async def _health(nc: Connection, wanted: Wanted) -> None:
    asked = {
        "js-enabled-only": wanted.js_enabled,
        "js-server-only": wanted.server_only,
        "account": wanted.account,
        "stream": wanted.stream,
        "consumer": wanted.consumer,
    }
    body = {name: value for name, value in asked.items() if value} | wanted.servers
    if body:
        body["details"] = True
    answers = await ask_all(nc, "HEALTHZ", body, "server report health", wanted.expect)
    if wants_json():
        print_json(answers)
    else:
        rows = []
        for answer in answers:
            data = answer.get("data", {})
            error = data.get("error") or "; ".join(
                str(one.get("error", "")) for one in data.get("errors") or []
            )
            code = data.get("status_code", "")
            rows.append((server_of(answer), str(data.get("status", "")), str(code), str(error)))
        table("Health Report", ("Server", "Status", "Code", "Error"), rows)
    if any(answer.get("data", {}).get("status") != "ok" for answer in answers):
        raise typer.Exit(1)


async def _connections(nc: Connection, wanted: Wanted) -> None:
    found = await ask_for(
        nc,
        account=wanted.account,
        subject=wanted.subject,
        user=wanted.user,
        state=wanted.state,
        reason=wanted.reason,
        servers=wanted.servers,
    )
    show_connections(ranked(found, wanted.sort or "subs", wanted.reverse)[: wanted.top])


def _usage(field: str, title: str) -> Callable[[Connection, Wanted], Awaitable[None]]:
    async def make(nc: Connection, wanted: Wanted) -> None:
        answers = await ask_all(nc, "STATSZ", wanted.servers, f"server report {field}",
                                wanted.expect)  # fmt: skip
        used = {server_of(one): float(one.get("statsz", {}).get(field, 0)) for one in answers}
        if wants_json():
            print_json(used)
            return
        ordered = sorted(used.items(), key=lambda one: one[1], reverse=not wanted.reverse)
        show = show_size if field == "mem" else lambda value: f"{value:.1f}"
        table(f"{title} Usage", ("Server", title), [(name, show(n)) for name, n in ordered])

    return make


async def _leafnodes(nc: Connection, wanted: Wanted) -> None:
    body = wanted.servers | ({"account": wanted.account} if wanted.account else {})
    answers = await ask_all(nc, "LEAFZ", body, "server report leafnodes", wanted.expect)
    found = [
        {"server": server_of(answer), "leaf": leaf}
        for answer in answers
        for leaf in answer.get("data", {}).get("leafs") or []
    ]
    if wants_json():
        print_json([one["leaf"] for one in found])
        return

    def leaf(name: str) -> Key:
        return lambda one: one["leaf"].get(name, 0)

    keys: dict[str, Key] = {
        "server": lambda one: one["server"],
        "name": lambda one: str(one["leaf"].get("name", "")),
        "account": lambda one: str(one["leaf"].get("account", "")),
        "subs": leaf("subscriptions"),
        "in-bytes": leaf("in_bytes"),
        "out-bytes": leaf("out_bytes"),
        "in-msgs": leaf("in_msgs"),
        "out-msgs": leaf("out_msgs"),
    }
    rows = [
        (
            one["server"],
            keys["name"](one),
            keys["account"](one),
            f"{one['leaf'].get('ip', '')}:{one['leaf'].get('port', '')}",
            str(one["leaf"].get("rtt", "")),
            *(f"{keys[name](one):,}" for name in ("in-msgs", "out-msgs")),
            *(show_size(keys[name](one)) for name in ("in-bytes", "out-bytes")),
            f"{keys['subs'](one):,}",
        )
        for one in wanted.in_order(found, keys, "server")
    ]
    columns = ("Server", "Name", "Account", "Address", "RTT", "In Msgs", "Out Msgs", "In Bytes",
               "Out Bytes", "Subs")  # fmt: skip
    table("Leafnode Report", columns, rows)


async def _downgrade(nc: Connection, wanted: Wanted) -> None:
    body = {"streams": True, "consumer": True, "config": True, "accounts": True, **wanted.servers}
    answers = await ask_all(nc, "JSZ", body, "server report downgrade", wanted.expect)
    found: dict[tuple[str, str, str], int] = {}
    for answer in answers:
        for account in answer.get("data", {}).get("account_details") or []:
            for stream in account.get("stream_detail") or []:
                name = (str(account.get("name", "")), str(stream.get("name", "")))
                level = _level(stream.get("config"))
                if level > wanted.level:
                    found[*name, ""] = level
                if level > wanted.level and not wanted.everything:
                    continue
                for consumer in stream.get("consumer_detail") or []:
                    level = _level(consumer.get("config"))
                    if level > wanted.level:
                        found[*name, str(consumer.get("name", ""))] = level
    listed = [
        {"account": account, "stream": stream, "consumer": consumer, "level": level}
        for (account, stream, consumer), level in sorted(found.items())
    ]
    if wants_json():
        print_json(listed)
    elif listed:
        columns = ("Account", "Stream", "Consumer", "API Level")
        rows = [tuple(str(value) for value in one.values()) for one in listed]
        table(f"What needs more than level {wanted.level}", columns, rows)
    else:
        say(f"Nothing needs more than level {wanted.level} of the API")


def _level(config: Answer | None) -> int:
    text = str(((config or {}).get("metadata") or {}).get("_nats.req.level", ""))
    return int(text) if text.isdigit() else 0


ORDER = ("sort", "top", "reverse")
OPTIONS = ("account", "subject", "username", "state", "closed-reason", "stream", "consumer",
           "compact", "js-enabled", "server-only", "all", *ORDER)  # fmt: skip
REPORTS = {
    "accounts": Report(_accounts, ("account", *ORDER)),
    "connections": Report(
        _connections, ("account", "subject", "username", "state", "closed-reason", *ORDER)
    ),
    "cpu": Report(_usage("cpu", "CPU %"), ("reverse",)),
    "downgrade": Report(_downgrade, ("all",)),
    "health": Report(
        _health, ("account", "stream", "consumer", "js-enabled", "server-only", "reverse")
    ),
    "jetstream": Report(_jetstream, ("account", "compact", *ORDER)),
    "leafnodes": Report(_leafnodes, ("account", *ORDER)),
    "mem": Report(_usage("mem", "Memory"), ("reverse",)),
}
