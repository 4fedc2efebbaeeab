"""What the engine knows about why a consumer delivers or does not, as `slipstream.model.why` asks
for it."""

from contextlib import suppress

from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.consumer.redelivery import redeliverable
from slipstream.engine.protocol.group import Group
from slipstream.engine.stream.stream import Stream
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.why import DeadLetterFacts, Facts, KnownMessage, ReasonCode

SHOWN_MAX = 10  # messages of a kind that are in the facts one by one
FILTERS_MAX = 50  # that are looked at one by one


def facts_of(consumer: Consumer) -> Facts:
    """Everything that is known about `consumer` now."""
    consumer.catch_up()
    stream, config, pending = consumer.stream, consumer.config, consumer.pending
    exhausted = _exhausted(consumer)
    arriving = max(consumer.log.last_seq - stream.visible_seq, 0)
    facts = Facts(
        stream=stream.name,
        consumer=consumer.name,
        now=consumer.clock.now,
        messages=max(consumer.log.messages - arriving, 0),
        last_seq=min(consumer.log.last_seq, stream.visible_seq),
        deliver_subject=config.deliver_subject,
        deliver_group=config.deliver_group,
        deliver_new=config.deliver_policy == "new",
        ack_wait=consumer.ack_wait,
        has_backoff=bool(consumer.backoff),
        max_ack_pending=consumer.max_ack_pending if consumer.acks else 0,
        max_deliver=consumer.max_deliver,
        max_waiting=config.max_waiting,
        rate_limit_bps=config.rate_limit_bps,
        paused_until=consumer.paused_until,
        delivered_seq=consumer.delivered_stream_seq if consumer.delivered_seq else 0,
        delivered_at=consumer.delivered_at,
        next_seq=consumer.next_seq,
        num_pending=consumer.num_pending,
        unmatched_filters=_unmatched(consumer),
        due=redeliverable(consumer),
        is_syncing=consumer.num_pending > 0 and consumer.next_seq > stream.visible_seq,
        arriving=arriving,
        failure=stream.failed,
        replay_at=consumer.replay_at,
        num_ack_pending=len(pending),
        num_redelivered=0 if config.max_deliver == 1 else len(consumer.redelivered),
        outstanding=_known(consumer, pending.sequences()),
        redelivery_at=_redelivery_at(consumer),
        is_redelivery_exact=True,
        num_exhausted=len(exhausted),
        exhausted=_known(consumer, exhausted),
        is_exhausted_exact=True,
        dead_letters=_dead_letters(consumer),
        last_activity=consumer.last_activity,
        held_up_by="",
    )
    _look_at_delivery(facts, consumer)
    _look_at_group(facts, stream.engine.group)
    return facts


def _look_at_group(facts: Facts, group: Group | None) -> None:
    """How many servers have to have what is stored, and which of them are silent."""
    if group is None:
        return
    needed = [member for member in group.followers if member.is_needed]
    away = [member for member in needed if member.is_offline]
    facts.servers = 1 + len(needed) if needed else 0
    facts.silent = [member.name for member in away]
    facts.silent_for = max((member.active for member in away), default=0)


def _look_at_delivery(facts: Facts, consumer: Consumer) -> None:
    """Who takes messages, and what keeps one from going out to them."""
    delivery = consumer.delivery
    if isinstance(delivery, PullDelivery):
        delivery.drop_uninterested()
        facts.num_waiting = delivery.num_waiting
        if delivery.is_ready() or not delivery.num_waiting:
            return
        if delivery.waiting and delivery.groups is not None:
            facts.held_up_by = ReasonCode.PRIORITY_GROUP
            facts.pinned_at = delivery.groups.pinned_at
        else:
            facts.held_up_by = ReasonCode.SLOW_CLIENT
    elif isinstance(delivery, PushDelivery):
        facts.is_heard = delivery.active
        facts.free_at = delivery.free_at
        if not delivery.active or delivery.is_ready():
            return
        if delivery.is_stalled():
            facts.held_up_by = ReasonCode.FLOW_CONTROL
        elif delivery.free_at > consumer.clock.now:
            facts.held_up_by = ReasonCode.RATE_LIMIT
        else:
            facts.held_up_by = ReasonCode.SLOW_CLIENT


def _redelivery_at(consumer: Consumer) -> int:
    """When the first message that is out is delivered again; 0 if none is by itself."""
    if consumer.config.ack_policy == "flow_control":
        return 0
    return int(consumer.pending.next_deadline())


def _unmatched(consumer: Consumer) -> list[str]:
    """Filters that no stored subject matches, where nothing is pending: of the first ones alone,
    as each may match a million subjects."""
    if consumer.num_pending or not consumer.log.messages:
        return []
    looked_at = consumer.filters[:FILTERS_MAX]
    found = (one for one in looked_at if not consumer.log.count((one,), 0))
    return [one.decode("utf-8", "replace") for one in found]


def _known(consumer: Consumer, sequences: list[int]) -> list[KnownMessage]:
    """The first of some messages, as far as the stream still has them and the disk gives them."""
    record = Record()
    found = []
    for seq in sequences[:SHOWN_MAX]:
        with suppress(OSError, StorageError):
            if not consumer.log.read(seq, record):
                continue
            place = consumer.pending.find(seq)
            subject = record.subject.decode("utf-8", "replace")
            delivered = consumer.pending.ts(place) if place >= 0 else None
            found.append(KnownMessage(seq, subject, record.ts, delivered))
    return found


def _exhausted(consumer: Consumer) -> list[int]:
    """Messages that are not out any more, but were never acknowledged."""
    if consumer.max_deliver <= 0:
        return []
    return sorted(
        seq
        for seq, count in consumer.redelivered.items()
        if count >= consumer.max_deliver and seq not in consumer.pending
    )


def _dead_letters(consumer: Consumer) -> DeadLetterFacts | None:
    """Where messages go that are given up, how many are there, and which wait for it."""
    letters = consumer.letters
    subject = consumer.config.dead_letter
    if letters is None or (not subject and not letters.dying):
        return None
    stream: Stream | None = consumer.stream.js.stream_of(subject) if subject else None
    waiting = sorted(letters.dying)
    return DeadLetterFacts(
        subject=subject,
        stream=stream.name if stream is not None else "",
        stored=stream.log.count((_mapped(stream, subject),), 0) if stream is not None else 0,
        waiting=len(waiting),
        sequences=waiting[:SHOWN_MAX],
        problem=letters.problem,
    )


def _mapped(stream: Stream, subject: str) -> bytes:
    """The subject under which a stream stores it."""
    raw = subject.encode()
    return raw if stream.transform is None else bytes(stream.transform.map(raw))
