"""Has the jobs of a member written and synced, one behind the other: on a thread, or at once.

A small job, which is one write and one sync of a few bytes, is done on the loop while the disk is
quick (`quick_disk`): a follower answers in the turn in which it has read. Each other job goes to a
thread, and so do those behind it until it is done. A disk that is slow so holds up one job on the
loop, and no heartbeat after that. A follower, which has nothing to say before its job is done,
waits a moment for the thread: to be woken later takes longer than many a job.

On a full disk a job waits on the thread until there is space, and all that follow wait behind it:
nobody is told that they are durable before they are. What the disk is like is asked for with
`health`.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple, TypeVar

from slipstream.errors import DiskFullError
from slipstream.group import DiskHealth, DiskJob
from slipstream.server.group.store import GroupStore
from slipstream.server.quick_disk import QuickDisk

INLINE_BYTES_MAX = 16 * 1024  # of a job that is done on the loop
AWAITED_BYTES_MAX = 512 * 1024  # of a job for which the loop waits so long ...
AWAITED_SECONDS = 0.005
AWAITED_SECONDS_MAX = 0.002  # ... if jobs take no longer on average
AGAIN_SECONDS = 0.5  # after a full disk has refused a job
LATELY_SECONDS = 5.0  # after which what a job has taken says nothing of the disk as it is
_WEIGHT = 0.2  # of the latest job in what jobs take

_Result = TypeVar("_Result")


class _Done(NamedTuple):
    """A job that the thread has done."""

    number: int
    why: str  # it has failed
    seconds: float  # it took; less than 0 where that says nothing of small jobs


class LogWriter:
    """See the module's text. `written` is told, on the loop, the number of each job that a thread
    has done, and why it has failed, "" if it has not."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: GroupStore,
        written: Callable[[int, str], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self._written = written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="slipstream-group")
        self._on_thread = 0  # jobs
        self._quick = QuickDisk()
        self._is_closing = threading.Event()
        self._begun_at = 0.0  # when the job under way was begun; 0 if there is none
        self._ended_at = -LATELY_SECONDS
        self._seconds = 0.0  # what jobs take, averaged
        self._look_at = 0.0
        self.waits_for_space = False  # a job, and with it all that follow; read on any thread

    async def run(self, action: Callable[[], _Result]) -> _Result:
        """What `action` gives, on the thread."""
        return await self._loop.run_in_executor(self._thread, action)

    def may_write_here(self, job: DiskJob) -> bool:
        """Whether a job is to be done by `write_here`; else by `start` or `write_awaited`."""
        return (
            not self._on_thread
            and self._store.is_small(job, INLINE_BYTES_MAX)
            and self._quick.is_quick()
        )

    def write_here(self, job: DiskJob) -> str | None:
        """Do a job at once; why it has failed, or "". None: it was handed to the thread, because
        the disk is full, or the thread has begun to look for space meanwhile."""
        if self._on_thread:
            self.start(job)
            return None
        try:
            why, seconds = self._write(job)
        except DiskFullError:
            self.start(job)
            return None
        self._quick.note(seconds)
        return why

    def start(self, job: DiskJob) -> None:
        """Have the thread do a job."""
        self._begin(job).add_done_callback(self._tell)

    def _begin(self, job: DiskJob) -> "Future[_Done | None]":
        self._on_thread += 1
        return self._thread.submit(self._run, job)

    def may_await(self, job: DiskJob) -> bool:
        """Whether it is worth a moment to wait for a job that the thread does."""
        is_next = not self._on_thread and self._store.is_small(job, AWAITED_BYTES_MAX)
        return is_next and self._seconds <= AWAITED_SECONDS_MAX

    def write_awaited(self, job: DiskJob) -> str | None:
        """Have the thread do a job, and wait for it, but no more than a moment; why it has failed,
        or "". None: it is not done yet."""
        future = self._begin(job)
        try:
            done = future.result(AWAITED_SECONDS)
        except TimeoutError:
            future.add_done_callback(self._tell)
            return None
        return self._end(done) if done is not None else None

    @property
    def is_full(self) -> bool:
        """Whether the disk has no space, or little; on any thread."""
        return self._store.is_full

    def health(self) -> DiskHealth:
        """What the disk is like: also how long the job under way takes already."""
        now = perf_counter()
        begun_at = self._begun_at
        seconds = self._seconds if now < self._ended_at + LATELY_SECONDS else 0.0
        if begun_at and not self.is_full:
            seconds = max(seconds, now - begun_at)
        return DiskHealth(self.is_full, int(seconds * 1e9))

    def look_for_space(self) -> None:
        """Have the thread see now and then whether a full disk has space again, where no job is
        there to find out. To be called again and again."""
        now = perf_counter()
        if self.is_full and not self._on_thread and now >= self._look_at:
            self._look_at = now + AGAIN_SECONDS
            self._on_thread += 1
            self._thread.submit(self._look)

    def close(self) -> None:
        """Wait for the job under way; those behind it are not done, nor is one that waits for
        space."""
        self._is_closing.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    # -- on the thread ---------------------------------------------------------------------------

    def _run(self, job: DiskJob) -> _Done | None:
        """Do a job; None if this is closed before."""
        is_small = self._store.is_small(job, INLINE_BYTES_MAX)
        while not self._is_closing.is_set():
            try:
                why, seconds = self._write(job)
            except DiskFullError:
                self.waits_for_space = True
                self._is_closing.wait(AGAIN_SECONDS)
                continue
            self.waits_for_space = False
            return _Done(job.number, why, seconds if is_small else -1.0)
        return None

    def _tell(self, future: "Future[_Done | None]") -> None:
        """A job has ended for which nobody waits, or which is not begun any more."""
        done = None if future.cancelled() else future.result()
        if done is not None:
            self._loop.call_soon_threadsafe(self._hear, done)

    def _look(self) -> None:
        try:
            self._store.look_for_space()
        finally:
            self._loop.call_soon_threadsafe(self._looked)

    # -- on the loop -----------------------------------------------------------------------------

    def _looked(self) -> None:
        self._on_thread -= 1

    def _hear(self, done: _Done) -> None:
        self._written(done.number, self._end(done))

    def _end(self, done: _Done) -> str:
        """The thread is free again; why the job has failed."""
        self._on_thread -= 1
        if done.seconds >= 0:
            self._quick.note(done.seconds)
        return done.why

    # -- on either -------------------------------------------------------------------------------

    def _write(self, job: DiskJob) -> tuple[str, float]:
        """Do a job; why it has failed, and what it took. Raises `DiskFullError`."""
        self._begun_at = begin = perf_counter()
        why = ""
        try:
            self._store.write(job)
        except DiskFullError:
            raise
        except Exception as error:
            why = str(error) or repr(error)
        finally:
            self._begun_at = 0.0
        self._ended_at = perf_counter()
        seconds = self._ended_at - begin
        self._seconds += (seconds - self._seconds) * _WEIGHT
        return why, seconds
