"""What a server that follows answers over HTTP: what is true of it, and who knows the rest.

    /healthz                                   whether it has what the leader has
    /varz /connz /routez /jsz /metrics /       the process, the clients that it relays, its links
    /accountz /accstatz /subsz /leafz          503, with the name of the leader, which knows

The other endpoints are about the process alone, and the same whoever leads.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from html import escape

from slipstream import __version__
from slipstream.engine.protocol.group import peer_id
from slipstream.engine.protocol.options import VERSION
from slipstream.server.monitoring import Monitor
from slipstream.server.monitoring.endpoints.connz import ConnzOptions, connz_of, connz_options
from slipstream.server.monitoring.endpoints.healthz import (
    OK,
    UNAVAILABLE,
    HealthzOptions,
    Problem,
    healthz_answer,
    healthz_options,
    problems_of,
)
from slipstream.server.monitoring.endpoints.jsz import jsz_options
from slipstream.server.monitoring.endpoints.varz import (
    jetstream_config,
    jetstream_limits,
    varz,
)
from slipstream.server.monitoring.http.connection import Response
from slipstream.server.monitoring.http.page import page_of, shown_size
from slipstream.server.monitoring.http.paths import (
    Endpoint,
    answer,
    hide_directory,
    plain,
    with_options,
)
from slipstream.server.monitoring.metrics import CONTENT_TYPE, disk_space, metrics
from slipstream.server.monitoring.metrics.samples import (
    Labels,
    Samples,
    add_health,
    add_process,
    add_space,
    numbers_of,
)
from slipstream.server.monitoring.monitor import uptime_text
from slipstream.server.monitoring.values import Query
from slipstream.server.replica.follower_view import FollowerView

LEADER_ALONE = (
    "/console",
    "/console/",
    "/accountz",
    "/accstatz",
    "/subsz",
    "/subscriptionsz",
    "/leafz",
)


def follower_endpoints(view: FollowerView) -> Mapping[str, Endpoint]:
    """What answers for each path."""
    return {
        "/": partial(_index, view),
        "/varz": plain(partial(_varz, view)),
        "/connz": with_options(partial(_connz, view), connz_options),
        "/routez": plain(partial(_routez, view)),
        "/jsz": partial(_jsz, view),
        "/healthz": partial(_healthz, view),
        "/metrics": partial(_metrics, view),
        **dict.fromkeys(LEADER_ALONE, partial(_ask_leader, view)),
    }


def _ask_leader(view: FollowerView, monitor: Monitor, query: Query) -> Response:
    found = {
        **monitor.head(),
        "server_name": view.name,
        "leader": view.leader,
        "leader_address": view.leader_address,
        "error": f"{view.name} follows, and {view.who_knows}",
    }
    return answer(query, found, UNAVAILABLE)


# -- health ----------------------------------------------------------------------------------------


def _problems(
    view: FollowerView, monitor: Monitor, options: HealthzOptions
) -> tuple[int, list[Problem]]:
    if not monitor.is_listening or options.js_server_only:
        return problems_of(monitor, HealthzOptions(js_server_only=True))
    if (options.stream and not options.account) or (options.consumer and not options.stream):
        return problems_of(monitor, options)
    if options.js_enabled or options.js_enabled_only:
        return OK, []
    if view.problem:
        return UNAVAILABLE, [Problem("JETSTREAM", error=f"JetStream: {view.problem}")]
    if options.account:
        what = f"JetStream: {view.name} follows, and {view.who_knows}"
        return UNAVAILABLE, [
            Problem("JETSTREAM", options.account, options.stream, options.consumer, what)
        ]
    return OK, []


def _healthz(view: FollowerView, monitor: Monitor, query: Query) -> Response:
    options = healthz_options(query)
    status, found = healthz_answer(monitor, options, *_problems(view, monitor, options))
    return answer(query, found, status, indent=0)


# -- the server and its clients --------------------------------------------------------------------


def _varz(view: FollowerView, monitor: Monitor) -> dict[str, object]:
    """What is true of this process; of JetStream the settings, because the leader counts."""
    found = varz(monitor)
    came, went = view.brought_bytes
    routes = len(view.linked)
    found |= {
        "cluster": {"name": view.cluster},
        "jetstream": {
            "config": jetstream_config(monitor),
            "limits": jetstream_limits(monitor),
            "meta": _meta(view),
        },
        "connections": view.client_count,
        "total_connections": view.client_total,
        "routes": routes,
        "remotes": routes,
        "in_bytes": came,
        "in_client_bytes": came,
        "out_bytes": went,
        "out_client_bytes": went,
        "slow_consumers": view.slow_count,
    }
    hide_directory(found["jetstream"])
    if view.leader_address:
        found["connect_urls"] = [view.leader_address]
    return found


def _connz(view: FollowerView, monitor: Monitor, options: ConnzOptions) -> dict[str, object]:
    return {**connz_of(monitor, options, view.clients()), "leader": view.leader}


def _routez(view: FollowerView, monitor: Monitor) -> dict[str, object]:
    head = monitor.head()
    routes = [
        {"rid": rid, "remote_id": peer_id(name), "remote_name": name, "is_configured": True}
        for rid, name in enumerate(view.linked, 1)
    ]
    return {
        "server_id": head["server_id"],
        "server_name": view.name,
        "now": head["now"],
        "num_routes": len(routes),
        "routes": routes,
    }


# -- JetStream -------------------------------------------------------------------------------------


def _meta(view: FollowerView) -> dict[str, object]:
    """The group, as nats-server's followers show it: they know of the leader alone whether it is
    current."""
    leader = view.leader
    found: dict[str, object] = {"name": view.cluster, "leader": leader}
    if leader:
        found["peer"] = peer_id(leader)
    size = 1 + len(view.others)
    return found | {
        "replicas": [_peer(view, name) for name in view.others],
        "cluster_size": size,
        "quorum_needed": size // 2 + 1,
        "pending": view.behind,
        "pending_requests": 0,
        "pending_infos": 0,
    }


def _peer(view: FollowerView, name: str) -> dict[str, object]:
    found: dict[str, object] = {"name": name, "current": name == view.leader}
    if name not in view.linked:
        found["offline"] = True
    return found | {"active": 0, "peer": peer_id(name)}


def _jsz(view: FollowerView, monitor: Monitor, query: Query) -> Response:
    """The settings and the group; streams and what they hold are the leader's to count."""
    options = jsz_options(query)
    if options.account or options.accounts or options.streams or options.consumer:
        return _ask_leader(view, monitor, query)
    found = {
        **monitor.head(),
        "config": jetstream_config(monitor),
        "limits": jetstream_limits(monitor),
        "meta_cluster": _meta(view),
    }
    hide_directory(found)
    return answer(query, found)


