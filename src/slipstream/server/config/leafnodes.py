"""`leafnodes {}`: hubs to connect to, and a port for leaf nodes
(docs/configuration.md#leafnodes)."""

from urllib.parse import urlsplit

from slipstream.engine.leaf.compression import AUTO, LEVELS, MODES, OFF, LinkCompression
from slipstream.server.config.accounts import USER
from slipstream.server.config.blocks import (
    Block,
    block_kind,
    entries_of,
    items_of,
    listen,
    no_effect,
    optional,
    refused,
)
from slipstream.server.config.kinds import (
    Boolean,
    Duration,
    File,
    Kind,
    Notes,
    String,
    Timeout,
    Wrong,
    duration,
    port_kind,
    read_string,
    read_strings,
)
from slipstream.server.config.tls import TLS
from slipstream.server.config.tree import Value
from slipstream.server.options import (
    LEAF_PORT,
    LeafAuthorizationOptions,
    LeafNodesOptions,
    LeafRemoteOptions,
    LeafTlsOptions,
    LeafUserOptions,
    TlsOptions,
)
from slipstream.wire.subjects import is_pattern

_SCHEMES = frozenset({"", "leaf", "nats", "nats-leaf", "tls"})
_COMPRESSIONS = {
    **{mode: mode for mode in MODES},
    **{mode.removeprefix("s2_"): mode for mode in MODES},
    "on": AUTO,
    "enabled": AUTO,
    "true": AUTO,
    "disabled": OFF,
    "false": OFF,
}


def _read_url(value: Value, notes: Notes) -> list[str]:
    return [_checked(read_string(value, notes))]


def _read_urls(value: Value, notes: Notes) -> list[str]:
    return [_checked(read_string(item, notes)) for item in items_of(value, "urls")]


def _checked(url: str) -> str:
    """A URL with a scheme."""
    whole = url if "://" in url else f"nats-leaf://{url}"
    try:
        parts = urlsplit(whole)
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port or not parts.hostname:
        raise Wrong("a url is one such as nats-leaf://user:password@host:7422")
    if parts.scheme in ("ws", "wss"):
        raise Wrong("leaf nodes over WebSocket are not supported yet: use nats-leaf:// or tls://")
    if parts.scheme not in _SCHEMES:
        raise Wrong(f'the scheme "{parts.scheme}" is not one of nats-leaf, leaf, nats, tls')
    return whole


def _read_patterns(value: Value, notes: Notes) -> list[str]:
    subjects = read_strings(value, notes)
    for subject in subjects:
        if not is_pattern(subject.encode()):
            raise Wrong(f'subject "{subject}" is not a valid subject')
    return subjects


def _read_compression(value: Value, notes: Notes) -> LinkCompression:
    """A mode by one of its names, true or false, or a block with `mode` and `rtt_thresholds`."""
    if isinstance(value.data, dict):
        found = LinkCompression()
        COMPRESSION.fill(value, found, notes)
        return found
    return LinkCompression(mode=_read_mode(value, notes))


def _read_mode(value: Value, notes: Notes) -> str:
    data = value.data
    if isinstance(data, bool):
        return AUTO if data else OFF
    mode = _COMPRESSIONS.get(data.lower()) if isinstance(data, str) else None
    if mode is None:
        raise Wrong(f"compression is one of {', '.join(MODES)}, found {value.describe()}")
    return mode


def _read_thresholds(value: Value, notes: Notes) -> list[int]:
    """Up to four, ascending; the first may be 0."""
    found = [duration(read_string(item, notes)) for item in items_of(value, "durations")]
    if not 0 < len(found) <= len(LEVELS) or found != sorted(found) or min(found) < 0:
        raise Wrong("rtt_thresholds are one to four durations, each longer than the one before")
    return found


Url = Kind("url", _read_url)
Urls = Kind("list of urls", _read_urls)
Patterns = Kind("subject or list", _read_patterns)
Compression = Kind("compression mode or map", _read_compression)

COMPRESSION = Block(
    "compression",
    (
        optional("mode", Kind("compression mode", _read_mode), "What this end wants."),
        optional(
            "rtt_thresholds thresholds rtts rtt",
            Kind("list of durations", _read_thresholds),
            "Round trips, in ascending order, up to which s2_auto takes s2_uncompressed, s2_fast"
            " and s2_better.",
        ),
    ),
)

LEAF_TLS = Block(
    "tls",
    (
        optional("ca_file", File, "Whom to trust for the hub's certificate."),
        optional("cert_file", File, "A certificate to show to the hub, PEM."),
        optional("key_file", File, "Its private key, PEM."),
        optional("insecure", Boolean, "Do not look at the hub's certificate."),
        optional("timeout", Timeout, "How long a handshake may take."),
        optional("handshake_first first immediate", Boolean, "TLS before INFO."),
        no_effect("verify", Boolean, "The hub's certificate is verified anyway."),
    ),
    variables=False,
)

