"""What touches the world: sockets, TLS, configuration, signals, HTTP."""

from slipstream.server.options import ServerOptions
from slipstream.server.server import Server

__all__ = ["Server", "ServerOptions"]
