"""The server's statistics as a message: an answer to PING, or sent while somebody listens."""

import os
from typing import Any

from slipstream.engine.protocol.group import online_of
from slipstream.model.durations import SECOND
from slipstream.model.times import time_text
from slipstream.server.monitoring.monitor import Monitor, whole
from slipstream.server.monitoring.system.envelope import Envelopes
from slipstream.server.monitoring.values import to_json

FIRST_AFTER = SECOND
INTERVAL = 10 * SECOND


def statsz(monitor: Monitor) -> dict[str, Any]:
    """What varz has, in the form of `$SYS`."""
    from slipstream.server.monitoring.endpoints.varz import jetstream_varz

    engine = monitor.engine
    total = monitor.total_traffic()
    sent = {"msgs": total.out_msgs, "bytes": total.out_bytes}
    received = {"msgs": total.in_msgs, "bytes": total.in_bytes}
    cores = os.cpu_count() or 1
    found: dict[str, Any] = {
        "start": time_text(engine.started),
        "mem": monitor.memory_bytes(),
        "cores": cores,
        "cpu": whole(monitor.cpu_percent()),
        "connections": len(engine.sessions),
        "total_connections": engine.total_sessions,
        "active_accounts": sum(bool(account.sessions) for account in engine.accounts.values()),
        "subscriptions": monitor.subscription_count(),
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": engine.slow_consumers,
    }
    rare = {"stale_connections": engine.stale_connections, "stalled_clients": monitor.stalls()}
    found |= {name: count for name, count in rare.items() if count}
    group = engine.group
    if group is not None:
        nothing = {"msgs": 0, "bytes": 0}
        found["routes"] = [
            {"rid": rid, "name": one.name, "sent": nothing, "received": nothing, "pending": 0}
            for rid, one in enumerate(group.followers, 1)
            if not one.is_offline
        ]
    found["active_servers"] = online_of(group) if group is not None else 1
    jetstream = jetstream_varz(monitor, with_store_dir=False)
    if jetstream:
        found["jetstream"] = jetstream
    found["gomaxprocs"] = cores
    return found


class Broadcast:
    """Publishes the statistics every 10 s while somebody listens; costs nothing while nobody does.

    Everything runs in turns of the engine: when interest changes, and by its timers.
    """

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        engine = envelopes.monitor.engine
        self._engine = engine
        self._account = engine.system_account
        self._subject = f"$SYS.SERVER.{engine.server_id}.STATSZ".encode()
        self._waiting = False
        self._account.watch_interest(self._subject, self._interest_changed)

    def _interest_changed(self) -> None:
        if not self._waiting:
            self._wait(FIRST_AFTER)

    def _wait(self, delay: int) -> None:
        self._waiting = self._account.has_interest(self._subject)
        if self._waiting:
            self._engine.timers.after(delay, self._send)

    def _send(self) -> None:
        envelopes = self._envelopes
        answer = {"server": envelopes.server(), "statsz": statsz(envelopes.monitor)}
        self._account.send(self._subject, b"", b"", to_json(answer, indent=0))
        if self._engine.group is not None:
            from slipstream.server.monitoring.system.followers import broadcast_followers

            broadcast_followers(envelopes)
        self._wait(INTERVAL)
