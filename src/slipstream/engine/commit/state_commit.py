"""Configurations and positions on their way to the disk, through the server's commit log.

What changes in a turn, of however many streams and consumers, is one entry of the log: one write
and one sync. What asks for an answer is committed at the end of the turn; what nobody waits for
goes with the next commit, or has one of its own after a moment.

The log is applied to the files of streams and consumers by checkpoints: some time after a change,
and at once when the log is half full or a removal may free space. One that nobody waits for takes
its time: the files of ten thousand consumers take a processor for seconds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from slipstream.engine.commit.commit import Commit, Shared
from slipstream.engine.loop.timers import Timer, Timers
from slipstream.engine.loop.turn import Turn
from slipstream.errors import DiskFullError, StorageError
from slipstream.log.commit_log import (
    Checkpoint,
    CommitLog,
    EntryBatch,
    Kept,
    Leaving,
    Removal,
)
from slipstream.log.durability import Done, Touched, call_all
from slipstream.log.segment_bytes import EntryCopies, Reference

LAZY_NS = 50_000_000  # after which a change that nobody waits for is committed
CHECKPOINT_NS = 2_000_000_000  # after the first change that a checkpoint is to apply
REFERENCES_NS = 1_000_000_000  # after which references to batches have an entry of their own
LOOKS_NS = 200_000_000  # after which it is seen whether those who wait to show something still may
# A checkpoint that nobody waits for pauses after so many changes, several times as long as it
# took for them.
CHANGES_AT_ONCE = 8
PAUSE_TIMES = 9
PAUSE_NS_MIN, PAUSE_NS_MAX = 5_000_000, 500_000_000
AGAIN_NS = 10_000_000_000  # after a checkpoint that the disk refused
# Larger content is written to its own file: it would fill the log.
CONTENT_BYTES_MAX = 2 * 1024 * 1024
HELD = (
    "the commit log is full: changes of streams and consumers wait until the disk has taken what "
    "it holds"
)


class Reports(Protocol):
    """Where problems of the log are reported, and that they are over."""

    def problem(self, text: str) -> None:
        """Report what an operator has to know."""

    def resolve(self, text: str) -> None:
        """A problem that was reported is over."""


class StateCommit(Shared):
    """See the module's text; to the commit it is one more stream."""

    def __init__(
        self, log: CommitLog, commit: Commit, timers: Timers, turn: Turn, reports: Reports
    ) -> None:
        super().__init__()
        self.log = log
        self.closed = False
        self._commit = commit
        self._timers = timers
        self._turn = turn
        self._reports = reports
        self._lazy_timer: Any = None
        self._checkpoint_timer: Any = None
        self._references_timer: Timer | None = None
        self._wants_checkpoint = False
        self._is_urgent = False  # that one, for want of room or space
        self._running: CheckpointJob | None = None
        self._problem = ""  # what was reported of the last checkpoint
        self._is_held = False  # whether it was reported that the log is full
        self._looking: dict[Look, None] = {}  # who waits, and has changed nothing
        self._looks_timer: Timer | None = None
        self._checkpoint_later()  # what the disk refused at the start

    # -- changes ---------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes of content can be kept now; else a checkpoint has to end first."""
        return self.log.failed != "" or size > CONTENT_BYTES_MAX or self.log.has_room(size)

    def make_room(self, size: int) -> None:
        """See to room for changes of so many bytes: after that, `keep` does not refuse them in this
        turn, and one entry holds them all. Raises as `keep`."""
        if self.log.is_held():
            raise DiskFullError(HELD)
        self.log.make_room(size)

    def keep(self, kept: Kept, content: bytes, done: Done | None = None) -> None:
        """Have `content` kept: soon, and if `done` is given at the end of the turn. `done` is
        called once it is durable or cannot be.

        Raises `DiskFullError`, `StorageError`: nothing has changed then.
        """
        try:
            self.log.keep(kept, content, done)
        finally:
            self._commit_later(done is not None or self.log.failed != "")

    def keep_now(self, kept: Kept, content: bytes) -> None:
        """Have `content` kept, durably on return. Nothing may be running on the disk's thread.
        Blocks; raises `DiskFullError`, `StorageError`."""
        self.log.keep(kept, content)
        self.log.write_all()
        if self.log.failed:
            raise StorageError(self.log.failed)
        if self.log.is_on_its_way(kept):
            raise DiskFullError(HELD)

    def write_large(self, kept: Kept, content: bytes, done: Done) -> None:
        """Have content of more than `CONTENT_BYTES_MAX` kept, in a file of its own.

        Nothing else may be given to `keep` for `kept` before `done` is called.
        """
        self._commit.run_aside(OwnFile(self, kept, content, done))

    def copies(self) -> EntryCopies | None:
        """The copies of small batches of streams that the next entry will have, which is to follow;
        None if there will be none."""
        if self.closed or self.log.failed:
            return None
        return self.log.copies

    def when_carried(self, done: Done) -> None:
        """Call `done` once what was put into the copies is durable, or cannot be."""
        self.log.when_carried(done)

    def is_making_room(self) -> bool:
        """Whether a checkpoint is under way, or an entry that says what one has applied."""
        return self._running is not None or self.dirty or self.under_way > 0

    def refer(self, references: Sequence[Reference]) -> None:
        """Note batches of a stream that were synced in its segments, soon or with what comes next:
        the log has the order of all that has become durable."""
        self.log.refer(references)
        if self.log.refers_much:
            self._refer_now()
        elif self._references_timer is None and self.log.has_references:
            self._references_timer = self._timers.after(REFERENCES_NS, self._references_due)

    def _references_due(self) -> None:
        self._references_timer = None
        if self.log.has_references:
            self._refer_now()

    def _refer_now(self) -> None:
        self.log.refer_now()
        self.mark_dirty()

    def erase(self) -> None:
        """Bytes of a message were destroyed on request: the log's copy of them goes, too, soon."""
        self.log.erase()
        self._checkpoint_later()

    def remove(self, directory: Leaving, stream_created: int) -> None:
        """Have a directory removed, which is or lies in that of a stream which was created then (ns
        since the epoch). Raises as `keep`."""
        self.log.remove(Removal(directory, stream_created))
        self._wants_checkpoint = self._is_urgent = True
        self.mark_dirty()

    def leaving(self, path: str) -> Removal | None:
        """A directory is about to be made at `path`: one of that name that may still have to be
        removed, to be given another name beside the batches."""
        return self.log.leaving(path)

    def stands(self, kept: Kept, done: Done) -> None:
        """What was just written to a file, durably, is newer than what the log says of it. Raises
        as `keep`."""
        self.log.stands(kept, done)
        self.mark_dirty()

    def when_durable(self, done: Done) -> None:
        """Call `done` once all that was changed so far is durable, or cannot be."""
        self.log.when_durable(done)
        self.mark_dirty()

    def unless_stuck(self, done: Done) -> Done:
        """`done`, which is also called if the disk takes nothing more meanwhile (`is_stuck`): that
        is no reason not to show what there is. It is called once."""
        look = Look(self._looking, done)
        self._looking[look] = None
        self._watch_looks()
        return look

    def _watch_looks(self) -> None:
        """What comes of a full disk of others nobody tells: see to it now and then."""
        if self._looks_timer is None and self._looking and not self.closed:
            self._looks_timer = self._timers.after(LOOKS_NS, self._let_look)

    def _let_look(self) -> None:
        self._looks_timer = None
        self._show_if_stuck()
        self._watch_looks()

    def _show_if_stuck(self) -> None:
        if self._looking and self.is_stuck:
            call_all(list(self._looking), None)

    @property
    def is_settled(self) -> bool:
        """Whether all that was changed at once is durable, as far as the disk takes it."""
        if self.log.failed or self.is_stuck:
            return True
        if self.dirty or self.under_way or self.again:
            return False
        return self.is_refused or not self.log.is_awaited

    @property
    def is_refused(self) -> bool:
        """Whether the disk has refused the last checkpoint, so that a full log may be full for
        long."""
        return self._problem != ""

    @property
    def is_stuck(self) -> bool:
        """Whether it is full, and the disk takes nothing of what it holds; or entries wait for
        space that a majority of a group has not got."""
        return (self.is_refused and self.log.is_held()) or self.log.waits_for_space()

    def _commit_later(self, is_awaited: bool) -> None:
        if is_awaited:
            self.mark_dirty()
        elif self._lazy_timer is None:
            self._lazy_timer = self._timers.after(LAZY_NS, self._commit_lazily)

    def _commit_lazily(self) -> None:
        self._lazy_timer = None
        self.mark_dirty()

    # -- what the commit asks for ----------------------------------------------------------------

    def mark_dirty(self) -> None:
        """Be committed at the end of the turn."""
        if not self.dirty and not self.closed:
            self.dirty = True
            self._turn.streams.append(self)

    def is_closed(self) -> bool:
        """Whether nothing is kept any more."""
        return self.closed

    def is_relaxed(self) -> bool:
        """Nobody is answered before an entry is durable."""
        return False

    def unwritten(self) -> int:
        """Bytes of the next entry, at the most."""
        return self.log.unwritten()

    def carry(self, _copies: EntryCopies) -> bool:
        """An entry is not carried."""
        return False

    def prepare_sync(self, instead_of: Any = None) -> EntryBatch | None:
        """The next entry; None if there is nothing to say, or a checkpoint has to end first."""
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        return self.log.prepare_sync()

    def synced(self, batch: EntryBatch | None) -> None:
        """An entry has reached the disk or failed to; None: there was none."""
        try:
            if batch is not None:
                self.log.finish_sync(batch)
        finally:  # whatever befalls one who waited, the next entry follows
            self._go_on(batch is not None)

    def _go_on(self, has_finished: bool) -> None:
        """An entry has been finished, or there was none: see what is to follow."""
        try:
            self._follow(has_finished)
        finally:
            self._commit.go_on()

    def _follow(self, has_finished: bool) -> None:
        if has_finished and self.log.has_changes and not self.log.is_held():
            self.mark_dirty()
        if self.log.failed:
            self._reports.problem(self.log.failed)
            self.log.let_down()
            return
        if self.log.is_held() != self._is_held:
            self._is_held = not self._is_held
            report = self._reports.problem if self._is_held else self._reports.resolve
            report(HELD)
        if self.log.is_half_full() and not self._problem:
            self._wants_checkpoint = self._is_urgent = True
        if self._wants_checkpoint:
            self._begin_checkpoint()
        elif self._running is None:
            self._checkpoint_later()
        self._show_if_stuck()

    # -- checkpoints -----------------------------------------------------------------------------

    def _checkpoint_later(self) -> None:
        is_wanted = self.log.unapplied or self.log.is_erasing
        if is_wanted and self._checkpoint_timer is None:
            self._checkpoint_timer = self._timers.after(CHECKPOINT_NS, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        self._checkpoint_timer = None
        if not self.closed:
            self._wants_checkpoint = True
            self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        """Begin one, unless batches are under way: then it begins when they have ended."""
        if self._running is not None and self._is_urgent:
            self._running.hasten()
        if self._running is not None or self.under_way:
            return
        makes_room = self.log.is_short_of_room
        is_urgent = self._is_urgent or makes_room
        self._wants_checkpoint = self._is_urgent = False
        checkpoint = self.log.checkpoint(makes_room)
        if checkpoint is None:
            self.log.pass_over()
            if self.log.owes_floor:
                self.mark_dirty()
            return
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
            self._checkpoint_timer = None
        self._running = CheckpointJob(
            checkpoint, is_urgent, self._commit, self._timers, self.checkpoint_ran
        )
        self._running.start()

    def checkpoint_ran(self, checkpoint: Checkpoint) -> None:
        """A checkpoint has come to its end."""
        self._running = None
        self.log.ended(checkpoint)
        self._report(checkpoint)
        if checkpoint.refused:
            self._checkpoint_timer = self._timers.after(AGAIN_NS, self._checkpoint_due)
        self.mark_dirty()

    def _report(self, checkpoint: Checkpoint) -> None:
        if checkpoint.is_final:
            self._reports.problem(
                "a sync of segments has failed, and their streams take no more messages until the "
                f"server is started again: {checkpoint.error}"
            )
        problem = ""
        if checkpoint.refused:
            problem = (
                f"{len(checkpoint.refused)} changes of streams and consumers are safe in the "
                "commit log and could not be written to their files, which is tried again: "
                f"{checkpoint.error}"
            )
        if problem != self._problem:
            if self._problem:
                self._reports.resolve(self._problem)
            if problem:
                self._reports.problem(problem)
            self._problem = problem

    # -- the end ---------------------------------------------------------------------------------

    def apply_all(self) -> None:
        """Make all durable, and apply it: files may be read or written by others from then on.
        Nothing may be running on the disk's thread. Blocks; raises `StorageError`."""
        if self._running is not None:
            self._running.cancel()
            self._running = None
        try:
            self.log.apply_all()
        finally:  # the checkpoint that was under way ends unheard
            self._commit.go_on()

    def close(self) -> None:
        """Make all durable and apply it, as the last call. What cannot be applied is for the next
        start."""
        self.closed = True
        timers = (
            self._lazy_timer, self._checkpoint_timer, self._references_timer, self._looks_timer,
        )  # fmt: skip
        for timer in timers:
            if timer is not None:
                timer.cancel()
        try:
            self.apply_all()
        except StorageError as error:
            self._reports.problem(str(error))
        self.log.close()


class Look:
    """A callback of somebody who waits to show what there is, for the first who calls it."""

    __slots__ = ("_done", "_looking")

    def __init__(self, looking: "dict[Look, None]", done: Done) -> None:
        self._looking = looking
        self._done = done

    def __call__(self, error: Exception | None) -> None:
        if self in self._looking:
            del self._looking[self]
            self._done(error)


class CheckpointJob:
    """Runs a checkpoint beside the batches of messages: at once if it is urgent, else a few changes
    at a time. `ended` is called when it has come to its end."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        is_urgent: bool,
        commit: Commit,
        timers: Timers,
        ended: Callable[[Checkpoint], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._is_urgent = is_urgent
        self._hastens = False
        self._commit = commit
        self._timers = timers
        self._ended = ended
        self._began = 0  # ns since the epoch: the part that was begun last
        self._pause: Timer | None = None
        self._cancelled = False

    def start(self) -> None:
        """Begin, or go on."""
        self._began = self._timers.now
        # What else runs aside may be thousands of jobs, and this one may become urgent.
        self._commit.run_aside(self, comes_first=True)

    def hasten(self) -> None:
        """End soon, with what was applied until then: another checkpoint is to follow."""
        self._hastens = True
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()

    def cancel(self) -> None:
        """Do nothing more: somebody else sees to the checkpoint. No part of it may be running."""
        self._cancelled = True
        if self._pause is not None:
            self._pause.cancel()

    def run(self) -> None:
        """Apply its changes, or some. Never raises."""
        if self._is_urgent:
            self._checkpoint.run()
        else:
            self._checkpoint.run_some(CHANGES_AT_ONCE)

    def finish(self) -> None:
        """See to what follows."""
        if self._cancelled:
            return
        if self._checkpoint.has_ended:
            self._ended(self._checkpoint)
        elif self._hastens:
            self._go_on()
        else:
            took = self._timers.now - self._began
            pause = min(max(PAUSE_TIMES * took, PAUSE_NS_MIN), PAUSE_NS_MAX)
            self._pause = self._timers.after(pause, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        if self._hastens:
            self._checkpoint.leave_rest()
        self.start()


class OwnFile:
    """Writes content that is too large for the log; the log then forgets what it says of it."""

    def __init__(self, commit: StateCommit, kept: Kept, content: bytes, done: Done) -> None:
        self._commit = commit
        self._kept = kept
        self._content = content
        self._done = done
        self._number = commit.log.next_number()
        self._error: Exception | None = None

    def run(self) -> None:
        """Write it. Never raises."""
        try:
            if not self._kept.retired:
                touched = Touched()
                self._kept.apply(self._content, touched)
                self._kept.written = self._number
                self._commit.log.sync(touched)
                self._kept.applied()
        except Exception as error:  # whatever the disk says is reported by `finish`
            self._error = error

    def finish(self) -> None:
        """Have the log say so, or report what went wrong."""
        try:
            if self._error is None and not self._commit.closed:
                self._commit.stands(self._kept, self._done)
                return
        except StorageError as error:
            self._error = error
        self._done(self._error)
