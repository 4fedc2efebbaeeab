"""A stream's configuration: reading, filling in defaults, and how it stands in responses.

Field by field as docs/protocol/streams.md#configuration; the checks are in `stream_checks`.
"""

from typing import Any

import msgspec

from slipstream.engine.protocol.json_body import convert, decode
from slipstream.model.durations import SECOND
from slipstream.model.policies import COMPRESSIONS, DISCARDS, PERSIST_MODES, RETENTIONS, STORAGES

DUPLICATE_WINDOW = 120 * SECOND


class SubjectTransform(msgspec.Struct, forbid_unknown_fields=True):
    """Stores messages under another subject."""

    src: str = ""
    dest: str = ""


class ExternalStream(msgspec.Struct, forbid_unknown_fields=True):
    """How to reach a stream of another account or domain."""

    api: str = ""  # stands for ``$JS.API``
    deliver: str = ""  # what the subjects that it delivers to begin with


class UpstreamConsumer(msgspec.Struct, forbid_unknown_fields=True):
    """A durable consumer that somebody has made on the upstream."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(msgspec.Struct, forbid_unknown_fields=True):
    """An upstream: the stream that a mirror follows, or one of those that a stream gathers."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: str = ""
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []
    external: ExternalStream | None = None
    consumer: UpstreamConsumer | None = None


class Republish(msgspec.Struct, forbid_unknown_fields=True):
    """Publishes each stored message again."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False


class Placement(msgspec.Struct, forbid_unknown_fields=True):
    """Where in a cluster; kept, without meaning here."""

    cluster: str = ""
    tags: list[str] = []
    preferred: str = ""


class ConsumerLimits(msgspec.Struct, forbid_unknown_fields=True):
    """Defaults and bounds for consumers; the time in ns."""

    inactive_threshold: int = 0
    max_ack_pending: int = 0


class StreamConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was asked for, with defaults filled in; sizes in bytes, times in ns, -1 is no bound."""

    name: str = ""
    description: str = ""
    subjects: list[str] = []
    retention: str = "limits"
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: str = "old"
    storage: str = "file"
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: int = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: str = "none"
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
    consumer_limits: ConsumerLimits = msgspec.field(default_factory=ConsumerLimits)
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = "default"
    allow_batched: bool = False
    metadata: dict[str, str] = {}
    pedantic: bool = False  # only of a request, never kept


# Fields that a response always has; the others only when they say something.
_ALWAYS = {
    "name", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age",
    "max_msgs_per_subject", "max_msg_size", "discard", "storage", "num_replicas", "compression",
    "allow_direct", "mirror_direct", "sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs",
    "consumer_limits", "allow_msg_ttl", "metadata",
}  # fmt: skip
_NEVER = {"pedantic"}
_ENUMS = {
    "retention": RETENTIONS,
    "storage": STORAGES,
    "discard": DISCARDS,
    "compression": COMPRESSIONS,
    "persist_mode": (*PERSIST_MODES, ""),
}


def read_config(body: bytes, strict: bool) -> StreamConfig:
    """A create or update request. Raises `ApiError` INVALID_JSON."""
    config: StreamConfig = convert(decode(body), StreamConfig, _ENUMS, strict)
    return config


def load_config(raw: dict[str, Any]) -> StreamConfig:
    """A configuration as `emit` gave it."""
    config: StreamConfig = convert(dict(raw), StreamConfig, _ENUMS)
    return config


def load_restored(raw: dict[str, Any], strict: bool) -> StreamConfig:
    """The configuration of a stream that is to be restored. Raises `ApiError` INVALID_JSON."""
    config: StreamConfig = convert(raw, StreamConfig, _ENUMS, strict)
    return config


def fill_defaults(config: StreamConfig, window_limit: int) -> str:
    """Replace what says nothing by what it means; what made the duplicate window shrink, or ""."""
    for name in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        if getattr(config, name) == 0 or getattr(config, name) < -1:
            setattr(config, name, -1)
    if config.num_replicas == 0:
        config.num_replicas = 1
    takes_over = config.mirror is not None or bool(config.sources)
    if not config.subjects and not takes_over:
        config.subjects = [config.name]
    if config.placement == Placement():
        config.placement = None
    if config.persist_mode == "":
        config.persist_mode = "default"
    config.metadata = {k: v for k, v in config.metadata.items() if not _is_dynamic(k)}
    shrunk = ""
    if config.duplicate_window == 0 and not takes_over:
        config.duplicate_window = DUPLICATE_WINDOW
        if 0 < config.max_age < DUPLICATE_WINDOW:
            config.duplicate_window = config.max_age
            shrunk = "duplicate window cannot be bigger than max age"
        if 0 < window_limit < config.duplicate_window:
            config.duplicate_window = window_limit
            shrunk = "duplicate window limits are higher than current limits"
    return shrunk


def seal(config: StreamConfig) -> None:
    """What else is so in a stream that becomes sealed."""
    config.max_age = 0
    config.discard = "new"
    config.deny_delete = config.deny_purge = True
    config.allow_rollup_hdrs = False


def _is_dynamic(key: str) -> bool:
    return key in ("_nats.ver", "_nats.level", "_nats.req.level")


def emit(config: StreamConfig) -> dict[str, Any]:
    """The configuration as it is kept and as responses show it (without the dynamic metadata)."""
    emitted: dict[str, Any] = {}
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name in _NEVER:
            continue
        if name == "consumer_limits":
            emitted[name] = _without_zeros(value)
        elif name == "metadata":
            emitted[name] = {**value, "_nats.req.level": str(required_level(config))}
        elif name == "placement":
            if value is not None:
                emitted[name] = _without_zeros(value)
        elif name == "mirror":
            if value is not None:
                emitted[name] = emit_source(value)
        elif name == "sources":
            if value:
                emitted[name] = [emit_source(source) for source in value]
        elif name in ("subject_transform", "republish"):
            if value is not None:
                emitted[name] = {"src": value.src, "dest": value.dest, **_without_zeros(value)}
        elif name == "persist_mode":
            if value != "default":
                emitted[name] = value
        elif name in _ALWAYS or value:
            emitted[name] = value
    return emitted


def emit_source(source: StreamSource) -> dict[str, Any]:
    """An upstream as it is kept and shown."""
    emitted = {"name": source.name, **_without_zeros(source)}
    if source.external is not None:
        emitted["external"] = msgspec.to_builtins(source.external)
    if source.consumer is not None:
        emitted["consumer"] = _without_zeros(source.consumer)
    return emitted


def required_level(config: StreamConfig) -> int:
    """The lowest API level of a server that has all that the stream needs."""
    if config.allow_batched:
        return 4
    features = (config.allow_atomic, config.allow_msg_counter, config.allow_msg_schedules)
    if any(features) or config.persist_mode == "async":
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def _without_zeros(value: Any) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(value).items() if v}


def same(a: StreamConfig, b: StreamConfig) -> bool:
    """Whether two configurations ask for the same stream."""
    return emit(a) == emit(b)
