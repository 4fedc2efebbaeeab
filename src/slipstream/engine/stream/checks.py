"""Which stream configurations are refused, in nats-server's order and words
(docs/protocol/streams.md#configuration)."""

from slipstream.engine.protocol.errors import ApiError, config_error, pedantic_error
from slipstream.engine.protocol.group import NO_PEERS, check_placement
from slipstream.engine.session.host import Host
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.feature_checks import (
    check_counter_configuration,
    check_feature_configuration,
)
from slipstream.engine.stream.subject_claims import (
    Comparisons,
    SubjectClaims,
    TooManyComparisonsError,
)
from slipstream.engine.stream.upstream_checks import Lookup, check_upstreams
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import is_name, is_pattern, is_subset, overlaps
from slipstream.wire.transforms import Transform, TransformError

DESCRIPTION_BYTES_MAX = 4096
METADATA_BYTES_MAX = 131_072
REPLICAS_MAX = 5
SHORTEST_NS = SECOND // 10


def check_request(config: StreamConfig, name: str) -> None:
    """The name in the subject and the one in the request. Raises `ApiError`."""
    if config.name != name:
        raise ApiError(ErrorCode.STREAM_MISMATCH)
    if "/" in name or "\\" in name:
        raise ApiError(ErrorCode.STREAM_NAME_CONTAINS_PATH_SEPARATORS)


def check_create(config: StreamConfig) -> None:
    """What only a new stream may not have."""
    if config.sealed:
        raise config_error("stream configuration for create can not be sealed")
    if config.mirror is None and config.mirror_direct:
        raise config_error("stream has no mirror but does have mirror direct")


def check_asked(config: StreamConfig) -> None:
    """Checks on the configuration as it was asked for, before defaults are filled in."""
    if not is_name(config.name, 1 << 20):
        raise config_error("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name) > 255:
        raise config_error("stream name is too long, maximum allowed is 255")
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise config_error("stream description is too long, maximum allowed is 4096")
    size = sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items())
    if size > METADATA_BYTES_MAX:
        raise config_error("stream metadata exceeds maximum size of 131072 bytes")
    if config.num_replicas > REPLICAS_MAX:
        raise config_error("maximum replicas is 5")
    if config.num_replicas < 0:
        raise ApiError(ErrorCode.REPLICAS_COUNT_CANNOT_BE_NEGATIVE)
    if config.pedantic:
        for name in (
            "max_msgs",
            "max_msgs_per_subject",
            "max_bytes",
            "max_msg_size",
            "max_consumers",
        ):
            if getattr(config, name) < -1:
                raise pedantic_error(f"{name} must be set to -1")
    if config.max_age < 0:
        raise config_error("max age can not be negative")
    if 0 < config.max_age < SHORTEST_NS:
        raise config_error("max age needs to be >= 100ms")


def check_filled(config: StreamConfig, shrunk: str, window_limit: int, lookup: Lookup) -> None:
    """Checks on the configuration with its defaults; `lookup` finds other streams."""
    if config.pedantic and shrunk:
        raise pedantic_error(shrunk)
    window = config.duplicate_window
    if window < 0:
        raise config_error("duplicates window can not be negative")
    if config.max_age and window > config.max_age:
        raise config_error("duplicates window can not be larger then max age")
    if window_limit and window > window_limit:
        raise config_error(
            f"duplicates window can not be larger then server limit of {_go_duration(window_limit)}"
        )
    if 0 < window < SHORTEST_NS:
        raise config_error("duplicates window needs to be >= 100ms")
    if config.deny_purge and config.allow_rollup_hdrs:
        raise config_error("roll-ups require the purge permission")
    check_counter_configuration(config)
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise config_error("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise config_error("discard new per subject requires max msgs per subject > 0")
    _check_markers(config)
    check_feature_configuration(config)
    check_upstreams(config, lookup)
    check_subjects(config)
    _check_transform(config)
    _check_republish(config)
    if config.placement is not None and config.placement.preferred:
        raise config_error("preferred server not permitted in placement")


def check_replicas(config: StreamConfig, host: Host) -> None:
    """One server keeps one copy. Raises `ApiError`."""
    if config.num_replicas > 1 and host.group is None:
        raise ApiError(ErrorCode.STREAM_REPLICAS_NOT_SUPPORTED)


def check_place(config: StreamConfig, host: Host) -> None:
    """Whether the group, if there is one, has a place for the stream. Raises `ApiError`."""
    if host.group is None:
        return
    if config.storage == "memory" and config.num_replicas > 1:
        detail = "what is in memory is kept by the leader alone: ask for one replica, or for files"
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=f"{NO_PEERS}, {detail}")
    tags = host.options.server_tags
    check_placement(host.group, tags, config.num_replicas, config.placement)


