"""`/varz`: the server as a whole (docs/protocol/monitoring.md#endpoints)."""

import os
from typing import Any

from slipstream import build
from slipstream.engine.protocol.group import (
    Group,
    online_of,
    peer_id,
    peer_infos,
    quorum_of,
    size_of,
)
from slipstream.engine.protocol.options import API_LEVEL, VERSION
from slipstream.model.durations import SECOND
from slipstream.model.times import time_text
from slipstream.server.monitoring.endpoints.leafz import leaf_settings
from slipstream.server.monitoring.monitor import FEATURE_FLAGS, Monitor, uptime_text, whole

_KINDS = ("clients", "routes", "gateways", "leafs")


def varz(monitor: Monitor) -> dict[str, Any]:
    """Everything that is not about a single connection, subscription or stream."""
    engine, now = monitor.engine, monitor.now
    answer = {
        **_identity(monitor),
        **_settings(monitor),
        "cluster": _cluster(monitor),
        "gateway": {},
        "leaf": leaf_settings(monitor),
        "mqtt": {},
        "websocket": {},
        "jetstream": jetstream_varz(monitor),
        "tls_timeout": _tls_timeout(monitor),
        "write_deadline": monitor.options.limits.write_deadline,
        "start": time_text(monitor.started),
        "now": time_text(now),
        "uptime": uptime_text(now - monitor.started),
        **_load(monitor),
        "http_req_stats": dict(sorted(monitor.requests.items())),
        "config_load_time": time_text(monitor.loaded_at),
        "config_digest": monitor.options.config_digest,
        "tags": [tag.lower() for tag in monitor.options.server_tags],
        "metadata": monitor.options.server_metadata,
        "feature_flags": FEATURE_FLAGS,
        "system_account": _system_account(monitor),
        "slow_consumer_stats": _by_kind(engine.slow_consumers),
        "stale_connection_stats": _by_kind(engine.stale_connections),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
    for name in ("tags", "metadata", "system_account"):
        if not answer[name]:
            del answer[name]
    return answer


def _identity(monitor: Monitor) -> dict[str, Any]:
    engine, options = monitor.engine, monitor.options
    return {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "version": VERSION,
        "proto": 1,
        "go": f"slipstream ({build.describe()})",
        "host": options.host,
        "port": engine.options.port,
    }


def _cluster(monitor: Monitor) -> dict[str, object]:
    """The group by its name, and where its servers listen for each other, as far as is known."""
    group = monitor.engine.group
    if group is None:
        return {}
    urls = [member.address for member in group.followers if member.address]
    found: dict[str, object] = {"name": group.name}
    return found | ({"urls": urls} if urls else {})


def _settings(monitor: Monitor) -> dict[str, Any]:
    engine, options = monitor.engine.options, monitor.options
    limits = options.limits
    settings: dict[str, Any] = {}
    if options.has_users:  # even where clients may come without credentials
        settings["auth_required"] = True
    for name in ("tls_required", "tls_verify"):
        if getattr(engine, name):
            settings[name] = True
    group = monitor.engine.group
    if group is not None and group.client_urls:
        settings["connect_urls"] = list(group.client_urls)
    settings["max_connections"] = engine.max_connections
    if engine.max_subscriptions:
        settings["max_subscriptions"] = engine.max_subscriptions
    settings |= {
        "ping_interval": engine.ping_interval,
        "ping_max": engine.ping_max,
        "http_host": options.monitoring_host,
        "http_port": monitor.http_port,
        "http_base_path": options.monitoring.http_base_path,
        "https_port": monitor.https_port,
        "auth_timeout": whole(engine.auth_timeout / SECOND),
        "max_control_line": limits.max_control_line,
        "max_payload": engine.max_payload,
        "max_pending": engine.max_pending,
    }
    return settings


def _load(monitor: Monitor) -> dict[str, Any]:
    engine = monitor.engine
    total = monitor.total_traffic()
    cores = os.cpu_count() or 1
    routes = online_of(engine.group) - 1 if engine.group is not None else 0
    return {
        "mem": monitor.memory_bytes(),
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": whole(monitor.cpu_percent()),
        "connections": len(engine.sessions),
        "total_connections": engine.total_sessions,
        "routes": routes,
        "remotes": routes,
        "leafnodes": engine.leaves.count(),
        "in_msgs": total.in_msgs,
        "in_bytes": total.in_bytes,
        "in_client_msgs": total.in_msgs,
        "in_client_bytes": total.in_bytes,
        "out_msgs": total.out_msgs,
        "out_bytes": total.out_bytes,
        "out_client_msgs": total.out_msgs,
        "out_client_bytes": total.out_bytes,
        "slow_consumers": engine.slow_consumers,
        "stale_connections": engine.stale_connections,
        "stalled_clients": monitor.stalls(),
        "subscriptions": monitor.subscription_count(),
    }


def _by_kind(clients: int) -> dict[str, int]:
    return {kind: clients if kind == "clients" else 0 for kind in _KINDS}


def _tls_timeout(monitor: Monitor) -> float:
    tls = monitor.options.tls
    return whole(tls.timeout / SECOND) if tls is not None else 2


def _system_account(monitor: Monitor) -> str:
    return "" if monitor.options.no_system_account else monitor.options.system_account


# -- JetStream ---------------------------------------------------------------------------------


def jetstream_varz(monitor: Monitor, with_store_dir: bool = True) -> dict[str, Any]:
    """`jetstream` in varz and statsz; empty where JetStream is off."""
    if not monitor.options.jetstream.enabled:
        return {}
    found = {
        "config": jetstream_config(monitor),
        "stats": jetstream_stats(monitor),
        "limits": jetstream_limits(monitor),
    }
    if monitor.engine.group is not None:
        found["meta"] = meta_cluster(monitor, monitor.engine.group)
    if not with_store_dir:
        del found["config"]["store_dir"]
    return found


def meta_cluster(monitor: Monitor, group: Group) -> dict[str, object]:
    """Who leads the group, who follows, and what waits."""
    return {
        "name": group.name,
        "leader": group.server_name,
        "peer": peer_id(group.server_name),
        "replicas": peer_infos(group),
        "cluster_size": size_of(group),
        "quorum_needed": quorum_of(group),
        "pending": 0,
        "pending_requests": len(monitor.engine.rounds.requests),
        "pending_infos": 0,
    }


def jetstream_config(monitor: Monitor) -> dict[str, Any]:
    """What JetStream may use, and where it keeps it."""
    js = monitor.options.jetstream
    config: dict[str, Any] = {
        "max_memory": monitor.max_memory,
        "max_storage": monitor.max_storage,
        "store_dir": os.path.join(js.store_dir, "jetstream"),
        "sync_interval": js.sync_interval,
    }
    if js.sync_always:
        config["sync_always"] = True
    if js.domain:
        config["domain"] = js.domain
    config["compress_ok"] = True
    if js.strict:
        config["strict"] = True
    return config


def jetstream_stats(monitor: Monitor) -> dict[str, Any]:
    """What all accounts use."""
    found = [a.jetstream for a in monitor.engine.accounts.values() if a.jetstream is not None]
    return {
        "memory": sum(js.used("memory") for js in found),
        "storage": sum(js.used("file") for js in found),
        "reserved_memory": sum(js.reserved("memory") for js in found),
        "reserved_storage": sum(js.reserved("file") for js in found),
        "accounts": len(found),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(js.api_total for js in found),
            "errors": sum(js.api_errors for js in found),
        },
    }


def jetstream_limits(monitor: Monitor) -> dict[str, Any]:
    """Ceilings on what API requests may ask for, those that there are."""
    limits = monitor.options.jetstream.limits
    found = {
        "max_request_batch": limits.max_request_batch,
        "max_ack_pending": limits.max_ack_pending,
        "max_duplicate_window": limits.duplicate_window,
        "default_max_consumers": limits.default_max_consumers,
    }
    return {name: value for name, value in found.items() if value}
