"""The calls that create, show, change and delete consumers (spec jetstream-api.md 4.2)."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.api.consumer_info import consumer_info
from slipstream.engine.api.dispatch import Operation, Request, page
from slipstream.engine.api.requests import (
    PageRequest,
    PauseRequest,
    ResetRequest,
    read_body,
    read_optional,
)
from slipstream.engine.consumer import Consumer
from slipstream.engine.consumer_checks import (
    check_config,
    check_name,
    check_retention,
    check_update,
    same,
)
from slipstream.engine.consumer_config import ENUMS, ConsumerConfig, fill_defaults
from slipstream.engine.consumer_life import pause_moment
from slipstream.engine.consumer_restore import begin_consumer
from slipstream.engine.errors import ApiError, bad_json
from slipstream.engine.json_body import convert, decode, parse
from slipstream.engine.push import PushDelivery
from slipstream.engine.retention import drop_unneeded
from slipstream.engine.rfc3339 import time_text
from slipstream.engine.stream import Stream
from slipstream.errors import StorageError

if TYPE_CHECKING:
    from slipstream.engine.jetstream import JetStream

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
    """A consumer by name. Raises `ApiError` 10059, 10014."""
    consumer: Consumer | None = js.find(stream).consumers.get(name)
    if consumer is None:
        raise ApiError(10014)
    return consumer


def _read(request: Request) -> tuple[CreateRequest, ConsumerConfig]:
    asked: CreateRequest = convert(decode(request.body), CreateRequest, {}, request.strict)
    if asked.action not in ACTIONS:
        raise bad_json(f'unknown consumer action: "{asked.action}"')
    config: ConsumerConfig = convert(asked.config, ConsumerConfig, ENUMS, request.strict)
    if asked.stream_name != request.tokens[0]:
        raise ApiError(10056)
    return asked, config


def create(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.CREATE.<stream>[.<consumer>[.<filter>]]."""
    asked, config = _read(request)
    if len(request.tokens) == 1:
        if config.durable_name:
            raise ApiError(10020)
        name = config.name or js.engine.new_id()[-8:]
        check_name(name)
        return _create(js, request.tokens[0], name, config, asked.action, auto=not config.name)
    name = request.tokens[1]
    if "/" in name or "\\" in name:
        raise ApiError(10127)
    check_name(name)
    if config.durable_name and config.durable_name != name:
        raise ApiError(10017)
    if len(request.tokens) > 2:
        if config.filter_subjects:
            raise ApiError(10137)
        if ".".join(request.tokens[2:]) != config.filter_subject:
            raise ApiError(10131)
    config.name = name
    return _create(js, request.tokens[0], name, config, asked.action)


