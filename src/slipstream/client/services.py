"""Services over NATS (ADR-32): named endpoints that can be found, described and measured.

    service = await nc.add_service("calculator", "1.0.0")
    await service.add_endpoint("double", lambda request: request.data * 2)
    async for info in nc.services.info("calculator"): ...

A `Service` has `Endpoint` objects, each a subject and a handler of `ServiceRequest`, and answers
``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``, which `Discovery` asks.
"""

import asyncio
import inspect
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from slipstream.client.codecs import CodecError, Kind
from slipstream.client.errors import ClientError, NoRespondersError
from slipstream.client.message import Message
from slipstream.client.options import Seconds
from slipstream.client.payload import HeadersLike, Payload, subject_bytes
from slipstream.client.subscriptions import Sink, SinkSubscription
from slipstream.client.value_types import Given, Value_co
from slipstream.errors import ConfigError, Error, ProtocolError
from slipstream.model.durations import SECOND
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.subscriptions import Subscription

__all__ = [
    "Discovery",
    "Endpoint",
    "EndpointInfo",
    "EndpointStats",
    "Group",
    "Service",
    "ServiceError",
    "ServiceInfo",
    "ServicePing",
    "ServiceRequest",
    "ServiceStats",
]

PING_TYPE = "io.nats.micro.v1.ping_response"
INFO_TYPE = "io.nats.micro.v1.info_response"
STATS_TYPE = "io.nats.micro.v1.stats_response"


class ServicePing(msgspec.Struct, kw_only=True):
    """Who is there."""

    type: str = PING_TYPE
    name: str
    id: str
    version: str
    metadata: dict[str, str] = {}


class EndpointInfo(msgspec.Struct, kw_only=True):
    """An endpoint, and where it listens."""

    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] = {}


class ServiceInfo(ServicePing, kw_only=True):
    """What a service is for, and its endpoints."""

    type: str = INFO_TYPE
    description: str = ""
    endpoints: list[EndpointInfo] = []


