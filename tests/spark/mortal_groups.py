"""A group of three server processes for tests that are no coroutines.

Its leaders are killed or step down while something else runs.
"""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.server.replica.serving import Served, ServedGroup

T = TypeVar("T")
HOW = ("killed", "asked to step down")
"""How a leader may come to lead no more."""


class MortalGroup:
    """Three servers on ports of their own, watched by a loop in a thread."""

    urls: str
    """Those of all servers, with commas between, as the option `servers` has them."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._group = ServedGroup(directory)
        self._dead: list[Served] = []
        try:
            self._call(self._group.__aenter__())
        except BaseException:
            self.end()
            raise
        self.urls = ",".join(self._group.urls)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def change_leader(self, how: str) -> None:
        """Have another server lead; returns once it does. One that is killed is back with the next
        change."""
        self._call(self._change_leader(how))

    async def _change_leader(self, how: str) -> None:
        group = self._group
        leader = await group.leader()
        if how == "killed":
            await asyncio.gather(*(server.start() for server in self._dead))
            self._dead = [leader]
            await leader.end()
            await group.leader()
            return
        async with group.client() as nc:
            js = nc.jetstream()
            names = [name async for name in js.stream_names()]
            await js.api.request(f"STREAM.LEADER.STEPDOWN.{names[0]}")
        await group.leader(after=leader)

    def end(self) -> None:
        """End all servers without a word."""
        self._call(self._group.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
