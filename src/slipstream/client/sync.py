"""The client without await: every call is handed to an event loop in a thread, and waited for.

It is for scripts and notebooks. Nothing of the client is repeated here. A `Facade` wraps an object
of the client: it returns what the object returns, awaits in the loop's thread what a caller would
have awaited, and wraps a result that could be awaited in turn in a facade too:

    a coroutine               its result
    an async iterator         an iterator
    an async context manager  a context manager
    a future                  an object with `result(timeout)` and `done()`
    plain data                itself

The facade of a class has the name of the class (`CLASSES`). Type checkers read the signatures of
its methods in slipstream/sync.pyi, which tools/generate_sync_types.py makes of the client's own.

Functions that are passed in (handlers, progress, error callbacks) are called in threads of their
own, and may use the facade; so are iterators taken from. Only where the client needs the answer
before it goes on (`ANSWERED_AT_ONCE`) a function is called in the loop's thread, and may not.
"""

import asyncio
import builtins
import concurrent.futures
import contextlib
import contextvars
import enum
import functools
import inspect
import logging
import threading
import types
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

import msgspec

from slipstream.client.connection import connect as connect_async
from slipstream.client.errors import ClientError, ConnectionClosedError, TimeoutError
from slipstream.model.durations import to_seconds

if TYPE_CHECKING:
    from slipstream.client.keywords import ConnectKeywords
    from slipstream.client.options import ConnectOptions, Seconds

