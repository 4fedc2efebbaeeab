"""What is raised where a document is not JetStream's.

The whole tree of JetStream's errors is in `slipstream.client.jetstream.errors`.
"""

from slipstream.errors import Error


class JetStreamError(Error):
    """Base of the errors of JetStream."""


class InvalidAnswerError(JetStreamError):
    """An answer that is not JetStream's: something else listens on the subject."""
