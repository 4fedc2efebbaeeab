"""The server's disk thread: what it runs on the loop, and in which order it runs the rest."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.server import disk_thread, quick_disk
from slipstream.server.disk_thread import INLINE_BYTES_MAX, DiskThread
from slipstream.server.measures import Measures


class Noted:
    """A job that notes on which thread it ran and finished."""

    def __init__(self, name: str, events: list[tuple[str, str]]) -> None:
        self._name = name
        self._events = events
        self.finished = asyncio.Event()

    def run(self) -> None:
        self._note("ran")

    def finish(self) -> None:
        self._note("finished")
        self.finished.set()

    def _note(self, what: str) -> None:
        where = "loop" if threading.current_thread() is threading.main_thread() else "thread"
        self._events.append((f"{self._name} {what}", where))


def run_turn(callback: Callable[[], None]) -> None:
    callback()


async def test_jobs_run_in_order_on_the_thread_and_finish_on_the_loop() -> None:
    events: list[tuple[str, str]] = []
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    jobs = [Noted(name, events) for name in "ab"]
    for job in jobs:
        thread.start(job)
    await jobs[-1].finished.wait()
    thread.close()
    assert [event for event in events if "ran" in event[0]] == [
        ("a ran", "thread"),
        ("b ran", "thread"),
    ]
    assert [event for event in events if "finished" in event[0]] == [
        ("a finished", "loop"),
        ("b finished", "loop"),
    ]


class Long(Noted):
    """A job that runs until it may end."""

    def __init__(self, name: str, events: list[tuple[str, str]]) -> None:
        super().__init__(name, events)
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def run(self) -> None:
        super().run()
        self.has_begun.set()
        self.may_end.wait()


async def test_a_job_aside_that_comes_first_waits_for_the_one_under_way_alone() -> None:
    events: list[tuple[str, str]] = []
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    under_way = Long("under way", events)
    thread.start_aside(under_way)
    await asyncio.to_thread(under_way.has_begun.wait)
    last = Noted("last", events)
    for job in (Noted("next", events), last):
        thread.start_aside(job)
    thread.start_aside(Noted("first", events), comes_first=True)
    under_way.may_end.set()
    await last.finished.wait()
    thread.close()
    ran = [event.removesuffix(" ran") for event, where in events if where == "thread"]
    assert ran == ["under way", "first", "next", "last"]


async def test_a_small_batch_runs_on_the_loop_and_a_large_one_does_not() -> None:
    events: list[tuple[str, str]] = []
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    assert thread.run_here(Noted("small", events), INLINE_BYTES_MAX, is_second=False)
    assert not thread.run_here(Noted("large", events), INLINE_BYTES_MAX + 1, is_second=False)
    thread.close()
    assert events == [("small ran", "loop"), ("small finished", "loop")]


async def test_a_slow_disk_is_not_waited_for_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_000))
    monkeypatch.setattr(disk_thread, "perf_counter", lambda: next(ticks) * 1.0)  # a second each
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    events: list[tuple[str, str]] = []
    assert thread.run_here(
        Noted("first", events), 100, is_second=False
    )  # nothing is known of the disk yet
    tried = [
        thread.run_here(Noted("next", events), 100, is_second=False)
        for _ in range(quick_disk.PROBE_EVERY)
    ]
    thread.close()
    assert tried == [False] * (quick_disk.PROBE_EVERY - 1) + [True]  # it may have become quick


async def test_a_disk_that_is_slow_again_and_again_is_tried_on_the_loop_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(100_000))
    monkeypatch.setattr(disk_thread, "perf_counter", lambda: next(ticks) * 1.0)
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    events: list[tuple[str, str]] = []
    for _ in range(20 * quick_disk.PROBE_EVERY):
        thread.run_here(Noted("slow", events), 100, is_second=False)
    tried = [
        thread.run_here(Noted("slow", events), 100, is_second=False)
        for _ in range(quick_disk.PROBE_EVERY)
    ]
    thread.close()
    assert not any(tried)


async def test_only_a_batch_of_plain_writes_runs_ahead_of_its_disk() -> None:
    events: list[tuple[str, str]] = []
    asked: list[Callable[[], None]] = []

    def run_ahead(run: Callable[[], None]) -> None:
        asked.append(run)

    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    thread.runs_here = False
    thread.runs_ahead = run_ahead
    assert not thread.run_here(Noted("another job", events), 100, is_second=False)
    assert not asked
    thread.close()


def until_shut(pool: ThreadPoolExecutor) -> None:
    """Wait until threads take nothing more, and what waited for them was dropped."""
    while not pool._shutdown:
        os.sched_yield()
    with pool._shutdown_lock:
        pass


async def test_reads_that_wait_when_the_server_stops_are_not_made() -> None:
    thread = DiskThread(asyncio.get_running_loop(), run_turn, Measures())
    goes_on = threading.Event()
    made: list[object] = []

    class Read:
        def run(self) -> None:
            made.append(self)
            goes_on.wait(10)

        def finish(self) -> None:
            """Nobody waits for it."""

    for _ in range(3 * disk_thread.READS_MAX):
        thread.start_read(Read())
    closing = threading.Thread(target=thread.close)
    closing.start()
    until_shut(thread._reads)
    goes_on.set()
    await asyncio.to_thread(closing.join)
    assert len(made) == disk_thread.READS_MAX
