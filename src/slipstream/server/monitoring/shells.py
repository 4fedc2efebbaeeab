"""Endpoints about what a single server does not have: routes, gateways, leaf nodes and the like.

They answer as a nats-server without those does, so that whatever reads them works.
"""

import sys
from typing import Any

from slipstream.server.monitoring.monitor import Monitor


def routez(monitor: Monitor) -> dict[str, Any]:
    """No routes."""
    head = monitor.head()
    return {
        "server_id": head["server_id"],
        "server_name": monitor.engine.server_name,
        "now": head["now"],
        "num_routes": 0,
        "routes": [],
    }


def leafz(monitor: Monitor) -> dict[str, Any]:
    """No leaf nodes."""
    return {**monitor.head(), "leafnodes": 0, "leafs": []}


def gatewayz(monitor: Monitor) -> dict[str, Any]:
    """No gateways."""
    return {**monitor.head(), "outbound_gateways": {}, "inbound_gateways": {}}


def ipqueuesz(monitor: Monitor) -> dict[str, Any]:
    """No queues between threads: one thread owns the state."""
    return {}


def expvarz(monitor: Monitor) -> dict[str, Any]:
    """The process, as far as what Go's expvar shows has a counterpart."""
    size = monitor.memory_bytes()
    return {"cmdline": sys.argv, "memstats": {"Alloc": size, "Sys": size}}
