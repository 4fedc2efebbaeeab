"""Messages that live for a time of their own, and markers of what has gone
(docs/protocol/streams.md#ttls-and-delete-markers).

A message with `Nats-TTL` is removed that many seconds after it was stored. A deadline is compared
with the clock when its message goes, so that nothing is removed before its time, whatever the clock
does. Removing is not logged by itself: what expired while the server was down, or what a crash
brought back, expires again.

The deadlines are not stored, and a sequence is never given to a second message. When a stream
begins, the messages in those segments that hold header blocks are read, a bounded number in each
turn, while the stream already works.

With `subject_delete_marker_ttl` the last message of a subject does not go without a trace: a marker
takes its place, which expires as well and leaves nothing.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from slipstream.engine.loop.deadlines import Deadlines, Run
from slipstream.engine.loop.timers import Timer
from slipstream.engine.protocol.json_body import INT64_MAX
from slipstream.engine.session.message import Inbound
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.durations import SECOND, duration_text, parse_duration
from slipstream.model.header_fields import NATS_MARKER_REASON, NATS_ROLLUP, NATS_TTL
from slipstream.wire.headers import find, with_fields, without

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

NEVER = -1
INVALID = -2
TTL_SECONDS_MAX = 2**33  # 272 years: what lives longer does not expire
EXPIRED_PER_TURN = 2_000  # one by one ...
EXPIRED_PER_TURN_IN_RUNS = 10_000  # ... and where they go together, as nobody has to look at them
READ_PER_TURN = 2_000  # messages looked at for TTLs after the start
TICK_NS = SECOND // 20  # deadlines are rounded up to this, so that many share a turn
COMMITTED_AFTER_NS = SECOND  # removals, if nothing else is committed before
RETRY_NS = SECOND  # after the disk had no room for a marker, or could not be read
DIGITS_MAX = 30  # of a number of seconds, with zeros before it
REMEMBERED_BYTES_MAX = 32  # of a TTL as it was written


def parse_ttl(value: bytes) -> int:
    """The seconds of a `Nats-TTL` header; 0 for none, or `NEVER` or `INVALID`.

    As nats-server reads it: ``never`` in any case, a Go duration of a second or more, or digits.
    """
    if not value:
        return 0
    return _parse(value) if len(value) <= REMEMBERED_BYTES_MAX else _parse.__wrapped__(value)


@lru_cache(maxsize=1024)  # a stream's messages mostly have the same few
def _parse(value: bytes) -> int:
    text = value.decode("utf-8", "replace")
    if text.lower() == "never":
        return NEVER
    duration = parse_duration(text)
    if duration is not None:
        return duration // SECOND if duration >= SECOND else INVALID
    if not (text.isascii() and text.isdecimal()):
        return INVALID if text else 0
    seconds = int(text) if len(text) <= DIGITS_MAX else INT64_MAX + 1
    return min(seconds, TTL_SECONDS_MAX) if seconds <= INT64_MAX else INVALID


def ttl_of(record: Record) -> int:
    """The seconds that a stored message lives; 0 without a TTL, or `NEVER`."""
    value = find(record.data, record.header_start, record.body_start, NATS_TTL)
    ttl = parse_ttl(value) if value else 0
    return 0 if ttl == INVALID else ttl


def raise_ttl(message: Inbound, seconds: int) -> None:
    """Make a message live for `seconds`, in whatever it says."""
    kept = without(message.header(), NATS_TTL)
    block = with_fields(kept, [(NATS_TTL, b"%d" % seconds)])
    message.data = block + message.body()
    message.header_start = 0
    message.body_start = len(block)
    message.end = len(message.data)


def is_marker(record: Record) -> bool:
    """Whether a message says itself that its subject's messages have gone."""
    start, end = record.header_start, record.body_start
    if find(record.data, start, end, NATS_MARKER_REASON):
        return True
    return find(record.data, start, end, b"KV-Operation") == b"PURGE"


