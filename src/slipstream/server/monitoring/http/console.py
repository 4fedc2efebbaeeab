"""The console at `/console` of the monitoring port, where it was asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from slipstream.server.logger import Logger
from slipstream.server.monitoring.http.connection import Request
from slipstream.server.monitoring.http.listener import MonitoringListener
from slipstream.server.options import ServerOptions

PATH = "/console"


class Console(Protocol):
    """The pages, as the server sees them."""

    def wants(self, path: str) -> bool:
        """Whether a path is a page of the console."""

    def take_over(self, transport: Any, received: bytes) -> None:
        """Go on with a connection on which `received` came last."""

    async def close(self) -> None:
        """End the pages, and what they use."""


def open_console(
    listener: MonitoringListener, options: ServerOptions, url: Callable[[], str], log: Logger
) -> Console:
    """Have the console answer on a port that is open. Raises `ConfigError` if a package that it
    needs is not installed."""
    # It stands above the server, which finds it by its name as the command line finds commands.
    embedded = import_module("slipstream.console.embedded")
    wanted = import_module("slipstream.console.options").ConsoleOptions

    def elsewhere(path: str, query: str) -> tuple[int, str, bytes]:
        response = listener.handle(Request(path, query))
        return response.status, response.content_type, response.whole_body()

    monitor = listener.monitor
    scheme, port = "http", monitor.http_port
    if not port:
        scheme, port = "https", monitor.https_port
    base = options.monitoring.http_base_path + PATH
    given = options.console
    found: Console = embedded.EmbeddedConsole(
        wanted(
            port=port,
            base=base,
            read_only=given.read_only,
            hosts=tuple(given.hosts),
            mask_headers=tuple(given.mask_headers),
            mask_fields=tuple(given.mask_fields),
        ),
        url,
        elsewhere,
        log.fault,
    )
    listener.console = found
    log.info(f"Starting console on {scheme}://localhost:{port}{base}/")
    return found
