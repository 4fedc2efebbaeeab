"""Every call that the API has."""

from slipstream.engine.api import account, consumers, messages, streams

OPERATIONS = [
    *account.OPERATIONS,
    *streams.OPERATIONS,
    *messages.OPERATIONS,
    *consumers.OPERATIONS,
]
