"""Authorization, accounts, users, permissions and subject mappings (docs/protocol/accounts.md)."""

import re

from slipstream.engine.protocol.options import AccountConnectionLimits, AccountJetStreamLimits
from slipstream.server.config.blocks import (
    Block,
    block_kind,
    entries_of,
    items_of,
    no_effect,
    optional,
    refused,
)
from slipstream.server.config.kinds import (
    Boolean,
    DurationText,
    Integer,
    Kind,
    Notes,
    Size,
    String,
    Timeout,
    Wrong,
    one_of,
    read_integer,
    read_string,
    read_strings,
)
from slipstream.server.config.sharing import EXPORT, IMPORT, Exports, Imports
from slipstream.server.config.tree import Value
from slipstream.server.options import (
    CONNECTION_TYPES,
    DEFAULT_ACCOUNT,
    AccountOptions,
    AuthorizationOptions,
    MappingDestination,
    MappingOptions,
    PermissionOptions,
    ResponseOptions,
    UserOptions,
)
from slipstream.server.sharing import check_sharing
from slipstream.wire.subjects import is_literal, is_pattern

_WEIGHT = re.compile(r"([0-9]+)%?")
_REFERENCE = re.compile(r"\$([0-9]+)|\{\{\s*(\w+)\s*\(([^)]*)\)\s*\}\}")
_FUNCTIONS = {"wildcard", "partition", "split", "splitfromleft", "splitfromright"}
_FUNCTIONS |= {"slicefromleft", "slicefromright", "left", "right", "random"}


# -- permissions -------------------------------------------------------------------------------


def _subjects(value: Value, notes: Notes, queues: bool) -> list[str]:
    try:
        subjects = read_strings(value, notes)
    except Wrong:
        text = f"expected a subject or a list of subjects, found {value.describe()}"
        raise Wrong(text) from None
    for subject in subjects:
        parts = subject.split() if queues else [subject]
        if not 1 <= len(parts) <= 2 or not all(is_pattern(part.encode()) for part in parts):
            raise Wrong(f'subject "{subject}" is not a valid subject')
    return subjects


def _allow_and_deny(queues: bool) -> Kind:
    def read(value: Value, notes: Notes) -> tuple[list[str], list[str]]:
        if not isinstance(value.data, dict):
            return _subjects(value, notes, queues), []
        lists: dict[str, list[str]] = {"allow": [], "deny": []}
        for key, entry in value.data.items():
            if key.lower() not in lists:
                raise Wrong(
                    f'unknown field "{key}": permissions take "allow" and "deny"', entry.place
                )
            lists[key.lower()] = _subjects(entry.value, notes, queues)
        return lists["allow"], lists["deny"]

    return Kind("subject, list, or map of allow and deny", read)


def _put_publish(target: PermissionOptions, found: tuple[list[str], list[str]]) -> None:
    target.publish_allow, target.publish_deny = found


def _put_subscribe(target: PermissionOptions, found: tuple[list[str], list[str]]) -> None:
    target.subscribe_allow, target.subscribe_deny = found


RESPONSES = Block(
    "allow_responses",
    (
        optional(
            "max max_msgs max_messages max_responses",
            Integer,
            "Replies to each received message; negative is without bound.",
            option="max_msgs",
        ),
        optional(
            "expires expiration ttl",
            DurationText,
            "How long a reply may take; negative is for ever.",
        ),
    ),
)


def _read_responses(value: Value, notes: Notes) -> ResponseOptions | None:
    if isinstance(value.data, bool):
        return ResponseOptions() if value.data else None
    if not isinstance(value.data, dict):
        raise Wrong(f"expected true or a map of max and expires, found {value.describe()}")
    responses = ResponseOptions()
    RESPONSES.fill(value, responses, notes)
    return responses


