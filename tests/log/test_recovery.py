"""Opening a log after whatever happened to its files: damage costs what it must, and is told."""

from pathlib import Path
from random import Random

import pytest

from slipstream.log.disk import OsDisk
from slipstream.log.file_log import PIECE_BYTES, FileLog
from slipstream.log.record import COMMIT_SIZE, MESSAGE, Record, length_at
from slipstream.log.recovery import open_log
from slipstream.log.segment import HEADER_SIZE, decode_header, scan_records
from slipstream.testing.simulated_disk import SimulatedDisk, SimulatedFile
from tests.log.storing import body_of, commit, fill, opened, put, readable

SEGMENT = 2_000  # about fourteen messages


def reopen(disk: SimulatedDisk) -> FileLog:
    return opened(disk, SEGMENT)


def written(count: int, footers: bool = True) -> tuple[SimulatedDisk, list[str]]:
    """A disk with a log of so many messages, and its segments."""
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    for _ in range(count):
        fill(log, 1)
        commit(log, footers)
    if footers:
        log.close()
    else:
        log.keep_end_at_once()
        disk.crash()
    return disk, disk.files(".seg")


def spans(disk: SimulatedDisk, path: str) -> dict[int, tuple[int, int]]:
    """Where each message of a segment lies."""
    base = int(path.split("/")[-1].split(".")[0])
    data = disk.read(path)
    return {
        record.seq: (at, record.end)
        for record, at in scan_records(data, base, decode_header(data).salt)
        if record.kind == MESSAGE
    }


@pytest.mark.parametrize("footers", [True, False])
def test_a_flipped_bit_costs_one_message_wherever_it_is(footers: bool) -> None:
    disk, segments = written(40, footers)
    (seq, (start, end)) = list(spans(disk, segments[1]).items())[5]
    for bit in range(start * 8, end * 8, 37):
        copy, _ = written(40, footers)
        copy.flip(segments[1], bit)
        log = reopen(copy)
        assert readable(log) == [s for s in range(1, 41) if s != seq], bit
        assert log.lost.sequences == [seq]
        assert (log.messages, log.last_seq) == (39, 40)
        log.close()
        assert any(f".lost-{seq}-{seq}" in name for name in copy.files())


def test_what_was_lost_is_told_until_somebody_takes_the_damaged_bytes_away() -> None:
    disk, segments = written(40)
    (seq, (start, _)) = next(iter(spans(disk, segments[0]).items()))
    disk.flip(segments[0], (start + 30) * 8)
    readable(reopen(disk))
    log = reopen(disk)
    assert log.lost.sequences == [seq]
    assert log.lost.bytes > 100
    for path in disk.files():
        if "damaged" in path:
            disk.lose(path)
    assert reopen(disk).lost.count == 0


def test_damaged_bytes_are_kept_as_they_were() -> None:
    disk, segments = written(40, footers=False)
    (seq, (start, end)) = list(spans(disk, segments[0]).items())[3]
    disk.overwrite(segments[0], start + 10, b"\xff" * 50)
    harmed = disk.read(segments[0])[start:end]
    reopen(disk)
    (kept,) = [path for path in disk.files() if "damaged" in path]
    assert kept.endswith(f".lost-{seq}-{seq}")
    assert disk.read(kept) == harmed


def test_a_hole_over_several_messages_costs_just_those() -> None:
    disk, segments = written(40, footers=False)
    places = list(spans(disk, segments[0]).items())
    start, end = places[2][1][0] + 5, places[4][1][1] - 5
    disk.overwrite(segments[0], start, bytes(end - start))
    log = reopen(disk)
    gone = [places[n][0] for n in (2, 3, 4)]
    assert log.lost.sequences == gone
    assert readable(log) == [s for s in range(1, 41) if s not in gone]


