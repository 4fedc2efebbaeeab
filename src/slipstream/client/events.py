"""What happens to a connection, as events: for callbacks and for an async iterator."""

import asyncio
import inspect
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from slipstream.errors import ConfigError

logger = logging.getLogger("slipstream.client")

# An iterator that is not read keeps this many events; the oldest give way.
EVENTS_KEPT_MAX = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """The client is connected for the first time."""

    server: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The connection broke; unless `reconnect` is off, another is sought."""

    server: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Reconnected(Event):
    """The client is connected again, with all subscriptions."""

    server: str


@dataclass(frozen=True, slots=True)
class ConnectFailed(Event):
    """An attempt to connect failed; more follow."""

    server: str
    error: Exception


@dataclass(frozen=True, slots=True)
class ServersDiscovered(Event):
    """The server announced others that can be connected to."""

    servers: list[str]


@dataclass(frozen=True, slots=True)
class LameDuck(Event):
    """The server is about to stop and will close the connection."""

    server: str


@dataclass(frozen=True, slots=True)
class SlowConsumer(Event):
    """A subscription drops messages, its queue being full; once until the queue was emptied."""

    subscription: Any
    error: Exception


@dataclass(frozen=True, slots=True)
class Draining(Event):
    """`drain` was called: what has come is handled, then the connection closes."""


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    """An error that no call could raise: of the server, of a handler, of a sink."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The end; `error` says why if nobody asked for it."""

    error: Exception | None


Callback = Callable[[Any], Any]

NAMES: dict[str, type[Event]] = {
    "event": Event,
    "connected": Connected,
    "disconnected": Disconnected,
    "reconnected": Reconnected,
    "connect_failed": ConnectFailed,
    "servers_discovered": ServersDiscovered,
    "lame_duck": LameDuck,
    "slow_consumer": SlowConsumer,
    "draining": Draining,
    "error": ErrorEvent,
    "closed": Closed,
}


class EventIterator:
    """``async for event in connection.events()``; ends after `Closed`."""

    def __init__(self, events: "Events") -> None:
        self._events = events
        self._kept: deque[Event] = deque(maxlen=EVENTS_KEPT_MAX)
        self._waiting: asyncio.Future[None] | None = None
        self._ended = False

    def put(self, event: Event) -> None:
        """Keep it and wake who waits."""
        self._kept.append(event)
        self._ended = self._ended or isinstance(event, Closed)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def __aiter__(self) -> "EventIterator":
        return self

    async def __anext__(self) -> Event:
        while not self._kept:
            if self._ended:
                raise StopAsyncIteration
            self._waiting = asyncio.get_running_loop().create_future()
            self._events.awaited.add(self)
            try:
                await self._waiting
            finally:
                self._events.awaited.discard(self)
        return self._kept.popleft()

    def close(self) -> None:
        """Take no more events."""
        self._events.iterators.discard(self)
        self._ended = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Events:
    """Gives events to callbacks and iterators."""

    def __init__(self) -> None:
        # An iterator that is dropped is forgotten. One that is awaited is not, though there may be
        # no other reference to its task.
        self.iterators: weakref.WeakSet[EventIterator] = weakref.WeakSet()
        self.awaited: set[EventIterator] = set()
        self.last_error: Exception | None = None
        self._ended = False  # `Closed` has been told: nothing follows it
        self._callbacks: list[tuple[type[Event], Callback]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def on(self, event: type[Event] | str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each such event; call what this returns to stop that."""
        kind = NAMES.get(event) if isinstance(event, str) else event
        if kind is None:
            raise ConfigError(f"there is no event {event!r}; there are {', '.join(NAMES)}")
        entry = (kind, callback)
        self._callbacks.append(entry)

        def stop() -> None:
            if entry in self._callbacks:
                self._callbacks.remove(entry)

        return stop

    def iterate(self) -> EventIterator:
        """A new iterator over all events from now on; after `Closed` there are none."""
        iterator = EventIterator(self)
        if self._ended:
            iterator.close()
        else:
            self.iterators.add(iterator)
        return iterator

    def emit(self, event: Event, *, is_logged: bool = False) -> None:
        """An event has happened; an error that nobody hears is logged, unless it is already."""
        logger.debug("%s", event)
        self._ended = self._ended or isinstance(event, Closed)
        self.last_error = getattr(event, "error", None) or self.last_error
        for iterator in list(self.iterators):
            iterator.put(event)
        for kind, callback in list(self._callbacks):
            if isinstance(event, kind):
                self.call(callback, event)
        if isinstance(event, ErrorEvent) and not (is_logged or self._heard(ErrorEvent)):
            logger.warning("%s", event.error)

    def _heard(self, kind: type[Event]) -> bool:
        return bool(self.iterators) or any(issubclass(kind, k) for k, _ in self._callbacks)

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the user's; what it raises is logged, a coroutine runs as a task."""
        name = type(arguments[0]).__name__
        try:
            result = callback(*arguments)
        except Exception:
            logger.exception("the callback for %s raised", name)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_guard(result, name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def wait_for_callbacks(self) -> None:
        """Wait until all callbacks have returned."""
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)


async def _guard(work: Awaitable[Any], name: str) -> None:
    try:
        await work
    except Exception:
        logger.exception("the callback for %s raised", name)
