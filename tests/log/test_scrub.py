"""The scrub of a segment: what is whole, what is not, and what only looks so for a moment."""

from pathlib import Path
from random import Random

import pytest

from slipstream.log import scrub
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from slipstream.log.scrub import Hole, SegmentScrub
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.log.storing import body_of, commit, fill, opened, put


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FileLog:
    """A log of several closed segments, each read in several pieces."""
    monkeypatch.setattr(scrub, "PIECE_BYTES", 500)
    made = opened(SimulatedDisk(Random(1)))
    fill(made, 50)
    commit(made)
    return made


def _scrubbed(log: FileLog, number: int = 0) -> SegmentScrub:
    segment = log.blocks[number]
    assert segment.footed
    found = SegmentScrub.of(log.disk, log.directory, log.reader.file_of(segment), segment)
    pieces = 0
    while not found.ended:
        found.read()
        pieces += 1
        assert 0 < found.took <= 2 * segment.records_end or found.problem
    return found


def _offset(log: FileLog, seq: int, number: int = 0) -> int:
    segment = log.blocks[number]
    if segment.ids is None:
        log.reader.load(segment)
    return int(segment.offsets.get(seq - segment.base))


def _flip(log: FileLog, offset: int, number: int = 0) -> None:
    """One bit of a segment's file is another one."""
    file = log.reader.file_of(log.blocks[number])
    byte = file.pread(offset, 1)[0]
    file.pwrite(offset, bytes([byte ^ 0x10]))


def test_whole_segments_are_found_whole(log: FileLog) -> None:
    closed = [segment for segment in log.blocks if segment.footed]
    assert len(closed) > 2
    for number in range(len(closed)):
        assert _scrubbed(log, number).text() == ""


def test_a_flipped_bit_costs_the_message_that_it_is_in(log: FileLog) -> None:
    at = _offset(log, 5)
    _flip(log, at + 60)
    found = _scrubbed(log)
    found.confirm()
    size = _offset(log, 6) - at
    assert found.holes == [Hole(at, size, 5, 5)]
    assert found.text() == f"{size} bytes from byte {at} on, where message 5 is or was"


def test_damage_that_swallows_the_size_of_a_record_is_left_behind(log: FileLog) -> None:
    for byte in range(_offset(log, 3), _offset(log, 5) + 8):
        _flip(log, byte)
    (hole,) = _scrubbed(log).holes
    assert (hole.offset, hole.first_seq, hole.last_seq) == (_offset(log, 3), 3, 5)


def test_damage_at_the_end_is_told_from_the_footer(log: FileLog) -> None:
    segment = log.blocks[0]
    last = segment.base + segment.places - 1
    for byte in range(_offset(log, last), segment.records_end):
        _flip(log, byte)
    (hole,) = _scrubbed(log).holes
    assert (hole.first_seq, hole.last_seq) == (last, last)


def test_a_copy_of_another_record_is_damage_too(log: FileLog) -> None:
    file = log.reader.file_of(log.blocks[0])
    first, fourth = _offset(log, 1), _offset(log, 4)
    size = _offset(log, 2) - first
    assert size == _offset(log, 5) - fourth
    file.pwrite(fourth, file.pread(first, size))
    found = _scrubbed(log)
    found.confirm()
    assert [(hole.offset, hole.first_seq) for hole in found.holes] == [(fourth, 4)]


@pytest.mark.parametrize(("back", "where"), [(25, "footer"), (60, "footer")])
def test_a_damaged_footer_is_found(log: FileLog, back: int, where: str) -> None:
    file = log.reader.file_of(log.blocks[0])
    _flip(log, file.size() - back)
    assert where in _scrubbed(log).text()


def test_a_damaged_header_is_found(log: FileLog) -> None:
    _flip(log, 8)
    assert "header" in _scrubbed(log).text()


def test_a_sector_that_cannot_be_read_is_found(log: FileLog) -> None:
    disk = log.disk
    assert isinstance(disk, SimulatedDisk)
    disk.fail("pread", 3)
    assert "the disk does not read it near byte" in _scrubbed(log).text()


def test_a_message_that_was_being_destroyed_is_no_damage(log: FileLog) -> None:
    at = _offset(log, 5)
    _flip(log, at + 60)
    found = _scrubbed(log)
    assert found.holes
    _flip(log, at + 60)
    log.remove(5, True)  # now its bytes are gone on purpose, and the record is whole
    found.confirm()
    assert found.text() == ""
    commit(log)
    assert _scrubbed(log).text() == ""


def test_what_was_set_aside_already_is_not_told_again(log: FileLog) -> None:
    _flip(log, _offset(log, 5) + 60)
    assert not log.read(5, Record())
    found = _scrubbed(log)
    assert found.holes == []
    assert found.is_known


def test_what_compaction_has_written_anew_is_whole(log: FileLog) -> None:
    for seq in range(2, 12):
        log.remove(seq, False)
    for _ in range(3):
        commit(log)
    assert log.blocks[0].rewritten
    assert _scrubbed(log).text() == ""


def test_a_record_larger_than_a_piece_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "PIECE_BYTES", 500)
    log = opened(SimulatedDisk(Random(2)), segment_bytes=6_000)
    for size in (100, 3_000, 100, 5_000, 100):
        put(log, b"s", b"." * size)
    commit(log)
    assert _scrubbed(log).text() == ""


def test_a_flipped_bit_is_found_in_a_real_file(tmp_path: Path) -> None:
    directory = str(tmp_path / "msgs")
    log = open_log(OsDisk(), directory, segment_bytes=20_000)
    for seq in range(1, 400):
        put(log, b"s", body_of(seq))
    commit(log)
    at = _offset(log, 20)
    path = Path(log.blocks[0].path)
    data = bytearray(path.read_bytes())
    data[at + 50] ^= 1
    path.write_bytes(data)
    assert [hole.first_seq for hole in _scrubbed(log).holes] == [20]
    assert _scrubbed(log, 1).text() == ""
    log.close()