def test_a_torn_tail_is_cut_back_to_the_last_whole_record() -> None:
    disk, segments = written(19, footers=False)
    log = reopen(disk)
    fill(log, 1)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()
    (start, end) = spans(disk, segments[-1])[20]
    disk.overwrite(segments[-1], (start + end) // 2, bytes(end - start))
    log = reopen(disk)
    assert (log.last_seq, log.lost.count) == (19, 0)
    assert put(log, b"s.2", b"again") == 20
    commit(log)
    assert reopen(disk).last_seq == 20


def test_bytes_behind_the_last_record_are_cut_and_kept_aside() -> None:
    disk, segments = written(5, footers=False)
    file = disk.open(segments[-1])
    file.append(b"not a record at all" * 3)
    file.sync()
    log = reopen(disk)
    assert readable(log) == [1, 2, 3, 4, 5]
    fill(log, 3)
    commit(log)
    assert readable(reopen(disk)) == list(range(1, 9))
    assert [name for name in disk.files() if "damaged" in name]


def test_a_closed_segment_that_was_cut_short_is_missed() -> None:
    disk, segments = written(40)
    middle = spans(disk, segments[1])
    disk.cut(segments[1], list(middle.values())[4][0])
    log = reopen(disk)
    gone = sorted(middle)[4:]
    assert log.lost.sequences == gone
    assert readable(log) == [s for s in range(1, 41) if s not in gone]
    assert reopen(disk).lost.sequences == gone


@pytest.mark.parametrize("harm", ["trailer", "head", "second part"])
def test_a_damaged_footer_is_replaced_by_looking_at_the_records(harm: str) -> None:
    disk, segments = written(40)
    data = disk.read(segments[0])
    begin = int.from_bytes(data[-20:-12], "little")
    at = {"trailer": len(data) - 1, "head": begin + 2, "second part": len(data) - 30}[harm]
    disk.flip(segments[0], at * 8)
    log = reopen(disk)
    assert readable(log) == list(range(1, 41))
    assert log.lost.count == 0
    commit(log)
    log.close()
    assert readable(reopen(disk)) == list(range(1, 41))


def test_a_damaged_header_costs_nothing() -> None:
    disk, segments = written(40, footers=False)
    for path in segments:
        disk.flip(path, 9 * 8)
    assert readable(reopen(disk)) == list(range(1, 41))


def test_opening_reads_footers_and_not_segments() -> None:
    disk, segments = written(300)
    assert len(segments) > 15
    begin = disk.calls["pread"]
    log = reopen(disk)
    assert log.messages == 300
    # header, trailer, head and both parts of each; the last segment is read whole
    assert disk.calls["pread"] - begin <= 5 * len(segments) + 4


@pytest.mark.parametrize("footers", [True, False])
def test_when_the_first_message_was_stored_is_known_without_reading_it(footers: bool) -> None:
    disk, _ = written(5, footers)
    log = reopen(disk)
    begin = disk.calls["pread"]
    first = log.first_ts
    assert disk.calls["pread"] == begin
    record = Record()
    assert log.read(1, record)
    assert first == record.ts


@pytest.mark.parametrize("removed", [1, 3])
def test_when_the_first_one_that_is_left_was_stored_is_read(removed: int) -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    fill(log, 5)
    for seq in range(1, removed + 1):
        log.remove(seq, False)
    commit(log)
    disk.crash()
    log = reopen(disk)
    record = Record()
    assert log.read(removed + 1, record)
    assert (log.first_seq, log.first_ts) == (removed + 1, record.ts)


def test_a_log_that_was_closed_in_order_is_not_looked_through() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 100_000)
    fill(log, 400)
    log.close()
    (path,) = disk.files(".seg")
    disk.flip(path, 8 * (HEADER_SIZE + 1_000))
    log = opened(disk, 100_000)
    assert (log.first_seq, log.last_seq, log.messages) == (1, 400, 400)
    assert log.lost.count == 0  # nobody has looked yet
    disk.flip(path, 8 * (HEADER_SIZE + 1_000))
    fill(log, 10)
    commit(log)
    disk.crash()
    assert readable(opened(disk, 100_000)) == list(range(1, 411))


def test_removals_before_a_footer_was_written_are_not_repeated_at_the_next_opening() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 2_060)  # no segment ends between a message and its removal
    for _ in range(20):
        fill(log, 10)
        log.remove(log.last_seq - 3, False)
        commit(log)
    log.close()
    begin = disk.calls["pread"]
    log = opened(disk, 2_060)
    assert log.messages == 180
    assert disk.calls["pread"] - begin <= 6 * len(log.blocks) + 4


