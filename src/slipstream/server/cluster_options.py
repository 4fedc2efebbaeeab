"""`cluster {}`: the servers that form a group with this one, typed once and checked as a whole.

A group has one, three or five servers, or two if its register lies outside of it. `routes` lists
all of them, this one included or not, so the same list can stand in each configuration; which of
the addresses is this server's own is found without asking a name server.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from slipstream.model.durations import SECOND

if TYPE_CHECKING:
    from slipstream.server.options import ServerOptions, TlsOptions

CLUSTER_PORT = 6222
GROUP_SIZES = (1, 3, 5)
BUCKET_SCHEMES = ("nats", "tls")
OBJECT_SCHEMES = ("s3", "gs", "az")
FILE_SCHEME = "file"
_EVERY_ADDRESS = ("0.0.0.0", "::", "")
_NAME_MAX = 128  # characters
_URL_MAX = 512  # characters
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")
_FILE = re.compile(r"[A-Za-z0-9_=-]+(\.[A-Za-z0-9_=-]+)*")


class RouteOptions(msgspec.Struct, kw_only=True, frozen=True):
    """An address where a server of the group listens for the others."""

    host: str
    port: int
    user: str = ""  # as the URL has them; they have to be those of `authorization`
    password: str = ""

    @property
    def address(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClusterAuthorizationOptions(msgspec.Struct, kw_only=True):
    """`cluster { authorization {} }`: what the servers share, and prove to each other."""

    user: str = ""
    password: str = ""
    timeout: int = 0  # ns, for a server to prove it; 0 is 2 s, with TLS 1 s more than the handshake


class RegisterOptions(msgspec.Struct, kw_only=True):
    """`cluster { register {} }`: where the register lies, if not with the group's own servers."""

    url: str = (
        ""  # nats://host:4222 or several with commas; s3://bucket/path, gs://, az://; file://
    )
    bucket: str = ""  # of a NATS cluster
    credentials: str = ""  # a file with a JWT and a seed, for a NATS cluster
    ca_file: str = ""  # whom to trust for its certificate

    @property
    def scheme(self) -> str:
        """Of the URL."""
        return self.url.partition("://")[0].lower() if "://" in self.url else ""

    @property
    def is_bucket(self) -> bool:
        """Whether it is a bucket of a NATS cluster."""
        return self.scheme in BUCKET_SCHEMES

    @property
    def is_file(self) -> bool:
        """Whether it is a file, for servers of one machine."""
        return self.scheme == FILE_SCHEME

    @property
    def directory(self) -> str:
        """Where that file is; "" if the URL does not say that of this machine."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.netloc in ("", "localhost") else ""


class ClusterOptions(msgspec.Struct, kw_only=True):
    """`cluster {}`: who forms the group."""

    name: str = ""
    host: str = "0.0.0.0"
    port: int = 0  # 0 is unset
    advertise: str = ""  # host:port by which the other servers' routes name this one
    no_advertise: bool = False  # clients are told of no server but the leader
    routes: list[RouteOptions] = msgspec.field(default_factory=list)
    authorization: ClusterAuthorizationOptions = msgspec.field(
        default_factory=ClusterAuthorizationOptions
    )
    tls: "TlsOptions | None" = None
    register: RegisterOptions | None = None

    @property
    def secret(self) -> bytes:
        """What the servers of the group share; empty if there is nothing."""
        auth = self.authorization
        if not auth.password:
            return b""
        user = auth.user.encode()
        return len(user).to_bytes(4, "little") + user + auth.password.encode()

    @property
    def timeout(self) -> int:
        """ns, for a server to prove who it is."""
        if self.authorization.timeout:
            return self.authorization.timeout
        return self.tls.timeout + SECOND if self.tls is not None else 2 * SECOND

    def others(self, server_name: str) -> list[RouteOptions]:
        """The routes to other servers, each address once."""
        found = {route.address: route for route in self.routes}
        return [route for route in found.values() if not self.is_own(route, server_name)]

    def size(self, server_name: str) -> int:
        """How many servers the group has."""
        return len(self.others(server_name)) + 1

    def is_own(self, route: RouteOptions, server_name: str) -> bool:
        """Whether a route leads to this server itself: by what it advertises, by where it listens,
        by its name or that of its machine."""
        if self.advertise:
            host, _, port = self.advertise.rpartition(":")
            return (route.host, str(route.port)) == (host.strip("[]") or self.advertise, port)
        if route.port != self.port:
            return False
        if route.host == self.host:
            return True
        names = {server_name, socket.gethostname(), socket.getfqdn()}
        if route.host in names or route.host.split(".")[0] in names:
            return True
        is_local = route.host == "localhost" or _is_here(route.host)
        return is_local and self.host in (*_EVERY_ADDRESS, "localhost", "127.0.0.1", "::1")

    @property
    def is_configured(self) -> bool:
        """Whether this server belongs to a group."""
        return bool(self.name or self.port or self.routes)

    def faults(self, server: "ServerOptions") -> list[str]:
        """A line for each thing that is wrong, and how to put it right."""
        found = [*_identity(self, server), *_routes(self, server), *_proof(self)]
        return [*found, *_register(self)]


def _is_here(host: str) -> bool:
    """Whether `host` is an address of this machine."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    except OSError:  # a name
        return False
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as taken:
                taken.bind(address)
        except OSError:
            return False
    return True


