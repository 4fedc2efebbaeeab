"""What a server says about itself: over HTTP, as Prometheus metrics, and on the system account.

Each endpoint is a function of the `Monitor` and of an options struct; HTTP queries and the bodies
of `$SYS` requests fill the same structs, so both ways give the same answers
(docs/protocol/monitoring.md).
"""

from slipstream.server.monitoring.listener import MonitoringListener
from slipstream.server.monitoring.monitor import Monitor

__all__ = ["Monitor", "MonitoringListener"]
