"""A server in a thread, with an event loop of its own: for who has no loop, or not the time."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Protocol

from slipstream.errors import Error
from slipstream.server.event_loop import new_loop

START_SECONDS_MAX = 60


class LoopServer(Protocol):
    """A server that runs on the running loop."""

    async def start_here(self) -> None:
        """Start; returns once clients can connect."""

    async def stop_here(self) -> None:
        """Stop; returns once everything is on disk."""


class ServerThread:
    """Starts `server`, and stops it when it is asked to; for one start and one stop."""

    def __init__(self, server: LoopServer, name: str) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None  # from the start on
        self._stop = asyncio.Event()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to start; `wait_until_started` says how that goes."""
        self._loop = new_loop()
        self._thread.start()

    def wait_until_started(self) -> None:
        """Returns once clients can connect. Raises what the start has raised, and `Error` if it
        takes too long."""
        if not wait([self._started], START_SECONDS_MAX).done:
            raise Error(f"the server did not start within {START_SECONDS_MAX} s")
        if self._started.exception() is not None:
            self._thread.join()
        self._started.result()

    def ask_to_stop(self) -> None:
        """Have the server stop, which takes it a while."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                self._loop.call_soon_threadsafe(self._stop.set)

    def join(self) -> None:
        """Wait until the server has stopped; at once if it was not started."""
        if self._thread.ident is not None:
            self._thread.join()

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` on the server's loop, and wait until it is done. Raises what it raises."""
        assert self._loop is not None
        done: Future[None] = Future()

        def act() -> None:
            try:
                action()
            except BaseException as error:  # whatever it is, the caller gets it
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(act)
        done.result()

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.run_until_complete(self._serve())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _serve(self) -> None:
        try:
            await self._server.start_here()
        except BaseException as error:  # whatever it is, `wait_until_started` raises it
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._stop.wait()
        await self._server.stop_here()
