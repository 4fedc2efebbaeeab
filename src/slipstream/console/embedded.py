"""The console on the monitoring port of a server, under a path of its own.

The server takes connections, and hands over those that ask for a page of the console; from then on
Uvicorn speaks HTTP on them. The pages use a connection to the server like any client's, so the
server decides who may do what. Only this machine is answered.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import msgspec

from slipstream.client import connect
from slipstream.client.connection import Connection
from slipstream.console.command import MISSING
from slipstream.console.options import ConsoleOptions
from slipstream.console.sessions import Credentials, Sessions
from slipstream.errors import ConfigError, Error

try:
    import uvicorn
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.types import Receive, Scope, Send
    from uvicorn.server import ServerState

    from slipstream.console.app import make_app
except ModuleNotFoundError as missing:
    if (missing.name or "").startswith("slipstream"):
        raise
    raise ConfigError(MISSING) from missing

REQUESTS_MAX = 64  # at a time; a live page is one
FOR_OTHERS = (
    "The console answers on the server's own machine alone: use a proxy with TLS there, or "
    "`slipstream console --server` where you are.\n"
)
# A path and a query of the port that is no page of the console, and the answer: status, type, body.
Elsewhere = Callable[[str, str], tuple[int, str, bytes]]


# Takes what the console was doing when it failed, and the error.
Fault = Callable[[str, BaseException], None]


class _Faults(logging.Handler):
    """Takes the errors that Uvicorn logs to the server's own log.

    A page that `close` ended is none.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(logging.ERROR)
        self._fault = fault

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, asyncio.CancelledError):
            self._fault("showing the console", error or Error(record.getMessage()))


class EmbeddedConsole:
    """Pages for browsers that come to `options.base`; `url` is the server's, once it listens.

    `elsewhere` answers what a browser asks for on a connection that was handed over before, and
    `fault` hears of the console's own mistakes. What a browser does wrong is answered, not logged.
    """

    def __init__(
        self,
        options: ConsoleOptions,
        url: Callable[[], str],
        elsewhere: Elsewhere,
        fault: Fault,
    ) -> None:
        self._options = options
        self._url = url
        self._elsewhere = elsewhere
        self._sessions = Sessions(
            self._dial, lambda connection: connection.jetstream(), options, has_credentials=False
        )
        self._app = make_app(options, self._sessions)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._state = ServerState()
        # Of this console alone: that of the process has settings of the program around it.
        self._logger = logging.Logger("slipstream.console", logging.ERROR)
        self._logger.addHandler(_Faults(fault))
        self._config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            server_header=False,
            limit_concurrency=REQUESTS_MAX,
        )
        self._config.load()

    def wants(self, path: str) -> bool:
        """Whether a path is a page of the console."""
        base = self._options.base
        return path == base or path.startswith(f"{base}/")

    def take_over(self, transport: Any, received: bytes) -> None:
        """Go on with a connection on which `received` came last."""
        make: Callable[..., Any] = self._config.http_protocol_class
        # The connection's own peer counts: a proxy may say in a header whom it asks for.
        if not is_this_machine(transport.get_extra_info("peername")):
            transport.write(_refusal_of_others())
            transport.close()
            return
        protocol = make(config=self._config, server_state=self._state, app_state={})
        protocol.logger, protocol.access_log = self._logger, False
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(received)

    async def close(self) -> None:
        """End the pages that are open, and the connections to the server."""
        for protocol in list(self._state.connections):
            protocol.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sessions.close()

    # -- requests ------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._refusal(scope)
        if answer is not None:
            await answer(scope, receive, send)
            return
        path = scope["path"][len(self._options.base) :]
        await self._app(dict(scope, path=path), receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """The answer to what no page of the console answers."""
        base, path = self._options.base, scope["path"]
        if not self.wants(path):
            query = scope["query_string"].decode("latin-1")
            status, content_type, body = self._elsewhere(path, query)
            return Response(body, status, {"content-type": content_type})
        if path == base:
            return RedirectResponse(f"{base}/", 303)
        try:
            await self._open()
        except Error as error:
            text = f"The console cannot connect to its server: {error}\n"
            return PlainTextResponse(text, 503)
        return None

    async def _open(self) -> None:
        """Connect when the first page is asked for. Raises what `connect` raises."""
        async with self._opening:
            if not self._is_open:
                await self._sessions.open()
                self._is_open = True

    async def _dial(self, credentials: Credentials | None) -> Connection:
        given: dict[str, Any] = {"name": "slipstream console"}
        if credentials is not None:
            found = msgspec.structs.asdict(credentials)
            given |= {name: value for name, value in found.items() if value}
        url = self._url()
        if url.startswith("tls:"):
            # It is this very process, whose certificate names another host.
            given["tls"] = ssl.create_default_context()
            given["tls"].check_hostname = False
            given["tls"].verify_mode = ssl.CERT_NONE
        return await connect(url, **given)


def _refusal_of_others() -> bytes:
    head = (
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(FOR_OTHERS)}\r\nConnection: close\r\n\r\n"
    )
    return (head + FOR_OTHERS).encode()


def is_this_machine(peer: Any) -> bool:
    """Whether a peer, an address with its port, is a program on the same machine."""
    if not peer:
        return False
    address = ip_address(peer[0].partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
