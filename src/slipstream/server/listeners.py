"""Sockets that listen: one for each address of a host, all with the same port.

A wildcard (the default host) means every IPv4 and IPv6 address of the machine. Each family gets a
socket of its own, so that an IPv4 client's address is shown as IPv4; a family that the machine does
not have is left out.
"""

import asyncio
import errno
import socket
from typing import Any

from slipstream.errors import Error

BACKLOG = 4096  # connections that wait to be accepted
WILDCARDS = frozenset({"", "0.0.0.0", "::", "[::]"})
_FAMILY_IS_MISSING = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_RANDOM_PORTS_MAX = 32  # to try: a port that is free for one family may be taken for the other

Address = tuple[int, tuple[Any, ...]]  # family, and what `bind` takes
_EVERYWHERE: list[Address] = [(socket.AF_INET, ("0.0.0.0", 0)), (socket.AF_INET6, ("::", 0))]


async def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on all addresses of `host`; port 0 is any that is free on each of them.

    Raises `OSError` if the port is taken or the host is not an address of this machine.
    """
    addresses = _EVERYWHERE if host in WILDCARDS else await _addresses(host, port)
    for _ in range(_RANDOM_PORTS_MAX):
        try:
            return _listen(addresses, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
            refused = error
    raise refused


def cannot_listen(
    what: str, host: str, port: int, error: OSError, other: str = "another port (-1: any free one)"
) -> Error:
    """What to say of a port that `open_listeners` did not open; `what` begins it."""
    return Error(
        f'{what}: {bracketed(host)}:{port}, "{(error.strerror or str(error)).lower()}"; '
        f"stop the process that uses it, or choose {other}"
    )


def bracketed(host: str) -> str:
    """A host as URLs have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def has_ipv6() -> bool:
    """Whether this machine has IPv6 addresses to listen on."""
    try:
        _bound(socket.AF_INET6, ("::1", 0)).close()
    except OSError:
        return False
    return True


async def _addresses(host: str, port: int) -> list[Address]:
    kind, numeric = socket.SOCK_STREAM, socket.AI_NUMERICHOST
    try:  # an address needs no look-up, which would take a thread, and as bytes no tables of IDNA
        found = socket.getaddrinfo(host.encode(), port, type=kind, flags=numeric)
    except OSError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=kind)
    return list(dict.fromkeys((entry[0], entry[4]) for entry in found))


def _listen(addresses: list[Address], port: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, "the host has no address")
    try:
        for family, (name, _, *rest) in addresses:
            try:
                listener = _bound(family, (name, port, *rest))
            except OSError as error:
                if error.errno not in _FAMILY_IS_MISSING:
                    raise
                missing = error
                continue
            listeners.append(listener)
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise missing
    return listeners


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener
