"""What can go wrong between a client and its servers.

    slipstream.Error
    └── ClientError
        ├── ConnectError               no server of the list could be reached
        │   └── AuthorizationError     one was reached and refused who we said we are
        │       ├── AuthenticationExpiredError     the user or account is no longer valid
        │       └── AuthenticationRevokedError     the user's access was taken away
        ├── ConnectionLostError        the connection broke under a call; see `may_have_arrived`
        │   └── StaleConnectionError   the server stopped answering pings
        ├── ConnectionClosedError      the call came after `close` or `drain`
        ├── TimeoutError               (also a builtin TimeoutError) nothing came in time
        ├── NoRespondersError          nobody is subscribed to the subject of a request
        ├── PermissionsError           the server forbids a publish or a subscription
        ├── ServerError                any other -ERR of the server
        │   ├── ConnectionLimitError   it takes no more connections, or the account has too many
        │   └── SubscriptionLimitError this connection has too many subscriptions
        ├── HeadersNotSupportedError   the server takes no headers
        ├── NoReplySubjectError        respond to a message that awaits no answer
        ├── SlowConsumerError          a subscription dropped messages (in events only)
        ├── SubscriptionClosedError    the subscription has ended
        ├── OutboundBufferFullError    more is waiting to be sent than the bound allows
        ├── InvalidSubjectError        (also a ValueError)
        ├── MaxPayloadError            (also a ValueError) larger than the server takes
        └── CredentialsError           (also a ConfigError) a seed, JWT or credentials file is bad

A message says what was asked of whom, what is wrong and what to do.

`authorization_error`, `server_error` and `parse_violation` find the error for the text of a -ERR
(docs/protocol/client.md#errors).
"""

import builtins
import re
from collections.abc import Sequence

from slipstream.errors import ConfigError, Error


class ClientError(Error):
    """Base of the client's errors."""


class ConnectError(ClientError):
    """No server could be reached; `failures` has one (server, error) for each attempt."""

    def __init__(self, message: str, failures: Sequence[tuple[str, Exception]] = ()) -> None:
        super().__init__(message)
        self.failures = list(failures)


class AuthorizationError(ConnectError):
    """The server refused the user, password, token, key or certificate, or they expired."""


class AuthenticationExpiredError(AuthorizationError):
    """The user, or the account it belongs to, was valid only up to now."""


class AuthenticationRevokedError(AuthorizationError):
    """The user's access was taken away."""


class ConnectionLostError(ClientError):
    """The connection broke before the call was answered.

    `may_have_arrived` is False only if it is certain that no byte of it reached the server; True
    says that the server may have acted on it (a publish may have been stored).
    """

    def __init__(self, message: str, *, may_have_arrived: bool = True) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class StaleConnectionError(ConnectionLostError):
    """The server left several pings unanswered."""


class ConnectionClosedError(ClientError):
    """The connection was closed or drained by its owner, or given up for good."""


class TimeoutError(ClientError, builtins.TimeoutError):
    """Nothing came in time.

    `sent` is False if the request never left this process, because there was no connection.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoRespondersError(ClientError):
    """Nobody is subscribed to `subject`."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"request to {subject!r}: nobody is subscribed to it, so no answer can come. "
            "Start a responder, or check the subject's spelling and the account"
        )
        self.subject = subject


class PermissionsError(ClientError):
    """The server forbids what was asked; `operation` is `publish` or `subscribe`."""

    def __init__(self, operation: str, subject: str, queue: str, text: str, server: str) -> None:
        group = f" with queue {queue!r}" if queue else ""
        super().__init__(
            f"{operation} {subject!r}{group}: {server} forbids it ({text}). "
            "Ask for a permission, or connect as another user"
        )
        self.operation = operation
        self.subject = subject
        self.queue = queue


class ServerError(ClientError):
    """An error of the server in its own words (`text`)."""

    def __init__(self, text: str, server: str) -> None:
        super().__init__(f"{server} says: {text}")
        self.text = text


class ConnectionLimitError(ServerError):
    """The server has as many connections as it takes, or as the account may have."""


class SubscriptionLimitError(ServerError):
    """The connection has as many subscriptions as it may have; the last one was not made."""


class HeadersNotSupportedError(ClientError):
    """The server takes no headers (its configuration says `no_header_support`)."""


class NoReplySubjectError(ClientError):
    """The message has no reply subject, so nobody awaits an answer."""


class SlowConsumerError(ClientError):
    """A subscription's messages came faster than they were taken; the newest were dropped."""


class SubscriptionClosedError(ClientError):
    """The subscription has ended: unsubscribed, drained, or its connection is closed."""


class OutboundBufferFullError(ClientError):
    """What waits to be sent has reached its bound; nothing of this call was kept."""


class InvalidSubjectError(ClientError, ValueError):
    """Not a subject that can be published or subscribed to."""


class MaxPayloadError(ClientError, ValueError):
    """A message is larger than the server takes; it was not sent."""


class CredentialsError(ClientError, ConfigError):
    """A seed, a JWT or a credentials file cannot be read or used."""


# Those that refuse who we say we are.
AUTHORIZATION: tuple[tuple[str, type[AuthorizationError]], ...] = (
    ("user authentication expired", AuthenticationExpiredError),
    ("account authentication expired", AuthenticationExpiredError),
    ("user authentication revoked", AuthenticationRevokedError),
    ("authorization violation", AuthorizationError),
    ("authentication timeout", AuthorizationError),
    ("user authentication", AuthorizationError),
    ("account authentication", AuthorizationError),
)
LIMITS: tuple[tuple[str, type[ServerError]], ...] = (
    ("maximum connections exceeded", ConnectionLimitError),
    ("maximum account active connections exceeded", ConnectionLimitError),
    ("maximum subscriptions exceeded", SubscriptionLimitError),
)


def authorization_error(text: str) -> type[AuthorizationError] | None:
    """The error for an -ERR that refuses who we say we are; None for any other."""
    lower = text.lower()
    return next((kind for start, kind in AUTHORIZATION if lower.startswith(start)), None)


def server_error(text: str, server: str) -> ServerError:
    """The error for any other -ERR."""
    lower = text.lower()
    kind = next((kind for start, kind in LIMITS if lower.startswith(start)), ServerError)
    return kind(text, server)


_VIOLATION = re.compile(
    r"permissions violation for (?P<operation>publish(?: with reply of)?|subscription)(?: to)? "
    r'"(?P<subject>(?:[^"\\]|\\.)*)"(?: using queue "(?P<queue>[^"]*)")?',
    re.I,
)


def parse_violation(text: str, server: str) -> PermissionsError | None:
    """The error for a permissions violation; None if `text` is another error."""
    found = _VIOLATION.match(text)
    if found is None:
        return None
    operation = "subscribe" if found["operation"].lower() == "subscription" else "publish"
    subject = re.sub(r"\\(.)", r"\1", found["subject"])
    return PermissionsError(operation, subject, found["queue"] or "", text, server)
