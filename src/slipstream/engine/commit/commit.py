"""Group commit as a state machine: one batch covers all that a stream stored since the last one.

The commit itself touches no disk and no thread. It decides what a batch covers, when the next one
may follow, and who is told afterwards; a `Runner` runs the batches. The server's runner has a
thread, the simulator's a disk that does as it is told, and both run this class.

The rules:

* The batches of a stream are begun and finished in order. A batch after a failed one has failed.
* What a stream stores while a batch is under way gathers for the next one. Once that is large, it
  is begun before the first has finished, so that a disk which is busy with many bytes never waits
  for the loop. There are never more than two.
* A small batch may run where it stands, if the runner finds the disk quick enough.
* Small batches of several streams that end in one turn share an entry of the commit log, which
  carries a copy of each, and so a sync, if the log has room. To the commit the log is one more
  stream, with batches of its own. While a checkpoint makes room in it, a few streams sync by
  themselves, and others wait: a thousand syncs would hold up all of them, and the checkpoint.
* With relaxed durability a batch is handed to the operating system at once, and synced after an
  interval together with all that follow it until then.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from slipstream.engine.loop.timers import Timers
from slipstream.log.cold import ColdError, FetchJob
from slipstream.log.durability import Done, Job
from slipstream.log.segment_bytes import EntryCopies

QUEUED_BYTES_MIN = 1024 * 1024  # below this, what waits for a batch under way goes on gathering
OWN_SYNCS_MAX = 8  # batches under way from which on others wait for room in the commit log
SYNC_LATER_NS = 1_000_000_000  # after which a relaxed batch is synced, where no interval is set


class Batch(Protocol):
    """What one commit makes durable, such as a `SyncBatch`."""

    error: Exception | None  # why it is not durable

    def run(self) -> None:
        """Write and sync it. Blocks; what the disk answers is kept in `error`."""

    def flush(self) -> None:
        """Hand it to the operating system. Blocks."""


class Runner(Protocol):
    """Runs jobs where they may block."""

    def start(self, job: Job) -> None:
        """Call ``job.run()``, after those of the jobs started before, then ``job.finish()`` as a
        turn of the engine."""

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Run a job as `start` does, in an order of its own: batches do not wait for it. One that
        comes first waits for the one under way alone."""

    def start_beside(self, job: Job) -> None:
        """Run a job that takes a processor, such as compression, as `start` does, in any order and
        beside others of its kind."""

    def start_read(self, job: Job) -> None:
        """Run a job that only reads as `start` does, in any order."""

    def run_here(self, job: Job, size: int, is_second: bool) -> bool:
        """Run and finish a batch of `size` bytes now, on the loop, or begin it there so that it is
        finished later; False if it is to be started. `is_second`: a batch of that stream is under
        way, and this one has to follow it."""


class Committed:
    """A stream, as the commit sees it: how far its batches are, and what is asked of it. The stream
    notes `dirty` and `since`, the commit all else."""

    def __init__(self) -> None:
        self.dirty = False  # whether it stands in the turn's list
        self.under_way = 0  # batches begun and not finished
        self.again = False  # more was stored meanwhile, or it waits for room in the commit log
        self.held = False  # no batch may begin; see `Commit.hold`
        self.since = 0  # ns since the epoch: the first of what waits for the next batch
        self.lazy: Batch | None = None  # handed to the operating system, to be synced later

    def is_closed(self) -> bool:
        """Whether it has ended: nothing of it is committed any more."""
        raise NotImplementedError

    def is_relaxed(self) -> bool:
        """Whether its batches are synced later than they are acknowledged."""
        raise NotImplementedError

    def mark_dirty(self) -> None:
        """Be committed at the end of the turn."""
        raise NotImplementedError

    def unwritten(self) -> int:
        """Bytes that the next batch will write."""
        raise NotImplementedError

    def prepare_sync(self, instead_of: Any = None) -> Batch | None:
        """The batch that makes durable all that was stored so far; None if there is nothing."""
        raise NotImplementedError

    def carry(self, copies: EntryCopies) -> bool:
        """Have the next entry of the commit log have a copy of what was stored since the last
        batch, instead of a batch; False, and nothing has happened, if that needs a sync of its
        own. `carried` follows."""
        raise NotImplementedError

    def carried(self, error: Exception | None) -> None:
        """The entry with the copy has reached the disk or failed to."""
        raise NotImplementedError

    def synced(self, batch: Any) -> None:
        """A batch has reached the disk or failed to; None: there was nothing to sync."""
        raise NotImplementedError


