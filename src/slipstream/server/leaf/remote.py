"""A hub that the server dials, again and again: the link comes back when the hub does.

Between two attempts lies `reconnect`, twice as long after each round of failures, up to eight times
as long, and a random part more, so that many leaf nodes do not come back at the same moment.
"""

import asyncio
import random
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from slipstream.engine.leaf.handshake import Remote
from slipstream.model.durations import SECOND
from slipstream.server.leaf.connection import HubConnection, HubTls, LeafLog, LeafWatcher
from slipstream.server.options import LEAF_PORT, LeafNodesOptions, LeafRemoteOptions, LeafTlsOptions
from slipstream.wire.nkeys import read_credentials, read_seed

if TYPE_CHECKING:
    from slipstream.engine.leaf.session import LeafSession
    from slipstream.server.runtime import Runtime

LONGER_MAX = 3  # times that the wait is doubled
JITTER = 0.25  # of the wait, at most
FAILURES_SAID = 20  # failed attempts between two lines in the log
DISCOVERED_MAX = 64


class RemoteLink:
    """One entry of `leafnodes { remotes }`."""

    def __init__(
        self, runtime: "Runtime", options: LeafRemoteOptions, leafnodes: LeafNodesOptions
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._reconnect = leafnodes.reconnect / SECOND
        self._dial_seconds = leafnodes.dial_timeout / SECOND
        self.urls = list(options.urls)
        if not options.no_randomize:
            random.shuffle(self.urls)
        self._discovered: list[str] = []
        self._tls = HubTls(_tls_options(options))
        self._failures = 0
        self._wait = 0.0  # the hub's word that it has no use to come back earlier
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Dial from now on. Raises `ConfigError` if a file of TLS or of credentials is wrong."""
        if self._options.tls is not None:
            _ = self._tls.context
        self._prove(self.urls[0], "")
        self._task = self._runtime.loop.create_task(self._run())

    async def stop(self) -> None:
        """Dial no more. The connection is the runtime's to close."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            for url in [*self.urls, *self._discovered]:
                self._wait = 0.0
                await self._visit(url)
                rounds = self._failures // max(len(self.urls), 1)
                wait = self._reconnect * 2 ** min(rounds, LONGER_MAX)
                await asyncio.sleep(max(wait * (1 + JITTER * random.random()), self._wait))

    async def _visit(self, url: str) -> None:
        """Connect, and stay as long as that lasts."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or LEAF_PORT
        self._failures += 1  # until the hub has let this server in
        loop = self._runtime.loop
        remote = self._introduction(url)
        if remote.account not in self._runtime.engine.accounts:  # a reload has removed it
            self._say_failure(f"{host}:{port}", f'there is no account "{remote.account}"')
            return

        def connection() -> HubConnection:
            return HubConnection(self._runtime, host, self._tls, remote, self._watch)

        try:
            # Not wait_for: it can lose a cancellation that comes with the connection (3.11).
            async with asyncio.timeout(self._dial_seconds):
                _, made = await loop.create_connection(connection, host, port)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: the host is invalid
            self._say_failure(f"{host}:{port}", str(error) or "timeout")
            return
        try:
            await made.ended
        except asyncio.CancelledError:
            made.ended.cancel()
            raise

    def _say_failure(self, address: str, reason: str) -> None:
        if self._failures % FAILURES_SAID == 1:
            self._runtime.log.error(
                f'Error trying to connect as leafnode to remote server "{address}" '
                f"(attempt {self._failures}): {reason}"
            )

    # -- who this server is ----------------------------------------------------------------------

    def _introduction(self, url: str) -> Remote:
        options = self._options
        account = options.account
        if account == "$SYS":
            account = self._runtime.engine.system_account.name
        return Remote(
            account=account,
            prove=lambda nonce: self._prove(url, nonce),
            hub=options.hub,
            deny_imports=tuple(options.deny_imports),
            deny_exports=tuple(options.deny_exports),
            compression=options.compression,
        )

    def _prove(self, url: str, nonce: str) -> dict[str, str]:
        """The fields of CONNECT that say who this is; files are read each time, so that a key may
        be changed while the server runs. Raises `ConfigError`."""
        options = self._options
        if options.credentials:
            found = read_credentials(options.credentials)
            return {"jwt": found.jwt, "sig": found.key.signature_text(nonce)}
        if options.nkey:
            key = read_seed(options.nkey)
            return {"nkey": key.public, "sig": key.signature_text(nonce)}
        parts = urlsplit(url)
        if parts.username is None:  # one that the hub has named: the same credentials as there
            parts = urlsplit(self.urls[0])
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if user and parts.password is None:
            return {"auth_token": user}
        return {"user": user, "pass": password} if user else {}

    # -- how it fares ----------------------------------------------------------------------------

    def _watch(self, log: LeafLog) -> LeafWatcher:
        return _HubWatcher(log, self)

    def linked(self) -> None:
        """The hub has let this server in."""
        self._failures = 0

    def discovered(self, urls: list[str]) -> None:
        """Servers that the hub says could take its place."""
        if self._options.ignore_discovered_servers:
            return
        known = {urlsplit(url).netloc.rpartition("@")[2] for url in self.urls}
        fresh = [address for address in urls if address not in known and _is_address(address)]
        self._discovered = [f"nats-leaf://{address}" for address in fresh[:DISCOVERED_MAX]]

    def wait(self, delay: int) -> None:
        """Coming back earlier has no use."""
        self._wait = delay / SECOND


class _HubWatcher(LeafWatcher):
    """Tells the link as well."""

    def __init__(self, log: LeafLog, link: RemoteLink) -> None:
        super().__init__(log)
        self._link = link

    def linked(self, session: "LeafSession") -> None:
        super().linked(session)
        self._link.linked()

    def discovered(self, urls: list[str]) -> None:
        self._link.discovered(urls)

    def wait(self, delay: int) -> None:
        self._link.wait(delay)


def _tls_options(options: LeafRemoteOptions) -> LeafTlsOptions | None:
    """What is configured, or what a tls:// URL stands for; None leaves it to the hub."""
    if options.tls is None and any(url.startswith("tls://") for url in options.urls):
        return LeafTlsOptions()
    return options.tls


def _is_address(text: str) -> bool:
    """Whether `text` is host:port."""
    try:
        parts = urlsplit(f"nats-leaf://{text}")
        return bool(parts.hostname and parts.port) and parts.netloc == text
    except ValueError:
        return False
