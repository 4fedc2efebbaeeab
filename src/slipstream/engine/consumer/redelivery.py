"""What becomes of a message that was not simply acknowledged: it is delivered again, put off,
given up, terminated, or it vanished from the stream (docs/protocol/consumers.md#redelivery)."""

from collections import deque
from typing import TYPE_CHECKING

from slipstream.engine.consumer.events import advise
from slipstream.engine.consumer.letter import MAX_DELIVER, TERMINATED
from slipstream.engine.consumer.pending import DUE
from slipstream.engine.consumer.watched import end_watch
from slipstream.engine.session.watch import NAKED, REMOVED, TERMED, TIMED_OUT

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer

STALE_DUE_MAX = 1024
VANISHED = "Unacknowledged message was deleted"


def nak(consumer: "Consumer", seq: int, delay: int) -> None:
    """Deliver again: at once, or in `delay` ns."""
    consumer.last_activity = consumer.clock.now
    place = consumer.pending.find(seq)
    if place < 0 or is_dying(consumer, seq):
        return
    end_watch(consumer, seq, NAKED)
    advise(consumer, "MSG_NAKED", "nak", seq, consumer.pending.consumer_seq(place))
    if delay > 0:
        deadline = consumer.clock.now + delay
        consumer.pending.set_deadline(place, deadline)
        consumer.watch(deadline)
        consumer.changed()
        return
    make_due(consumer, seq)


def make_due(consumer: "Consumer", seq: int) -> None:
    """Deliver `seq`, which is pending, again as soon as possible."""
    if consumer.config.dead_letter and _is_exhausted(consumer, seq):
        give_up(consumer, seq)
        return
    place = consumer.pending.find(seq)
    if consumer.pending.deadline(place) != DUE:
        consumer.pending.set_deadline(place, DUE)
        consumer.due.append(seq)
        if len(consumer.due) > 2 * consumer.pending.due + STALE_DUE_MAX:
            _forget_stale(consumer)
    consumer.wake()


def _forget_stale(consumer: "Consumer") -> None:
    """Most of what stands in the line of messages that are due was settled or put off."""
    pending = consumer.pending
    places = ((seq, pending.find(seq)) for seq in dict.fromkeys(consumer.due))
    is_due = (seq for seq, place in places if place >= 0 and pending.deadline(place) == DUE)
    consumer.due = deque(is_due)


def in_progress(consumer: "Consumer", seq: int) -> None:
    """The client still works on it: the wait begins anew."""
    consumer.last_activity = consumer.clock.now
    place = consumer.pending.find(seq)
    if place >= 0 and consumer.pending.deadline(place) != DUE:
        count = consumer.redelivered.get(seq, 1)
        deadline = consumer.deadline(consumer.clock.now, count)
        consumer.pending.set_deadline(place, deadline)
        consumer.watch(deadline)
        consumer.changed()


def term(consumer: "Consumer", seq: int, consumer_seq: int, reason: str) -> None:
    """Never deliver it again; with policy all, nor what came before it."""
    consumer.last_activity = consumer.clock.now
    if is_dying(consumer, seq):
        return
    end_watch(consumer, seq, TERMED, reason)
    if consumer.config.dead_letter and consumer.pending.find(seq) >= 0:
        consumer.letters.take(seq, TERMINATED, reason)
    elif consumer.pending.find(seq) >= 0 and not consumer.ack_all:
        _terminate(consumer, seq, reason)
    elif consumer.acked(seq, consumer_seq):
        advise_terminated(consumer, seq, consumer_seq, reason)


def vanished(consumer: "Consumer", seq: int) -> None:
    """A message that is out was removed from the stream."""
    end_watch(consumer, seq, REMOVED)
    _terminate(consumer, seq, VANISHED)
    if consumer.letters is not None:  # after that: it answers once the state of now is durable
        consumer.letters.vanished(seq)


def advise_terminated(consumer: "Consumer", seq: int, consumer_seq: int, reason: str) -> None:
    """Report that a message will be delivered no more."""
    extra = {"reason": reason} if reason else {}
    advise(consumer, "MSG_TERMINATED", "terminated", seq, consumer_seq, **extra)


def _terminate(consumer: "Consumer", seq: int, reason: str) -> None:
    place = consumer.pending.find(seq)
    if place < 0:
        return
    advise_terminated(consumer, seq, consumer.pending.consumer_seq(place), reason)
    consumer.acked_at = consumer.clock.now
    consumer.settle(place)
    if consumer.retains and reason is not VANISHED:
        consumer.stream.acked(consumer, seq)
    consumer.changed()
    consumer.wake()


def give_up(consumer: "Consumer", seq: int) -> None:
    """A message was delivered as often as it may be. Where that is configured it becomes a dead
    letter; else it stays in the stream, unsettled for retention and below no ack floor, but is not
    waited for any more."""
    if consumer.config.dead_letter:
        consumer.letters.take(seq, MAX_DELIVER, "")
        return
    count = consumer.redelivered.get(seq, 1)
    advise(consumer, "MAX_DELIVERIES", "max_deliver", seq, 0, deliveries=count)
    consumer.pending.remove(consumer.pending.find(seq))
    consumer.redelivered[seq] = count
    consumer.changed()
    consumer.wake()


def no_letters_any_more(consumer: "Consumer") -> None:
    """`dead_letter` was taken away: what waits to become one goes the way without it."""
    for dying in consumer.letters.release():
        if dying.cause == MAX_DELIVER:
            give_up(consumer, dying.seq)
        else:
            _terminate(consumer, dying.seq, dying.reason)


def is_dying(consumer: "Consumer", seq: int) -> bool:
    """Whether a message is about to become a dead letter."""
    return consumer.letters is not None and seq in consumer.letters.dying


def _is_exhausted(consumer: "Consumer", seq: int) -> bool:
    return 0 < consumer.max_deliver <= consumer.redelivered.get(seq, 1)


def acked_late(consumer: "Consumer", seq: int) -> None:
    """A late acknowledgement: nobody waits for it. A message that was given up counts as done."""
    if consumer.redelivered.pop(seq, 0):
        consumer.changed()
    if consumer.retains and not consumer.needs(seq):
        consumer.stream.acked(consumer, seq)


def redeliver_overdue(consumer: "Consumer", now: int) -> int:
    """Messages whose wait is over are due again, or given up; the next deadline, 0 for none."""
    for seq in consumer.pending.overdue(now):
        end_watch(consumer, seq, TIMED_OUT)
        if _is_exhausted(consumer, seq):
            give_up(consumer, seq)
        else:
            make_due(consumer, seq)
            consumer.life.out_until = now + consumer.ack_wait
    return int(consumer.pending.next_deadline())


def redeliverable(consumer: "Consumer") -> int:
    """How many messages wait to be delivered again."""
    letters = consumer.letters
    dying = [seq for seq in letters.dying if seq in consumer.pending] if letters else []
    return consumer.pending.due - len(dying)
