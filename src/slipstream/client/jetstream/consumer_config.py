"""What a consumer is told to be: `ConsumerConfig` (spec consumers.md section 2).

Sizes are in bytes, times in seconds, -1 is no bound. A consumer with a `deliver_subject` is a push
consumer, any other a pull consumer. `durable_name` makes it stay until it is deleted; with `name`
alone it goes away when nobody uses it for `inactive_threshold`.
"""

from datetime import datetime
from typing import ClassVar, Literal, TypeAlias

from slipstream.client.jetstream.document import Document, Seconds

DeliverPolicy: TypeAlias = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy: TypeAlias = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy: TypeAlias = Literal["instant", "original"]
PriorityPolicy: TypeAlias = Literal["none", "overflow", "pinned_client", "prioritized"]


class ConsumerConfig(Document, kw_only=True):
    """A consumer's configuration, every field of it.

    `ack_policy` is "explicit" unless you say otherwise, as in all of NATS's newer clients.

    >>> ConsumerConfig(durable_name="billing", ack_wait=10).to_wire()["ack_wait"]
    10000000000
    """

    _always: ClassVar[frozenset[str]] = frozenset({"deliver_policy", "ack_policy", "replay_policy"})

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None
    ack_policy: AckPolicy = "explicit"
    ack_wait: Seconds = 0.0
    max_deliver: int = -1
    backoff: list[Seconds] = []
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: ReplayPolicy = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: Seconds = 0.0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Seconds = 0.0
    inactive_threshold: Seconds = 0.0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: datetime | None = None
    priority_policy: PriorityPolicy = "none"
    priority_groups: list[str] = []
    priority_timeout: Seconds = 0.0

    @property
    def filters(self) -> list[str]:
        """The subject filters, in whichever field they are; empty for every subject."""
        return self.filter_subjects or ([self.filter_subject] if self.filter_subject else [])


class OrderedConsumerConfig(Document, kw_only=True):
    """What an ordered consumer reads; the rest of its configuration is fixed (section 8).

    `max_reset_attempts` bounds the attempts at making the consumer anew after one loss (-1: no
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
