"""The group of servers that this one leads, as the engine knows it, and how answers show it
(docs/group.md#what-clients-see).

An engine that belongs to a group runs on the server that leads, so whoever answers is the leader.
An engine without a group is a server by itself.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.protocol.configurations import Placement
    from slipstream.engine.protocol.infos import ClusterInfo, PeerInfo

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PEER_DIGITS = 8
NO_PEERS = "no suitable peers for placement"
NO_REPLACEMENT = "no replacement peer connected"


class ServerFacts(msgspec.Struct, frozen=True):
    """What a follower says of itself to the leader, who answers for it."""

    server_id: str
    host: str  # where clients connect
    port: int
    cluster_address: str  # host:port, where the other servers connect
    store_dir: str
    start: int  # ns, Unix
    memory: int  # bytes
    cpu: float  # percent of one core
    cores: int
    connections: int  # of clients that it brings to the leader
    connections_total: int
    tags: tuple[str, ...] = ()  # in lower case
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    client_address: str = ""  # host:port at which clients find it; an earlier version says nothing


class Member(msgspec.Struct, frozen=True):
    """One of the servers that follow the leader."""

    name: str
    is_current: bool = True  # it has all that is committed, or nearly
    is_offline: bool = False  # it has not been heard for so long that it counts as gone
    active: int = 0  # ns since it was last heard
    lag: int = 0  # entries of the log that it does not have yet
    address: str = ""  # host:port at which the leader has reached it, if that is known
    tags: tuple[str, ...] = ()  # its server_tags, in lower case, if they are known
    facts: ServerFacts | None = None  # what else is known of it
    is_needed: bool = True  # its copies count; not while the leader goes on alone


class Group(Protocol):
    """What the engine asks of the group that its server leads."""

    @property
    def name(self) -> str:
        """The cluster's name."""

    @property
    def server_name(self) -> str:
        """This server, which leads."""

    @property
    def followers(self) -> Sequence[Member]:
        """All other members, as they are now."""

    @property
    def client_urls(self) -> Sequence[str]:
        """Where clients may connect, as ``host:port``, the leader's address first."""

    def step_down(self, preferred: str = "") -> None:
        """Have another server lead, `preferred` or any, soon: not before this call has returned and
        the turn in which it was made has ended. Raises `slipstream.Error` with the reason if that
        is not possible."""

    def remove(self, server_name: str) -> None:
        """Have a follower leave the group, soon. Raises `slipstream.Error` with the reason if that
        is not possible."""


@lru_cache(maxsize=64)
def peer_id(name: str) -> str:
    """The short name by which nats-server knows the server `name` among its peers."""
    digest = hashlib.sha256(name.encode()).digest()[:_PEER_DIGITS]
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest)


def size_of(group: Group) -> int:
    """How many servers the group has."""
    return 1 + len(group.followers)


def quorum_of(group: Group) -> int:
    """How many servers are a majority, of those that count."""
    return (1 + sum(member.is_needed for member in group.followers)) // 2 + 1


def online_of(group: Group) -> int:
    """How many servers are there and count, the leader among them."""
    return 1 + sum(member.is_needed and not member.is_offline for member in group.followers)


# -- how answers show it -------------------------------------------------------------------------


def peer_infos(group: Group) -> "list[PeerInfo]":
    """The followers."""
    return [_peer_info(member) for member in group.followers]


def all_peer_infos(group: Group) -> "list[PeerInfo]":
    """All servers of the group, the leader first."""
    return [_peer_info(Member(group.server_name)), *peer_infos(group)]


def _peer_info(member: Member) -> "PeerInfo":
    found: PeerInfo = {"name": member.name, "current": member.is_current}
    if member.is_offline:
        found["offline"] = True
    found["active"] = member.active
    if member.lag:
        found["lag"] = member.lag
    found["peer"] = peer_id(member.name)
    return found


def cluster_info(group: Group, since: int, is_kept: bool) -> "ClusterInfo":
    """Who leads a stream or consumer, `since` when, and who follows: everybody, however many
    replicas were asked for. What is in memory alone is not `is_kept`: only the leader has it."""
    found: ClusterInfo = {"name": group.name, "leader": group.server_name}
    if is_kept:
        found["leader_since"] = time_text(since)
        found["replicas"] = peer_infos(group)
    return found


# -- what may be asked of it ---------------------------------------------------------------------


def find_server(group: Group, peer: str) -> str:
    """The server of the group with this name, or with this id among the peers; "" for none."""
    names = (group.server_name, *(member.name for member in group.followers))
    return next((name for name in names if peer in (name, peer_id(name))), "")


def check_placement(
    group: Group, own_tags: Sequence[str], replicas: int, placement: "Placement | None"
) -> None:
    """Whether the group has a place for a stream of so many `replicas`. Raises `ApiError` with
    nats-server's words."""
    if placement is not None and placement.cluster not in ("", group.name):
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=NO_PEERS)
    fitting = 0
    missing: dict[str, None] = {}
    excluded: dict[str, None] = {}
    for tags in (tuple(own_tags), *(member.tags for member in group.followers)):
        wrong = _first_mismatch(placement, tags)
        if not wrong:
            fitting += 1
        elif wrong.startswith("!"):
            excluded[wrong[1:]] = None
        else:
            missing[wrong] = None
    if fitting >= replicas:
        return
    text = NO_PEERS
    for what, names in (("not matched", missing), ("excluded", excluded)):
        if names:
            text += f", tags {what} [{', '.join(repr(name) for name in sorted(names))}]"
    raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=text)


def _first_mismatch(placement: "Placement | None", tags: Sequence[str]) -> str:
    """The first tag of a placement that speaks against a server with `tags`; "" for none."""
    for wanted in placement.tags if placement is not None else ():
        plain = wanted.removeprefix("!").lower()
        if (plain in tags) == wanted.startswith("!"):
            return wanted
    return ""


def successor(group: Group, placement: "Placement | None") -> str:
    """Who is to lead after a step-down; "" for anybody. Raises `ApiError` with nats-server's
    words."""
    if placement is None or not (placement.preferred or placement.cluster or placement.tags):
        return ""
    preferred = placement.preferred
    if preferred == group.server_name:
        text = f'preferred server "{preferred}" is already leader'
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=text)
    if preferred:
        if all(member.name != preferred for member in group.followers):
            text = f'preferred server "{preferred}" not known'
            raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=text)
        return preferred
    candidates = [
        member
        for member in group.followers
        if not member.is_offline and not _first_mismatch(placement, member.tags)
    ]
    if placement.cluster not in ("", group.name) or not candidates:
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=NO_REPLACEMENT)
    if not placement.tags:
        return ""
    return max(candidates, key=lambda member: (member.is_current, -member.lag)).name
