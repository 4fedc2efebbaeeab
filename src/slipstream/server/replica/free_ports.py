"""Ports for servers that have to know each other's before any of them listens.

A port that the system chooses may be taken again between the choice and its use: as the near end of
some connection, or by another server that lets the system choose. Below the range from which the
system chooses, nobody takes a port by chance.
"""

import random
import socket
from contextlib import suppress

from slipstream.errors import Error

LOWEST = 10_000
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_CHOSEN_BY_SYSTEM = 32_768  # from here on, where nothing says otherwise
_TRIES = 1000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many ports, all different, on which nobody listens. Raises `Error`."""
    end = _CHOSEN_BY_SYSTEM
    with suppress(OSError, ValueError), open(_RANGE, encoding="ascii") as file:
        end = max(int(file.read().split()[0]), LOWEST + count)
    choose = random.SystemRandom()  # other processes may have the same seed
    found: list[int] = []
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        port = choose.randrange(LOWEST, end)
        if port not in found and is_free(port, host):
            found.append(port)
    raise Error(f"not {count} ports from {LOWEST} to {end} are free on {host}: stop what has them")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on it now."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, port))
        except OSError:
            return False
    return True
