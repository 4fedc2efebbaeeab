"""Every option of a connection, typed once; `slipstream.connect` takes them by name."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import msgspec

from slipstream.client.auth import Identity
from slipstream.client.codecs import Registry
from slipstream.client.servers import ServerInfo
from slipstream.client.telemetry import TelemetryOptions
from slipstream.errors import ConfigError
from slipstream.model.durations import to_seconds
from slipstream.model.unknown_name import unknown_name

if TYPE_CHECKING:
    from slipstream.client.keywords import ConnectKeywords

Seconds: TypeAlias = float | timedelta

MIB = 1024 * 1024


class ConnectOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to connect, and how to behave while connected. Durations are seconds or timedeltas."""

    name: str = ""  # shown by the server's monitoring

    # Who we are: at most one of user and password, token, NKey seed, credentials.
    user: str = ""
    password: str = ""
    token: str | Callable[[], str] = ""
    nkey_seed: str | Path = ""  # the seed itself, or a file that has it
    credentials: str | Path = ""  # a .creds file, read at each connect; or its text
    user_jwt: str | Callable[[], str] = ""  # with `sign`, for keys that live elsewhere
    nkey: str = ""  # public key to go with `sign` where there is no JWT
    sign: Callable[[bytes], bytes] | None = None  # the server's nonce to its signature
    # Asked at each connect, with the server's nonce; b"" if it wants none signed.
    authenticate: Callable[[bytes], Identity | Awaitable[Identity]] | None = None

    # TLS: True for the system's authorities, a context, or the files below.
    tls: bool | ssl.SSLContext = False
    tls_ca: str | Path = ""
    tls_certificate: str | Path = ""
    tls_key: str | Path = ""
    tls_key_password: str = ""
    tls_hostname: str = ""  # the name to check, if it is not the URL's host
    tls_handshake_first: bool = False

    # The socket. WebSocket options are for ws:// and wss:// URLs (extra `slipstream[websocket]`).
    local_address: str = ""  # the address of our side
    open_socket: Callable[[str, int], Awaitable[socket.socket]] | None = None  # through a proxy
    websocket_compression: bool = False  # ask for it; the server decides
    websocket_headers: Mapping[str, str] | Callable[[], Mapping[str, str]] = {}

    # Connecting and coming back.
    connect_timeout: Seconds = 5.0  # for one server, greeting included
    wait_for_server: bool = False  # let `connect` try until a server is there
    reconnect: bool = True
    max_reconnect_attempts: int = -1  # in a row, on each server; -1: for ever
    reconnect_wait: Seconds = 0.1  # before the second round over the servers; doubles each round
    reconnect_wait_max: Seconds = 5.0
    reconnect_jitter: float = 0.5  # up to this part of the wait is added at random
    reconnect_delay: Callable[[int], float] | None = None  # round to seconds, instead of the above
    ignore_authorization_errors: bool = False  # else a server that refuses us twice is left
    # Which server to try next, of the URLs given and after what the last server said of itself;
    # None: as usual.
    choose_server: Callable[[list[str], ServerInfo], str | None] | None = None
    randomize_servers: bool = True
    ignore_discovered_servers: bool = False
    ping_interval: Seconds = 120.0
    max_pings_outstanding: int = 2
    drain_timeout: Seconds = 30.0

    # Traffic.
    timeout: Seconds = 5.0  # of requests that do not say otherwise
    echo: bool = True  # receive what this connection publishes itself
    inbox_prefix: str = "_INBOX"
    pending_bytes_max: int = 8 * MIB  # of what waits to be sent
    max_messages_pending: int = 512 * 1024  # in a subscription that does not say otherwise
    max_bytes_pending: int = 64 * MIB
    when_full: Literal["drop_newest", "drop_oldest"] = "drop_newest"  # of such a subscription
    codecs: Registry | None = None  # asked first for the codec of a type; see `codecs`
    verbose: bool = False
    pedantic: bool = False

    # OpenTelemetry: None takes the providers that are set for the process, if any.
    tracer_provider: Any = None
    meter_provider: Any = None
    telemetry: TelemetryOptions | None = None  # which spans there are, and what they say

    # Events from the very first connect on: called with each `Event`.
    on_event: Callable[[Any], Any] | None = None

    def validate(self) -> None:
        """Raise `ConfigError` if options contradict each other."""
        ways = {
            "user": bool(self.user),
            "token": bool(self.token),
            "nkey_seed": bool(self.nkey_seed),
            "credentials": bool(self.credentials),
            "sign": self.sign is not None,
            "authenticate": self.authenticate is not None,
        }
        chosen = [name for name, given in ways.items() if given]
        if len(chosen) > 1:
            raise ConfigError(f"connect: {' and '.join(chosen)} exclude each other; give one")
        if (self.user_jwt or self.nkey) and self.sign is None:
            raise ConfigError("connect: user_jwt and nkey need `sign`, which signs the nonce")
        if bool(self.tls_key) and not self.tls_certificate:
            raise ConfigError("connect: tls_key needs tls_certificate")
        if not self.inbox_prefix or any(c in self.inbox_prefix for c in " \t\r\n*>"):
            raise ConfigError(
                f"connect: inbox_prefix {self.inbox_prefix!r} must be a subject without wildcards"
            )
        self._validate_numbers()

    def _validate_numbers(self) -> None:
        positive = ("connect_timeout", "ping_interval", "drain_timeout", "timeout")
        for name in positive:
            if to_seconds(getattr(self, name), name) <= 0:
                raise ConfigError(f"connect: {name} must be more than 0 s")
        for name in ("pending_bytes_max", "max_messages_pending", "max_bytes_pending"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"connect: {name} must be at least 1")
        if self.when_full not in ("drop_newest", "drop_oldest"):
            raise ConfigError("connect: when_full is drop_newest or drop_oldest")
        if self.max_pings_outstanding < 1:
            raise ConfigError("connect: max_pings_outstanding must be at least 1")


def make_options(
    base: ConnectOptions | None = None, **options: "Unpack[ConnectKeywords]"
) -> ConnectOptions:
    """Options by name, over those of `base`; raises `ConfigError` if unknown or contradictory."""
    unknown = set(options) - set(ConnectOptions.__struct_fields__)
    if unknown:
        known = ConnectOptions.__struct_fields__
        raise ConfigError(unknown_name("connect", "option", unknown, known))
    made = msgspec.structs.replace(base or ConnectOptions(), **options)
    made.validate()
    return made
