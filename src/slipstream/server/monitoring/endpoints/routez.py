"""`/routez`: the other servers of the group, as far as the leader knows them
(docs/group.md#what-clients-see)."""

from slipstream.engine.protocol.group import Member, peer_id
from slipstream.model.durations import SECOND
from slipstream.model.times import time_text
from slipstream.server.monitoring.monitor import Monitor, uptime_text


def routez(monitor: Monitor) -> dict[str, object]:
    """One route to each follower that is there; none without a group."""
    head, group = monitor.head(), monitor.engine.group
    followers = group.followers if group is not None else ()
    routes = [
        _route(monitor, number, member)
        for number, member in enumerate(followers, 1)
        if not member.is_offline
    ]
    return {
        "server_id": head["server_id"],
        "server_name": monitor.engine.server_name,
        "now": head["now"],
        "num_routes": len(routes),
        "routes": routes,
    }


def _route(monitor: Monitor, number: int, member: Member) -> dict[str, object]:
    route: dict[str, object] = {
        "rid": number,
        "remote_id": peer_id(member.name),
        "remote_name": member.name,
        "is_configured": True,
    }
    host, _, port = member.address.rpartition(":")
    if host and port.isdigit():
        route |= {"ip": host.strip("[]"), "port": int(port)}
    return route | {
        "last_activity": time_text(monitor.now - member.active),
        "idle": uptime_text(member.active // SECOND * SECOND),
    }
