"""Configurations and infos of streams, consumers and the account, as typed objects.

A `Document` names every field of its page in the specification. Three things differ between the
object and its JSON:

* Times that JSON counts in nanoseconds are seconds (`Seconds`): floats when they come from a
  server, floats or `datetime.timedelta` when they come from you.
* Points in time are `datetime` in UTC; what a server sends is a `Timestamp`, which also keeps
  the nanoseconds. Go's zero time (year 1) is None.
* Fields that this version does not know are kept in `extra`, and are sent back with an update, so
  that an older client does not reset what a newer one has set.

A field at its default is left out of the JSON, which is how Go clients say the same thing.

In configurations (docs/protocol/streams.md#configuration,
docs/protocol/consumers.md#configuration), sizes are in bytes, -1 is no bound, and the server
decides what is left at its default. Names are those of the JSON, so that they can be looked up in
NATS's documentation. A consumer with a `deliver_subject` is a push consumer, any other a pull
consumer. `durable_name` makes it stay until it is deleted; with `name` alone it is removed when
nobody uses it for `inactive_threshold`. In infos (docs/protocol/api.md#pages-and-infos), every
field that nats-server 2.15 sends has a name; what a newer one adds is in `extra`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import field

from slipstream.client.jetstream.errors import InvalidAnswerError
from slipstream.model.durations import SECOND, to_nanoseconds
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
from slipstream.model.times import Timestamp, datetime_text

_NANOSECONDS = "nanoseconds"
Seconds: TypeAlias = Annotated[float | timedelta, _NANOSECONDS]
"""A length of time: seconds as a number, or a `datetime.timedelta`."""


class _NewerWord(str):
    """A word that a server said where this version knows others; it is sent back as it came."""

    __slots__ = ()


def _read_word(words: tuple[str, ...], value: Any) -> Any:
    return value if value in words or not isinstance(value, str) else _NewerWord(value)


def _written_word(words: tuple[str, ...], name: str, value: Any) -> str:
    if value not in words and not isinstance(value, _NewerWord):
        raise ValueError(f"{name} is one of {', '.join(words)}, not {value!r}")
    return str(value)


class Document(msgspec.Struct, kw_only=True, repr_omit_defaults=True):
    """A JSON object of the API; `extra` keeps the fields that have no name here."""

    _always: ClassVar[frozenset[str]] = frozenset()  # sent even at their default

    extra: dict[str, Any] = {}

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> Self:
        """Read a decoded JSON object; what is null or absent gets its default.

        Raises `InvalidAnswerError` if it is not one, or has fields of another kind.
        """
        try:
            return cls._read(raw)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidAnswerError(
                f"the server's {cls.__name__} is not of the shape that JetStream's has: {error}"
            ) from error

    @classmethod
    def _read(cls, raw: Mapping[str, Any]) -> Self:
        readers = _codecs(cls)
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in raw.items():
            codec = readers.get(name)
            if codec is None:
                extra[name] = value
            elif value is not None:
                known[name] = codec[0](value) if codec[0] is not None else value
        return cls(extra=extra, **known)

    def to_wire(self) -> dict[str, Any]:
        """The JSON object, ready to be encoded."""
        made = dict(self.extra)
        defaults = _defaults(type(self))
        for name, (_, write) in _codecs(type(self)).items():
            value = getattr(self, name)
            if value is None or (value == defaults[name] and name not in self._always):
                continue
            made[name] = write(value) if write is not None else value
        return made

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


_Codec: TypeAlias = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


@cache
def _defaults(cls: type[Document]) -> dict[str, Any]:
    found = {}
    for one in msgspec.structs.fields(cls):
        if one.default_factory is not msgspec.NODEFAULT:
            found[one.name] = one.default_factory()
        else:
            found[one.name] = one.default
    return found


@cache
def _codecs(cls: type[Document]) -> dict[str, _Codec]:
    """For each field how to read it and how to write it; None where JSON's value is the value."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _codec(hints[name], name) for name in cls.__struct_fields__ if name != "extra"}


def _codec(hint: Any, name: str) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        # Optional; or what you may give beside what a server sends.
        return next(
            (
                codec
                for a in arguments
                if a is not NoneType and (codec := _codec(a, name)) != _PLAIN
            ),
            _PLAIN,
        )
    if origin is Annotated and _NANOSECONDS in arguments:
        return (lambda ns: ns / SECOND), partial(to_nanoseconds, name=name)
    if origin is Literal:
        return partial(_read_word, arguments), partial(_written_word, arguments, name)
    if hint is datetime:
        return Timestamp.parse, datetime_text
    if isinstance(hint, type) and issubclass(hint, Document):
        return hint.from_wire, lambda document: document.to_wire()
    if origin in (list, dict):
        read, write = _codec(arguments[-1], name)
        if read is None or write is None:
            return _PLAIN
        if origin is list:
            return (lambda items: [read(i) for i in items]), lambda items: [write(i) for i in items]
        return (
            lambda items: {k: read(v) for k, v in items.items()},
            lambda items: {k: write(v) for k, v in items.items()},
        )
    return _PLAIN


_PLAIN: _Codec = (None, None)


class Placement(Document, kw_only=True):
    """Where in a cluster a stream lives; `preferred` is only for step-down requests."""

    cluster: str = ""
    tags: list[str] = []
    preferred: str = ""


class SubjectTransform(Document, kw_only=True):
    """Stores messages that match `src` under the subject `dest`
    (docs/protocol/streams.md#subject-transforms)."""

    src: str = ""
    dest: str = ""


class Republish(Document, kw_only=True):
    """Publishes each stored message again, under `dest` (docs/protocol/streams.md#republishing)."""

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
    """A stream that messages are copied from, as a mirror or a source
    (docs/protocol/streams.md#mirrors-and-sources)."""

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
    dead_letter: str = ""  # a subject for what is given up; Slipstream's own, see docs

    @property
    def filters(self) -> list[str]:
        """The subject filters, in whichever field they are; empty for every subject."""
        return self.filter_subjects or ([self.filter_subject] if self.filter_subject else [])


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
    """How far a mirror or source is; `active` is the time since the last contact, None if never."""

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
    """Which client a priority group is pinned to; `pinned_ts` is None when to none."""

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
