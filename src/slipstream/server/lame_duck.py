"""Lame duck mode: a server that is about to end sends its clients away bit by bit.

It accepts nobody any more and says so to those who are there (INFO with ``ldm``). After a grace
period it closes their connections one by one, spread over what is left of the duration, so that
thousands of clients do not fall upon the other servers at once
(docs/protocol/client.md#liveness-and-lame-duck). Until its last client has gone it does all that it
did before: what is published meanwhile is stored and acknowledged.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial

from slipstream.model.durations import SECOND
from slipstream.server.options import LimitsOptions
from slipstream.server.runtime import Runtime

PAUSE_SECONDS_MAX = 1.0  # between two clients, when there are few
LOOK_SECONDS = 0.1  # how often it looks whether all have gone by themselves


class LameDuck:
    """One server's way out."""

    def __init__(self, runtime: Runtime, limits: LimitsOptions) -> None:
        self._runtime = runtime
        self._grace = limits.lame_duck_grace_period / SECOND
        self._spread = (limits.lame_duck_duration - limits.lame_duck_grace_period) / SECOND
        self._task: asyncio.Task[None] | None = None

    def start(self, end: Callable[[], None]) -> None:
        """Begin; `end` is called once every client has gone."""
        runtime = self._runtime
        runtime.stop_listening()
        if not runtime.engine.sessions:
            end()
            return
        runtime.turn(runtime.engine.start_lame_duck)
        self._task = asyncio.ensure_future(self._send_away(end))

    async def cancel(self) -> None:
        """Give it up: the server ends at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_away(self, end: Callable[[], None]) -> None:
        runtime = self._runtime
        sessions = runtime.engine.sessions
        for _ in range(round(self._grace / LOOK_SECONDS)):
            if not sessions:
                break
            await asyncio.sleep(LOOK_SECONDS)
        runtime.log.info("Closing existing clients")
        clients = list(sessions.values())
        random.shuffle(clients)
        pause = min(self._spread / max(len(clients), 1), PAUSE_SECONDS_MAX)
        for session in clients:
            if not session.closed:
                runtime.turn(partial(session.close, "Server Shutdown"))
                if sessions:
                    await asyncio.sleep(random.uniform(pause / 2, pause))
        end()
