"""Segments where little lives give their space back, and lose nothing, whatever happens."""

from random import Random

import pytest

from slipstream.errors import DiskFullError
from slipstream.log.file_log import FileLog
from slipstream.log.unlink import UnlinkJob
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, readable

SEGMENT = 8_000  # about 58 messages


def reopen(disk: SimulatedDisk) -> FileLog:
    return opened(disk, SEGMENT)


def holed(disk: SimulatedDisk, count: int = 400) -> tuple[FileLog, list[int]]:
    """A log where every fifth message of many lives."""
    log = reopen(disk)
    for _ in range(count // 20):
        fill(log, 20)
        commit(log)
    kept = [seq for seq in range(1, count + 1) if seq % 5 == 0]
    for seq in range(1, count + 1):
        if seq % 5:
            log.remove(seq, False)
    return log, kept


def settle(log: FileLog) -> None:
    for _ in range(40):
        commit(log)


def held(disk: SimulatedDisk) -> int:
    return sum(len(disk.read(path)) for path in disk.files(".seg")[:-1])


def test_dead_bytes_between_live_ones_are_given_back() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk)
    before = held(disk)
    settle(log)
    assert held(disk) < before / 2
    assert readable(log) == kept
    assert not disk.files(".new")
    log.close()
    log = reopen(disk)
    assert readable(log) == kept
    assert log.lost.count == 0


def test_readers_and_removals_go_on_while_a_segment_is_rewritten() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk)
    commit(log, jobs=False)
    (job,) = log.take_jobs()
    assert readable(log) == kept
    job.run()
    log.remove(kept.pop(3), False)
    assert readable(log) == kept
    job.finish()
    assert readable(log) == kept
    commit(log)
    disk.crash()
    assert readable(reopen(disk)) == kept


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_any_moment_of_it_leaves_the_old_or_the_new(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    log, kept = holed(disk)
    commit(log, jobs=False)
    for _ in range(random.randrange(12)):
        for job in log.take_jobs():
            job.run()
            if random.random() < 0.8:
                job.finish()
        commit(log, jobs=False)
    disk.crash()
    log = reopen(disk)
    assert readable(log) == kept
    assert log.lost.count == 0
    assert not disk.files(".new")
    settle(log)
    disk.crash()
    assert readable(reopen(disk)) == kept


def test_what_was_removed_but_is_not_durable_is_not_left_out() -> None:
    """A message pushed out by one that a crash takes must be there again."""
    disk = SimulatedDisk(Random(3))
    log, kept = holed(disk)
    commit(log, jobs=False)  # durable from here on
    log.remove(kept[0], False)  # not durable
    for job in log.take_jobs():
        job.run()
        job.finish()
    disk.crash()
    assert readable(reopen(disk)) == kept


def test_an_erased_message_does_not_come_back_through_a_copy() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk)
    commit(log, jobs=False)
    (job,) = log.take_jobs()
    job.run()  # the copy has the bytes
    gone = kept.pop(2)
    assert log.remove(gone, True)
    job.finish()
    settle(log)
    for path in disk.files():
        assert b"message %d ." % gone not in disk.read(path)
    assert readable(log) == kept


def test_a_queue_that_empties_from_the_front_is_not_copied_over_and_over() -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(20):
        fill(log, 20)
        commit(log)
    for seq in range(1, 390):
        log.remove(seq, False)
        commit(log)
    assert disk.calls["rename"] == 0
    assert len(disk.files(".seg")) <= 2


def test_a_full_disk_only_puts_it_off() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk)
    commit(log, jobs=False)
    disk.capacity = disk.used()
    for job in log.take_jobs():
        job.run()
        assert isinstance(job.error, DiskFullError)
        job.finish()
    assert readable(log) == kept
    assert not disk.files(".new")


def test_a_damaged_message_is_copied_as_it_is() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk)
    data = disk.read(disk.files(".seg")[0])
    at = data.index(b"message 10 .")
    disk.flip(disk.files(".seg")[0], at * 8)
    settle(log)
    assert readable(log) == [seq for seq in kept if seq != 10]
    assert log.lost.sequences == [10]


