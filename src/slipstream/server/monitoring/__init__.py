r"""What a server says about itself: over HTTP, as Prometheus metrics, and on the system account.

    start                 monitoring of a server that starts
    http      system      who asks: requests over HTTP, requests and listeners on `$SYS`
       \      /
     metrics  |           the exposition for Prometheus, and the list of all metrics and alerts
         \    |
         endpoints        one module for each endpoint, or for two that share their answers
             |
      monitor, values     what endpoints look at; parameters, and answers as bytes

Each endpoint is a function of the `Monitor` and of an options struct; HTTP queries and the bodies
of `$SYS` requests fill the same structs, so both ways give the same answers
(docs/protocol/monitoring.md).
"""

from slipstream.server.monitoring.http.listener import MonitoringListener
from slipstream.server.monitoring.monitor import Monitor, Reload

__all__ = ["Monitor", "MonitoringListener", "Reload"]
