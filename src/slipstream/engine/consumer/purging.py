"""Where a purge leaves a consumer: what went is settled, and the ack floor jumps over it
(docs/protocol/consumers.md#purged-messages)."""

from typing import TYPE_CHECKING

from slipstream.engine.consumer.watched import end_watch
from slipstream.engine.session.watch import REMOVED
from slipstream.log.base import Log
from slipstream.log.record import Record
from slipstream.wire.subjects import is_subset, overlaps

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer


def after_purge(consumer: "Consumer", pattern: bytes) -> None:
    """Messages that match `pattern` (all when empty) were purged."""
    filters = consumer.filters
    log = consumer.log
    if pattern and filters and not any(overlaps(pattern, one) for one in filters):
        return
    if not pattern or (filters and all(is_subset(one, pattern) for one in filters)):
        start = _first_match(consumer.log, pattern) if pattern else log.first_seq
    else:
        start = log.first_seq
    consumer.next_seq = max(consumer.next_seq, start)
    if consumer.floor_stream_seq < start:
        consumer.floor_stream_seq = start - 1
    _settle_gone(consumer)
    if not consumer.pending.size:
        consumer.redelivered.clear()
        consumer.floor_seq = consumer.delivered_seq
        consumer.floor_stream_seq = consumer.next_seq - 1
    if not consumer.initial:
        consumer.delivered_stream_seq = consumer.next_seq - 1
    consumer.miscounted = True
    consumer.changed()
    consumer.wake()


def _first_match(log: Log, pattern: bytes) -> int:
    """The first message that matches; the sequence after the last one if none does."""
    record = Record()
    found = log.next(log.first_seq, log.filter((pattern,)), record)
    return record.seq if found else log.last_seq + 1


def _settle_gone(consumer: "Consumer") -> None:
    pending = consumer.pending
    for seq in pending.sequences():
        if not consumer.log.holds(seq):
            place = pending.find(seq)
            consumer.floor_seq = max(consumer.floor_seq, pending.consumer_seq(place))
            pending.remove(place)
            end_watch(consumer, seq, REMOVED)
    for seq in [s for s in consumer.redelivered if not consumer.log.holds(s)]:
        del consumer.redelivered[seq]
