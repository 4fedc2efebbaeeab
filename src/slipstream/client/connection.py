"""A connection to NATS servers: publish, subscribe, request.

One `Connection` lasts over any number of sockets. It is made of a `WriteBuffer`, which keeps what
is to be sent; `Subscriptions`, which know the sink of each subscription id; `Requests`, which match
answers to requests; `Events`; and a `Reconnector`, which keeps a socket to one of the servers.
"""

import asyncio
import builtins
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from slipstream.client.codecs import Kind, encode_message
from slipstream.client.errors import (
    ClientError,
    ConnectionClosedError,
    NoRespondersError,
    PermissionsError,
    SlowConsumerError,
    TimeoutError,
)
from slipstream.client.events import (
    Callback,
    Closed,
    Connected,
    Draining,
    ErrorEvent,
    Event,
    EventIterator,
    Events,
    Reconnected,
    SlowConsumer,
)
from slipstream.client.message import Message
from slipstream.client.options import ConnectOptions, Seconds, make_options
from slipstream.client.payload import HeadersLike, Payload, as_headers, payload_bytes
from slipstream.client.reconnect import Reconnector
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.requests import AnswerQueue, Request, Requests
from slipstream.client.servers import ServerInfo, parse_servers
from slipstream.client.subscriptions import (
    ForeignSink,
    Handler,
    Sink,
    SinkSubscription,
    Subscription,
    Subscriptions,
    wait_ended,
)
from slipstream.client.telemetry import (
    NO_SPAN,
    Statistics,
    Traceable,
    metrics_for,
    telemetry_for,
)
from slipstream.client.value_types import Given
from slipstream.client.write_buffer import WriteBuffer
from slipstream.model.durations import to_seconds
from slipstream.wire.headers import Headers
from slipstream.wire.nuid import Nuid

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.jetstream.keywords import JetStreamKeywords
    from slipstream.client.keywords import ConnectKeywords, ServiceKeywords
    from slipstream.client.services import Discovery, Service

Sentinel = Callable[[Message], bool]

logger = logging.getLogger("slipstream.client")


