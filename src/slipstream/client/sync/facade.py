"""The asyncio client without await: every call is handed to a loop in a thread, and waited for.

Nothing of the client is repeated here. A `Facade` stands before an object of it: what the object
gives is given, what it would have awaited is awaited in the loop's thread, and whatever comes back
that could be awaited in turn gets a facade too:

    a coroutine               its result
    an async iterator         an iterator
    an async context manager  a context manager
    a future                  an object with `result(timeout)` and `done()`
    plain data                itself

Functions that are passed in (handlers, progress, error callbacks) are called in threads of their
own, and may use the facade; so are iterators taken from. Only where the client needs the answer
before it goes on (`ANSWERED_AT_ONCE`) a function is called in the loop's thread, and may not.
"""

import asyncio
import builtins
import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from types import AsyncGeneratorType, TracebackType
from typing import Any, Self

import msgspec

from slipstream.client.errors import ConnectionClosedError, TimeoutError
from slipstream.client.sync.loop_thread import LoopThread

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
        if isinstance(value, _FUNCTIONS) and name not in ANSWERED_AT_ONCE:
            if asyncio.iscoroutinefunction(value):
                return value  # it is for the loop as it is
            return self._thread.callback(lambda *a, **k: value(*map(self._wrap, a), **k))
        return value

    def _wrap(self, value: Any) -> Any:
        """What the caller gets for something of the client."""
        if isinstance(value, asyncio.Future):
            return PendingResult(value, self._thread)
        kind: type = type(value)
        if isinstance(value, AsyncGeneratorType) or needs_facade(kind):
            return self if value is self._target else Facade(value, self._thread)
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


class PendingResult:
    """Something that is still to come, such as the acknowledgement of `publish_async`."""

    def __init__(self, future: "asyncio.Future[Any]", thread: LoopThread) -> None:
        self._future = future
        self._thread = thread

    def done(self) -> bool:
        """Whether it has come, or failed."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it; raises what went wrong, or `TimeoutError` after `timeout` seconds."""
        return self._thread.run(self._wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it; what went wrong, or None. Raises `TimeoutError` after `timeout` seconds."""
        try:
            self.result(timeout)
        except BaseException as error:
            if not self._future.done():
                raise
            return error
        return None

    def add_done_callback(self, function: Callable[["PendingResult"], Any]) -> None:
        """Call `function` with this once it has come, in the thread that tells of results."""
        self._thread.run(self._when_done(lambda _: self._thread.tell(lambda: function(self))))

    async def _when_done(self, function: Callable[[Any], Any]) -> None:
        self._future.add_done_callback(function)

    async def _wait(self, timeout: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._future)
        except builtins.TimeoutError as error:
            if self._future.done():
                raise  # its own
            raise TimeoutError(f"the result did not come within {timeout} s") from error

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
    if not kind.__module__.startswith(_PACKAGE) or issubclass(kind, msgspec.Struct | Exception):
        return False
    if any(hasattr(kind, name) for name in _ASYNC_METHODS):
        return True
    methods = [getattr(kind, name, None) for name in dir(kind) if not name.startswith("__")]
    if any(asyncio.iscoroutinefunction(m) or inspect.isasyncgenfunction(m) for m in methods):
        return True
    # Compiled methods do not all tell; a container of such objects has nothing to await itself.
    return hasattr(kind, "__iter__") and hasattr(kind, "__len__")
