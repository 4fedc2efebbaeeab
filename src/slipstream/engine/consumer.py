"""A consumer: where it stands in its stream, what is out for acknowledgement, what comes next.

The state machine is the same for pull and push; `delivery` (in `pull` or `push`) knows to whom the
next message may go. `pump` is the only place that delivers. Whatever may make a delivery possible
calls `wake`: a message stored, an acknowledgement that makes room, a request, interest, a timer, a
resumed pause, a client that has caught up. So a consumer with work, room and somebody waiting
always delivers.

    new message ──> next_seq ..... delivered ──ack──> settled ──> ack floor moves
                                      │  └──nak, ack_wait over──> due ──> delivered again
                                      └──max_deliver reached, term──> settled
"""

import bisect
from collections import deque
from typing import TYPE_CHECKING, Any

from slipstream.engine.consumer_config import ConsumerConfig
from slipstream.engine.consumer_events import advise, sample_ack
from slipstream.engine.message import Inbound
from slipstream.log.record import Record
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.headers import with_fields
from slipstream.wire.subjects import matches

if TYPE_CHECKING:
    from slipstream.engine.account import Account
    from slipstream.engine.clock import Clock
    from slipstream.engine.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

PUMP_MESSAGES: _int = 1024  # what one consumer may deliver before others have their turn
PUMP_BYTES: _int = 512 * 1024


class Pending:
    """A message that is out for acknowledgement."""

    def __init__(self, consumer_seq: _int, ts: _int, deadline: _int) -> None:
        self.consumer_seq = consumer_seq  # of its first delivery
        self.ts = ts  # when it was last delivered
        self.deadline = deadline  # when it is due again; 0: never


