"""Monitoring on the system account: requests on `$SYS.REQ.>`, and what the server tells by itself.

`requests` has the answers, and is loaded with the first request.
"""

from slipstream.server.monitoring.system.envelope import Envelopes
from slipstream.server.monitoring.system.events import SystemEvents
from slipstream.server.monitoring.system.services import SystemServices
from slipstream.server.monitoring.system.statsz import Broadcast

__all__ = ["Broadcast", "Envelopes", "SystemEvents", "SystemServices"]
