"""What the headers of a schedule say, and which schedules a stream refuses (ADR-51)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.cron import Pattern, read_pattern, read_zone
from slipstream.engine.stream.ttl import INVALID, parse_ttl
from slipstream.log.record import Record
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_ROLLUP,
    NATS_SCHEDULE,
    NATS_SCHEDULE_NEXT,
    NATS_SCHEDULE_ROLLUP,
    NATS_SCHEDULE_SOURCE,
    NATS_SCHEDULE_TARGET,
    NATS_SCHEDULE_TIME_ZONE,
    NATS_SCHEDULE_TTL,
    NATS_SCHEDULER,
)
from slipstream.wire.headers import find, with_fields, without
from slipstream.wire.subjects import is_literal, matches

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream


@dataclass(slots=True, frozen=True)
class Schedule:
    """When a message is published, where, and what it has."""

    pattern: Pattern
    target: bytes
    source: bytes  # the subject whose last message is published; b"" for the schedule itself
    ttl: bytes  # as it was written; b"" for none
    rolls_up: bool


def read_schedule(data: bytes, start: int, end: int) -> Schedule | None:
    """The schedule in the header block ``data[start:end]``; None if there is no valid one."""
    try:
        return _read(data, start, end)
    except ApiError:
        return None


def check_schedule(stream: "Stream", subject: bytes, message: Inbound) -> Schedule | None:
    """The schedule that a message is, whose header is made to say that it replaces the one before;
    None if it is none. Raises `ApiError`."""
    data, start, end = message.data, message.header_start, message.body_start
    if not find(data, start, end, NATS_SCHEDULE):
        return None
    if not stream.config.allow_msg_schedules:
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_DISABLED)
    schedule = _read(data, start, end)
    if schedule is None:
        return None
    if not schedule.pattern.next_after(stream.clock.now):
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_PATTERN_INVALID)
    if schedule.ttl and parse_ttl(schedule.ttl) == INVALID:
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_TTL_INVALID)
    if schedule.ttl and stream.ttls is None:
        raise ApiError(ErrorCode.MESSAGE_TTL_DISABLED)
    if (find(data, start, end, NATS_SCHEDULE_ROLLUP) or b"sub") != b"sub":
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    if schedule.target == subject or not _is_captured(stream, schedule.target):
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_TARGET_INVALID)
    source = schedule.source
    if source and (source in (subject, schedule.target) or not _is_captured(stream, source)):
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_SOURCE_INVALID)
    rollup = find(data, start, end, NATS_ROLLUP)
    if (rollup or b"sub").lower() != b"sub":
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    if not rollup:
        block = without(message.header(), NATS_ROLLUP)
        block = with_fields(block, [(NATS_ROLLUP, b"sub")])
        message.data = block + message.body()
        message.header_start = 0
        message.body_start = len(block)
        message.end = len(message.data)
    return schedule


def check_cancel(stream: "Stream", subject: bytes, message: Inbound) -> bytes:
    """The subject of the schedule that a message ends, b"" if it ends none. Raises `ApiError`."""
    data, start, end = message.data, message.header_start, message.body_start
    scheduler = find(data, start, end, NATS_SCHEDULER) or b""
    following = find(data, start, end, NATS_SCHEDULE_NEXT) or b""
    if not scheduler and not following:
        return b""
    if following != b"purge" or not scheduler or scheduler == subject:
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    if not stream.config.allow_msg_schedules:
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_DISABLED)
    if not is_literal(scheduler):
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    record = Record()
    seq = stream.log.last_of(scheduler)
    if seq and stream.log.read(seq, record):
        if not find(record.data, record.header_start, record.body_start, NATS_SCHEDULE):
            raise ApiError(ErrorCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    return scheduler


def _read(data: bytes, start: int, end: int) -> Schedule | None:
    def value(name: bytes) -> bytes:
        return find(data, start, end, name) or b""

    text = value(NATS_SCHEDULE)
    if not text:
        return None
    name = find(data, start, end, NATS_SCHEDULE_TIME_ZONE)
    zone = None
    if name is not None:
        try:
            zone = read_zone(name.decode("utf-8", "replace"))
        except ValueError:
            raise ApiError(ErrorCode.MESSAGE_SCHEDULES_TIME_ZONE_INVALID) from None
    try:
        pattern = read_pattern(text.decode("utf-8", "replace"), zone)
    except ValueError:
        raise ApiError(ErrorCode.MESSAGE_SCHEDULES_PATTERN_INVALID) from None
    return Schedule(
        pattern,
        value(NATS_SCHEDULE_TARGET),
        value(NATS_SCHEDULE_SOURCE),
        value(NATS_SCHEDULE_TTL),
        value(NATS_SCHEDULE_ROLLUP) == b"sub",
    )


def _is_captured(stream: "Stream", subject: bytes) -> bool:
    """Whether `subject` is one that messages can be published to, of this stream."""
    return is_literal(subject) and any(
        matches(pattern.encode(), subject) for pattern in stream.config.subjects
    )
