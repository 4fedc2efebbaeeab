"""Slipstream without await, for scripts, notebooks and everything that has no event loop.

    import slipstream.sync

    with slipstream.sync.connect("nats://127.0.0.1:4222") as nc:
        js = nc.jetstream()
        js.publish("orders.new", b"...")
        for message in js.stream("ORDERS").scan(): ...

Every name of the asyncio API is there with the same arguments: what is awaited there returns here,
``async for`` is ``for``, ``async with`` is ``with``, and a future has `result(timeout)`. Classes
have their names here too, for annotations: ``def orders(js: slipstream.sync.JetStream)``. What type
checkers read is sync.pyi.
"""

from importlib import import_module

from slipstream.client.sync import (
    CLASSES,
    ConnectionFacade,
    Facade,
    PendingResult,
    connect,
    facade_class,
)

__all__ = ["ConnectionFacade", "Facade", "PendingResult", "connect", *CLASSES]


def __getattr__(name: str) -> type[Facade]:
    if name not in CLASSES:
        raise AttributeError(f"module 'slipstream.sync' has no attribute {name!r}")
    return facade_class(getattr(import_module(f"slipstream.client.{CLASSES[name]}"), name))