class Shared(Committed):
    """The commit log, as the commit sees it."""

    def copies(self) -> EntryCopies | None:
        """Those that the next batch of the log will have of small ones of streams; None if it can
        have none."""
        raise NotImplementedError

    def when_carried(self, done: Done) -> None:
        """Call `done` once what was put into the copies is durable, or cannot be."""
        raise NotImplementedError

    def is_making_room(self) -> bool:
        """Whether something is under way that may leave room for copies, where there is none, and
        after which `Commit.go_on` is called."""
        raise NotImplementedError


class BatchJob:
    """A stream's batch on its way to the disk."""

    __slots__ = ("_commit", "batch", "since", "size", "stream")

    def __init__(
        self, commit: "Commit", stream: Committed, batch: Batch, size: int, since: int
    ) -> None:
        self._commit = commit
        self.stream = stream
        self.since = since  # ns since the epoch: when what it covers began to be stored
        self.batch = batch
        self.size = size  # in bytes

    def run(self) -> None:
        """Write and sync it. Never raises: what the disk answers is kept in the batch."""
        try:
            self.batch.run()
        except Exception as error:  # or the stream would wait for this batch for ever
            self.batch.error = error

    def finish(self) -> None:
        """Tell the stream."""
        self._commit.own_ended()
        self._commit.finished(self.stream, self.batch)


class Carried:
    """Streams of which one entry of the commit log has copies."""

    def __init__(self, commit: "Commit") -> None:
        self._commit = commit
        self.streams: list[Committed] = []

    def ended(self, error: Exception | None) -> None:
        """The entry is durable, or cannot be. Each stream is told, also if one of them raises; the
        first exception follows then."""
        raised: Exception | None = None
        for stream in self.streams:
            try:
                self._commit.finished(stream, None, error)
            except Exception as one:
                raised = raised or one
        if raised is not None:
            raise raised


