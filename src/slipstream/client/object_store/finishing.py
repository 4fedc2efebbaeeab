"""Steps that belong together: whoever cancels between them would leave half of a change."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(steps: Coroutine[Any, Any, T]) -> T:
    """What `steps` give. A cancellation waits until they are done, however they end."""
    task = asyncio.ensure_future(steps)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # was looked at: the cancellation is what is told
        raise


async def settled(futures: "Iterable[asyncio.Future[Any]]", timeout: float) -> None:
    """Wait until all have come, or failed; after `timeout` seconds nobody awaits them any more."""
    waiting = list(futures)
    if waiting:
        await asyncio.wait(waiting, timeout=timeout)
    for future in waiting:
        if not future.done():
            future.cancel()
        elif not future.cancelled():
            future.exception()  # was looked at
