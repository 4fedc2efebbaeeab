"""What a stream is told to be: `StreamConfig` and its parts (spec streams.md section 1).

Sizes are in bytes, times in seconds, -1 is no bound. What is left at its default is decided by the
server. Names are those of the JSON, so that they can be looked up in NATS's documentation.
"""

from datetime import datetime
from typing import ClassVar, Literal, TypeAlias

from slipstream.client.jetstream.document import Document, Seconds

Retention: TypeAlias = Literal["limits", "interest", "workqueue"]
Storage: TypeAlias = Literal["file", "memory"]
Discard: TypeAlias = Literal["old", "new"]
Compression: TypeAlias = Literal["none", "s2"]
PersistMode: TypeAlias = Literal["default", "async"]


class Placement(Document, kw_only=True):
    """Where in a cluster a stream lives; `preferred` is only for step-down requests."""

    cluster: str = ""
    tags: list[str] = []
    preferred: str = ""


class SubjectTransform(Document, kw_only=True):
    """Stores messages that match `src` under the subject `dest` (streams.md section 9)."""

    src: str = ""
    dest: str = ""


class Republish(Document, kw_only=True):
    """Publishes each stored message again, under `dest` (streams.md section 10)."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False


class ConsumerLimits(Document, kw_only=True):
    """Defaults and bounds for the stream's consumers."""

    inactive_threshold: Seconds = 0.0
    max_ack_pending: int = 0


class ExternalStream(Document, kw_only=True):
    """How to reach a stream of another account or domain: its API prefix and delivery prefix."""

    api: str = ""
    deliver: str = ""


class SourceConsumer(Document, kw_only=True):
    """A durable consumer made beforehand for a mirror or source to use (server 2.14)."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Document, kw_only=True):
    """A stream that messages are copied from, as a mirror or a source (streams.md section 8)."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None
    filter_subject: str = ""
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

    name: str = ""
    description: str = ""
    subjects: list[str] = []
    retention: Retention = "limits"
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: Seconds = 0.0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: Discard = "old"
    storage: Storage = "file"
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: Seconds = 0.0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: Compression = "none"
    first_seq: int = 0
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits | None = None
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Seconds = 0.0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode = "default"
    allow_batched: bool = False
    metadata: dict[str, str] = {}


def owners_metadata(config: StreamConfig) -> dict[str, str]:
    """The metadata without the server's own notes."""
    found = config.metadata.items()
    return {name: value for name, value in found if not name.startswith(SERVERS_METADATA)}