class Status(StrEnum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"  # no server has taken it yet
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # another server is sought
    DRAINING = "draining"
    CLOSED = "closed"


class Connection:
    """An open connection; `slipstream.connect` makes one.

    Leaving ``async with`` closes it; what was published before is sent. `drain` also waits until
    what has come is handled.
    """

    def __init__(self, urls: str | Iterable[str], options: ConnectOptions) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.events_hub = Events()
        self.write_buffer = WriteBuffer(self.loop, options.pending_bytes_max)
        self.write_buffer.codecs = options.codecs
        self.subscriptions = Subscriptions(self.write_buffer, self.report_error)
        self._nuid = Nuid(random.SystemRandom())
        self.requests = Requests(self.write_buffer, self.subscriptions, f"{self.new_inbox()}.")
        self.handler_tasks: set[asyncio.Task[None]] = set()
        self.drainer: asyncio.Task[Any] | None = None  # who called `drain`: perhaps a handler
        self._closed = False
        self._draining = False
        self._offered: list[Service] = []
        self.dropped = 0  # messages that found no room in their subscription
        self.telemetry = telemetry_for(
            options.tracer_provider, options.telemetry, options.meter_provider
        )
        self._metrics = metrics_for(self.loop, lambda: self.stats, options.meter_provider)
        self._reconnector = Reconnector(self, options, parse_servers(urls))
        if options.on_event is not None:
            self.events_hub.on(Event, options.on_event)

    async def start(self) -> None:
        """Connect; raises `ConnectError` if no server accepts the client."""
        try:
            await self._reconnector.start()
        except BaseException:
            self._closed = True
            self.write_buffer.close()
            self._reconnector.abandon()
            await self._reconnector.wait_lost()
            raise
        assert self._reconnector.server is not None
        if self._metrics is not None:
            self._metrics.start()
        self.events_hub.emit(Connected(self._reconnector.server.url))

    # -- events --------------------------------------------------------------------------------

    def events(self) -> EventIterator:
        """``async for event in nc.events()``: all that happens from now on, up to `Closed`.

        On a closed connection it ends at once.
        """
        return self.events_hub.iterate()

    def on(self, event: type[Event] | str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each such event, given as its class or name ("reconnected").

        Coroutine functions run as tasks. Call what this returns to stop it.
        """
        return self.events_hub.on(event, callback)

    # -- publishing ----------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
        type: Any = None,
    ) -> None:
        """Send a message, at most once; waits only while `pending_bytes_max` is reached.

        `data` is encoded by its own type, or by `type`, a type or codec (see `codecs`). It leaves
        at the end of the loop's turn, or once a server is connected again. Raises `CodecError`,
        `InvalidSubjectError`, `MaxPayloadError`, `ConnectionClosedError`.
        """
        if self.write_buffer.crowded:
            await self.write_buffer.room()
        if type is not None:
            data, headers = self._encoded(subject, data, headers, type)
        if self.telemetry is None:
            self.write_buffer.publish(subject, data, reply, headers)
            return
        body = payload_bytes(data, self.write_buffer.codecs)
        fields = as_headers(headers)
        with self.telemetry.publish(subject, len(body), fields, reply=reply) as sent:
            self.write_buffer.publish(subject, body, reply, sent)

    def _encoded(
        self, subject: str, value: Any, headers: HeadersLike | None, kind: Any
    ) -> tuple[bytes, Headers]:
        """The payload of `value` by the codec of `kind`, and the headers to go with it."""
        fields = as_headers(headers)
        return encode_message(value, kind, self.write_buffer.codecs, subject, fields), fields

    def publish_nowait(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> int:
        """As `publish`, but never waits: raises `OutboundBufferFullError` instead.

        Gives the message's position in the output; `Sink.on_disconnect` says up to which
        position the server may have got it.
        """
        return self.write_buffer.publish(subject, data, reply, headers)

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Return once the server has acted on everything published so far.

        Raises `TimeoutError` (by default after the `timeout` option) and `ConnectionLostError`.
        """
        self._check_open("flush")
        limit = to_seconds(self.options.timeout if timeout is None else timeout, "timeout")
        future: asyncio.Future[None] = self.loop.create_future()
        self._reconnector.ping(future)
        try:
            async with asyncio.timeout(limit):
                await future
        except builtins.TimeoutError:
            raise TimeoutError(
                f"flush: {self.server_url} did not answer within {limit} s", sent=self.is_connected
            ) from None

    async def rtt(self) -> float:
        """Seconds until the server answers a ping; raises what `flush` raises."""
        begin = time.perf_counter()  # a loop's own time stands still within a turn
        await self.flush()
        return time.perf_counter() - begin

    async def reconnect(self) -> None:
        """Leave the server for another (or the same) one; return once connected.

        Raises `ConnectionClosedError` if there will be none.
        """
        self._check_open("reconnect")
        events = self.events()
        try:
            self._reconnector.leave()
            async for event in events:
                if isinstance(event, Reconnected):
                    return
        finally:
            events.close()
        raise ConnectionClosedError("reconnect: no server took the connection; it is closed")

    # -- subscribing ---------------------------------------------------------------------------

    @overload
    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        handler: "Handler[Given] | None" = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
        when_full: Literal["", "drop_newest", "drop_oldest"] = "",
        type: "Kind[Given] | None" = None,
    ) -> "Subscription[Given]": ...
    @overload
    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        handler: Handler | None = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
        when_full: Literal["", "drop_newest", "drop_oldest"] = "",
        type: object,
    ) -> "Subscription": ...
    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        handler: Handler | None = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
        when_full: Literal["", "drop_newest", "drop_oldest"] = "",
        type: object = None,
    ) -> "Subscription":
        """Receive the messages of `subject`: iterate over what this returns, or give a `handler`.

        Members of one `queue` share the messages. The `handler` (a function or coroutine function)
        is called for one message after the other. `message.value` is of `type`, a type or codec;
        what cannot be read raises there, and the next message follows. The other arguments are
        as the options of the connection. Raises `InvalidSubjectError`.
        """
        self._check_not_draining(f"subscribe to {subject!r}")
        subscription = Subscription(
            self,
            subject,
            queue,
            max_messages_pending or self.options.max_messages_pending,
            max_bytes_pending or self.options.max_bytes_pending,
            type,
            (when_full or self.options.when_full) == "drop_oldest",
        )
        self.subscriptions.add(subscription.route)
        if self.telemetry is not None:
            self.telemetry.subscribed(subject, queue)
        if handler is not None:
            subscription.start(handler)
        return subscription

    def open_sink(self, subject: str, sink: Any, queue: str = "") -> SinkSubscription:
        """Call ``sink.deliver(message)`` inside the read for each message: no task, no queue.

        `sink` is a `Sink` or any object with `deliver` and, if it likes, `failed`, `on_disconnect`
        and `on_reconnect`.
        """
        self._check_not_draining(f"subscribe to {subject!r}")
        inner = sink if isinstance(sink, Sink) else ForeignSink(sink)
        return SinkSubscription(self.subscriptions, self.subscriptions.open(subject, queue, inner))

    # -- requests ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A name that nobody else uses (a NUID)."""
        return self._nuid.next()

    def new_inbox(self) -> str:
        """A subject that nobody else uses, for answers."""
        return f"{self.options.inbox_prefix}.{self.new_id()}"

    @property
    def requests_pending(self) -> int:
        """How many requests await an answer."""
        return len(self.requests.pending)

    @overload
    async def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        type: "Kind[Given] | None" = None,
    ) -> "Message[Given]": ...
    @overload
    async def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        type: object,
    ) -> "Message": ...
    async def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        type: object = None,
    ) -> "Message":
        """Publish and await the first answer, whose `value` is of `type`, a type or codec.

        Raises `NoRespondersError` if nobody is subscribed, `TimeoutError` (by default after the
        `timeout` option), `ConnectionLostError` if the connection broke after it was sent,
        `PermissionsError`, and what `publish` raises.
        """
        limit = to_seconds(self.options.timeout if timeout is None else timeout, "timeout")
        if self.write_buffer.crowded:
            await self.write_buffer.room()
        if self.telemetry is None:
            answer = await self._ask(subject, data, limit, headers)
        else:
            body, fields = payload_bytes(data, self.write_buffer.codecs), as_headers(headers)
            with self.telemetry.publish(subject, len(body), fields, operation="request") as sent:
                answer = await self._ask(subject, body, limit, sent)
        if type is not None:
            answer.expect(type)
        return answer

    async def _ask(
        self, subject: str, data: Payload, limit: float, headers: HeadersLike | None
    ) -> Message:
        """A request, sent and answered."""
        answer = ReplyFuture(self.write_buffer)
        request = Request(subject, answer, None)
        request.timeout = limit
        reply = self.requests.open(request)
        try:
            request.position = self.write_buffer.publish(subject, data, reply, headers)
            message: Message = await answer
            return message
        finally:
            self.requests.close(request)

    @overload
    def request_many(
        self,
        subject: str,
        data: Payload = b"",
        *,
        max_messages: int | None = None,
        timeout: Seconds | None = None,
        stall: Seconds | None = None,
        sentinel: Sentinel | None = None,
        headers: HeadersLike | None = None,
        type: "Kind[Given] | None" = None,
    ) -> "AsyncGenerator[Message[Given], None]": ...
    @overload
    def request_many(
        self,
        subject: str,
        data: Payload = b"",
        *,
        max_messages: int | None = None,
        timeout: Seconds | None = None,
        stall: Seconds | None = None,
        sentinel: Sentinel | None = None,
        headers: HeadersLike | None = None,
        type: object,
    ) -> "AsyncGenerator[Message, None]": ...
    def request_many(
        self,
        subject: str,
        data: Payload = b"",
        *,
        max_messages: int | None = None,
        timeout: Seconds | None = None,
        stall: Seconds | None = None,
        sentinel: Sentinel | None = None,
        headers: HeadersLike | None = None,
        type: object = None,
    ) -> "AsyncGenerator[Message, None]":
        """Publish and iterate over all answers: ``async for answer in nc.request_many(...)``.

        It ends, without an error, after `max_messages`, after `timeout` in all (by default the
        `timeout` option), when `stall` passes after an answer without another, and at the answer
        for which `sentinel` is true. Their `value` is of `type`. Raises what `request` raises but
        for `TimeoutError`.
        """
        return self._ask_many(
            subject,
            data,
            headers,
            max_messages=max_messages,
            timeout=to_seconds(self.options.timeout if timeout is None else timeout, "timeout"),
            stall=None if stall is None else to_seconds(stall, "stall"),
            sentinel=sentinel,
            kind=type,
        )

    async def _ask_many(
        self,
        subject: str,
        data: Payload,
        headers: HeadersLike | None,
        *,
        max_messages: int | None,
        timeout: float,
        stall: float | None,
        sentinel: Sentinel | None,
        kind: Any,
    ) -> AsyncGenerator[Message, None]:
        """A request, sent, and all its answers."""
        if self.write_buffer.crowded:
            await self.write_buffer.room()
        answers = AnswerQueue()
        request = Request(subject, None, answers)
        reply = self.requests.open(request)
        try:
            request.position = self.write_buffer.publish(subject, data, reply, headers)
            deadline = end = self.loop.time() + timeout
            left = max_messages
            while left is None or left > 0:
                message = await answers.next(deadline)
                if message is None:
                    return
                if message.status == 503 and not message.data:
                    raise NoRespondersError(subject)
                message.expect(kind)
                if sentinel is not None and sentinel(message):
                    return
                yield message
                if left is not None:
                    left -= 1
                if stall is not None:
                    deadline = min(end, self.loop.time() + stall)
        finally:
            self.requests.close(request)

    # -- services ------------------------------------------------------------------------------

    async def add_service(
        self, name: str, version: str, **options: "Unpack[ServiceKeywords]"
    ) -> "Service":
        """Offer a service (ADR-32); `options` are those of `Service`. Raises `ConfigError`."""
        from slipstream.client.services import Service

        service = Service(self, name, version, **options)
        await service.start()
        self._offered = [s for s in self._offered if not s.stopped] + [service]
        return service

    @property
    def services(self) -> "Discovery":
        """Finds services: ``async for ping in nc.services.ping(): ...``"""
        from slipstream.client.services import Discovery

        return Discovery(self)

    # -- JetStream -----------------------------------------------------------------------------

    def jetstream(self, **options: "Unpack[JetStreamKeywords]") -> "JetStream":
        """The JetStream context; `options` are those of `JetStream`."""
        from slipstream.client.jetstream import JetStream

        return JetStream(self, **options)

    # -- errors that no call can raise -----------------------------------------------------------

    def forbid(self, error: PermissionsError) -> None:
        """The server refused a publish or a subscription: fail the request or the subscriptions."""
        if error.operation == "publish":
            if self.requests.forbid(error.subject, error):
                return
        else:
            self.subscriptions.forbid(error)
        self.report_error(error)

    def report_slow(self, subscription: Subscription) -> None:
        """A subscription drops messages."""
        error = SlowConsumerError(
            f"subscription to {subscription.subject!r}: {subscription.pending} messages "
            f"({subscription.pending_bytes} bytes) wait to be taken, so new ones are dropped. Take "
            "them faster, or raise max_messages_pending or max_bytes_pending"
        )
        self.events_hub.emit(SlowConsumer(subscription, error))

    def report_error(self, error: Exception, *, is_logged: bool = False) -> None:
        """An error that no call could raise; `is_logged` if the log has it already."""
        self.events_hub.emit(ErrorEvent(error), is_logged=is_logged)

    # -- status and counts ---------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Where it is in its life; `events` report every change."""
        if self._closed:
            return Status.CLOSED
        if self._draining:
            return Status.DRAINING
        if self.is_connected:
            return Status.CONNECTED
        return Status.RECONNECTING if self._reconnector.server else Status.CONNECTING

    @property
    def is_connected(self) -> bool:
        """Whether a server listens now."""
        return self.write_buffer.transport is not None

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
        """The error of the last event that had one."""
        return self.events_hub.last_error

    @property
    def server_info(self) -> ServerInfo:
        """What the server said last of itself."""
        return self._reconnector.info

    @property
    def server_url(self) -> str:
        """The server that is connected, or was last; "" before the first."""
        return self._reconnector.server.url if self._reconnector.server else ""

    @property
    def servers(self) -> list[str]:
        """All servers that are known, in the order in which they would be tried."""
        return [server.url for server in self._reconnector.pool.line]

    @property
    def discovered_servers(self) -> list[str]:
        """The known servers that another server announced."""
        return [server.url for server in self._reconnector.pool.line if server.discovered]

    def set_servers(self, urls: str | Iterable[str]) -> None:
        """Try these servers from now on; the one that is connected stays until it is lost.

        `reconnect` moves at once. Raises `ConfigError` for a wrong URL.
        """
        self._reconnector.pool.replace(parse_servers(urls))

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, in bytes with headers."""
        return self.write_buffer.max_payload

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """What asyncio's transports know: "peername", "sockname", "ssl_object", "cipher"..."""
        link = self._reconnector.link
        return default if link is None else link.transport.get_extra_info(name, default)

    @property
    def stats(self) -> Statistics:
        """What it has carried."""
        life, link = self._reconnector, self._reconnector.link
        return Statistics(
            in_messages=life.in_messages + (link.messages if link else 0),
            in_bytes=life.in_bytes + (link.payload_bytes if link else 0),
            out_messages=self.write_buffer.messages,
            out_bytes=self.write_buffer.payload_bytes,
            reconnects=life.reconnects,
            pending_bytes=self.write_buffer.pending,
            subscriptions=len(self.subscriptions.routes),
            dropped=self.dropped,
        )

    def processing(self, *messages: Traceable) -> AbstractContextManager[None]:
        """A span around what is done with messages; nothing without OpenTelemetry.

        That of one goes on with its publisher's trace; that of several has a link to each.
        """
        if self.telemetry is None or not messages:
            return NO_SPAN
        if len(messages) == 1:
            return self.telemetry.process(messages[0])
        return self.telemetry.process_batch(messages)

    # -- the end -------------------------------------------------------------------------------

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ConnectionClosedError(f"{call}: the connection is closed. Open another one")

    def _check_not_draining(self, call: str) -> None:
        if self._draining:
            raise ConnectionClosedError(f"{call}: the connection is draining. Open another one")

    async def drain(self) -> None:
        """Stop services and unsubscribe, let what has come be handled, send what waits, close.

        Takes at most the `drain_timeout` option; then it closes all the same and raises
        `TimeoutError`. A handler that calls this does not wait for itself.
        """
        if self._closed or self._draining:
            return
        self._draining = True
        self.drainer = asyncio.current_task()
        self.events_hub.emit(Draining())
        limit = to_seconds(self.options.drain_timeout, "drain_timeout")
        sinks: list[Sink] = []
        try:
            async with asyncio.timeout(limit):
                for service in self._offered:
                    await service.stop()
                sinks = [route.sink for route in self.subscriptions.routes.values()]
                drained = await asyncio.gather(
                    *(sink.drain() for sink in sinks), return_exceptions=True
                )
                for error in drained:
                    if isinstance(error, BaseException):
                        raise error
                await self.flush(limit)
        except builtins.TimeoutError:
            waiting = sum(sink.pending for sink in sinks if isinstance(sink, Subscription))
            raise TimeoutError(
                f"drain: {waiting} messages were not handled within {limit} s (drain_timeout)"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """End it now: what waits to be sent is given to the socket, handlers are cancelled."""
        await self._end(None)

    async def give_up(self, error: Exception) -> None:
        """End it because no server accepts a connection."""
        await self._end(error)

    async def _end(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self.write_buffer.resume()  # even a socket that takes little gets what there is
        if self.write_buffer.pending:
            logger.warning("closed with %d bytes that were never sent", self.write_buffer.pending)
        self.write_buffer.close()
        routes = list(self.subscriptions.routes.values())
        self.subscriptions.routes.clear()
        reason = ConnectionClosedError(
            f"the connection was given up: {error}" if error else "the connection was closed"
        )
        for route in routes:
            if error is None and isinstance(route.sink, Subscription):
                route.sink.finish()
            else:
                self.subscriptions.fail(route, reason)
        # All is ended before anything is awaited, so that a cancellation leaves nothing.
        tasks = [task for task in self.handler_tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        tasks += [task for service in self._offered for task in service.abandon()]
        tasks += self._reconnector.abandon()
        try:
            await wait_ended(tasks)
            await self._reconnector.wait_lost()
        finally:
            self._reconnector.cut()
            if self._metrics is not None:
                self._metrics.stop()
            self.events_hub.emit(Closed(error))
        await self.events_hub.wait_for_callbacks()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self.is_connected and not self._closed:
            with contextlib.suppress(ClientError):
                await self.flush()
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self.is_connected else "disconnected"
        return f"<Connection {state} {self.server_url}>"


class Connecting(Coroutine[object, object, Connection]):
    """A connection that is being opened: await it, or enter it with ``async with``."""

    def __init__(self, opening: Coroutine[object, object, Connection]) -> None:
        self._opening = opening
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, object, Connection]:
        return self._opening.__await__()

    def send(self, value: object) -> object:
        """Go on to open it, as any coroutine does."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> object:
        """Raise an error where the opening waits."""
        return self._opening.throw(*error)

    def close(self) -> None:
        """Open it no further."""
        self._opening.close()

    async def __aenter__(self) -> Connection:
        self._connection = await self._opening
        return await self._connection.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._connection.__aexit__(kind, error, trace)


def connect(
    servers: str | Iterable[str] = "nats://127.0.0.1:4222",
    options: ConnectOptions | None = None,
    **by_name: "Unpack[ConnectKeywords]",
) -> Connecting:
    """Connect to one of `servers`; options are those of `ConnectOptions`, whole or by name.

    Awaited, this gives a `Connection`; ``async with`` awaits it and closes it at the end. Raises
    `ConnectError` (`AuthorizationError` if it is the credentials) and `ConfigError`.
    """
    return Connecting(_opened(servers, options, by_name))


async def _opened(
    servers: str | Iterable[str], options: ConnectOptions | None, by_name: "ConnectKeywords"
) -> Connection:
    connection = Connection(servers, make_options(options, **by_name))
    await connection.start()
    return connection
