"""What all sources of messages share: an inbox, a watch over silence, patience, a way to report.

A `Source` fills a `Delivery`. It repairs what it can and reports what it repaired: to `on_error`
if there is one, else to the log. What it cannot repair ends the delivery with the error, which is
raised where messages are taken.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from slipstream.client.errors import ConnectionClosedError
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import (
    ApiError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoHeartbeatError,
    StreamNotFoundError,
)
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.message import Message
from slipstream.client.subscriptions import Route
from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

ErrorHandler: TypeAlias = Callable[[Exception], Awaitable[None] | None]

logger = logging.getLogger("slipstream.client.jetstream")

# A silence is noticed within these parts of a heartbeat: two beats, and half of one to be sure.
LOOKS_PER_HEARTBEAT = 2
LOOKS_SILENT_MAX = 5
PATIENCE_FIRST = 0.1
PATIENCE_MAX = 10.0


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

    def on_silence(self, error: NoHeartbeatError) -> None:
        """The server is silent though it should not be."""
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

    def on_mark(self, message: Message) -> None:
        """Everything before a mark has been taken."""

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
        """A connection stands again."""

    def on_failure(self, error: Exception) -> None:
        """The subscription was refused, or the connection is closed for good."""
        self.close()
        self.delivery.give_up()  # nothing could be acknowledged any more
        # Closing the connection is how a program ends: the iteration ends with it.
        self.delivery.end(None if isinstance(error, ConnectionClosedError) else error)

    # -- reporting -----------------------------------------------------------------------------

    def report(self, error: Exception) -> None:
        """Tell of what was, or will be, repaired."""
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
        """After silence or a lost request: go on, unless the consumer is gone."""
        try:
            await self.still_exists()
        except (ConsumerNotFoundError, StreamNotFoundError) as gone:
            deleted = ConsumerDeletedError(f"{self.who} does not exist any more: {gone}")
            deleted.__cause__ = gone
            self.end(deleted)
        except (ApiError, Error):
            pass  # no server answers just now; patience will tell

    # -- patience ------------------------------------------------------------------------------

    def patience(self) -> float:
        """Seconds to wait before trying again: longer each time until a message comes."""
        if self.delivery.arrived != self._arrived_at_failure:
            self._arrived_at_failure = self.delivery.arrived
            self._failures = 0
        self._failures += 1
        doubled: float = PATIENCE_FIRST * 2 ** min(self._failures - 1, 10)
        return min(doubled, PATIENCE_MAX)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` after a while, in place of what was to be called before."""
        if self._later is not None:
            self._later.cancel()
        self._later = self.delivery.loop.call_later(seconds, callback)

    # -- the watch over silence ----------------------------------------------------------------

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
            delivery.silent = 0
        else:
            delivery.silent += 1
        if delivery.silent >= LOOKS_SILENT_MAX:
            delivery.silent = 0
            error = NoHeartbeatError(
                f"{self.who}: the server sent nothing for twice the heartbeat of "
                f"{self.heartbeat} s. Asking again"
            )
            if self.raise_on_missing_heartbeat:
                delivery.notify(error)
            else:
                self.report(error)
            self.on_silence(error)
        self.watch()

    # -- the end -------------------------------------------------------------------------------

    def open(self, subject: str, queue: str = "") -> None:
        """Receive at `subject` from now on, and nowhere else."""
        self.drop_route()
        self.route = self.connection.subscriptions.open(subject, queue, self.delivery)

    def drop_route(self) -> None:
        """Receive nothing any more."""
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
        """Close, called from whatever thread finds that nobody takes any more."""
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
