"""A consumer's configuration: reading, defaults, how it stands in responses (consumers.md 2)."""

from typing import Any

import msgspec

from slipstream.engine.options import SECOND

DELIVER_POLICIES = (
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "undefined",
)  # fmt: skip
ACK_POLICIES = ("none", "all", "explicit", "flow_control")
REPLAY_POLICIES = ("instant", "original")
PRIORITY_POLICIES = ("none", "overflow", "pinned_client", "prioritized")
ENUMS = {
    "deliver_policy": DELIVER_POLICIES,
    "ack_policy": ACK_POLICIES,
    "replay_policy": REPLAY_POLICIES,
    "priority_policy": PRIORITY_POLICIES,
}
ACK_WAIT = 30 * SECOND
MAX_WAITING = 512
MAX_ACK_PENDING = 1000
INACTIVE_THRESHOLD = 5 * SECOND


class ConsumerConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was asked for, with defaults filled in; times in ns, sizes in bytes."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time: str = ""
    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = -1
    backoff: list[int] = []
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: str = ""
    priority_policy: str = "none"
    priority_groups: list[str] = []
    priority_timeout: int = 0

    @property
    def is_push(self) -> bool:
        """Whether the server sends without being asked."""
        return bool(self.deliver_subject)

    @property
    def filters(self) -> tuple[bytes, ...]:
        """The subject filters; empty for everything."""
        if self.filter_subjects:
            return tuple(subject.encode() for subject in self.filter_subjects)
        return (self.filter_subject.encode(),) if self.filter_subject else ()


_ALWAYS = {
    "deliver_policy",
    "ack_policy",
    "replay_policy",
    "num_replicas",
    "max_deliver",
    "metadata",
}


def fill_defaults(config: ConsumerConfig, limits: Any, limit_ack_pending: int) -> None:
    """Replace what says nothing by what it means; `limits` are the stream's consumer limits."""
    if config.deliver_policy == "undefined":
        config.deliver_policy = "all"
    if config.max_deliver == 0 or config.max_deliver < -1:
        config.max_deliver = -1
    if not config.is_push:
        if config.max_waiting <= 0:
            config.max_waiting = MAX_WAITING
    config.max_waiting = max(config.max_waiting, 0)
    if config.backoff:
        config.ack_wait = config.backoff[0]
    elif config.ack_policy in ("explicit", "all") and config.ack_wait == 0:
        config.ack_wait = ACK_WAIT
    if limits.max_ack_pending and config.max_ack_pending == 0:
        config.max_ack_pending = limits.max_ack_pending
    if limits.inactive_threshold and config.inactive_threshold == 0:
        config.inactive_threshold = limits.inactive_threshold
    if config.ack_policy != "none":
        if config.max_ack_pending == 0:
            config.max_ack_pending = MAX_ACK_PENDING
            if 0 < limit_ack_pending < MAX_ACK_PENDING:
                config.max_ack_pending = limit_ack_pending
        elif config.max_ack_pending < -1:
            config.max_ack_pending = -1
    if not config.durable_name and config.inactive_threshold == 0:
        config.inactive_threshold = INACTIVE_THRESHOLD
    config.metadata = {
        k: v
        for k, v in config.metadata.items()
        if k not in ("_nats.ver", "_nats.level", "_nats.req.level")
    }


def emit(config: ConsumerConfig) -> dict[str, Any]:
    """The configuration as it is kept and shown (without the dynamic metadata)."""
    emitted: dict[str, Any] = {}
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name == "metadata":
            level = "1" if config.pause_until else "0"
            emitted[name] = {**value, "_nats.req.level": level}
        elif name == "priority_policy":
            if value != "none":
                emitted[name] = value
        elif name in _ALWAYS or value:
            emitted[name] = value
    return emitted
