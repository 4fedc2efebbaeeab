"""What an ordered consumer reads, and from where."""

from datetime import datetime

from slipstream.model.documents import Document, Seconds
from slipstream.model.policies import DeliverPolicy, ReplayPolicy


class OrderedConsumerConfig(Document, kw_only=True):
    """What an ordered consumer reads; the rest of its configuration is fixed
    (docs/protocol/consumers.md#ordered-consumers).

    `max_reset_attempts` bounds the attempts at recreating the consumer after one loss (-1: no
    bound). `inactive_threshold` is when the server may forget it. `push` chooses a push consumer
    with flow control in place of a pull consumer.
    """

    filter_subjects: list[str] = []
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None
    replay_policy: ReplayPolicy = "instant"
    headers_only: bool = False
    inactive_threshold: Seconds = 300.0
    max_reset_attempts: int = -1
    metadata: dict[str, str] = {}
    name_prefix: str = ""
    push: bool = False
    idle_heartbeat: Seconds = 5.0
