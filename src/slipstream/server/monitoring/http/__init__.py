"""Monitoring over HTTP: the ports, connections and paths; the page at `/`, and the console's place.

`paths` loads the endpoints with the first request, and `console` is loaded where one is wanted.
"""

from slipstream.server.monitoring.http.listener import MonitoringListener

__all__ = ["MonitoringListener"]