def _check_markers(config: StreamConfig) -> None:
    """Delete markers expire and roll up: what they need is switched on, or asked for."""
    ttl = config.subject_delete_marker_ttl
    if ttl < 0:
        raise config_error("subject delete marker TTL must not be negative")
    if ttl == 0:
        return
    if ttl < SECOND:
        raise config_error("subject delete marker TTL must be at least 1 second")
    if config.pedantic and not config.allow_msg_ttl:
        raise config_error("subject delete marker cannot be set if message TTLs are disabled")
    if config.pedantic and not config.allow_rollup_hdrs:
        raise config_error("subject delete marker cannot be set if roll-ups are disabled")
    config.allow_msg_ttl = config.allow_rollup_hdrs = True
    config.deny_purge = False


def check_subjects(config: StreamConfig) -> None:
    """Valid, not overlapping, and none that the server needs for itself."""
    seen = PatternTrie()
    comparisons = Comparisons()
    for i, subject in enumerate(config.subjects):
        raw = subject.encode()
        if not is_pattern(raw):
            raise config_error("invalid subject")
        try:
            overlap = comparisons.overlap(seen, raw)
        except TooManyComparisonsError as error:
            raise config_error(str(error)) from error
        if overlap is not None:
            other = next(o for o in config.subjects[:i] if overlaps(raw, o.encode()))
            raise config_error(f'subject "{other}" overlaps with "{subject}"')
        seen.insert(raw, subject)
        if raw[0] not in b"$*>":
            continue  # the server's own subjects begin with $
        if subject == ">":
            if not config.no_ack:
                raise config_error("capturing all subjects requires no-ack to be true")
            continue
        if config.no_ack:
            continue
        if any(overlaps(raw, own) for own in (b"$JS.>", b"$JSC.>", b"$NRG.>")):
            if not is_subset(raw, b"$JS.EVENT.>"):
                raise config_error(
                    "subjects that overlap with jetstream api require no-ack to be true"
                )
        if overlaps(raw, b"$SYS.>") and not is_subset(raw, b"$SYS.ACCOUNT.>"):
            raise config_error("subjects that overlap with system api require no-ack to be true")


def _check_transform(config: StreamConfig) -> None:
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_pattern(transform.src.encode()):
        raise ApiError(
            ErrorCode.STREAM_TRANSFORM_INVALID_SOURCE, err=f"invalid subject {transform.src}"
        )
    if not transform.dest:
        return  # changes nothing
    try:
        Transform(transform.src or ">", transform.dest)
    except TransformError as error:
        raise ApiError(ErrorCode.STREAM_TRANSFORM_INVALID_DESTINATION, err=str(error)) from error


def _check_republish(config: StreamConfig) -> None:
    republish = config.republish
    if republish is None:
        return
    if not republish.src:
        if config.pedantic:
            raise pedantic_error("republish source can not be empty")
        republish.src = ">"
    if not republish.dest:
        return  # goes nowhere
    dest = republish.dest.encode()
    transformed = config.subject_transform is not None
    if (
        any(overlaps(dest, s.encode()) for s in config.subjects if is_pattern(dest))
        and not transformed
    ):
        raise config_error("stream configuration for republish destination forms a cycle")
    try:
        Transform(republish.src, republish.dest)
    except TransformError as error:
        raise config_error(
            "stream configuration for republish with transform from "
            f"'{republish.src}' to '{republish.dest}' not valid"
        ) from error


def check_update(old: StreamConfig, new: StreamConfig) -> None:
    """What may not change. Raises `ApiError`."""
    if new.storage != old.storage:
        raise config_error("stream configuration update can not change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise config_error(
            "stream configuration update can not change retention policy to/from workqueue"
        )
    if old.sealed and not new.sealed:
        raise config_error("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise config_error("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise config_error("stream configuration update can not cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise ApiError(ErrorCode.STREAM_MIRROR_NOT_UPDATABLE)
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise config_error("message TTL status can not be disabled")
    if old.allow_msg_counter != new.allow_msg_counter:
        raise config_error("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise config_error("message schedules can not be disabled")
    if old.persist_mode != new.persist_mode:
        raise config_error("stream configuration update can not change persist mode")


def check_overlap(config: StreamConfig, claims: SubjectClaims) -> None:
    """No two streams of an account may store the same message. Raises `ApiError`."""
    comparisons = Comparisons()
    try:
        taken = any(claims.is_taken(s, config.name, comparisons) for s in config.subjects)
    except TooManyComparisonsError as error:
        raise config_error(str(error)) from error
    if taken:
        raise ApiError(ErrorCode.STREAM_SUBJECT_OVERLAP)


def _go_duration(ns: int) -> str:
    """A duration in Go's words, for whole seconds and below."""
    if ns % SECOND:
        return f"{ns / SECOND:g}s" if ns > SECOND else f"{ns // 1_000_000}ms"
    minutes, seconds = divmod(ns // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
