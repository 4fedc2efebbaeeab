"""The event loop of a server."""

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
