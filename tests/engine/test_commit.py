"""The commit as a state machine: which batches a stream's messages reach the disk in, and when."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.commit.commit import QUEUED_BYTES_MIN, Commit, Committed
from slipstream.engine.loop.clock import Clock
from slipstream.engine.loop.timers import Timers
from slipstream.log.durability import SyncBatch
from slipstream.log.file_log import FileLog
from slipstream.testing.driver import HandRunner
from slipstream.testing.simulated_disk import SimulatedDisk, SimulatedFile
from tests.log.storing import opened, put

LARGE = bytes(QUEUED_BYTES_MIN)
SMALL = b"x" * 100
INTERVAL = 5_000_000_000


class OneStream(Committed):
    """A stream of which only the log is real: it notes how far each batch made it durable."""

    def __init__(self, log: FileLog, commit: Commit, ack_at_once: bool = False) -> None:
        super().__init__()
        self.log = log
        self.commit = commit
        self.ack_at_once = ack_at_once
        self.closed = False
        self.durable: list[int] = []
        self.failed: list[int] = []

    def store(self, body: bytes, count: int = 6) -> None:
        for _ in range(count):
            put(self.log, b"s", body)
        self.commit.commit(self)

    def is_closed(self) -> bool:
        return self.closed

    def is_relaxed(self) -> bool:
        return self.ack_at_once

    def unwritten(self) -> int:
        return self.log.unwritten()

    def prepare_sync(self, instead_of: SyncBatch | None = None) -> SyncBatch | None:
        return self.log.prepare_sync(instead_of)

    def synced(self, batch: SyncBatch | None) -> None:
        if batch is None:
            return
        try:
            self.log.finish_sync(batch)
            self.durable.append(self.log.durable_seq)
        except Exception:
            self.failed.append(batch.last_seq)

    def mark_dirty(self) -> None:
        self.commit.commit(self)


class World:
    """A commit with its stream, its clock, and a disk that does as it is told."""

    def __init__(self, ack_at_once: bool = False) -> None:
        self.clock = Clock(1)
        self.timers = Timers(self.clock)
        self.runner = HandRunner()
        self.commit = Commit(self.runner, self.timers, INTERVAL)
        log = opened(SimulatedDisk(Random(1)), segment_bytes=64 * QUEUED_BYTES_MIN)
        self.stream = OneStream(log, self.commit, ack_at_once)

    def run_all(self) -> None:
        while self.runner.step():
            pass

    def pass_time(self, ns: int) -> None:
        self.clock.now += ns
        self.timers.run_due()


@pytest.mark.parametrize(
    ("body", "batches"),
    [(LARGE, [6, 12, 18]), (SMALL, [6, 18])],
    ids=["large ones follow at once", "small ones gather"],
)
def test_what_is_stored_while_a_batch_is_under_way(body: bytes, batches: list[int]) -> None:
    world = World()
    world.runner.hold()
    for _ in range(3):
        world.stream.store(body)
    assert len(world.runner.waiting) == (2 if body is LARGE else 1)  # never more than two
    world.run_all()
    assert world.stream.durable == batches


def test_a_batch_knows_since_when_its_messages_wait() -> None:
    world = World()
    world.runner.hold()
    world.stream.store(SMALL)
    begun = [world.clock.now]
    for _ in range(2):  # both wait for the first batch, and are in the second
        world.pass_time(1000)
        world.stream.store(SMALL)
    begun.append(begun[0] + 1000)
    since = []
    while world.runner.waiting:
        job: Any = world.runner.waiting[0].job
        since += [job.since] if job.since not in since else []
        world.pass_time(1000)
        world.runner.step()
    assert since == begun


def test_a_batch_after_a_failed_one_has_failed() -> None:
    world = World()
    world.runner.hold()
    world.stream.store(LARGE)
    world.stream.store(LARGE)
    first: Any = world.runner.waiting[0].batch
    first.error = OSError(5, "Input/output error")
    world.run_all()
    assert (world.stream.durable, world.stream.failed) == ([], [6, 12])


def test_a_batch_that_raises_fails_instead_of_leaving_the_stream_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sync(_file: SimulatedFile) -> None:
        raise RuntimeError("no disk raises this")

    world = World()
    monkeypatch.setattr(SimulatedFile, "sync", sync)
    world.stream.store(SMALL)
    assert world.stream.failed == [6]
    assert world.stream.under_way == 0


def test_with_an_interval_one_sync_covers_all_that_was_stored_since_the_last() -> None:
    world = World(ack_at_once=True)
    for _ in range(2):
        for _ in range(3):
            world.stream.store(SMALL)
        world.pass_time(INTERVAL)
    assert world.stream.durable == [18, 36]


def test_a_relaxed_sync_waits_for_the_batch_that_is_under_way() -> None:
    world = World(ack_at_once=True)
    world.stream.store(SMALL)
    world.stream.ack_at_once = False  # an update of the stream
    world.runner.hold()
    world.stream.store(SMALL)
    world.stream.ack_at_once = True
    world.stream.store(SMALL)
    world.pass_time(INTERVAL)
    world.run_all()
    world.pass_time(INTERVAL)
    world.run_all()
    assert world.stream.durable[-1] == 18


def test_nothing_is_told_to_a_stream_that_was_closed_meanwhile() -> None:
    world = World()
    world.runner.hold()
    world.stream.store(SMALL)
    world.stream.closed = True
    world.run_all()
    assert (world.stream.durable, world.stream.failed) == ([], [])
