"""The calls that create, show, change and delete streams
(docs/protocol/api.md#calls-for-streams)."""

from typing import TYPE_CHECKING

from slipstream.engine.api.covered import covered, covered_stream
from slipstream.engine.api.dispatch import (
    Covered,
    Done,
    Fields,
    Operation,
    Request,
    Wait,
    WhenDurable,
    all_of,
    page,
)
from slipstream.engine.api.requests import (
    StreamInfoRequest,
    StreamPageRequest,
    read_optional,
)
from slipstream.engine.api.stream_info import SUBJECTS_PER_PAGE, stream_info, subject_counts
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.stream.checks import (
    check_asked,
    check_create,
    check_filled,
    check_overlap,
    check_place,
    check_replicas,
    check_request,
    check_update,
)
from slipstream.engine.stream.config import StreamConfig, fill_defaults, read_config, same, seal
from slipstream.engine.stream.retention import drop_acked, enforce_all, thinned
from slipstream.engine.stream.stream import Stream
from slipstream.engine.stream.upstream_checks import check_filters
from slipstream.errors import StorageError
from slipstream.model.error_codes import ErrorCode

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import StreamAlternate, StreamInfo

NAMES_PER_PAGE = 1024
INFOS_PER_PAGE = 256
_PAGE_ZEROS = {"total": 0, "offset": 0, "limit": 0}


def _read_checked(js: "JetStream", request: Request, is_new: bool) -> StreamConfig:
    """The configuration of a create or update request, with defaults, checked by itself."""
    config = read_config(request.body, request.strict)
    if is_new:
        check_request(config, request.tokens[0])
        check_create(config)
    check_asked(config)
    limit = js.engine.options.jetstream_limits.duplicate_window
    shrunk = fill_defaults(config, limit)
    check_filled(config, shrunk, limit, js.config_of)
    if not is_new:
        check_request(config, request.tokens[0])
    config.pedantic = False
    return config


def create(js: "JetStream", request: Request) -> Fields | WhenDurable:
    """STREAM.CREATE: succeeds again for the same configuration."""
    config = _read_checked(js, request, is_new=True)
    check_replicas(config, js.engine)
    existing = js.streams.get(config.name)
    if existing is not None:
        if not same(existing.config, config):
            raise ApiError(ErrorCode.STREAM_NAME_EXIST)
        answer: StreamInfo = {**stream_info(existing)}
        if js.engine.group is None:  # a cluster does not say so of a stream that was there
            answer["did_create"] = True
        return covered_stream(existing, answer)
    if config.name in js.arriving:
        raise ApiError(ErrorCode.STREAM_NAME_EXIST)
    js.check_account(config, is_new=True)
    check_overlap(config, js.claims)
    check_filters(config)
    check_place(config, js.engine)
    stream = js.create_stream(config)
    answer = {**stream_info(stream), "did_create": True}
    js.advisories.stream_action("CREATED", "create", stream.name)  # the stream may store it
    return WhenDurable(_when_kept(js, stream), answer, ErrorCode.STREAM_CREATE)


def update(js: "JetStream", request: Request) -> WhenDurable:
    """STREAM.UPDATE: the whole configuration, not a patch."""
    config = _read_checked(js, request, is_new=False)
    stream = js.find(config.name)
    old = stream.config
    check_replicas(config, js.engine)
    check_update(old, config)
    if config.sealed:
        seal(config)
    _check_consumers(stream, config)
    js.check_account(config, is_new=False)
    check_overlap(config, js.claims)
    check_filters(config)
    if (config.num_replicas, config.placement) != (old.num_replicas, old.placement):
        check_place(config, js.engine)
    js.update_stream(stream, config)

    def wait(done: Done) -> None:
        def kept(error: Exception | None) -> None:
            if error is None and stream.closed:
                error = StorageError(f"stream {stream.name} has ended; ask for it again")
            if error is None:  # what goes by the change goes after it
                try:
                    enforce_all(stream)
                    if config.retention == "interest" and old.retention != "interest":
                        drop_acked(stream)
                        thinned(stream)
                except (OSError, StorageError) as refused:  # the disk has failed meanwhile
                    error = refused
            if error is None:
                stream.when_durable(done)
            else:
                done(error)

        _when_kept(js, stream)(kept)

    def answer() -> Fields | Covered:
        return covered_stream(stream, stream_info(stream))

    return WhenDurable(wait, answer, failure=ErrorCode.STREAM_UPDATE)