def test_an_unreadable_sector_costs_its_message() -> None:
    disk, segments = written(40)
    log = reopen(disk)
    seqs = sorted(spans(disk, segments[0]))

    class BadSector:
        def __init__(self) -> None:
            self.inner = disk.open(segments[0])

        def pread(self, offset: int, size: int) -> bytes:
            bad = spans(disk, segments[0])[seqs[2]][0] + 8
            if offset <= bad < offset + size:
                raise OSError(5, "Input/output error")
            return self.inner.pread(offset, size)

        def size(self) -> int:
            return self.inner.size()

        def close(self) -> None:
            self.inner.close()

    log.reader.changed(log.blocks[0])  # opening has read the first message
    log.blocks[0].file = BadSector()
    assert readable(log) == [s for s in range(1, 41) if s != seqs[2]]
    assert log.lost.sequences == [seqs[2]]


def test_erasing_destroys_the_bytes_and_nothing_else() -> None:
    for footers in (True, False):
        disk, segments = written(40, footers)
        log = reopen(disk)
        for seq in (3, 20, 40):
            assert log.remove(seq, True)
        commit(log)
        for path in segments:
            data = disk.read(path)
            for seq in (3, 20, 40):
                assert b"message %d ." % seq not in data
        disk.crash()
        log = reopen(disk)
        assert readable(log) == [s for s in range(1, 41) if s not in (3, 20, 40)]
        assert log.lost.count == 0
        assert log.last_seq == 40


def test_an_erasure_that_a_crash_cut_short_loses_nothing_else() -> None:
    for seed in range(8):
        disk, _ = written(40)
        disk.random = Random(seed)
        log = reopen(disk)
        log.remove(3, True)
        log.prepare_sync()  # written, not synced
        disk.crash()
        log = reopen(disk)
        found = readable(log)
        assert [s for s in found if s != 3] == [1, 2, *range(4, 41)]
        assert log.messages == len(found)


@pytest.mark.parametrize("seed", range(8))
def test_the_sequence_of_the_newest_is_not_given_again_when_a_crash_tears_its_erasure(
    seed: int,
) -> None:
    disk = SimulatedDisk(Random(seed))
    log = reopen(disk)
    fill(log, 3)
    body = body_of(4, 1_000)
    put(log, b"s.1", body)
    commit(log)
    log.remove(4, True)
    disk.crash()
    log = reopen(disk)
    assert log.last_seq == 4
    assert set(log.lost.sequences) <= {4}


def test_purging_keeps_the_newest_and_survives_a_crash() -> None:
    disk, _ = written(30)
    log = reopen(disk)
    assert log.purge((b"s.1",), 0, 2) == 8
    assert log.purge((), 0, 5) == 17
    commit(log)
    expected = readable(log)
    assert len(expected) == 5
    disk.crash()
    log = reopen(disk)
    assert readable(log) == expected
    assert log.purge((), 0, 0) == 5
    commit(log)
    disk.crash()
    log = reopen(disk)
    assert (log.messages, log.bytes, log.first_seq, log.last_seq) == (0, 0, 31, 30)


def test_the_front_does_not_come_back_when_the_segment_that_told_of_it_goes() -> None:
    disk, _ = written(60)
    log = reopen(disk)
    log.drop_below(30)
    commit(log)
    for seq in range(45, 58):
        log.remove(seq, False)
        commit(log)
    disk.crash()
    assert readable(reopen(disk)) == [*range(30, 45), 58, 59, 60]


def test_sequences_far_apart_are_no_loss() -> None:
    disk, _ = written(3)
    log = reopen(disk)
    log.advance(10_000_000_000)
    fill(log, 2)
    commit(log, jobs=False)
    disk.crash()
    log = reopen(disk)
    assert readable(log) == [1, 2, 3, 10_000_000_001, 10_000_000_002]
    assert log.lost.count == 0


def test_an_empty_file_from_a_crash_is_no_segment() -> None:
    disk, _ = written(5)
    disk.open(f"log/{6:020d}.seg").reserve(HEADER_SIZE)
    log = reopen(disk)
    assert log.last_seq == 5
    fill(log, 1)
    commit(log)
    assert readable(reopen(disk)) == [1, 2, 3, 4, 5, 6]


