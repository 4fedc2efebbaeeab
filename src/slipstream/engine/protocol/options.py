"""What the engine can be told; the server's configuration fills it."""

import msgspec

from slipstream.model.durations import SECOND

# What INFO and the API say this server is. Clients compare them to decide which features they may
# use: see "What is announced" in docs/compatibility.md.
VERSION = "2.15.1"
API_LEVEL = 5
# What answers add to the metadata of a stream or consumer; it is not kept with theirs.
REQUIRED_LEVEL = "_nats.req.level"
_VERSION, _LEVEL = "_nats.ver", "_nats.level"


def shown_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """A stream's or consumer's metadata with the above, in the order of keys, as Go writes maps."""
    shown = {**metadata, _VERSION: VERSION, _LEVEL: str(API_LEVEL)}
    return dict(sorted(shown.items()))


def kept_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """A stream's or consumer's metadata without what the server shows in them."""
    return {k: v for k, v in metadata.items() if k not in (_VERSION, _LEVEL, REQUIRED_LEVEL)}


class BatchLimits(msgspec.Struct, kw_only=True):
    """Bounds of atomic batches; the time in ns."""

    max_inflight_per_stream: int = 50  # batches that are open
    max_inflight_total: int = 1_000
    max_msgs: int = 1_000  # of one batch
    timeout: int = 10 * SECOND  # after a batch's last message


class JetStreamLimits(msgspec.Struct, kw_only=True):
    """Ceilings on what API requests may ask for; 0 is none, times in ns."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window: int = 0
    default_max_consumers: int = 0  # of a stream that does not say
    batch: BatchLimits = msgspec.field(default_factory=BatchLimits)


class JetStreamCeilings(msgspec.Struct, kw_only=True):
    """What JetStream may take of the whole server; sizes in bytes."""

    max_memory_store: int = -1  # 0: none; -1: no bound, 75% of the machine's may be reserved
    max_file_store: int = -1  # 0: none; -1: likewise, of the disk's free space
    request_queue_limit: int = 10_000  # API requests that wait for their turn; 0 is any number


class ConnectionLimits(msgspec.Struct, kw_only=True):
    """What connections may cost, and how they are timed; sizes in bytes, times in ns."""

    max_connections: int = 65_536  # 0 refuses all, -1 is without bound
    max_subscriptions: int = 0  # per connection; 0 is without bound
    max_sub_tokens: int = 0  # 0 is without bound
    max_payload: int = 1024 * 1024
    max_pending: int = 64 * 1024 * 1024
    max_pending_total: int = 0  # of all clients together; 0 is eight times max_pending
    max_control_line: int = 4096
    ping_interval: int = 120 * SECOND
    ping_max: int = 2
    no_fast_producer_stall: bool = False  # drop what a client that is far behind is sent
    no_header_support: bool = False
    max_closed_clients: int = 10_000  # remembered for /connz?state=closed


class EngineOptions(ConnectionLimits, kw_only=True):
    """Limits and timers; sizes in bytes, times in ns."""

    server_name: str = ""
    host: str = "0.0.0.0"
    port: int = 4222
    client_advertise: str = ""
    first_ping: int = 2 * SECOND
    auth_timeout: int = 2 * SECOND
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    jetstream: bool = False
    domain: str = ""
    server_tags: list[str] = []  # in lower case; placements name them
    strict: bool = True
    sync_always: bool = True
    sync_interval: int = 0  # ns, after which a relaxed batch is synced; 0 takes a second
    ceilings: JetStreamCeilings = msgspec.field(default_factory=JetStreamCeilings)
    reservable_memory: int = -1  # what max_bytes may add up to, where the store has no bound
    reservable_storage: int = -1
    scrub_rate: int = 0  # bytes a second; 0 reads nothing again
    jetstream_limits: JetStreamLimits = msgspec.field(default_factory=JetStreamLimits)


class AccountConnectionLimits(msgspec.Struct, kw_only=True):
    """What the connections of an account may cost; -1 is without bound."""

    max_connections: int = -1
    max_subscriptions: int = -1  # per connection
    max_payload: int = -1  # bytes
    max_leafnodes: int = -1


class AccountJetStreamLimits(msgspec.Struct, kw_only=True):
    """What the streams of an account may use; -1 is without bound, sizes in bytes."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1  # per stream
    max_ack_pending: int = -1  # per consumer
    max_bytes_required: bool = False
    memory_max_stream_bytes: int = -1  # per stream
    storage_max_stream_bytes: int = -1  # per stream


class AccountLimits(AccountConnectionLimits, kw_only=True):
    """What an account may use; `jetstream` None is JetStream off."""

    jetstream: AccountJetStreamLimits | None = msgspec.field(default_factory=AccountJetStreamLimits)
