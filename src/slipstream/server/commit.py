"""Group commit: one fdatasync covers whatever was stored since the last one.

Where the disk answers within a fraction of a millisecond and nothing else is running, the fdatasync
runs right here: two hand-overs between threads would cost more than they hide. A slower disk is
waited for on a thread, while the loop gathers the next batch. Once that one is large it queues up
behind the first, so that a disk which is busy with many bytes never waits for the loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from slipstream.log.durability import SyncBatch

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

# A commit of more bytes is not waited for here: the loop gathers the next one meanwhile. What one
# read brings of a client that has a few messages on their way is less, however many they are.
INLINE_BYTES_MAX = 16 * 1024
INLINE_SECONDS_MAX = 0.0005  # a disk that is slower than this, on average, is not waited for here
QUEUED_BYTES_MIN = 1024 * 1024  # below this, what waits for a batch under way goes on gathering
PROBE_EVERY = 256  # after so many commits on the thread, one is tried here again
_WEIGHT = 0.1


class GroupCommitter:
    """The engine's `Committer` on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Callable[[Callable[[], None]], None],
                 sync_interval: float = 0.0) -> None:  # fmt: skip
        self._loop = loop
        self._turn = turn  # runs a callback as a turn of the engine
        self._sync_interval = sync_interval  # seconds; 0 syncs before each acknowledgement
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="slipstream-disk")
        self._seconds = 0.0  # what an fdatasync takes, averaged
        self._since_probe = 0
        self._lazy: dict[Stream, SyncBatch] = {}  # of streams synced by interval, not run
        self.commits = 0
        self.slowest = 0.0

    def commit(self, stream: "Stream") -> None:
        """Write and sync what the stream has appended; `stream.synced` follows, now or later."""
        stream.dirty = False
        if stream.closed:
            return
        if stream.syncing and not self._may_queue(stream):
            stream.sync_again = True
            return
        size = stream.log.unwritten()
        lazy = self._lazy.pop(stream, None)
        batch = stream.prepare_sync(lazy)
        if batch is None:
            stream.synced(None)
            return
        if stream.ack_at_once:
            self._sync_lazily(stream, batch, lazy)
            return
        if not stream.syncing and size <= INLINE_BYTES_MAX and self._may_run_here():
            begin = perf_counter()
            batch.run()
            self._note(perf_counter() - begin)
            stream.synced(batch)
            return
        self._run_on_thread(stream, batch)

    def _may_queue(self, stream: "Stream") -> bool:
        """Whether a second batch is worth its flush: the disk goes on with it without us."""
        return stream.syncing == 1 and stream.log.unwritten() >= QUEUED_BYTES_MIN

    def _may_run_here(self) -> bool:
        if self._seconds <= INLINE_SECONDS_MAX:
            return True
        self._since_probe += 1
        if self._since_probe >= PROBE_EVERY:
            self._since_probe = 0
            return True
        return False

    def _note(self, seconds: float) -> None:
        self.commits += 1
        self.slowest = max(self.slowest, seconds)
        self._seconds += (min(seconds, 0.01) - self._seconds) * _WEIGHT

    def _run_on_thread(self, stream: "Stream", batch: SyncBatch) -> None:
        stream.syncing += 1
        self._threads.submit(self._run, stream, batch)

    def _run(self, stream: "Stream", batch: SyncBatch) -> None:
        """On the thread. A future's callbacks would come two rounds of the loop later."""
        begin = perf_counter()
        try:
            batch.run()
        except Exception as error:  # or the stream would wait for this batch for ever
            batch.error = error
        done = partial(self._done, stream, batch, perf_counter() - begin)
        self._loop.call_soon_threadsafe(self._turn, done)

    def _done(self, stream: "Stream", batch: SyncBatch, seconds: float) -> None:
        self._note(seconds)
        stream.syncing -= 1
        if stream.closed:
            return
        stream.synced(batch)
        if stream.sync_again:
            stream.sync_again = False
            stream.mark_dirty()

    def _sync_lazily(self, stream: "Stream", batch: SyncBatch, lazy: SyncBatch | None) -> None:
        """With relaxed durability: acknowledged already, written soon, synced now and then."""
        stream.synced(None)
        self._threads.submit(batch.flush)
        self._lazy[stream] = batch
        if lazy is None:
            self._sync_later(stream)

    def _sync_later(self, stream: "Stream") -> None:
        self._loop.call_later(self._sync_interval or 1.0, self._sync_one, stream)

    def _sync_one(self, stream: "Stream") -> None:
        if stream.closed:
            self._lazy.pop(stream, None)
        elif stream.syncing:
            self._sync_later(stream)
        elif stream in self._lazy:
            self._run_on_thread(stream, self._lazy.pop(stream))

    def run_job(self, job: Any) -> None:
        """Run a job on the thread, its `finish` on the loop."""
        future = self._loop.run_in_executor(self._threads, job.run)
        future.add_done_callback(lambda _: self._turn(job.finish))

    def wait(self) -> None:
        """Block until what runs on the thread has ended; what it led to is told later."""
        self._threads.submit(lambda: None).result()

    def close(self) -> None:
        """Wait for what is on its way."""
        self._threads.shutdown(wait=True)
