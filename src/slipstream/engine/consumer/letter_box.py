"""Dead letters in the stream that takes them, up to the one commit that makes them such.

    put ──> in the stream's log ──synced──> one entry of the commit log ──> seen
            unseen (`Stream.hold`)           the positions that settle them,
                                             the last sequence that counts

A dead letter is stored first, as any message, and nobody sees it. Once it is durable, one entry of
the commit log says both: the positions of its consumers, in which the messages are settled, and up
to which sequence the stream's dead letters count. So after a crash a message is a dead letter and
settled, or `take_back` removes what was stored for it, and it is to be delivered as before.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.consumer.letter import (
    CONSUMER,
    ID,
    MAX_DELIVER,
    STREAM,
    field_of,
    letter_id,
    write_letter,
)
from slipstream.engine.consumer.state import encode_state
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.retention import check_room_for
from slipstream.engine.stream.ttl import INVALID, ttl_of
from slipstream.errors import CorruptionError, Error, StorageError
from slipstream.log.record import Record
from slipstream.model.durations import SECOND

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.consumer.dead_letters import DeadLetters, Dying
    from slipstream.engine.stream.stream import Stream

COMMIT_AGAIN_NS = SECOND // 10
TRIES_MAX = 10  # to commit; then what is stored is taken back


class LetterRefusedError(Error):
    """A stream does not take a dead letter; `is_passing` if it will in a moment."""

    def __init__(self, why: str, is_passing: bool = False) -> None:
        super().__init__(why)
        self.is_passing = is_passing


class Counted(msgspec.Struct):
    """What is kept beside a stream that takes dead letters."""

    seq: int = 0  # up to which its dead letters count
    subjects: list[str] = []  # under which there may be any


@dataclass(eq=False)
class _Stored:
    """One dead letter that is not committed yet."""

    seq: int  # in the stream
    owner: "DeadLetters"
    dying: "Dying"


class LetterBox:
    """See the module's text."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._stored: deque[_Stored] = deque()
        self._counted = Counted(stream.log.last_seq)  # durable; what is there counts
        self._kept_seq = 0  # of what was given to the commit log last
        self._naming: set[str] = set()  # subjects on their way to the disk
        self._asked: dict[DeadLetters, None] = {}  # who waits for these
        self._committing: list[_Stored] = []
        # Who waits until all is seen up to a sequence.
        self._readers: list[tuple[int, Callable[[], None]]] = []
        self._timer: Any = None
        self._is_under_way = False  # the disk has something to do before this goes on
        self._is_taking_out = False  # what was stored and removed is not durably gone yet
        self._tries = 0  # to have the next ones committed
        self._is_let_go = False
        self._unseen_seq = 0  # the first that it did not commit then: the next start removes these
        self.is_stuck = False  # nobody knows whether what was to be committed is
        if stream.store is not None:
            self._load()
        self._kept_seq = self._counted.seq

    def _load(self) -> None:
        """What an earlier process has kept."""
        kept = self._stream.store.letters
        if not kept.is_there():
            return
        try:
            self._counted = msgspec.json.decode(kept.load(), type=Counted)
        except (Error, OSError, msgspec.MsgspecError) as error:
            # All that is there counts: rather a dead letter twice than none.
            self._counted = Counted(self._stream.log.last_seq)
            self._stream.js.problem(
                f"stream '{self._stream.account.name} > {self._stream.name}' does not know which "
                f"of its dead letters count: {error}; the last ones may be there twice"
            )

    # -- storing ---------------------------------------------------------------------------------

    def put(self, owner: "DeadLetters", dying: "Dying", record: Record) -> None:
        """Store the dead letter of a message. Raises `LetterRefusedError`, `StorageError`: it is
        not stored then."""
        stream = self._stream
        consumer = owner.consumer
        seq = stream.log.last_seq + 1
        reason = dying.reason or "terminated"
        if dying.cause == MAX_DELIVER:
            reason = f"not acknowledged after {dying.count} deliveries"
        id = letter_id(stream, seq, consumer)
        message = write_letter(consumer, record, dying.cause, reason, dying.count, id)
        subject = consumer.config.dead_letter.encode()
        if stream.transform is not None:
            subject = stream.transform.map(subject)
        message.subject = subject
        self._check(message)
        if stream.store is not None and subject.decode() not in self._counted.subjects:
            self._asked[owner] = None
            self._name(subject.decode())
            raise LetterRefusedError("the stream is being told of the subject", is_passing=True)
        stream.last_msg_id = b""
        if not self._stored and not self._committing:
            stream.hold(seq)
        try:
            stream.keep(subject, message)
        except BaseException:
            self._show()
            raise
        self._heed_ttl(seq)
        dying.is_stored = True
        owner.stored += 1
        self._stored.append(_Stored(seq, owner, dying))
        if stream.store is None:
            stream.mark_dirty()

    def _check(self, message: Inbound) -> None:
        """What publishing to the stream would be refused for. Conditions in its headers were the
        publisher's, and were met. Raises `LetterRefusedError`."""
        stream = self._stream
        config = stream.config
        name = stream.name
        why = ""
        size = message.end
        if self._is_let_go or stream.closed or stream.failed:
            why = f"the stream {name} takes no messages: {stream.failed or 'it has ended'}"
        elif stream.store is not None and stream.js.state.log.failed:
            why = stream.js.state.log.failed
        elif config.sealed:
            why = f"the stream {name} is sealed"
        elif config.allow_msg_counter or config.allow_msg_schedules:
            why = f"the stream {name} is for counters or schedules"
        elif 0 <= config.max_msg_size < size:
            why = f"the dead letter has {size} bytes, and max_msg_size of {name} is less"
        elif config.retention == "interest" and not stream.is_wanted(message.subject):
            why = f"the stream {name} keeps by interest, and no consumer wants the subject"
        else:
            total = stream.log.size_of(
                len(message.subject), message.body_start, message.end - message.body_start
            )
            if 0 < config.max_bytes < total:
                why = f"the dead letter has {total} bytes, and max_bytes of {name} is less"
        if why:
            raise LetterRefusedError(why)
        try:
            check_room_for(stream, message.subject, message, False)
        except ApiError as error:
            raise LetterRefusedError(f"the stream {name} refuses it: {error}") from error

    def _heed_ttl(self, seq: int) -> None:
        """Where messages may have times of their own, a dead letter keeps that of its message."""
        stream = self._stream
        record = Record()
        if stream.ttls is None or not stream.log.read(seq, record):
            return
        ttl = ttl_of(record)
        if ttl not in (0, INVALID):
            stream.ttls.stored(seq, ttl)

    def _name(self, subject: str) -> None:
        """Have it kept under which subject dead letters come, before the first one does."""
        if subject in self._naming:
            return
        self._naming.add(subject)
        names = [*self._counted.subjects, *sorted(self._naming)]

        def done(error: Exception | None) -> None:
            self._naming.discard(subject)
            if error is None and subject not in self._counted.subjects:
                self._counted.subjects.append(subject)
            asked, self._asked = self._asked, {}
            for owner in asked:
                if error is None:
                    owner.wake()
                else:
                    owner.put_off(error)

        if not self._committing and not self._stored:
            self._kept_seq = self._stream.log.last_seq
        content = msgspec.json.encode(Counted(self._kept_seq, names))
        try:
            self._stream.js.state.keep(self._stream.store.letters, content, done)
        except (OSError, StorageError) as error:
            done(error)

    # -- committing ------------------------------------------------------------------------------

    def synced(self) -> None:
        """The stream has become durable up to some message: commit the dead letters among those."""
        if self._committing or not self._stored or self._is_let_go:
            return
        stream = self._stream
        durable = stream.log.durable_seq if stream.store is not None else stream.log.last_seq
        self._committing = self._take(durable)
        if self._committing:
            self._commit()
        elif stream.ack_at_once:
            self._again_later()

    def _take(self, durable: int) -> list[_Stored]:
        """The first of what is stored up to a sequence: as many as one entry of the commit log has
        room for the positions of. In memory nothing is kept."""
        taken: list[_Stored] = []
        owners: set[DeadLetters] = set()
        size = 0
        while self._stored and self._stored[0].seq <= durable:
            owner = self._stored[0].owner
            store = owner.consumer.store
            if self._stream.store is not None and store is not None and owner not in owners:
                owners.add(owner)
                log = self._stream.js.state.log
                size += log.bytes_of(store.state, owner.position_size)
                if taken and size > log.share:
                    break
            taken.append(self._stored.popleft())
        return taken

    def _again_later(self) -> None:
        if self._timer is None:
            self._timer = self._stream.engine.timers.after(COMMIT_AGAIN_NS, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._is_let_go:
            return
        if self._is_taking_out:
            self._await_removal()
        elif self._committing:
            self._commit()
        elif self._stored:
            self._stream.engine.commit.hasten(self._stream.committed)
            self._again_later()
            self.synced()

    def _commit(self) -> None:
        """Settle what is durable, and have that kept as one."""
        if self._is_under_way:
            return
        stale = [one for one in self._committing if not one.owner.is_wanted(one.dying)]
        if stale:
            self._take_out(stale)
        elif self._committing:
            self._settle()
        else:
            self._show()
            self.synced()

    def _take_out(self, stale: list[_Stored]) -> None:
        """Messages were acknowledged meanwhile: what was stored for them goes. That is durable
        before anything counts that was stored later."""
        stream = self._stream
        for one in stale:
            self._committing.remove(one)
            stream.remove_message(one.seq, False)
        self._await_removal()

    def _await_removal(self) -> None:
        def removed(error: Exception | None) -> None:
            self._is_under_way = False
            self._is_taking_out = error is not None
            if error is None:
                self._commit()
            else:  # such as a full disk: the stream writes it again once there is room
                self._again_later()

        self._is_under_way = self._is_taking_out = True
        self._stream.when_durable(removed)

    def _settle(self) -> None:
        stream = self._stream
        if stream.store is None:
            for one in self._committing:
                one.owner.settle(one.dying)
            self._committed(None)
            return
        state = stream.js.state
        kept = self._kept_consumers()
        if any(one.life.has_late_position for one in kept):
            self._again_later()
            return
        subjects = [*self._counted.subjects, *sorted(self._naming)]
        last_seq = self._committing[-1].seq
        counted = msgspec.json.encode(Counted(last_seq, subjects))
        log = state.log
        size = log.bytes_of(stream.store.letters, len(counted))
        size += sum(log.bytes_of(one.store.state, len(encode_state(one))) for one in kept)
        try:
            state.make_room(size)
        except (OSError, StorageError) as error:
            self._tries += 1
            if self._tries < TRIES_MAX and not state.log.failed:
                self._again_later()
            else:  # nothing that was stored since is seen before
                self._give_back(str(error))
            return
        self._tries = 0
        self._is_under_way = True
        for one in self._committing:
            one.owner.settle(one.dying)
        self._kept_seq = last_seq
        try:
            for consumer in kept:
                state.keep(consumer.store.state, encode_state(consumer))
            state.keep(stream.store.letters, counted, self._committed)
        except (OSError, StorageError) as error:  # the log has failed just now
            self._committed(error)

    def _give_back(self, why: str) -> None:
        """The commit log has no room: what is stored and not committed goes, and waits again."""
        self._tries = 0
        given = [*self._committing, *self._stored]
        self._committing, self._stored = [], deque()
        for one in given:
            self._stream.remove_message(one.seq, False)
            one.owner.refused(one.dying, why)
        self._show()

    def _kept_consumers(self) -> "list[Consumer]":
        """The consumers of what is to be committed that have a position on disk."""
        found = dict.fromkeys(one.owner.consumer for one in self._committing)
        return [one for one in found if one.store is not None and not one.stopped]

    def _committed(self, error: Exception | None) -> None:
        """What was settled is settled durably, and seen; with `error` the commit log has failed,
        and the next start decides."""
        if error is not None:
            for one in self._committing:
                one.owner.problem = str(error)
            self.is_stuck = True
            self._call_readers()
            return
        self._is_under_way = False
        committed, self._committing = self._committing, []
        if committed:
            self._counted.seq = max(self._counted.seq, committed[-1].seq)
        for one in committed:
            one.owner.committed(one.dying)
        self._show()
        self.synced()

    def _show(self) -> None:
        """Have all seen but what is still to be committed."""
        waiting = self._committing or self._stored
        if not self._stream.closed:
            self._stream.hold(waiting[0].seq if waiting else self._unseen_seq)
        self._call_readers(waiting[0].seq if waiting else 0)

    def when_shown(self, done: Callable[[], None]) -> None:
        """Call back once all that is stored now is seen, or is not there any more; at once where
        the next start decides."""
        if self._is_let_go or self.is_stuck:
            done()
        else:
            self._readers.append((self._stream.log.last_seq, done))

    def _call_readers(self, unseen_seq: int = 0) -> None:
        """Call those who wait for nothing from `unseen_seq` on; 0: all."""
        readers, self._readers = self._readers, []
        if unseen_seq:
            self._readers = [one for one in readers if one[0] >= unseen_seq]
            readers = [one for one in readers if one[0] < unseen_seq]
        for _, done in readers:
            done()

    def let_go(self, why: str) -> None:
        """The stream takes nothing more: what is not being committed waits for another one."""
        if self._is_let_go:
            return
        self._is_let_go = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stored, self._stored = self._stored, deque()
        self._unseen_seq = stored[0].seq if stored else 0
        for one in stored:
            one.owner.refused(one.dying, f"the stream {self._stream.name} does not take it: {why}")
        self._call_readers()

    # -- starting again --------------------------------------------------------------------------

    def take_back(self) -> None:
        """Remove the dead letters that a crash left without the commit that settles them: their
        messages are to be delivered as before."""
        stream = self._stream
        subjects = tuple(subject.encode() for subject in self._counted.subjects)
        if not subjects:
            return
        matching = stream.log.filter(subjects)
        record = Record()
        found = []
        seq = max(self._counted.seq + 1, stream.log.first_seq)
        while stream.log.next(seq, matching, record):
            seq = record.seq + 1
            if self._is_uncounted(record):
                found.append(record.seq)
        for seq in found:
            stream.remove_message(seq, False)

    def _is_uncounted(self, record: Record) -> bool:
        name, consumer_name = field_of(record, STREAM), field_of(record, CONSUMER)
        consumer = self._stream.js.find_consumer(name, consumer_name)
        if consumer is None:
            return False
        return field_of(record, ID).encode() == letter_id(self._stream, record.seq, consumer)


def take_back_letters(stream: "Stream") -> None:
    """Where `stream` has taken dead letters before, remove those that do not count. Its consumers,
    and all those of the account, are there."""
    if stream.store is None or not stream.store.letters.is_there():  # most have none
        return
    try:
        stream.letters = LetterBox(stream)
        stream.letters.take_back()
    except (OSError, StorageError, CorruptionError) as error:
        stream.js.problem(
            f"stream '{stream.account.name} > {stream.name}' could not be searched for dead "
            f"letters that do not count: {error}"
        )