def test_tombstones_go_when_nothing_needs_them() -> None:
    disk = SimulatedDisk(Random(1))
    log, kept = holed(disk, 1_000)
    settle(log)
    for _ in range(10):  # rewriting goes on while removals do
        fill(log, 60)
        commit(log)
        for seq in range(log.last_seq - 59, log.last_seq + 1):
            if seq % 5:
                log.remove(seq, False)
            else:
                kept.append(seq)
        settle(log)
    assert readable(log) == kept
    told = sum(len(segment.removed_ranges) for segment in log.blocks) // 12
    assert told < len(kept)
    log.close()
    assert readable(reopen(disk)) == kept


@pytest.mark.parametrize("ran", [False, True])
def test_a_rewrite_touches_no_file_of_another_log_in_the_directory(ran: bool) -> None:
    disk = SimulatedDisk(Random(1))
    log, _ = holed(disk)
    commit(log, jobs=False)
    (job,) = log.take_jobs()
    if ran:
        job.run()
    path = log.blocks[0].path
    log.delete()
    disk.remove_tree("log")
    disk.mkdir("log")
    its_own = [path.replace(".seg", ".new")] if ran else []
    for name in its_own:  # of a rewrite by the other one
        disk.open(name).append(b"live")
    if not ran:
        job.run()
    job.finish()
    assert disk.files(".seg") == []
    assert disk.files(".new") == its_own


def do_all_but_unlinking(log: FileLog) -> list[UnlinkJob]:
    """Do jobs until none is left; those that would remove files, which are not done."""
    left: list[UnlinkJob] = []
    while jobs := log.take_jobs():
        for job in jobs:
            if isinstance(job, UnlinkJob):
                left.append(job)
            else:
                job.run()
                job.finish()
    return left


def test_a_file_whose_removal_a_crash_undoes_brings_no_message_back() -> None:
    """What told that they are gone was in a segment that has been written anew meanwhile."""
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(10):
        fill(log, 20)
        commit(log)
    oldest, emptied, telling = log.blocks[0], log.blocks[1], log.blocks[-1]
    stored = disk.read(emptied.path)
    gone = range(emptied.base, emptied.base + emptied.places)
    for seq in gone:
        log.remove(seq, False)
    commit(log, jobs=False)
    fill(log, 100)
    sparse = []
    unlinks = []
    for segment in (oldest, telling):
        commit(log, jobs=False)
        unlinks += do_all_but_unlinking(log)
        sparse += [segment.base + place for place in range(segment.places) if place % 5]
        for seq in sparse:
            log.remove(seq, False)
    for job in unlinks:
        job.run()
        job.finish()
    log.dir_dirty = False  # what a sync would make durable is not, yet
    commit(log)
    assert telling.rewritten
    file = disk.open(emptied.path)
    file.append(stored)
    file.sync()
    disk.sync_dir("log")
    kept = [seq for seq in range(1, 301) if seq not in gone and seq not in sparse]
    assert readable(reopen(disk)) == kept


def test_of_files_that_go_together_the_older_ones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer ones may have the tombstones of what the older ones had."""
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(10):
        fill(log, 20)
        commit(log)
    oldest, second = log.blocks[0], log.blocks[1]
    removed: list[str] = []
    monkeypatch.setattr(disk, "remove", removed.append)
    for segment in (second, oldest):
        for seq in range(segment.base, segment.base + segment.places):
            log.remove(seq, False)
    commit(log)
    assert removed == [oldest.path, second.path]


def test_what_lies_below_the_front_is_told_by_the_front_alone() -> None:
    disk = SimulatedDisk(Random(1))
    log, _ = holed(disk)
    settle(log)
    assert len(log.blocks) > 3
    assert log.drop_below(log.last_seq + 1) > 0
    commit(log)
    fill(log, 1)
    commit(log)
    assert not any(segment.removed_ranges for segment in log.blocks)
    disk.crash()
    assert readable(reopen(disk)) == [401]
