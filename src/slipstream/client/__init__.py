"""The asyncio client: `connect`, and the names that go with it."""

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
