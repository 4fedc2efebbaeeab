"""A stream: what is published to its subjects is checked, stored, acknowledged when it is durable.

`handle` is the hot path: one call for each message, no JSON, no copy of the payload. The record
goes into the log's buffer, the reply subject into a list. At the end of the turn the commit
writes and syncs the buffer once; `synced` then releases the acknowledgements that the sync covers
and tells the consumers what they may deliver. Consumers see nothing before that.

Checks that only some messages need (headers) are in `ingest_checks`, what follows from retention in
`retention`.
"""

from collections.abc import Callable
from typing import Any

import slipstream.wire.ascii as char
from slipstream.engine.commit.commit import Committed
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.session.watch import MessageWatch, sampled_trace
from slipstream.engine.stream.atomic_batches import AtomicBatches
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.counters import Totals
from slipstream.engine.stream.dedupe import DuplicateWindow
from slipstream.engine.stream.expectations import HOLD_WITH_ID, LOOK_CLOSER, all_hold
from slipstream.engine.stream.fast_batches import FastBatches
from slipstream.engine.stream.ingest_checks import (
    HEADER_BYTES_MAX,
    Verdict,
    check_headers,
    remove_request_info,
    remove_status,
)
from slipstream.engine.stream.log_job import LogJob
from slipstream.engine.stream.owner import Owner, Reader
from slipstream.engine.stream.promises import Promises
from slipstream.engine.stream.republish import Republisher
from slipstream.engine.stream.retention import check_room_for, drop_unneeded
from slipstream.engine.stream.schedules import Schedules
from slipstream.engine.stream.ttl import RETRY_NS, MessageTtls
from slipstream.engine.stream.watched import Outcome, handle_watched
from slipstream.errors import DiskFullError, StorageError
from slipstream.log.base import Log
from slipstream.log.durability import SyncBatch, call_all
from slipstream.log.record import Record
from slipstream.log.segment_bytes import EntryCopies
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_BATCH_ID, NATS_MSG_ID, NATS_PREFIX
from slipstream.wire.headers import count_prefix, find
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.transforms import Transform

_int = int  # the name `int` in a compiled module's annotations is a C type

EXPIRE_AT_ONCE_MAX: _int = 20_000  # messages that one turn lets go by age
SHORTEST_TIMER_NS: _int = 50_000_000
END_SAVED_AFTER_NS: _int = 1_000_000_000
END_SAVED_SHARE_NS: _int = 10_000_000  # for each stream, where there are many

_NAMES_LAST = (  # refusals that tell what the stream has last
    ErrorCode.STREAM_WRONG_LAST_SEQUENCE,
    ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
    ErrorCode.STREAM_WRONG_LAST_MSG_ID,
)

# How the JSON of an acknowledgement goes on after the sequence.
ACK_END = b"}"
DUPLICATE_END = b',"duplicate":true}'


