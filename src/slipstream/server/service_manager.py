"""What systemd is told, if it started the server as ``Type=notify`` (sd_notify(3)).

That is a few datagrams, so no library stands between. Everything is sent from the event loop: a
loop that hangs sends nothing, and once `WatchdogSec` has passed systemd ends the process.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


class ServiceManager:
    """The one that the environment names; without one nothing is sent."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._alive_seconds = 0.0  # between two signs of life; 0: nobody looks
        watched = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        limit_us = environment.get("WATCHDOG_USEC", "")
        if self._address and watched and limit_us.isdecimal():
            self._alive_seconds = int(limit_us) / 1e6 / 2

    def tell(self, *lines: str) -> None:
        """Send states, such as `READY`. One that cannot be told is not worth an end."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            try:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                pass

    def tell_reloading(self) -> None:
        """The configuration is being read again; `READY` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The server is ready. From now on show signs of life, twice in the time allowed."""
        self.tell(READY)
        if self._alive_seconds:
            self._show_life(loop)

    def _show_life(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tell(ALIVE)
        loop.call_later(self._alive_seconds, self._show_life, loop)
