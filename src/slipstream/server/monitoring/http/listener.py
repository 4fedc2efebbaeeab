"""The HTTP (and HTTPS) port of monitoring."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from slipstream.server.listeners import open_listeners
from slipstream.server.monitoring.http.connection import Guest, HttpConnection, Request, Response
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.process_files import urls

if TYPE_CHECKING:
    import ssl

    from slipstream.server.monitoring.http.paths import Endpoint, Endpoints


class MonitoringListener:
    """Accepts monitoring's clients on the running loop, until `close`. What it answers with may
    change meanwhile (`show`): a server of a group leads for a while, and follows for another."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.console: Guest | None = None
        self._instead: Mapping[str, Endpoint] = {}
        self._endpoints: Endpoints | None = None
        self._connections: set[HttpConnection] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int, tls: "ssl.SSLContext | None" = None) -> int:
        """Listen on `port`, or any free one for -1; the port. Raises `OSError` if it is taken."""
        loop = asyncio.get_running_loop()

        def accept() -> HttpConnection:
            return HttpConnection(self.handle, self._connections, lambda: self.console)

        listeners = await open_listeners(host, max(port, 0))
        found: int = listeners[0].getsockname()[1]
        for listener in listeners:
            self._servers.append(await loop.create_server(accept, sock=listener, ssl=tls))
        if tls is None:
            self.monitor.http_port = found
        else:
            self.monitor.https_port = found
        return found

    def urls(self, host: str) -> list[str]:
        """Where it listens on `host`."""
        wanted = (("http", self.monitor.http_port), ("https", self.monitor.https_port))
        return [url for kind, port in wanted if port for url in urls(kind, host, port)]

    def show(self, monitor: Monitor, instead: "Mapping[str, Endpoint] | None" = None) -> None:
        """Answer with another monitor from now on; what is asked of the paths in `instead` is
        answered by these."""
        before, self.monitor = self.monitor, monitor
        monitor.http_port, monitor.https_port = before.http_port, before.https_port
        monitor.requests = before.requests
        self._instead = instead or {}
        self._endpoints = None

    def handle(self, request: Request) -> Response:
        """Answer a request."""
        if self._endpoints is None:
            from slipstream.server.monitoring.http.paths import Endpoints  # with the first request

            self._endpoints = Endpoints(self.monitor, self._instead)
        return self._endpoints.handle(request)

    def close(self) -> None:
        """Accept no more, and hang up."""
        self.monitor.is_listening = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self._connections):
            connection.close()
