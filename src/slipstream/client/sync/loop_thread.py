"""A thread that runs an event loop for callers who have none."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from slipstream.client.errors import ClientError, ConnectionClosedError

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
        self._tellers = ThreadPoolExecutor(1, thread_name_prefix="slipstream: results")
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

        Whoever does not await it goes on at once; the calls come one after the other all the same.
        """
        threads = ThreadPoolExecutor(1, thread_name_prefix="slipstream: callback")
        self._callbacks.add(threads)

        def called(*arguments: Any, **named: Any) -> "asyncio.Future[Any]":
            return self._loop.run_in_executor(threads, lambda: function(*arguments, **named))

        return called

    def tell(self, function: Callable[[], Any]) -> None:
        """Call `function` in the thread that tells of results; what it raises is logged."""
        self._tellers.submit(_logged, function)

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
            for threads in (*self._callbacks, self._tellers):
                threads.shutdown(wait=False)


def _closed() -> ConnectionClosedError:
    return ConnectionClosedError("the connection of this object is closed: open another one")


def _logged(function: Callable[[], Any]) -> None:
    try:
        function()
    except Exception:
        logger.exception("a function that was told of a result raised")


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
