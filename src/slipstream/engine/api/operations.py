"""Every call that the API has, and what answers them for an account."""

from typing import TYPE_CHECKING

from slipstream.engine.api import account, backups, cluster, consumers, messages, streams
from slipstream.engine.api.dispatch import ApiService
from slipstream.engine.api.explain import ExplainService

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream

OPERATIONS = [
    *account.OPERATIONS,
    *streams.OPERATIONS,
    *backups.OPERATIONS,
    *messages.OPERATIONS,
    *consumers.OPERATIONS,
    *cluster.OPERATIONS,
]


def serve(js: "JetStream") -> ApiService:
    """Answer the API for one account."""
    ExplainService(js)
    return ApiService(js, OPERATIONS)
