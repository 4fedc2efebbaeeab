"""`slipstream server request`: what servers say of themselves, as JSON (system account)."""

from typing import Annotated

import msgspec
import typer

from slipstream.cli.config_options import words_of
from slipstream.cli.global_options import UsageError, did_you_mean
from slipstream.cli.output import print_json
from slipstream.cli.server.connections import STATES
from slipstream.cli.server.system import SYSTEM_HELP, Answer, ask_all, ask_servers, server_filter
from slipstream.cli.session import command, connection, new_app
from slipstream.errors import ConfigError

app = new_app()

# What `request` calls things -> the endpoint.
REQUESTS = {
    "accounts": "ACCOUNTZ",
    "connections": "CONNZ",
    "gateways": "GATEWAYZ",
    "health": "HEALTHZ",
    "ipqueue": "IPQUEUESZ",
    "jetstream": "JSZ",
    "kick": "KICK",
    "leafnodes": "LEAFZ",
    "raft": "RAFTZ",
    "routes": "ROUTEZ",
    "statistics": "STATSZ",
    "subscriptions": "SUBSZ",
    "variables": "VARZ",
}
OTHER_NAMES = {
    "accountz": "accounts",
    "acct": "accounts",
    "conn": "connections",
    "conns": "connections",
    "gateway": "gateways",
    "gatewayz": "gateways",
    "gwy": "gateways",
    "ipq": "ipqueue",
    "ipqueuesz": "ipqueue",
    "jetstream-health": "health",
    "js": "jetstream",
    "leaf": "leafnodes",
    "route": "routes",
    "stats": "statistics",
    "sub": "subscriptions",
    "subs": "subscriptions",
    "subsz": "subscriptions",
    "var": "variables",
    "vars": "variables",
}
OTHER_NAMES |= {endpoint.lower(): name for name, endpoint in REQUESTS.items()}
# The option -> the endpoints that have it, and the field that it sets there.
FIELDS = {
    "account": {"ACCOUNTZ": "account", "CONNZ": "acc", "JSZ": "account", "HEALTHZ": "account",
                "LEAFZ": "account", "SUBSZ": "account", "RAFTZ": "account"},
    "filter-account": {"CONNZ": "acc", "SUBSZ": "account", "GATEWAYZ": "account_name"},
    "filter-subject": {"CONNZ": "filter_subject", "SUBSZ": "test"},
    "filter-cid": {"CONNZ": "cid"},
    "filter-state": {"CONNZ": "state"},
    "filter-user": {"CONNZ": "user"},
    "sort": {"CONNZ": "sort"},
    "subscriptions": {"CONNZ": "subscriptions_detail", "LEAFZ": "subscriptions",
                      "ROUTEZ": "subscriptions"},
    "detail": {"SUBSZ": "subscriptions"},
    "accounts": {"JSZ": "accounts", "GATEWAYZ": "accounts"},
    "streams": {"JSZ": "streams"},
    "config": {"JSZ": "config"},
    "raft": {"JSZ": "raft"},
    "leader": {"JSZ": "leader_only"},
    "stream-leader": {"JSZ": "stream_leader_only"},
    "js-enabled": {"HEALTHZ": "js-enabled-only"},
    "server-only": {"HEALTHZ": "js-server-only"},
    "stream": {"HEALTHZ": "stream"},
    "consumer": {"HEALTHZ": "consumer"},
    "group": {"RAFTZ": "group"},
    "filter": {"IPQUEUESZ": "filter"},
    "limit": {"CONNZ": "limit", "SUBSZ": "limit", "JSZ": "limit"},
    "offset": {"CONNZ": "offset", "SUBSZ": "offset", "JSZ": "offset"},
}  # fmt: skip


