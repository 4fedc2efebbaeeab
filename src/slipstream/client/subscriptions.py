"""Subscriptions: where the messages of a subscription id go.

The connection calls the `Sink` of a subscription inside the read, without a task or a queue. A sink
that needs no `Message` objects overrides `receive` and cuts what it needs out of the read itself.
Iterators, handlers, the requests' inbox and everything of JetStream are sinks. A `Route` is what
the connection knows of each, and `Subscriptions` are all routes of a connection.

A `Subscription` is the sink that people iterate over, or that calls their handler. Its messages
wait in a queue of bounded length and size; when it is full the newest are dropped, counted and
reported once, so that one slow reader costs neither memory nor the connection.
"""

import asyncio
import builtins
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    InvalidSubjectError,
    PermissionsError,
    SubscriptionClosedError,
    TimeoutError,
)
from slipstream.client.message import Message, message_of
from slipstream.client.payload import subject_bytes
from slipstream.client.value_types import Typed, Value, Value_co
from slipstream.model.durations import to_seconds

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

_int = int  # the name `int` in a compiled module's annotations is a C type


class Sink:
    """Takes messages as they are read. Whatever it raises is reported as an `ErrorEvent`."""

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """The message that `frames` stands at; what `frames` says ends with this call."""
        self.deliver(message_of(frames, write_buffer))

    def deliver(self, message: Message) -> None:
        """Take a message."""

    def failed(self, error: Exception) -> None:
        """No further message comes: forbidden, or the connection was closed."""

    async def drain(self) -> None:
        """The connection will be closed: return when what has come is dealt with."""

    def on_disconnect(self, handed: _int) -> None:
        """The connection broke; what was published at a position over `handed` was not sent."""

    def on_reconnect(self) -> None:
        """The connection is back, and the subscription with it."""


