"""`jetstream {}` (docs/configuration.md#jetstream)."""

from slipstream.engine.protocol.options import BatchLimits, JetStreamLimits
from slipstream.server.config.blocks import Block, block_kind, no_effect, optional, refused
from slipstream.server.config.kinds import (
    Anything,
    Boolean,
    Count,
    Duration,
    DurationText,
    Integer,
    Kind,
    Notes,
    StoreSize,
    String,
    Wrong,
    integer_between,
    one_of,
    read_duration,
    read_store_size,
    read_string,
)
from slipstream.server.config.tree import Value
from slipstream.server.options import JetStreamOptions

ALWAYS = 0


def _read_sync(value: Value, notes: Notes) -> int:
    if isinstance(value.data, str) and value.data.lower() == "always":
        return ALWAYS
    return read_duration(value, notes)


def _put_sync(target: JetStreamOptions, interval: int) -> None:
    target.sync_always = interval == ALWAYS
    if interval != ALWAYS:
        target.sync_interval = interval


def _read_rate(value: Value, notes: Notes) -> int:
    if value.data is False or (isinstance(value.data, str) and value.data.lower() == "off"):
        return 0
    rate = read_store_size(value, notes)
    if rate <= 0:
        raise Wrong(f"expected bytes a second such as 50MB, or off, found {value.describe()}")
    return rate


def read_store_dir(value: Value, notes: Notes) -> str:
    """A path; a file may name only one, here or at the top level."""
    path = read_string(value, notes)
    if notes.store_dir is not None:
        raise Wrong(f"duplicate store_dir, the first is at {notes.store_dir}: keep one of them")
    notes.store_dir = value.place
    return path


StoreDirectory = Kind("path", read_store_dir)

BATCH = Block(
    "batch",
    (
        optional(
            "max_inflight_per_stream", Count, "Batches that a stream has open.", reloadable=True
        ),
        optional("max_inflight_total", Count, "Open batches of the server.", reloadable=True),
        optional("max_msgs", Count, "Messages of a batch.", reloadable=True),
        optional(
            "timeout",
            Duration,
            "How long an open batch waits for its next message.",
            reloadable=True,
        ),
    ),
)

LIMITS = Block(
    "limits",
    (
        optional(
            "max_ack_pending",
            Integer,
            "Ceiling of a consumer's max_ack_pending; 0 is none.",
            reloadable=True,
        ),
        optional(
            "max_request_batch",
            Integer,
            "Ceiling of a pull request's batch; 0 is none.",
            reloadable=True,
        ),
        optional(
            "duplicate_window", DurationText, "Ceiling of a stream's; 0 is none.", reloadable=True
        ),
        optional(
            "default_max_consumers",
            Integer,
            "Consumers of a stream that does not say; 0 is any number.",
            reloadable=True,
        ),
        no_effect("max_ha_assets", Integer, "Replicated streams and consumers."),
        optional(
            "batch",
            block_kind(BATCH, BatchLimits),
            "Bounds of atomic batches.",
            inner=BATCH,
        ),
    ),
)

JETSTREAM = Block(
    "jetstream",
    (
        optional(
            "enabled enable", Boolean, "On, which the block itself means too.", reloadable=True
        ),
        optional(
            "store_dir store storedir",
            StoreDirectory,
            "Where streams are kept; a directory jetstream is made in it.",
        ),
        optional(
            "log_dir",
            String,
            "Where the commit log is kept, such as on another disk than the store; a directory "
            "commit-log is made in it. Without it, in the store. A log that is elsewhere is moved.",
        ),
        optional(
            "max_memory_store max_mem_store max_mem",
            StoreSize,
            "Memory for memory streams; 0 is none, -1 no bound, but streams may reserve "
            "(max_bytes) only 75% of the machine's. A reload may only raise it.",
            reloadable=True,
        ),
        optional(
            "max_file_store max_file",
            StoreSize,
            "Disk for file streams; 0 is none, -1 no bound, but streams may reserve (max_bytes) "
            "only 75% of what is free at the start. A reload may only raise it.",
            reloadable=True,
        ),
        optional(
            "sync_interval sync",
            Kind("duration or always", _read_sync),
            "How often what was stored is synced to disk; always: before it is acknowledged, "
            "which is the default here (nats-server: 2m).",
            put=_put_sync,
        ),
        optional(
            "scrub",
            Kind("size or off", _read_rate),
            "Bytes a second of what is stored that are read again, beside all else, to find what "
            "the disk has changed since: storage.md. A whole pass begins at most once a day.",
            reloadable=True,
        ),
        optional(
            "request_queue_limit",
            Count,
            "API requests that may wait for their turn, above which all of them are dropped; 0 is "
            "any number.",
            reloadable=True,
        ),
        optional("domain", String, "Makes the API answer as $JS.<domain>.API too."),
        optional("strict", Boolean, "Refuse unknown fields in API requests."),
        optional(
            "limits",
            block_kind(LIMITS, JetStreamLimits),
            "Ceilings on what clients may ask for.",
            inner=LIMITS,
        ),
        refused("key ek encryption_key", "Encryption at rest."),
        refused("prev_encryption_key prev_key prev_ek", "The key before, while it is changed."),
        refused("cipher", "Of encryption at rest."),
        refused("tpm", "A key sealed in a TPM."),
        no_effect("max_buffered_msgs", Count, "Messages are stored as they come, none queue."),
        no_effect("max_buffered_size", StoreSize, "Messages are stored as they come, none queue."),
        no_effect("info_queue_limit", Integer, "All API requests wait in one queue."),
        no_effect("max_concurrent_io", integer_between(4, 8192), "Disk requests at a time."),
        no_effect("max_outstanding_catchup", StoreSize, "Bytes on their way to replicas."),
        no_effect("unique_tag", String, "Placement of replicas."),
        no_effect("extension_hint", one_of("no_extend", "will_extend"), "Leaf nodes' domains."),
        no_effect("meta_compact", Integer, "Compaction of the cluster's log."),
        no_effect("meta_compact_size", StoreSize, "Compaction of the cluster's log."),
        no_effect("meta_compact_sync", Anything, "Compaction of the cluster's log."),
    ),
)


def _read_jetstream(value: Value, notes: Notes) -> JetStreamOptions:
    data = value.data
    if isinstance(data, bool):
        return JetStreamOptions(enabled=data)
    if isinstance(data, str):
        word = data.lower()
        if word not in ("enabled", "enable", "disabled", "disable"):
            raise Wrong(f"expected enabled or disabled, found {value.describe()}")
        return JetStreamOptions(enabled=word.startswith("enable"))
    options = JetStreamOptions(enabled=True)
    JETSTREAM.fill(value, options, notes)
    return options


JetStream = Kind("boolean, enabled, disabled or map", _read_jetstream)