def test_a_last_segment_that_tells_of_removals_alone_is_there_after_a_stop_in_order() -> None:
    disk = SimulatedDisk(Random(1))
    log = reopen(disk)
    fill(log, 80)
    commit(log)
    for seq in range(80, log.active_base() - 1, -1):
        log.remove(seq, False)
    commit(log)
    assert log.active_base() == 81  # the last messages are gone, with their segment
    left = [seq for seq in readable(log) if seq % 2]
    for seq in readable(log):
        if seq % 2 == 0:
            log.remove(seq, False)
            commit(log, jobs=False)
    for _ in range(2):
        log.close()
        log = reopen(disk)
        assert (log.last_seq, readable(log)) == (80, left)


def test_what_a_killed_process_had_begun_is_no_loss(tmp_path: Path) -> None:
    log = open_log(OsDisk(), str(tmp_path), segment_bytes=SEGMENT)
    fill(log, 5)
    commit(log)
    fill(log, 40)  # two more segments, in a batch that does not run
    assert log.prepare_sync() is not None
    log = open_log(OsDisk(), str(tmp_path), segment_bytes=SEGMENT)
    assert log.lost.count == log.lost.bytes == 0
    assert readable(log)[:5] == [1, 2, 3, 4, 5]
    fill(log, 40)
    commit(log)
    assert open_log(OsDisk(), str(tmp_path), segment_bytes=SEGMENT).last_seq == log.last_seq


@pytest.mark.parametrize("torn", [0, COMMIT_SIZE])  # bytes of the last COMMIT record
def test_a_sparse_copy_of_a_segment_has_the_messages_that_end_with_zeros(
    tmp_path: Path, torn: int
) -> None:
    body = b"x".ljust(3 * 4096, b"\0")
    log = open_log(OsDisk(), str(tmp_path))
    for _ in range(2):
        put(log, b"s", body)
        commit(log)
    [path] = tmp_path.glob("*.seg")
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    data = data[: end - torn].ljust(len(data), b"\0")
    path.unlink()
    with path.open("wb") as file:
        for at in range(0, len(data), 4096):
            if data[at : at + 4096].strip(b"\0"):
                file.seek(at)
                file.write(data[at : at + 4096])
        file.truncate(len(data))
    log = open_log(OsDisk(), str(tmp_path))
    record = Record()
    for seq in (1, 2):
        assert log.read(seq, record)
        assert record.body() == body
    assert log.lost.count == 0


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_start_could_not_sync_is_written_again_by_the_next_one(
    operation: str, seed: int
) -> None:
    disk = SimulatedDisk(Random(seed))
    log = reopen(disk)
    fill(log, 3)
    batch = log.prepare_sync()
    assert batch is not None
    batch.flush()  # and the process ends
    disk.fail(operation)
    with pytest.raises(OSError, match="Input/output"):
        reopen(disk)
    log = reopen(disk)
    assert readable(log) == [1, 2, 3]
    fill(log, 1)
    commit(log)
    disk.crash()
    assert readable(reopen(disk)) == [1, 2, 3, 4]


class Appending(SimulatedDisk):
    """A disk that notes what was appended to segments at once."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.appended: list[bytes] = []

    def open(self, path: str) -> SimulatedFile:
        file = super().open(path)
        append = file.append

        def noting(data: bytes) -> None:
            if path.endswith(".seg"):
                self.appended.append(data)
            append(data)

        file.append = noting  # type: ignore[method-assign]
        return file


def test_a_large_batch_is_appended_in_pieces_of_whole_records() -> None:
    disk = Appending()
    log = opened(disk, 64 * 1024 * 1024)
    sizes = [100, PIECE_BYTES // 3, 2 * PIECE_BYTES, 20, PIECE_BYTES // 2, PIECE_BYTES // 2 + 1]
    for seq, size in enumerate(sizes, 1):
        put(log, b"s", body_of(seq, size))
    commit(log)
    pieces = [data for data in disk.appended if len(data) > HEADER_SIZE]
    assert len(pieces) > 3
    for piece in pieces:
        at = count = 0
        while at < len(piece):
            at += length_at(piece, at)
            count += 1
        assert at == len(piece)
        assert count == 1 or len(piece) <= PIECE_BYTES
    disk.crash()
    log = opened(disk, 64 * 1024 * 1024)
    record = Record()
    found = [len(record.body()) for seq in range(1, 7) if log.read(seq, record)]
    assert found == sizes