class ForeignSink(Sink):
    """Any object with a `deliver` method, as a sink."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def deliver(self, message: Message) -> None:
        """Pass it on."""
        self._target.deliver(message)

    def failed(self, error: Exception) -> None:
        """Call the method of that name, if there is one."""
        self._call("failed", error)

    def on_disconnect(self, handed: _int) -> None:
        """Call the method of that name, if there is one."""
        self._call("on_disconnect", handed)

    def on_reconnect(self) -> None:
        """Call the method of that name, if there is one."""
        self._call("on_reconnect")

    def _call(self, name: str, *arguments: Any) -> None:
        hook = getattr(self._target, name, None)
        if hook is not None:
            hook(*arguments)


class Route:
    """A subscription as the connection keeps it: id, subject, queue group, sink and count."""

    def __init__(self, subject: str, queue: str, sink: Sink) -> None:
        self.sid = 0  # until it is subscribed
        self.subject = subject
        self.queue = queue
        self.sink = sink
        self.delivered = 0
        self.max_messages = 0  # 0: no end
        self.position = 0  # of the SUB in the write_buffer
        self.base = 0  # `delivered` when the current connection began: the server counts from there

    def subscribe_lines(self) -> bytes:
        """SUB, and what is left of `max_messages` for a connection that begins to count."""
        queue = f" {self.queue}" if self.queue else ""
        line = f"SUB {self.subject}{queue} {self.sid}\r\n".encode()
        self.base = self.delivered
        return line + self.limit_line() if self.max_messages else line

    def limit_line(self) -> bytes:
        """UNSUB once `max_messages` have been delivered."""
        return b"UNSUB %d %d\r\n" % (self.sid, self.max_messages - self.base)

    def unsubscribe_line(self) -> bytes:
        """UNSUB, at once."""
        return b"UNSUB %d\r\n" % self.sid


_bool = bool

Handler: TypeAlias = Callable[[Message[Value]], Awaitable[None] | None]
logger = logging.getLogger("slipstream.client")


async def wait_ended(tasks: "list[asyncio.Task[None]]") -> None:
    """Return once all `tasks` have ended, however they did."""
    if tasks:
        await asyncio.wait(tasks)


class Subscription(Sink, Typed[Value_co]):
    """Messages of a subject: ``async for message in subscription``, or `next`.

    Iteration ends after `unsubscribe`, after `drain` once everything was taken, and when the
    connection is closed. It raises `PermissionsError` if the server forbids the subject and
    `ConnectionClosedError` if the connection was given up.
    """

    def __init__(
        self,
        connection: "Connection",
        subject: str,
        queue: str,
        max_messages_pending: _int,
        max_bytes_pending: _int,
        kind: object = None,
        drops_oldest: _bool = False,
    ) -> None:
        self._kind = kind  # the type of the messages' values
        self._drops_oldest = drops_oldest
        self._connection = connection
        self.route = Route(subject, queue, self)
        self.max_messages_pending = max_messages_pending
        self.max_bytes_pending = max_bytes_pending
        self.dropped = 0
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._slow = False
        self._ended = False
        self._error: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._emptied: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """What it subscribes to."""
        return self.route.subject

    @property
    def queue(self) -> str:
        """Its queue group; "" if it has none."""
        return self.route.queue

    @property
    def pending(self) -> _int:
        """How many messages wait to be taken."""
        return len(self._messages)

    @property
    def pending_bytes(self) -> _int:
        """Bytes of the messages that wait to be taken."""
        return self._bytes

    @property
    def delivered(self) -> _int:
        """How many messages the server has sent, dropped ones included."""
        return self.route.delivered

    @property
    def closed(self) -> bool:
        """Whether no further message will come; some may still be waiting."""
        return self._ended

    # -- what the connection calls -------------------------------------------------------------

    def receive(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """Queue a message, or drop it if the queue is full."""
        size = frames.end - frames.header_start
        if (
            len(self._messages) >= self.max_messages_pending
            or self._bytes + size > self.max_bytes_pending
        ) and self._messages:
            self._drop()
            if not self._drops_oldest:
                return
            self._make_room(size)
        self._messages.append(message_of(frames, write_buffer))
        self._bytes += size
        if self._waiting:
            self._wake()

    def _drop(self) -> None:
        self.dropped += 1
        self._connection.dropped += 1
        if not self._slow:
            self._slow = True
            self._connection.report_slow(self)

    def _make_room(self, size: _int) -> None:
        """Let the oldest give way to a message of this size."""
        while self._messages and (
            len(self._messages) >= self.max_messages_pending
            or self._bytes + size > self.max_bytes_pending
        ):
            oldest = self._messages.popleft()
            self._bytes -= len(oldest.data) + len(oldest.header_block)

    def failed(self, error: Exception) -> None:
        """No further message comes, because of `error`."""
        self._error = error
        self.finish()

    def finish(self) -> None:
        """No further message comes; what waits can still be taken."""
        self._ended = True
        self._wake()
        self._wake_drainers()

    def _wake(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- taking messages -----------------------------------------------------------------------

    def __aiter__(self) -> "Subscription[Value_co]":
        return self

    async def __anext__(self) -> Message[Value_co]:
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._arrival()
        return self._take()

    async def next(self, timeout: "float | timedelta | None" = None) -> Message[Value_co]:
        """The next message, after at most `timeout` seconds (None: as long as it takes).

        Raises `TimeoutError`, or `SubscriptionClosedError` if there will be none.
        """
        if not self._messages:
            limit = None if timeout is None else to_seconds(timeout, "timeout")
            try:
                async with asyncio.timeout(limit):
                    await self._some()
            except builtins.TimeoutError:
                raise TimeoutError(
                    f"next message of {self.subject!r}: none came within {limit} s"
                ) from None
        return self._take()

    async def _some(self) -> None:
        """Wait until there is a message."""
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise SubscriptionClosedError(
                    f"next message of {self.subject!r}: the subscription has ended"
                )
            await self._arrival()

    async def _arrival(self) -> None:
        future = self._connection.loop.create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def _take(self) -> Message[Value_co]:
        message = self._messages.popleft()
        if self._kind is not None:
            message.expect(self._kind)
        self._bytes -= len(message.data) + len(message.header_block)
        if not self._messages:
            self._slow = False
            if self._emptied:
                self._wake_drainers()
        return message

    def _wake_drainers(self) -> None:
        if self._messages:
            return
        emptied = self._emptied
        self._emptied = []
        for future in emptied:
            if not future.done():
                future.set_result(None)

    # -- handlers ------------------------------------------------------------------------------

    def start(self, handler: "Handler[Value_co]") -> None:
        """Call `handler` for each message from a task of its own."""
        connection = self._connection
        self._task = task = connection.loop.create_task(
            self._handle(handler), name=f"slipstream: handler of {self.subject}"
        )
        connection.handler_tasks.add(task)
        task.add_done_callback(connection.handler_tasks.discard)

    async def _handle(self, handler: "Handler[Value_co]") -> None:
        since_rest = 0
        telemetry = self._connection.telemetry
        try:
            async for message in self:
                try:
                    if telemetry is None:
                        result = handler(message)
                        if result is not None and inspect.isawaitable(result):
                            await result
                    else:
                        with telemetry.process(message, queue=self.queue, template=self.subject):
                            result = handler(message)
                            if result is not None and inspect.isawaitable(result):
                                await result
                except Exception as error:
                    logger.exception("the handler of %r raised", self.subject)
                    self._connection.report_error(error, is_logged=True)
                since_rest += 1
                if (
                    since_rest >= 256
                ):  # a handler that never waits must not keep others from running
                    since_rest = 0
                    await asyncio.sleep(0)
        except Exception as error:
            # The subscription was refused: nobody iterates, so the event is where it shows.
            self._connection.report_error(error)

    # -- ending --------------------------------------------------------------------------------

    async def unsubscribe(self, max_messages: _int = 0) -> None:
        """End it now, dropping what waits; or once `max_messages` have been delivered in all."""
        if max_messages and self.delivered < max_messages:
            self._connection.subscriptions.limit(self.route, max_messages)
            return
        self._connection.subscriptions.drop(self.route)
        self._messages.clear()
        self._bytes = 0
        self.finish()
        await wait_ended(self.abandon())

    async def drain(self) -> None:
        """Ask for no more, and return once every message that has come was taken.

        A handler that calls this does not wait for itself: it gets the rest when it returns. Raises
        `ConnectionLostError`, after the same wait, if some may have been lost on their way.
        """
        lost: ConnectionLostError | None = None
        try:
            await self.halt()
        except ConnectionLostError as error:
            lost = error
        if not self._is_handled_by(asyncio.current_task(), self._connection.drainer):
            if self._messages:
                future = self._connection.loop.create_future()
                self._emptied.append(future)
                await future
            if self._task is not None:
                await asyncio.wait([self._task])
        if lost is not None:
            raise lost

    def _is_handled_by(self, *tasks: "asyncio.Task[None] | None") -> _bool:
        return self._task is not None and self._task in tasks

    async def halt(self) -> None:
        """Ask for no more, and return once every message on its way has come."""
        if self._ended:
            return
        self._connection.subscriptions.halt(self.route)
        try:
            await self._connection.flush()
        finally:
            self._connection.subscriptions.drop(self.route)
            self.finish()

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Cancel the handler, if there is one; its task, to wait for."""
        if self._task is None or self._task is asyncio.current_task():
            return []
        self._task.cancel()
        return [self._task]

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(self, *_: Any) -> None:
        if not self._ended:
            await self.unsubscribe()


