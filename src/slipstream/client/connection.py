"""A connection to NATS servers: publish, subscribe, request.

One `Connection` lives over any number of sockets. What it sends gathers in its `Outbox`, what it
receives goes to the sink of each subscription inside the read, and its `Lifeline` keeps a socket to
one of the servers.
"""

import asyncio
import builtins
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from slipstream.client.answer import Answer
from slipstream.client.codecs import encode_message
from slipstream.client.errors import (
    ClientError,
    ConnectionClosedError,
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
from slipstream.client.inbox import Request
from slipstream.client.lifeline import Lifeline
from slipstream.client.message import Message
from slipstream.client.metrics import metrics_for
from slipstream.client.options import ConnectOptions, Seconds, make_options, seconds
from slipstream.client.outbox import Outbox
from slipstream.client.payload import HeadersLike, Payload, as_headers, payload_bytes
from slipstream.client.request_many import Sentinel, request_many
from slipstream.client.route import Sink
from slipstream.client.servers import parse_servers
from slipstream.client.standing import Standing
from slipstream.client.subscription import Handler, Subscription, settled
from slipstream.client.telemetry import telemetry_for
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.services import Discovery, Service

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream

logger = logging.getLogger("slipstream.client")


class Connection(Standing):
    """An open connection; `slipstream.connect` makes one.

    Leaving ``async with`` closes it; what was published before is sent. `drain` also waits until
    what has come is handled.
    """

    def __init__(self, urls: str | Iterable[str], options: ConnectOptions) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        super().__init__(Outbox(self.loop, options.pending_bytes_max), options.inbox_prefix)
        self.outbox.codecs = options.codecs
        self.events_hub = Events()
        self.handler_tasks: set[asyncio.Task[None]] = set()
        self.drainer: asyncio.Task[Any] | None = None  # who called `drain`: perhaps a handler
        self._offered: list[Service] = []
        self.dropped = 0
        self.telemetry = telemetry_for(
            options.tracer_provider, options.telemetry, options.meter_provider
        )
        self._metrics = metrics_for(self.loop, lambda: self.stats, options.meter_provider)
        self._lifeline = Lifeline(self, options, parse_servers(urls))
        if options.on_event is not None:
            self.events_hub.on(Event, options.on_event)

    async def start(self) -> None:
        """Connect; raises `ConnectError` if no server takes us."""
        try:
            await self._lifeline.start()
        except BaseException:
            self._closed = True
            self.outbox.close()
            self._lifeline.abandon()
            await self._lifeline.wait_lost()
            raise
        assert self._lifeline.server is not None
        if self._metrics is not None:
            self._metrics.start()
        self.events_hub.tell(Connected(self._lifeline.server.url))

    # -- what happens to it --------------------------------------------------------------------

    def events(self) -> EventIterator:
        """``async for event in nc.events()``: all that happens from now on, up to `Closed`."""
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
        if self.outbox.crowded:
            await self.outbox.room()
        if type is not None:
            data, headers = self._encoded(subject, data, headers, type)
        if self.telemetry is None:
            self.outbox.publish(subject, data, reply, headers)
            return
        body = payload_bytes(data, self.outbox.codecs)
        fields = as_headers(headers)
        with self.telemetry.publish(subject, len(body), fields, reply=reply) as sent:
            self.outbox.publish(subject, body, reply, sent)

    def _encoded(
        self, subject: str, value: Any, headers: HeadersLike | None, kind: Any
    ) -> tuple[bytes, Headers]:
        """The payload of `value` by the codec of `kind`, and the headers to go with it."""
        fields = as_headers(headers)
        return encode_message(value, kind, self.outbox.codecs, subject, fields), fields

    def publish_nowait(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> int:
        """As `publish`, but never waits: raises `OutboundBufferFullError` instead.

        Gives the message's position in the output; `Sink.on_disconnect` tells up to which
        position the server may have got it.
        """
        return self.outbox.publish(subject, data, reply, headers)

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Return once the server has acted on everything published so far.

        Raises `TimeoutError` (by default after the `timeout` option) and `ConnectionLostError`.
        """
        self._check_open("flush")
        limit = seconds(self.options.timeout if timeout is None else timeout)
        future: asyncio.Future[None] = self.loop.create_future()
        self._lifeline.ping(future)
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
        """Leave the server for another (or the same) one; return once a connection stands.

        Raises `ConnectionClosedError` if there will be none.
        """
        self._check_open("reconnect")
        events = self.events()
        try:
            self._lifeline.leave()
            async for event in events:
                if isinstance(event, Reconnected):
                    return
        finally:
            events.close()
        raise ConnectionClosedError("reconnect: no server took the connection; it is closed")

    # -- subscribing ---------------------------------------------------------------------------

    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        handler: Handler | None = None,
        max_messages_pending: int = 0,
        max_bytes_pending: int = 0,
        when_full: Literal["", "drop_newest", "drop_oldest"] = "",
        type: Any = None,
    ) -> Subscription:
        """Receive the messages of `subject`: iterate over what this returns, or give a `handler`.

        Members of one `queue` share the messages. The `handler` (a function or coroutine function)
        is called for one message after the other. `message.value` is of `type`, a type or codec;
        what can not be read raises there, and the next message follows. The other arguments are
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
        self.add_route(subscription.route)
        if self.telemetry is not None:
            self.telemetry.subscribed(subject, queue)
        if handler is not None:
            subscription.start(handler)
        return subscription

    # -- requests ------------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
        type: Any = None,
    ) -> Message:
        """Publish and await the first answer, whose `value` is of `type`, a type or codec.

        Raises `NoRespondersError` if nobody is subscribed, `TimeoutError` (by default after the
        `timeout` option), `ConnectionLostError` if the connection broke after it was sent,
        `PermissionsError`, and what `publish` raises.
        """
        limit = seconds(self.options.timeout if timeout is None else timeout)
        if self.outbox.crowded:
            await self.outbox.room()
        if self.telemetry is None:
            answer = await self._ask(subject, data, limit, headers)
        else:
            body, fields = payload_bytes(data, self.outbox.codecs), as_headers(headers)
            with self.telemetry.publish(subject, len(body), fields, operation="request") as sent:
                answer = await self._ask(subject, body, limit, sent)
        if type is not None:
            answer.expect(type)
        return answer

    async def _ask(
        self, subject: str, data: Payload, limit: float, headers: HeadersLike | None
    ) -> Message:
        """A request, sent and answered."""
        answer = Answer(self.outbox)
        request = Request(subject, answer, None)
        request.timeout = limit
        reply = self.open_reply(request)
        try:
            request.position = self.outbox.publish(subject, data, reply, headers)
            message: Message = await answer
            return message
        finally:
            self._inbox.close(request)

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
        type: Any = None,
    ) -> AsyncGenerator[Message, None]:
        """Publish and iterate over all answers: ``async for answer in nc.request_many(...)``.

        It ends, without an error, after `max_messages`, after `timeout` in all (by default the
        `timeout` option), when `stall` passes after an answer without another, and at the answer
        for which `sentinel` is true. Their `value` is of `type`. Raises what `request` raises but
        for `TimeoutError`.
        """
        return request_many(
            self,
            subject,
            data,
            headers,
            max_messages=max_messages,
            timeout=seconds(self.options.timeout if timeout is None else timeout),
            stall=None if stall is None else seconds(stall),
            sentinel=sentinel,
            kind=type,
        )

    # -- services ------------------------------------------------------------------------------

    async def add_service(self, name: str, version: str, **options: Any) -> "Service":
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

    def jetstream(self, **options: Any) -> "JetStream":
        """The JetStream context; `options` are those of `JetStream`."""
        context: JetStream = import_module("slipstream.client.jetstream").JetStream(self, **options)
        return context

    # -- complaints ----------------------------------------------------------------------------

    def report_slow(self, subscription: Subscription) -> None:
        """A subscription drops messages."""
        error = SlowConsumerError(
            f"subscription to {subscription.subject!r}: {subscription.pending} messages "
            f"({subscription.pending_bytes} bytes) wait to be taken, so new ones are dropped. Take "
            "them faster, or raise max_messages_pending or max_bytes_pending"
        )
        self.events_hub.tell(SlowConsumer(subscription, error))

    def report_error(self, error: Exception) -> None:
        """An error that no call could raise."""
        self.events_hub.tell(ErrorEvent(error))

    # -- the end -------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Stop services and unsubscribe, let what has come be handled, send what waits, close.

        Takes at most the `drain_timeout` option; then it closes all the same and raises
        `TimeoutError`. A handler that calls this does not wait for itself.
        """
        if self._closed or self._draining:
            return
        self._draining = True
        self.drainer = asyncio.current_task()
        self.events_hub.tell(Draining())
        limit = seconds(self.options.drain_timeout)
        sinks: list[Sink] = []
        try:
            async with asyncio.timeout(limit):
                for service in self._offered:
                    await service.stop()
                sinks = [route.sink for route in self.routes.values()]
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
        """End it because no connection can be had any more."""
        await self._end(error)

    async def _end(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        self.outbox.resume()  # even a socket that takes little gets what there is
        if self.outbox.pending:
            logger.warning("closed with %d bytes that were never sent", self.outbox.pending)
        self.outbox.close()
        routes = list(self.routes.values())
        self.routes.clear()
        reason = ConnectionClosedError(
            f"the connection was given up: {error}" if error else "the connection was closed"
        )
        for route in routes:
            if error is None and isinstance(route.sink, Subscription):
                route.sink.finish()
            else:
                self.fail_sink(route, reason)
        # All is ended before anything is awaited, so that whoever cancels this leaves nothing.
        tasks = [task for task in self.handler_tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        tasks += [task for service in self._offered for task in service.abandon()]
        tasks += self._lifeline.abandon()
        try:
            await settled(tasks)
            await self._lifeline.wait_lost()
        finally:
            self._lifeline.cut()
            if self._metrics is not None:
                self._metrics.stop()
            self.events_hub.tell(Closed(error))
        await self.events_hub.settle()

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


async def connect(
    servers: str | Iterable[str] = "nats://127.0.0.1:4222",
    options: ConnectOptions | None = None,
    **by_name: Any,
) -> Connection:
    """Connect to one of `servers`; options are those of `ConnectOptions`, whole or by name.

    Raises `ConnectError` (`AuthorizationError` if it is the credentials) and `ConfigError`.
    """
    connection = Connection(servers, make_options(options, **by_name))
    await connection.start()
    return connection
