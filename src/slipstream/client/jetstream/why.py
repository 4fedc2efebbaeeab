"""Why a consumer delivers or does not, as far as a client can find out.

A Slipstream server is asked and knows everything. Of another server the facts come from
STREAM.INFO, CONSUMER.INFO and a look at the oldest messages; the reasons follow from them in the
same way.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError
from slipstream.client.jetstream.api import DEFAULT_PREFIX
from slipstream.client.jetstream.errors import MessageNotFoundError
from slipstream.model.durations import to_nanoseconds
from slipstream.model.infos import ConsumerInfo, StreamInfo
from slipstream.model.own_subjects import EXPLAIN
from slipstream.model.times import datetime_ns
from slipstream.model.why import (
    SHOWN_MAX,
    Explanation,
    Facts,
    KnownMessage,
    explain,
)

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

SEARCHED_MAX = 50  # messages that are looked at for those that used up their deliveries
FILTERS_MAX = 50  # that are asked for one by one


async def explain_consumer(js: "JetStream", info: ConsumerInfo) -> Explanation:
    """Why the consumer of `info` delivers or not. Raises what `JetStream.stream_info` raises."""
    told = await told_by_server(js, info)
    return explain(await _facts(js, info)) if told is None else told


async def told_by_server(js: "JetStream", info: ConsumerInfo) -> Explanation | None:
    """The answer of a Slipstream server; None where another one is asked."""
    if js.prefix != DEFAULT_PREFIX:
        return None  # it may be the consumer of another server or account
    subject = f"{EXPLAIN}{info.stream_name}.{info.name}"
    try:
        answer = await js.connection.request(subject, b"")
        return msgspec.json.decode(answer.data, type=Explanation)
    except (NoRespondersError, PermissionsError, TimeoutError, msgspec.ValidationError):
        return None  # also of a server whose version says it otherwise


def facts_of(info: ConsumerInfo) -> Facts:
    """What the info of a consumer says by itself, and nothing of its stream."""
    config = info.config
    facts = Facts(
        stream=info.stream_name,
        consumer=info.name,
        now=datetime_ns(info.ts or datetime.now(UTC)),
        messages=0,
        last_seq=0,
        deliver_subject=config.deliver_subject,
        deliver_group=config.deliver_group,
        deliver_new=config.deliver_policy == "new",
        ack_wait=to_nanoseconds(config.ack_wait, "ack_wait"),
        has_backoff=bool(config.backoff),
        max_ack_pending=config.max_ack_pending if config.ack_policy != "none" else 0,
        max_deliver=config.max_deliver,
        max_waiting=config.max_waiting,
        rate_limit_bps=config.rate_limit_bps,
        # A consumer that was given nothing yet stands before its start.
        delivered_seq=info.delivered.stream_seq if info.delivered.consumer_seq else 0,
        delivered_at=_ns(info.delivered.last_active),
        num_pending=info.num_pending,
        num_ack_pending=info.num_ack_pending,
        num_redelivered=info.num_redelivered,
        is_heard=info.push_bound,
        num_waiting=info.num_waiting,
    )
    if info.paused:
        facts.paused_until = facts.now + to_nanoseconds(info.pause_remaining, "pause_remaining")
    if config.deliver_policy == "by_start_sequence" and not facts.delivered_seq:
        facts.next_seq = config.opt_start_seq
    return facts


async def _facts(js: "JetStream", info: ConsumerInfo) -> Facts:
    """What any server says."""
    facts, stream = facts_of(info), await js.stream_info(info.stream_name)
    facts.messages, facts.last_seq = stream.state.messages, stream.state.last_seq
    if not facts.num_pending:
        facts.unmatched_filters = await _unmatched(js, info, stream)
    if facts.num_ack_pending:
        wanted = min(SHOWN_MAX, facts.num_ack_pending)
        facts.outstanding = await _after_the_floor(js, info, wanted)
        backoff = info.config.backoff
        waits = [facts.ack_wait, *(to_nanoseconds(step, "backoff") for step in backoff)]
        facts.redelivery_at = facts.delivered_at + max(waits)
    await _look_for_exhausted(facts, js, info)
    return facts


async def _unmatched(js: "JetStream", info: ConsumerInfo, stream: StreamInfo) -> list[str]:
    """Filters that no stored subject matches."""
    unmatched = []
    for pattern in info.config.filters[:FILTERS_MAX] if stream.state.messages else []:
        found = await js.stream_info(info.stream_name, subjects_filter=pattern)
        if not found.state.subjects:
            unmatched.append(pattern)
    return unmatched


async def _look_for_exhausted(facts: Facts, js: "JetStream", info: ConsumerInfo) -> None:
    """Messages that are not delivered again. A server says how many there are where there may be
    several deliveries, and never which: above the ack floor are also those that are out and those
    that were acknowledged early."""
    most, out = facts.max_deliver, facts.num_ack_pending
    count = max(facts.num_redelivered - out, 0)
    if most <= 0 or (not count and (most > 1 or out)):
        return
    found = await _after_the_floor(js, info, SEARCHED_MAX)
    facts.num_exhausted = count or len(found)
    facts.exhausted = found
    facts.is_exhausted_exact = len(found) == facts.num_exhausted


async def _after_the_floor(js: "JetStream", info: ConsumerInfo, most: int) -> list[KnownMessage]:
    """The oldest messages that it was given above the ack floor, as its filters accept them; none
    where these are many, each of which is a request for each message."""
    if len(info.config.filters) > FILTERS_MAX:
        return []
    stream = await js.stream(info.stream_name)
    found: list[KnownMessage] = []
    seq = info.ack_floor.stream_seq + 1
    while len(found) < most:
        following = []
        for pattern in info.config.filters or [">"]:
            try:
                following.append(await stream.get_next(seq, pattern, direct=False))
            except MessageNotFoundError:
                continue
        nearest = min(following, key=lambda message: message.sequence, default=None)
        if nearest is None or nearest.sequence > info.delivered.stream_seq:
            break
        found.append(KnownMessage(nearest.sequence, nearest.subject, _ns(nearest.time)))
        seq = nearest.sequence + 1
    return found


def _ns(moment: datetime | None) -> int:
    return 0 if moment is None else datetime_ns(moment)
