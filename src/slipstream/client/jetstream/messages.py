"""What `messages` and `consume` give: an iterator, and a handler that is called.

    async with consumer.messages() as messages:
        async for message in messages:
            await message.ack()

    async with consumer.consume(handle):
        await asyncio.Event().wait()

Both go on over reconnects and restarts. They end with `stop` (what is held is handed back to the
consumer), with `drain` (what has come is still given out), when the connection is closed, or with
the error that nothing could repair.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeAlias

from slipstream.client.jetstream.delivery import Delivery, Iteration
from slipstream.client.jetstream.document import to_seconds
from slipstream.client.jetstream.errors import ConsumeStoppedError
from slipstream.client.jetstream.fetch import hand_back
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.source import MessageSource, logger
from slipstream.client.telemetry import NO_SPAN

Handler: TypeAlias = Callable[[JetStreamMessage], Awaitable[Any] | None]


class Messages(Iteration):
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

    async def __anext__(self) -> JetStreamMessage:
        if not self._started:
            await self._start()
        return await super().__anext__()

    async def _start(self) -> None:
        """Begin, once for all who take. It goes on though nobody waits for it any more: whoever
        takes with a short timeout would otherwise never see the beginning."""
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
                self._starting = None  # whoever comes next tries again
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

    async def next(self, timeout: "float | timedelta | None" = None) -> JetStreamMessage | None:
        """The next message; None if none comes within `timeout` seconds (None: no bound).

        Raises `ConsumeStoppedError` when there will be none any more.
        """
        try:
            async with asyncio.timeout(None if timeout is None else to_seconds(timeout)):
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
        # An iteration that was left with `break`, outside of `async with`: nobody takes messages
        # any more, so nobody may ask for them.
        source = getattr(self, "_source", None)
        if source is not None:
            source.abandon()


def _looked_at(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # whoever takes is told of it; perhaps nobody takes any more


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
