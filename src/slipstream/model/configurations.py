"""The configurations of streams and consumers
(docs/protocol/streams.md#configuration, docs/protocol/consumers.md#configuration).

Sizes are in bytes, -1 is no bound, and the server decides what is left at its default. Names are
those of the JSON, so that they can be looked up in NATS's documentation. A consumer with a
`deliver_subject` is a push consumer, any other a pull consumer. `durable_name` makes it stay until
it is deleted; with `name` alone it is removed when nobody uses it for `inactive_threshold`.
"""

from datetime import datetime
from typing import ClassVar

from slipstream.model.documents import Document, Int32, Seconds, Shown, Unsigned
from slipstream.model.policies import (
    AckPolicy,
    Compression,
    DeliverPolicy,
    Discard,
    PersistMode,
    PriorityPolicy,
    ReplayPolicy,
    Retention,
    Storage,
)


class Placement(Document, kw_only=True):
    """Where in a cluster a stream lives; `preferred` is only for step-down requests."""

    cluster: str = ""
    tags: list[str] = []  # that its servers have
    preferred: str = ""


class SubjectTransform(Document, kw_only=True):
    """Stores messages that match `src` under the subject `dest`
    (docs/protocol/streams.md#subject-transforms)."""

    src: Shown[str] = ""
    dest: Shown[str] = ""


class Republish(Document, kw_only=True):
    """Publishes each stored message again, under `dest` (docs/protocol/streams.md#republishing)."""

    src: Shown[str] = ""
    dest: Shown[str] = ""
    headers_only: bool = False


class ConsumerLimits(Document, kw_only=True):
    """Defaults and bounds for the stream's consumers."""

    inactive_threshold: Seconds = 0.0
    max_ack_pending: int = 0


class ExternalStream(Document, kw_only=True):
    """How to reach a stream of another account or domain: its API prefix and delivery prefix."""

    api: Shown[str] = ""  # stands for `$JS.API`
    deliver: Shown[str] = ""  # what the subjects that it delivers to begin with


class SourceConsumer(Document, kw_only=True):
    """A durable consumer made beforehand for a mirror or source to use (server 2.14)."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Document, kw_only=True):
    """A stream that messages are copied from, as a mirror or a source
    (docs/protocol/streams.md#mirrors-and-sources)."""

    name: Shown[str] = ""
    opt_start_seq: Unsigned = 0  # where copying begins, or by `opt_start_time`
    opt_start_time: datetime | None = None
    filter_subject: str = ""  # messages of other subjects are not copied
    subject_transforms: list[SubjectTransform] = []
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None

    @classmethod
    def of_domain(cls, name: str, domain: str) -> "StreamSource":
        """The stream `name` of another JetStream domain."""
        return cls(name=name, external=ExternalStream(api=f"$JS.{domain}.API"))


SERVERS_METADATA = "_nats."
"""What a server notes in a stream's metadata begins like this."""


class StreamConfig(Document, kw_only=True):
    """A stream's configuration, every field of it.

    >>> StreamConfig(name="ORDERS", subjects=["orders.>"], max_age=86_400).to_wire()["max_age"]
    86400000000000
    """

    _always: ClassVar[frozenset[str]] = frozenset({"name", "retention", "storage", "discard"})

    name: Shown[str] = ""
    description: str = ""
    subjects: list[str] = []  # none: the stream's name, unless it copies others
    retention: Shown[Retention] = "limits"
    max_consumers: Shown[int] = -1
    max_msgs: Shown[int] = -1
    max_bytes: Shown[int] = -1
    max_age: Shown[Seconds] = 0.0  # of a message; 0 is no bound
    max_msgs_per_subject: Shown[int] = -1
    max_msg_size: Shown[Int32] = -1  # with its headers
    discard: Shown[Discard] = "old"  # at a bound: old messages go, or new ones are refused
    storage: Shown[Storage] = "file"
    num_replicas: Shown[int] = 1
    no_ack: bool = False  # publishes are not acknowledged
    duplicate_window: Seconds = 0.0  # how long a `Nats-Msg-Id` is known
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: Shown[Compression] = "none"
    first_seq: Unsigned = 0  # of the first message; 0 is 1
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: Shown[bool] = False  # direct gets are answered
    mirror_direct: Shown[bool] = False  # by a mirror, too
    discard_new_per_subject: bool = False  # also at `max_msgs_per_subject`
    sealed: Shown[bool] = False  # it never changes again
    deny_delete: Shown[bool] = False  # of single messages
    deny_purge: Shown[bool] = False
    allow_rollup_hdrs: Shown[bool] = False  # a message may take the place of those before it
    consumer_limits: Shown[ConsumerLimits | None] = None
    allow_msg_ttl: Shown[bool] = False  # a message may say how long it stays
    subject_delete_marker_ttl: Seconds = 0.0  # of the mark that a subject's last message leaves
    allow_msg_counter: bool = False  # messages add to the count of their subject
    allow_atomic: bool = False  # batches of which all is stored, or nothing
    allow_msg_schedules: bool = False  # messages that are published later, or again and again
    persist_mode: PersistMode = "default"  # "async": acknowledged before it is on disk
    allow_batched: bool = False  # batches with few acknowledgements
    metadata: Shown[dict[str, str]] = {}


def owners_metadata(config: StreamConfig) -> dict[str, str]:
    """The metadata without the server's own notes."""
    found = config.metadata.items()
    return {name: value for name, value in found if not name.startswith(SERVERS_METADATA)}


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
    deliver_policy: Shown[DeliverPolicy] = "all"
    opt_start_seq: Unsigned = 0
    opt_start_time: datetime | None = None
    ack_policy: Shown[AckPolicy] = "explicit"
    ack_wait: Seconds = 0.0  # until a message is delivered again
    max_deliver: Shown[int] = -1  # of each message
    backoff: list[Seconds] = []  # `ack_wait` of each delivery of a message
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: Shown[ReplayPolicy] = "instant"
    rate_limit_bps: Unsigned = 0  # bits per second
    sample_freq: str = ""  # acknowledgements that are reported, in percent
    max_waiting: int = 0  # pull requests
    max_ack_pending: int = 0  # messages that wait for an acknowledgement
    flow_control: bool = False
    headers_only: bool = False  # messages come without bodies
    max_batch: int = 0  # of a pull request, as the two below
    max_expires: Seconds = 0.0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""  # of subscriptions, of which one gets each message
    idle_heartbeat: Seconds = 0.0  # after so long without a message
    inactive_threshold: Seconds = 0.0
    num_replicas: Shown[int] = 0  # 0 is as many as the stream has
    mem_storage: bool = False  # its state is not on disk
    direct: bool = False  # of a mirror or source, as the one below
    sourcing: bool = False
    metadata: Shown[dict[str, str]] = {}
    pause_until: datetime | None = None  # nothing is delivered before
    priority_policy: PriorityPolicy = "none"
    priority_groups: list[str] = []
    priority_timeout: Seconds = 0.0  # until a pinned client that does not ask loses the pin
    dead_letter: str = ""  # a subject for what is given up; Slipstream's own, see docs

    @property
    def filters(self) -> list[str]:
        """The subject filters, in whichever field they are; empty for every subject."""
        return self.filter_subjects or ([self.filter_subject] if self.filter_subject else [])
