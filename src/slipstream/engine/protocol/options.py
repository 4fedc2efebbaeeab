"""What the engine can be told; the server's configuration fills it."""

import msgspec

from slipstream.model.durations import SECOND

# What INFO and the API say this server is. Clients compare them to decide which features they may
# use: see "What is announced" in docs/compatibility.md.
VERSION = "2.15.1"
API_LEVEL = 5


def shown_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """A stream's or consumer's metadata with the above, in the order of keys, as Go writes maps."""
    shown = {**metadata, "_nats.ver": VERSION, "_nats.level": str(API_LEVEL)}
    return dict(sorted(shown.items()))


class JetStreamLimits(msgspec.Struct, kw_only=True):
    """Ceilings of the whole server; 0 is none (of sizes, which are in bytes: -1), times in ns."""

    max_memory: int = -1  # 0: no memory streams at all
    max_storage: int = -1
    reservable_memory: int = -1  # what max_bytes may add up to, where max_memory is no bound
    reservable_storage: int = -1
    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window: int = 0
    default_max_consumers: int = 0  # of a stream that does not say
    batch_max_inflight_per_stream: int = 50  # atomic batches that are open
    batch_max_inflight_total: int = 1_000
    batch_max_msgs: int = 1_000  # of one batch
    batch_timeout: int = 10 * SECOND  # after a batch's last message


class EngineOptions(msgspec.Struct, kw_only=True):
    """Limits and timers; sizes in bytes, times in ns."""

    server_name: str = ""
    host: str = "0.0.0.0"
    port: int = 4222
    client_advertise: str = ""
    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    max_pending_total: int = 0  # of all clients; 0 is eight times max_pending
    no_fast_producer_stall: bool = False  # drop what a client that is far behind is sent
    max_connections: int = 65_536
    max_subscriptions: int = 0
    max_sub_tokens: int = 0
    max_closed_clients: int = 10_000
    no_header_support: bool = False
    ping_interval: int = 120 * SECOND
    ping_max: int = 2
    first_ping: int = 2 * SECOND
    auth_timeout: int = 2 * SECOND
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    jetstream: bool = False
    domain: str = ""
    strict: bool = True
    sync_always: bool = True
    sync_interval: int = 0  # ns, after which a relaxed batch is synced; 0 takes a second
    request_queue_limit: int = 10_000  # API requests that wait; 0 is without bound
    jetstream_limits: JetStreamLimits = msgspec.field(default_factory=JetStreamLimits)


class AccountLimits(msgspec.Struct, kw_only=True):
    """What an account may use; -1 is without bound, sizes in bytes."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    max_leafnodes: int = -1
    jetstream: bool = True
    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    max_bytes_required: bool = False
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
