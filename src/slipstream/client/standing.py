"""What a connection tells of itself: its state, its server, its counts.

`Connection` does things; these only look.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from slipstream.client.routing import Routing
from slipstream.client.server_info import ServerInfo
from slipstream.client.servers import parse_servers
from slipstream.client.statistics import Statistics
from slipstream.client.telemetry import NO_SPAN, Telemetry

if TYPE_CHECKING:
    from slipstream.client.lifeline import Lifeline
    from slipstream.client.message import Message


class Status(StrEnum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"  # no server has taken it yet
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # another server is sought
    DRAINING = "draining"
    CLOSED = "closed"


class Standing(Routing):
    """How a connection stands."""

    telemetry: Telemetry | None
    dropped: int  # messages that found no room in their subscription
    _lifeline: "Lifeline"

    @property
    def status(self) -> Status:
        """Where it is in its life; `events` tell of every change."""
        if self._closed:
            return Status.CLOSED
        if self._draining:
            return Status.DRAINING
        if self.is_connected:
            return Status.CONNECTED
        return Status.RECONNECTING if self._lifeline.server else Status.CONNECTING

    @property
    def is_closed(self) -> bool:
        """Whether it has ended for good."""
        return self._closed

    @property
    def is_draining(self) -> bool:
        """Whether `drain` was called."""
        return self._draining

    @property
    def last_error(self) -> Exception | None:
        """What went wrong last, as the events told it."""
        return self.events_hub.last_error

    @property
    def server_info(self) -> ServerInfo:
        """What the server said last of itself."""
        return self._lifeline.info

    @property
    def server_url(self) -> str:
        """The server that is connected, or was last; "" before the first."""
        return self._lifeline.server.url if self._lifeline.server else ""

    @property
    def servers(self) -> list[str]:
        """All servers that are known, in the order in which they would be tried."""
        return [server.url for server in self._lifeline.pool.line]

    @property
    def discovered_servers(self) -> list[str]:
        """Those of `servers` that a server told of."""
        return [server.url for server in self._lifeline.pool.line if server.discovered]

    def set_servers(self, urls: str | Iterable[str]) -> None:
        """Try these servers from now on; the one that is connected stays until it is lost.

        `reconnect` moves at once. Raises `ConfigError` for a wrong URL.
        """
        self._lifeline.pool.replace(parse_servers(urls))

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, in bytes with headers."""
        return self.outbox.max_payload

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What asyncio's transports know: "peername", "sockname", "ssl_object", "cipher"..."""
        link = self._lifeline.link
        return default if link is None else link.transport.get_extra_info(name, default)

    @property
    def stats(self) -> Statistics:
        """What it has carried."""
        life, link = self._lifeline, self._lifeline.link
        return Statistics(
            in_messages=life.in_messages + (link.messages if link else 0),
            in_bytes=life.in_bytes + (link.payload_bytes if link else 0),
            out_messages=self.outbox.messages,
            out_bytes=self.outbox.payload_bytes,
            reconnects=life.reconnects,
            pending_bytes=self.outbox.pending,
            subscriptions=len(self.routes),
            dropped=self.dropped,
        )

    def processing(self, message: "Message") -> AbstractContextManager[None]:
        """A span around what is done with `message`; nothing without OpenTelemetry."""
        return NO_SPAN if self.telemetry is None else self.telemetry.process(message)