def _identity(cluster: ClusterOptions, server: "ServerOptions") -> Iterator[str]:
    if not server.server_name:
        yield (
            "cluster: server_name is missing: what a server has promised is kept under its name, "
            "so give each server of the group one of its own that stays"
        )
    elif len(server.server_name) > _NAME_MAX:
        yield f"cluster: server_name has more than {_NAME_MAX} characters: give a shorter one"
    if not cluster.name:
        yield "cluster: name is missing: give all servers of the group the same one"
    elif " " in cluster.name or len(cluster.name) > _NAME_MAX:
        yield (
            f'cluster: name "{cluster.name[:_NAME_MAX]}" has a space, or more than {_NAME_MAX} '
            "characters: use letters, digits, - and _"
        )
    if not server.jetstream.enabled:
        yield "cluster: a group keeps streams together: turn JetStream on"
    if cluster.port == -1:
        yield (
            "cluster: port -1 is any free one, which no route of another server can name: give "
            f"one, such as {CLUSTER_PORT}"
        )
    elif not 1 <= cluster.port <= 65_535:
        yield f"cluster: listen is missing, or its port is not one: give host:{CLUSTER_PORT}"
    elif cluster.port == server.port:
        yield f"cluster: port {cluster.port} is the clients' port: give the group another one"


def _routes(cluster: ClusterOptions, server: "ServerOptions") -> Iterator[str]:
    others = cluster.others(server.server_name)
    size = len(others) + 1
    if size not in GROUP_SIZES and not (size == 2 and cluster.register is not None):
        named = ", ".join(route.address for route in others)
        found = len({route.address for route in cluster.routes})
        own = (
            ""
            if found > len(others)
            else "; none of them is this server: if one is, set "
            "cluster.advertise to the address that it has there"
        )
        why = (
            "more servers make each answer slower and the group no safer"
            if size > max(GROUP_SIZES)
            else "an even number survives no more failures than one server less, and two need a "
            "register outside of the group (cluster.register)"
        )
        yield (
            f"cluster: this server and the routes {named} are {size} servers, and a group has "
            f"1, 3 or 5: {why}{own}"
        )
    auth = cluster.authorization
    for route in cluster.routes:
        if not route.user and not route.password:
            continue
        if (route.user, route.password) != (auth.user, auth.password):
            yield (
                f"cluster: the route {route.address} has another user and password than "
                "cluster.authorization: all servers of a group share one; leave them out of the "
                "routes"
            )


