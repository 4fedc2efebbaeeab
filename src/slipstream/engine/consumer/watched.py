"""Deliveries of messages that are traced: from when one goes out until it is settled.

A consumer keeps those that are out in `Consumer.watched`, by their sequence in the stream. What is
out when the server stops is not told of any more.
"""

from typing import TYPE_CHECKING

from slipstream.engine.session.watch import (
    DELIVERED,
    OPEN_MAX,
    REPEATED,
    HandedOut,
    sampled_trace,
)
from slipstream.log.record import Record

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer


def watch_delivery(consumer: "Consumer", record: Record) -> None:
    """The message in `record` has just been delivered."""
    watch = consumer.watch_over
    assert watch is not None
    seq = int(record.seq)
    end_watch(consumer, seq, REPEATED)
    trace = sampled_trace(record.data, record.header_start, record.body_start)
    if trace is None:
        return
    delivery = HandedOut(
        trace=trace,
        account=consumer.account.name,
        stream=consumer.stream.name,
        consumer=consumer.name,
        subject=record.subject.decode("utf-8", "replace"),
        body_size=record.end - record.body_start,
        sequence=seq,
        number=consumer.redelivered.get(seq, 1),
        stored_at=record.ts,
        began=watch.now(),
    )
    if not consumer.acks or watch.open >= OPEN_MAX:
        watch.delivered(delivery, DELIVERED, "")
        return
    watch.open += 1
    consumer.watched[seq] = delivery


def end_watch(consumer: "Consumer", seq: int, outcome: str, reason: str = "") -> None:
    """The delivery of `seq` that is out, if one is and is watched, has ended like this."""
    delivery = consumer.watched.pop(seq, None)
    if delivery is not None:
        watch = consumer.watch_over
        assert watch is not None
        watch.open -= 1
        watch.delivered(delivery, outcome, reason)


def end_every_watch(consumer: "Consumer", outcome: str) -> None:
    """Nothing that is out is waited for any more."""
    for seq in list(consumer.watched):
        end_watch(consumer, seq, outcome)