# -- metrics, and the page -------------------------------------------------------------------------


def _metrics(view: FollowerView, monitor: Monitor, query: Query) -> Response:
    collector = partial(_collect, view)
    return Response(200, CONTENT_TYPE, metrics(monitor, query.text("prefix"), collector))


def _collect(view: FollowerView, monitor: Monitor, found: Samples) -> Iterator[None]:
    server = Labels({"server_id": monitor.engine.server_id})
    status, problems = _problems(view, monitor, HealthzOptions())
    add_health(found, status == OK, len(problems), server)
    add_space(found, view.options.jetstream.store_dir, server)
    named = server.also({"cluster": view.cluster})
    came, went = view.brought_bytes
    numbers = {
        "group_is_leader": 0,
        "group_behind_entries": view.behind,
        "group_relayed_clients": view.client_count,
        "group_relayed_connections_total": view.client_total,
        "group_relayed_in_bytes_total": came,
        "group_relayed_out_bytes_total": went,
    }
    for name, number in numbers.items():
        found.add(f"slipstream_{name}", number, named)
    yield
    add_process(found, server)
    for name, value in numbers_of(_varz(view, monitor), "gnatsd_varz"):
        found.add(name, value, server)


def _index(view: FollowerView, monitor: Monitor, query: Query) -> Response:
    _, problems = _problems(view, monitor, HealthzOptions())
    return Response(
        200, "text/html; charset=utf-8", page_of(monitor, problems, _rows(view, monitor))
    )


def _rows(view: FollowerView, monitor: Monitor) -> Iterator[tuple[str, str]]:
    yield "Server", escape(view.name)
    yield "Version", f"Slipstream {__version__}, NATS {VERSION}"
    yield "Up for", uptime_text(monitor.now - monitor.started)
    leader = escape(view.leader) or "nobody, as far as this server knows"
    yield f"Group {escape(view.cluster)}", f"led by {leader}; this server follows"
    yield "Behind", f"{view.behind:,} entries"
    yield "Connections", f"{view.client_count:,} relayed, of {view.client_total:,} so far"
    yield "Memory", shown_size(monitor.memory_bytes())
    space = disk_space(view.options.jetstream.store_dir)
    if space is not None:
        yield "Disk", f"{shown_size(space[0])} of {shown_size(space[1])} free"
