"""Of a group of messages a crash leaves all, or nothing; of one that was durable, damage costs
what it hits."""

from random import Random
from typing import Any

import pytest

from slipstream.errors import DiskFullError
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.segment import decode_header, scan_records
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import body_of, commit, fill, opened, put, readable


def put_group(log: FileLog, count: int, size: int = 100) -> list[int]:
    """Store `count` messages as a group; their sequences."""
    bodies = [body_of(log.last_seq + 1 + n, size) for n in range(count)]
    log.begin_group(count, count, sum(3 + len(body) for body in bodies))
    return [put(log, b"s.g", body) for body in bodies]


def sequences(log: FileLog) -> list[int]:
    """The sequences that can be read, whatever their bodies."""
    found, record = [], Record()
    while log.next(found[-1] + 1 if found else 1, None, record):
        found.append(int(record.seq))
    return found


def span(disk: SimulatedDisk, seq: int) -> tuple[str, int, int]:
    """The file with a message, and where it lies in there."""
    for path in disk.files(".seg"):
        data = disk.read(path)
        if not data.strip(b"\0"):
            continue
        header = decode_header(data)
        for record, at in scan_records(data, header.base, header.salt):
            if record.seq == seq and record.kind == 1:
                return path, at, record.end
    raise AssertionError(f"there is no message {seq}")


def with_torn(seq: int, count: int = 6) -> SimulatedDisk:
    """Messages 1 to 5, then a batch with 6, a group of `count` and one more, written but for a few
    bytes of message `seq`."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 5)
    commit(log)
    fill(log, 1)
    put_group(log, count)
    fill(log, 1)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    path, at, _ = span(disk, seq)
    disk.overwrite(path, at + 30, bytes(24))
    return disk


@pytest.mark.parametrize("seq", range(7, 13))
def test_one_torn_message_takes_its_group_along_and_nothing_else(seq: int) -> None:
    disk = with_torn(seq)
    for more in range(3):
        log = opened(disk, 100_000)
        rest = [*range(1, 7), *range(13, 14 + 2 * more)]
        assert readable(log) == rest
        assert (log.messages, log.subject_counts(b"s.g")) == (len(rest), {})
        fill(log, 2)
        commit(log)


def test_a_group_next_to_a_torn_message_stays() -> None:
    for seq in (6, 13):
        log = opened(with_torn(seq), 100_000)
        assert readable(log) == [other for other in range(1, 14) if other != seq]


@pytest.mark.parametrize("written", range(6))
def test_a_group_that_the_log_ends_in_is_gone(written: int) -> None:
    """The system wrote so many of its messages, to the byte, before the power failed."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 5)
    commit(log)
    put_group(log, 6)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    path, at, _ = span(disk, 6 + written)
    disk.cut(path, at)
    log = opened(disk, 100_000)
    assert readable(log) == [1, 2, 3, 4, 5]
    assert put(log, b"s.1", body_of(log.last_seq + 1)) > 5
    commit(log)
    assert readable(opened(disk, 100_000)) == [*range(1, 6), log.last_seq]


def test_damage_to_a_durable_group_costs_what_it_hits() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    group = put_group(log, 6)
    commit(log)
    fill(log, 1)
    commit(log)
    path, at, _ = span(disk, group[2])
    disk.overwrite(path, at + 30, bytes(24))
    assert readable(opened(disk, 100_000)) == [1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("erase", [False, True])
@pytest.mark.parametrize("seq", [1, 3, 6])
def test_removing_from_a_group_leaves_the_others(seq: int, erase: bool) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    put_group(log, 6)
    commit(log)
    log.remove(seq, erase)
    commit(log)
    rest = [other for other in range(1, 7) if other != seq]
    assert readable(opened(disk, 100_000)) == rest


def test_a_group_lies_in_one_segment_also_if_it_is_larger_than_others() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 2_000)
    fill(log, 10)
    for count in (5, 30, 5):
        group = put_group(log, count)
        commit(log)
        assert len({span(disk, seq)[0] for seq in group}) == 1
    log.close()
    assert readable(opened(disk, 2_000)) == list(range(1, 51))


def test_a_group_for_which_there_is_no_space_is_refused_whole() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1_000_000)
    fill(log, 5)
    commit(log)
    disk.capacity = disk.used() + 2_000
    with pytest.raises(DiskFullError):
        put_group(log, 50)
    assert log.last_seq == 5
    disk.capacity = disk.used() + 100_000
    put_group(log, 50)
    commit(log)
    assert readable(opened(disk, 1_000_000)) == list(range(1, 56))


def test_a_group_with_sequences_that_store_nothing_counts_together() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    log.begin_group(4, 2, 300)
    put(log, b"s.g", body_of(1))
    log.skip(1_000)
    put(log, b"s.g", body_of(3))
    log.skip(1_000)
    commit(log)
    assert readable(opened(disk, 100_000)) == [1, 3]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_crash_leaves_no_group_is_in_parts(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    log = opened(disk, 6_000)
    groups: list[list[int]] = []
    durable = 0
    for _ in range(6):
        for _ in range(random.randint(1, 4)):
            if random.random() < 0.6:
                groups.append(put_group(log, random.randint(2, 12), random.choice((60, 700))))
            else:
                fill(log, random.randint(1, 3))
        if random.random() < 0.7:
            commit(log)
            durable = log.last_seq
        else:
            batch = log.prepare_sync()
            assert batch is not None
            batch.flush()
            break
    disk.crash()
    for _ in range(2):
        log = opened(disk, 6_000)
        found = set(sequences(log))
        assert set(range(1, durable + 1)) <= found
        for group in groups:
            assert len(found.intersection(group)) in (0, len(group)), group
        groups = []
        durable = log.last_seq if set(range(1, log.last_seq + 1)) <= found else durable
        fill(log, 2)
        commit(log)


class Killed(Exception):
    """The process ends in the middle of a start."""


def killed_at_write(disk: SimulatedDisk, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Open the log, but end at the `number`th overwriting; False if there are not so many."""
    begin = SimulatedDisk.begin
    writes = 0

    def counting(self: SimulatedDisk, operation: str, *given: Any) -> Any:
        nonlocal writes
        writes += operation == "pwrite"
        if writes == number:
            raise Killed
        return begin(self, operation, *given)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDisk, "begin", counting)
        try:
            opened(disk, 100_000)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("torn", [7, 9, 12])
def test_a_start_that_is_cut_short_leaves_no_part_of_a_torn_group_to_the_next(
    torn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 20):
        disk = with_torn(torn)
        was_killed = killed_at_write(disk, number, monkeypatch)
        assert not set(range(7, 13)).intersection(sequences(opened(disk, 100_000)))
        if not was_killed:
            return
    raise AssertionError("the start never came to its end")
