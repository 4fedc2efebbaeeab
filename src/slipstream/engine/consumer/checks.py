"""Which consumer configurations are refused, with nats-server's codes and words."""

import re
from typing import TYPE_CHECKING

from slipstream.engine.consumer.config import FLOW_ACKS_HEARTBEAT, ConsumerConfig
from slipstream.engine.consumer.letter_checks import check_dead_letter
from slipstream.engine.protocol.errors import ApiError, config_error
from slipstream.engine.stream.subject_claims import Comparisons, TooManyComparisonsError
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import text_ns
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard, is_pattern, overlaps

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

DESCRIPTION_BYTES_MAX = 4096
METADATA_BYTES_MAX = 131_072
HEARTBEAT_NS_MIN = SECOND // 10
EXPIRES_NS_MIN = 1_000_000

_NAME_TEXT = "consumer name can not contain '.', '*', '>', '\\', '/'"
_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_FIXED = {
    "deliver_policy": "deliver policy can not be updated",
    "opt_start_seq": "start sequence can not be updated",
    "opt_start_time": "start time can not be updated",
    "mem_storage": "storage type can not be updated",
    "ack_policy": "ack policy can not be updated",
    "replay_policy": "replay policy can not be updated",
    "idle_heartbeat": "heart beats can not be updated",
    "flow_control": "flow control can not be updated",
    "max_waiting": "max waiting can not be updated",
    "direct": "direct can not be updated",
    "sourcing": "sourcing can not be updated",
}


def check_name(name: str) -> None:
    """Raises `ApiError`."""
    if len(name) > 255:
        raise ApiError(ErrorCode.CONSUMER_NAME_TOO_LONG, max=255)
    if any(c in name for c in " \t\r\n\f.*>"):
        raise config_error(_NAME_TEXT)


