"""All links of a server: its hubs, and the port where leaf nodes connect."""

import asyncio
from typing import TYPE_CHECKING

from slipstream.engine.leaf.leaves import Listener
from slipstream.model.durations import SECOND
from slipstream.server.auth import make_leaf_authenticator
from slipstream.server.leaf.connection import LeafConnection, LeafTlsConnection
from slipstream.server.leaf.remote import RemoteLink
from slipstream.server.listeners import BACKLOG, WILDCARDS, bracketed, cannot_listen, open_listeners
from slipstream.server.options import LeafNodesOptions, ServerOptions
from slipstream.server.process_files import urls

if TYPE_CHECKING:
    from slipstream.server.connection import Connection
    from slipstream.server.runtime import Runtime
    from slipstream.server.tls import Tls


class LeafLinks:
    """Opens what `leafnodes {}` asks for."""

    def __init__(self, runtime: "Runtime", options: ServerOptions) -> None:
        self._runtime = runtime
        self._all = options
        self._options = options.leafnodes
        self._remotes = [
            RemoteLink(runtime, remote, self._options)
            for remote in self._options.remotes
            if not remote.disabled
        ]
        self._tls: Tls | None = None
        self._servers: list[asyncio.Server] = []
        self.port = 0  # where leaf nodes connect; 0 is nowhere

    async def start(self) -> None:
        """Accept leaf nodes, and dial the hubs. Raises `Error`."""
        options = self._options
        if options.port:
            await self._listen(options)
        for remote in self._remotes:
            remote.start()

    async def _listen(self, options: LeafNodesOptions) -> None:
        runtime = self._runtime
        if options.tls is not None:
            from slipstream.server.tls import Tls

            self._tls = Tls(options.tls)
        leaves = runtime.engine.leaves
        leaves.authenticator = make_leaf_authenticator(self._all, runtime.turn)
        try:
            listeners = await open_listeners(options.host, max(options.port, 0))
        except OSError as error:
            what = "Error listening on leafnode port"
            raise cannot_listen(what, options.host, options.port, error) from error
        self.port = listeners[0].getsockname()[1]
        leaves.listener = self._described(options)
        for listener in listeners:
            server = await runtime.loop.create_server(self._accept, sock=listener, backlog=BACKLOG)
            self._servers.append(server)
        address = f"{bracketed(options.host)}:{self.port}"
        runtime.log.info(f"Listening for leafnode connections on {address}")

    def _accept(self) -> "Connection":
        if self._tls is None:
            return LeafConnection(self._runtime)
        return LeafTlsConnection(self._runtime, self._tls)

    def _described(self, options: LeafNodesOptions) -> Listener:
        """What INFO says of the port."""
        tls = options.tls
        timeout = options.authorization.timeout
        if not timeout:
            timeout = tls.timeout + SECOND if tls is not None else 2 * SECOND
        advertised = [options.advertise] if options.advertise else []
        if not advertised and options.host not in WILDCARDS:
            advertised = [f"{bracketed(options.host)}:{self.port}"]
        return Listener(
            host=options.host,
            port=self.port,
            urls=[] if options.no_advertise else advertised,
            tls_required=tls is not None,
            tls_verify=tls is not None and tls.verify,
            auth_timeout=timeout,
            compression=options.compression,
        )

    def urls(self) -> list[str]:
        """Where leaf nodes connect, as the ports file has it."""
        return urls("nats-leaf", self._options.host, self.port) if self.port else []

    async def stop(self) -> None:
        """Accept no more, and dial no more."""
        for server in self._servers:
            server.close()
        for remote in self._remotes:
            await remote.stop()
