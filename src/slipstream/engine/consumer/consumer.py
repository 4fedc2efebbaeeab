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

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.consumer.dead_letters import DeadLetters
from slipstream.engine.consumer.delivery import Delivery
from slipstream.engine.consumer.events import sample_ack
from slipstream.engine.consumer.pending import PendingMessages
from slipstream.engine.consumer.purging import after_purge
from slipstream.engine.consumer.redelivery import (
    acked_late,
    give_up,
    no_letters_any_more,
    vanished,
)
from slipstream.engine.consumer.watched import end_watch, watch_delivery
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.watch import ACKED, HandedOut, MessageWatch
from slipstream.log.record import Record
from slipstream.model.ack_subject import ack_head
from slipstream.model.durations import LONGEST_NS
from slipstream.model.header_fields import NATS_MSG_SIZE
from slipstream.wire.buffer import OutBuffer
from slipstream.wire.headers import with_fields

if TYPE_CHECKING:
    from slipstream.engine.loop.clock import Clock
    from slipstream.engine.session.account import Account
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

PUMP_MESSAGES: _int = 1024  # what one consumer may deliver before others have their turn
PUMP_BYTES: _int = 512 * 1024
DELIVERY_STEPS: _int = 8  # what a delivery costs beside its way to the client (see `turn`)


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
        self.delivery: Delivery = Delivery()
        self.delivered_seq = 0  # consumer sequence of the last delivery
        self.delivered_stream_seq = 0
        self.delivered_at = 0
        self.floor_seq = 0  # everything up to here is settled
        self.floor_stream_seq = 0
        self.acked_at = 0
        self.next_seq = 1  # first stream sequence not looked at yet
        self.num_pending = 0  # messages that match and were not delivered yet
        self.counted_seq = 0  # num_pending knows of messages up to here
        self.miscounted = False  # num_pending is to be counted anew before somebody looks at it
        self.pending = PendingMessages()
        # Of messages that are traced, what is out, by sequence; `watch_over` is told of it.
        self.watched: dict[int, HandedOut] = {}
        self.watch_over: MessageWatch | None = None if config.direct else stream.watch
        self.redelivered: dict[int, int] = {}  # deliveries so far, where more than one
        self.due: deque[int] = deque()  # to deliver again, as far as they are pending and `DUE`
        self.initial: list[int] = []  # with last_per_subject: what comes first
        self.initial_at = 0  # how many of them are done with
        self.queued = False  # whether it stands in the turn's list
        self.awaits_next = False  # whether it stands in `Stream.awaiting_next`
        self.stopped = False
        self.has_outstanding = False  # whether it stands in `Stream.with_outstanding`
        self.unsaved = False  # the state on disk is out of date
        # It has taken note of messages that were removed, which a crash may bring back.
        self.took_removals = False
        self.paused_until = 0
        self.last_activity = stream.clock.now
        self.timer: Any = None
        self.timer_at = 0  # when the timer is due; 0: not set
        self.life: Any = None
        self.letters: Any = None  # what is to become a dead letter, where they are configured
        self.origin = b""  # the state in which it began, kept where no policy says it later
        self.replay_at = 0
        self.replay_until = 0
        self._record = Record()
        self._scratch = OutBuffer()
        self._message = Inbound()
        self.ack_head: bytes = ack_head(stream.name, name)
        self.filters: tuple[bytes, ...] = ()
        self.configure(config)

    def configure(self, config: ConsumerConfig) -> None:
        """Take over a new or changed configuration (its filters are linked by the stream)."""
        self.config = config
        self.filters = config.filters
        self.matching = self.log.filter(self.filters)
        self.acks: bool = config.ack_policy != "none"
        self.ack_all = config.ack_policy in ("all", "flow_control")
        self.retains = self.stream.config.retention != "limits"
        self.headers_only = config.headers_only
        self.max_ack_pending = config.max_ack_pending
        self.max_deliver = config.max_deliver
        self.ack_wait = min(config.ack_wait, LONGEST_NS)
        if config.ack_policy == "flow_control":
            self.ack_wait = LONGEST_NS  # what was not acknowledged goes to the next that connects
        self.backoff = tuple(min(wait, LONGEST_NS) for wait in config.backoff)
        if config.dead_letter and self.letters is None:
            self.letters = DeadLetters(self)
        elif self.letters is not None and not config.dead_letter:
            no_letters_any_more(self)
        self._replays = config.replay_policy == "original"
        self.sample = int(config.sample_freq.rstrip("%") or 0)

    # -- delivering ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be deliverable: look at the end of the turn."""
        if not self.queued and not self.stopped:
            self.queued = True
            self.turn.ready.append(self)

    def has_room(self) -> bool:
        """Whether another new message may be out for acknowledgement."""
        return (
            self.max_ack_pending <= 0 or not self.acks or self.pending.size < self.max_ack_pending
        )

    def pump(self) -> None:
        """Deliver what can be delivered, a bounded amount; the rest in the next round. Raises
        `ColdError` where the disk has to be asked for the next message."""
        self.queued = False
        if self.stopped:
            return
        if self.paused_until:
            self.delivery.nothing_left(False)
            return
        self._follow()
        n = 0
        size = 0
        while self.delivery.is_ready():
            if not self.find_next():
                is_full = not self.has_room() or (self._replays and self._is_early())
                if not is_full:
                    self._expect()
                self.delivery.nothing_left(is_full)
                return
            size += self.prepare()
            if not self.delivery.send(self._message):
                continue  # nobody took it; it was not counted
            self.commit()
            self.turn.spent += DELIVERY_STEPS
            n += 1
            if n >= PUMP_MESSAGES or size >= PUMP_BYTES:
                self.wake()
                return
        if self.delivery.holds_back():
            self._expect()
            self.delivery.nothing_left(False)

    def _expect(self) -> None:
        """Have the stream say when its next message is there; with filters it does so anyway."""
        if not self.filters and not self.awaits_next:
            self.awaits_next = True
            self.stream.awaiting_next.append(self)

    def find_next(self) -> _int:
        """Bring the next message to deliver into the record; 0 if there is none now."""
        if self.due:
            if self._find_redelivery():
                return 1
        if not self.has_room():
            return 0
        record = self._record
        while self.initial:
            if self.initial_at == len(self.initial):
                self.initial = []
            elif self.log.read_near(self.initial[self.initial_at], record):
                return 1
            else:
                self.initial_at += 1
        seq = self.next_seq
        last = self.stream.visible_seq
        if seq > last or not self.log.next_near(seq, self.matching, record) or record.seq > last:
            if seq <= last:
                self.next_seq = last + 1
            if self.num_pending and last == self.log.last_seq:
                self.num_pending = 0  # what it counted was found to be damaged
            return 0
        if self._replays and not self._may_replay(record):
            return 0
        return 1

    def _find_redelivery(self) -> _int:
        """The first message that is due again and still there."""
        while self.due:
            seq = self.due[0]
            place = self.pending.find(seq)
            if place >= 0 and self.pending.deadline(place) == -1:
                if self.letters is not None and seq in self.letters.dying:
                    self.due.popleft()
                    continue
                if 0 < self.max_deliver <= self.redelivered.get(seq, 1):
                    self.due.popleft()
                    give_up(self, seq)
                    continue
                if self.log.read_near(seq, self._record):
                    return 1
                self.due.popleft()
                vanished(self, seq)
                continue
            self.due.popleft()  # settled, or put off, since it became due
        return 0

    def _may_replay(self, record: Record) -> bool:
        """With replay original: whether the message's time has come."""
        if self.next_seq > self.replay_until or self.clock.now >= self.replay_at:
            return True
        self.watch(self.replay_at)
        return False

    def _is_early(self) -> bool:
        """With replay original: whether there is a next message whose time is still to come."""
        return self.next_seq <= self.replay_until and self.clock.now < self.replay_at

    def prepare(self) -> _int:
        """Make the record into a message to send; its size as pull requests count it."""
        record = self._record
        message = self._message
        seq = record.seq
        count = 1
        if self.miscounted:
            self.recount()
        left = self.num_pending
        if self.pending.size and self.pending.find(seq) >= 0:
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
            block = with_fields(record.header(), [(NATS_MSG_SIZE, size)])
            message.data = block
            message.header_start = 0
            message.body_start = message.end = len(block)
        return len(record.subject) + len(message.reply) + message.end - message.header_start

    def commit(self) -> None:
        """The prepared message was taken: account for it."""
        record = self._record
        seq = record.seq
        now = self.clock.now
        self.delivered_seq += 1
        self.delivered_at = now
        place = self.pending.find(seq) if self.pending.size else -1
        if place >= 0:
            count = self.redelivered.get(seq, 1) + 1
            self.redelivered[seq] = count
            deadline = self.deadline(now, count)
            self.pending.delivered_again(place, now, deadline)
            self.due.popleft()
            if not self.timer_at or self.timer_at > deadline:
                self.watch(deadline)
        else:
            if self.num_pending > 0:
                self.num_pending -= 1
            if self.initial:
                self.initial_at += 1
            else:
                self.next_seq = seq + 1
            if seq > self.delivered_stream_seq:
                self.delivered_stream_seq = seq
            if self._replays:
                self._plan_replay(record.ts)
            if self.acks:
                deadline = self.deadline(now, 1)
                self.pending.add(seq, self.delivered_seq, now, deadline)
                if not self.has_outstanding:
                    self.has_outstanding = True
                    self.stream.with_outstanding[self] = None
                if not self.timer_at or self.timer_at > deadline:
                    self.watch(deadline)
            else:
                self.floor_seq = self.delivered_seq
                self.floor_stream_seq = self.delivered_stream_seq
                if self.retains:
                    self.stream.acked(self, seq)
        if self.watch_over is not None and record.body_start > record.header_start:
            watch_delivery(self, record)
        self.changed()

    def _plan_replay(self, ts: _int) -> None:
        following = Record()
        if self.log.next(self.next_seq, self.matching, following):
            self.replay_at = self.clock.now + max(following.ts - ts, 0)

    def deadline(self, now: _int, count: _int) -> _int:
        """When a message delivered now for the `count`th time is due again."""
        if self.backoff:
            wait: _int = self.backoff[min(count, len(self.backoff)) - 1]
            return now + wait
        return now + self.ack_wait

    # -- settling ------------------------------------------------------------------------------

    def acked(self, seq: _int, consumer_seq: _int) -> bool:
        """A positive acknowledgement; False if nothing was waiting for it."""
        self.last_activity = self.clock.now
        if self.ack_all:
            return self._acked_all(seq, consumer_seq)
        place = self.pending.find(seq)
        if place < 0:
            acked_late(self, seq)
            return False
        self.acked_at = self.clock.now
        if self.sample:
            sample_ack(self, seq)
        if self.watched:
            end_watch(self, seq, ACKED)
        self.settle(place)
        if self.retains:
            self.stream.acked(self, seq)
        self.changed()
        self.wake()
        return True

    def _acked_all(self, seq: _int, consumer_seq: _int) -> bool:
        """With policy all: this message and every one before it."""
        if seq <= self.floor_stream_seq or seq > self.delivered_stream_seq:
            return False
        settled = []
        place = self.pending.first()
        while place >= 0 and self.pending.seq(place) <= seq:
            settled.append(self.pending.seq(place))
            self.pending.remove(place)
            place = self.pending.first()
        if not settled:
            return False
        self.acked_at = self.clock.now
        self.floor_seq = max(consumer_seq, self.floor_seq)
        self.floor_stream_seq = seq
        for one in settled:
            self.redelivered.pop(one, None)
            if self.watched:
                end_watch(self, one, ACKED)
            if self.retains:
                self.stream.acked(self, one)
        self.changed()
        self.wake()
        return True

    def settle(self, place: _int) -> None:
        """What is at `place` is pending no more, and the floor may move."""
        pending = self.pending
        follows = pending.consumer_seq(place) == self.floor_seq + 1
        if self.redelivered:
            self.redelivered.pop(pending.seq(place), None)
        pending.remove(place)
        if not pending.size:
            self.floor_seq = self.delivered_seq
            self.floor_stream_seq = self.delivered_stream_seq
        elif follows:
            place = pending.first()
            self.floor_seq = pending.consumer_seq(place) - 1
            self.floor_stream_seq = pending.seq(place) - 1

    # -- what the stream says ------------------------------------------------------------------

    def stored(self, seq: _int) -> None:
        """A message that matches has become visible."""
        if seq > self.counted_seq:
            self.counted_seq = seq
            if seq >= self.next_seq and self.log.holds(seq):
                self.num_pending += 1
        self.wake()

    def come(self) -> None:
        """What it expected, the next message of the stream, is there; for one without filters."""
        self.awaits_next = False
        self.wake()

    def removed(self, seq: _int) -> None:
        """One message that matches has gone."""
        self.took_removals = True
        if seq >= self.next_seq:
            if seq <= self.counted_seq and self.num_pending > 0:
                self.num_pending -= 1
        elif self.pending.find(seq) >= 0:
            vanished(self, seq)
        elif self.comes_first(seq):
            self.num_pending -= 1
        elif self.redelivered:
            self.redelivered.pop(seq, None)

    def lost(self, seq: _int) -> bool:
        """One message has gone, and filters were changed since it went out. Whether any are out
        still."""
        self.took_removals = True
        vanished(self, seq)
        return self.pending.size > 0

    def comes_first(self, seq: _int) -> bool:
        """With last_per_subject: whether `seq` is one of the messages to begin with."""
        at = bisect_left(self.initial, seq, self.initial_at)
        return at < len(self.initial) and self.initial[at] == seq

    def catch_up(self) -> None:
        """Step over what has gone from the front of the stream, and have `num_pending` right."""
        self._follow()
        if self.miscounted:
            self.recount()

    def _follow(self) -> None:
        """Step over what has gone from the front of the stream and, without filters, count what has
        come. Nothing tells a consumer of that but itself: one at rest costs a stream nothing.

        What has gone is not counted before somebody asks: that takes a look at each subject.
        """
        first_seq = self.log.first_seq
        if self.next_seq < first_seq:
            self.next_seq = first_seq
            self.miscounted = True
        elif self.initial_at < len(self.initial) and self.initial[self.initial_at] < first_seq:
            self.initial_at = bisect_left(self.initial, first_seq, self.initial_at)
            self.miscounted = True
        last = self.stream.visible_seq
        if last > self.counted_seq and not self.filters:
            first = max(self.counted_seq + 1, self.next_seq)
            self.counted_seq = last
            if first <= last:
                self.num_pending += self.log.count_between(None, first, last)

    def front_moved(self) -> bool:
        """The first messages of the stream have gone: settle those that are out. Whether any are
        out still."""
        self.took_removals = True
        pending = self.pending
        place = pending.first()
        while place >= 0 and pending.seq(place) < self.log.first_seq:
            vanished(self, pending.seq(place))
            place = pending.first()
        self.has_outstanding = place >= 0
        return self.has_outstanding

    def look_again(self) -> None:
        """Any messages may have gone: settle those that are out, and count."""
        self.took_removals = True
        for seq in self.pending.sequences():
            if not self.log.holds(seq):
                vanished(self, seq)
        self.catch_up()
        self.recount()
        self.wake()

    def purged(self, pattern: bytes) -> None:
        """Messages that match `pattern` (b"": all) were purged."""
        self.took_removals = True
        after_purge(self, pattern)

    def recount(self) -> None:
        """Set `num_pending` from the log."""
        self.miscounted = False
        self.counted_seq = self.log.last_seq
        self.num_pending = self.log.count(self.filters, self.next_seq)
        for seq in self.initial[self.initial_at :]:
            self.num_pending += self.log.holds(seq)

    def needs(self, seq: _int) -> bool:
        """Whether an interest stream must keep the message, which matches, for this consumer."""
        if self.letters is not None and seq in self.letters.dying:
            return True  # a crash may take back what settles it, until that is committed
        if not self.acks or self.ack_all:
            return seq > self.floor_stream_seq
        return (
            seq >= self.next_seq
            or self.pending.find(seq) >= 0
            or seq in self.redelivered
            or self.comes_first(seq)
        )

    def put_off(self, error: Exception) -> None:
        """The disk did not give what was to be delivered: look again in a while."""
        self.life.put_off(error)

    # -- timers and the end: see `consumer_life` -------------------------------------------------

    def watch(self, when: _int) -> None:
        """Have a look at deadlines at `when` (0: no need), if not before."""
        self.life.watch(when)

    def changed(self) -> None:
        """The state on disk is out of date."""
        if not self.unsaved and self.store is not None:
            self.unsaved = True
            self.life.changed()

    def stop(self, reason: str, delete: bool) -> None:
        """Deliver no more; with `delete` the consumer and its files go."""
        self.life.stop(reason, delete)
