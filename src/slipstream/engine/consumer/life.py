"""A consumer's time: deadlines, pauses, inactivity, saving its state, its end.

There is one timer for a consumer, set to the earliest thing that can happen; a consumer at rest has
none. The state goes into the commit log at most every tenth of a second, later where much is
pending; an acknowledgement that wants an answer has it saved at once, together with those that
wait meanwhile.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.commit.state_commit import CONTENT_BYTES_MAX
from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.redelivery import redeliver_overdue
from slipstream.engine.consumer.state import encode_meta, encode_state, is_ahead
from slipstream.engine.consumer.watched import end_every_watch
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.watch import RESET
from slipstream.errors import StorageError
from slipstream.log.stream_store import ConsumerStore
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import LATEST, ZERO, utc_text

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

SAVE_EVERY_NS = SECOND // 10
READ_AGAIN_NS = SECOND
LOOK_AGAIN_NS_MIN = SECOND // 10  # for whether a client that has pulled is still there
# How long after a look at all deadlines the next one may follow, for each message and each request
# looked at: about a hundred times as long as that took. Deadlines that lie closer share a look.
REST_NS_PER_MESSAGE = 100
REST_NS_PER_REQUEST = 5000
SHOWN_PENDING_MAX = 10_000  # with more out, a position is not saved for who looks at it
PENDING_PER_SAVE = 2000  # so many more pending make the next save wait as long again


# Who waits for a state to be saved: what to call then, and what if the disk refuses.
Waiting = tuple[Callable[[], None], Callable[[Exception], None] | None]


class ConsumerLife:
    """The timer and the files of one consumer."""

    # Of thousands of consumers, dictionaries would be as many objects for the garbage collector.
    __slots__ = (
        "_forsaken",
        "_rests_until",
        "_save_is_due",
        "_saving",
        "_timers",
        "_to_come",
        "_waiting",
        "_waits_for_stream",
        "_was_ahead",
        "_writes_large",
        "consumer",
        "out_until",
        "restored_at",
    )

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._timers = consumer.engine.timers
        self._saving = False
        self._waits_for_stream = False  # with a state that is to be saved
        self._writes_large = False  # the position is on its way to its own file
        self._was_ahead = False  # when it was encoded last
        self._save_is_due = False  # before long
        self._waiting: list[Waiting] = []
        self._forsaken: ConsumerStore | None = None  # files of a consumer that lives on in memory
        self._to_come: ConsumerConfig | None = None  # configuration on its way to the disk
        self.out_until = 0  # what became due without an acknowledgement counts as out until then
        self.restored_at = (0, 0)  # floor and next sequence when the server started
        self._rests_until = 0  # no look at deadlines before

    def restart_at(self, seq: int) -> None:
        """Forget what is out, and go on with the first message at or after `seq`."""
        consumer = self.consumer
        if consumer.letters is not None:
            consumer.letters.forget()
        consumer.pending.clear()
        end_every_watch(consumer, RESET)
        consumer.redelivered.clear()
        consumer.due.clear()
        consumer.initial = []
        seq = max(seq, consumer.log.first_seq)
        consumer.delivered_at = consumer.acked_at = 0
        consumer.next_seq = seq
        consumer.delivered_seq = consumer.floor_seq = 0
        consumer.delivered_stream_seq = consumer.floor_stream_seq = seq - 1
        consumer.recount()
        consumer.changed()
        consumer.wake()

    # -- deadlines -----------------------------------------------------------------------------

    def watch(self, when: int) -> None:
        """Look at `when` (ns since the epoch; 0: no need), unless that happens before anyway."""
        consumer = self.consumer
        if not when or consumer.stopped:
            return
        timer = consumer.timer
        if timer is not None:
            if timer.at <= when:
                return
            timer.cancel()
        when = min(max(when, self._rests_until), LATEST)
        consumer.timer = self._timers.at(when, self.tick)
        consumer.timer_at = when

    def put_off(self, error: Exception) -> None:
        """The disk did not give what was to be delivered: say so, and look again in a while."""
        self._complain(f"waits for the disk: {error}")
        self._timers.after(READ_AGAIN_NS, self._look_again)

    def _look_again(self) -> None:
        self.consumer.wake()

    def _complain(self, what: str) -> None:
        consumer = self.consumer
        name = f"consumer '{consumer.stream.name} > {consumer.name}'"
        consumer.stream.js.problem(f"{name} {what}")

    def tick(self) -> None:
        """Do what is due, and set the timer for what comes next."""
        consumer = self.consumer
        consumer.timer = None
        consumer.timer_at = 0
        if consumer.stopped:
            return
        now = consumer.clock.now
        requests = consumer.delivery.num_waiting
        rest = REST_NS_PER_MESSAGE * consumer.pending.span + REST_NS_PER_REQUEST * requests
        self._rests_until = now + rest
        moments = [
            redeliver_overdue(consumer, now),
            consumer.delivery.on_time(now),
            self._resume(now),
        ]
        if consumer.stopped or self._expired(now):
            return
        moments.append(self.inactive_at())
        if consumer.replay_at > now:
            moments.append(consumer.replay_at)
        elif consumer.replay_at:
            consumer.wake()
        self.watch(min((moment for moment in moments if moment), default=0))

    # -- pausing -------------------------------------------------------------------------------

    def pause(self, until: int, done: Callable[[Exception | None], None]) -> None:
        """Deliver nothing before `until` (ns since the epoch, of any size); the past resumes, which
        the configuration shows except for `ZERO`. `done` is called when it is so, or cannot be."""
        consumer = self.consumer
        if consumer.name in consumer.stream.doubtful:
            what = "its configuration may be an older one; update the consumer first"
            done(ApiError(ErrorCode.CONSUMER_STORE_FAILED, err=what))
            return
        text = utc_text(until) if until != ZERO else ""

        def kept(error: Exception | None) -> None:
            if error is None:
                self._pause(until, text)
            done(error)

        self.keep_config(msgspec.structs.replace(self.newest_config, pause_until=text), kept)

    def _pause(self, until: int, text: str) -> None:
        consumer = self.consumer
        consumer.config.pause_until = text
        consumer.paused_until = min(until, LATEST) if until > consumer.clock.now else 0
        self._advise_pause(until)
        if consumer.paused_until:
            self.watch(consumer.paused_until)
        else:
            consumer.wake()

    def _resume(self, now: int) -> int:
        consumer = self.consumer
        if not consumer.paused_until:
            return 0
        if consumer.paused_until > now:
            return consumer.paused_until
        until = consumer.paused_until
        consumer.paused_until = 0
        self._advise_pause(until)
        consumer.wake()
        return 0

    def _advise_pause(self, until: int) -> None:
        consumer = self.consumer
        consumer.stream.js.advisories.consumer_event(
            "PAUSE",
            "consumer_pause",
            consumer.stream.name,
            consumer.name,
            paused=bool(consumer.paused_until),
            pause_until=utc_text(until),
        )

    # -- inactivity ----------------------------------------------------------------------------

    def inactive_at(self) -> int:
        """When the consumer is given up for want of interest, as things are; 0: not at all.

        A push consumer counts from when nobody listened any more, or from a later acknowledgement;
        a pull consumer waits for what is out, once more when that is due again. Nobody reports that
        a client which had pulled is gone, so that is looked for from time to time.
        """
        consumer = self.consumer
        threshold = consumer.config.inactive_threshold
        if not threshold or consumer.name in consumer.stream.doubtful:
            return 0
        if consumer.letters is not None and consumer.letters.dying:
            return 0
        is_push = consumer.config.is_push
        if consumer.delivery.is_live():
            return 0 if is_push else consumer.clock.now + max(threshold, LOOK_AGAIN_NS_MIN)
        out_until = 0
        if not is_push and consumer.pending.size:
            out_until = max(consumer.pending.last_deadline(), self.out_until)
        return int(max(consumer.last_activity, out_until) + threshold)

    def _expired(self, now: int) -> bool:
        when = self.inactive_at()
        if not when or when > now:
            return False
        try:
            self.stop("Consumer Deleted", delete=True)
        except (OSError, StorageError) as error:
            self._complain(f"is inactive and could not be deleted: {error}")
            self.consumer.last_activity = now  # try again when as much time has passed
            return False
        return True

    # -- saving --------------------------------------------------------------------------------

    def changed(self) -> None:
        """`consumer.unsaved` was just set: save the state before long."""
        if self._save_is_due or self._saving:
            return
        self._save_is_due = True
        much = self.consumer.pending.size // PENDING_PER_SAVE
        if much:
            self._timers.after(SAVE_EVERY_NS * (1 + much), self._save_later)
        else:
            self.consumer.engine.saves.add(self._save_later)

    def _save_later(self) -> None:
        self._save_is_due = False
        consumer = self.consumer
        if (consumer.unsaved or self._waiting) and not self._saving and not consumer.stopped:
            self._save()

    @property
    def is_unsaved(self) -> bool:
        """Whether what was saved last is out of date."""
        return bool(self.consumer.unsaved) or self._waits_for_stream

    @property
    def is_kept(self) -> bool:
        """Whether the consumer outlives the process, whatever happens to that."""
        store = self.consumer.store
        return store is not None and not store.is_ephemeral

    @property
    def has_late_position(self) -> bool:
        """Whether an encoded position is still to be kept: none that is newer may come before."""
        return self._waits_for_stream or self._writes_large

    def when_saved(
        self, callback: Callable[[], None], failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Call back once what is settled now survives a crash.

        If the disk refuses, `failed` is called with the error; without it the state is saved again
        in a moment, and the callback goes on waiting.
        """
        if self.consumer.store is None:
            callback()
            return
        self._waiting.append((callback, failed))
        if not self._saving:
            self._save()

    @property
    def is_shown(self) -> bool:
        """Whether where the consumer stands may be shown: a crash does not take it back. Where very
        much is out it is not written for being looked at, and a disk that takes nothing more is no
        reason not to look."""
        consumer = self.consumer
        if consumer.store is None or consumer.pending.size > SHOWN_PENDING_MAX:
            return True
        state = consumer.stream.js.state
        if state.log.failed:
            return True
        return not (self._is_late or state.log.is_on_its_way(consumer.store.state))

    @property
    def _is_late(self) -> bool:
        """Whether the commit log does not have the position yet."""
        consumer = self.consumer
        is_short = self._was_ahead and not (consumer.stream.failed and is_ahead(consumer))
        return self.is_unsaved or self._writes_large or is_short

    def when_shown(self, done: Callable[[Exception | None], None]) -> None:
        """Call back once what may be shown now survives a crash, or the disk has refused it."""
        if self._was_ahead or is_ahead(self.consumer):

            def settled(error: Exception | None) -> None:
                self.consumer.unsaved = True
                self._when_kept(done)

            self.consumer.stream.when_settled(settled)
        else:
            self._when_kept(done)

    def _when_kept(self, done: Callable[[Exception | None], None]) -> None:
        if self._is_late:
            self.when_saved(lambda: done(None), lambda error: done(None))
        else:
            self.consumer.stream.js.when_kept(lambda error: done(None))

    def _save(self) -> None:
        """Have the state saved: at the end of the turn if somebody waits for it, else soon."""
        consumer = self.consumer
        if consumer.stopped or consumer.stream.closed:
            self._refuse_waiting(StorageError(f"consumer {consumer.name} was deleted"))
            return
        if consumer.store is None:  # an ephemeral consumer that lives on in memory
            waiting, self._waiting = self._waiting, []
            consumer.unsaved = False
            for callback, _ in waiting:
                callback()
            return
        state = consumer.stream.js.state
        content = encode_state(consumer)
        self._was_ahead = is_ahead(consumer)
        if not state.has_room(len(content)):  # a checkpoint is about to make some
            consumer.unsaved = True
            self.changed()
            return
        is_large = len(content) > CONTENT_BYTES_MAX
        if is_large and consumer.letters is not None and consumer.letters.stored:
            # Its own file would be there before the entry that settles them.
            consumer.unsaved = True
            self.changed()
            return
        waiting, self._waiting = self._waiting, []
        consumer.unsaved = False
        if consumer.took_removals:
            # A crash that brought a message back would find the consumer past it.
            consumer.took_removals = False
            self._saving = self._waits_for_stream = True
            consumer.stream.when_durable(lambda error: self._keep_position(content, waiting))
        else:
            self._keep_position(content, waiting)

    def _keep_position(self, content: bytes, waiting: list[Waiting]) -> None:
        """Have an encoded state kept; those who wait are answered then."""
        self._waits_for_stream = False
        consumer = self.consumer
        if consumer.stopped or consumer.store is None:  # meanwhile
            self._saved(waiting, None)
            return
        state = consumer.stream.js.state
        self._writes_large = len(content) > CONTENT_BYTES_MAX
        self._saving = self._writes_large or bool(waiting)

        def done(error: Exception | None) -> None:
            self._saved(waiting, error)

        try:
            if self._writes_large:
                state.write_large(consumer.store.state, content, done)
            else:
                state.keep(consumer.store.state, content, done if waiting else None)
        except (OSError, StorageError) as error:
            self._saved(waiting, error)
            return
        if not self._saving and self._waiting:  # who came while it waited for the stream
            self._save()
        elif not self._saving and consumer.unsaved:
            self.changed()

    def _saved(
        self,
        waiting: list[Waiting],
        error: Exception | None,
    ) -> None:
        """The state is durable, or the disk has refused it. A consumer that was deleted meanwhile
        misses nothing."""
        consumer = self.consumer
        self._saving = self._writes_large = False
        if error is not None and not consumer.stopped:
            name = f"consumer '{consumer.stream.name} > {consumer.name}'"
            consumer.stream.js.problem(f"the state of {name} could not be saved: {error}")
            consumer.unsaved = True
            for _, failed in waiting:
                if failed is not None:
                    failed(error)
            patient = [one for one in waiting if one[1] is None]
            self._waiting = patient + self._waiting  # for the next attempt, in a moment
        else:
            for callback, _ in waiting:
                callback()
        if consumer.stopped or consumer.stream.js.state.log.failed:
            self._refuse_waiting(error or StorageError(f"consumer {consumer.name} was deleted"))
            return
        if self._waiting and error is None:
            self._save()
        elif consumer.unsaved:
            self.changed()

    def keep_new(self) -> None:
        """Keep the configuration of a new consumer; its creation is answered when that is durable.
        Raises `StorageError`."""
        self._keep(self.consumer.config, lambda error: None)

    def keep_config(self, config: ConsumerConfig, done: Callable[[Exception | None], None]) -> None:
        """Keep `config`, which is to be the consumer's; then call `done`, with the error if that
        cannot be."""
        if self.consumer.store is None:
            done(None)
            return
        before, self._to_come = self._to_come, config

        def kept(error: Exception | None) -> None:
            if self._to_come is config:
                self._to_come = None
            done(self._or_deleted(error))

        try:
            self._keep(config, kept)
        except (OSError, StorageError) as error:
            self._to_come = before
            done(error)

    @property
    def newest_config(self) -> ConsumerConfig:
        """The configuration, or the one that is on its way to the disk: what the next change
        changes."""
        return self._to_come or self.consumer.config

    def _keep(self, config: ConsumerConfig, done: Callable[[Exception | None], None]) -> None:
        """Nobody waits for the files of an ephemeral consumer: it lives on in memory if the disk
        refuses."""
        consumer = self.consumer
        meta = encode_meta(consumer, config)
        state = consumer.stream.js.state
        if not consumer.store.is_ephemeral:
            state.keep(consumer.store.meta, meta, done)
            return
        try:
            state.keep(consumer.store.meta, meta)
        except (OSError, StorageError) as error:
            self._live_on_in_memory(error)
        done(None)

    def _or_deleted(self, error: Exception | None) -> Exception | None:
        if error is None and self.consumer.stopped:
            return StorageError(f"consumer {self.consumer.name} was deleted")
        return error

    def _live_on_in_memory(self, error: Exception) -> None:
        """The files of an ephemeral consumer cannot be written: it ends with the process."""
        consumer = self.consumer
        self._forsaken, consumer.store = consumer.store, None
        consumer.engine.on_problem(
            f"JetStream consumer '{consumer.stream.account.name} > {consumer.stream.name} > "
            f"{consumer.name}' is kept in memory only, its files could not be written: {error}"
        )

    def abandon(self) -> None:
        """The consumer could not be created after all: it ends, and leaves nothing."""
        if self.consumer.store is not None:
            self.consumer.store.retire()
            self.consumer.store = None
        self.stop("Consumer Deleted", delete=True)

    def _refuse_waiting(self, error: Exception) -> None:
        """Nothing is saved any more: answer those who wait and take an error for an answer."""
        waiting = self._waiting
        self._waiting = [] if self.consumer.stopped else [one for one in waiting if one[1] is None]
        for _, failed in waiting:
            if failed is not None:
                failed(error)

    # -- the end -------------------------------------------------------------------------------

    def stop(self, reason: str, delete: bool) -> None:
        """Deliver no more. With `delete` the consumer and its files go.

        Raises OSError, `StorageError` when the files cannot go: nothing has changed then.
        """
        consumer = self.consumer
        if consumer.stopped:
            return
        if delete and consumer.store is not None:
            discard_consumer(consumer.stream, consumer.store)
        elif delete and self._forsaken is not None:
            try:
                discard_consumer(consumer.stream, self._forsaken)
            except StorageError:
                pass  # nobody was told that there are any
        consumer.stopped = True
        if consumer.timer is not None:
            consumer.timer.cancel()
        end_every_watch(consumer, RESET)
        consumer.delivery.stop(reason)
        if delete:
            self._refuse_waiting(StorageError(f"consumer {consumer.name} was deleted"))
            consumer.stream.remove_consumer(consumer)
            if not consumer.config.direct:
                advisories = consumer.stream.js.advisories
                advisories.consumer_action("DELETED", "delete", consumer.stream.name, consumer.name)


def discard_consumer(stream: "Stream", store: ConsumerStore) -> None:
    """Have the files of a consumer removed. Raises `StorageError`: nothing has changed then."""
    stream.js.state.remove(store.leaving(), stream.created)
    store.retire()