def check_config(stream: "Stream", config: ConsumerConfig) -> None:
    """Everything that does not depend on other consumers. Raises `ApiError`."""
    _check_priority(config)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise ApiError(ErrorCode.CONSUMER_DESCRIPTION_TOO_LONG, max=DESCRIPTION_BYTES_MAX)
    size = sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items())
    if size > METADATA_BYTES_MAX:
        raise ApiError(ErrorCode.CONSUMER_METADATA_LENGTH, limit="128KB")
    if config.num_replicas < 0:
        raise ApiError(ErrorCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    if config.num_replicas > stream.config.num_replicas:
        raise ApiError(ErrorCode.CONSUMER_REPLICAS_EXCEEDS_STREAM)
    if config.backoff and config.max_deliver != -1 and config.max_deliver < len(config.backoff):
        raise ApiError(ErrorCode.CONSUMER_MAX_DELIVER_BACKOFF)
    if any(wait < 0 for wait in config.backoff):
        raise ApiError(ErrorCode.CONSUMER_BACK_OFF_NEGATIVE)
    if config.ack_wait < 0:
        raise ApiError(ErrorCode.CONSUMER_ACK_WAIT_NEGATIVE)
    _check_flow_acks(config)
    if config.is_push:
        _check_push(stream, config)
    else:
        _check_pull(stream, config)
    _check_direct(config)
    _check_start(config)
    _check_filters(config)
    if config.sample_freq and not config.sample_freq.rstrip("%").isdigit():
        detail = f'strconv.Atoi: parsing "{config.sample_freq}": invalid syntax'
        raise ApiError(ErrorCode.CONSUMER_INVALID_SAMPLING, err=detail)
    limit = stream.engine.options.jetstream_limits.max_ack_pending
    account = stream.js.limits.max_ack_pending
    stream_limit = stream.config.consumer_limits.max_ack_pending
    for bound in (limit, account, stream_limit):
        if 0 < bound < config.max_ack_pending:
            raise ApiError(ErrorCode.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=bound)
    threshold = stream.config.consumer_limits.inactive_threshold
    if 0 < threshold < config.inactive_threshold:
        raise ApiError(
            ErrorCode.CONSUMER_INACTIVE_THRESHOLD_EXCESS, limit=f"{threshold / SECOND:g}s"
        )
    if config.flow_control and not config.idle_heartbeat:
        raise ApiError(ErrorCode.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS)
    if config.dead_letter:
        check_dead_letter(stream, config)


def check_group_name(group: str) -> None:
    """Whether a priority group may have that name. Raises `ApiError`."""
    if not _GROUP_NAME.fullmatch(group):
        raise ApiError(ErrorCode.CONSUMER_INVALID_GROUP_NAME)


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise ApiError(ErrorCode.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        if config.priority_timeout:
            raise ApiError(ErrorCode.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE)
        return
    if config.is_push:
        raise ApiError(ErrorCode.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        raise ApiError(ErrorCode.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in config.priority_groups:
        if not group:
            raise ApiError(ErrorCode.CONSUMER_EMPTY_GROUP_NAME)
        check_group_name(group)


def _check_direct(config: ConsumerConfig) -> None:
    if config.direct and not config.is_push:
        raise ApiError(ErrorCode.CONSUMER_DIRECT_REQUIRES_PUSH)
    if config.direct and config.durable_name:
        raise ApiError(ErrorCode.CONSUMER_DIRECT_REQUIRES_EPHEMERAL)


def _check_flow_acks(config: ConsumerConfig) -> None:
    """Answers to flow control acknowledge: nothing is delivered again because of time."""
    if config.ack_policy != "flow_control":
        return
    if not config.is_push:
        raise ApiError(ErrorCode.CONSUMER_ACK_FC_REQUIRES_PUSH)
    if not config.flow_control:
        raise ApiError(ErrorCode.CONSUMER_ACK_FC_REQUIRES_FC)
    if config.idle_heartbeat != FLOW_ACKS_HEARTBEAT:
        raise config_error("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise ApiError(ErrorCode.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING)
    if config.ack_wait or config.backoff:
        raise ApiError(ErrorCode.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT)
    if config.max_deliver != -1:
        raise ApiError(ErrorCode.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER)


def _check_push(stream: "Stream", config: ConsumerConfig) -> None:
    subject = config.deliver_subject.encode()
    if has_wildcard(subject):
        raise ApiError(ErrorCode.CONSUMER_DELIVER_TO_WILDCARDS)
    if not is_pattern(subject):
        raise ApiError(ErrorCode.CONSUMER_INVALID_DELIVER_SUBJECT)
    if any(overlaps(subject, own.encode()) for own in stream.config.subjects):
        raise ApiError(ErrorCode.CONSUMER_DELIVER_CYCLE)
    if config.max_waiting:
        raise ApiError(ErrorCode.CONSUMER_PUSH_MAX_WAITING)
    if config.ack_policy == "none" and config.max_ack_pending > 0:
        raise ApiError(ErrorCode.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise ApiError(ErrorCode.CONSUMER_SMALL_HEARTBEAT)


def _check_pull(stream: "Stream", config: ConsumerConfig) -> None:
    if config.ack_policy == "none" and stream.config.retention == "workqueue":
        raise ApiError(ErrorCode.CONSUMER_PULL_REQUIRES_ACK)
    if config.rate_limit_bps:
        raise ApiError(ErrorCode.CONSUMER_PULL_WITH_RATE_LIMIT)
    if config.idle_heartbeat:
        raise ApiError(ErrorCode.CONSUMER_HB_REQUIRES_PUSH)
    if config.flow_control:
        raise ApiError(ErrorCode.CONSUMER_FC_REQUIRES_PUSH)
    limit = stream.engine.options.jetstream_limits.max_request_batch
    if 0 < limit < config.max_batch:
        raise ApiError(ErrorCode.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED, limit=limit)
    if config.max_expires and config.max_expires < EXPIRES_NS_MIN:
        raise ApiError(ErrorCode.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL)


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    names = {"all": "all", "last": "last", "last_per_subject": "last per subject", "new": "new"}
    if policy in names:
        for field, text in (("opt_start_seq", "sequence"), ("opt_start_time", "time")):
            if getattr(config, field):
                _bad_start(f"deliver {names[policy]}, but optional start {text} is also set")
        if policy == "last_per_subject" and not config.filters:
            _bad_start("deliver last per subject, but optional filter subject is not set")
    elif policy == "by_start_sequence":
        if not config.opt_start_seq:
            _bad_start("deliver by start sequence, but optional start sequence is not set")
        if config.opt_start_time:
            _bad_start("deliver by start sequence, but optional start time is also set")
    elif policy == "by_start_time":
        if not config.opt_start_time:
            _bad_start("deliver by start time, but optional start time is not set")
        if config.opt_start_seq:
            _bad_start("deliver by start time, but optional start start sequence is also set")


def _bad_start(text: str) -> None:
    raise ApiError(ErrorCode.CONSUMER_INVALID_POLICY, err=f"consumer delivery policy is {text}")


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise ApiError(ErrorCode.CONSUMER_DUPLICATE_FILTER_SUBJECTS)
    if any(not subject for subject in config.filter_subjects):
        raise ApiError(ErrorCode.CONSUMER_EMPTY_FILTER)
    filters = config.filters
    valid = next((i for i, one in enumerate(filters) if not is_pattern(one)), len(filters))
    if _has_subset(filters[:valid]):
        raise ApiError(ErrorCode.CONSUMER_OVERLAPPING_SUBJECT_FILTERS)
    if valid < len(filters):
        raise config_error("invalid subject")


def _has_subset(filters: tuple[bytes, ...]) -> bool:
    """Whether one of the patterns matches all that another one does. Raises `ApiError`."""
    if len(set(filters)) < len(filters):
        return True
    if len(filters) < 2:
        return False
    trie = PatternTrie()
    for one in filters:
        trie.insert(one, one)
    comparisons = Comparisons()
    try:
        return any(comparisons.cover(trie, one, one) is not None for one in filters)
    except TooManyComparisonsError as error:
        raise config_error(str(error)) from error


def check_retention(stream: "Stream", config: ConsumerConfig, name: str) -> None:
    """What interest and work-queue streams ask of their consumers. Raises `ApiError`."""
    retention = stream.config.retention
    if retention == "limits":
        return
    if config.num_replicas not in (0, stream.config.num_replicas):
        raise ApiError(ErrorCode.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM)
    if retention != "workqueue" or config.sourcing or config.ack_policy == "flow_control":
        return
    if config.ack_policy != "explicit":
        raise ApiError(ErrorCode.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK)
    if config.deliver_policy != "all":
        raise ApiError(ErrorCode.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL)
    same = stream.consumers.get(name)
    if len(stream.consumers) == (same is not None):
        return
    if not config.filters:
        raise ApiError(ErrorCode.CONSUMER_WQ_MULTIPLE_UNFILTERED)
    comparisons = Comparisons()
    try:
        if any(other is not same for other in stream.unfiltered) or any(
            comparisons.overlap(stream.filters, mine, same) is not None for mine in config.filters
        ):
            raise ApiError(ErrorCode.CONSUMER_WQ_CONSUMER_NOT_UNIQUE)
    except TooManyComparisonsError as error:
        raise config_error(str(error)) from error


def check_update(old: ConsumerConfig, new: ConsumerConfig, is_bound: bool) -> None:
    """What may not change. Raises `ApiError`."""
    kinds = ("pull", "push") if not old.is_push else ("push", "pull")
    for name, text in _FIXED.items():
        if name == "max_waiting" and old.is_push != new.is_push:
            raise ApiError(
                ErrorCode.CONSUMER_CREATE,
                err=f"can not update {kinds[0]} consumer to {kinds[1]} based",
            )
        if getattr(old, name) != getattr(new, name) and not (
            name == "opt_start_time" and _is_same_time(old.opt_start_time, new.opt_start_time)
        ):
            raise ApiError(ErrorCode.CONSUMER_CREATE, err=text)
    if old.deliver_subject != new.deliver_subject and is_bound:
        raise ApiError(ErrorCode.CONSUMER_NAME_EXIST)


def _is_same_time(a: str, b: str) -> bool:
    """Whether two times are the same moment, also in different zones."""
    return bool(a and b) and text_ns(a) == text_ns(b)


def same(a: ConsumerConfig, b: ConsumerConfig) -> bool:
    """Whether two configurations ask for the same consumer."""
    return a.emit() == b.emit()
