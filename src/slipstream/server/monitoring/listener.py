"""The HTTP (and HTTPS) port of monitoring."""

import asyncio
import ssl

from slipstream.server.monitoring.endpoints import Endpoints
from slipstream.server.monitoring.http import HttpConnection
from slipstream.server.monitoring.monitor import Monitor


class MonitoringListener:
    """Accepts monitoring's clients on the running loop, until `close`."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._endpoints = Endpoints(monitor)
        self._connections: set[HttpConnection] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on `port`, or any free one for -1; the port. Raises `OSError` if it is taken."""
        loop = asyncio.get_running_loop()

        def accept() -> HttpConnection:
            return HttpConnection(self._endpoints.handle, self._connections)

        server = await loop.create_server(accept, host or None, max(port, 0), ssl=tls)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        if tls is None:
            self.monitor.http_port = found
        else:
            self.monitor.https_port = found
        return found

    def close(self) -> None:
        """Accept no more, and hang up."""
        self.monitor.is_listening = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._connections):
            connection.close()
