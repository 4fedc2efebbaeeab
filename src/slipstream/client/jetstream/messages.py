"""What `messages` and `consume` return, and the sources that fill them.

    async with consumer.messages() as messages:
        async for message in messages:
            await message.ack()

    async with consumer.consume(handle):
        await asyncio.Event().wait()

Both go on over reconnects and restarts. They end with `stop` (messages that were not taken are
handed back to the consumer), with `drain` (messages that have arrived are still given out), when
the connection is closed, or with an error that nothing could repair.

A `MessageSource` fills a `Delivery`: subclasses pull (`pull`), are pushed to (`push`) or keep an
order (`ordered`). It watches for missing heartbeats, repairs what it can and reports what it
repaired: to `on_error` if there is one, else to the log. What it cannot repair ends the delivery
with the error, which is raised where messages are taken.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from slipstream.client.errors import ConnectionClosedError
from slipstream.client.jetstream.delivery import Delivery, Iteration
from slipstream.client.jetstream.errors import (
    ApiError,
    ConsumeError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    ConsumeStoppedError,
    JetStreamError,
    NoHeartbeatError,
    StreamNotFoundError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.message import Message
from slipstream.client.subscriptions import Route
from slipstream.client.telemetry import NO_SPAN
from slipstream.client.value_types import Value, Value_co
from slipstream.errors import Error
from slipstream.model.durations import to_seconds

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

ErrorHandler: TypeAlias = Callable[[Exception], Awaitable[None] | None]

logger = logging.getLogger("slipstream.client.jetstream")

# The watch looks so often in a heartbeat interval, and reports after so many looks without one: two
# intervals, and half of one to be sure.
LOOKS_PER_HEARTBEAT = 2
LOOKS_MISSED_MAX = 5
RETRY_SECONDS_FIRST = 0.1
RETRY_SECONDS_MAX = 10.0


class MessageSource:
    """A source: subclasses ask for messages (pull) or have them sent (push)."""

    def __init__(
        self,
        connection: "Connection",
        delivery: Delivery,
        who: str,
        heartbeat: float,
        on_error: ErrorHandler | None,
    ) -> None:
        self.connection = connection
        self.delivery = delivery
        self.who = who
        self.heartbeat = heartbeat
        self.on_error = on_error
        self.raise_on_missing_heartbeat = False
        self.is_closed = False
        self.route: Route | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._arrived_at_failure = -1
        delivery.source = self

    # -- for subclasses ------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; whatever this raises is raised where messages are taken."""
        raise NotImplementedError

    async def still_exists(self) -> None:
        """Ask the server for the consumer; raises its error if it is gone."""

    def on_missing_heartbeat(self, error: NoHeartbeatError) -> None:
        """No heartbeat came for two intervals."""
        raise NotImplementedError

    @property
    def awaits(self) -> bool:
        """Whether the server owes us messages or heartbeats."""
        return True

    # -- what a delivery calls -----------------------------------------------------------------

    def replenish(self) -> None:
        """Less is held than the threshold; for those who ask."""

    def on_status(self, message: Message) -> None:
        """The server says something in place of a message."""
        raise NotImplementedError

    def on_control(self, message: Message) -> None:
        """Every message before a control message has been taken."""

    def on_overflow(self) -> None:
        """A message was dropped."""

    def on_enough(self) -> None:
        """The last message that is wanted was taken."""
        self.close()
        self.delivery.end()

    def on_gap(self, message: JetStreamMessage) -> None:
        """An ordered consumer's message is not the next one."""

    def on_disconnect(self, handed: int) -> None:
        """The connection broke."""

    def on_reconnect(self) -> None:
        """The connection is back."""

    def on_failure(self, error: Exception) -> None:
        """The subscription was refused, or the connection is closed for good."""
        self.close()
        self.delivery.give_up()  # nothing could be acknowledged
        # Closing the connection is how a program ends: the iteration ends with it.
        self.delivery.end(None if isinstance(error, ConnectionClosedError) else error)

    # -- reporting -----------------------------------------------------------------------------

    def report(self, error: Exception) -> None:
        """Report what was, or will be, repaired."""
        if self.on_error is None:
            logger.warning("%s", error)
            return
        try:
            result = self.on_error(error)
        except Exception:
            logger.exception("the error handler of %s raised", self.who)
            return
        if result is not None:
            self.spawn(self._await(result))

    async def _await(self, result: Awaitable[None]) -> None:
        try:
            await result
        except Exception:
            logger.exception("the error handler of %s raised", self.who)

    def spawn(self, work: "Awaitable[None]") -> None:
        """Run something seldom beside everything else, until `close`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self, error: Exception) -> None:
        """Nothing can repair this."""
        self.close()
        self.delivery.end(error)

    async def check(self, error: Exception) -> None:
        """After missing heartbeats or a lost request: go on, unless the consumer is gone."""
        try:
            await self.still_exists()
        except (ConsumerNotFoundError, StreamNotFoundError) as gone:
            deleted = ConsumerDeletedError(f"{self.who} does not exist any more: {gone}")
            deleted.__cause__ = gone
            self.end(deleted)
        except (ApiError, Error):
            pass  # no server answers just now; the next retry shows

    # -- retrying ------------------------------------------------------------------------------

    def retry_delay(self) -> float:
        """Seconds to wait before trying again: longer each time until a message comes."""
        if self.delivery.arrived != self._arrived_at_failure:
            self._arrived_at_failure = self.delivery.arrived
            self._failures = 0
        self._failures += 1
        doubled: float = RETRY_SECONDS_FIRST * 2 ** min(self._failures - 1, 10)
        return min(doubled, RETRY_SECONDS_MAX)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` after a while, in place of what was to be called before."""
        if self._later is not None:
            self._later.cancel()
        self._later = self.delivery.loop.call_later(seconds, callback)

    # -- watching heartbeats -------------------------------------------------------------------

    def watch(self) -> None:
        """Begin to look for heartbeats."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self.heartbeat > 0 and not self.is_closed:
            self._watch = self.delivery.loop.call_later(
                self.heartbeat / LOOKS_PER_HEARTBEAT, self._look
            )

    def _look(self) -> None:
        delivery = self.delivery
        if not self.awaits or not self.connection.is_connected:
            delivery.missed = 0
        else:
            delivery.missed += 1
        if delivery.missed >= LOOKS_MISSED_MAX:
            delivery.missed = 0
            error = NoHeartbeatError(
                f"{self.who}: the server sent nothing for twice the heartbeat of "
                f"{self.heartbeat} s. Asking again"
            )
            if self.raise_on_missing_heartbeat:
                delivery.notify(error)
            else:
                self.report(error)
            self.on_missing_heartbeat(error)
        self.watch()

    # -- the end -------------------------------------------------------------------------------

    def open(self, subject: str, queue: str = "") -> None:
        """Receive at `subject` from now on, and nowhere else."""
        self.drop_route()
        self.route = self.connection.subscriptions.open(subject, queue, self.delivery)

    def drop_route(self) -> None:
        """Receive no more."""
        if self.route is not None:
            self.connection.subscriptions.drop(self.route)
            self.route = None

    def close(self) -> None:
        """Ask for nothing, receive nothing, watch nothing. What is held stays held."""
        self.is_closed = True
        self.drop_route()
        for timer in (self._watch, self._later):
            if timer is not None:
                timer.cancel()
        self._watch = self._later = None
        current = asyncio.current_task() if self._tasks else None
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    def abandon(self) -> None:
        """Close, from the thread that collects the abandoned object."""
        if not self.is_closed and not self.connection.loop.is_closed():
            self.connection.loop.call_soon_threadsafe(self.close)

    async def drain(self) -> None:
        """Ask for nothing more, but receive what is on its way; then close."""
        if self.is_closed:
            return
        route = self.route
        self.is_closed = True
        if route is not None and self.connection.is_connected:
            self.connection.subscriptions.halt(route)
            try:
                await self.connection.flush()
            except Error:
                pass  # the connection broke: then nothing is on its way
            except BaseException:
                self.close()
                self.delivery.end()
                raise
        self.close()
        self.delivery.end()


def hand_back(messages: list[JetStreamMessage]) -> None:
    """Hand messages that were not taken back to their consumer, which delivers them again now."""
    for message in messages:
        if message.is_acknowledged:
            continue
        try:
            message.nak()
        except (ConsumeError, JetStreamError, Error):
            return  # the connection is gone: their ack_wait brings them back


Handler: TypeAlias = Callable[[JetStreamMessage[Value]], Awaitable[Any] | None]


class Messages(Iteration[Value_co]):
    """An endless (or bounded) iterator over a consumer's messages."""

    def __init__(self, delivery: Delivery, source: MessageSource, gives_back: bool) -> None:
        super().__init__(delivery)
        self._queue = delivery
        self._source = source
        self._gives_back = gives_back
        self._started = False
        self._starting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JetStreamMessage[Value_co]:
        if not self._started:
            await self._start()
        return await super().__anext__()

    async def _start(self) -> None:
        """Begin, once for all who take. It goes on though nobody waits for it any more: a
        caller with a short timeout would otherwise never see the beginning."""
        starting = self._starting
        if starting is None:
            starting = self._starting = asyncio.ensure_future(self._source.start())
            starting.add_done_callback(_looked_at)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._source.drop_route()
            if self._starting is starting:
                self._starting = None  # the next task that takes tries again
            raise
        self._started = True

    @property
    def pending(self) -> int:
        """How many messages have come and wait to be taken."""
        return self._queue.held

    @property
    def is_stopped(self) -> bool:
        """Whether no further message will come; some may still wait to be taken."""
        return self._queue.is_ended

    async def next(
        self, timeout: "float | timedelta | None" = None
    ) -> JetStreamMessage[Value_co] | None:
        """The next message; None if none comes within `timeout` seconds (None: no bound).

        Raises `ConsumeStoppedError` when there will be none.
        """
        try:
            async with asyncio.timeout(None if timeout is None else to_seconds(timeout, "timeout")):
                return await self.__anext__()
        except TimeoutError:
            return None
        except StopAsyncIteration:
            raise ConsumeStoppedError(
                f"next message of {self._source.who}: consuming was stopped"
            ) from None

    async def stop(self) -> None:
        """End now. What is held, and was not taken, is handed back to the consumer."""
        self._close()

    async def drain(self) -> None:
        """Ask for no more. What has come can still be taken; then the iteration ends."""
        await self._source.drain()

    def _close(self) -> None:
        self._source.close()
        self._queue.end()
        held = self._queue.give_up()
        if self._gives_back:
            hand_back(held)

    def __del__(self) -> None:
        # An iteration that was left with `break`, outside of `async with`: no task takes messages
        # from it, so it must not ask for them.
        source = getattr(self, "_source", None)
        if source is not None:
            source.abandon()