class Consumer:
    """One consumer of `stream`; times in ns."""

    def __init__(
        self, stream: "Stream", name: str, config: ConsumerConfig, created: _int, store: Any
    ) -> None:
        self.stream = stream
        self.log = stream.log
        self.account: Account = stream.account
        self.engine = stream.engine
        self.clock: Clock = stream.clock
        self.turn = stream.turn
        self.name: str = name
        self.created = created
        self.store = store  # ConsumerStore; None in memory
        self.delivery: Any = None
        self.delivered_seq = 0  # consumer sequence of the last delivery
        self.delivered_stream_seq = 0
        self.delivered_at = 0
        self.floor_seq = 0  # everything up to here is settled
        self.floor_stream_seq = 0
        self.acked_at = 0
        self.next_seq = 1  # first stream sequence not looked at yet
        self.num_pending = 0  # messages that match and were not delivered yet
        self.counted_seq = 0  # num_pending knows of messages up to here
        self.pending: dict[int, Pending] = {}
        self.order: deque[int] = deque()  # sequences in order of first delivery; may be settled
        self.redelivered: dict[int, int] = {}  # deliveries so far, where more than one
        self.due: list[int] = []  # sequences to deliver again, ascending
        self.initial: deque[int] | None = None  # with last_per_subject: what comes first
        self.queued = False  # whether it stands in the turn's list
        self.stopped = False
        self.paused_until = 0
        self.last_activity = stream.clock.now
        self.timer: Any = None
        self.life: Any = None
        self.replay_at = 0
        self.replay_until = 0
        self._record = Record()
        self._scratch = OutBuffer()
        self._message = Inbound()
        self.ack_head: bytes = f"$JS.ACK.{stream.name}.{name}.".encode()
        self.filters: tuple[bytes, ...] = ()
        self.configure(config)

    def configure(self, config: ConsumerConfig) -> None:
        """Take over a new or changed configuration (its filters are linked by the stream)."""
        self.config = config
        self.filters = config.filters
        self.matching = self.log.filter(self.filters)
        self.acks: bool = config.ack_policy != "none"
        self.ack_all = config.ack_policy == "all"
        self.retains = self.stream.config.retention != "limits"
        self.headers_only = config.headers_only
        self.max_ack_pending = config.max_ack_pending
        self.ack_wait = config.ack_wait
        self._replays = config.replay_policy == "original"
        self.sample = int(config.sample_freq.rstrip("%") or 0)

    # -- delivering ----------------------------------------------------------------------------

    def wake(self) -> _int:
        """Something may be deliverable: look at the end of the turn."""
        if not self.queued and not self.stopped:
            self.queued = True
            self.turn.ready.append(self)
        return 0

    def has_room(self) -> bool:
        """Whether another new message may be out for acknowledgement."""
        return (
            self.max_ack_pending <= 0 or not self.acks or len(self.pending) < self.max_ack_pending
        )

    def pump(self) -> _int:
        """Deliver what can be delivered, a bounded amount; the rest in the next round."""
        self.queued = False
        if self.stopped or self.paused_until:
            return 0
        n = 0
        size = 0
        while self.delivery.is_ready():
            if not self.find_next():
                self.delivery.nothing_left()
                return 0
            size += self.prepare()
            if not self.delivery.send(self._message):
                continue  # nobody took it; it was not counted
            self.commit()
            n += 1
            if n >= PUMP_MESSAGES or size >= PUMP_BYTES:
                self.wake()
                return 0
        return 0

    def find_next(self) -> _int:
        """Bring the next message to deliver into the record; 0 if there is none now."""
        if self.due:
            if self._find_redelivery():
                return 1
        if not self.has_room():
            return 0
        record = self._record
        while self.initial is not None:
            if not self.initial:
                self.initial = None
                break
            if self.log.read(self.initial[0], record):
                return 1
            self.initial.popleft()
        seq = self.next_seq
        if seq > self.stream.visible_seq:
            return 0
        if not self.log.next(seq, self.matching, record) or record.seq > self.stream.visible_seq:
            self.next_seq = self.stream.visible_seq + 1
            return 0
        if self._replays and not self._may_replay(record):
            return 0
        return 1

    def _find_redelivery(self) -> _int:
        """The first message that is due again and still there."""
        while self.due:
            seq = self.due[0]
            if seq in self.pending:
                most = self.config.max_deliver
                if most > 0 and self.redelivered.get(seq, 1) >= most:
                    self.due.pop(0)
                    self.give_up(seq)
                    continue
                if self.log.read(seq, self._record):
                    return 1
                self.due.pop(0)
                self.vanished(seq)
                continue
            self.due.pop(0)
        return 0

    def _may_replay(self, record: Record) -> bool:
        """With replay original: whether the message's time has come."""
        if self.next_seq > self.replay_until or self.clock.now >= self.replay_at:
            return True
        self.watch(self.replay_at)
        return False

    def prepare(self) -> _int:
        """Make the record into a message to send; its size as pull requests count it."""
        record = self._record
        message = self._message
        seq = record.seq
        count = 1
        left = self.num_pending
        if seq in self.pending:
            count = self.redelivered.get(seq, 1) + 1
        elif left > 0:
            left -= 1
        out = self._scratch
        out.put(self.ack_head)
        out.put_int(count)
        out.put(b".")
        out.put_int(seq)
        out.put(b".")
        out.put_int(self.delivered_seq + 1)
        out.put(b".")
        out.put_int(record.ts)
        out.put(b".")
        out.put_int(left)
        message.reply = out.take()
        message.subject = record.subject
        message.data = record.data
        message.header_start = record.header_start
        message.body_start = record.body_start
        message.end = record.end
        if self.headers_only:
            size = b"%d" % (record.end - record.body_start)
            block = with_fields(record.header(), [(b"Nats-Msg-Size", size)])
            message.data = block
            message.header_start = 0
            message.body_start = message.end = len(block)
        return len(record.subject) + len(message.reply) + message.end - message.header_start

    def commit(self) -> _int:
        """The prepared message was taken: account for it."""
        record = self._record
        seq = record.seq
        now = self.clock.now
        self.delivered_seq += 1
        self.delivered_at = now
        entry = self.pending.get(seq)
        if entry is not None:
            count = self.redelivered.get(seq, 1) + 1
            self.redelivered[seq] = count
            entry.ts = now
            entry.deadline = self._deadline(now, count)
            self.due.pop(0)
            self.watch(entry.deadline)
        else:
            if self.num_pending > 0:
                self.num_pending -= 1
            if self.initial is not None:
                self.initial.popleft()
            else:
                self.next_seq = seq + 1
            if seq > self.delivered_stream_seq:
                self.delivered_stream_seq = seq
            if self._replays:
                self._plan_replay(record.ts)
            if self.acks:
                deadline = (
                    now + self.ack_wait if not self.config.backoff else self._deadline(now, 1)
                )
                self.pending[seq] = Pending(self.delivered_seq, now, deadline)
                self.order.append(seq)
                if self.timer is None:
                    self.watch(deadline)
            else:
                self.floor_seq = self.delivered_seq
                self.floor_stream_seq = self.delivered_stream_seq
                if self.retains:
                    self.stream.acked(self, seq)
        self.changed()
        return 0

    def _plan_replay(self, ts: _int) -> None:
        following = Record()
        if self.log.next(self.next_seq, self.matching, following):
            self.replay_at = self.clock.now + max(following.ts - ts, 0)

    def _deadline(self, now: _int, count: _int) -> _int:
        """When a message delivered now for the `count`th time is due again."""
        backoff = self.config.backoff
        if backoff:
            return int(now + backoff[min(count, len(backoff)) - 1])
        return now + self.ack_wait

    # -- settling ------------------------------------------------------------------------------

    def acked(self, seq: _int, consumer_seq: _int) -> bool:
        """A positive acknowledgement; False if nothing was waiting for it."""
        self.last_activity = self.clock.now
        if self.ack_all:
            return self._acked_all(seq, consumer_seq)
        entry = self.pending.get(seq)
        if entry is None:
            return False
        self.acked_at = self.clock.now
        if self.sample:
            sample_ack(self, seq, entry)
        self.settle(seq, entry)
        if self.retains:
            self.stream.acked(self, seq)
        self.changed()
        self.wake()
        return True

    def _acked_all(self, seq: _int, consumer_seq: _int) -> bool:
        """With policy all: this message and every one before it."""
        if seq <= self.floor_stream_seq or seq > self.delivered_stream_seq:
            return False
        self.acked_at = self.clock.now
        settled = [s for s in self.pending if s <= seq]
        for one in settled:
            del self.pending[one]
            self.redelivered.pop(one, None)
        self._forget_settled()
        self.floor_seq = max(consumer_seq, self.floor_seq)
        self.floor_stream_seq = seq
        if self.retains:
            for one in sorted(settled):
                self.stream.acked(self, one)
        self.changed()
        self.wake()
        return True

    def settle(self, seq: _int, entry: Pending) -> _int:
        """A message is done with: it is pending no more, and the floor may move."""
        del self.pending[seq]
        if self.redelivered:
            self.redelivered.pop(seq, None)
        if self.due and seq in self.due:
            self.due.remove(seq)
        if not self.pending:
            self.order.clear()
            self.floor_seq = self.delivered_seq
            self.floor_stream_seq = self.delivered_stream_seq
        elif entry.consumer_seq == self.floor_seq + 1 or self.order[0] == seq:
            self._forget_settled()
            first = self.order[0]
            self.floor_seq = self.pending[first].consumer_seq - 1
            self.floor_stream_seq = first - 1
        return 0

    def _forget_settled(self) -> None:
        order = self.order
        while order and order[0] not in self.pending:
            order.popleft()

    def nak(self, seq: _int, delay: _int) -> None:
        """Deliver again: at once, or in `delay` ns."""
        self.last_activity = self.clock.now
        entry = self.pending.get(seq)
        if entry is None:
            return
        advise(self, "MSG_NAKED", "nak", seq, entry.consumer_seq)
        if delay > 0:
            entry.deadline = self.clock.now + delay
            if seq in self.due:
                self.due.remove(seq)
            self.watch(entry.deadline)
            return
        self.make_due(seq)

    def make_due(self, seq: _int) -> None:
        """Deliver `seq` again as soon as possible."""
        entry = self.pending[seq]
        entry.deadline = 0
        if seq not in self.due:
            bisect.insort(self.due, seq)
        self.wake()

    def in_progress(self, seq: _int) -> None:
        """The client still works on it: the wait begins anew."""
        self.last_activity = self.clock.now
        entry = self.pending.get(seq)
        if entry is not None and entry.deadline:
            now = self.clock.now
            entry.deadline = self._deadline(now, self.redelivered.get(seq, 1))

    def term(self, seq: _int, reason: str) -> None:
        """Never deliver it again."""
        self.last_activity = self.clock.now
        entry = self.pending.get(seq)
        if entry is None:
            return
        extra = {"reason": reason} if reason else {}
        advise(self, "MSG_TERMINATED", "terminated", seq, entry.consumer_seq, **extra)
        self.acked_at = self.clock.now
        self.settle(seq, entry)
        if self.retains:
            self.stream.acked(self, seq)
        self.changed()
        self.wake()

    def vanished(self, seq: _int) -> None:
        """A message that is out was removed from the stream."""
        entry = self.pending.get(seq)
        if entry is None:
            return
        reason = "Unacknowledged message was deleted"
        advise(self, "MSG_TERMINATED", "terminated", seq, entry.consumer_seq, reason=reason)
        self.settle(seq, entry)
        self.changed()
        self.wake()

    def give_up(self, seq: _int) -> None:
        """A message was delivered as often as it may be: it stays in the stream, unsettled for
        retention, but is not waited for any more."""
        entry = self.pending[seq]
        count = self.redelivered.get(seq, 1)
        advise(self, "MAX_DELIVERIES", "max_deliver", seq, 0, deliveries=count)
        self.settle(seq, entry)
        if self.config.max_deliver != 1 or self.retains:
            self.redelivered[seq] = count
        self.changed()

    # -- what the stream says ------------------------------------------------------------------

    def stored(self, seq: _int, subject: bytes) -> _int:
        """A message that matches has become visible."""
        if seq > self.counted_seq:
            self.counted_seq = seq
            self.num_pending += 1
        self.wake()
        return 0

    def stored_many(self, first: _int, last: _int) -> _int:
        """Messages have become visible; for a consumer without filters."""
        if last > self.counted_seq:
            if (
                first > self.counted_seq
                and self.log.messages == self.log.last_seq - self.log.first_seq + 1
            ):
                self.num_pending += last - max(first, self.log.first_seq) + 1
                self.counted_seq = last
            else:
                self.recount()
        self.wake()
        return 0

    def removed(self, seq: _int, subject: bytes) -> _int:
        """One message has gone."""
        if seq >= self.next_seq:
            if seq <= self.counted_seq and self._matches(subject) and self.num_pending > 0:
                self.num_pending -= 1
        elif seq in self.pending:
            self.vanished(seq)
        elif self.redelivered:
            self.redelivered.pop(seq, None)
        return 0

    def front_moved(self) -> None:
        """Many messages have gone: count again, and settle what went."""
        record = Record()
        gone = [seq for seq in self.pending if not self.log.read(seq, record)]
        for seq in gone:
            self.vanished(seq)
        for seq in [s for s in self.redelivered if s < self.log.first_seq]:
            del self.redelivered[seq]
        first = self.log.first_seq
        if first > self.next_seq:
            self.next_seq = first
        if first > self.delivered_stream_seq + 1 and not self.pending:
            self.delivered_stream_seq = max(self.delivered_stream_seq, first - 1)
            self.floor_stream_seq = max(self.floor_stream_seq, first - 1)
            self.floor_seq = self.delivered_seq
        self.recount()
        self.changed()
        self.wake()

    def recount(self) -> None:
        """Set `num_pending` from the log."""
        self.counted_seq = self.log.last_seq
        if self.initial is not None:
            self.num_pending = len(self.initial) + self.log.count(self.filters, self.next_seq)
        else:
            self.num_pending = self.log.count(self.filters, self.next_seq)

    def needs(self, seq: _int, subject: bytes) -> bool:
        """Whether the message must stay in an interest stream for this consumer."""
        if not self._matches(subject):
            return False
        if not self.acks or self.ack_all:
            return seq > self.floor_stream_seq
        return seq >= self.next_seq or seq in self.pending or seq in self.redelivered

    def _matches(self, subject: bytes) -> bool:
        return not self.filters or any(matches(pattern, subject) for pattern in self.filters)

    # -- timers and the end: see `consumer_life` -------------------------------------------------

    def watch(self, when: _int) -> None:
        """Have a look at deadlines at `when` (0: no need), if not before."""
        self.life.watch(when)

    def changed(self) -> None:
        """The state on disk is out of date."""
        if self.store is not None:
            self.life.changed()

    def stop(self, reason: str, delete: bool) -> None:
        """Deliver no more; with `delete` the consumer and its files go."""
        self.life.stop(reason, delete)
