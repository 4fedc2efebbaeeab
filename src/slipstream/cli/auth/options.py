"""What can be said of accounts and of users on the line, and which claims that sets."""

import time
from typing import Annotated, Any, TypeAlias

import typer

from slipstream.cli.auth.claims import (
    UNLIMITED,
    Account,
    AccountLimits,
    JetStreamLimits,
    UserLimits,
)
from slipstream.cli.config_options import ConfigOption, words_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.prompts import ask
from slipstream.cli.values import duration, one_of, size
from slipstream.wire.subjects import is_pattern

Given: TypeAlias = dict[str, Any]

JETSTREAM_DEFAULT = "1GB"  # of disk and of memory, as the `nats` tool proposes
# How the line calls the ways to connect, and what the claims call them.
CONNECTION_TYPES = {
    "nats": "STANDARD",
    "ws": "WEBSOCKET",
    "leaf": "LEAFNODE",
    "wsleaf": "LEAFNODE_WS",
    "mqtt": "MQTT",
}

Tags = Annotated[list[str], typer.Option("--tags", help="Tags; with commas, or repeated")]
NoTags = Annotated[list[str], typer.Option("--no-tags", help="Tags to take away")]
Defaults = Annotated[bool, typer.Option("--defaults", help="Ask nothing")]

TAGS = ConfigOption("--tags", "tags", list[str], "Tags; with commas, or repeated")
NO_TAGS = ConfigOption("--no-tags", "no_tags", list[str], "Tags to take away")
DESCRIPTION = ConfigOption("--description", "description", str, "What it is for")

LIMIT_OPTIONS = (
    ConfigOption("--bearer/--no-bearer", "bearer_token", bool,
                 "The JWT is enough to connect, without the private key"),
    ConfigOption("--payload", "payload", str, "Largest message, like 1MB; -1 is no bound", size),
    ConfigOption("--data", "data", str, "Bytes at most; -1 is no bound", size),
    ConfigOption("--subscriptions", "subs", int, "Subscriptions at most; -1 is no bound"),
    ConfigOption("--locale", "times_location", str, "Time zone, like Europe/Berlin"),
    ConfigOption("--connection", "connection", list[str],
                 "Only these ways to connect: nats, ws, leaf, wsleaf, mqtt"),
    ConfigOption("--pub-allow", "pub_allow", list[str], "Publish to these subjects only"),
    ConfigOption("--pub-deny", "pub_deny", list[str], "Do not publish to these subjects"),
    ConfigOption("--sub-allow", "sub_allow", list[str], "Subscribe to these subjects only"),
    ConfigOption("--sub-deny", "sub_deny", list[str], "Do not subscribe to these subjects"),
)  # fmt: skip
ACCOUNT_OPTIONS = (
    ConfigOption("--bearer/--no-bearer", "bearer", bool, "Users may have bearer tokens"),
    ConfigOption("--connections", "conn", int, "Connections at most; -1 is no bound"),
    ConfigOption("--leafnodes", "leaf", int, "Connections of leaf nodes at most"),
    ConfigOption("--subscriptions", "subs", int, "Subscriptions at most"),
    ConfigOption("--payload", "payload", str, "Largest message, like 1MB", size),
    ConfigOption("--exports", "exports", int, "Exports at most"),
    ConfigOption("--imports", "imports", int, "Imports at most"),
    ConfigOption("--expiry", "expiry", str, "For how long it holds, like 30d", duration),
    ConfigOption("--jetstream/--no-jetstream", "jetstream", bool, "May store messages"),
    ConfigOption("--js-disk", "disk_storage", str, "Bytes on disk, like 10GB", size),
    ConfigOption("--js-memory", "mem_storage", str, "Bytes in memory", size),
    ConfigOption("--js-disk-stream", "disk_max_stream_bytes", str,
                 "Bytes on disk of a stream at most", size),
    ConfigOption("--js-memory-stream", "mem_max_stream_bytes", str,
                 "Bytes in memory of a stream at most", size),
    ConfigOption("--js-streams", "streams", int, "Streams at most"),
    ConfigOption("--js-consumers", "consumer", int, "Consumers at most"),
    ConfigOption("--js-max-pending", "max_ack_pending", int, "Max ack pending of consumers"),
    ConfigOption("--js-stream-size-required/--no-js-stream-size-required", "max_bytes_required",
                 bool, "Streams have to say their size"),
    ConfigOption("--js-cluster-traffic", "cluster_traffic", str,
                 "Whose account carries it between servers: owner or system",
                 one_of("owner", "system")),
    DESCRIPTION,
    TAGS,
)  # fmt: skip
_NATS_LIMITS = ("conn", "leaf", "subs", "payload", "exports", "imports")
_JETSTREAM_OWN = tuple(name for name in JetStreamLimits.__struct_fields__ if name != "extra")