def _looked_at(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # it is raised where messages are taken, if they are


class ConsumeContext:
    """A handler at work, in one task; end it with `stop` or `drain`, or leave its ``async with``.

    The handler is a function or coroutine function. What it raises is reported, and the message
    stays unacknowledged; the next one is handled all the same.
    """

    def __init__(self, messages: Messages, handler: Handler) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is a function or coroutine function, not {handler!r}")
        self._messages = messages
        self._handler = handler
        self._error: Exception | None = None
        messages._queue.drainer = self.drain
        connection = messages._source.connection
        self._task = connection.loop.create_task(
            self._run(), name=f"slipstream: consume {messages._source.who}"
        )
        connection.handler_tasks.add(self._task)
        self._task.add_done_callback(connection.handler_tasks.discard)

    async def _run(self) -> None:
        try:
            await self._handle()
        except Exception as error:
            # `closed` raises it too; but perhaps nobody asks.
            self._messages._source.report(error)
            self._error = error

    async def _handle(self) -> None:
        messages, handler = self._messages, self._handler
        telemetry = messages._source.connection.telemetry
        async for message in messages:
            try:
                with NO_SPAN if telemetry is None else telemetry.process(message):
                    result = handler(message)
                    if result is not None and inspect.isawaitable(result):
                        await result
            except Exception as error:
                logger.exception("the handler of %s raised", messages._source.who)
                if messages._source.on_error is not None:
                    messages._source.report(error)

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    async def closed(self) -> None:
        """Wait until it has ended; raises what ended it, if nothing could repair that."""
        await asyncio.wait([self._task])
        self._raise_error()

    def _raise_error(self) -> None:
        """Raise what ended it."""
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """End now: the handler is not called again. Messages it has not seen are handed back."""
        await self._messages.stop()
        if asyncio.current_task() is self._task:
            return  # the handler stops its own consuming: it ends when it returns
        if not self._task.done():
            await asyncio.wait([self._task])

    async def drain(self) -> None:
        """Ask for no more; returns when everything that has come is handled.

        Cancelled, it stops instead: the handler is not called again. A handler that calls this does
        not wait for itself.
        """
        try:
            await self._messages.drain()
            drainer = self._messages._source.connection.drainer
            if self._task not in (asyncio.current_task(), drainer):
                await asyncio.wait([self._task])
        except asyncio.CancelledError:
            await self._messages.stop()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.drain()
        else:
            await self.stop()
        if kind is None:
            self._raise_error()