@command(app, "request")
async def request(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=", ".join(REQUESTS))],
    words: Annotated[
        list[str],
        typer.Argument(metavar="[WAIT]", help="How many answers; kick: CLIENT and SERVER, ids"),
    ] = [],  # noqa: B006 - Typer copies it
    name: Annotated[str, typer.Option("--name", help="Only of the server of this name")] = "",
    host: Annotated[str, typer.Option("--host", help="Only of servers on this host")] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Only of servers in this one")] = "",
    tag: Annotated[list[str], typer.Option("--tags", "--tag", help="Only with it")] = [],  # noqa: B006
    account: Annotated[str, typer.Option("--account", help="About this account")] = "",
    limit: Annotated[int, typer.Option("--limit", help="So many records")] = 0,
    offset: Annotated[int, typer.Option("--offset", help="From this record on")] = 0,
    sort: Annotated[str, typer.Option("--sort", help="Connections: cid, subs, uptime ...")] = "",
    subscriptions: Annotated[bool, typer.Option("--subscriptions", help="List them")] = False,
    detail: Annotated[bool, typer.Option("--detail", help="List subscriptions")] = False,
    filter_account: Annotated[str, typer.Option("--filter-account", help="Of this one")] = "",
    filter_subject: Annotated[str, typer.Option("--filter-subject", help="On this one")] = "",
    filter_cid: Annotated[int, typer.Option("--filter-cid", help="This connection")] = 0,
    filter_state: Annotated[str, typer.Option("--filter-state", help=", ".join(STATES))] = "",
    filter_user: Annotated[str, typer.Option("--filter-user", help="Of this user")] = "",
    filter_empty: Annotated[
        bool, typer.Option("--filter-empty", help="Only servers with connections")
    ] = False,
    accounts: Annotated[bool, typer.Option("--accounts", help="With accounts")] = False,
    streams: Annotated[bool, typer.Option("--streams", help="With streams")] = False,
    consumer: Annotated[str, typer.Option("--consumer", help="Health: of this consumer")] = "",
    consumers: Annotated[bool, typer.Option("--consumers", help="With consumers")] = False,
    config: Annotated[bool, typer.Option("--config", help="With configurations")] = False,
    raft: Annotated[bool, typer.Option("--raft", help="With groups of servers")] = False,
    leader: Annotated[bool, typer.Option("--leader", help="Only of JetStream's leader")] = False,
    stream_leader: Annotated[bool, typer.Option("--stream-leader", help="Streams led")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With all of these")] = False,
    js_enabled: Annotated[
        bool, typer.Option("--js-enabled", "-J", help="Health: JetStream where configured")
    ] = False,
    server_only: Annotated[
        bool, typer.Option("--server-only", "-S", help="Health: of the server alone")
    ] = False,
    stream: Annotated[str, typer.Option("--stream", help="Health: of this stream")] = "",
    details: Annotated[bool, typer.Option("--details/--no-details", help="Health")] = True,
    group: Annotated[str, typer.Option("--group", help="Raft: this group")] = "",
    filter_: Annotated[str, typer.Option("--filter", help="Queues of this name")] = "",
) -> None:
    """Print what each server says of itself, as JSON (system account)."""
    endpoint = REQUESTS.get(OTHER_NAMES.get(what, what))
    if endpoint is None:
        close = [one for one in REQUESTS if one.startswith(what[:3])]
        raise UsageError(
            f'server request: there is no "{what}"{did_you_mean(close) or ";"} '
            f"there are {', '.join(REQUESTS)}"
        )
    if endpoint == "KICK":
        await _kick(list(words))
        return
    if filter_state not in ("", *STATES):
        raise UsageError(f'--filter-state "{filter_state}" is none of {", ".join(STATES)}')
    given: dict[str, object] = {
        "account": account, "limit": limit, "offset": offset, "sort": sort,
        "subscriptions": subscriptions, "detail": detail, "filter-account": filter_account,
        "filter-subject": filter_subject, "filter-cid": filter_cid,
        "filter-state": STATES.get(filter_state, 0), "filter-user": filter_user,
        "accounts": accounts, "streams": streams, "config": config, "raft": raft,
        "leader": leader, "stream-leader": stream_leader, "js-enabled": js_enabled,
        "server-only": server_only, "stream": stream, "consumer": consumer,
        "group": group, "filter": filter_,
    }  # fmt: skip
    body = server_filter(name, host, cluster, words_of(tag))
    for option, value in given.items():
        if value:
            body[_field(option, endpoint)] = value
    if endpoint == "JSZ" and (consumers or everything):
        body["consumer"] = True
    if endpoint == "JSZ" and everything:
        body |= {"accounts": True, "streams": True, "config": True}
    if endpoint == "HEALTHZ" and len(body) > len(server_filter(name, host, cluster, tag)):
        body["details"] = details
    if endpoint == "CONNZ":
        body |= {"auth": True, "subscriptions": subscriptions}
    if words and not words[0].isdigit():
        raise UsageError(f'server request {what}: "{words[0]}" is no number of answers')
    async with connection() as nc:
        expect = int(words[0]) if words else 0
        for answer in await ask_all(nc, endpoint, body, f"server request {what}", expect):
            if not filter_empty or answer.get("data", {}).get("num_connections"):
                print_json(answer)


def _field(option: str, endpoint: str) -> str:
    """What an option sets in a request. Raises `UsageError` where it has no meaning."""
    fields = FIELDS[option]
    if endpoint not in fields:
        having = [name for name, one in REQUESTS.items() if one in fields]
        raise UsageError(f"server request: --{option} is about {', '.join(having)}")
    return fields[endpoint]


async def _kick(words: list[str]) -> None:
    """Close a connection. Raises `ConfigError` if the server does not."""
    if len(words) != 2 or not words[0].isdigit():
        raise UsageError("server request kick: give CLIENT, the cid, and SERVER, the server's id")
    body: Answer = {"cid": int(words[0])}
    async with connection() as nc:
        answers = await ask_servers(nc, f"$SYS.REQ.SERVER.{words[1]}.KICK", body=body, expect=1)
    if not answers:
        raise ConfigError(f"server request kick: server {words[1]} did not answer; {SYSTEM_HELP}")
    if answers[0].get("error"):
        said = msgspec.json.encode(answers[0]["error"]).decode()
        raise ConfigError(f"server request kick: the server refuses: {said}")
    print_json(answers[0])
