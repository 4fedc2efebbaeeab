"""Waiting for what happens in a group of servers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

LIMIT = 60.0  # s; it only ends what hangs
T = TypeVar("T")


async def until(found: Callable[[], T | None], what: str) -> T:
    """What `found` gives, once that is something."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LIMIT
    while not (result := found()):
        if loop.time() > end:
            raise AssertionError(f"not within {LIMIT:g} s: {what}")
        await asyncio.sleep(0.01)
    return result
