"""Ports on which a server can come back.

A port that the system chose is given to somebody else as soon as its server has gone: to another
test's server, or as the near end of some connection. Below the range from which the system
chooses, nobody takes a port by chance.
"""

import random
import socket
from pathlib import Path

LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHOSEN_BY_SYSTEM = 32_768  # from here on, where nothing says otherwise


def lasting_port() -> int:
    """A free port that the system does not give away."""
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _CHOSEN_BY_SYSTEM
    choose = random.SystemRandom()  # tests beside this one may have the same seed
    for _ in range(1000):
        port = choose.randrange(LOWEST, max(end, LOWEST + 1))
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no port from {LOWEST} to {end} is free on 127.0.0.1")
