"""What a crash tore at the end was never acknowledged, and is not reported as lost; damage is."""

from random import Random

import pytest

from slipstream.log.file_log import FileLog
from slipstream.testing.simulated_disk import SECTOR, SimulatedDisk
from tests.log.storing import commit, opened, put

LARGE = 1 << 20
FIRST = 4  # sectors from the beginning, the first one that belongs to the last batch alone


def text(size: int = 700) -> bytes:
    return b"0123456789abcdef" * (size // 16)


def written(
    disk: SimulatedDisk, segment_bytes: int = LARGE, batches: int = 1, finish: bool = False
) -> FileLog:
    """A log with two durable messages, and a third to tenth that the system has but for a sync;
    or with that, if it is to `finish`."""
    log = opened(disk, segment_bytes)
    for _ in range(2):
        put(log, b"s.1", text())
    commit(log)
    for _ in range(batches):
        for _ in range(8 // batches):
            put(log, b"s.1", text())
        batch = log.prepare_sync()
        assert batch is not None
        batch.flush()
        if finish:
            batch.run()
            log.finish_sync(batch)
    return log


def last(disk: SimulatedDisk) -> str:
    return disk.files(".seg")[-1]


def there(log: FileLog) -> list[int]:
    return [seq for seq in range(1, log.last_seq + 1) if log.holds(seq)]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("sectors", [[4], [5, 6], [4, 8], [9], [4, 5, 6, 7, 8, 9, 10]])
def test_sectors_that_were_not_written_cost_nothing_that_is_reported(
    sectors: list[int], batches: int
) -> None:
    disk = SimulatedDisk(Random(1))
    written(disk, batches=batches)
    for sector in sectors:
        disk.overwrite(last(disk), sector * SECTOR, bytes(SECTOR))
    kept = []
    for life in range(4):  # no later start finds it either
        log = opened(disk, LARGE)
        assert log.lost.count == 0
        assert there(log)[:2] == [1, 2]
        assert 2 < len(there(log)) - life < 10
        kept = kept or there(log)
        assert there(log)[: len(kept)] == kept
        put(log, b"s.1", text())
        commit(log)


def test_the_torn_beginning_of_a_batch_leaves_the_rest_of_it_readable() -> None:
    disk = SimulatedDisk(Random(1))
    written(disk)
    disk.overwrite(last(disk), FIRST * SECTOR, bytes(SECTOR))
    log = opened(disk, LARGE)
    assert there(log) == [1, 2, 5, 6, 7, 8, 9, 10]
    assert log.last_seq == 10


@pytest.mark.parametrize("known", ["by the next batch", "elsewhere", "by the next segment"])
def test_sectors_of_a_durable_batch_that_read_as_zeros_are_reported(known: str) -> None:
    disk = SimulatedDisk(Random(1))
    log = written(disk, 12_000, finish=True)
    path = last(disk)
    if known == "elsewhere":
        log.keep_end_at_once()
    else:
        for _ in range(1 if known == "by the next batch" else 20):
            put(log, b"s.1", text())
            commit(log, jobs=False)
    disk.overwrite(path, FIRST * SECTOR, bytes(SECTOR))
    assert opened(disk, 12_000).lost.sequences == [3, 4]


def test_a_flipped_bit_is_no_torn_write() -> None:
    disk = SimulatedDisk(Random(1))
    written(disk)
    disk.flip(last(disk), 8 * (FIRST * SECTOR + 100))
    assert opened(disk, LARGE).lost.count == 1


def test_zeros_within_a_damaged_message_are_not_taken_for_sectors() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, LARGE)
    put(log, b"s.1", b"x" + bytes(3_000) + b"x")
    put(log, b"s.1", text())
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    disk.flip(last(disk), 8 * 60)
    assert opened(disk, LARGE).lost.sequences == [1]


@pytest.mark.parametrize("sector", range(4, 8))
def test_a_batch_over_two_segments_of_which_the_first_is_cut_short_is_torn(sector: int) -> None:
    disk = SimulatedDisk(Random(1))
    written(disk, 4_000)
    first, second = disk.files(".seg")[:2]
    size = len(disk.read(first))
    disk.overwrite(first, sector * SECTOR, bytes(size - sector * SECTOR))
    for _ in range(3):
        log = opened(disk, 4_000)
        assert log.lost.count == 0
        assert there(log)[:2] == [1, 2]
        assert there(log)[-1] == log.last_seq
        assert int(second.split("/")[-1][:20]) in there(log)
        put(log, b"s.1", text())
        commit(log)


@pytest.mark.parametrize("seed", range(60))
def test_no_crash_is_taken_for_damage(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    size = random.choice((2_000, 5_000, LARGE))
    log = opened(disk, size)
    for _ in range(6):
        for _ in range(random.randrange(5)):
            put(log, b"s.1", text(random.randrange(16, 3_000)))
            if random.random() < 0.3:
                commit(log, jobs=random.random() < 0.5)
        for _ in range(random.randrange(6)):
            put(log, b"s.1", text(random.randrange(16, 3_000)))
        batch = log.prepare_sync()
        if batch is not None and random.random() < 0.8:
            batch.flush()
        disk.crash()
        log = opened(disk, size)
        assert log.lost.count == 0


@pytest.mark.parametrize("seed", range(8))
def test_what_a_blank_file_has_told_of_the_end_is_durable_when_it_is_shown(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    opened(disk, LARGE)
    disk.makedirs("log")
    disk.open(f"log/{2:020d}.seg").close()
    disk.sync_dir("log")
    assert opened(disk, LARGE).last_seq == 1
    disk.crash()
    assert opened(disk, LARGE).last_seq == 1
