"""The calls that create, show, change and delete consumers
(docs/protocol/api.md#calls-for-consumers)."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.api.consumer_info import consumer_info
from slipstream.engine.api.covered import covered, covered_consumer
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
    PageRequest,
    PauseRequest,
    ResetRequest,
    read_optional,
)
from slipstream.engine.consumer.checks import (
    check_config,
    check_group_name,
    check_name,
    check_retention,
    check_update,
    same,
)
from slipstream.engine.consumer.config import ConsumerConfig, fill_defaults
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.doubt import go_back, trust_consumer
from slipstream.engine.consumer.life import discard_consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.consumer.restore import begin_consumer
from slipstream.engine.consumer.upstream import fit_to_retention, identify, take_up
from slipstream.engine.protocol.errors import ApiError, bad_json
from slipstream.engine.protocol.json_body import (
    convert,
    decode,
    go_words_lenient,
    parse,
    read_lenient,
)
from slipstream.engine.stream.retention import drop_unneeded
from slipstream.engine.stream.stream import Stream
from slipstream.errors import StorageError
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import ZERO, ZERO_TEXT, read_time, utc_text

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import ConsumerInfo, ConsumerPauseInfo

NAMES_PER_PAGE = 1024
INFOS_PER_PAGE = 256
ACTIONS = ("", "create", "update")
_PAGE_ZEROS = {"total": 0, "offset": 0, "limit": 0}


class CreateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """CONSUMER.CREATE."""

    stream_name: str = ""
    config: dict[str, Any] = {}
    action: str = ""
    pedantic: bool = False


def find(js: "JetStream", stream: str, name: str) -> Consumer:
    """A consumer by name. Raises `ApiError` STREAM_NOT_FOUND, CONSUMER_NOT_FOUND."""
    found = js.find(stream)
    consumer: Consumer | None = found.consumers.get(name) or found.direct_consumers.get(name)
    if consumer is None:
        raise ApiError(ErrorCode.CONSUMER_NOT_FOUND)
    return consumer


def _read(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    raw = decode(request.body)
    asked: CreateRequest = convert(raw, CreateRequest, {"action": ACTIONS}, request.strict)
    config: ConsumerConfig = convert(
        asked.config, ConsumerConfig, ConsumerConfig.words, request.strict
    )
    if asked.stream_name != request.tokens[0]:
        raise ApiError(ErrorCode.STREAM_MISMATCH)
    return asked, config


def _identify(js: "JetStream", request: Request) -> None:
    """Have the answer say which stream this is. Raises `ApiError`
    CONSUMER_STREAM_IDENTITY_MISMATCH."""
    stream = js.streams.get(request.tokens[0])
    if stream is not None:
        request.answer_header = identify(stream, request.message)


def create(js: "JetStream", request: Request) -> Fields | WhenDurable:
    """CONSUMER.CREATE.<stream>[.<consumer>[.<filter>]]."""
    asked, config = _read(request)
    if config.sourcing:
        _identify(js, request)
    if len(request.tokens) == 1:
        if config.durable_name:
            raise ApiError(ErrorCode.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME)
        name = config.name or js.engine.new_id()[-8:]
        check_name(name)
        return _create(js, request.tokens[0], name, config, asked, auto=not config.name)
    name = request.tokens[1]
    if "/" in name or "\\" in name:
        raise ApiError(ErrorCode.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS)
    check_name(name)
    if config.durable_name and config.durable_name != name:
        raise ApiError(ErrorCode.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    if len(request.tokens) > 2:
        if config.filter_subjects:
            raise ApiError(ErrorCode.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED)
        if ".".join(request.tokens[2:]) != config.filter_subject:
            raise ApiError(ErrorCode.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH)
    config.name = name
    return _create(js, request.tokens[0], name, config, asked)


def create_durable(js: "JetStream", request: Request) -> Fields | WhenDurable:
    """CONSUMER.DURABLE.CREATE.<stream>.<consumer>."""
    asked, config = _read(request)
    if not config.durable_name:
        raise ApiError(ErrorCode.CONSUMER_DURABLE_NAME_NOT_SET)
    if config.durable_name != request.tokens[1]:
        raise ApiError(ErrorCode.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT)
    check_name(config.durable_name)
    config.name = config.durable_name
    return _create(js, request.tokens[0], config.durable_name, config, asked)


def _create(
    js: "JetStream",
    stream_name: str,
    name: str,
    config: ConsumerConfig,
    asked: CreateRequest,
    auto: bool = False,
) -> Fields | WhenDurable:
    stream = js.find(stream_name)
    if config.durable_name and config.name and config.durable_name != config.name:
        raise ApiError(ErrorCode.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH)
    if config.num_replicas > 1 and js.engine.group is None:
        raise ApiError(ErrorCode.STREAM_REPLICAS_NOT_SUPPORTED)
    if config.sourcing:
        name = fit_to_retention(stream, name, config)
    server = js.engine.options.jetstream_limits
    fill_defaults(config, stream.config.consumer_limits, server, js.limits, asked.pedantic)
    check_config(stream, config)
    existing = stream.consumers.get(name)
    if existing is not None and config.sourcing and existing.config.sourcing:
        again = existing  # for the closures
        return WhenDurable(
            lambda done: take_up(again, config, done),
            lambda: covered_consumer(again, consumer_info(again)),
            ErrorCode.CONSUMER_STORE_FAILED,
        )
    if existing is not None:
        if asked.action == "create":
            if not same(existing.config, config):
                raise ApiError(ErrorCode.CONSUMER_ALREADY_EXISTS)
            return covered_consumer(existing, consumer_info(existing))
        return _update(stream, existing, config)
    if asked.action == "update":
        raise ApiError(ErrorCode.CONSUMER_DOES_NOT_EXIST)
    check_retention(stream, config, name)
    if not config.direct:
        _check_count(js, stream)
    consumer = begin_consumer(stream, name, config)
    info = consumer_info(consumer)
    if auto:
        info["config"].pop("name", None)
    if consumer.store is None or consumer.store.is_ephemeral:  # the files of this one may wait
        return info

    def wait(done: Done) -> None:
        def kept(error: Exception | None) -> None:
            if error is not None:
                consumer.life.abandon()
            done(error)

        js.when_kept(kept)

    return WhenDurable(all_of(wait, *_unsettled(stream)), info, ErrorCode.CONSUMER_STORE_FAILED)


def _unsettled(stream: Stream) -> list[Wait]:
    """Waits for messages on their way to the disk, which a new position has been counted with."""
    return [] if stream.is_settled else [stream.when_settled]


def _check_count(js: "JetStream", stream: Stream) -> None:
    most = stream.config.max_consumers
    if most <= 0:
        most = js.engine.options.jetstream_limits.default_max_consumers
    if 0 < most <= len(stream.consumers):
        raise ApiError(ErrorCode.MAXIMUM_CONSUMERS_LIMIT)
    account = js.limits.max_consumers
    if 0 <= account <= sum(len(s.consumers) for s in js.streams.values()):
        raise ApiError(ErrorCode.MAXIMUM_CONSUMERS_LIMIT)


def _update(stream: Stream, consumer: Consumer, config: ConsumerConfig) -> WhenDurable:
    old = consumer.life.newest_config
    config.pause_until = old.pause_until
    # A listener where it delivered keeps it there, also one that it does not deliver to.
    is_bound = old.is_push and stream.account.has_interest(old.deliver_subject.encode())
    check_retention(stream, config, consumer.name)
    check_update(old, config, is_bound)
    in_doubt = consumer.name in stream.doubtful

    def answer() -> Fields | Covered:
        return covered_consumer(consumer, consumer_info(consumer))

    if same(old, config) and not in_doubt:
        return WhenDurable(stream.js.when_kept, answer, ErrorCode.CONSUMER_STORE_FAILED)

    def wait(done: Done) -> None:
        def kept(error: Exception | None) -> None:
            if error is not None:
                done(error)
            else:
                _change(stream, consumer, config)
                _when_removed(stream)(done)

        consumer.life.keep_config(config, kept)

    return WhenDurable(wait, answer, ErrorCode.CONSUMER_STORE_FAILED)


def _change(stream: Stream, consumer: Consumer, config: ConsumerConfig) -> None:
    """Have a consumer work by `config`, which is kept."""
    old = consumer.config
    delivery = consumer.delivery
    in_doubt = consumer.name in stream.doubtful
    refiltered = config.filters != consumer.filters
    if refiltered:
        stream.unlink_filters(consumer)
    consumer.configure(config)
    if config.dead_letter:
        consumer.letters.take_exhausted()
        consumer.letters.wake()
    delivery.configured()
    if refiltered:
        stream.link_filters(consumer)
        if consumer.pending.size:
            stream.refiltered[consumer] = None
        consumer.recount()
        if stream.config.retention == "interest":
            drop_unneeded(stream)
            consumer.look_again()  # what only it has out may have gone
    moved = (
        old.deliver_subject != config.deliver_subject or old.deliver_group != config.deliver_group
    )
    if isinstance(delivery, PushDelivery) and moved:
        delivery.rebind(config.deliver_subject, config.deliver_group)
    if in_doubt:
        if refiltered:
            go_back(consumer, consumer.life.restored_at)
        trust_consumer(stream, consumer.name)
    consumer.life.tick()
    consumer.wake()


def _when_removed(stream: Stream) -> Wait:
    """Waits until what the stream has let go for a consumer survives a crash."""
    return stream.when_durable if stream.config.retention != "limits" else all_of()


def info(js: "JetStream", request: Request) -> Fields | WhenDurable:
    """CONSUMER.INFO."""
    if not request.is_empty:
        raise ApiError(ErrorCode.NOT_EMPTY_REQUEST)
    consumer = find(js, *request.tokens)
    return covered_consumer(consumer, consumer_info(consumer))


def delete(js: "JetStream", request: Request) -> WhenDurable:
    """CONSUMER.DELETE."""
    if not request.is_empty:
        raise ApiError(ErrorCode.NOT_EMPTY_REQUEST)
    stream, name = js.find(request.tokens[0]), request.tokens[1]
    waits = [_when_removed(stream)]
    try:
        if name in stream.doubtful and name not in stream.consumers:
            discard_consumer(stream, stream.store.consumer(name))
            waits.append(js.when_kept)
        else:
            consumer = find(js, stream.name, name)
            if consumer.store is not None:
                waits.append(js.when_kept)
            consumer.stop("Consumer Deleted", delete=True)
    except (OSError, StorageError) as error:
        raise ApiError(
            ErrorCode.CONSUMER_CREATE, err=f"consumer cannot be deleted: {error}"
        ) from error
    trust_consumer(stream, name)
    return WhenDurable(all_of(*waits), {"success": True}, ErrorCode.CONSUMER_CREATE)


def names(js: "JetStream", request: Request) -> Fields | Covered:
    """CONSUMER.NAMES."""
    asked = read_optional(request, PageRequest)
    stream = js.find(request.tokens[0])
    paging, shown = page(sorted(stream.consumers), asked.offset, NAMES_PER_PAGE)
    return covered(js, {**paging, "consumers": shown})


def list_infos(js: "JetStream", request: Request) -> Fields | Covered:
    """CONSUMER.LIST."""
    asked = read_optional(request, PageRequest)
    stream = js.find(request.tokens[0])
    paging, names = page(sorted(stream.consumers), asked.offset, INFOS_PER_PAGE)
    shown = [stream.consumers[name] for name in names]
    answer = {**paging, "consumers": [consumer_info(one, False) for one in shown]}
    return covered(js, answer, [stream], shown)


def pause(js: "JetStream", request: Request) -> WhenDurable:
    """CONSUMER.PAUSE: until a time, or resume."""
    asked = read_optional(request, PauseRequest)
    until = read_time(asked.pause_until).ns if asked.pause_until else ZERO
    consumer = find(js, *request.tokens)
    try:
        shown = utc_text(until)
    except ValueError as error:
        detail = f"json: error calling MarshalJSON for type *time.Time: {error}"
        raise ApiError(ErrorCode.CONSUMER_STORE_FAILED, err=detail) from error

    def answer() -> "ConsumerPauseInfo":
        fields: ConsumerPauseInfo = {"paused": bool(consumer.paused_until), "pause_until": shown}
        if consumer.paused_until:
            fields["pause_remaining"] = consumer.paused_until - consumer.clock.now
        return fields

    return WhenDurable(
        lambda done: consumer.life.pause(until, done), answer, ErrorCode.CONSUMER_STORE_FAILED
    )


def reset(js: "JetStream", request: Request) -> WhenDurable | None:
    """CONSUMER.RESET: back to the ack floor, or to a sequence."""
    stream = js.streams.get(request.tokens[0])
    consumer = stream.consumers.get(request.tokens[1]) if stream else None
    if consumer is None:
        return None
    if consumer.config.ack_policy == "flow_control":
        _identify(js, request)
    try:
        body = request.body.strip()
        asked = read_lenient(body, ResetRequest) if body else ResetRequest()
    except msgspec.MsgspecError as error:
        raise bad_json(go_words_lenient(error)) from error
    seq = asked.seq
    policy = consumer.config.deliver_policy
    if seq:
        if policy not in ("all", "by_start_sequence", "by_start_time"):
            raise ApiError(ErrorCode.CONSUMER_INVALID_RESET, err="not allowed")
        if policy == "by_start_sequence" and seq < consumer.config.opt_start_seq:
            raise ApiError(ErrorCode.CONSUMER_INVALID_RESET, err="below start seq")
    else:
        seq = consumer.floor_stream_seq + 1
    consumer.life.restart_at(seq)
    answer: ConsumerInfo = {**consumer_info(consumer), "reset_seq": seq}

    def wait(done: Done) -> None:
        consumer.life.when_saved(lambda: done(None), done)

    return WhenDurable(all_of(wait, *_unsettled(consumer.stream)), answer)


def unpin(js: "JetStream", request: Request) -> Fields:
    """CONSUMER.UNPIN: the next client that asks gets the pin."""
    try:
        asked = parse(request.body)
    except msgspec.DecodeError as error:
        raise bad_json(go_words_lenient(error)) from error
    group = asked.get("group") if isinstance(asked, dict) else None
    if not group:
        raise bad_json("consumer group not specified")
    if not isinstance(group, str):
        raise bad_json(f"Expected `str`, got `{type(group).__name__}` - at `$.group`")
    check_group_name(group)
    delivery = find(js, *request.tokens).delivery
    if not isinstance(delivery, PullDelivery) or delivery.groups is None:
        raise ApiError(ErrorCode.CONSUMER_INVALID_PRIORITY_GROUP)
    if group not in delivery.consumer.config.priority_groups:
        raise ApiError(ErrorCode.CONSUMER_INVALID_PRIORITY_GROUP)
    delivery.groups.unpin(group, "admin")
    return {}


OPERATIONS = [
    Operation("CONSUMER.CREATE", -1, "consumer_create_response", create, {}),
    Operation("CONSUMER.DURABLE.CREATE", 2, "consumer_create_response", create_durable, {}),
    Operation(
        "CONSUMER.NAMES", 1, "consumer_names_response", names, {**_PAGE_ZEROS, "consumers": []}
    ),
    Operation(
        "CONSUMER.LIST", 1, "consumer_list_response", list_infos, {**_PAGE_ZEROS, "consumers": []}
    ),
    Operation("CONSUMER.INFO", 2, "consumer_info_response", info, {}),
    Operation("CONSUMER.DELETE", 2, "consumer_delete_response", delete, {}),
    Operation(
        "CONSUMER.PAUSE",
        2,
        "consumer_pause_response",
        pause,
        {"paused": False, "pause_until": ZERO_TEXT},
    ),
    Operation(
        "CONSUMER.RESET", 2, "consumer_reset_response", reset, {"reset_seq": 0}, counted=False
    ),
    Operation("CONSUMER.UNPIN", 2, "consumer_unpin_response", unpin, {}),
]
