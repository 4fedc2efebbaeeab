"""Several batches may be on their way to the disk: each answers for its own messages."""

from random import Random

import pytest

from slipstream.errors import StorageError
from slipstream.log.durability import SyncBatch
from slipstream.log.file_log import FileLog
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, readable

SEGMENT = 4_000  # about 28 messages


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def reopen(disk: SimulatedDisk) -> FileLog:
    return opened(disk, SEGMENT)


def prepared(log: FileLog, instead_of: SyncBatch | None = None) -> SyncBatch:
    batch = log.prepare_sync(instead_of)
    assert batch is not None
    return batch


def under_way(disk: SimulatedDisk, durable: int, more: int) -> tuple[FileLog, SyncBatch]:
    """A log with so many durable messages, and so many in a batch that has not run."""
    log = reopen(disk)
    fill(log, durable)
    commit(log)
    fill(log, more)
    return log, prepared(log)


def test_what_is_durable_moves_on_with_each_batch(disk: SimulatedDisk) -> None:
    log = reopen(disk)
    fill(log, 40)  # more than a segment
    first = prepared(log)
    fill(log, 40)
    second = prepared(log)
    fill(log, 5)  # in neither
    first.run()
    second.run()
    assert log.durable_seq == 0
    log.finish_sync(first)
    assert log.durable_seq == 40
    log.finish_sync(second)
    assert log.durable_seq == 80
    disk.crash()
    assert readable(reopen(disk))[:80] == list(range(1, 81))


def test_a_batch_behind_one_that_failed_has_failed_too(disk: SimulatedDisk) -> None:
    log, first = under_way(disk, 3, 3)
    fill(log, 3)
    second = prepared(log)
    disk.fail("sync")
    first.run()
    second.run()
    assert second.error is None  # and yet what it stands on is not there
    for batch in (first, second):
        with pytest.raises(StorageError, match="cannot be written any more"):
            log.finish_sync(batch)
    assert log.durable_seq == 3


def test_a_file_that_emptied_goes_with_the_batch_that_tells_of_it(disk: SimulatedDisk) -> None:
    log, first = under_way(disk, 60, 1)
    files = set(disk.files(".seg"))
    log.drop_below(60)
    second = prepared(log)
    first.run()
    log.finish_sync(first)
    assert files <= set(disk.files(".seg"))
    second.run()
    log.finish_sync(second)
    assert files <= set(disk.files(".seg"))  # until it is kept elsewhere that they are not missing
    commit(log)
    assert not files <= set(disk.files(".seg"))
    disk.crash()
    assert readable(reopen(disk)) == [60, 61]


def test_a_sparse_segment_is_copied_after_the_batch_that_tells_of_it(disk: SimulatedDisk) -> None:
    log, first = under_way(disk, 100, 1)
    for seq in range(1, 100):
        if seq % 5:
            log.remove(seq, False)
    second = prepared(log)
    first.run()
    log.finish_sync(first)
    assert log.take_jobs() == []
    second.run()
    log.finish_sync(second)
    assert len(log.take_jobs()) == 1


def test_one_batch_stands_for_another_that_was_not_run(disk: SimulatedDisk) -> None:
    log = reopen(disk)
    fill(log, 40)
    batch = prepared(log)
    fill(log, 40)
    batch = prepared(log, instead_of=batch)
    assert log.prepare_sync(instead_of=batch) is batch  # nothing came meanwhile
    batch.run()
    log.finish_sync(batch)
    assert log.durable_seq == 80
    disk.crash()
    assert readable(reopen(disk)) == list(range(1, 81))


def test_closing_makes_durable_what_was_prepared(disk: SimulatedDisk) -> None:
    log = reopen(disk)
    fill(log, 40)
    prepared(log)
    fill(log, 40)
    prepared(log)
    log.close()
    disk.crash()
    assert readable(reopen(disk)) == list(range(1, 81))
