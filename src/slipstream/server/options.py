"""How a server is configured: one typed struct that flags, files and keyword arguments fill."""

from typing import Any

import msgspec

from slipstream.engine.options import SECOND, EngineOptions, JetStreamLimits
from slipstream.errors import ConfigError


class TlsOptions(msgspec.Struct, kw_only=True):
    """TLS for clients; `timeout` in seconds. `handshake_first`: False, True or seconds to wait."""

    cert_file: str
    key_file: str
    ca_file: str = ""
    verify: bool = False
    timeout: float = 2.0
    handshake_first: bool | float = False
    min_version: str = "1.2"


class PermissionOptions(msgspec.Struct, kw_only=True):
    """What a user may do; queue groups stand behind the subject, after a blank."""

    publish_allow: list[str] = []
    publish_deny: list[str] = []
    subscribe_allow: list[str] = []
    subscribe_deny: list[str] = []
    allow_responses: tuple[int, int] | None = None  # how many, for how many ns


class UserOptions(msgspec.Struct, kw_only=True):
    """A user; the password plain or bcrypt."""

    user: str
    password: str = ""
    permissions: PermissionOptions | None = None
    allowed_connection_types: list[str] = []


class AccountOptions(msgspec.Struct, kw_only=True):
    """An account with its users and limits; -1 is without bound."""

    users: list[UserOptions] = []
    default_permissions: PermissionOptions | None = None
    jetstream: bool = False
    jetstream_limits: dict[str, int | bool] = {}
    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    mappings: dict[str, list[tuple[str, int]]] = {}


class AuthorizationOptions(msgspec.Struct, kw_only=True):
    """Who may connect; `timeout` in seconds, 0 for the default."""

    user: str = ""
    password: str = ""
    token: str = ""
    timeout: float = 0.0
    users: list[UserOptions] = []
    default_permissions: PermissionOptions | None = None


class JetStreamOptions(msgspec.Struct, kw_only=True):
    """JetStream; sizes in bytes, 0 is no bound. `sync_interval` in seconds, 0 is before each
    acknowledgement."""

    enabled: bool = False
    store_dir: str = ""
    max_memory_store: int = 0
    max_file_store: int = 0
    sync_interval: float = 0.0
    domain: str = ""
    strict: bool = True
    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window: int = 0  # ns
    cache_bytes_max: int = 16 * 1024 * 1024


class LoggingOptions(msgspec.Struct, kw_only=True):
    """What is written where."""

    debug: bool = False
    trace: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_num: int = 0


class ServerOptions(msgspec.Struct, kw_only=True):
    """Everything; times in seconds, sizes in bytes, port -1 is one that the system chooses."""

    host: str = "0.0.0.0"
    port: int = 4222
    client_advertise: str = ""
    server_name: str = ""
    max_connections: int = 65_536
    max_subscriptions: int = 0
    max_sub_tokens: int = 0
    max_payload: int = 1024 * 1024
    max_pending: int = 64 * 1024 * 1024
    max_control_line: int = 4096
    max_closed_clients: int = 10_000
    ping_interval: float = 120.0
    ping_max: int = 2
    write_deadline: float = 10.0
    lame_duck_duration: float = 120.0
    lame_duck_grace_period: float = 10.0
    no_header_support: bool = False
    http_host: str = ""
    http_port: int = 0
    http_base_path: str = "/"
    https_port: int = 0
    pid_file: str = ""
    ports_file_dir: str = ""
    no_auth_user: str = ""
    system_account: str = "$SYS"
    allow_non_tls: bool = False
    tls: TlsOptions | None = None
    authorization: AuthorizationOptions | None = None
    accounts: dict[str, AccountOptions] = {}
    mappings: dict[str, list[tuple[str, int]]] = {}
    jetstream: JetStreamOptions = msgspec.field(default_factory=JetStreamOptions)
    logging: LoggingOptions = msgspec.field(default_factory=LoggingOptions)

    @property
    def auth_required(self) -> bool:
        """Whether a client has to say who it is."""
        users = bool(self.authorization) or any(a.users for a in self.accounts.values())
        return users and not self.no_auth_user

    def validate(self) -> None:
        """Raises `ConfigError` for what can not be."""
        if self.max_payload > self.max_pending:
            raise ConfigError(
                f"max_payload ({self.max_payload}) can not be larger than max_pending "
                f"({self.max_pending}); raise max_pending"
            )
        if not -1 <= self.port <= 65_535:
            raise ConfigError(f"port {self.port} is not between -1 and 65535")
        if " " in self.server_name:
            raise ConfigError(f"server_name {self.server_name!r} has a blank in it")
        auth = self.authorization
        if auth is not None and auth.users and (auth.user or auth.token):
            raise ConfigError("authorization can have a single user or token, or users, not both")
        if auth is not None and auth.user and auth.token:
            raise ConfigError("authorization can have a user or a token, not both")
        names = [u.user for u in auth.users] if auth else []
        names += [u.user for account in self.accounts.values() for u in account.users]
        if self.no_auth_user and self.no_auth_user not in names:
            raise ConfigError(f"no_auth_user {self.no_auth_user!r} is not one of the users")
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ConfigError(f"users are defined twice: {', '.join(sorted(twice))}")


def engine_options(options: ServerOptions) -> EngineOptions:
    """The part that the engine needs, in its units."""
    js = options.jetstream
    auth = options.authorization
    timeout = auth.timeout if auth and auth.timeout else 2.0
    if options.tls is not None and not (auth and auth.timeout):
        timeout = options.tls.timeout + 1
    fields: dict[str, Any] = {
        name: getattr(options, name)
        for name in (
            "server_name", "host", "client_advertise", "max_payload", "max_control_line",
            "max_pending", "max_connections", "max_subscriptions", "max_sub_tokens",
            "max_closed_clients", "no_header_support", "ping_max",
        )
    }  # fmt: skip
    return EngineOptions(
        **fields,
        port=max(options.port, 0),
        ping_interval=int(options.ping_interval * SECOND),
        auth_timeout=int(timeout * SECOND),
        auth_required=options.auth_required,
        tls_required=options.tls is not None and not options.allow_non_tls,
        tls_available=options.tls is not None and options.allow_non_tls,
        tls_verify=options.tls is not None and options.tls.verify,
        jetstream=js.enabled,
        domain=js.domain,
        strict=js.strict,
        sync_always=js.sync_interval == 0,
        jetstream_limits=JetStreamLimits(
            max_memory=js.max_memory_store,
            max_storage=js.max_file_store,
            max_ack_pending=js.max_ack_pending,
            max_request_batch=js.max_request_batch,
            duplicate_window=js.duplicate_window,
        ),
    )
