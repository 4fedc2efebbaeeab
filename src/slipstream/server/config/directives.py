"""The directives of the top level (docs/configuration.md#top-level); blocks have their own
modules."""

from slipstream.model.durations import SECOND
from slipstream.server.config.accounts import (
    ACCOUNT,
    AUTHORIZATION,
    MAPPING,
    Accounts,
    Authorization,
    Mappings,
)
from slipstream.server.config.blocks import Block, block_kind, listen, no_effect, optional, refused
from slipstream.server.config.cluster import CLUSTER, Cluster
from slipstream.server.config.jetstream import JETSTREAM, JetStream, StoreDirectory
from slipstream.server.config.kinds import (
    Address,
    Boolean,
    Count,
    Duration,
    Integer,
    Kind,
    Notes,
    Path,
    Share,
    Size,
    SmallSize,
    String,
    StringMap,
    Strings,
    Wrong,
    entries_kind,
    integer_between,
    name_kind,
    port_kind,
    read_duration_text,
)
from slipstream.server.config.leafnodes import LEAFNODES, LeafNodes
from slipstream.server.config.tls import TLS
from slipstream.server.config.tree import Value
from slipstream.server.options import (
    DEFAULT_PORT,
    ConsoleOptions,
    JetStreamOptions,
    ServerOptions,
    TelemetryOptions,
    TlsOptions,
)

CONSOLE = Block(
    "console",
    (
        optional("enabled", Boolean, "Whether there is one; a map without it has one."),
        optional("read_only", Boolean, "Refuse whatever changes something."),
        optional("hosts", Strings, "Names that a proxy on this machine asks for it by."),
        optional("mask_headers", Strings, "Headers to hide; * stands for any letters."),
        optional("mask_fields", Strings, "JSON fields to hide: ssn, or user.*.ssn."),
    ),
)


def _read_console(value: Value, notes: Notes) -> ConsoleOptions:
    if isinstance(value.data, bool):
        return ConsoleOptions(enabled=value.data)
    options = ConsoleOptions(enabled=True)
    CONSOLE.fill(value, options, notes)
    return options


Console = Kind("boolean or map", _read_console)

TELEMETRY = Block(
    "telemetry",
    (
        optional("enabled", Boolean, "Whether anything is sent; a map without it sends."),
        optional(
            "endpoint",
            String,
            "URL of the collector; without one the variables OTEL_EXPORTER_OTLP_... say where.",
        ),
        optional("headers", StringMap, "Headers of each request, such as Authorization."),
        optional("interval", Duration, "Time between two readings of the metrics."),
        optional("traces", Boolean, "Send spans of messages whose publisher's trace is sampled."),
        optional("metrics", Boolean, "Send what /metrics has."),
        optional("sample", Share, "Share of these traces that get spans of the server."),
    ),
)


def _read_telemetry(value: Value, notes: Notes) -> TelemetryOptions:
    if isinstance(value.data, bool):
        return TelemetryOptions(enabled=value.data)
    options = TelemetryOptions(enabled=True)
    TELEMETRY.fill(value, options, notes)
    return options


Telemetry = Kind("boolean or map", _read_telemetry)


def _put_http(target: ServerOptions, found: tuple[str, int]) -> None:
    target.monitoring.host = found[0] or target.monitoring.host
    target.monitoring.http_port = found[1]


def _put_https(target: ServerOptions, found: tuple[str, int]) -> None:
    target.monitoring.host = found[0] or target.monitoring.host
    target.monitoring.https_port = found[1]


def _put_base_path(target: ServerOptions, path: str) -> None:
    target.monitoring.http_base_path = "/" + path.strip("/") if path.strip("/") else ""


def _put_trace_verbose(target: ServerOptions, found: bool) -> None:
    target.logging.trace_verbose = found
    target.logging.trace = target.logging.trace or found


def _put_trace_headers(target: ServerOptions, found: bool) -> None:
    target.logging.trace_headers = found
    target.logging.trace = target.logging.trace or found


def _put_jetstream(target: ServerOptions, found: JetStreamOptions) -> None:
    found.store_dir = found.store_dir or target.jetstream.store_dir  # the top level's, or a default
    target.jetstream = found


def _read_lame_duck(value: Value, notes: Notes) -> int:
    duration = read_duration_text(value, notes)
    if duration < 30 * SECOND:
        raise Wrong(f"the minimum is 30 seconds, found {value.describe()}")
    return duration


def _read_grace(value: Value, notes: Notes) -> int:
    duration = read_duration_text(value, notes)
    if duration < 0:
        raise Wrong("it needs to be positive")
    return duration