__all__ = ["ConnectionFacade", "Facade", "PendingResult", "connect"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread of its own; `run` waits for what runs there.

    Functions of the caller that are called back run in threads of their own, one for each
    function, in order: so they may block, and may use the same API.
    """

    def __init__(self) -> None:
        self._loop = _new_loop()
        # A function's thread ends when the client has dropped the function.
        self._callbacks: weakref.WeakSet[ThreadPoolExecutor] = weakref.WeakSet()
        self._lock = threading.Lock()  # nothing is begun once the end has
        self._is_stopping = False
        self._callback_thread = ThreadPoolExecutor(1, thread_name_prefix="slipstream: results")
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="slipstream: event loop", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there in the caller's context; its result, or what it raises.

        An interrupt (Ctrl-C) cancels it. Raises `ConnectionClosedError` if the loop has been
        stopped, `ClientError` if the caller is the loop's own thread, which could only wait for
        itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError(
                "a blocking call from the event loop's own thread would wait for itself"
            )
        with self._lock:
            if self._is_stopping:
                work.close()
                raise _closed()
            done, started = self._start(work)
        try:
            return done.result()
        except BaseException:
            if not done.done():
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
            raise

    def _start(
        self, work: Coroutine[Any, Any, T]
    ) -> "tuple[concurrent.futures.Future[T], list[asyncio.Task[T]]]":
        """Begin to run a coroutine there: its result to be, and its task once there is one."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        started: list[asyncio.Task[T]] = []
        context = contextvars.copy_context()

        def start() -> None:
            task = self._loop.create_task(work, context=context)
            started.append(task)
            task.add_done_callback(finish)

        def finish(task: "asyncio.Task[T]") -> None:
            if task.cancelled():
                if self._is_stopping:
                    done.set_exception(_closed())
                else:
                    done.cancel()
                    done.set_running_or_notify_cancel()
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(task.result())

        self._loop.call_soon_threadsafe(start)
        return done, started

    def callback(self, function: Callable[..., Any]) -> Callable[..., "asyncio.Future[Any]"]:
        """`function` for use in the loop: called in a thread of its own, what it gives is awaited.

        A caller that does not await it goes on at once; the calls come one after the other all the
        same.
        """
        threads = ThreadPoolExecutor(1, thread_name_prefix="slipstream: callback")
        self._callbacks.add(threads)

        def called(*arguments: Any, **named: Any) -> "asyncio.Future[Any]":
            return self._loop.run_in_executor(threads, lambda: function(*arguments, **named))

        return called

    def call_back(self, function: Callable[[], object]) -> None:
        """Call `function` in the thread for callbacks; what it raises is logged."""
        self._callback_thread.submit(_logged, function)

    def stop(self) -> None:
        """End the loop and its thread; may be called twice, by several threads, in a callback.

        What others still wait for there ends with `ConnectionClosedError`.
        """
        with self._lock:
            is_first = not self._is_stopping
            self._is_stopping = True
            ended = self._start(_cancel_others())[0] if is_first else None
        try:
            if ended is not None:
                ended.result()
        finally:
            if is_first:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            with self._lock:
                self._loop.close()
            for threads in (*self._callbacks, self._callback_thread):
                threads.shutdown(wait=False)


def _closed() -> ConnectionClosedError:
    return ConnectionClosedError("the connection of this object is closed: open another one")


def _logged(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        logger.exception("a callback for a result raised")


async def _cancel_others() -> None:
    """Cancel what is left of background work, and let it end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


CLASSES = {
    "Message": "message",
    "EventIterator": "events",
    "Subscription": "subscriptions",
    "SinkSubscription": "subscriptions",
    "Connection": "connection",
    "ServiceRequest": "services",
    "Endpoint": "services",
    "Group": "services",
    "Service": "services",
    "Discovery": "services",
    "JetStreamMessage": "jetstream.message",
    "Iteration": "jetstream.delivery",
    "Messages": "jetstream.messages",
    "ConsumeContext": "jetstream.messages",
    "MessageBatch": "jetstream.pull",
    "Consumer": "jetstream.consumer",
    "PullConsumer": "jetstream.consumer",
    "PushConsumer": "jetstream.push",
    "OrderedConsumer": "jetstream.ordered",
    "AtomicBatch": "jetstream.batch_publish",
    "FastBatch": "jetstream.batch_publish",
    "Stream": "jetstream.stream",
    "JetStream": "jetstream.context",
    "Watch": "kv.entries",
    "KeyValue": "kv.bucket",
    "ObjectReader": "object_store.reader",
    "ObjectWatch": "object_store.store",
    "ObjectStore": "object_store.store",
    "Scan": "arrow.scan",
}
"""The classes of which callers get facades, with their modules of `slipstream.client`; what a class
stands on comes before it."""

_ASYNC_METHODS = ("__aiter__", "__anext__", "__aenter__", "__await__")
_PACKAGE = "slipstream.client"
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)

ANSWERED_AT_ONCE = frozenset(
    {
        "choose_server",
        "codecs",
        "reconnect_delay",
        "sentinel",
        "sign",
        "stats_data",
        "token",
        "user_jwt",
        "websocket_headers",
    }
)
"""Arguments that are functions whose answer is used where they are called."""


class Facade:
    """An object of the asyncio client, for callers without a loop."""

    __slots__ = ("_target", "_thread")

    def __init__(self, target: Any, thread: LoopThread) -> None:
        self._target = target
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            return self._blocking(value)
        return self._wrap(value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what the client lets be set, such as `js.timeout`."""
        if name in Facade.__slots__:
            object.__setattr__(self, name, value)
            return
        described = getattr(type(self._target), name, None)
        if not isinstance(described, property) or described.fset is None:
            raise AttributeError(f"{type(self._target).__name__}.{name} cannot be set")
        setattr(self._target, name, self._unwrap(value))

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method`, called in the loop's thread and awaited there."""

        def call(*arguments: Any, **named: Any) -> Any:
            given = [self._unwrap(argument) for argument in arguments]
            options = {key: self._unwrap(value, key) for key, value in named.items()}
            return self._wrap(self._thread.run(_call(method, given, options)))

        functools.update_wrapper(call, method, updated=())
        return call

    def _unwrap(self, value: Any, name: str = "") -> Any:
        """What the client gets for the argument `name`: facades uncovered, functions and iterators
        made to be awaited."""
        if isinstance(value, Facade):
            return value._target
        if isinstance(value, _Iteration):
            return value.target
        if isinstance(value, types.GeneratorType):
            return _GivenIterator(value, self._thread)
        if isinstance(value, _FUNCTIONS) and not asyncio.iscoroutinefunction(value):

            def called(*arguments: Any, **named: Any) -> Any:
                return value(*map(self._wrap, arguments), **named)

            return called if name in ANSWERED_AT_ONCE else self._thread.callback(called)
        return value  # a coroutine function is for the loop as it is

    def _wrap(self, value: Any) -> Any:
        """What the caller gets for something of the client."""
        if isinstance(value, asyncio.Future):
            return PendingResult(value, self._thread)
        kind: type = type(value)
        if isinstance(value, AsyncGeneratorType) or needs_facade(kind):
            return self if value is self._target else facade_class(kind)(value, self._thread)
        if kind in (list, tuple):
            return kind(self._wrap(item) for item in value)
        return value

    # -- what Python looks up on the type ------------------------------------------------------

    def __enter__(self) -> Any:
        return self._wrap(self._thread.run(_call(self._target.__aenter__, [], {})))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        given = [kind, error, trace]
        leave: bool | None = self._thread.run(_call(self._target.__aexit__, given, {}))
        return leave

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._target, "__aiter__"):
            return _Iteration(self._target.__aiter__(), self)
        return (self._wrap(item) for item in self._target)

    def __next__(self) -> Any:
        try:
            return self._wrap(self._thread.run(_call(self._target.__anext__, [], {})))
        except StopAsyncIteration:
            raise StopIteration from None

    def __len__(self) -> int:
        return len(self._target)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __getitem__(self, key: Any) -> Any:
        return self._wrap(self._target[key])

    def __contains__(self, item: Any) -> bool:
        return self._unwrap(item) in self._target

    def __eq__(self, other: object) -> bool:
        return bool(self._target == (other._target if isinstance(other, Facade) else other))

    def __hash__(self) -> int:
        return hash(self._target)

    @classmethod
    def __class_getitem__(cls, _: object) -> type[Self]:
        """`KeyValue[Order]` is for type checkers."""
        return cls

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"<sync {self._target!r}>"


class _Iteration:
    """An iterator over an async one."""

    def __init__(self, iterator: Any, facade: Facade) -> None:
        self.target = iterator
        self._facade = facade

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        facade = self._facade
        try:
            return facade._wrap(facade._thread.run(_call(self.target.__anext__, [], {})))
        except StopAsyncIteration:
            raise StopIteration from None


class _GivenIterator:
    """A caller's iterator, for the client: what it does to find the next item may block."""

    _END = object()

    def __init__(self, iterator: Iterator[Any], thread: LoopThread) -> None:
        self._iterator = iterator
        self._next = thread.callback(functools.partial(next, iterator, self._END))

    def __iter__(self) -> Iterator[Any]:
        return self._iterator

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._next()
        if item is self._END:
            raise StopAsyncIteration
        return item


class PendingResult(Generic[T]):
    """Something that is still to come, such as the acknowledgement of `publish_async`."""

    def __init__(self, future: "asyncio.Future[T]", thread: LoopThread) -> None:
        self._future = future
        self._thread = thread

    def done(self) -> bool:
        """Whether it has come, or failed."""
        return self._future.done()

    def result(self, timeout: "Seconds | None" = None) -> T:
        """Wait for it; raises what went wrong, or `TimeoutError` after `timeout` seconds."""
        return self._thread.run(self._wait(timeout))

    def exception(self, timeout: "Seconds | None" = None) -> BaseException | None:
        """Wait for it; what went wrong, or None. Raises `TimeoutError` after `timeout` seconds."""
        try:
            self.result(timeout)
        except BaseException as error:
            if not self._future.done():
                raise
            return error
        return None

    def add_done_callback(self, function: Callable[["PendingResult[T]"], object]) -> None:
        """Call `function` with this once it has come, in the thread for callbacks."""
        self._thread.run(self._when_done(lambda _: self._thread.call_back(lambda: function(self))))

    async def _when_done(self, function: Callable[[object], object]) -> None:
        self._future.add_done_callback(function)

    async def _wait(self, timeout: "Seconds | None") -> T:
        limit = None if timeout is None else to_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(self._future)
        except builtins.TimeoutError as error:
            if self._future.done():
                raise  # its own
            raise TimeoutError(f"the result did not come within {limit} s") from error

    def __repr__(self) -> str:
        return f"<sync {self._future!r}>"


class ConnectionFacade(Facade):
    """A connection; closing or draining it also ends the thread that served it."""

    __slots__ = ()

    def close(self) -> None:
        """Close the connection; what was published before is sent."""
        try:
            # Another thread may have closed it: then its end is waited for all the same.
            with contextlib.suppress(ConnectionClosedError):
                self._thread.run(self._target.close())
        finally:
            self._thread.stop()

    def drain(self, *arguments: Any, **named: Any) -> None:
        """Close it once everything that has come is handled."""
        try:
            self._thread.run(_call(self._target.drain, list(arguments), named))
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._target.is_closed:
            self.close()


async def _call(method: Callable[..., Any], given: list[Any], named: dict[str, Any]) -> Any:
    result = method(*given, **named)
    if inspect.isawaitable(result) and not isinstance(result, asyncio.Future):
        return await result
    return result


@functools.cache
def needs_facade(kind: type) -> bool:
    """Whether objects of this type have something to await."""
    is_plain = issubclass(kind, msgspec.Struct | Exception | enum.Enum)
    if not kind.__module__.startswith(_PACKAGE) or is_plain:
        return False
    if any(hasattr(kind, name) for name in _ASYNC_METHODS):
        return True
    methods = [getattr(kind, name, None) for name in dir(kind) if not name.startswith("__")]
    if any(asyncio.iscoroutinefunction(m) or inspect.isasyncgenfunction(m) for m in methods):
        return True
    # Not all compiled methods show it; a container of such objects has nothing to await itself.
    return hasattr(kind, "__iter__") and hasattr(kind, "__len__")


@functools.cache
def facade_class(kind: type) -> type[Facade]:
    """The class of the facades of `kind`: of its name, below those of what `kind` stands on."""
    name = kind.__name__
    if kind.__module__ != f"{_PACKAGE}.{CLASSES.get(name)}":
        return Facade
    if name == "Connection":
        return ConnectionFacade
    bases = tuple(facade_class(base) for base in kind.__bases__ if base.__name__ in CLASSES)
    body = {"__slots__": (), "__module__": "slipstream.sync", "__doc__": kind.__doc__}
    return type(name, bases or (Facade,), body)


def connect(
    servers: "str | Iterable[str]" = "nats://127.0.0.1:4222",
    options: "ConnectOptions | None" = None,
    **by_name: "Unpack[ConnectKeywords]",
) -> ConnectionFacade:
    """Connect to one of `servers`, with options as `slipstream.connect` takes them.

    What this gives is a `Connection` without await; leaving its ``with`` closes it. Raises
    `ConnectError` (`AuthorizationError` if it is the credentials) and `ConfigError`.
    """
    thread = LoopThread()
    try:
        open_options = Facade(None, thread)
        given = {name: open_options._unwrap(value, name) for name, value in by_name.items()}
        return ConnectionFacade(thread.run(connect_async(servers, options, **given)), thread)
    except BaseException:
        thread.stop()
        raise
