"""Which error a server's -ERR is, by how its text begins (spec protocol.md section 13)."""

from slipstream.client.errors import (
    AuthenticationExpiredError,
    AuthenticationRevokedError,
    AuthorizationError,
    ConnectionLimitError,
    ServerError,
    SubscriptionLimitError,
)

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
