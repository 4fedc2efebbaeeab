"""Slipstream: JetStream for Python. Server, client, CLI and Spark pipeline in one package.

Names are imported on first use, so that `import slipstream` costs next to nothing.
"""

from slipstream.errors import Error

TYPE_CHECKING = False  # type checkers take it for True; `typing` would cost more than all else here
if TYPE_CHECKING:
    from slipstream.client import Connection as Connection
    from slipstream.client import Headers as Headers
    from slipstream.client import Message as Message
    from slipstream.client import NoRespondersError as NoRespondersError
    from slipstream.client import Subscription as Subscription
    from slipstream.client import TimeoutError as TimeoutError
    from slipstream.client import connect as connect
    from slipstream.client.jetstream import ConsumerConfig as ConsumerConfig
    from slipstream.client.jetstream import JetStream as JetStream
    from slipstream.client.jetstream import JetStreamMessage as JetStreamMessage
    from slipstream.client.jetstream import StreamConfig as StreamConfig
    from slipstream.client.kv import KeyValue as KeyValue
    from slipstream.client.kv import KeyValueConfig as KeyValueConfig
    from slipstream.client.kv import KeyValueEntry as KeyValueEntry
    from slipstream.client.kv.errors import KeyNotFoundError as KeyNotFoundError
    from slipstream.client.object_store import ObjectInfo as ObjectInfo
    from slipstream.client.object_store import ObjectStore as ObjectStore
    from slipstream.client.object_store import ObjectStoreConfig as ObjectStoreConfig
    from slipstream.server import Group as Group
    from slipstream.server import Server as Server

__version__ = "0.1.0"
__all__ = [
    "Connection",
    "ConsumerConfig",
    "Error",
    "Group",
    "Headers",
    "JetStream",
    "JetStreamMessage",
    "KeyNotFoundError",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueEntry",
    "Message",
    "NoRespondersError",
    "ObjectInfo",
    "ObjectStore",
    "ObjectStoreConfig",
    "Server",
    "StreamConfig",
    "Subscription",
    "TimeoutError",
    "__version__",
    "connect",
]

_HOME_OF = {
    "Connection": "slipstream.client",
    "ConsumerConfig": "slipstream.client.jetstream",
    "Group": "slipstream.server",
    "Headers": "slipstream.client",
    "JetStream": "slipstream.client.jetstream",
    "JetStreamMessage": "slipstream.client.jetstream",
    "KeyNotFoundError": "slipstream.client.kv.errors",
    "KeyValue": "slipstream.client.kv",
    "KeyValueConfig": "slipstream.client.kv",
    "KeyValueEntry": "slipstream.client.kv",
    "Message": "slipstream.client",
    "NoRespondersError": "slipstream.client",
    "ObjectInfo": "slipstream.client.object_store",
    "ObjectStore": "slipstream.client.object_store",
    "ObjectStoreConfig": "slipstream.client.object_store",
    "Server": "slipstream.server",
    "StreamConfig": "slipstream.client.jetstream",
    "Subscription": "slipstream.client",
    "TimeoutError": "slipstream.client",
    "connect": "slipstream.client",
}


if not TYPE_CHECKING:  # with it, a name that is not there would be of any type

    def __getattr__(name: str) -> object:
        from importlib import import_module

        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
        return getattr(import_module(home), name)
