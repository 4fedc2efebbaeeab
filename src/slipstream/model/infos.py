"""What a server reports of streams, consumers and the account
(docs/protocol/api.md#pages-and-infos).

Every field that nats-server 2.15 sends has a name; what a newer one adds is in `extra`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from msgspec import field

from slipstream.model.configurations import (
    ConsumerConfig,
    ExternalStream,
    Placement,
    StreamConfig,
    SubjectTransform,
)
from slipstream.model.documents import Document, Seconds


class LostData(Document, kw_only=True):
    """Messages that the server could not recover."""

    msgs: list[int] = []
    bytes: int = 0


class StreamState(Document, kw_only=True):
    """What a stream holds. `num_deleted` counts gaps between the first and last message."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: datetime | None = None
    last_seq: int = 0
    last_ts: datetime | None = None
    num_subjects: int = 0
    subjects: dict[str, int] = {}
    num_deleted: int = 0
    deleted: list[int] = []
    lost: LostData | None = None
    consumer_count: int = 0


class PeerInfo(Document, kw_only=True):
    """A replica's state; `active` is the time since the leader last heard from it."""

    name: str = ""
    current: bool = False
    offline: bool = False
    active: Seconds = 0.0
    lag: int = 0
    peer: str = ""
    pending: int = 0


class DesiredOrigin(Document, kw_only=True):
    """What a stream's placement was before a change that is under way (server 2.15)."""

    replicas: int = 0
    placement: Placement | None = None
    retention: str = ""


class DesiredStatus(Document, kw_only=True):
    """How far a change of placement has come (server 2.15)."""

    description: str = ""
    type: str = ""
    err: str = ""


class DesiredCluster(Document, kw_only=True):
    """A move or change of replicas that is under way (server 2.15)."""

    name: str = ""
    replicas: int = 0
    origin: DesiredOrigin | None = None
    status: DesiredStatus | None = None


class ClusterInfo(Document, kw_only=True):
    """Who leads, and who follows."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: datetime | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[PeerInfo] = []
    desired: DesiredCluster | None = None


class StreamSourceInfo(Document, kw_only=True):
    """How far a mirror or source is; `active` is the time since the last contact.

    It is None if there was none.
    """

    name: str = ""
    external: ExternalStream | None = None
    lag: int = 0
    seq: int = 0
    active: Seconds | None = None
    error: dict[str, Any] | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> Self:
        """Read it; the server writes -1 for never."""
        if raw.get("active") == -1:
            raw = {**raw, "active": None}
        return super().from_wire(raw)


class StreamAlternate(Document, kw_only=True):
    """The stream itself or a mirror of it; the nearest comes first."""

    name: str = ""
    domain: str = ""
    cluster: str = ""


class StreamInfo(Document, kw_only=True):
    """A stream's configuration and state."""

    config: StreamConfig
    created: datetime | None = None
    state: StreamState
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: list[StreamSourceInfo] = []
    alternates: list[StreamAlternate] = []
    ts: datetime | None = None
    total: int = 0
    offset: int = 0
    limit: int = 0
    did_create: bool = False

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.config.name


class SequenceInfo(Document, kw_only=True):
    """A position: the number of the delivery, and the stream's sequence of what was delivered."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: datetime | None = None


class PriorityGroupState(Document, kw_only=True):
    """Which client a priority group is pinned to, and since when.

    `pinned_ts` is None when it is pinned to none.
    """

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: datetime | None = None


class ConsumerInfo(Document, kw_only=True):
    """A consumer's configuration and state (docs/protocol/consumers.md#info)."""

    stream_name: str = ""
    name: str = ""
    created: datetime | None = None
    config: ConsumerConfig
    delivered: SequenceInfo = field(default_factory=SequenceInfo)
    ack_floor: SequenceInfo = field(default_factory=SequenceInfo)
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Seconds = 0.0
    ts: datetime | None = None
    priority_groups: list[PriorityGroupState] = []
    reset_seq: int = 0


class ConsumerPauseInfo(Document, kw_only=True):
    """The answer to pause and resume."""

    paused: bool = False
    pause_until: datetime | None = None
    pause_remaining: Seconds = 0.0


class AccountLimits(Document, kw_only=True):
    """What an account may use; -1 is no bound."""

    max_memory: int = 0
    max_storage: int = 0
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0
    memory_max_stream_bytes: int = 0
    storage_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class ApiStats(Document, kw_only=True):
    """The server's API level, and how often the account called its API."""

    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0


class AccountTier(Document, kw_only=True):
    """Use and limits; of the whole account, or of one tier of replicas ("R1", "R3")."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = field(default_factory=AccountLimits)


class AccountInfo(AccountTier, kw_only=True):
    """What JetStream reports about the account. With `tiers`, the limits are in those."""

    domain: str = ""
    api: ApiStats = field(default_factory=ApiStats)
    tiers: dict[str, AccountTier] = {}
