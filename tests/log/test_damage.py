"""Damage that comes twice, at the end, in two places, and files of others: what is kept of it, how
it is counted, and what is not the log's."""

from random import Random

import pytest

from slipstream import build
from slipstream.log import damage
from slipstream.log.file_log import FileLog
from slipstream.log.record import COMMIT_SIZE, Record
from slipstream.log.segment import HEADER_SIZE
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import commit, fill, opened, put, readable

SEGMENT = 2_000  # about fourteen messages


def reopen(disk: SimulatedDisk) -> FileLog:
    return opened(disk, SEGMENT)


def written(count: int) -> tuple[SimulatedDisk, list[str]]:
    """A disk with a log of so many messages, closed in order, and its segments."""
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(count):
        fill(log, 1)
        commit(log)
    log.close()
    return disk, disk.files(".seg")


def test_a_message_lost_where_a_torn_write_was_cut_off_is_kept_and_recalled_too() -> None:
    disk = SimulatedDisk(Random(1))
    assert damage.set_aside(disk, "log", 1, 32, b"torn")
    assert not damage.set_aside(disk, "log", 1, 32, b"torn")
    assert damage.set_aside(disk, "log", 1, 32, b"a whole message", 1, 1)
    assert not damage.set_aside(disk, "log", 1, 32, b"a whole message", 1, 1)
    lost = damage.recall(disk, "log")
    assert (lost.count, lost.bytes) == (1, len(b"torn" + b"a whole message"))


def test_damage_that_spreads_is_counted_once() -> None:
    disk = SimulatedDisk(Random(1))
    damage.set_aside(disk, "log", 1, 32, b"one", 1, 1)
    damage.set_aside(disk, "log", 1, 32, b"one and two", 1, 2)
    lost = damage.recall(disk, "log")
    assert lost.count == 2
    assert lost.sequences == [1, 2]


def test_the_sequence_of_a_message_lost_at_the_end_is_given_to_no_other() -> None:
    disk, _ = written(3)
    damage.set_aside(disk, "log", 1, 5_000, b"was here", 4, 6)
    log = reopen(disk)
    assert log.last_seq == 6
    fill(log, 1)
    assert readable(log) == [1, 2, 3, 7]
    commit(log)
    disk.crash()
    assert readable(reopen(disk)) == [1, 2, 3, 7]


def test_records_damaged_beside_their_footers_second_part_are_missed_at_the_next_start() -> None:
    disk, segments = written(40)
    data = disk.read(segments[1])
    end = int.from_bytes(data[-20:-12], "little")  # of the records
    disk.overwrite(segments[1], HEADER_SIZE + 150, bytes(end - HEADER_SIZE - 150))
    disk.flip(segments[1], (len(data) - 20) * 8)  # the second part lies before the trailer
    log = reopen(disk)
    found = readable(log)
    assert len(found) < 40
    log.close()
    log = reopen(disk)
    assert readable(log) == found
    assert log.messages == len(found)
    assert log.lost.sequences == [seq for seq in range(1, 41) if seq not in found]


def test_one_bad_bit_in_a_footer_removes_no_message_with_those_removed_before() -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    fill(log, 8)
    log.remove(6, False)
    log.drop_below(6)
    fill(log, 32)
    commit(log)
    log.close()
    first = disk.files(".seg")[0]
    disk.flip(first, (len(disk.read(first)) - 22) * 8)  # in the part that says what is removed
    log = reopen(disk)
    assert log.messages == 34
    assert readable(log) == list(range(7, 41))
    log.drop_below(8)
    commit(log)
    disk.crash()
    assert readable(reopen(disk)) == list(range(8, 41))
    assert reopen(disk).lost.count == 0


@pytest.mark.parametrize("reads_before", [0, 1, 2])
def test_a_bad_sector_in_a_footer_takes_nothing_while_the_records_can_be_read(
    reads_before: int,
) -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    fill(log, 8)
    log.remove(6, False)
    log.drop_below(5)
    fill(log, 32)
    commit(log)
    log.close()
    log = reopen(disk)
    disk.fail("pread", 1 + reads_before)  # EIO
    assert log.count((), 6) == 34
    assert readable(log) == [5, *range(7, 41)]
    log.drop_below(30)
    assert readable(log) == list(range(30, 41))
    counts = log.subject_counts(b">")
    assert counts == {f"s.{n}": sum(seq % 3 == n for seq in range(30, 41)) for n in range(3)}
    disk.heal()
    commit(log)
    disk.crash()
    assert readable(reopen(disk)) == list(range(30, 41))


def test_a_copy_of_a_record_in_the_place_of_another_one_is_damage() -> None:
    disk, segments = written(40)
    data = disk.read(segments[1])
    first = int(segments[1][-24:-4])
    size = int.from_bytes(data[HEADER_SIZE + 4 : HEADER_SIZE + 8], "little")
    third = HEADER_SIZE + 2 * (size + COMMIT_SIZE)
    disk.overwrite(segments[1], third, data[HEADER_SIZE : HEADER_SIZE + size])
    log = reopen(disk)
    assert readable(log) == [seq for seq in range(1, 41) if seq != first + 2]
    assert log.lost.sequences == [first + 2]


