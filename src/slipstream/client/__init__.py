"""The asyncio client: `connect`, and the names that go with it."""

from slipstream.client.connection import Connection, connect
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
from slipstream.client.identity import Identity
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
