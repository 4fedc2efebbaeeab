"""A consumer's configuration: reading, defaults, how it stands in responses
(docs/protocol/consumers.md#configuration).

Its fields are declared in `model/configurations.py`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from slipstream.engine.protocol import configurations
from slipstream.engine.protocol.configurations import ConsumerLimits
from slipstream.engine.protocol.errors import pedantic_error
from slipstream.engine.protocol.options import (
    REQUIRED_LEVEL,
    AccountJetStreamLimits,
    JetStreamLimits,
    kept_metadata,
)
from slipstream.model.durations import SECOND
from slipstream.model.policies import DELIVER_POLICIES
from slipstream.model.times import ZERO, read_time

# Deliver policies whose first message depends on when the consumer was made.
AT_CREATION = ("new", "last", "last_per_subject", "by_start_time")
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


class ConsumerConfig(configurations.ConsumerConfig, kw_only=True):
    """What was asked for, with defaults filled in; times in ns, sizes in bytes."""

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **configurations.ConsumerConfig.words,
        "deliver_policy": (*DELIVER_POLICIES, "undefined"),
    }

    ack_policy: str = "none"  # where a request does not say; clients say "explicit"

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

    def emit(self) -> dict[str, Any]:
        """As it is kept and shown (without the dynamic metadata)."""
        emitted = super().emit()
        is_paused = self.pause_until and read_time(self.pause_until).ns != ZERO
        level = "1" if is_paused or self.priority_policy != "none" else "0"
        if self.ack_policy == "flow_control":
            level = "4"
        emitted["metadata"] = {**self.metadata, REQUIRED_LEVEL: level}
        return emitted


def fill_defaults(
    config: ConsumerConfig,
    limits: ConsumerLimits,
    server: JetStreamLimits,
    account: AccountJetStreamLimits,
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
    config.metadata = kept_metadata(config.metadata)