class EndpointStats(msgspec.Struct, kw_only=True):
    """What an endpoint has done; `data` is the service's own."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time_ns: int = msgspec.field(default=0, name="processing_time")
    average_processing_time_ns: int = msgspec.field(default=0, name="average_processing_time")
    data: Any = None

    @property
    def processing_time(self) -> float:
        """Seconds that the handler has taken in all."""
        return self.processing_time_ns / SECOND

    @property
    def average_processing_time(self) -> float:
        """Seconds that the handler has taken for a request."""
        return self.average_processing_time_ns / SECOND


class ServiceStats(ServicePing, kw_only=True):
    """What a service has done since `started` (RFC 3339, UTC)."""

    type: str = STATS_TYPE
    started: str = ""
    endpoints: list[EndpointStats] = []


T = TypeVar("T")
ERROR_HEADER = "Nats-Service-Error"
CODE_HEADER = "Nats-Service-Error-Code"


class ServiceError(ClientError):
    """Raised by a handler: the answer is an error with this `code` and `description`.

    On the asking side, `ServiceError.of` finds one in an answer.
    """

    def __init__(self, code: int, description: str, data: Payload = b"") -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description
        self.data = data

    @classmethod
    def of(cls, answer: Message) -> "ServiceError | None":
        """The error that `answer` carries; None if it carries none."""
        text = answer.header(ERROR_HEADER)
        if text is None:
            return None
        code = answer.header(CODE_HEADER) or ""
        return cls(int(code) if code.isdigit() else 0, text, answer.data)


class ServiceRequest(Generic[Value_co]):
    """What a handler gets: `data`, `headers`, `subject`; it answers by returning, or `respond`.

    Type checkers know the type of `value`: with ``type=Order`` it is a `ServiceRequest[Order]`.
    """

    __slots__ = ("answered", "error", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.answered = False
        self.error = ""  # as "code:description", for the statistics

    @property
    def subject(self) -> str:
        """Where it was sent."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """The request's payload."""
        return self.message.data

    @property
    def reply(self) -> str:
        """Where the answer goes; "" if none is awaited."""
        return self.message.reply

    @property
    def value(self) -> Value_co:
        """The payload as the endpoint's `type`; raises `CodecError`, which answers with a 400."""
        value: Value_co = self.message.value
        return value

    @overload
    def decode(self, type: "Kind[T]") -> T: ...
    @overload
    def decode(self, type: object) -> Any: ...
    def decode(self, type: object) -> object:
        """The payload as a `type`; raises `CodecError`, which answers with a 400."""
        return self.message.decode(type)

    @property
    def headers(self) -> Headers:
        """The request's headers."""
        return self.message.headers

    async def respond(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer; may be done several times for who asked with `request_many`."""
        self.answered = True
        await self.message.respond(data, headers=headers)

    async def respond_error(
        self,
        code: int,
        description: str,
        data: Payload = b"",
        *,
        headers: Headers | dict[str, str] | None = None,
    ) -> None:
        """Answer with an error; raising `ServiceError` does the same. Raises ValueError."""
        if not description or code <= 0:
            raise ValueError("an error answer needs a description and a code above 0")
        self.error = f"{code}:{description}"
        fields = Headers(headers)
        fields[ERROR_HEADER] = " ".join(description.split())
        fields[CODE_HEADER] = str(code)
        await self.respond(data, headers=fields)


Answer = Payload | None
EndpointHandler = Callable[[ServiceRequest], Awaitable[Answer] | Answer]
logger = logging.getLogger("slipstream.client")


class Endpoint:
    """One endpoint of a service; `Service.add_endpoint` makes it."""

    def __init__(
        self,
        connection: "Connection",
        info: EndpointInfo,
        handler: EndpointHandler,
        concurrency: int,
        stats_data: Callable[["Endpoint"], object] | None,
        report: Callable[[Exception], None],
        subscription_options: Mapping[str, Any],
    ) -> None:
        self._report = report
        self._subscription_options = subscription_options
        self.info = info
        self._connection = connection
        self._handler = handler
        self._concurrency = concurrency
        self._stats_data = stats_data
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.reset()

    @property
    def name(self) -> str:
        """Its name, unique in its service."""
        return self.info.name

    @property
    def subject(self) -> str:
        """Where it listens."""
        return self.info.subject

    def reset(self) -> None:
        """Count from zero."""
        self._requests = self._errors = self._nanoseconds = 0
        self._last_error = ""

    def stats(self) -> EndpointStats:
        """What it has done."""
        return EndpointStats(
            name=self.info.name,
            subject=self.info.subject,
            queue_group=self.info.queue_group,
            num_requests=self._requests,
            num_errors=self._errors,
            last_error=self._last_error,
            processing_time_ns=self._nanoseconds,
            average_processing_time_ns=self._nanoseconds // max(self._requests, 1),
            data=self._stats_data(self) if self._stats_data is not None else None,
        )

    async def start(self) -> None:
        """Listen."""
        subscription = await self._connection.subscribe(
            self.info.subject, queue=self.info.queue_group, **self._subscription_options
        )
        self._subscription = subscription
        self._tasks = [
            self._connection.loop.create_task(
                self._serve(subscription), name=f"slipstream: endpoint {self.info.name}"
            )
            for _ in range(self._concurrency)
        ]

    async def stop(self) -> None:
        """Take no more requests; return once those that have come are answered."""
        subscription = self._subscription
        if subscription is None:
            return
        own = asyncio.current_task()
        if not self._connection.is_closed:
            # A handler that stops its own service answers the others when it returns.
            await (subscription.halt() if own in self._tasks else subscription.drain())
        tasks = [task for task in self._tasks if task is not own]
        if tasks:
            await asyncio.wait(tasks)

    def leave(self) -> None:
        """Take no more requests, and answer none of those that have come."""
        if self._subscription is not None and not self._subscription.closed:
            self._connection.subscriptions.drop(self._subscription.route)
            self._subscription.finish()
        self.abandon()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop at once, since the connection is closed; the tasks to wait for."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    async def _serve(self, subscription: "Subscription") -> None:
        telemetry = self._connection.telemetry
        try:
            async for message in subscription:
                if telemetry is None:
                    await self._answer(message)
                    continue
                with telemetry.process(message, queue=subscription.queue, template=self.subject):
                    await self._answer(message)
        except Exception as error:
            self._report(error)  # the subscription was refused

    async def _answer(self, message: "Message") -> None:
        """Let the handler answer one request, and count it."""
        request: ServiceRequest = ServiceRequest(message)
        begin = time.perf_counter_ns()
        try:
            result = self._handler(request)
            answer = await result if inspect.isawaitable(result) else result
            if answer is not None:
                await request.respond(answer)
        except ServiceError as error:
            await self._refuse(request, error.code, error.description, error.data)
        except CodecError as error:
            await self._refuse(request, 400, str(error), b"")
        except Exception as error:
            logger.exception("endpoint %s raised", self.info.name)
            await self._refuse(request, 500, str(error) or type(error).__name__, b"")
        self._requests += 1
        self._nanoseconds += time.perf_counter_ns() - begin
        if request.error:
            self._errors += 1
            self._last_error = request.error

    async def _refuse(
        self, request: ServiceRequest, code: int, description: str, data: Payload
    ) -> None:
        request.error = f"{code}:{description}"
        if not request.message.reply or self._connection.is_closed:
            return
        try:
            await request.respond_error(code, description, data)
        except Exception as error:
            self._report(error)


DEFAULT_QUEUE_GROUP = "q"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VERSION = re.compile(  # the regular expression of semver.org, in short
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)

# "" takes the queue group of the group or service above; None is no queue group.
QueueGroup = str | None


class Monitor(Sink):
    """Answers one of the control verbs, inside the read."""

    def __init__(self, reply: Callable[[], msgspec.Struct]) -> None:
        self._reply = reply

    def deliver(self, message: Message) -> None:
        """Answer a request of the monitoring."""
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

    @overload
    async def add_endpoint(
        self,
        name: str,
        handler: Callable[[ServiceRequest[Given]], Awaitable[Answer] | Answer],
        *,
        subject: str = "",
        queue_group: QueueGroup = "",
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        stats_data: Callable[[Endpoint], object] | None = None,
        type: "Kind[Given] | None" = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
    ) -> Endpoint: ...
    @overload
    async def add_endpoint(
        self,
        name: str,
        handler: EndpointHandler,
        *,
        subject: str = "",
        queue_group: QueueGroup = "",
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        stats_data: Callable[[Endpoint], object] | None = None,
        type: object,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
    ) -> Endpoint: ...
    async def add_endpoint(
        self,
        name: str,
        handler: EndpointHandler,
        *,
        subject: str = "",
        queue_group: QueueGroup = "",
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        stats_data: Callable[[Endpoint], object] | None = None,
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

    `on_error` is called with the service and an error that no answer could carry: a subscription
    that is refused, an answer that cannot be sent. `on_stop` is called once when it has ended.
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
        stats_data: Callable[[Endpoint], object] | None = None,
        on_error: Callable[["Service", Exception], object] | None = None,
        on_stop: Callable[["Service"], object] | None = None,
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
            self._call_on_stop()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop at once, since the connection is closed; the tasks to wait for."""
        if not self._stopped:
            self._stopped = True
            self._call_on_stop()
        return [task for endpoint in self.endpoints for task in endpoint.abandon()]

    def report(self, error: Exception) -> None:
        """An error that no answer could carry."""
        self.connection.report_error(error)
        if self._on_error is not None:
            self.connection.events_hub.call(self._on_error, self, error)

    def _call_on_stop(self) -> None:
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


Reply = TypeVar("Reply", bound=ServicePing)


class Discovery:
    """``async for info in nc.services.info("calculator"): ...``

    Each method asks all services, those of one name, or one instance by its id, and gives the
    answers that come before `stall` passes without another.
    """

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def ping(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServicePing]:
        """Who is there."""
        return self._ask("PING", ServicePing, name, id, timeout, stall)

    def info(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServiceInfo]:
        """What they are for."""
        return self._ask("INFO", ServiceInfo, name, id, timeout, stall)

    def stats(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServiceStats]:
        """What they have done."""
        return self._ask("STATS", ServiceStats, name, id, timeout, stall)

    async def _ask(
        self, verb: str, kind: type[Reply], name: str, id: str, timeout: Seconds, stall: Seconds
    ) -> AsyncIterator[Reply]:
        if id and not name:
            raise ClientError("services: an id needs the name of its service too")
        subject = ".".join(["$SRV", verb, *(part for part in (name, id) if part)])
        answers = self._connection.request_many(
            subject, timeout=timeout, stall=stall, max_messages=1 if id else None
        )
        try:
            async for answer in answers:
                try:
                    said = msgspec.convert(_without_nulls(msgspec.json.decode(answer.data)), kind)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    # Somebody else answers too; the services are to be found all the same.
                    self._connection.report_error(
                        ProtocolError(f"services: an answer to {subject} cannot be read: {error}")
                    )
                    continue
                yield said
        except NoRespondersError:
            return  # nobody there is an answer too
        finally:
            await answers.aclose()


def _without_nulls(found: object) -> object:
    """An answer without fields that are null: services in Go say so of what is empty. What an
    endpoint has as `data` is its own affair."""
    if not isinstance(found, dict):
        return found
    said = {key: one for key, one in found.items() if one is not None}
    if isinstance(said.get("endpoints"), list):
        said["endpoints"] = [_without_nulls(one) for one in said["endpoints"]]
    return said