def _when_kept(js: "JetStream", stream: Stream) -> Wait:
    """Waits until what the stream's files are to have is durable; in memory for nothing."""
    return js.when_kept if stream.store is not None else all_of()


def _check_consumers(stream: Stream, config: StreamConfig) -> None:
    """New bounds for consumers must hold for those that are there."""
    limits = config.consumer_limits
    violating = [
        name
        for name, consumer in stream.consumers.items()
        if (limits.max_ack_pending and consumer.config.max_ack_pending > limits.max_ack_pending)
        or (
            limits.inactive_threshold
            and consumer.config.inactive_threshold > limits.inactive_threshold
        )
    ]
    if violating:
        names = ", ".join(sorted(violating))
        raise ApiError(ErrorCode.STREAM_UPDATE, err=f"change to limits violates consumers: {names}")


def delete(js: "JetStream", request: Request) -> WhenDurable:
    """STREAM.DELETE."""
    if not request.is_empty:
        raise ApiError(ErrorCode.NOT_EMPTY_REQUEST)
    stream = js.find(request.tokens[0])
    js.delete_stream(stream)
    return WhenDurable(_when_kept(js, stream), {"success": True}, ErrorCode.STREAM_TEMPLATE_DELETE)


def info(js: "JetStream", request: Request) -> Fields | Covered:
    """STREAM.INFO, with deleted sequences and subjects on demand."""
    asked = read_optional(request, StreamInfoRequest)
    stream = js.find(request.tokens[0])
    answer: StreamInfo = {"total": 0, "offset": 0, "limit": 0, **stream_info(stream)}
    group = js.engine.group
    if group is None:
        answer["cluster"] = {"leader": js.engine.server_name}
    elif len(names := _copies(js, stream)) > 1:
        where: StreamAlternate = {"domain": js.domain} if js.domain else {}
        where["cluster"] = group.name
        answer["alternates"] = [{"name": name, **where} for name in names]
    state = answer["state"]
    if asked.deleted_details:
        deleted = [seq for seq in stream.log.deleted() if seq <= state["last_seq"]]
        if deleted:
            state["deleted"] = deleted
    if asked.subjects_filter:
        counts = subject_counts(stream, asked.subjects_filter)
        if counts:
            paging, names = page(list(counts), asked.offset, SUBJECTS_PER_PAGE)
            answer["total"], answer["limit"] = paging["total"], paging["limit"]
            answer["offset"] = max(asked.offset, 0)
            if names:
                state["subjects"] = {name: counts[name] for name in names}
    return covered_stream(stream, answer)


def _copies(js: "JetStream", stream: Stream) -> list[str]:
    """A stream and the mirrors of it: any of them has its messages."""
    mirrors = [
        one.name
        for one in js.streams.values()
        if one.config.mirror is not None
        and one.config.mirror.name == stream.name
        and one.config.mirror.external is None
    ]
    return [stream.name, *sorted(mirrors)]


def _selected(js: "JetStream", subject: str) -> list[Stream]:
    """The streams with a subject that overlaps with `subject`, by name."""
    names = sorted(js.claims.owners(subject) if subject else js.streams)
    return [js.streams[name] for name in names]


def names(js: "JetStream", request: Request) -> Fields | Covered:
    """STREAM.NAMES."""
    asked = read_optional(request, StreamPageRequest)
    found = [stream.name for stream in _selected(js, asked.subject)]
    paging, shown = page(found, asked.offset, NAMES_PER_PAGE)
    return covered(js, {**paging, "streams": shown or None})


def list_infos(js: "JetStream", request: Request) -> Fields | Covered:
    """STREAM.LIST."""
    asked = read_optional(request, StreamPageRequest)
    paging, shown = page(_selected(js, asked.subject), asked.offset, INFOS_PER_PAGE)
    infos = [stream_info(stream, with_version=False) for stream in shown]
    return covered(js, {**paging, "streams": infos}, shown)


OPERATIONS = [
    Operation("STREAM.CREATE", 1, "stream_create_response", create, {}),
    Operation("STREAM.UPDATE", 1, "stream_update_response", update, {}),
    Operation("STREAM.DELETE", 1, "stream_delete_response", delete, {}),
    Operation("STREAM.INFO", 1, "stream_info_response", info, _PAGE_ZEROS),
    Operation("STREAM.NAMES", 0, "stream_names_response", names, {**_PAGE_ZEROS, "streams": None}),
    Operation("STREAM.LIST", 0, "stream_list_response", list_infos, {**_PAGE_ZEROS, "streams": []}),
]
