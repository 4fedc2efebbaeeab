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
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.options import SECOND
from slipstream.engine.protocol.rfc3339 import text_ns, utc_text
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.cron import Once
from slipstream.engine.stream.ingest_checks import Verdict
from slipstream.engine.stream.retention import check_room_for
from slipstream.engine.stream.schedule_checks import Schedule, read_schedule
from slipstream.engine.stream.ttl import parse_ttl
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.wire.headers import find, with_fields

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

FIRED_PER_TURN = 500
READ_PER_TURN = 2_000  # messages looked at for schedules after the start
TICK_NS = SECOND // 20  # deadlines are rounded up to this, so that many share a turn
SWEEP_MIN = 4_096  # schedules, beyond which those that are gone are looked for
RETRY_NS = SECOND  # after a message could not be stored, or the disk could not be read

# Header fields that a produced message does not take over.
_OWN = (
    b"Nats-Schedule",
    b"Nats-Expected-",
    b"Nats-Msg-Id:",
    b"Nats-TTL:",
    b"Nats-Rollup:",
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
        if self._timer is not None:
            if self._timer.at <= when:
                return
            self._timer.cancel()
        self._timer = self._stream.engine.timers.at(when, self._tick)

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
                self._take_over()
                self._fire_due(now)
        except (OSError, StorageError):
            self._retry_at = now + RETRY_NS
        self._watch()

    # -- after a start ---------------------------------------------------------------------------

    def _read_on(self) -> None:
        """Look at some more of the messages that were there before."""
        log = self._stream.log
        record = self._record
        left = READ_PER_TURN
        blocks = list(log.blocks)
        for at, block in enumerate(blocks):
            behind = blocks[at + 1].base if at + 1 < len(blocks) else self._read_last + 1
            if self._read_seq < behind and block.has_headers:
                while left and log.next(self._read_seq, None, record) and record.seq < behind:
                    left -= 1
                    self._read_seq = record.seq + 1
                    self._look_at(record)
                if not left:
                    return
            self._read_seq = max(self._read_seq, behind)
        self._read_seq = self._read_last + 1

    def _look_at(self, record: Record) -> None:
        """A message from before the start: a schedule, or what one has published."""
        data, start, end = record.data, record.header_start, record.body_start
        if find(data, start, end, b"Nats-Schedule"):
            self._found[record.subject] = [record.seq, record.ts, 0]
        known = self._found.get(find(data, start, end, b"Nats-Scheduler") or b"")
        following = find(data, start, end, b"Nats-Schedule-Next")
        if known is not None and following:
            try:
                known[2] = -1 if following == b"purge" else text_ns(following.decode())
            except ValueError:
                pass  # a client wrote something else there

    def _take_over(self) -> None:
        """All is known that the log says: note when each schedule is due."""
        log = self._stream.log
        while self._found:
            subject, (seq, ts, said) = self._found.popitem()
            if log.last_of(subject) != seq or not log.read(seq, self._record):
                continue
            record = self._record
            schedule = read_schedule(record.data, record.header_start, record.body_start)
            if schedule is None:
                continue
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

    def _fire_due(self, now: int) -> None:
        due = self._deadlines.take(now // TICK_NS, FIRED_PER_TURN)
        for at, seq in enumerate(due):
            when = self._due.get(seq, 0)
            try:
                if when and not self._fire(seq, when, now):
                    continue
            except (ApiError, StorageError, OSError):  # it has to wait: there is no room
                self._retry_at = now + RETRY_NS
                for later in due[at:]:
                    self._deadlines.add(later, now // TICK_NS, now // TICK_NS)
                return

    def _fire(self, seq: int, due: int, now: int) -> bool:
        """Publish what a schedule asks for. False if there is no such schedule any more."""
        stream = self._stream
        record = self._record
        self._due.pop(seq)
        subject = b""
        schedule = None
        if stream.log.read(seq, record):
            subject = record.subject
            schedule = read_schedule(record.data, record.header_start, record.body_start)
        if schedule is None or stream.log.last_of(subject) != seq or stream.config.sealed:
            return False
        following = 0
        if not isinstance(schedule.pattern, Once):
            following = self._next(schedule, due, now)
        try:
            self._publish(schedule, subject, following)
        except (ApiError, StorageError, OSError):
            self._due[seq] = due
            raise
        if following:
            self._note(seq, following)
        return True

    def _publish(self, schedule: Schedule, subject: bytes, following: int) -> None:
        stream = self._stream
        record = self._record
        if schedule.source:
            source = stream.log.last_of(schedule.source)
            if source and stream.log.read(source, self._source):
                record = self._source
        fields = [
            (b"Nats-Scheduler", subject),
            (b"Nats-Schedule-Next", utc_text(following).encode() if following else b"purge"),
        ]
        if schedule.ttl:
            fields.append((b"Nats-TTL", schedule.ttl))
        if schedule.rolls_up:
            fields.append((b"Nats-Rollup", b"sub"))
        target = schedule.target
        if stream.transform is not None:
            target = stream.transform.map(target)
        block = with_fields(_taken_over(record.header()), fields)
        message = Inbound(target, b"", block, record.body())
        ttl = parse_ttl(schedule.ttl)
        if stream.ttls is not None and 0 < ttl < stream.ttls.shortest():
            ttl = stream.ttls.shortest()
        check_room_for(stream, target, message, schedule.rolls_up)
        verdict = Verdict(rollup="sub" if schedule.rolls_up else "", ttl=ttl)
        if not following:
            verdict.cancels = subject
        stream.store_checked(target, message, verdict)

    def _remove(self, subject: bytes) -> None:
        if self._stream.log.purge((subject,), 0, 0):
            self._stream.purged(subject)


def _taken_over(block: bytes) -> bytes:
    """The header block without what is meant for the schedule alone; b"" if nothing is left."""
    lines = block.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(_OWN)]
    return b"\r\n".join(kept) if any(b":" in line for line in kept) else b""
