"""Looking at a store directory while no server runs: what is in it, what is damaged, and a copy of
what is whole.

A server mends what it can when it starts, and reports the rest. Here the same recovery runs on an
`OverlayDisk`, which keeps all changes in memory; so this finds what a server would find, and the
store stays as it is. After that each message is read, which a server does only when somebody asks
for it.
"""

from slipstream.server.store_check.check import Checked, Report, StoreUnavailable, check_store
from slipstream.server.store_check.repair import repair_store

__all__ = ["Checked", "Report", "StoreUnavailable", "check_store", "repair_store"]
