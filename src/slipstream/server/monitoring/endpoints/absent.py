"""Endpoints about what this server does not have: gateways, the runtime of Go.

They answer as a nats-server without gateways does, and with what Python has in place of
Go's runtime, so that whatever reads them works.
"""

import sys
import threading
import traceback
from typing import Any

from slipstream.server.monitoring.monitor import Monitor


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


def stacks() -> bytes:
    """What each thread of the process is doing, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n{lines}")
    return "\n".join(parts).encode()


def profilez(name: str, debug: int) -> dict[str, Any]:
    """A profile, where Python has a counterpart of Go's: the stacks of all threads, as text."""
    if not name:
        return {"profile": None, "error": "Profile name not specified"}
    if name != "goroutine" or debug < 1:
        reason = (
            f'Profile "{name}" not found: this server runs on Python, which has no profiles of Go; '
            'the name "goroutine" with "debug": 1 gives the stacks of its threads as text'
        )
        return {"profile": None, "error": reason}
    return {"profile": stacks()}
