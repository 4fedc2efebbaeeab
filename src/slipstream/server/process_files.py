"""The files that tell others about a running server: its process id and its ports.

The ports file, ``<program>_<pid>.ports``, holds JSON: for each kind of listener its URLs, one per
address of this machine. Together with port -1 it is how test suites find the server they started.
"""

import os
import socket

import msgspec

from slipstream.errors import ConfigError
from slipstream.server.listeners import WILDCARDS, bracketed, has_ipv6


def write_pid_file(path: str) -> None:
    """The process id as text. It stays when the server ends. Raises `ConfigError`."""
    try:
        with open(path, "w") as file:
            file.write(str(os.getpid()))
    except OSError as error:
        raise ConfigError(f"Could not write pidfile: {error}") from error


class PortsFile:
    """A ports file, from when the server listens until it ends."""

    def __init__(self, directory: str, program: str) -> None:
        name = os.path.basename(program).replace(" ", "-")
        self.path = os.path.join(directory, f"{name}_{os.getpid()}.ports")

    def write(self, ports: dict[str, list[str]]) -> None:
        """Write all at once: a reader sees nothing or everything. Raises `OSError`."""
        draft = f"{self.path}.tmp"
        with open(draft, "wb") as file:
            file.write(msgspec.json.encode(ports))
        os.rename(draft, self.path)

    def remove(self) -> None:
        """Remove it. Raises `OSError`."""
        os.unlink(self.path)


def urls(scheme: str, host: str, port: int) -> list[str]:
    """Where a listener can be reached: on its host, or on each address of this machine."""
    return [f"{scheme}://{bracketed(name)}:{port}" for name in _addresses(host)]


def _addresses(host: str) -> list[str]:
    if host not in WILDCARDS:
        return [host]
    found, family = ["127.0.0.1"], socket.AF_INET
    if has_ipv6():
        found, family = [*found, "::1"], socket.AF_UNSPEC
    try:
        entries = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
    except OSError:
        return found
    found += [str(entry[4][0]) for entry in entries]
    return list(dict.fromkeys(found))