REMOTE = Block(
    "remotes",
    (
        optional(
            "url", Url, "The hub: nats-leaf://user:password@host:7422, or a token.", option="urls"
        ),
        optional("urls", Urls, "Several servers that can each be the hub."),
        optional("account local", String, "Account of this server; the default one without it."),
        optional("credentials creds", File, "File with a JWT and the seed of its key."),
        optional("nkey seed", String, "Seed of a key, or a file with one."),
        optional("tls", block_kind(LEAF_TLS, LeafTlsOptions), "TLS.", inner=LEAF_TLS),
        optional("hub", Boolean, "This server is the hub, though it is the one that connects."),
        optional("deny_imports deny_import", Patterns, "Subjects not to take from the hub."),
        optional("deny_exports deny_export", Patterns, "Subjects not to send to it."),
        optional("no_randomize dont_randomize", Boolean, "Try the urls in their order."),
        optional("ignore_discovered_servers", Boolean, "Do not use servers that the hub names."),
        optional("disabled", Boolean, "Do not connect."),
        optional("compression", Compression, "Compression of the link.", inner=COMPRESSION),
        no_effect("jetstream_cluster_migrate js_cluster_migrate", Boolean, "For clusters."),
        refused("ws_compression", "Leaf nodes over WebSocket."),
        refused("ws_no_masking", "Leaf nodes over WebSocket."),
        refused("isolate isolate_leafnode_interest", "Interest of other leaf nodes kept apart."),
        refused("request_isolation", "Interest of other leaf nodes kept apart."),
        refused("proxy", "HTTP proxy to the hub."),
    ),
)


def _read_remotes(value: Value, notes: Notes) -> list[LeafRemoteOptions]:
    remotes: list[LeafRemoteOptions] = []
    for item in items_of(value, "remotes"):
        entries_of(item, "a remote")
        remote = LeafRemoteOptions()
        REMOTE.fill(item, remote, notes)
        same = [other for other in remotes if _leads_to_same(remote, other)]
        if same and not remote.disabled:  # they would end each other's connection for ever
            raise Wrong(
                f"duplicate remote urls={remote.urls}, account={remote.account!r}", item.place
            )
        remotes.append(remote)
    return remotes


def _leads_to_same(remote: LeafRemoteOptions, other: LeafRemoteOptions) -> bool:
    if other.disabled or remote.account != other.account:
        return False
    return sorted(remote.urls) == sorted(other.urls)


LEAF_USER = Block(
    "users",
    (
        *USER.directives,
        optional("account acc", String, "Account that the leaf node is of."),
    ),
)


def _read_users(value: Value, notes: Notes) -> list[LeafUserOptions]:
    users = []
    for item in items_of(value, "users"):
        user = LeafUserOptions(user="")
        before = len(notes.errors)
        LEAF_USER.fill(item, user, notes)
        if not user.user and len(notes.errors) == before:
            raise Wrong('a user entry requires a "user"', item.place)
        users.append(user)
    return users


LEAF_AUTHORIZATION = Block(
    "authorization",
    (
        optional("user username", String, "Name of the only user."),
        optional("password pass", String, "Its password, plain or bcrypt."),
        optional("account acc", String, "Account of the leaf nodes; the default one without it."),
        optional("users", Kind("list of maps", _read_users), "Several users.", inner=LEAF_USER),
        optional("timeout", Timeout, "How long a leaf node may take to authenticate."),
        refused("nkey", "Public key of a leaf node."),
        refused("proxy_required", "Only through a trusted proxy."),
    ),
)

LEAFNODES = Block(
    "leafnodes",
    (
        optional(
            "remotes",
            Kind("list of maps", _read_remotes),
            "Hubs to connect to, as a leaf node.",
            inner=REMOTE,
        ),
        listen(LEAF_PORT, "Address for leaf nodes; port 7422 is usual."),
        optional("host net", String, "Address for leaf nodes."),
        optional("port", port_kind(LEAF_PORT), "Port for leaf nodes; -1 is any free one."),
        optional("advertise", String, "host:port to tell leaf nodes."),
        optional("no_advertise", Boolean, "Tell leaf nodes of no server to connect to."),
        optional(
            "authorization",
            block_kind(LEAF_AUTHORIZATION, LeafAuthorizationOptions),
            "Who may connect as a leaf node; without it, the users of the accounts.",
            inner=LEAF_AUTHORIZATION,
        ),
        optional("tls", block_kind(TLS, TlsOptions), "TLS of the port.", inner=TLS),
        optional(
            "reconnect reconnect_delay reconnect_interval",
            Duration,
            "Wait before connecting to a hub again; up to eight times as long after failures.",
        ),
        optional("dial_timeout", Duration, "How long a connection to a hub may take."),
        optional(
            "compression", Compression, "Compression of what comes to the port.", inner=COMPRESSION
        ),
        no_effect("write_deadline", Duration, "The server's write_deadline holds."),
        refused("min_version", "Oldest version of a leaf node."),
        refused("isolate_leafnode_interest", "Interest of other leaf nodes kept apart."),
        refused("write_timeout", "What a write that takes too long leads to."),
    ),
)
LeafNodes = block_kind(LEAFNODES, LeafNodesOptions)
