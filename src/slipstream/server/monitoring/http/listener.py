"""The HTTP (and HTTPS) port of monitoring."""

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from slipstream.server.listeners import open_listeners
from slipstream.server.monitoring.http.connection import Guest, HttpConnection, Request, Response
from slipstream.server.monitoring.monitor import Monitor

if TYPE_CHECKING:
    import ssl

    from slipstream.server.monitoring.http.paths import Endpoints


class MonitoringListener:
    """Accepts monitoring's clients on the running loop, until `close`."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.console: Guest | None = None
        self._connections: set[HttpConnection] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int, tls: "ssl.SSLContext | None" = None) -> int:
        """Listen on `port`, or any free one for -1; the port. Raises `OSError` if it is taken."""
        loop = asyncio.get_running_loop()

        def accept() -> HttpConnection:
            return HttpConnection(self.handle, self._connections, self.console)

        listeners = await open_listeners(host, max(port, 0))
        found: int = listeners[0].getsockname()[1]
        for listener in listeners:
            self._servers.append(await loop.create_server(accept, sock=listener, ssl=tls))
        if tls is None:
            self.monitor.http_port = found
        else:
            self.monitor.https_port = found
        return found

    @cached_property
    def _endpoints(self) -> "Endpoints":
        from slipstream.server.monitoring.http.paths import Endpoints  # with the first request

        return Endpoints(self.monitor)

    def handle(self, request: Request) -> Response:
        """Answer a request."""
        return self._endpoints.handle(request)

    def close(self) -> None:
        """Accept no more, and hang up."""
        self.monitor.is_listening = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._connections):
            connection.close()