class Looker:
    """The callback of somebody who has changed nothing, and to whom a full disk is nothing."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[StorageError | None], None]) -> None:
        self._done = done

    def __call__(self, error: StorageError | None) -> None:
        self._done(None if isinstance(error, DiskFullError) else error)


class CommittedStream(Committed):
    """A stream, which is a service of its account, as the commit sees it."""

    def __init__(self, stream: "Stream") -> None:
        super().__init__()
        self.stream = stream

    def is_closed(self) -> bool:
        return self.stream.closed

    def is_relaxed(self) -> bool:
        return self.stream.ack_at_once

    def mark_dirty(self) -> None:
        self.stream.mark_dirty()

    def unwritten(self) -> _int:
        return self.stream.log.unwritten()

    def prepare_sync(self, instead_of: Any = None) -> SyncBatch | None:
        return self.stream.prepare_sync(instead_of)

    def carry(self, copies: EntryCopies) -> bool:
        return self.stream.carry(copies)

    def carried(self, error: Exception | None) -> None:
        self.stream.carried(error)

    def synced(self, batch: Any) -> None:
        self.stream.synced(batch)


class Stream(Service):
    """One stream of an account; see the module's text."""

    takes_imports = True

    def __init__(
        self, js: Owner, config: StreamConfig, log: Log, store: Any, created: _int
    ) -> None:
        self.js = js
        self.account = js.account
        self.engine = js.engine
        self.clock = js.engine.clock
        self.turn = js.engine.turn
        self.watch: MessageWatch | None = js.engine.message_watch
        self.outcome: Outcome | None = None  # of a message that is watched, while it is handled
        self.name = config.name
        self._name = config.name.encode()
        self.log = log
        self.store = store  # the directory's StreamStore; None in memory
        self.created = created
        self.consumers: dict[str, Any] = {}  # Consumer, by name
        self.direct_consumers: dict[str, Any] = {}  # ... those of mirrors and sources, unseen
        self.inflow: Any = None  # takes messages over from other streams, where configured
        self.dedupe = DuplicateWindow(config.duplicate_window)
        self.last_msg_id = b""  # of the very last message stored
        self.committed = CommittedStream(self)
        self.closed = False
        # Whether an empty stream shows its first sequence although it never had a message.
        self.shows_front = config.first_seq > 0
        self.ack_at_once = False
        self.visible_seq = log.durable_seq  # consumers see nothing above
        self.held_seq = 0  # nor this and what follows, though durable: a dead letter may go again
        self.letters: Any = None  # takes the dead letters that are stored here, once there are any
        self.failed = ""
        self.doubt = ""  # why the configuration may be an older one; see `doubt`
        self.doubtful: set[str] = set()  # names of consumers of which that holds, or of lost ones
        self.filters = PatternTrie()  # consumers with filters, by filter
        self.unfiltered: dict[Reader, None] = {}
        self.awaiting_next: list[Reader] = []  # of these, who can take the next message at once
        self.with_outstanding: dict[Reader, None] = {}  # consumers that may have messages out
        self.refiltered: dict[Reader, None] = {}  # of these, where filters may not match that
        # Of lists that are mostly empty there is none then: each would be a look at memory of its
        # own for each batch, and of a thousand streams little is in the processor's caches.
        self._joined: list[Reader] | None = None  # who began while messages were on their way
        self.transform: Transform | None = None
        self.republisher: Republisher | None = None
        self.direct: Any = None  # answers direct gets, where allowed
        self._acks = Promises()
        self._changed: list[Any] | None = None  # callbacks for what was done since the last batch
        self._covered: list[Any] | None = None  # (number of a batch, callbacks for what it covers)
        self._prepared = 0  # batches so far
        self._finished = 0  # of these; they are finished in order
        self._filtered = False  # whether somebody filters
        self._fresh: list[Any] | None = None  # (sequence, subject) stored while somebody does
        self._front_moved = False
        self._ack_head = js.ack_head(config.name)
        self._record = Record()
        self._age_timer: Any = None
        self._dedupe_timer: Any = None
        self.totals = Totals()  # of counters
        self.ttls: MessageTtls | None = None  # where messages may have times of their own
        self.schedules: Schedules | None = None  # where they may be published later
        self.batches: AtomicBatches | None = None  # where they may be published all or none
        self.fast: FastBatches | None = None  # where they may be acknowledged together
        self._end_timer: Any = None
        self.counted = 0  # bytes that the account, if its storage is limited, knows of
        self.configure(config)
        self._save_end_later()

    def configure(self, config: StreamConfig) -> None:
        """Take over a new or changed configuration."""
        self.config = config
        self._no_ack = config.no_ack
        self._max_msgs = config.max_msgs if config.discard == "old" else 0  # new: refused before
        self._max_bytes = config.max_bytes if config.discard == "old" else 0
        self._max_per_subject = config.max_msgs_per_subject
        self._max_size = config.max_msg_size
        self._max_age = config.max_age
        if self.doubt:  # nothing is removed by limits that may have been lifted
            self._max_msgs = self._max_bytes = self._max_per_subject = self._max_age = 0
        self.log.packs = config.compression != "none"
        self._limited = self._max_msgs > 0 or self._max_bytes > 0 or self._max_per_subject > 0
        self._interest = config.retention == "interest"
        for consumer in self.consumers.values():
            consumer.retains = config.retention != "limits"
        self.relax()
        self.dedupe.window = config.duplicate_window
        transform = config.subject_transform
        self.transform = None
        if transform is not None and transform.dest:
            self.transform = Transform(transform.src, transform.dest, self.engine.random)
        republish = config.republish
        self.republisher = None
        if republish is not None and republish.dest:
            self.republisher = Republisher(self, republish)
        self._sealed = config.sealed
        self._thorough = config.allow_msg_counter  # also a message without headers is looked at
        # No message is refused for want of room.
        self._plain = config.discard == "old" and not self.js.has_storage_limits
        self._counts = self.js.has_storage_limits
        if self._counts:
            self.report_use()
        if config.allow_msg_ttl:
            if self.ttls is None:
                self.ttls = MessageTtls(self)
            self.ttls.configure(config.subject_delete_marker_ttl)
        if config.allow_msg_schedules and self.schedules is None:
            self.schedules = Schedules(self)
        if config.allow_atomic and self.batches is None:
            self.batches = AtomicBatches(self)
        elif not config.allow_atomic and self.batches is not None:
            self.batches.stop()
            self.batches = None
        if config.allow_batched and self.fast is None:
            self.fast = FastBatches(self)
        elif not config.allow_batched and self.fast is not None:
            self.fast.stop()
            self.fast = None
        self.watch_age()

    # -- storing -------------------------------------------------------------------------------

    def handle(self, message: Inbound) -> _int:
        """A message was published to one of the stream's subjects."""
        if message.body_start > message.header_start and self.watch is not None:
            if self.outcome is None:
                trace = sampled_trace(message.data, message.header_start, message.body_start)
                if trace is not None:
                    return handle_watched(self, message, self.watch, trace)
        subject = message.subject
        try:
            if self.transform is not None:
                subject = self.transform.map(subject)
            size = len(message.reply)
            if size > 4 and message.reply[size - 1] == ord("I") and message.reply.endswith(b".$FI"):
                if self.fast is None:
                    raise ApiError(ErrorCode.BATCH_PUBLISH_DISABLED)
                self.fast.take(subject, message)
                return 1
            if self._sealed:
                raise ApiError(ErrorCode.STREAM_SEALED)
            if self._max_size >= 0 and message.end - message.header_start > self._max_size:
                raise ApiError(ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
            if message.body_start > message.header_start:
                size = message.body_start - message.header_start
                if size > HEADER_BYTES_MAX:
                    raise ApiError(ErrorCode.STREAM_HEADER_EXCEEDS_MAXIMUM)
                headers = count_prefix(
                    message.data, message.header_start, message.body_start, NATS_PREFIX
                )
                if size < 12 or message.data[message.header_start + 8] != char.CR:
                    remove_status(message)
                verdict = LOOK_CLOSER
                if headers and not self._thorough:
                    verdict = all_hold(
                        self._name, self.log, subject, message.data,
                        message.header_start, message.body_start,
                    )  # fmt: skip
                if verdict == HOLD_WITH_ID:
                    message_id = find(
                        message.data, message.header_start, message.body_start, NATS_MSG_ID
                    )
                    if message_id:
                        known = self.dedupe.find(message_id)
                        if known:
                            if self.outcome is not None:
                                self.outcome.duplicate_of = known
                            self._promise(message.reply, known, DUPLICATE_END)
                            return 1
                        seq = self.store_message(subject, message)
                        self._remember(message_id, seq)
                        self._promise(message.reply, seq, ACK_END)
                        return 1
                if (headers and verdict == LOOK_CLOSER) or self._thorough:
                    return self._handle_headers(subject, message)
            elif self._thorough:
                return self._handle_headers(subject, message)
            seq = self.store_message(subject, message)
            self.last_msg_id = b""
            self._promise(message.reply, seq, ACK_END)
        except ApiError as error:
            self.refuse(message.reply, error)
        except StorageError as error:
            self.refuse(message.reply, ApiError(ErrorCode.STREAM_STORE_FAILED, err=str(error)))
        return 1

    def _handle_headers(self, subject: bytes, message: Inbound) -> _int:
        """A message with headers that mean something to the stream."""
        if find(message.data, message.header_start, message.body_start, NATS_BATCH_ID):
            if self.batches is None:
                raise ApiError(ErrorCode.ATOMIC_PUBLISH_DISABLED)
            self.batches.take(subject, message)
            return 1
        verdict = check_headers(self, subject, message)
        if verdict.duplicate_of:
            if self.outcome is not None:
                self.outcome.duplicate_of = verdict.duplicate_of
            self._promise(message.reply, verdict.duplicate_of, DUPLICATE_END)
            return 1
        remove_request_info(message)
        if not self._plain:
            check_room_for(self, subject, message, verdict.rollup != "")
        seq = self.store_checked(subject, message, verdict)
        self._promise(message.reply, seq, verdict.ack_end)
        return 1

    def store_checked(self, subject: bytes, message: Inbound, verdict: Verdict) -> _int:
        """Store a message for which there is room, and do what its headers ask for; its sequence.
        Raises `StorageError`."""
        seq = self.keep(subject, message)
        self.finish_message(seq, subject, verdict)
        return seq

    def finish_message(self, seq: _int, subject: bytes, verdict: Verdict) -> None:
        """Message `seq` was stored: remember its id, and do what its headers ask for."""
        self._note_id(seq, verdict)
        self._obey(seq, subject, verdict)

    def store_group(
        self, messages: list[Inbound], verdicts: list[Verdict], stored: _int, size: _int
    ) -> _int:
        """Store checked messages together, all or none, then do what their headers ask for; the
        last one's sequence.

        `stored` is how many of them somebody is interested in, `size` how many bytes their
        subjects, header blocks and bodies have. Raises `StorageError`.
        """
        previous: dict[bytes, int] = {}
        if self.republisher is not None:
            previous = {m.subject: self.log.last_of(m.subject) for m in messages}
        kept = self._append_group(messages, stored, size)
        seq = self.log.last_seq
        first = seq - len(messages) + 1
        self.mark_dirty()
        # What cannot fail comes first: all is stored, whatever the disk says to the rest.
        for at, verdict in enumerate(verdicts):
            self._note_id(first + at, verdict)
        for at in kept:
            message = messages[at]
            if self.republisher is not None:
                self.republisher.note(
                    first + at, message.subject, message, previous[message.subject]
                )
                previous[message.subject] = first + at
            if self._filtered:
                self._note_fresh(first + at, message.subject)
        for at, verdict in enumerate(verdicts):
            self._obey(first + at, messages[at].subject, verdict)
        if self._limited:
            for subject in dict.fromkeys(messages[at].subject for at in kept):
                self.enforce_limits(subject)
        if self._max_age > 0 and self._age_timer is None:
            self.watch_age()
        if self._counts:
            self.report_use()
        return seq

    def _append_group(self, messages: list[Inbound], stored: _int, size: _int) -> list[_int]:
        """Append messages, nothing between them; the places in the list of those that are kept.
        Raises `StorageError`; then none of them is there, or the log has failed."""
        log = self.log
        kept = [
            at for at, m in enumerate(messages) if not self._interest or self.is_wanted(m.subject)
        ]
        wanted = set(kept)
        if stored > 1:
            log.begin_group(len(messages), stored, size)
        try:
            for at, message in enumerate(messages):
                if at in wanted:
                    log.append(
                        message.subject,
                        message.data,
                        message.header_start,
                        message.body_start,
                        message.end,
                        self.clock.now,
                    )
                else:
                    log.skip(self.clock.now)
        except BaseException:
            if stored > 1:
                log.break_group()
            self.mark_dirty()  # a log that has failed lets down who waits for it
            raise
        return kept

    def _note_id(self, seq: _int, verdict: Verdict) -> None:
        """Message `seq` was stored: remember its id."""
        if verdict.message_id:
            self._remember(verdict.message_id, seq)
        else:
            self.last_msg_id = b""

    def _obey(self, seq: _int, subject: bytes, verdict: Verdict) -> None:
        """Message `seq` was stored: do what its headers ask for."""
        if verdict.total is not None:
            self.totals.note(subject, seq, verdict.total)
        if verdict.ttl > 0 and self.ttls is not None:
            self.ttls.stored(seq, verdict.ttl)
        if verdict.rollup == "all":
            self.log.drop_below(seq)
            self.purged()
        elif verdict.rollup == "sub" and self.log.purge((subject,), seq, 0):
            self.purged(subject)
        if verdict.schedule is not None and self.schedules is not None:
            self.schedules.stored(seq, verdict.schedule)
        if verdict.cancels and self.log.purge((verdict.cancels,), seq, 0):
            self.purged(verdict.cancels)

    def store_message(
        self, subject: bytes, message: Inbound, rolls_up: bool = False, ts: _int = 0
    ) -> _int:
        """Append, and enforce the limits; the sequence. Raises `ApiError`, `StorageError`."""
        if not self._plain:
            check_room_for(self, subject, message, rolls_up)
        return self.keep(subject, message, ts)

    def keep(self, subject: bytes, message: Inbound, ts: _int = 0) -> _int:
        """Append without asking whether there is room, and enforce the limits; the sequence.

        `ts` is when the message was stored first (ns), 0 for now. Raises `StorageError`.
        """
        if not self.committed.dirty and not self.failed:
            self.mark_dirty()  # first: a log that fails now says so when it is committed
        if ts == 0:
            ts = self.clock.now
        if self._interest and not self.is_wanted(subject):
            seq = self.log.skip(ts)
        else:
            if self.republisher is not None:
                previous = self.log.last_of(subject)
                self.republisher.note(self.log.last_seq + 1, subject, message, previous)
            seq = self.log.append(
                subject,
                message.data,
                message.header_start,
                message.body_start,
                message.end,
                ts,
            )
            if self._filtered:
                self._note_fresh(seq, subject)
            if self._limited:
                self.enforce_limits(subject)
            if self._max_age > 0 and self._age_timer is None:
                self.watch_age()
        if self._counts:
            self.report_use()
        return seq

    def report_use(self) -> None:
        """Tell the account, whose storage is limited, how much more or less is stored here."""
        change = self.log.bytes - self.counted
        if change:
            self.counted += change
            self.js.count_bytes(self.config.storage, change)

    def mark_dirty(self) -> None:
        """Have the log committed at the end of the turn."""
        if self._counts:
            self.report_use()
        committed = self.committed
        if self.ack_at_once:
            self.turn.has_relaxed = True
        if not committed.dirty and not self.closed:
            committed.dirty = True
            committed.since = committed.since or self.clock.now
            self.turn.streams.append(committed)

    def is_wanted(self, subject: bytes) -> bool:
        """Whether some consumer's filter matches: what interest retention stores at all."""
        if self.unfiltered or self.doubt or self.doubtful:
            return True
        return bool(self.filters.match(subject))

    def enforce_limits(self, subject: bytes) -> None:
        """Drop what exceeds the limits after a message on `subject` was stored."""
        log = self.log
        if self._max_per_subject > 0:
            id = log.subjects.find(subject)
            while id >= 0 and log.subjects.count(id) > self._max_per_subject:
                seq = log.first_of(subject)
                if not log.remove(seq, False):
                    break
                self._tell_removed(seq, subject)
        while self._max_msgs > 0 and log.messages > self._max_msgs:
            log.remove(log.first_seq, False)
            self._front_moved = True
        while self._max_bytes > 0 and log.bytes > self._max_bytes and log.messages:
            log.remove(log.first_seq, False)
            self._front_moved = True

    def _remember(self, message_id: bytes, seq: _int) -> None:
        self.dedupe.add(message_id, seq, self.clock.now)
        self.last_msg_id = message_id
        self.watch_ids()

    def watch_ids(self) -> None:
        """Set the timer that lets old message ids go."""
        if self._dedupe_timer is None and self.dedupe.window:
            self._dedupe_timer = self.engine.timers.after(
                max(self.dedupe.window, SHORTEST_TIMER_NS), self._expire_ids
            )

    def _expire_ids(self) -> None:
        again = self.dedupe.expire(self.clock.now)
        self._dedupe_timer = None
        if again and not self.closed:
            when = max(again, self.clock.now + SHORTEST_TIMER_NS)
            self._dedupe_timer = self.engine.timers.at(when, self._expire_ids)

    # -- acknowledging -------------------------------------------------------------------------

    def promise(self, reply: bytes, seq: _int, end: bytes) -> None:
        """Acknowledge `seq` as soon as everything stored so far is durable; `end` is the end of the
        acknowledgement's JSON, or all of it."""
        self._promise(reply, seq, end)

    def _promise(self, reply: bytes, seq: _int, end: bytes) -> None:
        if not reply or self._no_ack:
            return
        if self.ack_at_once:
            self._ack(reply, seq, end)
        elif not self.committed.dirty and self.failed:  # a duplicate of what will never be durable
            self.refuse(reply, ApiError(ErrorCode.STREAM_STORE_FAILED, err=self.failed))
        else:
            self._acks.add(self.log.last_seq, seq, reply, end)
            if not self.committed.dirty and self.log.durable_seq >= self.log.last_seq:
                self.mark_dirty()

    def relax(self) -> None:
        """Acknowledge at once what is in memory, if the configuration or the server says so and the
        stream itself is durable (see `Commit.hold`); what has waited for that, too."""
        relaxed = self.config.persist_mode == "async" or not self.engine.options.sync_always
        self.ack_at_once = relaxed and not self.committed.held
        if not self.ack_at_once:
            return
        self.turn.has_relaxed = True
        acks = self._acks
        while acks.take(self.log.last_seq):
            self._ack(acks.reply, acks.seq, acks.end)
        changed, self._changed = self._changed, None
        call_all(changed or (), None)

    def refuse(self, reply: bytes, error: ApiError) -> None:
        """Answer a publish with an error. One that names what the stream has last waits until that
        is durable: after a crash it may never have been."""
        if self.outcome is not None:
            self.outcome.error = error
        if not reply or self._no_ack:
            return
        if error.err_code in _NAMES_LAST and not self.is_settled:
            self.when_settled(lambda failure: self._refuse_settled(reply, error, failure))
        else:
            self.account.send(reply, b"", b"", self.js.refusal(self.name, error))

    def _refuse_settled(self, reply: bytes, error: ApiError, failure: StorageError | None) -> None:
        if failure is not None:
            error = ApiError(ErrorCode.STREAM_STORE_FAILED, err=str(failure))
        self.account.send(reply, b"", b"", self.js.refusal(self.name, error))

    def _ack(self, reply: bytes, seq: _int, end: bytes) -> None:
        # If the end is all there is to say, it begins with a brace.
        head = self._ack_head if end[0] != char.BRACE else b""
        self.account.acknowledge(reply, head, seq, end)

    def when_durable(self, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once all that was stored and removed so far survives a crash, or with the
        error that says why it may not. With relaxed durability, and in memory, at once."""
        if self.ack_at_once or self.store is None:
            done(None)
            return
        if self._changed is None:
            self._changed = []
        self._changed.append(done)
        self.mark_dirty()

    @property
    def is_settled(self) -> bool:
        """Whether all that a read sees now survives a crash, as far as it ever will."""
        if self.failed:
            return True
        if self.held_seq and not self.letters.is_stuck:
            return False
        if self.committed.held:  # the stream itself is on its way to the disk
            return False
        if self.ack_at_once or self.store is None:
            return True
        if self._owes_removals:
            return False
        committed = self.committed
        return not (committed.dirty or committed.under_way or committed.again)

    @property
    def _owes_removals(self) -> bool:
        """Whether something was removed, and no batch tells of it or is about to."""
        if self.ttls is not None and self.ttls.owes_commit:
            return True
        return self.log.untold and self.log.owes_removals()

    def when_settled(self, done: Callable[[StorageError | None], None]) -> None:
        """As `when_durable`, for who has read something and changed nothing: a full disk, which
        cannot record what others have removed, is no reason not to answer."""

        settled = Looker(done)
        if self.held_seq:
            self.letters.when_shown(lambda: self._when_batched(settled))
        else:
            self._when_batched(settled)

    def _when_batched(self, settled: "Looker") -> None:
        committed = self.committed
        is_next = committed.dirty or committed.again  # the batch under way does not cover all of it
        if is_next or self._changed or self._owes_removals or not committed.under_way:
            self.when_durable(settled)
        else:
            self._cover([settled])

    @property
    def readable_seq(self) -> _int:
        """The last sequence that may be read now: a crash takes no message back that was shown."""
        if self.ack_at_once or self.store is None:
            last = self.log.last_seq
        else:
            last = self.log.durable_seq
        return min(last, self.held_seq - 1) if self.held_seq else last

    def hold(self, seq: _int) -> None:
        """Deliver nothing from `seq` on, for now, and have reads wait; 0: go on."""
        self.held_seq = seq
        if not seq:
            self._announce()

    def prepare_sync(self, instead_of: SyncBatch | None = None) -> SyncBatch | None:
        """The batch that makes durable all that was stored and removed so far; None if there is
        nothing to sync. Every one comes back to `synced`, in order, unless another one is prepared
        instead of it."""
        batch = self.log.prepare_sync(instead_of)
        if batch is not None and instead_of is None:
            self._prepared += 1
        if self._changed:
            self._cover_changes(batch is not None, batch is not None and batch.error is not None)
        return batch

    def carry(self, copies: EntryCopies) -> bool:
        """Have the next entry of the commit log have a copy of what would be the next batch, and
        count it as one; False, and nothing has happened, if that needs a sync of its own."""
        if self.closed or self.ack_at_once or not self.log.carry(copies):
            return False
        self._prepared += 1
        if self._changed:
            self._cover_changes(True, False)
        return True

    def _cover_changes(self, is_batch: bool, has_failed: bool) -> None:
        """Have callbacks that wait for a change called when the last batch is done, if that covers
        it; there may be none, or one that has failed already."""
        changed, self._changed = self._changed or [], None
        if has_failed or not self.log.owes_removals():
            self._cover(changed)
        elif not is_batch:  # else files that go with it may leave the space that is missing
            error = DiskFullError(
                "no space left on the disk to record what was removed: a crash may bring it"
                " back; free some and ask again"
            )
            for done in changed:
                done(error)
        else:  # ... and who looks waits for no space
            self._cover([done for done in changed if isinstance(done, Looker)])
            self._changed = [done for done in changed if not isinstance(done, Looker)]

    def _cover(self, callbacks: list[Any]) -> None:
        """Have callbacks called when the last batch that was prepared is done."""
        if self._covered is None:
            self._covered = []
        self._covered.append((self._prepared, callbacks))

    def synced(self, batch: SyncBatch | None) -> None:
        """A batch has reached the disk (None: there was nothing to sync), or has failed to."""
        if batch is not None:
            if self.closed:
                return
            self._finished += 1
            try:
                self.log.finish_sync(batch)
                if batch.references:
                    self.js.state.refer(batch.references)
            except StorageError as error:
                self.fail(str(error))
        self._tell(batch is not None)

    def carried(self, error: Exception | None) -> None:
        """The entry that has a copy instead of a batch has reached the disk, or failed to."""
        self._finished += 1
        try:
            self.log.finish_carried(error)
        except StorageError as failure:
            self.fail(str(failure))
        self._tell(True)

    def _tell(self, was_batch: bool) -> None:
        """Tell all who wait what has become durable."""
        self._release_acks()
        while self._covered and self._covered[0][0] <= self._finished:
            call_all(self._covered.pop(0)[1], None)
            self._covered = self._covered or None
        if self._changed and was_batch:
            self.mark_dirty()
        if self.letters is not None:
            self.letters.synced()
        self._announce()
        self._save_end_later()
        self.run_jobs()

    def run_jobs(self) -> None:
        """Have background work of the log done, and what that leaves to be done."""
        if self.log.has_jobs() and not self.closed:
            for job in self.log.take_jobs():
                self.engine.commit.run_aside(LogJob(self, job))

    def _save_end_later(self) -> None:
        if self.log.end_moved and self._end_timer is None:
            after = max(END_SAVED_AFTER_NS, END_SAVED_SHARE_NS * len(self.js.streams))
            self._end_timer = self.engine.timers.after(after, self._save_end)

    def _save_end(self) -> None:
        """Have it kept where the log ends, so that damage there shows at the next start."""
        self._end_timer = None
        if not self.closed:
            self.log.save_end()
            self.run_jobs()

    def _release_acks(self) -> None:
        durable = self.log.durable_seq
        acks = self._acks
        while acks.take(durable):
            self._ack(acks.reply, acks.seq, acks.end)

    def _let_down(self, error: StorageError) -> None:
        """Call back with an error all who wait for a change to become durable."""
        covered, self._covered = self._covered or [], None
        changed, self._changed = self._changed or [], None
        callbacks = [callback for entry in covered for callback in entry[1]]
        call_all([*callbacks, *changed], error)

    def refuse_waiting(self, why: str) -> None:
        """Nothing that waits for the disk will be durable."""
        self.refuse_published(why)
        self._let_down(StorageError(why))

    def refuse_published(self, why: str) -> None:
        """No message that is not acknowledged yet will be."""
        waiting, self._acks = self._acks, Promises()
        while waiting.take(self.log.last_seq):
            self.refuse(waiting.reply, ApiError(ErrorCode.STREAM_STORE_FAILED, err=why))

    def fail(self, why: str) -> None:
        """The disk has failed: what waits is refused, nothing is written any more."""
        self.refuse_waiting(why)
        if self.letters is not None:
            self.letters.let_go(f"its storage has failed: {why}")
        if why != self.failed:
            self.failed = why
            self.js.problem(f"stream '{self.account.name} > {self.name}': {why}")

    # -- consumers -----------------------------------------------------------------------------

    def _announce(self) -> None:
        """Tell consumers what became visible and what has gone."""
        if self._front_moved:
            self._front_moved = False
            self.with_outstanding = {c: None for c in self.with_outstanding if c.front_moved()}
        last = self.log.last_seq if self.ack_at_once else self.log.durable_seq
        if self.held_seq and last >= self.held_seq:
            last = self.held_seq - 1
        if last <= self.visible_seq:
            return
        self.visible_seq = last
        if self.republisher is not None:
            self.republisher.publish(last)
        readers = self.awaiting_next
        if readers:
            self.awaiting_next = []
            for consumer in readers:
                consumer.come()
        if self._fresh:
            n = 0
            for seq, subject in self._fresh:
                if seq > last:
                    break
                n += 1
                for consumer in self.filters.match(subject):
                    consumer.stored(seq)
            self._fresh = self._fresh[n:] or None
        if self._joined:
            for consumer in self._joined:
                consumer.wake()
            if last >= self.log.last_seq:
                self._joined = None

    def _note_fresh(self, seq: _int, subject: bytes) -> None:
        if self._fresh is None:
            self._fresh = []
        self._fresh.append((seq, subject))

    def _tell_removed(self, seq: _int, subject: bytes) -> None:
        """One message has gone: only those need to know whose filters match."""
        if not self.consumers and not self.direct_consumers:
            return
        for consumer in self.filters.match(subject):
            consumer.removed(seq)
        for consumer in self.unfiltered:
            consumer.removed(seq)
        if self.refiltered:
            self.refiltered = {c: None for c in self.refiltered if c.lost(seq)}

    def every_consumer(self) -> list[Any]:
        """The consumers, also those of mirrors and sources, which nobody is shown."""
        return [*self.consumers.values(), *self.direct_consumers.values()]

    def add_consumer(self, consumer: Reader) -> None:
        """A consumer begins."""
        group = self.direct_consumers if consumer.config.direct else self.consumers
        group[consumer.name] = consumer
        self.link_filters(consumer)

    def link_filters(self, consumer: Reader) -> None:
        """Have `consumer` told of what matches its filters."""
        if consumer.filters:
            for pattern in consumer.filters:
                self.filters.insert(pattern, consumer)
            self._filtered = True
        else:
            self.unfiltered[consumer] = None
        if self.log.last_seq > self.visible_seq:  # nobody has noted that these are for it
            if self._joined is None:
                self._joined = []
            self._joined.append(consumer)

    def unlink_filters(self, consumer: Reader) -> None:
        """Tell `consumer` no more of what matches its filters."""
        for pattern in consumer.filters:
            self.filters.remove(pattern, consumer)
        self._filtered = self.filters.size > 0
        self.unfiltered.pop(consumer, None)

    def remove_consumer(self, consumer: Reader) -> None:
        """A consumer has ended: what only it needed may go."""
        group = self.direct_consumers if consumer.config.direct else self.consumers
        if group.pop(consumer.name, None) is None:
            return
        self.unlink_filters(consumer)
        self.with_outstanding.pop(consumer, None)
        self.refiltered.pop(consumer, None)
        if self._interest and not self.closed:
            drop_unneeded(self, consumer.matching)

    def acked(self, consumer: Reader, seq: _int) -> None:
        """`consumer` is done with `seq`: an interest or work-queue stream may let it go."""
        if self.doubt or (self._interest and self.doubtful):
            return
        if len(self.consumers) == 1:
            if self.log.remove(seq, False):
                self.mark_dirty()
            return
        if self._interest:
            if not self.log.read(seq, self._record):
                return
            for other in [*self.unfiltered, *self.filters.match(self._record.subject)]:
                if other is not consumer and other.needs(seq):
                    return
        self.remove_message(seq, False)

    def remove_message(self, seq: _int, erase: bool) -> bool:
        """Remove one message, and tell the consumers. False if it is not there."""
        subject = b""
        if self.consumers or self.direct_consumers:
            if not self.log.read(seq, self._record):
                return False
            subject = self._record.subject
        if not self.log.remove(seq, erase):
            return False
        self._tell_removed(seq, subject)
        if erase and self.store is not None:
            self.js.state.erase()
        self.mark_dirty()
        return True

    def remove_run(self, first: _int, count: _int, size: _int) -> bool:
        """The same for `count` messages that follow each other from `first` on, and have `size`
        bytes together. False, and nothing removed, if that takes a look at each of them. Who calls
        has the stream committed."""
        subjects = []
        is_front = first == self.log.first_seq
        if not is_front and (self.consumers or self.direct_consumers):
            subjects = [self.log.subject_of(seq) for seq in range(first, first + count)]
        if not self.log.remove_run(first, count, size):
            return False
        if is_front:
            self._front_moved = True
        for at, subject in enumerate(subjects):
            self._tell_removed(first + at, subject)
        if self._counts:
            self.report_use()
        return True

    def purged(self, pattern: bytes = b"") -> None:
        """Messages that match `pattern` (all by default) were purged: consumers look again."""
        for consumer in self.every_consumer():
            consumer.purged(pattern)
        self.mark_dirty()

    # -- age -----------------------------------------------------------------------------------

    def watch_age(self) -> None:
        """Set the timer for the oldest message."""
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        if self._max_age > 0 and self.log.messages and not self.closed:
            oldest = self.log.first_ts if self.ttls is None else self.ttls.oldest_ts()
            if oldest or self.ttls is None:
                when = max(oldest + self._max_age, self.clock.now + SHORTEST_TIMER_NS)
                self._age_timer = self.engine.timers.at(when, self._expire)

    def _expire(self) -> None:
        """Let go of messages that have become too old, a bounded number at once."""
        self._age_timer = None
        if self.closed:
            return
        try:
            self._drop_old(self.clock.now - self._max_age)
        except (OSError, StorageError):
            self._age_timer = self.engine.timers.after(RETRY_NS, self._expire)

    def _drop_old(self, before: _int) -> None:
        """Let go of what was stored up to `before` (ns). Raises OSError, `StorageError`."""
        if self.ttls is None:
            bound = min(self.log.seq_at(before + 1), self.log.first_seq + EXPIRE_AT_ONCE_MAX)
        else:
            bound = self.ttls.front_by_age(before, EXPIRE_AT_ONCE_MAX)
            if not bound and self.ttls.expire_by_age(before):
                self._age_timer = self.engine.timers.at(self.clock.now, self._expire)
                return
        self.drop_below(bound)
        self.watch_age()

    def drop_below(self, bound: _int) -> None:
        """Let go of every message below the sequence `bound`; consumers find out in this turn.
        Raises OSError, `StorageError`: perhaps some of them have gone."""
        messages = self.log.messages
        try:
            self.log.drop_below(bound)
        finally:
            if self.log.messages < messages:
                self._front_moved = True
                self.mark_dirty()

    # -- the end -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Nothing is stored or delivered any more; files stay as they are."""
        self.closed = True
        for timer in (self._age_timer, self._dedupe_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self._age_timer = self._dedupe_timer = self._end_timer = None
        if self.ttls is not None:
            self.ttls.stop()
        if self.batches is not None:
            self.batches.stop()
        if self.schedules is not None:
            self.schedules.stop()
        if self.fast is not None:
            self.fast.stop()
        if self.inflow is not None:
            self.inflow.stop()
        if self.letters is not None:
            self.letters.let_go("it has ended")
        for subject in self.config.subjects:
            self.account.remove_service(subject.encode(), self)
        if self.direct is not None:
            self.direct.stop()
            self.direct = None
        self._let_down(StorageError(f"stream {self.name} has ended; ask for it again"))
