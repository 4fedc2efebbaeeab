"""Slipstream without await, for scripts, notebooks and everything that has no event loop.

    import slipstream.sync

    with slipstream.sync.connect("nats://127.0.0.1:4222") as nc:
        js = nc.jetstream()
        js.publish("orders.new", b"...")
        for message in js.stream("ORDERS").scan(): ...

Every name of the asyncio API is there with the same arguments: what is awaited there returns here,
``async for`` is ``for``, ``async with`` is ``with``, and a future has `result(timeout)`.
"""

from slipstream.client.sync import ConnectionFacade, Facade, PendingResult, connect

__all__ = ["ConnectionFacade", "Facade", "PendingResult", "connect"]
