"""Messages are found by their sequence in segments whose columns have left memory."""

from random import Random

import pytest

from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from slipstream.log.segment_reader import COLUMNS_LOADED_MAX
from slipstream.testing.simulated_disk import SimulatedDisk

from .storing import body_of, commit, fill


@pytest.mark.parametrize("reopened", [False, True])
def test_every_message_is_found_in_any_order_in_many_segments(reopened: bool) -> None:
    disk = SimulatedDisk(Random(1))
    log = open_log(disk, "log", segment_bytes=2_000)
    for _ in range(60):
        fill(log, 5)
        commit(log)
    if reopened:
        log.close()
        log = open_log(disk, "log", segment_bytes=2_000)
    assert len(log.blocks) > 3 * COLUMNS_LOADED_MAX
    record = Record()
    sequences = list(range(1, 301)) * 3
    Random(2).shuffle(sequences)
    for seq in sequences:
        assert log.read(seq, record)
        assert (record.seq, record.body()) == (seq, body_of(seq))


def test_what_was_removed_is_not_found_again_when_columns_have_left_memory() -> None:
    log = open_log(SimulatedDisk(Random(1)), "log", segment_bytes=2_000)
    for _ in range(60):
        fill(log, 5)
        commit(log)
    record = Record()
    for seq in range(1, 301):
        assert log.read(seq, record)
    for seq in range(7, 301, 50):
        assert log.remove(seq, seq % 100 == 57)
    commit(log)
    for _ in range(2):
        for seq in range(1, 301):
            assert log.read(seq, record) == ((seq - 7) % 50 != 0)