def _proof(cluster: ClusterOptions) -> Iterator[str]:
    auth, tls = cluster.authorization, cluster.tls
    if auth.user and not auth.password:
        yield "cluster: authorization has a user and no password: give the servers one to share"
    if auth.timeout < 0:
        yield 'cluster: authorization: timeout must be above 0: give a duration such as "2s"'
    if tls is None:
        if not auth.password:
            yield (
                "cluster: servers have to prove that they belong to the group: give all of them "
                "the same authorization { user, password }, or tls with certificates"
            )
        return
    for name in ("cert_file", "key_file"):
        if not getattr(tls, name):
            yield f"cluster: tls: {name} is missing: each server shows its certificate"
    if not tls.ca_file and not auth.password:
        yield (
            "cluster: tls: ca_file is missing: with the system's authorities anybody's "
            "certificate is good; name the authority of the group, or add authorization"
        )
    for name in ("cert_file", "key_file", "ca_file"):
        path = getattr(tls, name)
        if path and not os.path.isfile(path):
            yield f'cluster: tls: {name} "{path}" is not a file that can be read'


def _register(cluster: ClusterOptions) -> Iterator[str]:
    register = cluster.register
    if register is None:
        return
    if len(register.url) > _URL_MAX:
        yield f"cluster: register: url has more than {_URL_MAX} characters: give a shorter one"
    elif register.is_bucket:
        yield from _bucket(cluster, register)
    elif register.scheme in OBJECT_SCHEMES:
        if register.bucket or register.credentials or register.ca_file:
            yield (
                "cluster: register: bucket, credentials and ca_file are for a bucket of a NATS "
                "cluster: an object store's bucket is in its url, and what it is reached with in "
                "the environment"
            )
    elif register.is_file:
        yield from _file(cluster, register)
    else:
        yield (
            "cluster: register: url is missing, or names no place that replaces an object on a "
            "condition: give nats://host:4222 with a bucket, or s3://, gs:// or az:// with a "
            "bucket and a path; for servers of one machine file:// with a directory"
        )


def _file(cluster: ClusterOptions, register: RegisterOptions) -> Iterator[str]:
    if not os.path.isabs(register.directory):
        yield (
            f'cluster: register: url "{register.url}" names no directory of this machine: give '
            "file:///path/of/a/directory"
        )
    if register.bucket or register.credentials or register.ca_file:
        yield (
            "cluster: register: bucket, credentials and ca_file are for a bucket of a NATS "
            "cluster: a file needs none of them"
        )
    if not _FILE.fullmatch(cluster.name):
        yield (
            f'cluster: register: the name "{cluster.name}" of the group cannot be the name of a '
            "file: use letters, digits, - and _"
        )
    elsewhere = [host for host in _hosts(cluster) if not _is_loopback(host)]
    if elsewhere:
        yield (
            f"cluster: register: a file is for servers of one machine, and {elsewhere[0]} may be "
            "another one, where it would be another file and both servers could lead: listen on "
            "127.0.0.1, with routes to there, or name a bucket or an object store"
        )


def _hosts(cluster: ClusterOptions) -> list[str]:
    """Where the servers of the group are, as the options say."""
    return [cluster.host, *(route.host for route in cluster.routes)]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def _bucket(cluster: ClusterOptions, register: RegisterOptions) -> Iterator[str]:
    if not all(_is_nats_url(url) for url in register.url.split(",")):
        yield (
            "cluster: register: url has something else than nats://host:4222 or tls://host:4222, "
            "or several of them with commas"
        )
    if not _BUCKET.fullmatch(register.bucket):
        yield (
            f'cluster: register: bucket "{register.bucket}" is not the name of a key-value bucket: '
            "give one of letters, digits, - and _"
        )
    if not _KEY.fullmatch(cluster.name):
        yield (
            f'cluster: register: the name "{cluster.name}" of the group cannot be a key in a '
            "bucket: use letters, digits, - and _"
        )
    for name in ("credentials", "ca_file"):
        path = getattr(register, name)
        if path and not os.path.isfile(path):
            yield f'cluster: register: {name} "{path}" is not a file that can be read'


def _is_nats_url(url: str) -> bool:
    try:
        parts = urlsplit(url.strip())
        has_port = parts.port != 0
    except ValueError:
        return False
    return has_port and bool(parts.hostname) and parts.scheme in BUCKET_SCHEMES
