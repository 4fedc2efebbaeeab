"""Which mirrors and sources are refused, in nats-server's order and words
(docs/protocol/streams.md#mirrors-and-sources).

What the upstream is like counts only where it can be seen: it may be made later, and that of
another account or domain is never looked at.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from slipstream.engine.protocol.configurations import StreamSource
from slipstream.engine.protocol.errors import ApiError, config_error, pedantic_error
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.subject_claims import Comparisons, TooManyComparisonsError
from slipstream.model.error_codes import ErrorCode
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard, is_literal, is_name, is_pattern, overlaps
from slipstream.wire.transforms import Transform, TransformError

API_PREFIX = "$JS.API"

# The configuration of a stream of the same account, by name; None if there is none.
Lookup = Callable[[str], StreamConfig | None]


def check_upstreams(config: StreamConfig, lookup: Lookup) -> None:
    """Check the mirror and the sources of `config`; a mirror is given the direct gets of its
    upstream. Raises `ApiError`."""
    if config.mirror is not None:
        _check_mirror(config, config.mirror, lookup)
    if config.sources:
        _check_sources(config, lookup)
    _check_prefixes(config, lookup)
    check_loops(config, lookup)


def upstreams(config: StreamConfig) -> list[StreamSource]:
    """The streams that `config` takes messages from."""
    return [*([config.mirror] if config.mirror is not None else []), *config.sources]


def _check_mirror(config: StreamConfig, mirror: StreamSource, lookup: Lookup) -> None:
    refused = (
        (config.first_seq > 0, ErrorCode.MIRROR_WITH_FIRST_SEQ),
        (bool(config.subjects), ErrorCode.MIRROR_WITH_SUBJECTS),
        (bool(config.sources), ErrorCode.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, ErrorCode.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, ErrorCode.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, ErrorCode.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, ErrorCode.MIRROR_WITH_MSG_SCHEDULES),
        (
            bool(mirror.filter_subject and mirror.subject_transforms),
            ErrorCode.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED,
        ),
    )
    for is_wrong, code in refused:
        if is_wrong:
            raise ApiError(code)
    if config.subject_delete_marker_ttl:
        raise config_error("subject delete markers forbidden on mirrors")
    _check_transforms(
        mirror,
        (
            ErrorCode.MIRROR_INVALID_SUBJECT_FILTER,
            ErrorCode.MIRROR_INVALID_TRANSFORM_DESTINATION,
            ErrorCode.MIRROR_OVERLAPPING_SUBJECT_FILTERS,
        ),
        apart=True,
    )
    if not _is_consumer_valid(mirror):
        raise ApiError(ErrorCode.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    if mirror.external is not None:
        return
    if not is_name(mirror.name):
        raise ApiError(ErrorCode.MIRROR_INVALID_STREAM_NAME)
    upstream = lookup(mirror.name)
    if upstream is None:
        return
    if 0 < config.max_msg_size < upstream.max_msg_size:
        raise ApiError(ErrorCode.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)
    if config.pedantic and upstream.allow_direct != config.mirror_direct:
        raise pedantic_error("origin stream has direct get set, mirror has it disabled")
    config.mirror_direct = upstream.allow_direct


def _check_sources(config: StreamConfig, lookup: Lookup) -> None:
    if config.allow_msg_schedules:
        raise ApiError(ErrorCode.SOURCE_WITH_MSG_SCHEDULES)
    seen = set()
    for source in config.sources:
        if not is_name(source.name):
            raise ApiError(ErrorCode.SOURCE_INVALID_STREAM_NAME)
        key = index_name(source)
        if key in seen:
            raise ApiError(ErrorCode.SOURCE_DUPLICATE_DETECTED)
        seen.add(key)
        if source.filter_subject and source.subject_transforms:
            raise ApiError(ErrorCode.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED)
        _check_transforms(
            source,
            (
                ErrorCode.SOURCE_INVALID_SUBJECT_FILTER,
                ErrorCode.SOURCE_INVALID_TRANSFORM_DESTINATION,
                ErrorCode.SOURCE_OVERLAPPING_SUBJECT_FILTERS,
            ),
            apart=False,
        )
        if not _is_consumer_valid(source):
            raise ApiError(ErrorCode.SOURCE_DURABLE_CONSUMER_CFG_INVALID)
        upstream = lookup(source.name) if source.external is None else None
        if upstream is not None and 0 < config.max_msg_size < upstream.max_msg_size:
            raise ApiError(ErrorCode.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)
    durables = [
        (s.name, s.external and s.external.api, s.consumer.name)
        for s in config.sources
        if s.consumer is not None
    ]
    if len(set(durables)) < len(durables):
        raise ApiError(ErrorCode.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED)


def _check_transforms(
    source: StreamSource, codes: tuple[ErrorCode, ErrorCode, ErrorCode], apart: bool
) -> None:
    """`codes` say that a transform's source is wrong, its destination, or that two sources collide:
    with `apart` they may not overlap, otherwise none may match all that another one does."""
    patterns = [(transform.src or ">").encode() for transform in source.subject_transforms]
    for pattern, transform in zip(patterns, source.subject_transforms, strict=True):
        if not is_pattern(pattern):
            raise ApiError(codes[0], err=f"invalid subject {transform.src}")
        if transform.dest:
            try:
                Transform(transform.src, transform.dest)
            except TransformError as error:
                raise ApiError(codes[1], err=str(error)) from error
    if len(set(patterns)) < len(patterns):
        raise ApiError(codes[2])
    trie = PatternTrie()
    for pattern in patterns:
        trie.insert(pattern, pattern)
    comparisons = Comparisons()
    look = comparisons.overlap if apart else comparisons.cover
    try:
        if any(look(trie, pattern, pattern) is not None for pattern in patterns):
            raise ApiError(codes[2])
    except TooManyComparisonsError as error:
        raise config_error(str(error)) from error


def _is_consumer_valid(source: StreamSource) -> bool:
    """Whether a durable that somebody has made says itself what it delivers, and where to."""
    consumer = source.consumer
    if consumer is None:
        return True
    if source.opt_start_seq or source.opt_start_time or source.filter_subject:
        return False
    return is_name(consumer.name) and is_literal(consumer.deliver_subject.encode())


def _check_prefixes(config: StreamConfig, lookup: Lookup) -> None:
    """Prefixes of other accounts and domains lead out of this one."""
    externals = [s.external for s in upstreams(config) if s.external is not None]
    for external in externals:
        if not external.deliver:
            continue
        prefix = external.deliver.encode()
        if has_wildcard(prefix):
            raise ApiError(ErrorCode.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ, prefix=external.deliver)
        for subject in _subjects_of_local(config, lookup):
            if overlaps(subject.encode(), prefix):
                raise ApiError(
                    ErrorCode.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS,
                    prefix=external.deliver,
                    subject=subject,
                )
    for external in externals:
        if not external.api:
            continue
        if not is_literal(external.api.encode()):
            raise config_error(
                f'stream external api prefix "{external.api}" must be a valid subject without '
                "wildcards"
            )
        if external.api == API_PREFIX:
            raise ApiError(
                ErrorCode.STREAM_EXTERNAL_API_OVERLAP, prefix=external.api, subject=API_PREFIX
            )


def _subjects_of_local(config: StreamConfig, lookup: Lookup) -> Iterator[str]:
    for source in upstreams(config):
        upstream = lookup(source.name) if source.external is None else None
        if upstream is not None:
            yield from upstream.subjects


def check_loops(config: StreamConfig, lookup: Lookup) -> None:
    """No message may come back to a stream that it came from.

    Raises `ApiError` STREAM_INVALID_CONFIG.
    """
    path = {config.name: config}
    ways = [iter(upstreams(config))]  # out of each stream on the path
    done: set[str] = set()
    while ways:
        source = next(ways[-1], None)
        if source is None:
            ways.pop()
            done.add(path.popitem()[0])
            continue
        if source.external is not None or source.name in done:
            continue
        current = next(reversed(path.values()))
        if source.name in path:
            if source is current.mirror or _passes(current, source.filter_subject):
                raise config_error("detected cycle")
            continue
        upstream = lookup(source.name)
        if upstream is not None:
            path[upstream.name] = upstream
            ways.append(iter(upstreams(upstream)))


def _passes(config: StreamConfig, pattern: str) -> bool:
    """Whether what `pattern` lets through can be what the stream itself is published."""
    return not pattern or any(overlaps(s.encode(), pattern.encode()) for s in config.subjects)


def check_filters(config: StreamConfig) -> None:
    """Whether one can subscribe to the filters. Raises `ApiError` STREAM_CREATE."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_pattern(_filter(mirror)):
        text = f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
        raise ApiError(ErrorCode.STREAM_CREATE, err=text)
    for source in config.sources:
        if source.filter_subject and not is_pattern(_filter(source)):
            text = f"subject filter '{source.filter_subject}' for the source: invalid subject"
            raise ApiError(ErrorCode.STREAM_CREATE, err=text)


def _filter(source: StreamSource) -> bytes:
    return source.filter_subject.encode()


def index_name(source: StreamSource) -> str:
    """What tells the sources of one stream apart, as nats-server writes it into messages: the
    upstream's name, its filters and what the subjects become."""
    name = source.name
    if source.external is not None:
        name += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        name += ":C=" + short_hash(source.consumer.name)
    if source.subject_transforms:
        filters = "\f".join(transform.src or ">" for transform in source.subject_transforms)
        dests = "\f".join(transform.dest or ">" for transform in source.subject_transforms)
        return f"{name} {filters} {dests}"
    return f"{name} {source.filter_subject or '>'} >"


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def short_hash(text: str) -> str:
    """Eight letters and digits that stand for `text`, as nats-server makes them."""
    return "".join(_DIGITS[byte % 62] for byte in sha256(text.encode()).digest()[:8])
