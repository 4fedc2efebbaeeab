"""Ports on which a server can come back.

A port that the system chose is given to somebody else as soon as its server has gone: to another
test's server, or as the near end of some connection.
"""

import os

from slipstream.server.replica.free_ports import free_ports

_given: set[int] = set()  # by this process: some are asked for before any is used


def lasting_port() -> int:
    """A free port that the system does not give away, nor another worker of the test run."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        (port,) = free_ports(1)
        if port % workers == worker % workers and port not in _given:
            _given.add(port)
            return port