def create_durable(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.DURABLE.CREATE.<stream>.<consumer>."""
    asked, config = _read(request)
    if not config.durable_name:
        raise ApiError(10018)
    if config.durable_name != request.tokens[1]:
        raise ApiError(10017)
    check_name(config.durable_name)
    config.name = config.durable_name
    return _create(js, request.tokens[0], config.durable_name, config, asked.action)


def _create(
    js: "JetStream",
    stream_name: str,
    name: str,
    config: ConsumerConfig,
    action: str,
    auto: bool = False,
) -> dict[str, Any]:
    stream = js.find(stream_name)
    if config.durable_name and config.name and config.durable_name != config.name:
        raise ApiError(10132)
    if config.num_replicas > 1:
        raise ApiError(10074)
    limit = js.engine.options.jetstream_limits.max_ack_pending
    fill_defaults(config, stream.config.consumer_limits, limit)
    check_config(stream, config)
    existing = stream.consumers.get(name)
    if existing is not None:
        if action == "create":
            if not same(existing.config, config):
                raise ApiError(10148)
            return consumer_info(existing)
        return _update(stream, existing, config)
    if action == "update":
        raise ApiError(10149)
    check_retention(stream, config, name)
    _check_count(js, stream)
    consumer = begin_consumer(stream, name, config)
    info = consumer_info(consumer)
    if auto:
        info["config"].pop("name", None)
    return info


def _check_count(js: "JetStream", stream: Stream) -> None:
    most = stream.config.max_consumers
    if most <= 0:
        most = js.engine.options.jetstream_limits.default_max_consumers
    if 0 < most <= len(stream.consumers):
        raise ApiError(10026)
    account = js.limits.max_consumers
    if 0 <= account <= sum(len(s.consumers) for s in js.streams.values()):
        raise ApiError(10026)


def _update(stream: Stream, consumer: Consumer, config: ConsumerConfig) -> dict[str, Any]:
    old = consumer.config
    config.pause_until = old.pause_until
    delivery = consumer.delivery
    # Whoever listens where it delivered keeps it there, also if it does not deliver to him.
    is_bound = old.is_push and stream.account.has_interest(old.deliver_subject.encode())
    check_retention(stream, config, consumer.name)
    check_update(old, config, is_bound)
    if same(old, config):
        return consumer_info(consumer)
    consumer.life.save_config(config)
    refiltered = config.filters != consumer.filters
    if refiltered:
        stream.unlink_filters(consumer)
    consumer.configure(config)
    delivery.configured()
    if refiltered:
        stream.link_filters(consumer)
        if consumer.pending.size and consumer not in stream.strays:
            stream.strays.append(consumer)
        consumer.recount()
        if stream.config.retention == "interest":
            drop_unneeded(stream)
            consumer.look_again()  # what only it has out may have gone
    moved = (
        old.deliver_subject != config.deliver_subject or old.deliver_group != config.deliver_group
    )
    if isinstance(delivery, PushDelivery) and moved:
        delivery.rebind(config.deliver_subject, config.deliver_group)
    consumer.life.tick()
    consumer.wake()
    return consumer_info(consumer)


def info(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.INFO."""
    if not request.is_empty:
        raise ApiError(10038)
    return consumer_info(find(js, *request.tokens))


def delete(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.DELETE."""
    if not request.is_empty:
        raise ApiError(10038)
    try:
        find(js, *request.tokens).stop("Consumer Deleted", delete=True)
    except (OSError, StorageError) as error:
        raise ApiError(10012, err=f"consumer can not be deleted: {error}") from error
    return {"success": True}


def names(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.NAMES."""
    asked = read_optional(request, PageRequest)
    stream = js.find(request.tokens[0])
    paging, shown = page(sorted(stream.consumers), asked.offset, NAMES_PER_PAGE)
    return {**paging, "consumers": shown}


def list_infos(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.LIST."""
    asked = read_optional(request, PageRequest)
    consumers = js.find(request.tokens[0]).consumers
    paging, shown = page(sorted(consumers), asked.offset, INFOS_PER_PAGE)
    return {**paging, "consumers": [consumer_info(consumers[name], False) for name in shown]}


def pause(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.PAUSE: until a time, or resume."""
    asked = read_optional(request, PauseRequest)
    until = pause_moment(asked.pause_until)
    consumer = find(js, *request.tokens)
    consumer.life.pause(until)
    answer: dict[str, Any] = {
        "paused": bool(consumer.paused_until),
        "pause_until": time_text(until),
    }
    if consumer.paused_until:
        answer["pause_remaining"] = consumer.paused_until - consumer.clock.now
    return answer


def reset(js: "JetStream", request: Request) -> dict[str, Any] | None:
    """CONSUMER.RESET: back to the ack floor, or to a sequence."""
    stream = js.streams.get(request.tokens[0])
    consumer = stream.consumers.get(request.tokens[1]) if stream else None
    if consumer is None:
        return None
    asked = read_body(request, ResetRequest) if request.body.strip() else ResetRequest()
    seq = asked.seq
    policy = consumer.config.deliver_policy
    if seq:
        if policy not in ("all", "by_start_sequence", "by_start_time"):
            raise ApiError(10204, err="not allowed")
        if policy == "by_start_sequence" and seq < consumer.config.opt_start_seq:
            raise ApiError(10204, err="below start seq")
    else:
        seq = consumer.floor_stream_seq + 1
    consumer.life.restart_at(seq)
    return {**consumer_info(consumer), "reset_seq": seq}


def unpin(js: "JetStream", request: Request) -> dict[str, Any]:
    """CONSUMER.UNPIN: no consumer has priority groups here."""
    try:
        asked = parse(request.body) if request.body.strip() else {}
    except msgspec.DecodeError as error:
        raise bad_json(str(error)) from error
    if not isinstance(asked, dict) or not asked.get("group"):
        raise bad_json("consumer group not specified")
    find(js, *request.tokens)
    raise ApiError(10160)


OPERATIONS = [
    Operation("CONSUMER.CREATE", -1, "consumer_create_response", create, {}),
    Operation("CONSUMER.DURABLE.CREATE", 2, "consumer_create_response", create_durable, {}),
    Operation(
        "CONSUMER.NAMES", 1, "consumer_names_response", names, {**_PAGE_ZEROS, "consumers": []}
    ),
    Operation(
        "CONSUMER.LIST", 1, "consumer_list_response", list_infos, {**_PAGE_ZEROS, "consumers": None}
    ),
    Operation("CONSUMER.INFO", 2, "consumer_info_response", info, {}),
    Operation("CONSUMER.DELETE", 2, "consumer_delete_response", delete, {}),
    Operation(
        "CONSUMER.PAUSE",
        2,
        "consumer_pause_response",
        pause,
        {"paused": False, "pause_until": time_text(0)},
    ),
    Operation(
        "CONSUMER.RESET", 2, "consumer_reset_response", reset, {"reset_seq": 0}, counted=False
    ),
    Operation("CONSUMER.UNPIN", 2, "consumer_unpin_response", unpin, {}),
]
