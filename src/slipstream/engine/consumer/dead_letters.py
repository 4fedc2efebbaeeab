"""Messages of a consumer that are to become dead letters, where `dead_letter` is configured.

A message that was terminated, or delivered as often as it may be, stays among those that are out
until it is stored under that subject. It is delivered to nobody meanwhile, an acknowledgement that
comes late still counts, and after a crash it is to be delivered as before. If no stream takes it,
it goes on waiting, takes room of `max_ack_pending`, and `problem` says why.

    terminated, max_deliver ──> waiting ──LetterBox.put──> stored, unseen
                                   └──────── one commit: seen, and settled here <──┘
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slipstream.engine.commit.state_commit import CONTENT_BYTES_MAX
from slipstream.engine.consumer.events import advise
from slipstream.engine.consumer.letter import MAX_DELIVER
from slipstream.engine.consumer.letter_box import LetterBox, LetterRefusedError
from slipstream.engine.consumer.pending import DUE, PENDING_SIZE
from slipstream.engine.consumer.redelivery import advise_terminated, vanished
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.durations import SECOND
from slipstream.wire.subjects import matches

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.stream.stream import Stream

AGAIN_NS = SECOND  # after which a message that no stream took is offered once more
PUT_MAX = 256  # messages, and ...
PUT_BYTES_MAX = 1024 * 1024  # ... bytes that go into a stream in one go
LETTER_STEPS = 100  # what one costs (see `turn`)


@dataclass(eq=False)
class Dying:
    """A message that is to become a dead letter."""

    seq: int
    cause: str
    reason: str
    count: int  # deliveries
    answers: list[Callable[[], None]] = field(default_factory=list)  # once it is settled
    is_stored: bool = False  # in a box, and not committed yet
    is_gone: bool = False  # removed from its stream since then


class DeadLetters:
    """See the module's text."""

    def __init__(self, consumer: "Consumer") -> None:
        self.consumer = consumer
        self.dying: dict[int, Dying] = {}
        self.problem = ""  # why they wait, other than for the disk
        self.stored = 0  # in boxes and not committed yet
        self._waiting: deque[Dying] = deque()  # those not stored, and some that wait no longer
        self._queued = False
        self._timer: Any = None

    # -- what is to become a dead letter ---------------------------------------------------------

    def take(self, seq: int, cause: str, reason: str) -> None:
        """A message that is out, and is to be delivered no more."""
        consumer = self.consumer
        if seq in self.dying:
            return
        count = consumer.redelivered.get(seq, 1)
        self.dying[seq] = Dying(seq, cause, reason, count)
        self._waiting.append(self.dying[seq])
        consumer.pending.set_deadline(consumer.pending.find(seq), DUE)
        consumer.changed()
        self.wake()

    def take_exhausted(self) -> None:
        """What was delivered as often as it may be and waits to be delivered again: a limit was
        lowered, or the server has started."""
        consumer = self.consumer
        if consumer.max_deliver <= 0 or not consumer.pending.due:
            return
        for seq in consumer.pending.sequences():
            if (
                consumer.pending.deadline(consumer.pending.find(seq)) == DUE
                and consumer.redelivered.get(seq, 1) >= consumer.max_deliver
            ):
                self.take(seq, MAX_DELIVER, "")

    def when_settled(self, seq: int, answer: Callable[[], None]) -> bool:
        """Call back once `seq` is settled; False if it does not wait for that here."""
        dying = self.dying.get(seq)
        if dying is None:
            return False
        dying.answers.append(answer)
        return True

    def vanished(self, seq: int) -> None:
        """A message was removed from its stream. What is stored for it already is committed."""
        dying = self.dying.get(seq)
        if dying is not None and dying.is_stored:
            dying.is_gone = True
        elif dying is not None:
            del self.dying[seq]
            self._answer(dying)

    def forget(self) -> None:
        """The consumer begins elsewhere: what was out is not any more."""
        self.dying.clear()
        self._waiting.clear()
        self.problem = ""

    def release(self) -> list[Dying]:
        """There are to be no dead letters any more: what was to become one, and is not stored."""
        waiting = self.unstored()
        for dying in waiting:
            del self.dying[dying.seq]
        self._waiting.clear()
        self.problem = ""
        return waiting

    def unstored(self) -> list[Dying]:
        """What no stream has taken yet."""
        return [dying for dying in self.dying.values() if not dying.is_stored]

    # -- storing ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Offer what waits to a stream at the end of the turn."""
        if not self._queued and not self.consumer.stopped and self._waiting:
            self._queued = True
            self.consumer.turn.ready.append(self)

    def put_off(self, error: Exception) -> None:
        """The disk refused."""
        self._wait(f"the disk refuses: {error}")

    def _wait(self, problem: str) -> None:
        """Offer what waits once more in a while."""
        self.problem = problem
        if self._timer is None:
            self._timer = self.consumer.engine.timers.after(AGAIN_NS, self._again)

    def _again(self) -> None:
        self._timer = None
        self.wake()

    def pump(self) -> None:
        """Store what waits, a bounded amount."""
        self._queued = False
        consumer = self.consumer
        if consumer.stopped:
            return
        try:
            self._store_some()
        except LetterRefusedError as error:
            if not error.is_passing:  # else the box wakes it
                self._wait(str(error))
        except StorageError as error:
            self._wait(str(error))

    def _store_some(self) -> None:
        """Raises `LetterRefusedError`, `StorageError`."""
        consumer = self.consumer
        count = size = 0
        while self._waiting:
            dying = self._waiting[0]
            record = Record()
            if not self._is_still_out(dying):
                self._waiting.popleft()
                continue
            if not consumer.log.read(dying.seq, record):
                vanished(consumer, dying.seq)
                continue
            if not count:
                self._check_position()
                stream = find_stream(consumer)
            elif count >= PUT_MAX or size >= PUT_BYTES_MAX:
                self.wake()
                break
            if stream.letters is None:
                stream.letters = LetterBox(stream)
            stream.letters.put(self, dying, record)
            self._waiting.popleft()
            consumer.turn.spent += LETTER_STEPS
            count += 1
            size += record.end - record.header_start
        self.problem = ""

    @property
    def position_size(self) -> int:
        """Bytes of the consumer's position, about."""
        consumer = self.consumer
        left = len(consumer.initial) - consumer.initial_at
        return PENDING_SIZE * len(consumer.pending) + 16 * len(consumer.redelivered) + 8 * left

    def _check_position(self) -> None:
        """The position goes into the commit log with each dead letter. Raises
        `LetterRefusedError`."""
        size = self.position_size
        if self.consumer.store is not None and size > CONTENT_BYTES_MAX * 3 // 4:
            raise LetterRefusedError(
                f"the consumer's position has {size} bytes, which is more than one commit takes; "
                "it shrinks as messages are acknowledged"
            )

    def _is_still_out(self, dying: Dying) -> bool:
        """Whether a message was neither acknowledged meanwhile nor removed from its stream."""
        place = self.consumer.pending.find(dying.seq)
        if place >= 0 and self.dying.get(dying.seq) is dying:
            return True
        if self.dying.get(dying.seq) is dying:
            del self.dying[dying.seq]
            self._answer(dying)
        return False

    def _answer(self, dying: Dying) -> None:
        for answer in dying.answers:
            self.consumer.life.when_saved(answer)
        dying.answers = []

    # -- what the box says -----------------------------------------------------------------------

    def refused(self, dying: Dying, why: str) -> None:
        """A stored one will not be committed: it waits again."""
        dying.is_stored = False
        self.stored -= 1
        self._waiting.append(dying)
        self._wait(why)

    def is_wanted(self, dying: Dying) -> bool:
        """Whether a stored one is to be committed: not if its message was acknowledged meanwhile,
        or the consumer has begun elsewhere."""
        if self.consumer.stopped or dying.is_gone or self._is_still_out(dying):
            return True
        self.stored -= 1
        return False

    def settle(self, dying: Dying) -> None:
        """Settle a message whose dead letter is about to be committed."""
        consumer = self.consumer
        place = consumer.pending.find(dying.seq)
        if consumer.stopped or place < 0:
            return
        if dying.cause == MAX_DELIVER:
            advise(consumer, "MAX_DELIVERIES", "max_deliver", dying.seq, 0, deliveries=dying.count)
        else:
            advise_terminated(
                consumer, dying.seq, consumer.pending.consumer_seq(place), dying.reason
            )
        consumer.acked_at = consumer.clock.now
        consumer.settle(place)

    def committed(self, dying: Dying) -> None:
        """A message and its dead letter are settled, durably."""
        consumer = self.consumer
        self.stored -= 1
        if self.dying.get(dying.seq) is dying:
            del self.dying[dying.seq]
        if consumer.stopped:
            return
        if consumer.retains:
            consumer.stream.acked(consumer, dying.seq)
        consumer.changed()
        consumer.wake()
        self._answer(dying)
        if not self.dying:
            consumer.life.watch(consumer.life.inactive_at())


def find_stream(consumer: "Consumer") -> "Stream":
    """The stream that takes the dead letters of `consumer`, as things are. Raises
    `LetterRefusedError`."""
    subject = consumer.config.dead_letter
    stream: Stream | None = consumer.stream.js.stream_of(subject)
    if stream is None:
        raise LetterRefusedError(
            f"no stream of the account stores the subject {subject}: create one that does"
        )
    if stream is consumer.stream and is_own(consumer.filters, subject):
        raise LetterRefusedError(
            f"the subject {subject} is in the consumer's own stream and matches its filters: "
            "dead letters would come back to it"
        )
    return stream


def is_own(filters: tuple[bytes, ...], subject: str) -> bool:
    """Whether filters (none: everything) match a literal subject."""
    raw = subject.encode()
    return not filters or any(matches(one, raw) for one in filters)
