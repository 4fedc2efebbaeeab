"""`cluster {}`: the servers of a group (docs/group.md)."""

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from slipstream.errors import ConfigError
from slipstream.server.cluster_options import (
    CLUSTER_PORT,
    ClusterAuthorizationOptions,
    ClusterOptions,
    RegisterOptions,
    RouteOptions,
)
from slipstream.server.config.blocks import (
    Block,
    block_kind,
    items_of,
    listen,
    no_effect,
    optional,
    refused,
)
from slipstream.server.config.kinds import (
    Anything,
    Boolean,
    Duration,
    File,
    Integer,
    Kind,
    Notes,
    String,
    Timeout,
    Wrong,
    name_kind,
    port_kind,
    read_string,
)
from slipstream.server.config.tls import TLS
from slipstream.server.config.tree import Value
from slipstream.server.options import TlsOptions

if TYPE_CHECKING:
    from slipstream.server.flags import CommandLine

_SCHEMES = frozenset({"nats", "nats-route", "tls"})


def read_route(url: str) -> RouteOptions:
    """A route from its URL. Raises `Wrong`."""
    whole = url.strip() if "://" in url else f"nats-route://{url.strip()}"
    try:
        parts = urlsplit(whole)
        port = CLUSTER_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port or not parts.hostname:
        raise Wrong(f'"{_without_password(whole)}" is not a route such as nats://host:6222')
    if parts.scheme not in _SCHEMES:
        raise Wrong(f'the scheme "{parts.scheme}" of a route is not one of nats, nats-route, tls')
    return RouteOptions(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def read_routes_flag(text: str) -> list[RouteOptions]:
    """`--routes`: URLs with commas between them. Raises `Wrong`."""
    return [read_route(url) for url in text.split(",") if url.strip()]


def read_listen_flag(text: str, cluster: ClusterOptions) -> None:
    """`--cluster`: a URL of where to listen, which may have the user and password. Raises
    `Wrong`."""
    route = read_route(text)
    cluster.host, cluster.port = route.host, route.port
    if route.user or route.password:
        cluster.authorization.user = route.user
        cluster.authorization.password = route.password


def apply_flags(line: "CommandLine", cluster: ClusterOptions) -> None:
    """Let the flags of a command line override `cluster`. Raises `ConfigError`."""
    for name, value in line.flags:
        try:
            match name:
                case "cluster" | "cluster_listen":
                    read_listen_flag(value, cluster)
                case "cluster_name":
                    cluster.name = value
                case "cluster_advertise":
                    cluster.advertise = value
                case "routes":
                    cluster.routes = read_routes_flag(value)
        except Wrong as error:
            raise ConfigError(f"-{name}: {error}") from None


def _read_routes(value: Value, notes: Notes) -> list[RouteOptions]:
    routes = []
    for item in items_of(value, "routes"):
        try:
            routes.append(read_route(read_string(item, notes)))
        except Wrong as error:
            notes.wrong(item.place, str(error))
    return routes


def _read_users(value: Value, notes: Notes) -> object:
    raise Wrong("the servers of a group share one user and password: give user and password")


CLUSTER_AUTHORIZATION = Block(
    "authorization",
    (
        optional("user username", String, "A name that goes with the password."),
        optional("password pass", String, "What the servers share; it is never sent."),
        optional("timeout", Timeout, "How long a server may take to prove that it has it."),
        optional("users", Kind("list of maps", _read_users), "Not for servers."),
        refused("token", "Servers share a user and a password."),
    ),
)

REGISTER = Block(
    "register",
    (
        optional(
            "url",
            String,
            "nats://host:4222, or several with commas; s3://bucket/path, gs://, az://; on one "
            "machine file:///directory.",
        ),
        optional("bucket", String, "A key-value bucket of the NATS cluster, which is there."),
        optional("credentials creds", File, "File with a JWT and the seed of its key."),
        optional("ca_file", File, "Whom to trust for the NATS cluster's certificate."),
    ),
)

CLUSTER = Block(
    "cluster",
    (
        optional("name", name_kind("cluster"), "Name of the group, the same everywhere."),
        listen(CLUSTER_PORT, "Address for the other servers."),
        optional("host net", String, "Address for the other servers."),
        optional("port", port_kind(CLUSTER_PORT), "Port for the other servers; 6222 is usual."),
        optional(
            "advertise cluster_advertise",
            String,
            "host:port by which the routes of the others name this server.",
        ),
        optional("no_advertise", Boolean, "Tell clients of no server but the one that leads."),
        optional(
            "routes",
            Kind("list of urls", _read_routes),
            "All servers of the group; this one may be among them.",
        ),
        optional(
            "authorization",
            block_kind(CLUSTER_AUTHORIZATION, ClusterAuthorizationOptions),
            "What the servers share, and prove to each other without sending it.",
            inner=CLUSTER_AUTHORIZATION,
        ),
        optional("tls", block_kind(TLS, TlsOptions), "Both sides show certificates.", inner=TLS),
        optional(
            "register",
            block_kind(REGISTER, RegisterOptions),
            "Where the register lies, if not with the group's own servers; two servers need it.",
            inner=REGISTER,
        ),
        no_effect("connect_retries", Integer, "The servers of the routes are dialled for ever."),
        no_effect("connect_backoff", Boolean, "Pauses between attempts grow anyway."),
        no_effect("pool_size", Integer, "Two servers have one connection."),
        no_effect("accounts", Anything, "Two servers have one connection."),
        no_effect("compression", Anything, "What servers of a group say is not compressed."),
        no_effect("ping_interval", Duration, "A silent server is noticed after 4 s."),
        no_effect("ping_max", Integer, "A silent server is noticed after 4 s."),
        no_effect("write_deadline", Duration, "What a slow server does not take is dropped."),
        refused("permissions", "What of the subjects is shared: all servers have all streams."),
        refused("write_timeout", "What a write that takes too long leads to."),
    ),
)
Cluster = block_kind(CLUSTER, ClusterOptions)
