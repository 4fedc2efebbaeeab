"""Which jobs of a member are done on the loop, which on a thread, and in which order."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slipstream.errors import DiskFullError
from slipstream.group import DiskJob, Entry, State
from slipstream.group.messages import BEGINNING, make_entry
from slipstream.group.outbox import Write
from slipstream.log.disk import OsDisk
from slipstream.server.group import log_writer
from slipstream.server.group.log_writer import INLINE_BYTES_MAX, LogWriter
from slipstream.server.group.store import GroupStore, Identity
from slipstream.server.quick_disk import LONG_SECONDS, PROBE_EVERY
from tests.server.group.waiting import until

HERE = threading.get_ident


class Jobs:
    """Jobs of one entry each, for a store that notes which of them were done, and where."""

    def __init__(self, path: Path) -> None:
        self.store = GroupStore(OsDisk(), str(path))
        self.store.found(Identity("test", "n1", ("n1",)))
        self.done: list[tuple[int, bool]] = []  # number, and whether on the loop
        self.told: list[tuple[int, str]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.loop_thread = HERE()
        self.writer = LogWriter(asyncio.get_running_loop(), self.store, self._written)
        self._write = self.store.write
        self.store.write = self._note  # type: ignore[method-assign]
        self._last = BEGINNING
        self._number = 0

    def _note(self, job: DiskJob) -> None:
        self.may_go.wait(30)
        self._write(job)
        self.done.append((job.number, HERE() == self.loop_thread))

    def _written(self, number: int, why: str) -> None:
        self.told.append((number, why))

    def next(self, body: bytes = b"x", state: State | None = None) -> DiskJob:
        entry: Entry = make_entry(1, self._last, body)
        self._last = entry.mark
        self._number += 1
        return DiskJob(self._number, [Write(entry.index, [entry])], state or State(), False)

    async def all_told(self, count: int) -> None:
        await until(lambda: len(self.told) >= count, f"{count} jobs are done on the thread")


@pytest.fixture
async def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Jobs]:
    """On a disk that takes no time, unless a test says otherwise."""
    monkeypatch.setattr(log_writer, "perf_counter", lambda: 0.0)
    jobs = Jobs(tmp_path / "group")
    yield jobs
    jobs.may_go.set()
    jobs.writer.close()
    jobs.store.close()


async def test_a_small_job_is_done_at_once(jobs: Jobs) -> None:
    job = jobs.next()
    assert jobs.writer.may_write_here(job)
    assert jobs.writer.write_here(job) == ""
    assert jobs.done == [(1, True)]


@pytest.mark.parametrize("what", ["bytes", "promise"])
async def test_a_job_that_takes_longer_is_for_the_thread(jobs: Jobs, what: str) -> None:
    body = b"x" * (INLINE_BYTES_MAX + 1) if what == "bytes" else b"x"
    job = jobs.next(body, State(sealed=7) if what == "promise" else None)
    assert not jobs.writer.may_write_here(job)
    jobs.writer.start(job)
    await jobs.all_told(1)
    assert jobs.done == [(1, False)]
    assert jobs.told == [(1, "")]


async def test_who_waits_for_the_thread_hears_at_once_what_it_has_done(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "AWAITED_SECONDS", 30.0)  # however busy the machine is
    large = jobs.next(b"x" * (INLINE_BYTES_MAX + 1))
    assert jobs.writer.may_await(large)
    assert jobs.writer.write_awaited(large) == ""
    assert jobs.done == [(1, False)]
    assert jobs.writer.may_write_here(jobs.next())
    await asyncio.sleep(0)
    assert jobs.told == []  # once is enough


async def test_who_waits_does_so_for_a_moment_and_is_told_later(jobs: Jobs) -> None:
    jobs.may_go.clear()
    assert jobs.writer.write_awaited(jobs.next(b"x" * (INLINE_BYTES_MAX + 1))) is None
    second = jobs.next()
    assert not jobs.writer.may_write_here(second)
    assert not jobs.writer.may_await(second)
    jobs.writer.start(second)
    jobs.may_go.set()
    await jobs.all_told(2)
    assert jobs.told == [(1, ""), (2, "")]


async def test_a_disk_that_is_slow_on_average_is_not_waited_for(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter([0.0, 1.0])
    monkeypatch.setattr(log_writer, "perf_counter", lambda: next(ticks, 1.0))
    jobs.writer.start(jobs.next())
    await jobs.all_told(1)
    assert not jobs.writer.may_await(jobs.next())


async def test_a_job_that_fails_tells_who_waits(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "AWAITED_SECONDS", 30.0)

    def fail(job: DiskJob) -> None:
        raise OSError(5, "Input/output error")

    jobs.store.write = fail  # type: ignore[method-assign]
    assert jobs.writer.write_awaited(jobs.next()) == "[Errno 5] Input/output error"


async def test_no_job_overtakes_one_on_the_thread(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "perf_counter", lambda: 1.0)  # no job takes long
    jobs.may_go.clear()
    jobs.writer.start(jobs.next())
    second = jobs.next()
    assert not jobs.writer.may_write_here(second)
    jobs.writer.start(second)
    jobs.may_go.set()
    await jobs.all_told(2)
    assert jobs.done == [(1, False), (2, False)]
    assert jobs.writer.may_write_here(jobs.next())


async def test_after_one_long_sync_jobs_go_to_the_thread(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter([0.0, LONG_SECONDS * 1.1])
    monkeypatch.setattr(log_writer, "perf_counter", lambda: next(ticks, 0.0))
    assert jobs.writer.write_here(jobs.next()) == ""
    assert not jobs.writer.may_write_here(jobs.next())
    asked = [jobs.writer.may_write_here(jobs.next()) for _ in range(PROBE_EVERY - 1)]
    assert asked == [False] * (PROBE_EVERY - 2) + [True]  # it may have become quick again


async def test_a_full_disk_has_jobs_wait_for_space(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "AGAIN_SECONDS", 0.001)
    write, refused = jobs.store.write, 50

    def write_or_refuse(job: DiskJob) -> None:
        nonlocal refused
        if refused:
            refused -= 1
            jobs.store.is_full = True
            raise DiskFullError("no space left")
        write(job)

    jobs.store.write = write_or_refuse  # type: ignore[method-assign]
    assert jobs.writer.write_here(jobs.next()) is None
    assert jobs.writer.health().is_full
    await until(lambda: jobs.writer.waits_for_space, "the thread has found that out, too")
    second = jobs.next()
    assert not jobs.writer.may_write_here(second)
    jobs.writer.start(second)
    await jobs.all_told(2)
    assert jobs.told == [(1, ""), (2, "")]
    assert [number for number, _ in jobs.done] == [1, 2]
    assert not jobs.writer.health().is_full
    assert not jobs.writer.waits_for_space


async def test_a_job_that_was_put_off_is_not_done_while_the_thread_looks_for_space(
    jobs: Jobs,
) -> None:
    looking, may_end = threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        may_end.wait(30)

    jobs.store.look_for_space = look  # type: ignore[method-assign]
    jobs.store.is_full = True
    job = jobs.next()
    assert jobs.writer.may_write_here(job)
    jobs.writer.look_for_space()
    await asyncio.to_thread(looking.wait, 30)
    assert jobs.writer.write_here(job) is None
    assert jobs.done == []
    may_end.set()
    await jobs.all_told(1)
    assert jobs.done == [(1, False)]


async def test_a_job_that_waits_for_space_ends_with_the_server(jobs: Jobs) -> None:
    def refuse(job: DiskJob) -> None:
        raise DiskFullError("no space left")

    jobs.store.write = refuse  # type: ignore[method-assign]
    jobs.writer.start(jobs.next())
    jobs.writer.close()
    assert jobs.told == []


async def test_what_jobs_take_is_known_while_one_is_under_way(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # so time goes by
    assert jobs.writer.health().sync_ns == 0
    jobs.writer.write_here(jobs.next())
    quick = jobs.writer.health().sync_ns
    assert quick > 0
    jobs.may_go.clear()
    jobs.writer.start(jobs.next())
    await until(lambda: jobs.writer.health().sync_ns > 10 * quick, "it is seen to take long")


async def test_a_job_that_fails_says_why(jobs: Jobs) -> None:
    def fail(job: DiskJob) -> None:
        raise OSError(5, "Input/output error")

    jobs.store.write = fail  # type: ignore[method-assign]
    assert jobs.writer.write_here(jobs.next()) == "[Errno 5] Input/output error"
    jobs.writer.start(jobs.next())
    await jobs.all_told(1)
    assert jobs.told == [(2, "[Errno 5] Input/output error")]
