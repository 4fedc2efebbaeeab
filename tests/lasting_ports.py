"""Ports on which a server can come back.

A port that the system chose is given to somebody else as soon as its server has gone: to another
test's server, or as the near end of some connection.
"""

from slipstream.server.replica.free_ports import free_ports


def lasting_port() -> int:
    """A free port that the system does not give away."""
    return free_ports(1)[0]