PERMISSIONS = Block(
    "permissions",
    (
        optional(
            "publish pub import",
            _allow_and_deny(queues=False),
            "Subjects that may be published to; an empty allow list allows all, deny wins.",
            put=_put_publish,
        ),
        optional(
            "subscribe sub export",
            _allow_and_deny(queues=True),
            'Subjects that may be subscribed to; "subject queue" names a queue group as well.',
            put=_put_subscribe,
        ),
        optional(
            "allow_responses publish_allow_responses",
            Kind("boolean or map", _read_responses),
            "Allow publishing to the reply subjects of received messages.",
            inner=RESPONSES,
        ),
    ),
)
Permissions = block_kind(PERMISSIONS, PermissionOptions)


# -- users -------------------------------------------------------------------------------------


def _read_connection_types(value: Value, notes: Notes) -> list[str]:
    types = [text.upper() for text in read_strings(value, notes)]
    unknown = sorted(set(types) - CONNECTION_TYPES)
    if unknown:
        known = ", ".join(sorted(CONNECTION_TYPES))
        raise Wrong(f"invalid connection types {', '.join(unknown)}: known are {known}")
    return types


USER = Block(
    "users",
    (
        optional("user username", String, "Name, unique over all accounts."),
        optional("password pass", String, "Plain, or a bcrypt hash; quote it if it is a number."),
        optional(
            "permissions permission authorization",
            Permissions,
            "What the user may do; without it, the default permissions.",
            inner=PERMISSIONS,
        ),
        optional(
            "allowed_connection_types connection_types clients",
            Kind("string or list", _read_connection_types),
            "Kinds of connections the user may come by; empty is all.",
        ),
        refused("nkey", "Public key of a user that signs the nonce."),
        refused("proxy_required", "Only through a trusted proxy."),
    ),
)


def _read_users(value: Value, notes: Notes) -> list[UserOptions]:
    users = []
    for item in items_of(value, "users"):
        if not isinstance(item.data, dict):
            raise Wrong(f"expected user entries to be maps, found {item.describe()}", item.place)
        before = len(notes.errors)
        user = UserOptions(user="")
        USER.fill(item, user, notes)
        if not user.user and len(notes.errors) == before:
            raise Wrong('a user entry requires a "user"', item.place)
        first = notes.users.setdefault(user.user, item.place)
        if first is not item.place:
            raise Wrong(f'duplicate user "{user.user}", the first is at {first}', item.place)
        users.append(user)
    return users


Users = Kind("list of maps", _read_users)

AUTHORIZATION = Block(
    "authorization",
    (
        optional("user username", String, "Name of the only user.", reloadable=True),
        optional("password pass", String, "Its password, plain or bcrypt.", reloadable=True),
        optional("token", String, "A token instead, plain or bcrypt.", reloadable=True),
        optional(
            "timeout",
            Timeout,
            "How long a client may take to authenticate; 0 is 2 s, with TLS tls.timeout + 1 s.",
            reloadable=True,
        ),
        optional("users", Users, "Users of the default account.", reloadable=True, inner=USER),
        optional(
            "default_permissions permissions default_permission",
            Permissions,
            "For users that have none of their own.",
            reloadable=True,
        ),
        refused("auth_callout auth_hook", "Authentication by a service."),
        refused("proxy_required", "Only through a trusted proxy."),
    ),
)


def _read_authorization(value: Value, notes: Notes) -> AuthorizationOptions:
    found = AuthorizationOptions()
    AUTHORIZATION.fill(value, found, notes)
    one = "user/pass" if found.user or found.password else ""
    if one and found.token:
        raise Wrong("cannot have a user/pass and token: keep one of them")
    if found.users and (one or found.token):
        raise Wrong(f"cannot have a {one or 'token'} and a users array: move it into the array")
    return found


Authorization = Kind("map", _read_authorization)


# -- mappings ----------------------------------------------------------------------------------


def _read_weight(value: Value, notes: Notes) -> int:
    if isinstance(value.data, str):
        found = _WEIGHT.fullmatch(value.data)
        weight = int(found[1]) if found else -1
    else:
        weight = read_integer(value, notes)
    if not 0 <= weight <= 100:
        raise Wrong(f"expected a weight from 0% to 100%, found {value.describe()}")
    return weight


MAPPING = Block(
    "mappings",
    (
        optional("destination dest", String, "Where the messages go.", option="subject"),
        optional("weight", Kind("percent", _read_weight), "The share of them."),
        optional("cluster", String, "Only in this cluster."),
    ),
)


def _read_destination(value: Value, notes: Notes) -> MappingDestination:
    destination = MappingDestination(subject="", weight=-1)
    before = len(notes.errors)
    MAPPING.fill(value, destination, notes)
    if len(notes.errors) == before:
        if not destination.subject:
            raise Wrong("a mapping needs a destination", value.place)
        if destination.weight < 0:
            raise Wrong(f'missing weight for destination "{destination.subject}"', value.place)
    return destination


def _check_destination(source: str, destination: str) -> None:
    """Refuse references to wildcards that the source does not have, and invalid subjects."""
    wildcards = source.split(".").count("*")
    for found in _REFERENCE.finditer(destination):
        position, function, arguments = found.groups()
        if function and function.lower() not in _FUNCTIONS:
            raise Wrong(f'unknown function "{function}" in mapping destination "{destination}"')
        if function and function.lower() == "wildcard":
            position = arguments.strip()
        if position and not (position.isdigit() and 1 <= int(position) <= wildcards):
            raise Wrong(f'wildcard index {position} is out of range in "{destination}"')
    plain = _REFERENCE.sub("x", destination)
    is_valid = is_pattern(plain.encode()) if plain.endswith(">") else is_literal(plain.encode())
    if not is_valid or "*" in plain or plain.endswith(">") != source.endswith(">"):
        raise Wrong(f'"{destination}" is not a valid mapping destination of "{source}"')


def read_mappings(value: Value, notes: Notes) -> list[MappingOptions]:
    """`{ source: destination }`, or weighted lists of destinations."""
    mappings = []
    for source, entry in entries_of(value, "mappings").items():
        if not is_pattern(source.encode()):
            raise Wrong(f'subject "{source}" is not a valid subject', entry.place)
        data = entry.value.data
        if isinstance(data, str):
            destinations = [MappingDestination(subject=data)]
        elif isinstance(data, list):
            destinations = [_read_destination(item, notes) for item in data]
        elif isinstance(data, dict):
            destinations = [_read_destination(entry.value, notes)]
        else:
            raise Wrong("expected a destination, or a list of them", entry.place)
        try:
            for destination in destinations:
                _check_destination(source, destination.subject)
        except Wrong as error:
            raise Wrong(str(error), entry.place) from None
        _check_shares(source, destinations, entry.value)
        mappings.append(MappingOptions(source=source, destinations=destinations))
    return mappings


def _check_shares(source: str, destinations: list[MappingDestination], value: Value) -> None:
    shares: dict[str, int] = {}
    seen = set()
    for d in destinations:
        shares[d.cluster] = shares.get(d.cluster, 0) + d.weight
        if (d.cluster, d.subject) in seen:
            raise Wrong(f'duplicate entry for "{d.subject}" in "{source}"', value.place)
        seen.add((d.cluster, d.subject))
    if any(share > 100 for share in shares.values()):
        raise Wrong(f'the weights of "{source}" add up to more than 100%', value.place)


Mappings = Kind("map of destinations", read_mappings)


# -- accounts ----------------------------------------------------------------------------------

ACCOUNT_LIMITS = Block(
    "limits",
    (
        optional("max_connections max_conn", Integer, "Connections of the account."),
        optional("max_subscriptions max_subs", Integer, "Subscriptions of each connection."),
        optional("max_payload max_pay", Size, "Bytes of a message."),
        optional("max_leafnodes max_leafs", Integer, "Leaf nodes of the account."),
    ),
)

