"""Servers: their addresses, the order in which to try them, and what they say in INFO.

The pool begins with the URLs that the user gave and grows by those that servers announce. A server
that failed goes to the end of the line; one that failed too often in a row is removed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import unquote, urlsplit

import msgspec

from slipstream.errors import ConfigError, ProtocolError

# Each scheme with the port of URLs that name none.
DEFAULT_PORTS = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}


@dataclass(slots=True)
class ServerAddress:
    """One server; `tls` if its URL demands it, `websocket` if it is reached over one at `path`."""

    host: str
    port: int
    tls: bool = False
    user: str = ""
    password: str = ""
    token: str = ""
    websocket: bool = False
    path: str = ""  # of a WebSocket's URL, with its query
    discovered: bool = False
    tls_name: str = ""  # the host of the URL that led here, if a server announced this one
    failures: int = 0  # in a row
    refusals: int = 0  # of our credentials, in a row
    rounds: int = 0  # how often it was tried since the connection was lost

    @property
    def netloc(self) -> str:
        """host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL without secrets, for messages to people."""
        if self.websocket:
            return f"{'wss' if self.tls else 'ws'}://{self.netloc}{self.path.partition('?')[0]}"
        return f"{'tls' if self.tls else 'nats'}://{self.netloc}"

    @property
    def endpoint(self) -> tuple[bool, str]:
        """What distinguishes it: one address may be reached by each transport."""
        return self.websocket, self.netloc


def _without_secrets(url: str) -> str:
    """A URL as errors show it, without the user, password or token before the host."""
    before, at, host = url.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    return f"{scheme}{slashes}***@{host}" if slashes else f"***@{host}" if at else url


def parse_server(url: str) -> ServerAddress:
    """Read ``[nats://|tls://|ws://|wss://][user:password@|token@]host[:port][/path]``.

    Only WebSockets have a path. Raises `ConfigError`.
    """
    full = url.strip() if "://" in url else f"nats://{url.strip()}"
    shown = _without_secrets(url)
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as error:
        # What urlsplit says may quote a part of a password with a slash or a number sign in it.
        why = error if shown == url else "percent-encode what stands before the @, and see the port"
        raise ConfigError(f"{shown!r} is not a server's URL: {why}") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ConfigError(
            f"{shown!r}: the scheme {parts.scheme!r} is not known; use nats://, tls://, ws:// or "
            "wss://"
        )
    if not parts.hostname:
        raise ConfigError(f"{shown!r} names no host; write nats://host:port")
    name, secret = unquote(parts.username or ""), parts.password
    websocket = parts.scheme in ("ws", "wss")
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return ServerAddress(
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        tls=parts.scheme in ("tls", "wss"),
        websocket=websocket,
        path=path.removesuffix("/") if websocket else "",
        user=name if secret is not None else "",
        password=unquote(secret or ""),
        token=name if secret is None else "",
    )


def parse_servers(urls: str | Iterable[str]) -> list[ServerAddress]:
    """Read one URL, several with commas between them, or a sequence of them."""
    texts = urls.split(",") if isinstance(urls, str) else list(urls)
    servers = [parse_server(text) for text in texts if text.strip()]
    if not servers:
        raise ConfigError("connect needs at least one server's URL, such as nats://127.0.0.1:4222")
    return servers


class ServerPool:
    """The line of servers to try."""

    def __init__(self, servers: Sequence[ServerAddress], random: Random | None) -> None:
        self._random = random
        self._line = list(servers)
        if random is not None:
            random.shuffle(self._line)

    def __len__(self) -> int:
        return len(self._line)

    @property
    def line(self) -> list[ServerAddress]:
        """The servers in the order in which they will be tried."""
        return list(self._line)

    def next(self) -> ServerAddress | None:
        """The server to try now; it goes to the end of the line. None when none is left."""
        if not self._line:
            return None
        server = self._line.pop(0)
        self._line.append(server)
        return server

    def take(self, url: str) -> ServerAddress | None:
        """The server with this `url`, as `next` gives it; None if there is none."""
        for server in self._line:
            if server.url == url:
                self.prefer(server)
                return server
        return None

    def prefer(self, server: ServerAddress) -> None:
        """Try `server` last: we have just been there."""
        if server in self._line:
            self._line.remove(server)
            self._line.append(server)

    def replace(self, servers: Sequence[ServerAddress]) -> None:
        """Try these and no others, until one of them announces more."""
        self._line = list(servers)
        if self._random is not None:
            self._random.shuffle(self._line)

    def drop(self, server: ServerAddress) -> None:
        """Never try it again."""
        if server in self._line:
            self._line.remove(server)

    def discover(self, addresses: Iterable[str], announced_by: ServerAddress) -> list[str]:
        """Take in what a server's INFO names; which are new.

        Servers that were discovered earlier and are no longer named are forgotten, except for the
        one that announced it.
        """
        named = [_beside(announced_by, address) for address in addresses]
        if not named:
            return []
        keep = {server.endpoint for server in named} | {announced_by.endpoint}
        self._line = [s for s in self._line if not s.discovered or s.endpoint in keep]
        known = {server.endpoint for server in self._line}
        new = [server for server in named if server.endpoint not in known]
        if self._random is not None:
            self._random.shuffle(new)
        # The one we are at stays the last to be tried.
        at = len(self._line) - 1 if self._line else 0
        self._line[at:at] = new
        return [server.url for server in new]


def _beside(announced_by: ServerAddress, address: str) -> ServerAddress:
    """The server at `address`, reached and spoken to as the one that announced it."""
    server = parse_server(address)
    server.discovered = True
    server.tls = announced_by.tls
    server.tls_name = announced_by.tls_name or announced_by.host
    server.websocket, server.path = announced_by.websocket, announced_by.path
    server.user, server.password = announced_by.user, announced_by.password
    server.token = announced_by.token
    return server


class ServerInfo(msgspec.Struct, kw_only=True):
    """The server's INFO; absent fields have the meaning of absence."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 1024 * 1024
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = []
    ldm: bool = False  # lame duck: the server is about to stop
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""

    @property
    def version_tuple(self) -> tuple[int, int, int]:
        """`version` for comparisons; (0, 0, 0) if it is not of the form 1.2.3."""
        numbers = self.version.split("-")[0].split("+")[0].split(".")
        if len(numbers) != 3 or not all(n.isdigit() for n in numbers):
            return (0, 0, 0)
        return (int(numbers[0]), int(numbers[1]), int(numbers[2]))


_decode = msgspec.json.Decoder(ServerInfo).decode


def parse_info(text: bytes) -> ServerInfo:
    """Read INFO's JSON; raises `ProtocolError` if it is not one."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a server's INFO cannot be read: {error}") from error
