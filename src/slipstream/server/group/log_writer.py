"""Has the jobs of a member written and synced, one behind the other: on a thread, or at once.

A small job, which is one write and one sync of a few bytes, is done on the loop while the disk is
quick (`quick_disk`): a follower answers in the turn in which it has read. Each other job goes to a
thread, and so do those behind it until it is done. A disk that is slow so holds up one job on the
loop, and no heartbeat after that.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from slipstream.group import DiskJob
from slipstream.server.group.store import GroupStore
from slipstream.server.quick_disk import QuickDisk

INLINE_BYTES_MAX = 16 * 1024  # of a job that is done on the loop

_Result = TypeVar("_Result")


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

    async def run(self, action: Callable[[], _Result]) -> _Result:
        """What `action` gives, on the thread."""
        return await self._loop.run_in_executor(self._thread, action)

    def may_write_here(self, job: DiskJob) -> bool:
        """Whether a job is to be done by `write_here`; else by `start`."""
        return (
            not self._on_thread
            and self._store.is_small(job, INLINE_BYTES_MAX)
            and self._quick.is_quick()
        )

    def write_here(self, job: DiskJob) -> str:
        """Do a job at once; why it has failed, or ""."""
        why, seconds = self._write(job)
        self._quick.note(seconds)
        return why

    def start(self, job: DiskJob) -> None:
        """Have the thread do a job."""
        self._on_thread += 1
        self._thread.submit(self._run, job)

    def close(self) -> None:
        """Wait for the job under way; those behind it are not done."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: DiskJob) -> None:
        """On the thread."""
        is_small = self._store.is_small(job, INLINE_BYTES_MAX)
        why, seconds = self._write(job)
        self._loop.call_soon_threadsafe(self._done, job.number, why, seconds if is_small else -1.0)

    def _done(self, number: int, why: str, seconds: float) -> None:
        self._on_thread -= 1
        if seconds >= 0:
            self._quick.note(seconds)
        self._written(number, why)

    def _write(self, job: DiskJob) -> tuple[str, float]:
        begin = perf_counter()
        why = ""
        try:
            self._store.write(job)
        except Exception as error:
            why = str(error) or repr(error)
        return why, perf_counter() - begin
