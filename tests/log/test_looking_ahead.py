"""The next segment's file and room in this one are there before they are needed."""

from random import Random

import pytest

from slipstream.log.ahead import SPARE
from slipstream.log.file_log import FileLog
from slipstream.log.frozen import FrozenLog
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, readable

SEGMENT_BYTES = 4_000
MOST = 25  # messages, after which little of a segment is left
ALL = 60  # messages that take more than one segment


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def log(disk: SimulatedDisk) -> FileLog:
    """A log whose next segment has its file already."""
    log = opened(disk, SEGMENT_BYTES)
    log.looks_ahead = True
    for _ in range(MOST):
        fill(log, 1)
        commit(log)
    assert disk.files(SPARE)
    return log


def calls(disk: SimulatedDisk) -> int:
    """How often the disk was asked for a file, or for room."""
    return disk.calls["open"] + disk.calls["reserve"]


def test_a_new_segment_takes_the_file_that_was_made_for_it(
    disk: SimulatedDisk, log: FileLog
) -> None:
    before = calls(disk), disk.calls["rename"]
    while len(log.blocks) == 1:
        fill(log, 1)
    assert (calls(disk), disk.calls["rename"]) == before
    commit(log)
    assert not disk.files(SPARE)
    assert len(disk.files(".seg")) == 2
    disk.crash()
    again = opened(disk, SEGMENT_BYTES)
    assert readable(again) == list(range(1, log.last_seq + 1))


def test_room_in_a_segment_is_reserved_before_it_is_needed(disk: SimulatedDisk) -> None:
    log = opened(disk, 1 << 20)
    log.looks_ahead = True
    fill(log, 200)
    commit(log)
    begun = disk.calls["reserve"]
    fill(log, 10)
    commit(log)  # has more reserved
    by_job = disk.calls["reserve"] - begun
    assert by_job
    begun = disk.calls["reserve"]
    fill(log, 50)
    assert disk.calls["reserve"] == begun


def test_what_a_crash_leaves_of_a_file_without_a_name_goes(
    disk: SimulatedDisk, log: FileLog
) -> None:
    while len(log.blocks) == 1:
        fill(log, 1)
    durable = log.durable_seq
    batch = log.prepare_sync()
    assert batch is not None
    for path in disk.files(SPARE):
        disk.open(path).sync()
    disk.sync_dir("log")
    disk.crash()
    again = opened(disk, SEGMENT_BYTES)
    assert not disk.files(SPARE)
    assert readable(again)[:durable] == list(range(1, durable + 1))
    fill(again, ALL)
    commit(again)


def test_what_was_handed_to_the_system_is_there_when_the_process_ends(
    disk: SimulatedDisk, log: FileLog
) -> None:
    while len(log.blocks) == 1:
        fill(log, 1)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    assert readable(opened(disk, SEGMENT_BYTES)) == list(range(1, log.last_seq + 1))


def test_an_orderly_end_leaves_no_file_that_nobody_needs(disk: SimulatedDisk, log: FileLog) -> None:
    log.close()
    assert not disk.files(SPARE)


def test_a_file_that_is_made_when_the_log_has_ended_goes_again(disk: SimulatedDisk) -> None:
    log = opened(disk, SEGMENT_BYTES)
    log.looks_ahead = True
    fill(log, MOST + 5)
    commit(log, jobs=False)
    jobs = log.take_jobs()
    for job in jobs:
        job.run()
    assert disk.files(SPARE)
    log.close()
    for job in jobs:
        job.finish()
    assert not disk.files(SPARE)


def test_a_full_disk_has_no_file_for_later_and_takes_what_it_can(disk: SimulatedDisk) -> None:
    log = opened(disk, SEGMENT_BYTES)
    log.looks_ahead = True
    fill(log, MOST)
    disk.capacity = disk.used() + 500
    commit(log)
    assert not disk.files(SPARE)
    fill(log, 2)
    commit(log)
    disk.capacity *= 10
    fill(log, ALL)
    commit(log)
    disk.crash()
    assert readable(opened(disk, SEGMENT_BYTES)) == list(range(1, MOST + 2 + ALL + 1))


def test_a_copy_of_the_log_finds_segments_that_have_no_name_yet(log: FileLog) -> None:
    while len(log.blocks) == 1:
        fill(log, 1)
    frozen = FrozenLog(log)
    assert len(frozen) == 2
    assert [frozen.block(i).base for i in range(2)] == [1, log.blocks[1].base]
    frozen.release()