def test_files_of_others_are_left_alone() -> None:
    disk, segments = written(40)
    names = ["copy of 1.seg", "\udcff.seg", "1.seg", "9" * 23 + ".seg"]
    for name in names:
        disk.open(f"log/{name}").append(b"not ours")
    disk.open("log/" + "3".rjust(20, "0") + ".seg").append(disk.read(segments[0]))  # a copy
    log = reopen(disk)
    assert readable(log) == list(range(1, 41))
    assert log.messages == 40
    assert all(disk.read(f"log/{name}") == b"not ours" for name in names)


def test_damage_in_the_newest_segment_is_not_found_again_once_its_report_has_ended() -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(5):
        fill(log, 1)
        commit(log)
    disk.crash()
    disk.flip(disk.files(".seg")[0], 8 * (HEADER_SIZE + 50))
    log = reopen(disk)
    assert log.lost.sequences == [1]
    assert readable(log) == [2, 3, 4, 5]
    fill(log, 1)
    commit(log)
    disk.crash()
    for name in disk.list("log/damaged"):
        disk.remove(f"log/damaged/{name}")
    log = reopen(disk)
    assert not log.lost.count
    fill(log, 1)
    assert readable(log) == [2, 3, 4, 5, 6, 7]


def test_a_search_by_time_passes_any_number_of_damaged_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Calls within calls ended the compiled build at some 50,000, plain Python at 1,000.
    count = 60_000 if build.is_compiled("slipstream.log.base") else 1_500
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 32 * 1024 * 1024)
    for _ in range(count):
        put(log, b"s", b"harmed")
    commit(log)
    log.cut()
    put(log, b"s", b"whole")
    commit(log)
    log.close()
    log = opened(disk, 32 * 1024 * 1024)
    (path,) = [path for path in disk.files(".seg") if path.endswith("/00000000000000000001.seg")]
    file = disk.open(path)
    file.pwrite(0, file.pread(0, file.size()).replace(b"harmed", b"HARMED"))
    # The report of each would take its time; the search is what this is about.
    monkeypatch.setattr(damage, "set_aside", lambda *_, **__: True)
    assert log.seq_at(1_000 + count // 2) == count + 1


def harmed(harm: str) -> tuple[SimulatedDisk, FileLog, list[int]]:
    """A log that had read of a closed segment when that was harmed, and what it has."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 3_000)
    commit(log)
    log.cut()
    fill(log, 1)
    commit(log)
    log.close()
    log = opened(disk, 1 << 20)
    assert log.read(1, Record())
    path = disk.files(".seg")[0]
    size = disk.open(path).size()
    if harm == "zeros":
        disk.overwrite(path, size // 4, bytes(size // 2))
    elif harm == "cut":
        disk.cut(path, size // 4)
    return disk, log, list(range(1, 3_002))


@pytest.mark.parametrize("harm", ["zeros", "cut"])
def test_messages_that_are_damaged_in_a_row_cost_few_syncs(harm: str) -> None:
    disk, log, all_of_them = harmed(harm)
    before = disk.calls["sync"] + disk.calls["sync_dir"]
    found = readable(log)
    ranges = sorted(log.lost.ranges)
    lost = [seq for first, last in ranges for seq in range(first, last + 1)]
    assert sorted([*found, *lost]) == all_of_them
    assert len(lost) > 1_000
    assert len(ranges) <= 5
    assert disk.calls["sync"] + disk.calls["sync_dir"] - before <= 4 * len(ranges)
    commit(log)
    disk.crash()
    log = opened(disk, 1 << 20)
    again = readable(log)  # less than what was in memory still
    missing = {seq for first, last in log.lost.ranges for seq in range(first, last + 1)}
    assert set(lost) <= missing
    assert sorted([*again, *missing]) == all_of_them


def test_a_message_that_is_whole_ends_what_is_lost_in_a_row() -> None:
    disk, log, _ = harmed("")
    path = disk.files(".seg")[0]
    data = disk.read(path)
    record = Record()
    for seq in (100, 101, 103, 104):
        assert log.read(seq, record)
        at = data.index(record.body())
        disk.overwrite(path, at, bytes(4))
    log = opened(disk, 1 << 20)
    assert 102 in readable(log)
    assert sorted(log.lost.ranges) == [(100, 101), (103, 104)]


def test_a_message_damaged_behind_one_that_is_lost_already_is_told_too() -> None:
    disk, log, _ = harmed("")
    path = disk.files(".seg")[0]
    bodies = {}
    record = Record()
    for seq in (100, 101):
        assert log.read(seq, record)
        bodies[seq] = disk.read(path).index(record.body())
    lost: list[int] = []
    for seq in (100, 101):
        disk.overwrite(path, bodies[seq], bytes(4))
        log = opened(disk, 1 << 20)
        assert seq not in readable(log)
        commit(log)
        disk.crash()
        lost.append(seq)
        log = opened(disk, 1 << 20)
        assert log.lost.sequences == lost
