"""The asyncio client: `connect`, and the names that go with it."""

from slipstream.client.connection import Connection, connect
from slipstream.client.errors import (
    AuthorizationError,
    ClientError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    CredentialsError,
    InvalidSubjectError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferFullError,
    PermissionsError,
    ServerError,
    SlowConsumerError,
    StaleConnectionError,
    SubscriptionClosedError,
    TimeoutError,
)
from slipstream.client.message import Message
from slipstream.client.options import ConnectOptions
from slipstream.client.route import Sink
from slipstream.client.server_info import ServerInfo
from slipstream.client.standing import Status
from slipstream.client.statistics import Statistics
from slipstream.client.subscription import Subscription
from slipstream.client.telemetry import Operation, TelemetryOptions
from slipstream.wire.headers import Headers

__all__ = [
    "AuthorizationError",
    "ClientError",
    "ConnectError",
    "ConnectOptions",
    "Connection",
    "ConnectionClosedError",
    "ConnectionLostError",
    "CredentialsError",
    "Headers",
    "InvalidSubjectError",
    "MaxPayloadError",
    "Message",
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
    "TelemetryOptions",
    "TimeoutError",
    "connect",
]