def changed_tags(tags: list[str], more: list[str], fewer: list[str]) -> list[str]:
    """Tags, with some more and some fewer."""
    taken = set(words_of(fewer))
    return [one for one in dict.fromkeys([*tags, *words_of(more)]) if one not in taken]


def set_limits(limits: UserLimits, given: Given) -> None:
    """Have a user, or the template of a scope, be limited as the line says."""
    for field in ("bearer_token", "payload", "data", "subs", "times_location"):
        if field in given:
            setattr(limits, field, given[field])
    if given.get("times_location"):
        _check_zone(given["times_location"])
    if "connection" in given:
        limits.allowed_connection_types = _connection_types(given["connection"])
    for name, permission in (("pub", limits.pub), ("sub", limits.sub)):
        for which in ("allow", "deny"):
            if f"{name}_{which}" in given:
                subjects = given[f"{name}_{which}"]
                setattr(permission, which, _subjects(subjects, f"--{name}-{which}", name == "sub"))


def _check_zone(name: str) -> None:
    from zoneinfo import available_timezones

    known = available_timezones()
    if known and name not in known:  # a machine without a list of them cannot tell
        raise UsageError(f'--locale: "{name}" is no time zone; write it like Europe/Berlin')


def _connection_types(words: list[str]) -> list[str]:
    for word in words_of(words):
        if word.lower() not in CONNECTION_TYPES:
            raise UsageError(f'--connection: "{word}" is none of {", ".join(CONNECTION_TYPES)}')
    return [CONNECTION_TYPES[word.lower()] for word in words_of(words)]


def _subjects(values: list[str], option: str, with_queue: bool) -> list[str]:
    """Subjects of a permission; of one to subscribe with a queue group behind, if need be."""
    found = words_of(values)
    for one in found:
        subject, _, queue = one.partition(" ")
        check_subject(subject, option)
        if queue and (not with_queue or " " in queue):
            raise UsageError(f'{option}: "{one}" has a space in it')
    return found


def check_subject(subject: str, option: str) -> None:
    """Raises `UsageError` if it is no subject."""
    if not is_pattern(subject.encode()):
        raise UsageError(
            f'{option}: "{subject}" is no subject: words between dots, none of them empty; '
            "* stands for a word, > at the end for all that follow"
        )


def set_account(nats: Account, given: Given, asking: bool = False) -> None:
    """Have an account be as the line says; `asking` where a terminal may be asked for the rest."""
    limits = nats.limits
    for field in _NATS_LIMITS:
        if field in given:
            setattr(limits, field, given[field])
    if "bearer" in given:
        limits.disallow_bearer = not given["bearer"]
    if "description" in given:
        nats.description = given["description"]
    if "cluster_traffic" in given:
        nats.cluster_traffic = given["cluster_traffic"]
    nats.tags = changed_tags(nats.tags, given.get("tags", []), given.get("no_tags", []))
    _set_jetstream(limits, given, asking)


def _set_jetstream(limits: AccountLimits, given: Given, asking: bool) -> None:
    asked = {field: given[field] for field in _JETSTREAM_OWN if field in given}
    wanted = given.get("jetstream")
    if wanted is False:
        if asked:
            raise UsageError("--no-jetstream turns off what the --js- options are about")
        for field in _JETSTREAM_OWN:
            setattr(limits, field, False if field == "max_bytes_required" else 0)
        limits.tiered_limits = {}
        return
    if not wanted and not asked:
        return
    if limits.tiered_limits:
        raise UsageError(
            "this account has JetStream limits in tiers, by the number of replicas, which nsc "
            "changes: `nsc edit account --js-tier`"
        )
    if not limits.has_jetstream:
        for field, label in (("disk_storage", "Disk"), ("mem_storage", "Memory")):
            if field not in asked:
                asked[field] = _storage(label, asking)
        limits.streams = limits.consumer = UNLIMITED
    for field, value in asked.items():
        setattr(limits, field, value)


def _storage(label: str, asking: bool) -> int:
    said = ask(f"Maximum JetStream {label} Storage", JETSTREAM_DEFAULT) if asking else ""
    try:
        return size(said or JETSTREAM_DEFAULT)
    except typer.BadParameter as error:
        raise UsageError(str(error)) from error


def expiry(seconds: float) -> int:
    """When something expires that holds for so long; 0 for never."""
    return int(time.time() + seconds) if seconds > 0 else 0
