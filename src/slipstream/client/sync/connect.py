"""Opening a connection for callers without a loop."""

from collections.abc import Iterable
from typing import Any

from slipstream.client.connection import connect as connect_async
from slipstream.client.sync.facade import ConnectionFacade, Facade
from slipstream.client.sync.loop_thread import LoopThread


def connect(
    servers: "str | Iterable[str]" = "nats://127.0.0.1:4222", **options: Any
) -> ConnectionFacade:
    """Connect to one of `servers`, with the options of `slipstream.connect`.

    What this gives is a `Connection` without await; leaving its ``with`` closes it. Raises
    `ConnectError` (`AuthorizationError` if it is the credentials) and `ConfigError`.
    """
    thread = LoopThread()
    try:
        open_options = Facade(None, thread)
        given = {name: open_options._unwrap(value, name) for name, value in options.items()}
        return ConnectionFacade(thread.run(connect_async(servers, **given)), thread)
    except BaseException:
        thread.stop()
        raise
