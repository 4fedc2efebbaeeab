r"""The asyncio client: `connect`, and the names that go with it.

Imports point down; only factory methods (`Connection.jetstream`, `JetStream.key_value`,
`Stream.scan`...) name the types of a folder above.

    sync                                    the same API without await
    kv    object_store    arrow             buckets, objects, record batches
      \        |         /
           jetstream            services    streams and consumers; named endpoints
                |              /
            connection                      what programs hold
                |
    reconnect, handshake, websocket         from a broken socket to the next one
                |
    requests, subscriptions, link           answers, sinks by subscription id, one socket
                |
    write_buffer, message, payload          frames to be sent, messages, bytes of values
                |
    options, telemetry, events
                |
    auth, servers, codecs, errors

A call becomes a frame in the `write_buffer`. A frame that comes goes from the `link` to the sink of
its subscription, inside the read. When the socket breaks, `reconnect` opens another one.
"""

from slipstream.client.auth import Identity
from slipstream.client.connection import Connection, Status, connect
from slipstream.client.errors import (
    AuthenticationExpiredError,
    AuthenticationRevokedError,
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLimitError,
    ConnectionLostError,
    CredentialsError,
    HeadersNotSupportedError,
    InvalidSubjectError,
    MaxPayloadError,
    NoReplySubjectError,
    NoRespondersError,
    OutboundBufferFullError,
    PermissionsError,
    ServerError,
    SlowConsumerError,
    StaleConnectionError,
    SubscriptionClosedError,
    SubscriptionLimitError,
    TimeoutError,
)
from slipstream.client.message import Message
from slipstream.client.options import ConnectOptions
from slipstream.client.servers import ServerInfo
from slipstream.client.subscriptions import Sink, Subscription
from slipstream.client.telemetry import Operation, Statistics, TelemetryOptions
from slipstream.wire.headers import Headers

__all__ = [
    "AuthenticationExpiredError",
    "AuthenticationRevokedError",
    "AuthorizationError",
    "ClientError",
    "ConnectError",
    "ConnectOptions",
    "Connection",
    "ConnectionClosedError",
    "ConnectionLimitError",
    "ConnectionLostError",
    "CredentialsError",
    "Headers",
    "HeadersNotSupportedError",
    "Identity",
    "InvalidSubjectError",
    "MaxPayloadError",
    "Message",
    "NoReplySubjectError",
    "NoRespondersError",
    "Operation",
    "OutboundBufferFullError",
    "PermissionsError",
    "ServerError",
    "ServerInfo",
    "Sink",
    "SlowConsumerError",
    "StaleConnectionError",
    "Statistics",
    "Status",
    "Subscription",
    "SubscriptionClosedError",
    "SubscriptionLimitError",
    "TelemetryOptions",
    "TimeoutError",
    "connect",
]