class SinkSubscription:
    """What `Connection.open_sink` returns: the handle of a subscription that feeds a sink."""

    def __init__(self, subscriptions: "Subscriptions", route: Route) -> None:
        self._subscriptions = subscriptions
        self.route = route

    @property
    def subject(self) -> str:
        """What it subscribes to."""
        return self.route.subject

    @property
    def delivered(self) -> _int:
        """How many messages the server has sent."""
        return self.route.delivered

    def close(self) -> None:
        """Unsubscribe, now."""
        self._subscriptions.drop(self.route)

    async def unsubscribe(self, max_messages: _int = 0) -> None:
        """Unsubscribe, now or once `max_messages` have been delivered in all."""
        if max_messages > self.route.delivered:
            self._subscriptions.limit(self.route, max_messages)
        else:
            self.close()


class Subscriptions:
    """The subscriptions of a connection, by subscription id.

    `report_error` is called with what no call can raise.
    """

    def __init__(
        self, write_buffer: "WriteBuffer", report_error: Callable[[Exception], None]
    ) -> None:
        self.routes: dict[_int, Route] = {}
        self._write_buffer = write_buffer
        self._report_error = report_error
        self._next_sid = 1

    def open(self, subject: str, queue: str, sink: Sink) -> Route:
        """Subscribe; `drop` ends it. Raises what `add` raises."""
        return self.add(Route(subject, queue, sink))

    def add(self, route: Route) -> Route:
        """Subscribe, with a new subscription id.

        Raises `ConnectionClosedError` and `InvalidSubjectError`.
        """
        if self._write_buffer.is_closed:
            raise ConnectionClosedError(
                f"subscribe to {route.subject!r}: the connection is closed. Open another one"
            )
        subject_bytes(route.subject)
        if any(c in route.queue for c in " \t\r\n\f"):
            raise InvalidSubjectError(
                f"queue group {route.queue!r} has a blank or line break in it"
            )
        route.sid = self._next_sid
        self._next_sid += 1
        self.routes[route.sid] = route
        if self._write_buffer.transport is not None:
            route.position = self._write_buffer.put_line(route.subscribe_lines())
        return route

    def halt(self, route: Route) -> None:
        """Ask the server for no more; messages that it has sent already still arrive."""
        if route.sid not in self.routes:
            return
        # A SUB that waits in the buffer is sent on the next connection.
        buffer = self._write_buffer
        if buffer.transport is not None or route.position > buffer.handed:
            buffer.put_line(route.unsubscribe_line())

    def drop(self, route: Route) -> None:
        """Unsubscribe, now."""
        self.halt(route)
        self.routes.pop(route.sid, None)

    def limit(self, route: Route, max_messages: _int) -> None:
        """Unsubscribe once `max_messages` have been delivered in all."""
        route.max_messages = max_messages
        if self._write_buffer.transport is not None:
            self._write_buffer.put_line(route.limit_line())

    def on_last_message(self, route: Route) -> None:
        """The server has sent all that a route asked for, and has forgotten it.

        Unless it counts from a reconnect: a limit that was sent before may have come after it.
        """
        if route.base:
            self.halt(route)
        self.routes.pop(route.sid, None)
        if isinstance(route.sink, Subscription):
            route.sink.finish()

    def forbid(self, error: PermissionsError) -> None:
        """The server refused a subscription: end those with its subject and queue group."""
        refused = [
            route
            for route in self.routes.values()
            if route.subject == error.subject and route.queue == error.queue
        ]
        for route in refused:
            self.routes.pop(route.sid, None)
            self.fail(route, error)

    def fail(self, route: Route, error: Exception) -> None:
        """Call the sink's `failed`: no further message comes. Reports what it raises."""
        try:
            route.sink.failed(error)
        except Exception as raised:
            self._report_error(raised)
