"""What touches the world: sockets, TLS, configuration, signals, HTTP.

Names are imported on first use: the command looks at its words before it loads a server.
"""

TYPE_CHECKING = False  # as in `slipstream`
if TYPE_CHECKING:
    from typing import Any

    from slipstream.server.options import ServerOptions as ServerOptions
    from slipstream.server.replica.local_group import Group as Group
    from slipstream.server.server import Server as Server

__all__ = ["Group", "Server", "ServerOptions"]


def __getattr__(name: str) -> "Any":
    if name == "Server":
        from slipstream.server.server import Server

        return Server
    if name == "Group":
        from slipstream.server.replica.local_group import Group

        return Group
    if name == "ServerOptions":
        from slipstream.server.options import ServerOptions

        return ServerOptions
    raise AttributeError(f"module 'slipstream.server' has no attribute {name!r}")