class FlushJob:
    """Hands a batch to the operating system; nobody waits for it."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def run(self) -> None:
        """Write it. What the disk answers is kept in the batch."""
        self._batch.flush()

    def finish(self) -> None:
        """Nothing follows before the batch is synced."""


class Commit:
    """See the module's text. `sync_interval` is in ns; 0 takes a second."""

    def __init__(self, runner: Runner, timers: Timers, sync_interval: int = 0) -> None:
        self.queued_bytes_min = QUEUED_BYTES_MIN
        self.own_syncs_max = OWN_SYNCS_MAX
        self.shared: Shared | None = None  # the commit log, once there is one
        self.own_batches = 0  # begun and not finished, of which the log has no copies
        self._waiting: dict[Committed, None] = {}  # for room for their copies
        self._runner = runner
        self._timers = timers
        self._sync_interval = sync_interval or SYNC_LATER_NS

    def commit_all(self, streams: Iterator[Committed]) -> None:
        """Commit what a turn has left, of at least two streams."""
        shared = self.shared
        copies = None if shared is None else shared.copies()
        carried: Carried | None = None
        has_changes = False
        try:
            for stream in streams:
                stream.dirty = False
                if stream is shared:
                    has_changes = True
                    continue
                if copies is not None and self._carry(stream, copies):
                    if carried is None:
                        carried = Carried(self)
                    carried.streams.append(stream)
                elif copies is not None and copies.lacks_room and self._may_wait():
                    stream.again = True
                    self._waiting[stream] = None
                else:
                    self.commit(stream)
        finally:
            if shared is not None and carried is not None:
                shared.when_carried(carried.ended)
                has_changes = True
            if shared is not None and has_changes:
                self.commit(shared)
            elif shared is not None and copies is not None and shared.copies() is None:
                shared.mark_dirty()  # it has failed meanwhile: who waits for it is told

    def _carry(self, stream: Committed, copies: EntryCopies) -> bool:
        """Whether the next entry of the commit log carries what would be a stream's next batch."""
        copies.lacks_room = False
        if stream.under_way or stream.held or stream.lazy is not None:
            return False
        if not stream.carry(copies):
            return False
        stream.under_way = 1
        stream.again = False
        stream.since = 0
        return True

    def _may_wait(self) -> bool:
        """Whether a stream may wait for room for copies, instead of one more sync of its own."""
        if self.own_batches < self.own_syncs_max or self.shared is None:
            return False
        return self.shared.is_making_room()

    def own_ended(self) -> None:
        """A batch that was run by itself has ended: who has waited longest is the next one."""
        self.own_batches -= 1
        while self._waiting and self.own_batches < self.own_syncs_max:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            if stream.again and not stream.is_closed():
                self._commit_again(stream)
                return

    @property
    def is_waiting(self) -> bool:
        """Whether streams wait for room in the commit log."""
        return bool(self._waiting)

    def go_on(self) -> None:
        """There may be room for copies again, or nothing to wait for."""
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            if stream.again and not stream.is_closed():
                self._commit_again(stream)

    def commit(self, stream: Committed) -> None:
        """Have what `stream` has stored written and synced; `synced` follows."""
        if stream.is_closed():
            return
        size = stream.unwritten()
        if stream.held or (stream.under_way and not self._may_queue(stream, size)):
            stream.again = True
            stream.since = stream.since or self._timers.now
            return
        since, stream.since = stream.since or self._timers.now, 0
        lazy, stream.lazy = stream.lazy, None
        batch = stream.prepare_sync(lazy)
        if batch is None:
            stream.synced(None)
            return
        if stream.is_relaxed():
            self._sync_later(stream, batch, lazy is None)
            return
        job = self._own(stream, batch, size, since)
        if not self._runner.run_here(job, size, stream.under_way > 1):
            self._runner.start(job)

    def _may_queue(self, stream: Committed, size: int) -> bool:
        """Whether a second batch is worth its flush: the disk goes on with it without the loop."""
        return stream.under_way == 1 and size >= self.queued_bytes_min

    def finished(self, stream: Committed, batch: Any, error: Exception | None = None) -> None:
        """A batch has run, or (None) the entry that has a copy in its place, with this `error`: the
        stream is told, and commits what it stored meanwhile."""
        stream.under_way -= 1
        assert stream.under_way >= 0, "a batch was finished twice"
        if stream.is_closed():
            return
        try:
            if batch is None:
                stream.carried(error)
            else:
                stream.synced(batch)
        finally:  # whatever befalls one who waited, the next batch follows
            if stream.again:
                self._commit_again(stream)

    def _commit_again(self, stream: Committed) -> None:
        stream.again = False
        stream.mark_dirty()

    def _sync_later(self, stream: Committed, batch: Batch, is_first: bool) -> None:
        """With relaxed durability: acknowledged already, written soon, synced now and then."""
        stream.synced(None)
        self._runner.start(FlushJob(batch))
        stream.lazy = batch
        if is_first:
            self._watch(stream)

    def _watch(self, stream: Committed) -> None:
        self._timers.after(self._sync_interval, lambda: self._sync_lazy(stream))

    def _sync_lazy(self, stream: Committed) -> None:
        if stream.is_closed():
            stream.lazy = None
        elif stream.under_way:
            self._watch(stream)
        elif stream.lazy is not None:
            batch, stream.lazy = stream.lazy, None
            self._runner.start(self._own(stream, batch, 0, self._timers.now))

    def _own(self, stream: Committed, batch: Batch, size: int, since: int) -> BatchJob:
        """A batch that is to be run by itself."""
        stream.under_way += 1
        self.own_batches += 1
        return BatchJob(self, stream, batch, size, since)

    def hold(self, stream: Committed) -> None:
        """Begin no batch of a new stream: what it stores counts once the stream itself is durable,
        as `release` says."""
        stream.held = True

    def release(self, stream: Committed) -> None:
        """What the stream stored meanwhile may follow."""
        stream.held = False
        if stream.again and not stream.is_closed():
            self._commit_again(stream)

    def hasten(self, stream: Committed) -> None:
        """With relaxed durability: sync now what was to be synced later."""
        if stream.lazy is not None:
            self._sync_lazy(stream)

    def run_aside(self, job: Job, comes_first: bool = False) -> None:
        """Run a job beside the batches, such as a checkpoint or a finished segment's index: it may
        take long, and no batch waits for it. It runs after those that were started before, of which
        there may be thousands, or comes first."""
        self._runner.start_aside(job, comes_first)

    def run_beside(self, job: Job) -> None:
        """Run a job that takes a processor, such as compression: several may run at a time."""
        self._runner.start_beside(job)

    def fetch(self, cold: ColdError, done: Callable[[], None]) -> None:
        """Have read from the disk what somebody missed; `done` follows as a turn of the engine, and
        asks again."""
        self._runner.start_read(FetchJob(cold, done))
