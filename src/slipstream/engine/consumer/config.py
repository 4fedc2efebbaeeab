"""A consumer's configuration: reading, defaults, how it stands in responses
(docs/protocol/consumers.md#configuration)."""

from typing import Any

import msgspec

from slipstream.engine.protocol.errors import pedantic_error
from slipstream.engine.protocol.options import AccountLimits, JetStreamLimits
from slipstream.engine.stream.config import ConsumerLimits
from slipstream.model.durations import SECOND
from slipstream.model.policies import (
    ACK_POLICIES,
    DELIVER_POLICIES,
    PRIORITY_POLICIES,
    REPLAY_POLICIES,
)
from slipstream.model.times import ZERO, read_time

# Deliver policies whose first message depends on when the consumer was made.
AT_CREATION = ("new", "last", "last_per_subject", "by_start_time")
ENUMS = {
    "deliver_policy": (*DELIVER_POLICIES, "undefined"),
    "ack_policy": ACK_POLICIES,
    "replay_policy": REPLAY_POLICIES,
    "priority_policy": PRIORITY_POLICIES,
}
ACK_WAIT = 30 * SECOND
MAX_WAITING = 512
MAX_ACK_PENDING = 1000
INACTIVE_THRESHOLD = 5 * SECOND
PRIORITY_TIMEOUT = 120 * SECOND
FLOW_ACKS_HEARTBEAT = SECOND  # where answers to flow control acknowledge
_NOT_NEGATIVE = (
    "max_waiting", "max_batch", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold",
    "priority_timeout",
)  # fmt: skip


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
    dead_letter: str = ""  # Slipstream's own; see `dead_letters`

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


def fill_defaults(
    config: ConsumerConfig,
    limits: ConsumerLimits,
    server: JetStreamLimits,
    account: AccountLimits,
    pedantic: bool = False,
) -> None:
    """Replace what says nothing by what it means; `limits` are the stream's consumer limits.

    Raises `ApiError` PEDANTIC if `pedantic` and a value that was asked for would have to change.
    """

    def may_change(is_needed: bool, refusal: str) -> bool:
        if is_needed and pedantic:
            raise pedantic_error(refusal)
        return is_needed

    if config.deliver_policy == "undefined":
        config.deliver_policy = "all"
    if config.max_deliver == 0 or may_change(
        config.max_deliver < -1, "max_deliver must be set to -1"
    ):
        config.max_deliver = -1
    for name in _NOT_NEGATIVE:
        if may_change(getattr(config, name) < 0, f"{name} must not be negative"):
            setattr(config, name, 0)
    if may_change(config.max_ack_pending < -1, "max_ack_pending must be set to -1"):
        config.max_ack_pending = -1
    if not config.is_push and config.max_waiting == 0:
        config.max_waiting = MAX_WAITING
    if config.ack_policy in ("explicit", "all") and config.ack_wait == 0:
        config.ack_wait = ACK_WAIT
    if config.ack_policy == "flow_control" and config.is_push and not pedantic:
        config.flow_control = True
        config.idle_heartbeat = FLOW_ACKS_HEARTBEAT
    if config.backoff:
        differs = config.ack_wait != config.backoff[0]
        may_change(differs, "first backoff value has to equal batch AckWait")
        config.ack_wait = config.backoff[0]
    for name in ("max_ack_pending", "inactive_threshold"):
        limit = getattr(limits, name)
        refusal = f"{name} must be set if it's configured in stream limits"
        if may_change(limit and getattr(config, name) == 0, refusal):
            setattr(config, name, limit)
    if config.ack_policy != "none" and config.max_ack_pending == 0:
        bounds = (MAX_ACK_PENDING, server.max_ack_pending, account.max_ack_pending)
        config.max_ack_pending = min(bound for bound in bounds if bound > 0)
    if not config.is_push and config.max_batch == 0 < server.max_request_batch:
        may_change(True, "max_request_batch must be set if it's JetStream limits are set")
        config.max_batch = server.max_request_batch
    if not config.durable_name and config.inactive_threshold == 0:
        config.inactive_threshold = INACTIVE_THRESHOLD
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = PRIORITY_TIMEOUT
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
            is_paused = config.pause_until and read_time(config.pause_until).ns != ZERO
            level = "1" if is_paused or config.priority_policy != "none" else "0"
            if config.ack_policy == "flow_control":
                level = "4"
            emitted[name] = {**value, "_nats.req.level": level}
        elif name == "priority_policy":
            if value != "none":
                emitted[name] = value
        elif name in _ALWAYS or value:
            emitted[name] = value
    return emitted
