"""How a cluster is shown: who leads, who follows, and how far each is."""

from datetime import UTC, datetime

from slipstream.cli.output import table
from slipstream.cli.values import show_duration
from slipstream.model.infos import ClusterInfo, PeerInfo

Pairs = list[tuple[str, str]]


def cluster_section(cluster: ClusterInfo | None) -> tuple[str, Pairs]:
    """A section about the cluster of a stream or consumer, as the `nats` tool has it; without rows
    where a server is by itself."""
    title = "Cluster Information"
    if cluster is None or not cluster.name:
        return title, []
    pairs = [("Name", cluster.name)]
    if cluster.raft_group:
        pairs.append(("Cluster Group", cluster.raft_group))
    leader = cluster.leader or "nobody leads"
    if cluster.leader and cluster.leader_since is not None:
        led = (datetime.now(UTC) - cluster.leader_since).total_seconds()
        leader += f" ({show_duration(max(led, 0.0))})"
    pairs.append(("Leader", leader))
    pairs += [("Replica", replica_text(one)) for one in cluster.replicas]
    return title, pairs


def replica_text(one: PeerInfo) -> str:
    """A follower's name, and how it is."""
    words = [one.name, "current" if one.current else "outdated"]
    if one.offline:
        words.append("OFFLINE")
    words.append(f"seen {show_duration(one.active)} ago" if one.active else "not seen")
    if one.lag:
        words.append(f"{one.lag:,} operation{'s' if one.lag > 1 else ''} behind")
    return ", ".join(words)


def servers_text(cluster: ClusterInfo | None) -> str:
    """The names of all servers: of the leader with a star, of those that lag or are away with an
    exclamation mark."""
    if cluster is None:
        return ""
    names = {
        one.name: one.name + "!" * (one.offline or not one.current) for one in cluster.replicas
    }
    if cluster.leader:
        names[cluster.leader] = cluster.leader + "*"
    return ", ".join(names[name] for name in sorted(names))


def show_members(cluster: ClusterInfo, leader_peer: str = "") -> None:
    """The table of a cluster's servers, the leader among them."""
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            one.peer,
            "",
            "true" if one.current else "false",
            "false" if one.offline else "true",
            show_duration(one.active),
            f"{one.lag:,}",
        )
        for one in cluster.replicas
        if one.name != cluster.leader
    ]
    if cluster.leader:
        rows.append((cluster.leader, leader_peer, "yes", "true", "true", "0s", "0"))
    columns = ("Name", "ID", "Leader", "Current", "Online", "Active", "Lag")
    table(f"Servers of Cluster {cluster.name}", columns, sorted(rows))


def led_by(cluster: ClusterInfo) -> str:
    """One line: who leads, and who does not keep up."""
    text = f"cluster {cluster.name}: {cluster.leader or 'nobody'} leads"
    for one in cluster.replicas:
        if one.offline:
            text += f", {one.name} is away"
        elif not one.current:
            text += f", {one.name} lags by {one.lag:,}"
    return text