ACCOUNT_JETSTREAM = Block(
    "jetstream",
    (
        optional("max_memory max_mem mem memory", Size, "Memory for its streams."),
        optional(
            "max_store max_file max_disk store disk", Size, "Disk for its streams.", "max_storage"
        ),
        optional("max_streams streams", Integer, "Streams of the account."),
        optional("max_consumers consumers", Integer, "Consumers of each stream."),
        optional("max_ack_pending", Integer, "Unacknowledged messages of each consumer."),
        optional(
            "mem_max_stream_bytes memory_max_stream_bytes",
            Size,
            "Bytes of a memory stream.",
            "memory_max_stream_bytes",
        ),
        optional(
            "disk_max_stream_bytes store_max_stream_bytes",
            Size,
            "Bytes of a file stream.",
            "storage_max_stream_bytes",
        ),
        optional(
            "max_bytes_required max_stream_bytes max_bytes", Boolean, "Streams must set max_bytes."
        ),
        no_effect("cluster_traffic", one_of("system", "owner"), "Whose traffic Raft is."),
    ),
)


def _read_account_jetstream(value: Value, notes: Notes) -> AccountJetStreamLimits | None:
    data = value.data
    if isinstance(data, str):
        word = data.lower()
        if word not in ("enabled", "enable", "disabled", "disable"):
            raise Wrong(f"expected enabled or disabled, found {value.describe()}")
        return AccountJetStreamLimits() if word.startswith("enable") else None
    if isinstance(data, bool):
        return AccountJetStreamLimits() if data else None
    limits = AccountJetStreamLimits()
    ACCOUNT_JETSTREAM.fill(value, limits, notes)
    return limits


def _read_account_limits(value: Value, notes: Notes) -> AccountConnectionLimits:
    limits = AccountConnectionLimits()
    ACCOUNT_LIMITS.fill(value, limits, notes)
    return limits


def _put_limits(target: AccountOptions, found: AccountConnectionLimits) -> None:
    for name in AccountConnectionLimits.__struct_fields__:
        setattr(target, name, getattr(found, name))


ACCOUNT = Block(
    "accounts",
    (
        optional("users", Users, "Its users.", inner=USER),
        optional(
            "jetstream",
            Kind("boolean, enabled, disabled or map", _read_account_jetstream),
            "Streams for the account, within limits; -1 is without bound.",
            inner=ACCOUNT_JETSTREAM,
        ),
        optional(
            "limits",
            Kind("map", _read_account_limits),
            "Bounds; -1 is none.",
            put=_put_limits,
            inner=ACCOUNT_LIMITS,
        ),
        optional("default_permissions", Permissions, "For users that have none of their own."),
        optional("mappings maps", Mappings, "Subjects to publish elsewhere."),
        optional("exports", Exports, "Subjects that other accounts may import.", inner=EXPORT),
        optional("imports", Imports, "Subjects of other accounts.", inner=IMPORT),
        refused("nkey", "Public key of the account."),
        refused("msg_trace trace_dest", "Where traces of messages go."),
    ),
)


def _read_accounts(value: Value, notes: Notes) -> dict[str, AccountOptions]:
    accounts: dict[str, AccountOptions] = {}
    if isinstance(value.data, list):
        for item in value.data:
            name = read_string(item, notes)
            if name in accounts:
                raise Wrong(f"duplicate account {name}", item.place)
            _check_name(name, item)
            accounts[name] = AccountOptions(name=name)
        return accounts
    for name, entry in entries_of(value, "accounts").items():
        if entry.is_variable and not isinstance(entry.value.data, dict):
            continue
        if not isinstance(entry.value.data, dict):
            raise Wrong(f'account "{name}" must be a map {{ }}', entry.place)
        _check_name(name, entry.value)
        account = AccountOptions(name=name)
        own = Notes(users=notes.users)
        ACCOUNT.fill(entry.value, account, own)
        if own.errors and entry.is_variable:
            continue  # a map that others refer to, and no account itself
        notes.errors += own.errors
        notes.warnings += own.warnings
        accounts[name] = account
    if not notes.errors:
        for text in check_sharing(accounts):
            notes.wrong(value.place, text)
    return accounts


def _check_name(name: str, value: Value) -> None:
    if name == DEFAULT_ACCOUNT:
        raise Wrong(f'"{name}" is a reserved account: use authorization.users', value.place)


Accounts = Kind("map of accounts, or list of names", _read_accounts)
