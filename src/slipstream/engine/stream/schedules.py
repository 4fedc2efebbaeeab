"""Messages that are published later, once or again and again (ADR-51).

A schedule is a stored message, one for each subject. When it is due, a message is stored on its
target. A schedule that is due once is removed by the message that it produces; of any other, that
message says when it is due next. So the log alone tells what has to be done after a restart: the
messages with headers are read then, a bounded number in each turn, while the stream already works.

What the log says counts: the deadlines in memory only say when to look at it. A schedule that was
deleted, purged or replaced does nothing.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.loop.deadlines import Deadlines
from slipstream.engine.loop.turn import ROUND
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.cron import Calendar, Once
from slipstream.engine.stream.ingest_checks import HEADER_BYTES_MAX, Verdict
from slipstream.engine.stream.retention import check_room_for
from slipstream.engine.stream.schedule_checks import Schedule, read_schedule
from slipstream.engine.stream.ttl import parse_ttl
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.durations import SECOND
from slipstream.model.header_fields import (
    NATS_EXPECTED_PREFIX,
    NATS_MSG_ID,
    NATS_ROLLUP,
    NATS_SCHEDULE,
    NATS_SCHEDULE_NEXT,
    NATS_SCHEDULER,
    NATS_TTL,
)
from slipstream.model.times import text_ns, utc_text
from slipstream.wire.headers import find, with_fields, without_prefixed

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

SLICE = ROUND // 2  # steps of a turn that go to schedules; see `Turn`
SLICE_MIN = ROUND // 20  # ... where others have used up the turn
TAKEN_AT_ONCE = 20  # schedules that are due, between two looks at the steps
FIRE_STEPS = 500  # to publish what a schedule asks for
CALENDAR_STEPS = 1_500  # ... beside that, to find out when a calendar is due next
TAKE_OVER_STEPS = 300  # to note a schedule after the start
READ_PER_TURN = 2_000  # messages looked at for schedules after the start
TICK_NS = SECOND // 20  # deadlines are rounded up to this, so that many share a turn
SWEEP_MIN = 4_096  # schedules, beyond which those that are gone are looked for
RETRY_NS = SECOND  # after a message could not be stored, or the disk could not be read

PUBLISHED = 0  # when a schedule is due of which only the removal is left

# Header fields that a produced message does not take over.
_OWN = (
    NATS_SCHEDULE,
    NATS_EXPECTED_PREFIX,
    NATS_MSG_ID + b":",
    NATS_TTL + b":",
    NATS_ROLLUP + b":",
)


class Schedules:
    """The schedules of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._deadlines = Deadlines()
        self._due: dict[int, int] = {}  # when (ns), by the schedule's sequence
        self._record = Record()
        self._source = Record()
        self._timer: Any = None
        self._read_seq = stream.log.first_seq  # the next to look at after a start ...
        self._read_last = stream.log.last_seq  # ... up to here; what is stored later is noted
        self._last_ts = stream.log.last_ts  # what was due up to then was published then
        # By subject: the schedule's sequence, its time, and when it is said to be due next (ns), 0
        # if nothing was said, -1 if it has been published for the last time.
        self._found: dict[bytes, list[int]] = {}
        self._retry_at = 0
        self._turn = stream.turn
        self._reported = False  # that a schedule could never be published
        self._sweep_at = SWEEP_MIN
        self._watch()

    @property
    def size(self) -> int:
        """How many schedules may be due some day."""
        return len(self._due) + len(self._found)

    def stored(self, seq: int, schedule: Schedule) -> None:
        """A schedule was stored just now."""
        self._note(seq, schedule.pattern.next_after(self._stream.clock.now))
        self._watch()

    def _note(self, seq: int, due: int) -> None:
        if due:
            self._due[seq] = due
            now = self._stream.clock.now // TICK_NS
            self._deadlines.add(seq, max(-(-due // TICK_NS), now), now)
            if len(self._due) > self._sweep_at:  # many were replaced or deleted
                holds = self._stream.log.holds
                self._due = {seq: due for seq, due in self._due.items() if holds(seq)}
                self._sweep_at = max(SWEEP_MIN, 2 * len(self._due))
            self._deadlines.forget_dead(self._due.__contains__, len(self._due))

    def _watch(self) -> None:
        """Set the timer for what is due first."""
        when = 0
        if self._read_seq > self._read_last and not self._found:
            next_at = self._deadlines.next_at()
            if next_at is None:
                return
            when = next_at * TICK_NS
        when = max(when, self._stream.clock.now, self._retry_at)
        self._timer = self._stream.engine.timers.no_later(self._timer, when, self._tick)

    def stop(self) -> None:
        """Publish nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if self._stream.closed:
            return
        now = self._stream.clock.now
        try:
            if self._read_seq <= self._read_last:
                self._read_on()
            if self._read_seq > self._read_last:
                self._take_over(now)
                self._fire_due(now)
        except (OSError, StorageError):
            self._retry_at = now + RETRY_NS
        finally:  # a fault of the server in one schedule does not end the others
            self._watch()

    # -- after a start ---------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Look at some more of the messages that were there before."""
        log = self._stream.log
        record = self._record
        left = READ_PER_TURN
        blocks = list(log.blocks)
        for at, block in enumerate(blocks):
            after = blocks[at + 1].base if at + 1 < len(blocks) else self._read_last + 1
            if self._read_seq < after and block.has_headers:
                while left and log.next(self._read_seq, None, record) and record.seq < after:
                    left -= 1
                    self._read_seq = record.seq + 1
                    self._look_at(record)
                if not left:
                    return
            self._read_seq = max(self._read_seq, after)
        self._read_seq = self._read_last + 1

    def _look_at(self, record: Record) -> None:
        """A message from before the start: a schedule, or what one has published."""
        data, start, end = record.data, record.header_start, record.body_start
        if find(data, start, end, NATS_SCHEDULE):
            self._found[record.subject] = [record.seq, record.ts, 0]
        known = self._found.get(find(data, start, end, NATS_SCHEDULER) or b"")
        following = find(data, start, end, NATS_SCHEDULE_NEXT)
        if known is not None and following:
            try:
                known[2] = -1 if following == b"purge" else text_ns(following.decode())
            except ValueError:
                pass  # a client wrote something else there

    def _take_over(self, now: int) -> None:
        """All is known that the log says: note when some schedules are due. Those that the disk
        does not give back wait."""
        unread: dict[bytes, list[int]] = {}
        stop = self._end_of_slice()
        while self._found and self._turn.spent < stop:
            self._turn.spent += TAKE_OVER_STEPS
            subject, found = self._found.popitem()
            try:
                self._take(subject, *found)
            except (OSError, StorageError):
                unread[subject] = found
        if unread:
            self._found = unread | self._found
            self._retry_at = now + RETRY_NS

    def _take(self, subject: bytes, seq: int, ts: int, said: int) -> None:
        """Note when the schedule on a subject is due; `_found` says what the numbers are."""
        log = self._stream.log
        if log.last_of(subject) != seq or not log.read(seq, self._record):
            return
        record = self._record
        schedule = read_schedule(record.data, record.header_start, record.body_start)
        if schedule is None:
            return
        if isinstance(schedule.pattern, Calendar):
            self._turn.spent += CALENDAR_STEPS
        if said < 0:  # a crash came between the message and the removal of its schedule
            self._remove(subject)
        elif isinstance(schedule.pattern, Once) or said:
            self._note(seq, said or schedule.pattern.next_after(ts))
        else:
            self._note(seq, self._next(schedule, ts, self._last_ts))

    def _next(self, schedule: Schedule, ts: int, now: int) -> int:
        """When a schedule that was due at `ts` is due again: what was missed up to `now` counts
        once (ns)."""
        following = schedule.pattern.next_after(ts)
        return following if following >= now else schedule.pattern.next_after(now)

    # -- publishing ------------------------------------------------------------------------------

    def _end_of_slice(self) -> int:
        """The number of steps at which a turn has done enough for schedules."""
        return max(SLICE, self._turn.spent + SLICE_MIN)

    def _fire_due(self, now: int) -> None:
        """Publish what is due, as much as a turn has time for."""
        tick = now // TICK_NS
        stop = self._end_of_slice()
        while self._turn.spent < stop:
            due = self._deadlines.take(tick, TAKEN_AT_ONCE)
            if not due:
                return
            for at, seq in enumerate(due):
                try:
                    if self._due.get(seq, now + 1) <= now:
                        self._fire(seq, now)
                except (ApiError, OSError):  # it has to wait; the others need not
                    self._deadlines.add(seq, (now + RETRY_NS) // TICK_NS, tick)
                except StorageError:  # there is no room, for any of them
                    self._retry_at = now + RETRY_NS
                    self._put_back(due[at:], tick)
                    return
                except Exception:  # a fault of the server: it costs this schedule, not the others
                    self._put_back(due[at + 1 :], tick)
                    raise

    def _put_back(self, due: list[int], tick: int) -> None:
        """Have these schedules be due at once."""
        for seq in due:
            self._deadlines.add(seq, tick, tick)

    def _fire(self, seq: int, now: int) -> None:
        """Publish what a schedule asks for, if it is still there. It stays due if an exception says
        that this has to wait."""
        stream = self._stream
        record = self._record
        due = self._due[seq]
        self._turn.spent += FIRE_STEPS
        schedule = None
        if stream.log.read(seq, record):
            schedule = read_schedule(record.data, record.header_start, record.body_start)
        subject = record.subject
        if schedule is None or stream.log.last_of(subject) != seq or stream.config.sealed:
            self._due.pop(seq)
            return
        if due == PUBLISHED:
            self._remove(subject)
            self._due.pop(seq)
            return
        if isinstance(schedule.pattern, Calendar):
            self._turn.spent += CALENDAR_STEPS
        following = 0
        if not isinstance(schedule.pattern, Once):
            following = self._next(schedule, due, now)
        message = self._message(schedule, subject, following)
        if message.body_start > HEADER_BYTES_MAX:
            self._report_too_long(subject)
            self._remove(subject)
            following = 0
        else:
            self._publish(seq, schedule, subject, message, following)
        self._due.pop(seq)
        if following:
            self._note(seq, following)

    def _report_too_long(self, subject: bytes) -> None:
        """Say, once for a stream, that a schedule goes as its message can never be stored."""
        if not self._reported:
            self._reported = True
            self._stream.engine.on_problem(
                f"stream '{self._stream.account.name} > {self._stream.name}': the schedule on"
                f" '{subject.decode('utf-8', 'replace')}' was removed: with what the server adds,"
                f" the header block of its message is longer than {HEADER_BYTES_MAX} bytes"
            )

    def _message(self, schedule: Schedule, subject: bytes, following: int) -> Inbound:
        """What the schedule on `subject`, which is due next at `following` (ns, 0: never), has
        published."""
        stream = self._stream
        record = self._record
        if schedule.source:
            source = stream.log.last_of(schedule.source)
            if source and stream.log.read(source, self._source):
                record = self._source
        fields = [
            (NATS_SCHEDULER, subject),
            (NATS_SCHEDULE_NEXT, utc_text(following).encode() if following else b"purge"),
        ]
        if schedule.ttl:
            fields.append((NATS_TTL, schedule.ttl))
        if schedule.rolls_up:
            fields.append((NATS_ROLLUP, b"sub"))
        target = schedule.target
        if stream.transform is not None:
            target = stream.transform.map(target)
        block = with_fields(without_prefixed(record.header(), *_OWN), fields)
        return Inbound(target, b"", block, record.body())

    def _publish(
        self, seq: int, schedule: Schedule, subject: bytes, message: Inbound, following: int
    ) -> None:
        stream = self._stream
        target = message.subject
        ttl = parse_ttl(schedule.ttl)
        if stream.ttls is not None and 0 < ttl < stream.ttls.shortest():
            ttl = stream.ttls.shortest()
        check_room_for(stream, target, message, schedule.rolls_up)
        verdict = Verdict(rollup="sub" if schedule.rolls_up else "", ttl=ttl)
        if not following:
            verdict.cancels = subject
        last_seq = stream.log.last_seq
        try:
            stream.store_checked(target, message, verdict)
        except (OSError, StorageError):
            if stream.log.last_seq > last_seq:  # it is stored; what goes with it is still there
                self._due[seq] = PUBLISHED
                self._note(seq, following)
            raise

    def _remove(self, subject: bytes) -> None:
        if self._stream.log.purge((subject,), 0, 0):
            self._stream.purged(subject)
