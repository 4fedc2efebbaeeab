"""A service: its endpoints, and the answers to whoever asks what it is (ADR-32)."""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client.errors import ClientError
from slipstream.client.message import Message
from slipstream.client.payload import subject_bytes
from slipstream.client.services.endpoint import Endpoint, EndpointHandler
from slipstream.client.services.replies import (
    EndpointInfo,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)
from slipstream.client.subscriptions import Sink, SinkSubscription
from slipstream.errors import ConfigError, Error

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

DEFAULT_QUEUE_GROUP = "q"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VERSION = re.compile(  # the regular expression of semver.org, in short
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)

# "" takes the queue group of the group or service above; None is none at all.
QueueGroup = str | None


class Monitor(Sink):
    """Answers one of the control verbs, inside the read."""

    def __init__(self, reply: Callable[[], msgspec.Struct]) -> None:
        self._reply = reply

    def deliver(self, message: Message) -> None:
        """Somebody asks."""
        if message.reply:
            message.respond_nowait(msgspec.json.encode(self._reply()))


class Group:
    """Endpoints under a common prefix of their subjects."""

    def __init__(self, service: "Service", prefix: str, queue_group: QueueGroup) -> None:
        self._service = service
        self._prefix = prefix
        self._queue_group = queue_group

    def add_group(self, prefix: str, *, queue_group: QueueGroup = "") -> "Group":
        """A group inside this one."""
        return make_group(self._service, f"{self._prefix}.{prefix}", queue_group, self)

    async def add_endpoint(
        self,
        name: str,
        handler: EndpointHandler,
        *,
        subject: str = "",
        queue_group: QueueGroup = "",
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        stats_data: Callable[[Endpoint], Any] | None = None,
        type: Any = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
    ) -> Endpoint:
        """Serve ``<prefix>.<subject>`` (`subject` is by default `name`) with `handler`.

        What `handler` (a function or coroutine function of a `ServiceRequest`) returns is the
        answer, unless it is None; raising `ServiceError` answers with that error, any other
        exception with a 500. `concurrency` requests are handled at the same time. `stats_data`
        gives the `data` of the endpoint's statistics, by default that of the service.
        ``request.value`` is of `type`; a request that is not is answered with a 400. As many
        requests wait as `subscribe` would let. Raises `ConfigError`, `InvalidSubjectError`.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"endpoint {name!r}: a name has only A-Z, a-z, 0-9, _ and -")
        if concurrency < 1:
            raise ConfigError(f"endpoint {name!r}: concurrency must be at least 1")
        where = f"{self._prefix}.{subject or name}" if self._prefix else subject or name
        group = self._queue_group if queue_group == "" else queue_group
        info = EndpointInfo(
            name=name, subject=where, queue_group=group or "", metadata=dict(metadata or {})
        )
        connection = self._service.connection
        service = self._service
        options = {
            "type": type,
            "max_messages_pending": max_messages_pending,
            "max_bytes_pending": max_bytes_pending,
        }
        data = stats_data or service.stats_data
        endpoint = Endpoint(connection, info, handler, concurrency, data, service.report, options)
        await self._service.start_endpoint(endpoint)
        return endpoint


class Service(Group):
    """A service; `Connection.add_service` makes it. Leaving the context stops it.

    `on_error` is called with the service and what no answer could tell: a subscription that is
    refused, an answer that can not be sent. `on_stop` is called once when it has ended.
    """

    def __init__(
        self,
        connection: "Connection",
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: QueueGroup = DEFAULT_QUEUE_GROUP,
        stats_data: Callable[[Endpoint], Any] | None = None,
        on_error: Callable[["Service", Exception], Any] | None = None,
        on_stop: Callable[["Service"], Any] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"service {name!r}: a name has only A-Z, a-z, 0-9, _ and -")
        if not _VERSION.fullmatch(version):
            raise ConfigError(f"service {name!r}: version {version!r} is not like 1.2.3 (semver)")
        super().__init__(self, "", queue_group)
        self.connection = connection
        self.name = name
        self.version = version
        self.description = description
        self.metadata = dict(metadata or {})
        self.stats_data = stats_data
        self._on_error = on_error
        self._on_stop = on_stop
        self.id = connection.new_id()
        self.endpoints: list[Endpoint] = []
        self._started = datetime.now(UTC)
        self._monitors: list[SinkSubscription] = []
        self._stopped = False

    def add_group(self, prefix: str, *, queue_group: QueueGroup = "") -> Group:
        """A group whose endpoints' subjects begin with `prefix`."""
        return make_group(self, prefix, queue_group, self)

    # -- what it says of itself ----------------------------------------------------------------

    def ping(self) -> ServicePing:
        """The answer to PING."""
        return ServicePing(name=self.name, id=self.id, version=self.version, metadata=self.metadata)

    def info(self) -> ServiceInfo:
        """The answer to INFO."""
        return ServiceInfo(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self.metadata,
            description=self.description,
            endpoints=[endpoint.info for endpoint in self.endpoints],
        )

    def stats(self) -> ServiceStats:
        """The answer to STATS."""
        return ServiceStats(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self.metadata,
            started=self._started.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            endpoints=[endpoint.stats() for endpoint in self.endpoints],
        )

    def reset(self) -> None:
        """Count from zero, and begin now."""
        self._started = datetime.now(UTC)
        for endpoint in self.endpoints:
            endpoint.reset()

    # -- its life ------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    async def start(self) -> None:
        """Answer the control verbs."""
        verbs = {"PING": self.ping, "INFO": self.info, "STATS": self.stats}
        for verb, reply in verbs.items():
            monitor = Monitor(reply)
            for tail in ("", f".{self.name}", f".{self.name}.{self.id}"):
                self._monitors.append(self.connection.open_sink(f"$SRV.{verb}{tail}", monitor))

    async def start_endpoint(self, endpoint: Endpoint) -> None:
        """Take in an endpoint and let it listen."""
        if self._stopped:
            raise ClientError(f"add_endpoint {endpoint.name!r}: service {self.name!r} is stopped")
        await endpoint.start()
        self.endpoints.append(endpoint)

    async def stop(self) -> None:
        """Take no more requests; return once those that have come are answered."""
        if self._stopped:
            return
        self._stopped = True
        errors: list[Error] = []
        try:
            for endpoint in self.endpoints:
                try:
                    await endpoint.stop()
                except Error as error:
                    errors.append(error)  # the others are to be stopped all the same
            if errors:
                raise errors[0]
        except asyncio.CancelledError:
            for endpoint in self.endpoints:
                endpoint.leave()
            raise
        finally:
            if not self.connection.is_closed:
                for monitor in self._monitors:
                    monitor.close()
            self._tell_stopped()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop at once, since the connection is closed; the tasks to wait for."""
        if not self._stopped:
            self._stopped = True
            self._tell_stopped()
        return [task for endpoint in self.endpoints for task in endpoint.abandon()]

    def report(self, error: Exception) -> None:
        """An error that no answer could tell."""
        self.connection.report_error(error)
        if self._on_error is not None:
            self.connection.events_hub.call(self._on_error, self, error)

    def _tell_stopped(self) -> None:
        if self._on_stop is not None:
            self.connection.events_hub.call(self._on_stop, self)

    async def __aenter__(self) -> "Service":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


def make_group(service: Service, prefix: str, queue_group: QueueGroup, above: Group) -> Group:
    """A group with the queue group above it, unless it has its own; raises `ConfigError`."""
    subject_bytes(prefix)
    return Group(service, prefix, above._queue_group if queue_group == "" else queue_group)
