"""Both logs agree with a simple model, whatever is done to them in whatever order."""

from random import Random

import pytest

from slipstream.log.file_log import FileLog
from slipstream.log.memory_log import MemoryLog
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.log_model import LogModel, compare, operate
from tests.log.storing import opened

STEPS = 250


def commit(log: FileLog) -> None:
    batch = log.prepare_sync()
    if batch is not None:
        batch.run()
        log.finish_sync(batch)
    for job in log.take_jobs():
        job.run()
        job.finish()


@pytest.mark.parametrize("seed", range(12))
def test_a_memory_log_agrees_with_the_model(seed: int) -> None:
    random = Random(seed)
    log = MemoryLog()
    model = LogModel(log.size_of)
    for now in range(1, STEPS):
        operate(log, model, random, now)
        compare(log, model, random)


@pytest.mark.parametrize("seed", range(24))
def test_a_file_log_agrees_with_the_model_across_restarts_and_crashes(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    segment_bytes = random.choice((700, 2_000, 8_000))
    log = opened(disk, segment_bytes)
    model = LogModel(log.size_of)
    for now in range(1, STEPS):
        operate(log, model, random, now)
        kind = random.random()
        if kind < 0.2:
            commit(log)
        elif kind < 0.25:
            if kind < 0.22:
                log.close()
            else:
                commit(log)
            if kind < 0.24:
                disk.crash()
            log = opened(disk, segment_bytes)
        compare(log, model, random)
        assert log.lost.count == 0
    log.close()
    assert not [name for name in disk.files() if "damaged" in name]


@pytest.mark.parametrize("seed", range(6))
def test_a_log_starts_where_it_is_told_to(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    log = opened(disk, 2_000, 1_000)
    model = LogModel(log.size_of, last_seq=999)
    for now in range(1, 60):
        operate(log, model, random, now)
        compare(log, model, random)
    commit(log)
    disk.crash()
    compare(opened(disk, 2_000, 1_000), model, random)
