"""Everything a server can be told, typed once.

A configuration file (`slipstream.server.config`), the command line and `slipstream.Server(...)`
all fill the same `ServerOptions`; each of them calls `validate` once, before anything is
opened. The field names are NATS's directives. Throughout: sizes are in bytes, times in nanoseconds,
counts plain; what a special value means stands beside its field.
"""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from slipstream.engine.leaf.compression import LinkCompression
from slipstream.engine.protocol.options import (
    AccountConnectionLimits,
    AccountJetStreamLimits,
    BatchLimits,
    ConnectionLimits,
    JetStreamCeilings,
    JetStreamLimits,
)
from slipstream.errors import ConfigError
from slipstream.model.durations import MINUTE, SECOND
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.sharing import ExportOptions, ImportOptions, check_sharing

KIB = 1024
MIB = 1024 * 1024

DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
DEFAULT_PORT = 4222
LEAF_PORT = 7422
RANDOM_PORT = -1
EVERY_ADDRESS = ("0.0.0.0", "::", "")
CONNECTION_TYPES = frozenset(
    {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
)


def temporary_directory() -> str:
    """Where the system keeps what may be lost, by nats-server's rule."""
    return os.environ.get("TMPDIR") or "/tmp"


class TlsOptions(msgspec.Struct, kw_only=True):
    """TLS of the client port. Empty paths are unset."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""  # "" trusts the system's roots
    verify: bool = False  # clients must show a certificate
    verify_and_map: bool = False  # and are the user that it names
    timeout: int = 2 * SECOND  # for the handshake
    handshake_first: bool = False  # TLS before INFO
    handshake_first_fallback: int = 0  # then wait this long before INFO in the clear; 0 is for ever
    min_version: str = "1.2"  # or "1.3"
    cipher_suites: list[str] = msgspec.field(default_factory=list)
    curve_preferences: list[str] = msgspec.field(default_factory=list)
    pinned_certs: list[str] = msgspec.field(default_factory=list)  # SHA-256 of SPKI, lower hex


class ResponseOptions(msgspec.Struct, kw_only=True):
    """`allow_responses`: what may be published to the reply subjects of received messages."""

    max_msgs: int = 1  # per reply subject; negative is without bound
    expires: int = 2 * MINUTE  # negative is never


class PermissionOptions(msgspec.Struct, kw_only=True):
    """Subjects that a user may use. An empty allow list allows everything; deny wins.

    Subscribe entries may be "subject queue".
    """

    publish_allow: list[str] = msgspec.field(default_factory=list)
    publish_deny: list[str] = msgspec.field(default_factory=list)
    subscribe_allow: list[str] = msgspec.field(default_factory=list)
    subscribe_deny: list[str] = msgspec.field(default_factory=list)
    allow_responses: ResponseOptions | None = None


class UserOptions(msgspec.Struct, kw_only=True):
    """One user. `permissions` None takes the default permissions of where the user is listed."""

    user: str
    password: str = ""  # plain, or a bcrypt hash ($2a$, $2b$, $2x$, $2y$)
    permissions: PermissionOptions | None = None
    allowed_connection_types: list[str] = msgspec.field(default_factory=list)  # empty: all


class AuthorizationOptions(msgspec.Struct, kw_only=True):
    """`authorization {}`: one user, or a token, or a list of users of the default account."""

    user: str = ""
    password: str = ""
    token: str = ""
    timeout: int = 0  # to send CONNECT; 0 is 2 s, with TLS 1 s more than the handshake may take
    users: list[UserOptions] = msgspec.field(default_factory=list)
    default_permissions: PermissionOptions | None = None

    @property
    def is_configured(self) -> bool:
        """Whether anybody is named here."""
        return bool(self.user or self.password or self.token or self.users)


class MappingDestination(msgspec.Struct, kw_only=True):
    """Where a share of a mapped subject's messages goes."""

    subject: str
    weight: int = 100  # percent
    cluster: str = ""


class MappingOptions(msgspec.Struct, kw_only=True):
    """One entry of `mappings {}`."""

    source: str
    destinations: list[MappingDestination]


class AccountOptions(AccountConnectionLimits, kw_only=True):
    """One account; limits of -1 are without bound, `jetstream` None is JetStream off."""

    name: str
    users: list[UserOptions] = msgspec.field(default_factory=list)
    jetstream: AccountJetStreamLimits | None = None
    default_permissions: PermissionOptions | None = None
    mappings: list[MappingOptions] = msgspec.field(default_factory=list)
    exports: list[ExportOptions] = msgspec.field(default_factory=list)
    imports: list[ImportOptions] = msgspec.field(default_factory=list)


# Of the scrub: a terabyte in three days, for a hundredth of a processor (docs/storage.md).
SCRUB_RATE = 4 * MIB


class JetStreamOptions(JetStreamCeilings, kw_only=True):
    """`jetstream {}`. Durable before acknowledged by default, unlike nats-server's two minutes."""

    enabled: bool = False
    store_dir: str = ""  # a `jetstream` directory is made inside; "" lets the caller choose
    log_dir: str = ""  # for the commit log, as on another disk; "" is the store directory
    sync_always: bool = True  # fdatasync before each (group of) acknowledgements
    sync_interval: int = 2 * MINUTE  # between fdatasyncs where not sync_always
    scrub: int = SCRUB_RATE  # bytes a second of what is stored that are read again; 0: none
    domain: str = ""
    strict: bool = True  # refuse unknown fields of API requests
    limits: JetStreamLimits = msgspec.field(default_factory=JetStreamLimits)


class LimitsOptions(ConnectionLimits, kw_only=True):
    """What connections may cost, and how they are timed."""

    write_deadline: int = 10 * SECOND
    lame_duck_duration: int = 2 * MINUTE
    lame_duck_grace_period: int = 10 * SECOND


class LoggingOptions(msgspec.Struct, kw_only=True):
    """What the server says, and where."""

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False  # implies trace
    trace_headers: bool = False  # implies trace; only the headers of a message, not its body
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""  # "" is stderr
    log_size_limit: int = 0  # rotate when larger; 0 is never
    log_max_num: int = 0  # rotated files to keep; 0 is all
    syslog: bool = False  # to the system's log instead
    remote_syslog: str = ""  # or to a syslog server: udp://host:port, tcp://host:port, a socket
    max_traced_msg_len: int = 0  # 0 is all of it


class MonitoringOptions(msgspec.Struct, kw_only=True):
    """The HTTP endpoints; ports: 0 is off, -1 any free port."""

    host: str = ""  # "" is the client port's host
    http_port: int = 0
    https_port: int = 0  # with the client port's certificate
    http_base_path: str = ""  # "" or "/prefix"


class ConsoleOptions(msgspec.Struct, kw_only=True):
    """`console {}`: the console at /console of the monitoring port, for this machine alone."""

    enabled: bool = False
    read_only: bool = False  # refuse whatever changes something
    hosts: list[str] = msgspec.field(default_factory=list)  # names that a proxy asks for it by
    mask_headers: list[str] = msgspec.field(default_factory=list)
    mask_fields: list[str] = msgspec.field(default_factory=list)  # of JSON bodies


class TelemetryOptions(msgspec.Struct, kw_only=True):
    """`telemetry {}`: what the server sends to an OpenTelemetry collector, by OTLP over HTTP."""

    enabled: bool = False
    endpoint: str = ""  # "" leaves it to the variables OTEL_EXPORTER_OTLP_..., as all else of it
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # of each request
    interval: int = MINUTE  # between two readings of the metrics
    traces: bool = True
    metrics: bool = True
    sample: float = 1.0  # share of the publishers' sampled traces that get the server's spans


class LeafTlsOptions(msgspec.Struct, kw_only=True):
    """TLS of a connection to a hub. Empty paths are unset."""

    ca_file: str = ""  # "" trusts the system's roots
    cert_file: str = ""  # shown to the hub, with its key
    key_file: str = ""
    insecure: bool = False  # the hub's certificate is not looked at
    timeout: int = 2 * SECOND  # for the handshake
    handshake_first: bool = False  # TLS before INFO


class LeafRemoteOptions(msgspec.Struct, kw_only=True):
    """A hub that the server connects to, as a leaf node of it."""

    urls: list[str] = msgspec.field(default_factory=list)  # user:password or a token may stand in
    account: str = DEFAULT_ACCOUNT  # of this server, whose subjects are shared
    credentials: str = ""  # file with a JWT and the seed of its key
    nkey: str = ""  # seed of a key, or a file with one
    tls: LeafTlsOptions | None = None
    hub: bool = False  # the roles are turned around: this server is the hub
    deny_imports: list[str] = msgspec.field(default_factory=list)
    deny_exports: list[str] = msgspec.field(default_factory=list)
    no_randomize: bool = False  # try the urls in their order
    ignore_discovered_servers: bool = False
    disabled: bool = False
    compression: LinkCompression = msgspec.field(default_factory=LinkCompression)


class LeafUserOptions(UserOptions, kw_only=True):
    """A user of the leaf node port; `account` "" is the block's."""

    account: str = ""


class LeafAuthorizationOptions(msgspec.Struct, kw_only=True):
    """`leafnodes { authorization {} }`: who may connect; without it, the users of the accounts."""

    user: str = ""
    password: str = ""
    account: str = ""  # "" is the default account
    users: list[LeafUserOptions] = msgspec.field(default_factory=list)
    timeout: int = 0  # to send CONNECT; 0 is 2 s, with TLS 1 s more than the handshake may take

    @property
    def is_configured(self) -> bool:
        """Whether anybody is named here."""
        return bool(self.user or self.password or self.users)


class LeafNodesOptions(msgspec.Struct, kw_only=True):
    """`leafnodes {}`: links to other servers, dialled and accepted."""

    host: str = "0.0.0.0"
    port: int = 0  # 0 accepts none, -1 is any free port
    advertise: str = ""  # host:port to tell leaf nodes
    no_advertise: bool = False
    authorization: LeafAuthorizationOptions = msgspec.field(
        default_factory=LeafAuthorizationOptions
    )
    tls: TlsOptions | None = None
    remotes: list[LeafRemoteOptions] = msgspec.field(default_factory=list)
    reconnect: int = SECOND  # before dialling again; up to eight times as long after failures
    dial_timeout: int = 5 * SECOND
    compression: LinkCompression = msgspec.field(default_factory=LinkCompression)  # of the port


class ServerOptions(msgspec.Struct, kw_only=True):
    """One server. Ports are as bound: -1 is any free port (a 0 in a file or flag means 4222)."""

    server_name: str = ""  # "" is the server's id
    host: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    client_advertise: str = ""
    allow_non_tls: bool = False
    proxy_protocol: bool = False
    pid_file: str = ""
    ports_file_dir: str = ""
    server_tags: list[str] = msgspec.field(default_factory=list)
    server_metadata: dict[str, str] = msgspec.field(default_factory=dict)
    busy_poll: bool = True  # look for more input for 60 µs after a small read, before sleeping
    no_auth_user: str = ""
    system_account: str = SYSTEM_ACCOUNT
    no_system_account: bool = False
    limits: LimitsOptions = msgspec.field(default_factory=LimitsOptions)
    logging: LoggingOptions = msgspec.field(default_factory=LoggingOptions)
    monitoring: MonitoringOptions = msgspec.field(default_factory=MonitoringOptions)
    console: ConsoleOptions = msgspec.field(default_factory=ConsoleOptions)
    telemetry: TelemetryOptions = msgspec.field(default_factory=TelemetryOptions)
    tls: TlsOptions | None = None
    authorization: AuthorizationOptions = msgspec.field(default_factory=AuthorizationOptions)
    accounts: dict[str, AccountOptions] = msgspec.field(default_factory=dict)
    mappings: list[MappingOptions] = msgspec.field(default_factory=list)  # of the default account
    jetstream: JetStreamOptions = msgspec.field(default_factory=JetStreamOptions)
    leafnodes: LeafNodesOptions = msgspec.field(default_factory=LeafNodesOptions)
    cluster: ClusterOptions = msgspec.field(default_factory=ClusterOptions)
    config_file: str = ""  # where these came from, if from a file
    config_digest: str = ""  # "sha256:<64 hex>" of the file's content, whatever its formatting

    @property
    def has_users(self) -> bool:
        """Whether anybody is configured at all."""
        listed = any(account.users for account in self.accounts.values())
        return self.authorization.is_configured or listed

    @property
    def is_open_to_all(self) -> bool:
        """Whether any client that reaches an address of the machine may do everything."""
        has_certificates = self.tls is not None and self.tls.verify and not self.allow_non_tls
        return self.host in EVERY_ADDRESS and not self.has_users and not has_certificates

    @property
    def auth_timeout(self) -> int:
        """How long a client has to authenticate, in ns."""
        if self.authorization.timeout:
            return self.authorization.timeout
        return self.tls.timeout + SECOND if self.tls is not None else 2 * SECOND

    @property
    def monitoring_host(self) -> str:
        """Where the HTTP endpoints listen."""
        return self.monitoring.host or self.host

    def validate(self) -> None:
        """Raise `ConfigError`, with a line for each thing that is wrong and how to put it right."""
        wrong = [*_ports(self), *_limits(self), *_tls(self), *_users(self), *_jetstream(self)]
        wrong += _leafnodes(self)
        wrong += _telemetry(self.telemetry)
        wrong += check_sharing(self.accounts)
        if self.cluster.is_configured:
            wrong += self.cluster.faults(self)
        if wrong:
            raise ConfigError("\n".join(wrong))


def _ports(options: ServerOptions) -> Iterator[str]:
    monitoring = options.monitoring
    for name, port in (
        ("port", options.port),
        ("http_port", monitoring.http_port),
        ("https_port", monitoring.https_port),
    ):
        if not -1 <= port <= 65_535:
            yield f"{name} {port} is not a port: give 1 to 65535, or -1 for any free one"
    if monitoring.https_port and options.tls is None:
        yield "https_port needs a certificate: add a tls block with cert_file and key_file"
    if monitoring.http_port > 0 and monitoring.http_port == options.port:
        yield f"http_port and port are both {options.port}: give the endpoints a port of their own"
    if options.console.enabled and not monitoring.http_port and not monitoring.https_port:
        yield "console needs the monitoring port: give http_port or https_port"
    if " " in options.server_name:
        yield f'server_name "{options.server_name}" has a space: use letters, digits, - and _'
    for name in ("pid_file", "ports_file_dir"):
        path = getattr(options, name)
        parent = path if name == "ports_file_dir" else os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            yield f'{name}: there is no directory "{parent}": make it, or name another'


def _limits(options: ServerOptions) -> Iterator[str]:
    limits = options.limits
    if limits.max_payload > limits.max_pending:
        yield (
            f"max_payload ({limits.max_payload}) is above max_pending ({limits.max_pending}): "
            "a message could never be sent; raise max_pending"
        )
    if limits.max_payload < 0 or limits.max_pending < 0:
        yield "max_payload and max_pending are sizes in bytes and cannot be negative"
    if limits.max_pending_total and limits.max_pending_total < limits.max_pending:
        yield (
            f"max_pending_total ({limits.max_pending_total}) is below max_pending "
            f"({limits.max_pending}), which each client may have: raise it, or give 0 for "
            "eight times max_pending"
        )
    if limits.max_control_line <= 0:
        yield f"max_control_line {limits.max_control_line} must be above 0; 4KB is usual"
    if limits.ping_interval <= 0:
        yield 'ping_interval must be above 0: give a duration such as "2m"'
    if limits.lame_duck_duration < 30 * SECOND:
        yield 'lame_duck_duration must be at least 30 seconds: give "30s" or more'
    if not 0 <= limits.lame_duck_grace_period < limits.lame_duck_duration:
        yield "lame_duck_grace_period must be shorter than lame_duck_duration and not negative"


def _tls(options: ServerOptions) -> Iterator[str]:
    tls = options.tls
    if tls is None:
        if options.allow_non_tls:
            yield "allow_non_tls needs a tls block: without TLS every client is plain anyway"
        return
    if not tls.cert_file or not tls.key_file:
        missing = "key_file" if tls.cert_file else "cert_file"
        yield f"tls: {missing} is missing: a server needs its certificate and key"
    for name in ("cert_file", "key_file", "ca_file"):
        path = getattr(tls, name)
        if path and not os.path.isfile(path):
            yield f'tls: {name} "{path}" is not a file that can be read'
    if tls.min_version not in ("1.2", "1.3"):
        yield f'tls: min_version "{tls.min_version}" is not known: give "1.2" or "1.3"'


def _users(options: ServerOptions) -> Iterator[str]:
    auth = options.authorization
    if auth.token and (auth.user or auth.password):
        yield "authorization: cannot have a user/pass and token: keep one of them"
    listed = bool(auth.users) or any(account.users for account in options.accounts.values())
    if listed and (auth.user or auth.token):
        one = "token" if auth.token else "user/pass"
        yield f"authorization: cannot have a {one} beside a list of users: move it into the list"
    seen: dict[str, str] = {}
    for account, user in _all_users(options):
        if user.user in seen:
            yield f'duplicate user "{user.user}" in {account} and {seen[user.user]}: rename one'
        seen[user.user] = account
        unknown = set(user.allowed_connection_types) - CONNECTION_TYPES
        if unknown:
            yield f'user "{user.user}": unknown connection types {", ".join(sorted(unknown))}'
    if options.no_auth_user and options.no_auth_user not in seen:
        yield f'no_auth_user "{options.no_auth_user}" is not a configured user: add it to a list'
    if options.system_account not in (SYSTEM_ACCOUNT, *options.accounts):
        yield f'system_account "{options.system_account}" is not configured: add it to accounts'
    if DEFAULT_ACCOUNT in options.accounts:
        yield f"{DEFAULT_ACCOUNT} is a reserved account: put its users into authorization.users"
    for name, item in options.accounts.items():
        if item.jetstream is not None and name == options.system_account:
            yield f'the system account "{name}" cannot have JetStream: use another account'


def _all_users(options: ServerOptions) -> Iterator[tuple[str, UserOptions]]:
    for user in options.authorization.users:
        yield DEFAULT_ACCOUNT, user
    for account in options.accounts.values():
        for user in account.users:
            yield account.name, user


def _jetstream(options: ServerOptions) -> Iterator[str]:
    jetstream = options.jetstream
    if any(c in jetstream.domain for c in " .*>\t"):
        yield f'jetstream: domain "{jetstream.domain}" must be one word without . * or >'
    streams = os.path.abspath(os.path.join(jetstream.store_dir, "jetstream"))
    log_dir = os.path.abspath(jetstream.log_dir) if jetstream.log_dir else ""
    if log_dir == streams or log_dir.startswith(streams + os.sep):
        yield (
            f"jetstream: log_dir {jetstream.log_dir} lies among the streams in {streams}: name a "
            "directory outside of that, such as one on another disk"
        )
    for name in ("max_memory_store", "max_file_store"):
        if getattr(jetstream, name) < -1:
            yield f"jetstream: {name} must be a size, 0 for none or -1 for what the machine has"
    for what, value in _counts(jetstream):
        if value < 0:
            yield f"jetstream: {what} cannot be negative"
    if jetstream.request_queue_limit < 0:
        yield "jetstream: request_queue_limit cannot be negative; 0 is any number"
    if jetstream.sync_interval < 0:
        yield 'jetstream: sync_interval must be a duration such as "2m", or always'


def _telemetry(telemetry: TelemetryOptions) -> Iterator[str]:
    if telemetry.endpoint and not telemetry.endpoint.startswith(("http://", "https://")):
        yield (
            f'telemetry: endpoint "{telemetry.endpoint}" is not a URL of OTLP over HTTP: give one '
            'such as "http://collector:4318"'
        )
    if telemetry.interval < SECOND:
        yield 'telemetry: interval must be a second at least: give a duration such as "60s"'
    if not 0 <= telemetry.sample <= 1:
        yield f"telemetry: sample {telemetry.sample} is not a share: give a number from 0 to 1"
    if telemetry.enabled and not telemetry.traces and not telemetry.metrics:
        yield "telemetry: traces and metrics are both off: turn one on, or leave telemetry out"


def _leafnodes(options: ServerOptions) -> Iterator[str]:
    leafnodes = options.leafnodes
    accounts = {DEFAULT_ACCOUNT, options.system_account, *options.accounts}
    if not -1 <= leafnodes.port <= 65_535:
        yield f"leafnodes: port {leafnodes.port} is not a port: give 1 to 65535, or -1"
    if leafnodes.port > 0 and leafnodes.port == options.port:
        yield f"leafnodes: port {leafnodes.port} is the clients' port: give leaf nodes another one"
    if leafnodes.reconnect <= 0 or leafnodes.dial_timeout <= 0:
        yield 'leafnodes: reconnect and dial_timeout must be above 0, such as "1s"'
    auth = leafnodes.authorization
    if auth.users and (auth.user or auth.password):
        yield "leafnodes: cannot have a user/pass and a users array: move it into the array"
    named = [auth.account, *(user.account for user in auth.users)]
    named += [remote.account for remote in leafnodes.remotes]
    for name in sorted({name for name in named if name} - accounts):
        yield f'leafnodes: there is no account "{name}": add it to accounts, or name another'
    if leafnodes.port:
        for name in ("cert_file", "key_file"):
            if leafnodes.tls is not None and not getattr(leafnodes.tls, name):
                yield f"leafnodes: tls: {name} is missing: a port needs a certificate and its key"
    for remote in leafnodes.remotes:
        if not remote.urls and not remote.disabled:
            yield "leafnodes: a remote needs a url"
        if remote.credentials and remote.nkey:
            yield "leafnodes: a remote cannot have both credentials and an nkey: keep one"


def _counts(jetstream: JetStreamOptions) -> Iterator[tuple[str, Any]]:
    for name in JetStreamLimits.__struct_fields__:
        if name != "batch":
            yield f"limits.{name}", getattr(jetstream.limits, name)
    for name in BatchLimits.__struct_fields__:
        yield f"limits.batch.{name}", getattr(jetstream.limits.batch, name)
