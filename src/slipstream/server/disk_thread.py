"""The threads on which the server's disk jobs run: one for batches, one for what may take long
and nobody waits for, such as checkpoints of the commit log and the indexes of finished segments,
some for reads of what is not in memory, and some for work on the processor, such as compression.

Where the disk answers within a fraction of a millisecond and nothing else is running, a small batch
runs on the loop instead: two hand-overs between threads would cost more than they hide. On the disk
of a group, whose syncs wait for other servers, a small batch leaves from the loop (`runs_ahead`),
and is finished when it is there.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from time import perf_counter, time_ns

from slipstream.engine.commit.commit import BatchJob
from slipstream.engine.stream.stream import CommittedStream
from slipstream.log.commit_log import EntryBatch
from slipstream.log.durability import Job, SyncBatch
from slipstream.server.measures import Measures
from slipstream.server.quick_disk import QuickDisk

# A batch of more bytes is not waited for on the loop, which gathers the next one meanwhile. What
# one read brings of a client that has a few messages on their way is less, however many they are.
INLINE_BYTES_MAX = 16 * 1024
AHEAD_BYTES_MAX = 512 * 1024  # of a batch that leaves from the loop, which only copies it
READS_MAX = 4  # of messages that are not in memory, at the same time
# Jobs that take a processor, at the same time: each also waits for the disk, so two are worth it
# on one processor, and more than four would leave little of a small machine to the clients.
BESIDE_MIN, BESIDE_MAX = 2, 4

# Has what it is given run, and does not wait; done once that is durable. None if it was not run.
RunAhead = Callable[[Callable[[], None]], "Future[None] | None"]


class DiskThread:
    """The commit's `Runner` on an event loop; `turn` runs a callback as a turn of the engine.

    It counts in `measures` how long batches take, and how long their messages wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Callable[[Callable[[], None]], None],
        measures: Measures,
    ) -> None:
        self._loop = loop
        self._turn = turn
        self._measures = measures
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="slipstream-disk")
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="slipstream-aside")
        self._waiting_aside: deque[Job] = deque()
        self._reads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="slipstream-read")
        beside = min(max(os.cpu_count() or 1, BESIDE_MIN), BESIDE_MAX)
        self._beside = ThreadPoolExecutor(beside, thread_name_prefix="slipstream-beside")
        self._started = 0  # jobs that the thread for batches has not ended
        self._running: set[Future[None]] = set()  # on these
        self.runs_here = True  # whether the loop may wait for a small batch
        self.runs_ahead: RunAhead | None = None  # has a small batch leave, and does not wait
        self._quick = QuickDisk()

    def start(self, job: Job) -> None:
        """Run a job on the thread, its `finish` on the loop."""
        self._started += 1
        self._threads.submit(self._run, job, self._finish_started)

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Run a job on the other thread, its `finish` on the loop."""
        if comes_first:
            self._waiting_aside.appendleft(job)
        else:
            self._waiting_aside.append(job)
        self._aside.submit(self._run_aside)

    def _run_aside(self) -> None:
        self._run(self._waiting_aside.popleft(), self._finish)

    def start_beside(self, job: Job) -> None:
        """Run a job that takes a processor on one of some threads, its `finish` on the loop."""
        future = self._beside.submit(self._run, job, self._finish)
        self._running.add(future)
        future.add_done_callback(self._running.discard)

    def start_read(self, job: Job) -> None:
        """Run a job that only reads on a thread of its own, its `finish` on the loop."""
        self._reads.submit(self._run, job, self._finish)

    def _run(self, job: Job, finish: Callable[[Job, float], None]) -> None:
        """On the thread. A future's callbacks would come two rounds of the loop later."""
        begin = perf_counter()
        job.run()
        self._loop.call_soon_threadsafe(self._turn, partial(finish, job, perf_counter() - begin))

    def _finish_started(self, job: Job, seconds: float) -> None:
        self._started -= 1
        self._finish(job, seconds)

    def _finish(self, job: Job, seconds: float) -> None:
        if isinstance(job, BatchJob):
            self._quick.note(seconds)
        self._measure(job, seconds)

    def _measure(self, job: Job, seconds: float) -> None:
        """Finish a job; of a batch, count how long it and its messages took."""
        if not isinstance(job, BatchJob):
            job.finish()
            return
        self._measures.sync.add(int(seconds * 1e9))
        committed = job.stream
        if not isinstance(committed, CommittedStream) or committed.is_relaxed():
            job.finish()
            return
        stream = committed.stream
        before = stream.visible_seq
        job.finish()
        covered = stream.visible_seq - before
        if covered > 0:
            self._measures.publish.add(time_ns() - job.since, covered)

    def run_here(self, job: Job, size: int, is_second: bool) -> bool:
        """Run a small batch on the loop, if the disk is quick; False if it is to be started. One
        that runs ahead may be larger, and a second one, unless the thread has the first."""
        if self.runs_ahead is not None and size <= AHEAD_BYTES_MAX:
            has_left = not is_second or not self._started
            return has_left and self._run_ahead(job, self.runs_ahead)
        if size > INLINE_BYTES_MAX or is_second:
            return False
        if not self.runs_here or not self._quick.is_quick():
            return False
        begin = perf_counter()
        job.run()
        seconds = perf_counter() - begin
        self._quick.note(seconds)
        self._measure(job, seconds)
        return True

    def _run_ahead(self, job: Job, run_ahead: "RunAhead") -> bool:
        if not isinstance(job, BatchJob):
            return False
        batch = job.batch
        if not isinstance(batch, (SyncBatch, EntryBatch)):
            return False
        if isinstance(batch, SyncBatch) and batch.names:  # a change of names is waited for
            return False
        begin = perf_counter()
        future = run_ahead(job.run)
        if future is None:
            return False
        self._running.add(future)
        future.add_done_callback(partial(self._ran_ahead, job, begin))
        return True

    def _ran_ahead(self, job: BatchJob, begin: float, future: "Future[None]") -> None:
        """A batch is there, or is not known to be; on any thread."""
        self._running.discard(future)
        error = future.exception()
        if isinstance(error, Exception):
            job.batch.error = job.batch.error or error
        seconds = perf_counter() - begin
        with suppress(RuntimeError):  # the loop has closed, and nobody waits
            self._loop.call_soon_threadsafe(self._turn, partial(self._measure, job, seconds))

    def wait(self) -> None:
        """Block until what is written on the threads has ended; what follows from it comes
        later."""
        for threads in (self._threads, self._aside):
            threads.submit(lambda: None).result()
        wait(list(self._running))

    def close(self) -> None:
        """Wait for what is on its way."""
        wait(list(self._running))
        self._threads.shutdown(wait=True)
        self._aside.shutdown(wait=True)
        self._beside.shutdown(wait=True)
        self._reads.shutdown(wait=True, cancel_futures=True)  # nobody waits for them