TOP = Block(
    "",
    (
        # Listening
        optional("port", port_kind(DEFAULT_PORT), "Port of clients; -1 is any free one."),
        optional(
            "host net", String, "Address to listen on; 0.0.0.0 and :: are all, of IPv4 and IPv6."
        ),
        listen(DEFAULT_PORT, "Both at once."),
        optional("client_advertise", String, "host:port to tell clients.", reloadable=True),
        optional("server_name", name_kind("server"), "Name; its id by default."),
        optional("server_tags", Strings, "Tags of the server.", reloadable=True),
        optional("server_metadata", StringMap, "Facts about the server.", reloadable=True),
        optional("pid_file pidfile", Path, "Where to write the process id.", reloadable=True),
        optional("ports_file_dir", Path, "Where to write a file with all ports.", reloadable=True),
        # Limits and timers
        optional(
            "max_connections max_conn",
            Integer,
            "Connections at a time; 0 refuses all, negative is without bound.",
            option="limits.max_connections",
            reloadable=True,
        ),
        optional(
            "max_subscriptions max_subs",
            Integer,
            "Subscriptions of a connection; 0 is without bound.",
            option="limits.max_subscriptions",
        ),
        optional(
            "max_sub_tokens max_subscription_tokens",
            integer_between(1, 255),
            "Tokens of a subscription's subject.",
            option="limits.max_sub_tokens",
        ),
        optional(
            "max_payload", SmallSize, "Bytes of a message.", "limits.max_payload", reloadable=True
        ),
        optional("max_pending", Size, "Bytes a client may fall behind.", "limits.max_pending"),
        optional(
            "max_pending_total",
            Size,
            "Bytes all clients together may fall behind; 0 is eight times max_pending.",
            "limits.max_pending_total",
            reloadable=True,
        ),
        optional(
            "max_control_line",
            SmallSize,
            "Bytes of a protocol line.",
            "limits.max_control_line",
            reloadable=True,
        ),
        optional(
            "ping_interval",
            Duration,
            "Quiet time before a PING.",
            "limits.ping_interval",
            reloadable=True,
        ),
        optional(
            "ping_max",
            Integer,
            "Unanswered PINGs before a connection is stale.",
            "limits.ping_max",
            reloadable=True,
        ),
        optional(
            "write_deadline",
            Duration,
            "How long a write may take.",
            "limits.write_deadline",
            reloadable=True,
        ),
        optional(
            "no_fast_producer_stall",
            Boolean,
            "Never slow down a publisher for a slow subscriber.",
            "limits.no_fast_producer_stall",
            reloadable=True,
        ),
        optional(
            "busy_poll",
            Boolean,
            "Look for more for 60 µs after a small read, before sleeping: clients that wait for "
            "each answer have it sooner, for some processor time.",
        ),
        optional("no_header_support", Boolean, "Refuse headers.", "limits.no_header_support"),
        optional(
            "max_closed_clients",
            Count,
            "Ended connections that monitoring remembers.",
            "limits.max_closed_clients",
        ),
        optional(
            "lame_duck_duration",
            Kind("duration in quotes", _read_lame_duck),
            "Over how long a lame duck closes its clients; at least 30s.",
            "limits.lame_duck_duration",
        ),
        optional(
            "lame_duck_grace_period",
            Kind("duration in quotes", _read_grace),
            "How long it waits before that.",
            "limits.lame_duck_grace_period",
        ),
        # Logging
        optional("debug", Boolean, "Debug messages.", "logging.debug", reloadable=True),
        optional("trace", Boolean, "Trace the protocol.", "logging.trace", reloadable=True),
        optional(
            "trace_verbose",
            Boolean,
            "And of the system account.",
            "logging.trace_verbose",
            reloadable=True,
            put=_put_trace_verbose,
        ),
        optional(
            "trace_headers",
            Boolean,
            "Trace headers, not bodies.",
            "logging.trace_headers",
            reloadable=True,
            put=_put_trace_headers,
        ),
        optional("logtime", Boolean, "Time in each line.", "logging.logtime", reloadable=True),
        optional("logtime_utc", Boolean, "In UTC.", "logging.logtime_utc", reloadable=True),
        optional("syslog", Boolean, "To the system's log.", "logging.syslog", reloadable=True),
        optional(
            "remote_syslog",
            String,
            "To a syslog server: udp://host:port.",
            "logging.remote_syslog",
            reloadable=True,
        ),
        optional(
            "log_file logfile",
            Path,
            "Log file; standard error without.",
            "logging.log_file",
            reloadable=True,
        ),
        optional(
            "log_size_limit logfile_size_limit",
            Size,
            "Bytes after which the log file is rotated; 0 is never.",
            "logging.log_size_limit",
            reloadable=True,
        ),
        optional(
            "log_max_num logfile_max_num",
            Count,
            "Rotated files to keep; 0 is all.",
            "logging.log_max_num",
            reloadable=True,
        ),
        optional(
            "max_traced_msg_len",
            Integer,
            "Bytes of a body to trace; 0 is all.",
            "logging.max_traced_msg_len",
            reloadable=True,
        ),
        # Monitoring
        optional(
            "http_port monitor_port",
            Integer,
            "Port of the HTTP endpoints; 0 is off, -1 any free one.",
            "monitoring.http_port",
        ),
        optional("https_port", Integer, "The same with TLS.", "monitoring.https_port"),
        optional("http", Address, "Address of the HTTP endpoints.", put=_put_http),
        optional("https", Address, "The same with TLS.", put=_put_https),
        optional(
            "http_base_path",
            String,
            "Path before each endpoint.",
            "monitoring.http_base_path",
            put=_put_base_path,
        ),
        optional(
            "console",
            Console,
            "The console at /console of the monitoring port: true, or a map.",
            inner=CONSOLE,
        ),
        optional(
            "telemetry",
            Telemetry,
            "Traces and metrics for an OpenTelemetry collector: true, or a map.",
            inner=TELEMETRY,
        ),
        # Who may do what
        optional(
            "tls",
            block_kind(TLS, TlsOptions),
            "TLS of the client port.",
            reloadable=True,
            inner=TLS,
        ),
        optional("allow_non_tls", Boolean, "Let clients stay without TLS."),
        optional(
            "proxy_protocol",
            Boolean,
            "Believe headers of the PROXY protocol, of whoever reaches the client port.",
        ),
        optional(
            "authorization",
            Authorization,
            "Who may connect.",
            reloadable=True,
            inner=AUTHORIZATION,
        ),
        optional(
            "accounts", Accounts, "Subject spaces of their own.", reloadable=True, inner=ACCOUNT
        ),
        optional("no_auth_user", String, "User of clients without credentials."),
        optional("system_account system", String, "Account of the server's own subjects."),
        optional("no_system_account no_system no_sys_acc", Boolean, "None of that."),
        optional(
            "mappings maps",
            Mappings,
            "Subjects of the default account to publish elsewhere.",
            reloadable=True,
            inner=MAPPING,
        ),
        # JetStream
        optional(
            "jetstream",
            JetStream,
            "Streams.",
            reloadable=True,
            inner=JETSTREAM,
            put=_put_jetstream,
        ),
        optional(
            "store_dir storedir",
            StoreDirectory,
            "The same as jetstream.store_dir.",
            option="jetstream.store_dir",
        ),
        # Other servers
        optional("leafnodes leaf", LeafNodes, "Links to other servers.", inner=LEAFNODES),
        optional("cluster", Cluster, "Servers that act as one.", inner=CLUSTER),
        # Accepted, no effect
        no_effect("prof_port", Integer, "Profiler of nats-server."),
        no_effect("prof_block_rate", Integer, "Profiler of nats-server."),
        no_effect("disable_sublist_cache no_sublist_cache", Boolean, "Cache of routes."),
        no_effect("connect_error_reports", Integer, "For routes, gateways and leaf nodes."),
        no_effect("reconnect_error_reports", Integer, "For routes, gateways and leaf nodes."),
        no_effect("feature_flags", entries_kind("map of booleans", Boolean), "Of nats-server."),
        # Not supported yet
        refused("write_timeout", "What a write that takes too long leads to."),
        refused("proxies", "Trusted proxies.", "trusted"),
        refused("ocsp", "OCSP stapling."),
        refused("ocsp_cache", "Cache of OCSP responses."),
        refused("websocket ws", "WebSocket.", "port listen"),
        refused("mqtt", "MQTT.", "port listen"),
        refused("gateway", "Gateways to other clusters.", "port listen gateways name"),
        refused("default_js_domain", "JetStream domains of leaf nodes' accounts."),
        refused("operator operators root roots root_operator root_operators", "Operators."),
        refused("trusted_keys trusted", "Operators' keys."),
        refused("resolver account_resolver", "Where account JWTs come from."),
        refused("resolver_preload", "Account JWTs."),
        refused("resolver_tls", "TLS of the resolver."),
        refused("resolver_pinned_accounts", "Accounts that may log in."),
        refused("default_sentinel", "JWT of clients without one."),
    ),
)