class MessageTtls:
    """Expires the messages of one stream, by their TTLs and, as some never expire, by age."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._deadlines = Deadlines()
        self._record = Record()
        self._timer: Any = None
        self._commit_timer: Timer | None = None  # until what has expired is recorded as removed
        self._marker_seconds = 0
        self._read_seq = stream.log.first_seq  # the next to look at for a TTL ...
        self._read_last = stream.log.last_seq  # ... up to here; what is stored later is noted
        self._retry_at = 0  # nothing is tried before, as it has just failed (ns)
        self._age_seq = 0  # what is left below this does not expire by age
        self._watch()

    def configure(self, marker_ttl: int) -> None:
        """Put markers, which live for `marker_ttl` ns, in the place of what expires; 0: none."""
        self._marker_seconds = marker_ttl // SECOND

    @property
    def size(self) -> int:
        """How many deadlines are kept."""
        return self._deadlines.size

    @property
    def owes_commit(self) -> bool:
        """Whether something was removed that will be committed later."""
        return self._commit_timer is not None

    def shortest(self) -> int:
        """The fewest seconds that a message may live: a marker must not outlive what follows it."""
        if self._stream.config.max_msgs_per_subject == 1:
            return 0
        return self._marker_seconds

    def stored(self, seq: int, ttl: int, ts: int = 0) -> None:
        """Message `seq` was stored; it lives for `ttl` seconds from `ts` on (ns, 0 is now)."""
        log = self._stream.log
        size = int(log.appended_size) if seq == log.last_seq else 0
        self._note(seq, ts or self._stream.clock.now, ttl, size)
        self._deadlines.forget_dead(log.holds, log.messages)
        self._watch()

    def _note(self, seq: int, ts: int, ttl: int, size: int) -> None:
        if 0 < ttl < TTL_SECONDS_MAX:
            due = -(-(ts + ttl * SECOND) // TICK_NS)
            self._deadlines.add(seq, due, self._stream.clock.now // TICK_NS, size)

    # -- time ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Set the timer for what is due first."""
        when = 0
        if self._read_seq > self._read_last:
            next_at = self._deadlines.next_at()
            if next_at is None:
                return
            when = next_at * TICK_NS
        when = max(when, self._stream.clock.now, self._retry_at)
        self._timer = self._stream.engine.timers.no_later(self._timer, when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._stream.closed:
            return
        now = self._stream.clock.now
        try:
            self._read_on()
        except (OSError, StorageError):
            self._retry_at = now + RETRY_NS
        self._expire(now)
        self._watch()

    def _expire(self, now: int) -> None:
        """Remove a bounded number of messages that are due."""
        tick = now // TICK_NS
        if self._marker_seconds and not self._stream.config.sealed:
            due = self._deadlines.take(tick, EXPIRED_PER_TURN)
            later = [(seq, 1, 0) for seq in due[self._replace(due) :]]
            is_refused = bool(later)
        else:
            runs = self._deadlines.take_runs(tick, EXPIRED_PER_TURN_IN_RUNS)
            done, is_refused = self._drop(runs)
            later = runs[done:]
        self._deadlines.put_back(later, tick)
        if is_refused:
            self._retry_at = now + RETRY_NS

    def stop(self) -> None:
        """Remove nothing any more."""
        for timer in (self._timer, self._commit_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._commit_timer = None

    def _read_on(self) -> None:
        """Look at some more of the messages that were there before."""
        if self._read_seq > self._read_last:
            return
        log = self._stream.log
        record = self._record
        left = READ_PER_TURN
        blocks = list(log.blocks)
        for at, block in enumerate(blocks):
            after = blocks[at + 1].base if at + 1 < len(blocks) else self._read_last + 1
            after = min(after, self._read_last + 1)
            if self._read_seq < after and block.has_headers:
                while left and log.next(self._read_seq, None, record) and record.seq < after:
                    left -= 1
                    self._read_seq = record.seq + 1
                    self._note(record.seq, record.ts, ttl_of(record), log.record_size(record))
                if not left:
                    return
            self._read_seq = max(self._read_seq, after)
        self._read_seq = self._read_last + 1

    def _drop(self, runs: list[Run]) -> tuple[int, bool]:
        """Remove some runs of messages, as far as a turn goes; how many runs are done with, and
        whether the disk has refused the next one."""
        left = EXPIRED_PER_TURN_IN_RUNS
        alone = EXPIRED_PER_TURN_IN_RUNS // EXPIRED_PER_TURN
        for at, (first, count, size) in enumerate(runs):
            if left <= 0:
                return at, False
            try:
                at_once = self._drop_run(first, count, size)
            except (OSError, StorageError):
                return at, True
            left -= max(count, alone) if at_once else count * alone
        return len(runs), False

    def _drop_run(self, first: int, count: int, size: int) -> bool:
        """Remove those messages of a run that are still there; whether that took no look at each of
        them. Raises OSError, `StorageError`."""
        stream = self._stream
        if size and stream.remove_run(first, count, size):
            self._commit_later()
            return True
        if first <= stream.log.first_seq:
            stream.drop_below(first + count)
            return False
        for seq in range(first, first + count):
            stream.remove_message(seq, False)
        return False

    def _commit_later(self) -> None:
        """Have removals committed that nobody waits for, together with others: after a crash these
        messages expire again. Consumers are told by a commit of what has gone."""
        stream = self._stream
        if stream.consumers or stream.direct_consumers:
            stream.mark_dirty()
        elif self._commit_timer is None:
            self._commit_timer = stream.engine.timers.after(COMMITTED_AFTER_NS, self._commit)

    def _commit(self) -> None:
        self._commit_timer = None
        self._stream.mark_dirty()

    def _replace(self, due: list[int]) -> int:
        """Remove messages that are due, and store a marker in place of a subject's last one."""
        for at, seq in enumerate(due):
            try:
                if self._stream.log.read(seq, self._record) and not self._let_go(self._record):
                    return at
            except (OSError, StorageError):
                return at
        return len(due)

    # -- age -----------------------------------------------------------------------------------

    def oldest_ts(self) -> int:
        """When the first message that has not been looked at by `expire_by_age` was stored (ns); 0
        if there is none."""
        seq = max(self._age_seq, self._stream.log.first_seq)
        return self._record.ts if self._stream.log.next(seq, None, self._record) else 0

    def front_by_age(self, before: int, looked_at_max: int) -> int:
        """The sequence below which everything was stored up to `before` (ns) and may go together; 0
        if that has to be decided for each message, as some stay or leave markers."""
        log = self._stream.log
        seq = int(log.first_seq)
        if self._age_seq > seq or (self._marker_seconds and not self._stream.config.sealed):
            return 0
        record = self._record
        for _ in range(looked_at_max):
            if not log.next(seq, None, record) or record.ts > before:
                break
            if record.body_start > record.header_start and ttl_of(record) == NEVER:
                return seq if seq > log.first_seq else 0
            seq = record.seq + 1
        return seq

    def expire_by_age(self, before: int) -> bool:
        """Let go of some messages stored up to `before` (ns), except those that never expire. True
        if there may be more of them."""
        log = self._stream.log
        record = self._record
        seq = max(self._age_seq, log.first_seq)
        for _ in range(EXPIRED_PER_TURN):
            if not log.next(seq, None, record) or record.ts > before:
                return False
            seq = record.seq + 1
            if ttl_of(record) != NEVER and not self._let_go(record):
                return False
            self._age_seq = seq
        return True

    # -- removing ------------------------------------------------------------------------------

    def _let_go(self, record: Record) -> bool:
        """Remove a message, and leave a marker if it was its subject's last; False if the disk has
        no room for that."""
        stream = self._stream
        log = stream.log
        seq = record.seq
        subject = record.subject
        if self._marker_seconds and not stream.config.sealed and not is_marker(record):
            if log.subjects.count(log.subjects.find(subject)) == 1:
                try:
                    self._put_marker(subject)
                except StorageError:
                    return False
        stream.remove_message(seq, False)
        return True

    def _put_marker(self, subject: bytes) -> None:
        """Store a marker: also where limits refuse what is new, as it replaces what goes."""
        ttl = duration_text(self._marker_seconds * SECOND).encode()
        fields = [
            (NATS_MARKER_REASON, b"MaxAge"),
            (NATS_TTL, ttl),
            (NATS_ROLLUP, b"sub"),
        ]
        seq = self._stream.keep(subject, Inbound(subject, b"", with_fields(b"", fields)))
        self.stored(seq, self._marker_seconds)
